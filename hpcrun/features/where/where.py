"""where: on which profile a job could start first."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from hpcrun.actions.jobs.choices import settle
from hpcrun.actions.jobs.prepare import with_defaults
from hpcrun.actions.ports import Surroundings, first_option
from hpcrun.errors import HpcrunError, SchedulerError, UsageError
from hpcrun.job.plan import Plan, PythonEnvironment, build_plan
from hpcrun.job.request import JobRequest, read_request
from hpcrun.job.resources import Machine
from hpcrun.job.shape import naming_gpu_type, types_to_choose_from
from hpcrun.job.units import format_time
from hpcrun.profiles.config import DETECTED
from hpcrun.profiles.folders import folders_of, shipped_folder
from hpcrun.profiles.load import LoadedProfile, load_profile, profile_names
from hpcrun.schedulers.client import DirectivePairs, SlurmForecast, Start, StartEstimate
from hpcrun.schedulers.cluster_text import Partition

MOST_ASKED = 12
"""How many requests sbatch is asked about: each uses up a job id and a moment of the controller's time."""

# Nothing runs: the directives do not depend on it.
_PYTHON = PythonEnvironment("python3", "not looked for")


@dataclass(frozen=True, slots=True)
class Placement:
    """A profile, or one GPU type of it, on which the job fits."""

    profile: str
    gpu_type: str | None  # the type, where the request left it open and the profile has several
    request: JobRequest  # what to submit there
    plan: Plan
    idles_gpus: bool = False  # whether it is a job without GPUs on nodes that have some

    def sbatch_request(self) -> DirectivePairs:
        """Return what makes sbatch's answer: the name of a job does not."""
        return tuple((key, value) for key, value in self.plan.directives if key != "job-name")


@dataclass(frozen=True, slots=True)
class Offer:
    """A candidate that can start."""

    candidate: Placement
    start: Start
    gpu_hours: float | None  # GPUs × time limit; None where nothing says the limit


@dataclass(frozen=True, slots=True)
class Misfit:
    """A profile, or one GPU type of it, on which the job does not fit, and why."""

    profile: str
    gpu_type: str | None
    reason: str


@dataclass(frozen=True, slots=True)
class WhereResult:
    """The offers, first start first, and what does not fit."""

    offers: tuple[Offer, ...]
    misfits: tuple[Misfit, ...]
    asked_s: float


def compare_profiles(
    options: Mapping[str, Any], names: Sequence[str], surroundings: Surroundings, now_s: float
) -> WhereResult:
    """Ask Slurm when a job with these options could start with each profile, as ``where`` does."""
    given = {name: value for name, value in options.items() if value is not None}
    request = read_request({**given, "script": "true"})  # nothing runs; a request has a script
    return where(request, names, SlurmForecast(surroundings.env), surroundings, now_s)


def where(
    request: JobRequest, names: Sequence[str], forecast: SlurmForecast, surroundings: Surroundings, now_s: float
) -> WhereResult:
    """Ask Slurm when a job could start with each profile. ``names``: the profiles; all of Slurm's where empty."""
    if request.gpus is None and request.gpus_per_node is None:
        raise UsageError(
            "the size of the job is missing", hint="add --gpus N, or --gpus 0 --cpus N for a job without GPUs"
        )
    candidates, misfits = _candidates(request, names, surroundings)
    partitions = forecast.partitions() if candidates else []
    fitting: list[Placement] = []
    for candidate in candidates:
        reason = over_partition(candidate.plan, partitions)
        if reason:
            misfits.append(Misfit(candidate.profile, candidate.gpu_type, reason))
        elif candidate.profile != DETECTED or all(
            candidate.sbatch_request() != other.sbatch_request() for other in fitting
        ):
            fitting.append(candidate)  # a person's own profile of this cluster says the same under a better name
    requests = list(dict.fromkeys(candidate.sbatch_request() for candidate in fitting))[:MOST_ASKED]
    answers = dict(zip(requests, forecast.estimate(requests), strict=True))
    offers, refused = _judged(fitting, answers, partitions)
    if not offers and (silent := next((answer for answer in answers.values() if answer.silent), None)):
        raise SchedulerError(_no_start(silent), hint="`sinfo` shows when Slurm is back")
    return WhereResult(ranked(offers, now_s), (*misfits, *refused), now_s)


def ranked(offers: Collection[Offer], now_s: float) -> tuple[Offer, ...]:
    """Return offers by start, to the minute, as the answers came one after the other.

    Of those that start together, one that displaces nobody and keeps no GPU idle comes first; else they stay in their
    order: the default profile, the project's, the user's, the site's, the detected one.
    """

    def place(offer: Offer) -> tuple[float, bool, bool]:
        wait_min = max(0, offer.start.start_s - now_s) // 60
        return wait_min, bool(offer.start.preempts), offer.candidate.idles_gpus

    return tuple(sorted(offers, key=place))


