"""hpcrun where: on which profile a job could start first.

The command shows the table of offers, and the command for the best offer.
"""

from __future__ import annotations

import shlex
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from itertools import chain
from typing import TYPE_CHECKING, Any

from hpcrun.actions.jobs.job_defaults import settle
from hpcrun.actions.ports import Surroundings
from hpcrun.actions.user_choice import first_option
from hpcrun.cli.complete import profile_name
from hpcrun.cli.context import make_context
from hpcrun.cli.job_options import JOB_OPTIONS
from hpcrun.cli.options import option, takes_options
from hpcrun.cli.output import JsonOption, Outcome, TextPart, stdout, table, width
from hpcrun.errors import HpcrunError, PlanError, SchedulerError, UsageError
from hpcrun.job.plan.job_plan import Plan, PythonEnvironment, build_plan
from hpcrun.job.request.job_request import JobRequest, given_fields
from hpcrun.job.request.option_panels import (
    CONTAINER,
    LAUNCHER,
    PLACEMENT,
    RANKS,
    RESOURCES,
    RESTARTS,
    SIZE,
    SWEEPS,
)
from hpcrun.job.request.read_request import read_request
from hpcrun.job.request.request_line import option_groups
from hpcrun.job.resources.cpus_memory_time import Machine
from hpcrun.job.resources.shape import naming_gpu_type, types_to_choose_from
from hpcrun.job.text.units import format_span, format_time
from hpcrun.profiles.config import DETECTED
from hpcrun.profiles.folders import folders_of, shipped_folder
from hpcrun.profiles.load import LoadedProfile, load_profile, profile_names
from hpcrun.schedulers.away_nodes import AwaitedNodes, may_wait, nodes_words
from hpcrun.schedulers.client import DirectivePairs
from hpcrun.schedulers.cluster_facts import Partition
from hpcrun.schedulers.job_start import JobStart, SlurmForecast, Trial
from hpcrun.views.text import count, fields_of, fitting, one_line, text_table

if TYPE_CHECKING:
    from rich.table import Table

# neither the job's place nor its start depends on these; --profile is an option of this command's
# own
_PANELS = (
    SIZE,
    RANKS,
    RESOURCES,
    PLACEMENT,
    LAUNCHER,
    CONTAINER,
    SWEEPS,
    RESTARTS,
)
"""The options that decide where a job can start."""
_FOLDED = {"PROFILE": 16, "NODES": 10}
"""Columns that may be wrapped, and the least length for it."""
_DROPPED = ("PARTITION", "NODES")
_NOW_S = 60
"""A start within this time is now: the controller checks its queue about every half minute."""
MOST_ASKED = 12
"""How many requests sbatch is asked about: each uses up a job id and a moment of the controller's
time.
"""

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
    start: JobStart
    gpu_hours: float | None  # GPUs × time limit; None where nothing says the limit


@dataclass(frozen=True, slots=True)
class Misfit:
    """A profile, or one GPU type of it, on which the job does not fit, and why."""

    profile: str
    gpu_type: str | None
    reason: str
    waits: bool = False  # it would fit: nodes that it needs are drained, down or reserved


@dataclass(frozen=True, slots=True)
class _Refusal:
    """A profile, or one GPU type of it, with which no plan can be made, and the error."""

    profile: str
    gpu_type: str | None
    error: HpcrunError


@takes_options(JOB_OPTIONS, panels=_PANELS)
def where(
    options: dict[str, Any],
    profiles: list[str] | None = option(
        "--profile -P NAME",
        "Profile to compare. Repeatable. Default: yours, and the detected cluster.",
        complete=profile_name,
    ),
    _json: JsonOption = False,
) -> Outcome:
    """Show on which profile a job could start first.

    The start times are Slurm's estimates (sbatch --test-only).
    They change as other jobs come and go. Nothing is submitted.
    """
    context = make_context()
    given = {name: value for name, value in options.items() if value is not None}
    given["script"] = "true"  # nothing runs; a request has a script
    request = read_request(given)
    now_s = context.now_s()
    offers, misfits = compare_profiles(
        request, profiles or (), SlurmForecast(context.env), context.surroundings, now_s
    )
    failure = None
    if not offers:
        failure = _no_offer(misfits)
    return Outcome(
        lambda: _text(offers, misfits, now_s),
        lambda: where_json(offers, misfits, now_s),
        failure=failure,
    )


def _no_offer(misfits: Sequence[Misfit]) -> PlanError:
    """Return the error of a job that starts nowhere, or nowhere now."""
    if any(misfit.waits for misfit in misfits):
        hint = "submit it and it starts when the nodes are back; `sinfo -R` lists such nodes"
        return PlanError("the job cannot start now: it waits for nodes", hint=hint)
    hint = "request less, or correct the profile of this cluster: hpcrun init"
    return PlanError("the job fits no profile", hint=hint)


