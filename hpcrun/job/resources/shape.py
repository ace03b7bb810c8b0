"""The shape of a job, the options of its srun and torchrun, and its container.

The shape has the GPU type, the nodes, the GPUs and the ranks. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Literal

from hpcrun.errors import PlanError, UsageError, nearest
from hpcrun.job.launch_options import Options, Program, check_option
from hpcrun.job.profile_model import Profile
from hpcrun.job.request.job_request import (
    GpuCount,
    JobRequest,
    Launcher,
    option_of,
)
from hpcrun.job.request.node_choice import NodeChoice, choice_of
from hpcrun.job.text.spelling import spell
from hpcrun.job.text.units import count


def asked_gpu_type(request: JobRequest) -> str | None:
    """Return the GPU type that a request names, None if the request names no type.

    Raises:
        UsageError: if the request names two types.
    """
    types = {count.type for count in (request.gpus, request.gpus_per_node) if count and count.type}
    if len(types) > 1:
        raise UsageError(f"two GPU types at once: {' and '.join(sorted(types))}")
    return next(iter(types), None)


def types_to_choose_from(profile: Profile, request: JobRequest) -> tuple[str, ...]:
    """Return the GPU types of which a request must name one; none if its type is clear."""
    if profile.scheduler == "local":
        return ()
    is_clear = asked_gpu_type(request) is not None or _wants_no_gpu(request)
    if is_clear or not profile.gpu.types:
        return ()
    types = tuple(profile.gpu.types)
    if profile.gpu.type:
        types = (profile.gpu.type, *types)
    return tuple(dict.fromkeys(types))


def types_with_room(profile: Profile, total: int, without: str | None = None) -> list[str]:
    """Return the options for so many GPUs of each other type of a profile, fewest nodes first.

    Only types that have so many GPUs are in the list.
    """
    rooms = []
    for type_, entry in profile.gpu.types.items():
        nodes = nodes_for(total, entry.per_node or profile.gpu.per_node, entry.nodes)
        if type_ != without and nodes:
            rooms.append(
                (nodes, f"{spell('gpus', GpuCount(total, type_))} {spell('nodes', nodes)}")
            )
    return [options for _, options in sorted(rooms)]


def nodes_for(total: int, per_node: int | None, most: int | None) -> int | None:
    """Return the fewest nodes over which so many GPUs can be split evenly.

    The result is None if more than ``most`` nodes are needed, or a node has no or unknown GPUs.
    """
    if not per_node:
        return None
    fewest = -(-total // per_node)
    for nodes in range(fewest, min(total, most or total) + 1):
        if total % nodes == 0:
            return nodes
    return None


def naming_gpu_type(request: JobRequest, type_: str) -> JobRequest:
    """Return the request with a GPU type."""
    gpus = request.gpus and replace(request.gpus, type=type_)
    gpus_per_node = request.gpus_per_node and replace(request.gpus_per_node, type=type_)
    return replace(request, gpus=gpus, gpus_per_node=gpus_per_node)


def for_gpu_type(profile: Profile, request: JobRequest) -> Profile:
    """Return the profile for the GPU type of a request.

    The values of the type override the profile's own values. Without ``gpu.types``, and for a job
    without GPUs, the profile does not change.

    Raises:
        UsageError: if the request must name a GPU type and names none, if it names two types, or if
            the profile does not have the type.
    """
    types = profile.gpu.types
    type_ = asked_gpu_type(request)
    if not types or profile.scheduler == "local" or (type_ is None and _wants_no_gpu(request)):
        return profile
    type_ = type_ or profile.gpu.type
    if type_ is None:
        # Slurm would give an untyped request any card, often the most expensive one
        first = next(iter(types))
        number = request.gpus.count if request.gpus else 1
        raise UsageError(
            f"profile {profile.name!r} has GPUs of several types: {', '.join(types)}",
            hint=f"choose one, such as {spell('gpus', GpuCount(number, first))}, or request "
            f"{spell('gpus', 0)}",
        )
    check_gpu_type(profile, type_)
    return _chosen(profile, type_) if type_ in types else profile


def check_gpu_type(profile: Profile, type_: str) -> None:
    """Raise UsageError if the profile does not have a GPU type.

    The type must be one of ``gpu.types``, or the type of the profile's own values.

    Raises:
        UsageError: if the type is neither of these.
    """
    types = profile.gpu.types
    # then the profile's own values are for this type
    is_own = type_ == profile.gpu.type and profile.gpu.per_node
    if is_own or not types or type_ in types or profile.scheduler == "local":
        return
    close = nearest(type_, list(types))
    hint = f"there are: {', '.join(types)}"
    if close:
        hint = f"did you mean {close!r}? {hint}"
    elif type_ == "any":
        hint += "; for GPUs of any type: docs/profiles.md, Several GPU types"
    raise UsageError(f"profile {profile.name!r} has no GPUs of type {type_!r}", hint=hint)


def _wants_no_gpu(request: JobRequest) -> bool:
    counts = [count.count for count in (request.gpus, request.gpus_per_node) if count]
    return bool(counts) and not any(counts)


def _chosen(profile: Profile, type_: str) -> Profile:
    entry = profile.gpu.types[type_]
    nodes = entry.nodes
    if not (entry.nodes or entry.partition):
        nodes = profile.gpu.nodes
    of_gpu = {"type": type_, "per_node": entry.per_node or profile.gpu.per_node, "nodes": nodes}
    update: dict[str, object] = {"gpu": profile.gpu.model_copy(update=of_gpu)}
    for key in ("partition", "qos", "constraint"):
        value = getattr(entry, key)
        if value is not None:
            update[key] = value
    for key in ("cpu", "memory", "time"):
        section = getattr(entry, key)
        changes = {name: getattr(section, name) for name in section.model_fields_set}
        update[key] = getattr(profile, key).model_copy(update=changes)
    if entry.card.model_fields_set:  # rates of two cards are never mixed
        update["card"] = entry.card
    return profile.model_copy(update=update)


@dataclass(frozen=True, slots=True)
class GpuSize:
    """Nodes × GPUs of a job, whatever starts its ranks."""

    nodes: int
    gpus_per_node: int
    gpu_type: str | None

    @property
    def gpus(self) -> int:
        """GPUs of the whole job."""
        return self.nodes * self.gpus_per_node


@dataclass(frozen=True, slots=True)
class Shape(GpuSize):
    """Nodes × GPUs × ranks of a job."""

    launcher: Launcher
    # ranks on each node that hpcrun starts (one for the launchers python, command and ray)
    procs_per_node: int
    # ranks that a command starts by itself on each node (NPROC_PER_NODE); 1 for other launchers
    workers_per_node: int = 1
    # the numbers of nodes from which Slurm chooses, as sbatch takes them; ``nodes`` is the largest
    node_choice: str = ""

    @property
    def fewest_nodes(self) -> int:
        """The nodes that the job has at least."""
        return NodeChoice(self.node_choice).fewest if self.node_choice else self.nodes

    @property
    def nodes_text(self) -> str:
        """The nodes in words: ``2 nodes``, or ``2-4 nodes`` if Slurm chooses."""
        return f"{self.node_choice} nodes" if self.node_choice else count(self.nodes, "node")

    @property
    def world_size(self) -> int:
        """Ranks of the whole job."""
        return self.nodes * self.procs_per_node

    @property
    def tasks_per_node(self) -> int:
        """Slurm tasks on each node: one per rank for srun, else one."""
        return self.procs_per_node if self.launcher == "srun" else 1


def decide_size(request: JobRequest, profile: Profile) -> GpuSize:
    """Decide nodes and GPUs per node from any combination of options.

    Args:
        request: the request; its launcher and its ranks do not matter.
        profile: the profile for the GPU type of the request.

    Raises:
        UsageError: if the profile has GPUs of another type.
    """
    type_ = asked_gpu_type(request) or profile.gpu.type
    if profile.scheduler == "slurm" and profile.gpu.type not in (None, type_):
        raise UsageError(
            f"profile {profile.name!r} has GPUs of type {profile.gpu.type!r}, not {type_!r}",
            hint=f"ask for {profile.gpu.type}:N, or choose a profile with {type_}: "
            "hpcrun profile list",
        )
    nodes, gpus_per_node = _nodes_and_gpus(request, profile)
    return GpuSize(nodes, gpus_per_node, type_)


def decide_shape(request: JobRequest, profile: Profile) -> Shape:
    """Decide nodes, GPUs per node, launcher and ranks from any combination of options.

    Raises:
        PlanError: if the launcher is srun, and the profile runs on this machine.
        UsageError: if an option is for batch scripts, or if Slurm is to choose the nodes and the
            profile runs on this machine.
    """
    for field in ("ntasks_per_node", "ntasks"):
        if getattr(request, field):
            raise UsageError(
                f"{option_of(field)} is for batch scripts, and {request.script} is none",
                hint=f"use {spell('gpus')}, one rank per GPU, or {spell('nproc-per-node', 'N')}",
            )
    size = decide_size(request, profile)
    gpus = size.gpus_per_node
    launcher = request.launcher or profile.launcher or ("torchrun" if gpus else "python")
    if profile.scheduler == "local" and launcher == "srun":
        raise PlanError(
            f"profile {profile.name!r} runs on this machine, where there is no srun",
            hint="use --launcher torchrun or --launcher python",
        )
    procs = _procs_per_node(request, launcher, gpus)
    workers = 1
    if launcher == "command":
        workers = request.nproc_per_node or max(1, gpus)
    choice = choice_of(request.nodes)
    if choice and profile.scheduler == "local":
        raise UsageError(
            f"{spell('nodes', choice)}: profile {profile.name!r} runs on this machine, where "
            "Slurm does not choose",
            hint=f"use {spell('nodes', int(size.nodes))}",
        )
    return Shape(int(size.nodes), gpus, size.gpu_type, launcher, procs, workers, choice)


def check_total(gpus: GpuCount | None, choice: str) -> None:
    """Check that a total of GPUs belongs to a known number of nodes.

    Raises:
        UsageError: Slurm chooses the number of nodes.
    """
    if gpus is None or gpus.count == 0 or not choice:
        return
    each = GpuCount(max(1, gpus.count // NodeChoice(choice)), gpus.type)
    raise UsageError(
        f"{spell('gpus', gpus)} does not say how many GPUs a node has: with "
        f"{spell('nodes', choice)} Slurm chooses how many nodes the job gets",
        hint=f"use {spell('gpus-per-node', each)}",
    )


def check_nodes(shape: Shape, nodes: int, profile: Profile, partition: str | None) -> None:
    """Raise PlanError if a job can never have so many nodes in the profile's partition.

    The number includes spare nodes. Nothing is known about other partitions than the profile's.

    Raises:
        PlanError: if there are more nodes than the partition allows.
    """
    most = profile.gpu.nodes
    if most is None or nodes <= most:
        return
    if partition != profile.partition or not shape.gpus_per_node:
        return
    name = f"{shape.gpu_type} GPUs" if shape.gpu_type else "GPUs"
    where = f"partition {partition}" if partition else "the default partition"
    limit = f"{count(most, 'node')} with {name}"
    if profile.gpu.per_node:
        limit += f", {most * profile.gpu.per_node} GPUs in all"
    raise PlanError(
        f"{nodes} nodes × {shape.gpus_per_node} GPUs, but a job in {where} can have at most "
        f"{limit} (profile {profile.name!r})",
        hint=_less(shape.gpus, shape.gpu_type, profile, most),
    )


def _less(total: int, type_: str | None, profile: Profile, nodes: int) -> str:
    """Return the hint for a request of more GPUs of a type than so many nodes have.

    The hint names fewer GPUs, or a type that has enough of them.
    """
    hint = "request less: "
    if profile.gpu.per_node:
        hint += f"{spell('gpus', GpuCount(nodes * profile.gpu.per_node, type_))} "
    hint += spell("nodes", nodes)
    others = types_with_room(profile, total, without=type_)
    if others:
        hint += f"; or another type: {others[0]}"
    return hint


def _default_gpus(nodes: int, most: int | None) -> int:
    """Return the GPUs of a job that does not say how many, on nodes that have some.

    Raises:
        UsageError: if the job has several nodes with GPUs.
    """
    if nodes > 1:
        raise UsageError(
            f"{spell('nodes', nodes)} does not say how many GPUs",
            hint=f"add {spell('gpus-per-node', most or 1)}, or {spell('gpus', 0)} for a CPU job",
        )
    return 1


def _nodes_and_gpus(request: JobRequest, profile: Profile) -> tuple[int, int]:
    """Return nodes and GPUs per node from any combination of options.

    Raises:
        PlanError: if a node has fewer GPUs than requested.
        UsageError: if several nodes have no number of GPUs, or if the numbers contradict each
            other.
    """
    check_total(request.gpus, choice_of(request.nodes))
    total = request.gpus.count if request.gpus else None
    each = request.gpus_per_node.count if request.gpus_per_node else None
    most = profile.gpu.per_node if profile.scheduler == "slurm" else None
    nodes = request.nodes or 1
    if total is None and each is None:
        has_gpus = profile.scheduler != "slurm" or profile.gpu.per_node
        each = _default_gpus(nodes, most) if has_gpus else 0
    elif each is None:
        nodes, each = _from_total(total or 0, request.nodes, most, profile.gpu.nodes)
    elif total is not None:
        nodes = _nodes_of(total, each, request.nodes)
    if most is not None and each > most:
        raise PlanError(
            f"{each} GPUs per node, but a node of profile {profile.name!r} has {most}",
            hint=_spread(nodes, each, request, profile),
        )
    return nodes, each


def _nodes_of(total: int, each: int, requested: int | None) -> int:
    """Return the nodes of a job with so many GPUs in all, and on each node.

    Raises:
        UsageError: if the numbers contradict each other.
    """
    nodes = requested or max(1, total // (each or total or 1))
    if nodes * each == total:
        return nodes
    hint = "remove one of these options"
    if each and not requested:
        hint = f"ask for {multiples_around(total, each)} GPUs"
    raise UsageError(
        f"{spell('gpus', total)} contradicts {spell('gpus-per-node', each)}: "
        f"{count(nodes, 'node')} × {each} = {nodes * each}",
        hint=hint,
    )


def _spread(nodes: int, gpus_per_node: int, request: JobRequest, profile: Profile) -> str:
    """Return the hint for a request of more GPUs than a node has."""
    type_ = asked_gpu_type(request)
    total = nodes * gpus_per_node
    more = nodes_for(total, profile.gpu.per_node, profile.gpu.nodes)
    if more:
        gpus = spell("gpus", GpuCount(total, type_))
        return f"spread them over more nodes: {gpus} {spell('nodes', more)}"
    if profile.gpu.per_node:
        return _less(total, type_, profile, profile.gpu.nodes or nodes)
    return f"choose a profile with GPUs (hpcrun profile list), or {spell('gpus', 0)}"


def _from_total(
    total: int, nodes: int | None, most: int | None, most_nodes: int | None
) -> tuple[int, int]:
    """Return nodes and GPUs per node for a number of GPUs.

    Args:
        total: the GPUs of the job.
        nodes: the requested nodes; None for as few as possible.
        most: the GPUs of a node; None if that is not known.
        most_nodes: how many nodes a job can have; None if that is not known.

    Raises:
        UsageError: if the GPUs cannot be split evenly.
    """
    few = 1
    if nodes:
        few = nodes
    elif most:
        few = max(1, -(-total // most))
    if total % few == 0:
        return few, total // few
    do = "does" if total == 1 else "do"
    message = (
        f"{count(total, 'GPU')} {do} not divide by {few} nodes: {total} / {few} = {total / few:.2f}"
    )
    hint = f"ask for {multiples_around(total, few, (most or 0) * (nodes or most_nodes or 0))} GPUs"
    if nodes is None:
        message += f" (a node has {most})"
    else:
        other = nodes_for(total, most or total, most_nodes)
        if other:
            hint = f"use {spell('nodes', other)}, or {hint}"
    raise UsageError(message, hint=hint)


def multiples_around(number: int, divisor: int, most: int = 0) -> str:
    """Return the nearest numbers that are multiples of a divisor, ``8 or 10``, for a hint.

    The numbers are at most ``most``; 0 means that there is no limit.
    """
    low = min(number, most or number) // divisor * divisor
    fitting = [multiple for multiple in (low, low + divisor) if multiple]
    if most:
        fitting = [multiple for multiple in fitting if multiple <= most]
    return " or ".join(map(str, fitting)) or str(divisor)


def _procs_per_node(request: JobRequest, launcher: Launcher, gpus_per_node: int) -> int:
    requested = request.nproc_per_node
    if launcher == "command" or (launcher in ("python", "ray") and requested in (None, 1)):
        return 1
    if launcher in ("python", "ray"):
        units = "GPUs" if gpus_per_node else "CPUs"
        raise UsageError(
            f"--nproc-per-node {requested}: the launcher {launcher} starts one process per node",
            hint=f"for {requested} ranks on {units} add --launcher torchrun",
        )
    if gpus_per_node == 0 and requested is None and launcher == "torchrun":
        raise UsageError(
            "--gpus 0 with torchrun does not say how many ranks",
            hint="add --nproc-per-node 4 (ranks on each node), or --launcher python",
        )
    if gpus_per_node == 0:
        return requested or 1
    if requested is not None and requested > gpus_per_node:
        raise UsageError(
            f"{spell('nproc-per-node', requested)} is more than the {gpus_per_node} GPUs of a "
            "node: two ranks cannot share a GPU under NCCL",
            hint=f"ask for {spell('gpus-per-node', requested)}",
        )
    return requested or gpus_per_node


def decide_segment(
    request: JobRequest, profile: Profile, shape: Shape
) -> tuple[int | None, str | None]:
    """Return the number of nodes in one block of the network, and a note.

    The note says that the profile's number is not used; it is None in all other cases.

    Raises:
        UsageError: if --segment is used on this machine, or if the segments do not divide the
            nodes.
    """
    requested = request.segment
    if profile.scheduler != "slurm":
        if requested is not None:
            raise UsageError(
                f"{spell('segment', requested)}: profile {profile.name!r} runs on this machine"
            )
        return None, None
    number = requested or profile.segment
    if number is None or (shape.nodes % number == 0 and not shape.node_choice):
        return number, None
    message = f"segments of {number} nodes do not divide {shape.nodes_text}"
    if requested is None:  # the profile's number is meant for large jobs
        return None, f"{message}: the profile's segment is not used"
    fewer = shape.nodes - shape.nodes % requested
    more = fewer + requested
    raise UsageError(message, hint=spell("nodes", f"{fewer} or {more}" if fewer else more))


def srun_options(request: JobRequest, profile: Profile, shape: Shape) -> Options:
    """Return the options of the srun that starts the ranks.

    The options of the request override the options of the profile.

    Raises:
        UsageError: if the request has options of srun, and the profile runs on this machine.
    """
    if profile.scheduler != "slurm":
        if request.srun:
            raise UsageError(
                f"{spell('srun', request.srun[0])}: profile {profile.name!r} runs on this machine, "
                "without srun",
                hint=f"leave it out, or choose a Slurm profile with {spell('profile')}",
            )
        return ()
    options = laid_over("srun", profile.srun, request.srun)
    check_binding("srun", options, shape)
    return tuple(options.items())


def check_binding(
    of: Literal["sbatch", "srun"], options: Mapping[str, str | None], shape: Shape
) -> None:
    """Raise UsageError for an option that hides GPUs from a rank.

    A rank uses the GPU with the number LOCAL_RANK.

    Raises:
        UsageError: if the option binds each rank to only some of the GPUs of its node.
    """
    if not shape.gpus_per_node or shape.tasks_per_node == 1:
        return
    program = "srun " if of == "srun" else ""
    for key, unbound in (("gpu-bind", "none"), ("tres-bind", "gres/gpu:none")):
        value = options.get(key) or "none"
        if "none" not in value:
            raise UsageError(
                f"{program}--{key}={value} would show each of the {shape.tasks_per_node} ranks "
                "of a node only some of its GPUs",
                hint=f"leave it out, or --{of} {key}={unbound}",
            )


def torchrun_options(request: JobRequest, profile: Profile, shape: Shape) -> Options:
    """Return torchrun's options, none if torchrun starts no ranks.

    The options of the request override the options of the profile.

    Raises:
        UsageError: if the request has options of torchrun, and the launcher is another one.
    """
    if shape.launcher == "torchrun":
        return tuple(laid_over("torchrun", profile.torchrun, request.torchrun).items())
    if request.torchrun:
        raise UsageError(
            f"--torchrun {request.torchrun[0]} has no effect with --launcher {shape.launcher}",
            hint="leave it out, or add --launcher torchrun",
        )
    return ()


def torchrun_words(options: Options, nodes: int) -> tuple[str, ...]:
    """Return torchrun's options besides its sizes.

    A job on one node needs no port, unless an endpoint is given. On several nodes Slurm has
    numbered the nodes, which the static rendezvous takes as they are. c10d's nodes agree on numbers
    of their own, and ask each other once a second; only it lets nodes join again, which torchrun's
    own restarts need.
    """
    chosen = {"max-restarts": "0", **dict(options)}
    has_endpoint = any(name.startswith("rdzv-") for name in chosen)
    restarts_on_several = chosen["max-restarts"] != "0" and nodes > 1
    meeting: dict[str, str | None] = {"rdzv-backend": "static"}
    if has_endpoint or restarts_on_several:
        meeting = {"rdzv-backend": "c10d"}
    elif nodes == 1:
        meeting = {"standalone": None}
    return option_words({**meeting, **chosen}.items())


def option_words(options: Iterable[tuple[str, str | None]]) -> tuple[str, ...]:
    """Return options as words of a command line."""
    words = []
    for name, value in options:
        words.append(f"--{name}" if value is None else f"--{name}={value}")
    return tuple(words)


def laid_over(
    program: Program, theirs: Mapping[str, str | bool], typed: tuple[str, ...]
) -> dict[str, str | None]:
    """Return the options of a profile for a program, overridden by typed ones."""
    options: dict[str, str | None] = {}
    for key, given in theirs.items():
        options[key] = None if given is True else str(given)
    for item in typed:
        key, equals, text = item.partition("=")
        value = text if equals else None
        options[check_option(program, key, value, spell(program, item))] = value
    return options
