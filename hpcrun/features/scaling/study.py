"""A scaling study that was begun: finding it, and what became of its runs."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace

from hpcrun.actions.ports import Ports
from hpcrun.actions.runs.find import LAST, choose_id, run_name
from hpcrun.actions.status.run_status import RunStatus, StatusResult
from hpcrun.actions.status.status import get_status
from hpcrun.errors import HpcrunError, NotFoundError, SchedulerError
from hpcrun.features.scaling.studies import Study, StudyPoint, StudyStore
from hpcrun.job import state
from hpcrun.job.after import Dependency
from hpcrun.runs.record import Run
from hpcrun.runs.store import RunStore

Explained = Callable[[StatusResult], StatusResult]
"""Adds to runs that failed what is known of the cause."""
REMOVED = "run removed"
MISSING = "not submitted yet"


@dataclass(frozen=True, slots=True)
class FoundStudy:
    """A study, and what to say where the word could have meant an older one too."""

    study: Study
    note: str | None = None


@dataclass(frozen=True, slots=True)
class StudyRun:
    """A run of a study as it stands.

    Attributes:
        run_id: of the newest run that was submitted for this point: ``hpcrun resubmit`` makes another.
        status: None where it was not asked, or where there is no such run.
        problem: why there is none, in one line.
    """

    point: StudyPoint
    run_id: str
    status: RunStatus | None = None
    problem: str = ""

    @property
    def state(self) -> str:
        """Slurm's word, or one of hpcrun's."""
        if self.status:
            return self.status.status.state
        return state.UNKNOWN if self.problem == REMOVED else state.NOT_SUBMITTED

    @property
    def over(self) -> bool:
        """Whether nothing more comes of it."""
        return self.status.status.final if self.status else True


@dataclass(frozen=True, slots=True)
class StudyStatus:
    """The runs of a study in its order.

    Attributes:
        away: the scheduler's own words where it did not answer.
    """

    study: Study
    runs: tuple[StudyRun, ...]
    away: SchedulerError | None = None


def find_study(word: str, studies: StudyStore) -> FoundStudy:
    """Find one study.

    Args:
        word: a study's id or the beginning of one, a name (the newest wins, said so), or ``last``.

    Raises:
        NotFoundError: none is meant; the nearest name is shown.
        UsageError: several could be meant; they are listed.
        DamagedStudyError: its record cannot be read.
    """
    ids = studies.study_ids()
    if not ids:
        raise NotFoundError(f"there are no studies in {studies.runs}", hint="hpcrun scale run creates one")
    if word == LAST:
        second = ids[-1][:15]  # ids tell time in seconds, records more exactly
        newest = [studies.load(study_id) for study_id in ids if study_id.startswith(second)]
        return FoundStudy(max(newest, key=lambda study: study.created_s))
    if word in ids:
        return FoundStudy(studies.load(word))
    study_id, note = choose_id(word, ids, ("study", "studies"), "hpcrun scale run --list lists them")
    return FoundStudy(studies.load(study_id), note)


def all_studies(studies: StudyStore) -> tuple[list[Study], list[str]]:
    """Return all studies, oldest first, and messages about those that cannot be read."""
    found, damaged = [], []
    for study_id in studies.study_ids():
        try:
            found.append(studies.load(study_id))
        except HpcrunError as error:
            damaged.append(error.message)
    return sorted(found, key=lambda study: study.created_s), damaged


def newest_runs(studies: Iterable[Study], store: RunStore) -> dict[str, str]:
    """Return which run stands for each run of some studies: itself, or the last that was resubmitted from it.

    A resubmitted run keeps its name, so that few records are read whatever is in the runs folder.
    """
    own = dict.fromkeys(point.run_id for study in studies for point in study.points)
    names = {run_name(run_id) for run_id in own}
    later: dict[str, str] = {}
    for run_id in store.run_ids():
        if run_id in own or run_name(run_id) not in names:
            continue
        try:
            before = store.load(run_id).resubmitted_from
        except HpcrunError:
            continue
        if before:
            later[before] = run_id
    return {run_id: _last(run_id, later) for run_id in own}


def _last(run_id: str, later: Mapping[str, str]) -> str:
    seen = {run_id}
    while run_id in later and later[run_id] not in seen:
        run_id = later[run_id]
        seen.add(run_id)
    return run_id


def wait_for_runs(study: Study, store: RunStore, wait: Callable[[str], object]) -> None:
    """Wait until every run that was submitted is over.

    Args:
        wait: waits for the end of a run, given its id.
    """
    newest = newest_runs([study], store)
    for point in study.points:
        run_id = newest[point.run_id]
        if store.folder(run_id).exists():
            wait(run_id)


def look_at(
    study: Study,
    newest: Mapping[str, str],
    ports: Ports,
    *,
    known: Collection[str] = (),
    explained: Explained | None = None,
) -> StudyStatus:
    """Learn what became of the runs of a study: one question for all of them.

    Args:
        newest: as ``newest_runs`` returns it.
        known: runs that need not be looked at.
    """
    made = [run_id for point in study.points if (run_id := newest[point.run_id]) not in known]
    result = get_status(made, ports)
    found = {item.run.run_id: item for item in (explained(result) if explained else result).runs}
    return StudyStatus(study, tuple(_run(point, newest[point.run_id], found) for point in study.points), result.away)


def _run(point: StudyPoint, run_id: str, found: Mapping[str, RunStatus]) -> StudyRun:
    if run_id in found:
        return StudyRun(point, run_id, found[run_id])
    return StudyRun(point, run_id, problem=point.problem or (REMOVED if point.submitted else MISSING))


def missing(status: StudyStatus) -> list[StudyPoint]:
    """Return the points for which there is no job, and that can be submitted: refused, or never tried."""
    return [item.point for item in status.runs if item.state == state.NOT_SUBMITTED]


def brought_up(status: StudyStatus, new_id: Callable[[str], str]) -> Study:
    """Return a study as it is known to be: runs that were made are noted, those that are missing have new ids.

    Args:
        new_id: name → an id that begins now.
    """
    old = {point.run_id for point in missing(status)}

    def known(item: StudyRun) -> StudyPoint:
        point = item.point
        if point.run_id in old:
            return replace(point, run_id=new_id(run_name(point.run_id)), submitted=False, problem="")
        return replace(point, submitted=True)

    return replace(status.study, points=tuple(known(item) for item in status.runs))


def last_open(status: StudyStatus) -> Dependency | None:
    """Return the last run that is not over, for the next one to wait for."""
    runs: list[Run] = [item.status.run for item in status.runs if item.status and not item.over]
    runs.sort(key=lambda run: run.created_s)
    return Dependency(runs[-1].run_id, runs[-1].job_id, "any") if runs and runs[-1].job_id else None