def _text(offers: Sequence[Offer], misfits: Sequence[Misfit], now_s: float) -> Iterator[TextPart]:
    """Yield the offers, the profiles that do not fit, and the command for the best offer."""
    if offers:
        yield table(offers_table(offers, now_s, width()))
    lines = misfit_lines(misfits)
    if offers and misfits:
        lines = ["", *lines]
    yield stdout(lines)
    if offers:
        yield stdout(["", submit_line(offers[0])])


def compare_profiles(
    request: JobRequest,
    names: Sequence[str],
    forecast: SlurmForecast,
    surroundings: Surroundings,
    now_s: float,
) -> tuple[tuple[Offer, ...], list[Misfit]]:
    """Ask Slurm when a job could start with each of these profiles.

    If no profile is named, the function compares all profiles of Slurm.

    Returns:
        the offers, first start first, and what does not fit.

    Raises:
        UsageError: the size of the job is missing, or the request contradicts itself.
        SchedulerError: there is no offer, and sbatch did not respond.
    """
    if request.gpus is None and request.gpus_per_node is None:
        raise UsageError(
            "the size of the job is missing",
            hint="add --gpus N, or --gpus 0 --cpus N for a job without GPUs",
        )
    candidates = []
    refusals = []
    for outcome in _tried(request, names, surroundings):
        if isinstance(outcome, Placement):
            candidates.append(outcome)
        else:
            refusals.append(outcome)
    if not candidates:
        _raise_common_error(refusals)
    misfits = [_refused(refusal) for refusal in refusals]
    partitions = forecast.partitions() if candidates else []
    possible: list[Placement] = []
    for candidate in candidates:
        reason = over_partition(candidate.plan, partitions)
        if reason:
            misfits.append(_misfit(candidate, reason))
        elif not _is_known_under_a_better_name(candidate, possible):
            possible.append(candidate)
    answers = _ask(forecast, possible)
    awaited = AwaitedNodes(forecast)
    offers = []
    for candidate in possible:
        answer = answers.get(candidate.sbatch_request())
        if answer and answer.start:
            gpu_hours = _gpu_hours(candidate.plan, answer.start, partitions)
            offers.append(Offer(candidate, answer.start, gpu_hours))
        else:
            misfits.append(_without_start(candidate, answer, awaited))
    if not offers:
        _raise_silence(answers.values())
    return ranked(offers, now_s), misfits


def _misfit(candidate: Placement, reason: str) -> Misfit:
    return Misfit(candidate.profile, candidate.gpu_type, reason)


def _without_start(candidate: Placement, answer: Trial | None, awaited: AwaitedNodes) -> Misfit:
    """Return why sbatch shows no start of a job: the nodes that it waits for, or sbatch's words."""
    if answer and not answer.silent and may_wait(answer.message):
        nodes = awaited.of_job(candidate.sbatch_request())
        if nodes:
            misfit = _misfit(candidate, nodes_words(nodes))
            return replace(misfit, waits=True)
    return _misfit(candidate, _no_start(answer))


def _refused(refusal: _Refusal) -> Misfit:
    return Misfit(refusal.profile, refusal.gpu_type, refusal.error.message)


def _raise_common_error(refusals: Sequence[_Refusal]) -> None:
    """Raise the error that all profiles share: one contradiction is the request's own.

    Raises:
        UsageError: every profile refuses the request with this same text.
    """
    texts = {str(refusal.error) for refusal in refusals}
    if len(texts) != 1:
        return
    error = refusals[0].error
    if isinstance(error, UsageError):
        raise error


def _is_known_under_a_better_name(candidate: Placement, others: Iterable[Placement]) -> bool:
    """Whether a person's own profile of the detected cluster says the same."""
    if candidate.profile != DETECTED:
        return False
    return any(candidate.sbatch_request() == other.sbatch_request() for other in others)


def _ask(forecast: SlurmForecast, candidates: Iterable[Placement]) -> dict[DirectivePairs, Trial]:
    """Return the answers of sbatch to the first MOST_ASKED different requests."""
    different = list(dict.fromkeys(candidate.sbatch_request() for candidate in candidates))
    requests = different[:MOST_ASKED]
    return dict(zip(requests, forecast.estimate(requests), strict=True))


def _raise_silence(answers: Iterable[Trial]) -> None:
    """Raise the first failure to respond.

    Raises:
        SchedulerError: sbatch did not respond to one of the requests.
    """
    for answer in answers:
        if answer.silent:
            raise SchedulerError(_no_start(answer), hint="`sinfo` shows when Slurm is back")


