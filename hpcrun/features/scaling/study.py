"""A scaling study that was begun: finding it, what became of its runs, and what they measured.

Runs that are over are read once; their measurements are kept beside the study.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from hpcrun.actions.ports import Ports
from hpcrun.actions.runs.find import LAST, choose_id
from hpcrun.actions.runs.metrics import Metrics, read_metrics
from hpcrun.actions.runs.use import run_use
from hpcrun.actions.status.run_status import RunStatus, StatusResult
from hpcrun.actions.status.status import get_status
from hpcrun.errors import HpcrunError, NotFoundError, SchedulerError
from hpcrun.features.scaling.points import TIMED, Epoch, Point, Source, epochs_of, number, whole
from hpcrun.features.scaling.studies import Study, StudyPoint, StudyStore
from hpcrun.job import state
from hpcrun.job.after import Dependency
from hpcrun.job.layout import run_name
from hpcrun.runs.attempt import Attempt, attempts
from hpcrun.runs.metrics import MetricsRow
from hpcrun.runs.store import RunStore

Explained = Callable[[StatusResult], StatusResult]
"""Adds to runs that failed what is known of the cause."""
REMOVED = "run removed"
MISSING = "not submitted yet"
NOT_ENDED = "not ended yet"
_CACHE_SCHEMA = 1
_USE_FROM_S = 60.0
"""Of a shorter run two or three samples say nothing about the size."""


@dataclass(frozen=True, slots=True)
class StudyMatch:
    """A study, and what to say where its label could have meant an older one too."""

    study: Study
    note: str | None = None


@dataclass(frozen=True, slots=True)
class StudyRun:
    """A run of a study as it stands."""

    point: StudyPoint
    run_id: str  # of the newest run that was submitted for this point: ``hpcrun resubmit`` makes another
    status: RunStatus | None = None  # None where the scheduler was not asked, or where there is no such run
    problem: str = ""  # why there is none, in one line

    @property
    def state(self) -> str:
        """The state in Slurm's terms, or one of hpcrun's."""
        if self.status:
            return self.status.status.state
        return state.UNKNOWN if self.problem == REMOVED else state.NOT_SUBMITTED

    @property
    def over(self) -> bool:
        """Whether nothing more comes of it."""
        return self.status.status.final if self.status else True


@dataclass(frozen=True, slots=True)
class StudyStatus:
    """The runs of a study in its order."""

    study: Study
    runs: tuple[StudyRun, ...]
    away: SchedulerError | None = None  # the scheduler's own message where it did not answer


@dataclass(frozen=True, slots=True)
class StudyMeasurements:
    """What studies have measured so far."""

    points: tuple[Point, ...]
    away: SchedulerError | None = None  # the scheduler's own message where it did not answer


def find_study(label: str, studies: StudyStore) -> StudyMatch:
    """Find one study.

    Args:
        label: a study's id or the beginning of one, a name (the newest wins, said so), or ``last``.
    """
    ids = studies.study_ids()
    if not ids:
        raise NotFoundError(f"there are no studies in {studies.runs}", hint="hpcrun scale run creates one")
    if label == LAST:
        second = ids[-1][:15]  # ids tell time in seconds, records more exactly
        newest = [studies.load(study_id) for study_id in ids if study_id.startswith(second)]
        return StudyMatch(max(newest, key=lambda study: study.created_s))
    if label in ids:
        return StudyMatch(studies.load(label))
    study_id, note = choose_id(label, ids, ("study", "studies"), "hpcrun scale run --list lists them")
    return StudyMatch(studies.load(study_id), note)


def all_studies(studies: StudyStore) -> tuple[list[Study], list[str]]:
    """Return all studies, oldest first, and messages about those that cannot be read."""
    readable, damaged = [], []
    for study_id in studies.study_ids():
        try:
            readable.append(studies.load(study_id))
        except HpcrunError as error:
            damaged.append(error.message)
    return sorted(readable, key=lambda study: study.created_s), damaged


def newest_runs(studies: Iterable[Study], store: RunStore) -> dict[str, str]:
    """Return which run stands for each run of some studies: itself, or the last that was resubmitted from it.

    A resubmitted run keeps its name, so that few records are read whatever is in the runs folder.
    """
    first = dict.fromkeys(point.run_id for study in studies for point in study.points)
    names = {run_name(run_id) for run_id in first}
    later: dict[str, str] = {}
    for run_id in store.run_ids():
        if run_id in first or run_name(run_id) not in names:
            continue
        try:
            before = store.load(run_id).resubmitted_from
        except HpcrunError:
            continue
        if before:
            later[before] = run_id
    return {run_id: _last(run_id, later) for run_id in first}


def _last(run_id: str, later: Mapping[str, str]) -> str:
    seen = {run_id}
    while run_id in later and later[run_id] not in seen:
        run_id = later[run_id]
        seen.add(run_id)
    return run_id


def wait_for_runs(study: Study, store: RunStore, wait: Callable[[str], object]) -> None:
    """Wait until every run that was submitted is over. ``wait``: waits for the end of a run, given its id."""
    for run_id in newest_runs([study], store).values():
        if store.folder(run_id).exists():
            wait(run_id)


def study_status(
    study: Study,
    newest: Mapping[str, str],
    ports: Ports,
    *,
    known: Collection[str] = (),
    explained: Explained | None = None,
) -> StudyStatus:
    """Return what became of the runs of a study: one question to the scheduler for all of them.

    Args:
        newest: as ``newest_runs`` returns it.
        known: runs whose state is not needed.
    """
    made = [run_id for point in study.points if (run_id := newest[point.run_id]) not in known]
    result = get_status(made, ports)
    statuses = {item.run.run_id: item for item in (explained(result) if explained else result).runs}
    runs = []
    for point in study.points:
        item = statuses.get(newest[point.run_id])
        problem = "" if item else point.problem or (REMOVED if point.submitted else MISSING)
        runs.append(StudyRun(point, newest[point.run_id], item, problem))
    return StudyStatus(study, tuple(runs), result.away)


def with_run_ids(status: StudyStatus, new_id: Callable[[str], str]) -> Study:
    """Return a study with its submitted runs marked, and new run ids for those that were refused or never tried.

    Args:
        new_id: name → an id that begins now.
    """

    def marked(item: StudyRun) -> StudyPoint:
        if item.state == state.NOT_SUBMITTED:
            return replace(item.point, run_id=new_id(run_name(item.point.run_id)), submitted=False, problem="")
        return replace(item.point, submitted=True)

    return replace(status.study, points=tuple(map(marked, status.runs)))


def last_open(status: StudyStatus) -> Dependency | None:
    """Return the last run that is not over, for the next one to wait for."""
    runs = [item.status.run for item in status.runs if item.status and not item.over]
    last = max(runs, key=lambda run: run.created_s, default=None)
    return Dependency(last.run_id, last.job_id, "any") if last and last.job_id else None


def read_points(
    studies: Sequence[Study],
    ports: Ports,
    *,
    patterns: Callable[[str], Mapping[str, str]],
    explained: Explained | None = None,
) -> StudyMeasurements:
    """Read what the runs of some studies measured.

    Args:
        patterns: profile → metric → regular expression to find it in the logs.
    """
    points: list[Point] = []
    away: SchedulerError | None = None
    newest, place = newest_runs(studies, ports.store), StudyStore(ports.store.root)
    for study in studies:
        wanted = dict(patterns(study.profile))
        known = _known(place.load_measured(study.study_id), wanted)
        status = study_status(study, newest, ports, known=known, explained=explained)
        away = away or status.away
        measured = {item.run_id: known.get(item.run_id) or _point(item, wanted) for item in status.runs}
        points += [replace(point, dataset=study.dataset) for point in measured.values()]
        ended = {item.run_id for item in status.runs if item.status and item.status.status.final}
        over = {run_id: point for run_id, point in measured.items() if run_id in ended or run_id in known}
        if over.keys() != known.keys():
            kept = {run_id: asdict(point) for run_id, point in over.items()}
            place.save_measured(study.study_id, {"schema": _CACHE_SCHEMA, "patterns": wanted, "points": kept})
    return StudyMeasurements(tuple(points), away)


def _known(kept: Mapping[str, Any], patterns: Mapping[str, str]) -> dict[str, Point]:
    """Return the points that were kept, by run; none where other patterns are set now."""
    if (kept.get("schema"), kept.get("patterns")) != (_CACHE_SCHEMA, patterns):
        return {}
    from pydantic import TypeAdapter, ValidationError  # only where something was kept

    try:
        points = TypeAdapter(dict[str, Point]).validate_python(kept.get("points"))  # without fields of other versions
    except ValidationError:
        return {}
    return points if all(point.gpus > 0 and point.nodes > 0 for point in points.values()) else {}


def _point(item: StudyRun, patterns: Mapping[str, str]) -> Point:
    size = item.point
    point = Point(size.gpus, size.nodes, repeat=size.repeat, state=item.state, run=item.run_id,
                  batch_size=size.batch_size, problem=item.problem)  # fmt: skip
    if item.status is None:
        return point
    point = replace(point, nodes=item.status.run.nodes, problem=_problem(item.status))
    return with_measurements(point, item.status, patterns)


def _problem(item: RunStatus) -> str:
    status = item.status
    if status.state == state.COMPLETED:
        return ""
    if not status.final:
        return f"{NOT_ENDED}: {status.state}"
    return status.cause or status.reason or status.state


def with_measurements(point: Point, item: RunStatus, patterns: Mapping[str, str]) -> Point:
    """Return a point with the numbers in its run's metrics, else in its logs; else with how long the run took."""
    begun = list(reversed(list(attempts(item.folder))))
    of_ranks = read_metrics(item.folder, None, all_ranks=True)
    first_rank = tuple(row for row in of_ranks.rows if row.rank == of_ranks.ranks[0])
    metrics = read_metrics(item.folder, patterns) if patterns else replace(of_ranks, rows=first_rank)
    epochs = epochs_of((row.step, row.values) for row in metrics.rows)
    in_metrics: Source = "metrics" if any(name in of_ranks.names for name in TIMED) else "log"
    samples = _samples(of_ranks, item.run.world_size)
    use = run_use(item.folder)
    if use and use.seconds < _USE_FROM_S:
        use = None
    return replace(
        point,
        source=in_metrics if epochs else "elapsed",
        epochs=epochs,
        total_s=_total_s(begun, item),
        startup_s=_startup_s(epochs, metrics.rows, begun),
        batch_size=_whole(metrics.rows, "batch_size") or point.batch_size,
        samples=sum(samples) if samples else None,
        rank_samples=samples,
        parameters=_whole(metrics.rows, "parameters"),
        gpu_busy=use.gpu_busy if use else None,
        cpu_busy=use.cpus / use.cpus_asked if use and use.cpus_asked else None,
    )


