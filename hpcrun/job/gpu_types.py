"""Several GPU types in one profile: the type of a request, and the profile's values for this type."""

from __future__ import annotations

from typing import TypeVar

from pydantic import BaseModel

from hpcrun.errors import UsageError, nearest
from hpcrun.job.profile import Profile
from hpcrun.job.request import JobRequest

_Section = TypeVar("_Section", bound=BaseModel)


def asked_gpu_type(request: JobRequest) -> str | None:
    """Return the GPU type that a request names, None if it names none.

    Raises:
        UsageError: it names two.
    """
    asked = {count.type for count in (request.gpus, request.gpus_per_node) if count and count.type}
    if len(asked) > 1:
        raise UsageError(f"two GPU types at once: {' and '.join(sorted(asked))}")
    return next(iter(asked), None)


def types_to_choose_from(profile: Profile, request: JobRequest) -> tuple[str, ...]:
    """Return the GPU types of a profile between which a request does not decide; none if its type is clear."""
    if profile.scheduler == "local" or asked_gpu_type(request) is not None or _wants_no_gpu(request):
        return ()
    own = (profile.gpu.type,) if profile.gpu.types and profile.gpu.type else ()
    return tuple(dict.fromkeys((*own, *profile.gpu.types)))


def types_with_room(profile: Profile, total: int, without: str | None = None) -> list[str]:
    """Return the options for so many GPUs of each type of a profile whose nodes hold them, the fewest nodes first.

    Args:
        without: a type to leave out.
    """
    rooms = [
        (nodes, f"--gpus {type_}:{total} --nodes {nodes}")
        for type_, entry in profile.gpu.types.items()
        if type_ != without and (nodes := nodes_for(total, entry.per_node or profile.gpu.per_node, entry.nodes))
    ]
    return [options for _, options in sorted(rooms)]


def nodes_for(total: int, per_node: int, most: int | None) -> int | None:
    """Return the fewest nodes over which so many GPUs can be split evenly; None if more nodes than most are needed."""
    fewest = -(-total // per_node) if per_node else total + 1
    return next((nodes for nodes in range(fewest, min(total, most or total) + 1) if total % nodes == 0), None)


def naming_gpu_type(request: JobRequest, type_: str) -> JobRequest:
    """Return the request with a GPU type."""
    counts = {field: count for field in ("gpus", "gpus_per_node") if (count := getattr(request, field))}
    return request.model_copy(
        update={field: count.model_copy(update={"type": type_}) for field, count in counts.items()}
    )


def for_gpu_type(profile: Profile, request: JobRequest) -> Profile:
    """Return the profile for the GPU type of a request: the type's values override the profile's own.

    Without ``gpu.types``, and for a job without GPUs, the profile does not change.

    Raises:
        UsageError: the profile does not have the type, or nothing names a type.
    """
    types = profile.gpu.types
    type_ = asked_gpu_type(request)
    if not types or profile.scheduler == "local" or (type_ is None and _wants_no_gpu(request)):
        return profile
    type_ = type_ or profile.gpu.type
    if type_ is None:
        # Slurm would give an untyped request any card, often the most expensive one
        first = next(iter(types))
        raise UsageError(
            f"profile {profile.name!r} has GPUs of several types: {', '.join(types)}",
            hint=f"choose one, such as --gpus {first}:{request.gpus.count if request.gpus else 1}, or request --gpus 0",
        )
    check_gpu_type(profile, type_)
    return _chosen(profile, type_) if type_ in types else profile


def check_gpu_type(profile: Profile, type_: str) -> None:
    """Refuse a GPU type that a profile with several does not have.

    Raises:
        UsageError: it is none of ``gpu.types``, and the profile's own values are not for it.
    """
    types = profile.gpu.types
    is_own = type_ == profile.gpu.type and profile.gpu.per_node  # then the profile's own values are for this type
    if is_own or not types or type_ in types or profile.scheduler == "local":
        return
    close, names = nearest(type_, list(types)), ", ".join(types)
    any_type = "; for GPUs of any type: docs/profiles.md, Several GPU types" if type_ == "any" else ""
    raise UsageError(
        f"profile {profile.name!r} has no GPUs of type {type_!r}",
        hint=f"did you mean {close!r}? there are: {names}" if close else f"there are: {names}{any_type}",
    )


def _wants_no_gpu(request: JobRequest) -> bool:
    said = [count.count for count in (request.gpus, request.gpus_per_node) if count]
    return bool(said) and not any(said)


def _chosen(profile: Profile, type_: str) -> Profile:
    entry = profile.gpu.types[type_]
    nodes = entry.nodes if entry.nodes or entry.partition else profile.gpu.nodes
    gpu = profile.gpu.model_copy(
        update={"type": type_, "per_node": entry.per_node or profile.gpu.per_node, "nodes": nodes}
    )
    words = {key: value for key in ("partition", "qos", "constraint") if (value := getattr(entry, key)) is not None}
    sections = {key: _laid_over(getattr(profile, key), getattr(entry, key)) for key in ("cpu", "memory", "time")}
    card = {"card": entry.card} if entry.card.model_fields_set else {}  # rates of two cards are never mixed
    return profile.model_copy(update={"gpu": gpu, **words, **sections, **card})


def _laid_over(under: _Section, over: _Section) -> _Section:
    return under.model_copy(update={key: getattr(over, key) for key in over.model_fields_set})