def ranked(offers: Collection[Offer], now_s: float) -> tuple[Offer, ...]:
    """Return offers by start, to the minute, as the answers came one after the other.

    Of those that start together, one that displaces nobody and keeps no GPU idle comes first; else
    they stay in their
    order: the default profile, the project's, the user's, the site's, the detected one.
    """

    def place(offer: Offer) -> tuple[float, bool, bool]:
        wait_min = max(0, offer.start.start_s - now_s) // 60
        return wait_min, bool(offer.start.preempts), offer.candidate.idles_gpus

    return tuple(sorted(offers, key=place))


def _tried(
    request: JobRequest, names: Sequence[str], surroundings: Surroundings
) -> Iterator[Placement | _Refusal]:
    """Plan the job with each profile.

    If the request leaves the GPU type open, plan the job with each type of a profile.

    Raises:
        HpcrunError: a named profile cannot be loaded, or Slurm does not respond.
    """
    for name in dict.fromkeys(names or _all_names(surroundings)):
        try:
            loaded = load_profile(name, surroundings.profile_folders)
        except HpcrunError as error:
            if names or isinstance(error, SchedulerError):
                raise
            yield _Refusal(name, None, error)
            continue
        if loaded.profile.scheduler == "slurm":
            gpu_types = types_to_choose_from(loaded.profile, request)
            for gpu_type in gpu_types or (None,):
                yield _planned(request, name, gpu_type, loaded, surroundings)
        elif names:
            yield _Refusal(name, None, HpcrunError("runs on this machine, without Slurm"))


def _planned(
    request: JobRequest,
    name: str,
    gpu_type: str | None,
    loaded: LoadedProfile,
    surroundings: Surroundings,
) -> Placement | _Refusal:
    """Return the job planned with a profile, or why that is not possible."""
    if gpu_type:
        request = naming_gpu_type(request, gpu_type)
    try:
        settled = settle(request, loaded, replace(surroundings, choose=first_option))
        plan = build_plan(
            settled.request, settled.loaded.profile, python=_PYTHON, machine=Machine(cpus=1)
        )
    except HpcrunError as error:
        return _Refusal(name, gpu_type, error)
    gpu = loaded.profile.gpu
    has_gpus = bool(gpu.per_node or gpu.types)
    return Placement(name, gpu_type, request, plan, idles_gpus=has_gpus and not plan.shape.gpus)


def _all_names(surroundings: Surroundings) -> list[str]:
    """Return the profiles to compare.

    On a cluster that hpcrun can detect, the result leaves out the shipped profiles of other
    clusters.
    """
    paths = profile_names(surroundings.profile_folders)
    if surroundings.detected is not None:
        shipped = shipped_folder("cluster_profiles")
        paths = {name: path for name, path in paths.items() if path.parent != shipped}
    # the most important first
    folders = [folder.path for folder in folders_of(surroundings.profile_folders)]
    names = sorted(paths, key=lambda name: (folders.index(paths[name].parent), name))
    default = surroundings.env.get("HPCRUN_PROFILE") or surroundings.config.profile
    return [default, *names] if default else names


def over_partition(plan: Plan, partitions: Sequence[Partition]) -> str | None:
    """Return why the job would wait in every partition that it names, None where it may start.

    Of all else sbatch --test-only says itself that it refuses it.
    """
    named = plan.directive("partition")
    if named:
        # sbatch(1): several, of which the first that can
        names = named.split(",")
        possible = [partition for partition in partitions if partition.name in names]
    else:
        possible = [partition for partition in partitions if partition.default]
    first_reason = None
    for partition in possible:
        reason = _over(plan, partition)
        if reason is None:
            return None
        first_reason = first_reason or reason
    return first_reason


def _over(plan: Plan, partition: Partition) -> str | None:
    if not partition.up:
        return f"partition {partition.name} is not up"
    time_s = plan.walltime_s
    if time_s is None or partition.max_s is None or time_s <= partition.max_s:
        return None
    most = f"the {format_time(partition.max_s)} of partition {partition.name}"
    return f"a time limit of {format_time(time_s)} is longer than {most}"


def _no_start(answer: Trial | None) -> str:
    if answer is None:
        return f"not checked: at most {MOST_ASKED} requests; choose profiles with -P"
    if answer.silent:
        return f"sbatch did not respond: {answer.message}"
    return answer.message


def _gpu_hours(plan: Plan, start: JobStart, partitions: Sequence[Partition]) -> float | None:
    limit_s = plan.walltime_s
    if limit_s is None:
        limit_s = _default_time_s(start.partition, partitions)
    if limit_s is None:
        return None
    return plan.shape.gpus * limit_s / 3600


def _default_time_s(name: str | None, partitions: Sequence[Partition]) -> int | None:
    """Return the time that Slurm gives a job without a time limit: the default, or the limit."""
    for partition in partitions:
        if partition.name == name:
            return partition.default_s or partition.max_s
    return None