def _whole(rows: Iterable[MetricsRow], name: str) -> int | None:
    return whole(row.values.get(name) for row in rows)


def _samples(metrics: Metrics, world_size: int) -> tuple[int, ...]:
    """Return how many samples each rank had in an epoch; nothing unless every rank has recorded it."""
    rows: dict[int, list[MetricsRow]] = {}
    for row in metrics.rows:
        rows.setdefault(row.rank, []).append(row)
    counts = [_whole(rows.get(rank, ()), "samples") for rank in range(world_size)]
    return tuple(samples for samples in counts if samples is not None) if None not in counts else ()


def _total_s(begun: Sequence[Attempt], item: RunStatus) -> float | None:
    """Return the seconds of all attempts, by their own records; the scheduler's where one left none."""
    ended = [(attempt, attempt.exit) for attempt in begun]
    if ended and all(exit_ for _, exit_ in ended):
        return sum(exit_.ended_s - attempt.started_s for attempt, exit_ in ended if exit_)
    return item.status.elapsed_s


def _startup_s(epochs: Sequence[Epoch], rows: Sequence[MetricsRow], begun: Sequence[Attempt]) -> float | None:
    """Return the seconds from the start of the job until its first epoch began."""
    first = next((row for row in rows if number(row.values.get(TIMED[0])) is not None), None)
    if not epochs or first is None or first.time_s is None or epochs[0].time_s is None:
        return None
    started = next((attempt.started_s for attempt in begun if attempt.number == first.attempt), None)
    return None if started is None else max(0.0, first.time_s - epochs[0].time_s - started)
