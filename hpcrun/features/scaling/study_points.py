"""What the runs of a study measured. Runs that are over are read once; what they said is kept beside the study."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from pydantic import TypeAdapter, ValidationError

from hpcrun.actions.ports import Ports
from hpcrun.actions.runs.metrics import Metrics, read_metrics
from hpcrun.actions.runs.use import run_use
from hpcrun.actions.status.run_status import RunStatus
from hpcrun.errors import SchedulerError
from hpcrun.features.scaling.points import TIMED, Epoch, Point, Source, epochs_of, number, whole
from hpcrun.features.scaling.studies import Study, StudyStore
from hpcrun.features.scaling.study import Explained, StudyRun, look_at, newest_runs
from hpcrun.job import state
from hpcrun.runs.attempt import Attempt, attempts
from hpcrun.runs.metrics import MetricsRow

NOT_ENDED = "not ended yet"
_CACHE_SCHEMA = 1
_USE_FROM_S = 60.0
"""Of a shorter run two or three samples say nothing about the size."""


@dataclass(frozen=True, slots=True)
class StudyMeasurements:
    """What studies have measured so far.

    Attributes:
        away: the scheduler's own words where it did not answer.
    """

    points: tuple[Point, ...]
    away: SchedulerError | None = None


def read_points(
    studies: Sequence[Study],
    ports: Ports,
    *,
    place: StudyStore,
    patterns: Callable[[str], Mapping[str, str]],
    explained: Explained | None = None,
) -> StudyMeasurements:
    """Read what the runs of some studies measured.

    Args:
        patterns: profile → metric → regular expression to find it in the logs.

    Raises:
        UnsafeFolderError: another user could have changed the runs.
    """
    points: list[Point] = []
    away: SchedulerError | None = None
    newest = newest_runs(studies, ports.store)
    for study in studies:
        wanted = dict(patterns(study.profile))
        known = _known(place.load_measured(study.study_id), wanted)
        status = look_at(study, newest, ports, known=known, explained=explained)
        away = away or status.away
        found = [known.get(item.run_id) or _point(study, item, wanted) for item in status.runs]
        points += [
            point if point.dataset == study.dataset else replace(point, dataset=study.dataset) for point in found
        ]
        over = {item.run_id: point for item, point in zip(status.runs, found, strict=True) if _is_over(item, known)}
        if over.keys() != known.keys():
            points_by_run = {run_id: asdict(point) for run_id, point in over.items()}
            kept = {"schema": _CACHE_SCHEMA, "patterns": wanted, "points": points_by_run}
            place.save_measured(study.study_id, kept)
    return StudyMeasurements(tuple(points), away)


def _is_over(item: StudyRun, known: Mapping[str, Point]) -> bool:
    return item.run_id in known or (item.status is not None and item.status.status.final)


def _point(study: Study, item: StudyRun, patterns: Mapping[str, str]) -> Point:
    said = item.point
    point = Point(said.gpus, said.nodes, study.dataset, said.repeat, item.state, item.run_id,
                  batch_size=said.batch_size, problem=item.problem)  # fmt: skip
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
    """Return a point with what its run said, in its metrics, else in its logs; else with how long it took."""
    begun = list(reversed(list(attempts(item.folder))))
    noted = read_metrics(item.folder, None, all_ranks=True)
    said = read_metrics(item.folder, patterns) if patterns else _of_first(noted)
    epochs = epochs_of((row.step, row.values) for row in said.rows)
    samples = _samples(noted, item.run.world_size)
    use = run_use(item.folder)
    if use and use.seconds < _USE_FROM_S:
        use = None
    return replace(
        point,
        source=_source(epochs, noted),
        epochs=epochs,
        total_s=_total_s(begun, item),
        startup_s=_startup_s(epochs, said.rows, begun),
        batch_size=_whole(said, "batch_size") or point.batch_size,
        samples=sum(samples) if samples else None,
        rank_samples=samples,
        parameters=_whole(said, "parameters"),
        gpu_busy=use.gpu_busy if use else None,
        cpu_busy=use.cpus / use.cpus_asked if use and use.cpus_asked else None,
    )


def _of_first(noted: Metrics) -> Metrics:
    return replace(noted, rows=tuple(row for row in noted.rows if row.rank == noted.ranks[0]))


def _source(epochs: Sequence[Epoch], noted: Metrics) -> Source:
    if not epochs:
        return "elapsed"
    return "metrics" if any(name in noted.names for name in TIMED) else "log"


def _whole(metrics: Metrics, name: str) -> int | None:
    return whole(row.values.get(name) for row in metrics.rows)


def _samples(noted: Metrics, world_size: int) -> tuple[int, ...]:
    """Return how many samples each rank had in an epoch; nothing unless every rank has said it."""
    said: dict[int, list[Any]] = {}
    for row in noted.rows:
        said.setdefault(row.rank, []).append(row.values.get("samples"))
    found = [whole(said.get(rank, ())) for rank in range(world_size)]
    return tuple(samples for samples in found if samples is not None) if None not in found else ()


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


def _known(kept: Mapping[str, Any], patterns: Mapping[str, str]) -> dict[str, Point]:
    """Return the points that were kept, by run; none where other patterns look for metrics now."""
    if (kept.get("schema"), kept.get("patterns")) != (_CACHE_SCHEMA, patterns):
        return {}
    try:
        points = TypeAdapter(dict[str, Point]).validate_python(kept.get("points"))  # without fields of other versions
    except ValidationError:
        return {}
    return points if all(point.gpus > 0 and point.nodes > 0 for point in points.values()) else {}