def offers_table(offers: Sequence[Offer], now_s: float, width: int) -> Table:
    """Return the offers as a table, the first start first.

    A terminal of few columns gets fewer columns of the table.
    """
    rows = [_cells(offer, now_s) for offer in offers]
    least = {}
    for heading in rows[0]:
        longest_cell = max(len(row[heading]) for row in rows)
        length = max(len(heading), longest_cell)
        least[heading] = min(length, _FOLDED.get(heading, length))
    shown = fitting(least, width, _DROPPED)
    cells = [[row[heading] for heading in shown] for row in rows]
    whole = set(shown) - _FOLDED.keys()
    return text_table(shown, cells, right=("GPU-HOURS",), whole=whole, least=least)


def _cells(offer: Offer, asked_s: float) -> dict[str, str]:
    """Return an offer by heading."""
    start = offer.start
    nodes = start.nodes
    if start.preempts:
        nodes += f" (displaces {count(len(start.preempts), 'job')})"
    gpu_hours = "-"
    if offer.gpu_hours:
        gpu_hours = f"{offer.gpu_hours:.1f}".removesuffix(".0")
    cells = {
        "PROFILE": who(offer.candidate.profile, offer.candidate.gpu_type),
        "SHAPE": shape_text(offer.candidate.plan),
        "START": start_text(start.start_s, asked_s),
        "NODES": nodes,
        "PARTITION": start.partition or "-",
        "GPU-HOURS": gpu_hours,
    }
    return {heading: one_line(cell) for heading, cell in cells.items()}


def who(profile: str, gpu_type: str | None) -> str:
    """Return a profile's name, with the GPU type if it has several."""
    return f"{profile} {gpu_type}" if gpu_type else profile


def shape_text(plan: Plan) -> str:
    """Return ``2 × 4 a100``, or ``1 × 64 CPUs``."""
    shape = plan.shape
    nodes = shape.node_choice or shape.nodes
    if shape.gpus_per_node:
        gpus = shape.gpu_type or "GPU"
        return f"{nodes} × {shape.gpus_per_node} {gpus}"
    if plan.cpus_per_node is None:
        return f"{nodes} × default CPUs"
    return f"{nodes} × {count(plan.cpus_per_node, 'CPU')}"


def start_text(start_s: float, now_s: float) -> str:
    """Return ``now``, or the time until the start and the time of day.

    The date is added if the start is on another day.
    """
    if start_s - now_s < _NOW_S:
        return "now"
    start = datetime.fromtimestamp(start_s)
    now = datetime.fromtimestamp(now_s)
    if start.date() == now.date():
        clock = f"{start:%H:%M}"
    else:
        clock = f"{start:%b} {start.day} {start:%H:%M}"
    return f"in {format_span(start_s - now_s)}, {clock}"


def misfit_lines(misfits: Sequence[Misfit]) -> list[str]:
    """Return the profiles that do not fit, each with its reason on one line."""
    if not misfits:
        return []
    names = [who(misfit.profile, misfit.gpu_type) for misfit in misfits]
    width = max(map(len, names))
    lines = []
    for heading, waits in (("does not fit:", False), ("cannot start now:", True)):
        these = [misfit for misfit in misfits if misfit.waits == waits]
        if these:
            lines.append(heading)
        for misfit in these:
            reasons = [line.strip() for line in misfit.reason.splitlines()]
            reason = "; ".join(filter(None, reasons))
            name = who(misfit.profile, misfit.gpu_type)
            lines.append(one_line(f"  {name:<{width}}  {reason}"))
    return lines


def submit_line(offer: Offer) -> str:
    """Return the command that submits the job there; the user replaces SCRIPT."""
    candidate = offer.candidate
    _, *groups = option_groups(given_fields(candidate.request), candidate.profile)
    options = shlex.join(chain.from_iterable(groups))
    return one_line(f"hpcrun submit -P {shlex.quote(candidate.profile)} {options} SCRIPT")


def where_json(
    offers: Sequence[Offer], misfits: Sequence[Misfit], asked_s: float
) -> dict[str, Any]:
    """Return the offers, and the profiles that do not fit, as a JSON document."""
    return {
        "kind": "where",
        "asked_s": asked_s,
        "offers": [_offer_json(offer) for offer in offers],
        "misfits": [asdict(misfit) for misfit in misfits],
    }


def _offer_json(offer: Offer) -> dict[str, Any]:
    candidate = offer.candidate
    start = offer.start
    return {
        "profile": candidate.profile,
        **fields_of(candidate.plan.shape, "gpu_type nodes gpus_per_node"),
        **fields_of(candidate.plan, "cpus_per_node walltime_s"),
        "gpu_hours": offer.gpu_hours,
        "start_s": start.start_s,
        "start": datetime.fromtimestamp(start.start_s).astimezone().isoformat(),
        "node_list": start.nodes,
        "partition": start.partition,
        "displaces": list(start.preempts),
        "submit": submit_line(offer),
    }