def _candidates(
    request: JobRequest, names: Sequence[str], surroundings: Surroundings
) -> tuple[list[Placement], list[Misfit]]:
    candidates, misfits, errors = [], [], []
    for name, type_, outcome in _tried(request, names, surroundings):
        if isinstance(outcome, Placement):
            candidates.append(outcome)
        else:
            misfits.append(Misfit(name, type_, outcome.message))
            errors.append(outcome)
    # one contradiction is the request's own, and no profile's
    if not candidates and len({str(error) for error in errors}) == 1 and isinstance(errors[0], UsageError):
        raise errors[0]
    return candidates, misfits


def _tried(
    request: JobRequest, names: Sequence[str], surroundings: Surroundings
) -> Iterator[tuple[str, str | None, Placement | HpcrunError]]:
    """Plan the job with each profile, and with each type of a profile where the request leaves that open."""
    for name in dict.fromkeys(names or _all_names(surroundings)):
        try:
            loaded = load_profile(name, surroundings.profile_folders)
        except HpcrunError as error:
            if names or isinstance(error, SchedulerError):
                raise
            yield name, None, error
            continue
        profile = loaded.profile
        if profile.scheduler != "slurm":
            if names:
                yield name, None, HpcrunError("runs on this machine, without Slurm")
            continue
        for type_ in types_to_choose_from(profile, request) or (None,):
            named = naming_gpu_type(request, type_) if type_ else request
            try:
                plan = _plan(named, loaded, surroundings)
                idles_gpus = not plan.shape.gpus and bool(profile.gpu.per_node or profile.gpu.types)
                yield name, type_, Placement(name, type_, named, plan, idles_gpus)
            except HpcrunError as error:
                yield name, type_, error


def _all_names(surroundings: Surroundings) -> list[str]:
    """Return the profiles to compare; on a cluster that hpcrun can detect, not the shipped ones of other clusters."""
    paths = profile_names(surroundings.profile_folders)
    if surroundings.detected is not None:
        shipped = shipped_folder("cluster_profiles")
        paths = {name: path for name, path in paths.items() if path.parent != shipped}
    folders = [folder.path for folder in folders_of(surroundings.profile_folders)]  # the most important first
    names = sorted(paths, key=lambda name: (folders.index(paths[name].parent), name))
    default = surroundings.env.get("HPCRUN_PROFILE") or surroundings.config.profile
    return [*([default] if default else []), *names]


def _plan(request: JobRequest, loaded: LoadedProfile, surroundings: Surroundings) -> Plan:
    request = with_defaults(request, loaded.profile, surroundings)
    settled = settle(request, loaded, replace(surroundings, choose=first_option))
    return build_plan(settled.request, settled.loaded.profile, python=_PYTHON, machine=Machine(cpus=1))


def over_partition(plan: Plan, partitions: Sequence[Partition]) -> str | None:
    """Return why the job cannot start in any partition that it names, None where it may."""
    if plan.directive("clusters"):  # another cluster's partitions, which sbatch asks there
        return None
    named = plan.directive("partition")
    known = {partition.name: partition for partition in partitions}
    if named is None:
        return _over_all(plan, [partition for partition in partitions if partition.default])
    names = [name for name in named.split(",") if name]  # sbatch(1): several, of which the first that can start it
    missing = next((name for name in names if name not in known), None)
    if missing:
        return f"there is no partition {missing} on this cluster"
    return _over_all(plan, [known[name] for name in names])


def _over_all(plan: Plan, partitions: Sequence[Partition]) -> str | None:
    reasons = [_over(plan, partition) for partition in partitions]
    return reasons[0] if reasons and all(reasons) else None


def _over(plan: Plan, partition: Partition) -> str | None:
    nodes, time_s = plan.shape.nodes, plan.walltime_s
    if not partition.up:
        return f"partition {partition.name} is not up"
    if partition.max_s is not None and time_s is not None and time_s > partition.max_s:
        return (
            f"--time {format_time(time_s)} is longer than the {format_time(partition.max_s)} of partition "
            f"{partition.name}"
        )
    if partition.max_nodes is not None and nodes > partition.max_nodes:
        return f"{nodes} nodes are more than the {partition.max_nodes} per job of partition {partition.name}"
    return None


def _judged(
    candidates: Sequence[Placement], answers: dict[DirectivePairs, StartEstimate], partitions: Sequence[Partition]
) -> tuple[list[Offer], list[Misfit]]:
    offers, refused = [], []
    for candidate in candidates:
        answer = answers.get(candidate.sbatch_request())
        if answer and answer.start:
            offers.append(Offer(candidate, answer.start, _gpu_hours(candidate.plan, answer.start, partitions)))
            continue
        refused.append(Misfit(candidate.profile, candidate.gpu_type, _no_start(answer)))
    return offers, refused


def _no_start(answer: StartEstimate | None) -> str:
    if answer is None:
        return f"not checked: at most {MOST_ASKED} requests; choose profiles with -P"
    return f"sbatch did not respond: {answer.message}" if answer.silent else answer.message


def _gpu_hours(plan: Plan, start: Start, partitions: Sequence[Partition]) -> float | None:
    limit_s = plan.walltime_s
    if limit_s is None:  # then Slurm gives the partition's default, or its limit
        there = next((partition for partition in partitions if partition.name == start.partition), None)
        limit_s = (there.default_s or there.max_s) if there else None
    return None if limit_s is None else plan.shape.gpus * limit_s / 3600
