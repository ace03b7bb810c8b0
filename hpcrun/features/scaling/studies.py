"""Scaling studies: the record of each study, and what became of its runs.

The record is ``studies/<id>/study.json`` below the runs folder.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from hpcrun.actions.runs.find import LAST, check_not_empty, choose_id
from hpcrun.actions.status.run_status import RunStatus
from hpcrun.actions.status.status_query import get_status
from hpcrun.cli.context import Context
from hpcrun.errors import HpcrunError, NotFoundError, PlanError, SchedulerError
from hpcrun.explain.first_line import with_first_lines
from hpcrun.files import reading
from hpcrun.files.writing import flocked, make_folder, replace_file
from hpcrun.job import job_states
from hpcrun.job.request.after import Dependency
from hpcrun.job.run_paths import RunsFolder, StudyFolder, run_name
from hpcrun.runs.folder_checks import check_dedicated, check_path, check_private, writing
from hpcrun.runs.record import REQUEST, RUN_ID, check_schema
from hpcrun.runs.store import RunStore

SCHEMA = 1
REMOVED = "run removed"
MISSING = "not submitted yet"
SET_BY_SIZE = ("nodes", "gpus", "gpus_per_node", "nproc_per_node")
"""Fields of a request that each size of a study has of its own."""


class DamagedStudyError(HpcrunError):
    """A study whose record cannot be read; its runs are not affected."""

    exit_code = NotFoundError.exit_code


@dataclass(frozen=True, slots=True)
class StudyPoint:
    """One run of a study."""

    gpus: int  # of the whole job; its ranks if the study counts ranks
    nodes: int
    repeat: int  # from 1
    # chosen before the run is made, so that a run without a record in the study is found
    run_id: str
    batch_size: int | None = None  # the global batch; None if unknown
    submitted: bool = False  # the run was made
    problem: str = ""  # why it was not, in one line; empty if it was not tried or had no problem
    # fields that another version of hpcrun wrote
    unknown: Mapping[str, Any] = field(default_factory=dict, compare=False)


@dataclass(frozen=True, slots=True)
class Study:
    """The request of a study, and its runs."""

    study_id: str  # in the form of a run's id: ``YYYYMMDD-HHMMSS-name-xxxx``
    name: str
    created_s: float  # seconds since the epoch
    profile: str  # name or path
    cwd: str  # the folder it was submitted from
    unit: Literal["GPUs", "ranks"] = "GPUs"  # what its sizes count
    gpu_type: str | None = None  # of all its runs, if it was named
    # strong keeps the global batch, weak keeps the per-GPU batch
    scaling: Literal["strong", "weak"] = "strong"
    # batch_size, lr: as requested, the learning rate as typed
    batch_size: int | None = None
    lr: str | None = None
    dataset: str = ""
    warmup: int = 1  # the number of epochs of each run that a report leaves out
    one_by_one: bool = False  # a run starts when the run before it has ended
    # the Python environment of its runs, as in a run's plan
    python: dict[str, Any] = field(default_factory=dict)
    # of every run, as typed, with placeholders for the values of each run; secrets are masked
    request: dict[str, Any] = field(default_factory=dict)
    points: tuple[StudyPoint, ...] = ()
    # fields that another version of hpcrun wrote
    unknown: Mapping[str, Any] = field(default_factory=dict, compare=False)


_COUNT = reading.whole(0, 10**9)
_POINT_KINDS = reading.kinds_of(StudyPoint, integer=_COUNT, real=reading.time_s, run_id=RUN_ID)
_STUDY_KINDS = reading.kinds_of(
    Study,
    integer=_COUNT,
    real=reading.time_s,
    study_id=RUN_ID,
    unit=reading.one_of("GPUs", "ranks"),
    scaling=reading.one_of("strong", "weak"),
    python=reading.table({"prefix": reading.optional(reading.text), "variable": reading.text}),
    request=REQUEST,
    points=reading.list_of(reading.table(_POINT_KINDS, reading.needs_of(StudyPoint))),
)
_MOST = 8 << 20


def _with_unknown(fields: dict[str, Any]) -> dict[str, Any]:
    """Add the fields that another version of hpcrun wrote to those of this version."""
    unknown = fields.pop("unknown")
    return {**fields, **unknown}


def _study_from_json(content: bytes) -> Study:
    data = reading.parse_object(content)
    newer = check_schema(data.pop("schema", SCHEMA), SCHEMA)
    if newer:
        raise ValueError(newer)
    fields, unknown = reading.read_fields(data, _STUDY_KINDS, (*reading.needs_of(Study), "points"))
    points = []
    for point in fields.pop("points"):
        known, others = reading.read_fields(point, _POINT_KINDS)
        points.append(StudyPoint(**known, unknown=others))
    return Study(**fields, points=tuple(points), unknown=unknown)


@dataclass(frozen=True, slots=True)
class StudyStore:
    """The studies below one runs folder."""

    runs: Path  # the runs folder

    def folder(self, study_id: str) -> Path:
        """Return the folder of a study."""
        return self._study(study_id).path

    def _study(self, study_id: str) -> StudyFolder:
        return RunsFolder(self.runs).study(study_id)

    def study_ids(self) -> list[str]:
        """Return the ids of all studies, oldest first."""
        check_private(self.runs)
        studies = RunsFolder(self.runs).studies
        check_private(studies)
        with writing(self.runs), suppress(FileNotFoundError):
            return sorted(name for name in os.listdir(studies) if not name.startswith("."))
        return []

    def load(self, study_id: str) -> Study:
        """Read a study's record.

        Raises:
            NotFoundError: there is no such study.
            DamagedStudyError: the record cannot be read, or is of another study.
            ValueError: never outside: the function turns it into a DamagedStudyError.
        """
        folder = self._study(study_id)
        check_private(folder.path)
        try:
            study = _study_from_json(reading.read_bytes(folder.record, _MOST))
            # a copied folder: actions on it would affect the original
            if study.study_id != study_id:
                raise ValueError(f"it is the record of {study.study_id}")
            return study
        except FileNotFoundError:
            raise NotFoundError(
                f"there is no study {study_id!r}", hint="hpcrun scale run --list lists them"
            ) from None
        except (OSError, ValueError) as error:
            raise DamagedStudyError(
                f"{folder.record} cannot be read: {error}",
                hint="its runs are not affected: hpcrun status",
            ) from None

    def save(self, study: Study) -> None:
        """Write a study's record.

        If the process is killed, there is the complete old or new record.
        """
        folder = self._study(study.study_id)
        fields = asdict(study)
        fields["points"] = list(map(_with_unknown, fields["points"]))
        record = {"schema": SCHEMA, **_with_unknown(fields)}
        check_dedicated(self.runs)
        with writing(self.runs):
            make_folder(folder.path, 0o700)
            check_private(self.runs)
            check_path(self.runs)
            replace_file(folder.record, json.dumps(record, indent=1) + "\n")

    @contextmanager
    def submitting(self, study_id: str) -> Iterator[None]:
        """Prevent other processes from submitting runs of this study meanwhile.

        This holds if the file system has locks.

        Raises:
            PlanError: another process is submitting runs of this study.
        """
        with ExitStack() as held:
            with writing(self.runs):
                free = held.enter_context(flocked(self._study(study_id).lock))
            if not free:
                raise PlanError(
                    f"another hpcrun is submitting the runs of study {study_id}",
                    hint=f"hpcrun scale run --show {study_id}",
                )
            yield  # without locks two at once would submit some runs twice, which status shows

    def load_measured(self, study_id: str) -> dict[str, Any]:
        """Return the saved measurements of ended runs; empty if they cannot be read."""
        try:
            return reading.read_object(self._study(study_id).measured, _MOST)
        except (OSError, ValueError):
            return {}

    def save_measured(self, study_id: str, measured: dict[str, Any]) -> None:
        """Save the measurements of ended runs.

        On a full disk, the runs are read again the next time.
        """
        with suppress(OSError):
            replace_file(self._study(study_id).measured, json.dumps(measured) + "\n", durable=False)


@dataclass(frozen=True, slots=True)
class StudyRun:
    """A run of a study as it stands."""

    point: StudyPoint
    # the point's newest run that completed or has not ended, else its newest: ``resubmit`` makes
    # more
    run_id: str
    # None where the scheduler was not asked, or where there is no such run
    status: RunStatus | None = None
    problem: str = ""  # why there is none, in one line

    @property
    def state(self) -> str:
        """The state in Slurm's terms, or one of hpcrun's."""
        if self.status:
            return self.status.status.state
        if self.problem == REMOVED:
            return job_states.UNKNOWN
        return job_states.NOT_SUBMITTED

    @property
    def over(self) -> bool:
        """Whether nothing more comes of it."""
        return not self.status or self.status.status.final or self.status.lost


@dataclass(frozen=True, slots=True)
class StudyStatus:
    """The runs of a study in its order."""

    study: Study
    runs: tuple[StudyRun, ...]
    away: SchedulerError | None = None  # the scheduler's own message where it did not answer


def find_study(label: str, studies: StudyStore) -> tuple[Study, str | None]:
    """Return one study, and a note where its label could have meant an older study too.

    A label is a study's id or the beginning of one, a name, of which the newest wins, or ``last``.

    Raises:
        NotFoundError: there are no studies, or the label means none.
        UsageError: the label is empty, or means several.
    """
    listing = "hpcrun scale run --list lists them"
    check_not_empty(label, "study", listing)
    ids = studies.study_ids()
    if not ids:
        raise NotFoundError(
            f"there are no studies in {studies.runs}", hint="hpcrun scale run creates one"
        )
    if label == LAST:
        label = ids[-1]
    if label in ids:
        return studies.load(label), None
    study_id, note = choose_id(label, ids, ("study", "studies"), listing)
    return studies.load(study_id), note


def resubmissions(studies: Iterable[Study], store: RunStore) -> dict[str, list[str]]:
    """Return each run of some studies, with the runs that were resubmitted from the run.

    The list of a run begins with the run itself, and the newest is last. A resubmitted run keeps
    its name, so that few records are read whatever is in the runs folder.
    """
    runs: dict[str, list[str]] = {}
    for study in studies:
        for point in study.points:
            runs[point.run_id] = [point.run_id]
    names = {run_name(run_id) for run_id in runs}
    first = {run_id: run_id for run_id in runs}
    for run_id in store.run_ids():  # in the order of time
        if run_id in runs or run_name(run_id) not in names:
            continue
        try:
            before = store.load(run_id).resubmitted_from
        except HpcrunError:
            continue
        if before in first:
            first[run_id] = first[before]
            runs[first[before]].append(run_id)
    return runs


def study_status(
    study: Study,
    context: Context,
    again: Mapping[str, list[str]] | None = None,
    known: Mapping[str, str] | None = None,
) -> StudyStatus:
    """Return the states of the runs of a study.

    One query to the scheduler is for all runs but the ``known`` ones. ``again``: the answer of
    ``resubmissions``, where it is there already.
    """
    again = again or resubmissions([study], context.store)
    known = known or {}
    to_query: list[str] = []
    for point in study.points:
        to_query += [run_id for run_id in again[point.run_id] if run_id not in known]
    result = with_first_lines(get_status(to_query, context.ports), context.store, context.rules)
    statuses = {item.run.run_id: item for item in result.runs}
    useful = {run_id for run_id, state in known.items() if state == job_states.COMPLETED}
    for run_id, item in statuses.items():
        if item.status.state == job_states.COMPLETED or not item.status.final:
            useful.add(run_id)
    runs = []
    for point in study.points:
        run_id = _counted_run(again[point.run_id], useful)
        status = statuses.get(run_id)
        problem = "" if status else _why_missing(point)
        runs.append(StudyRun(point, run_id, status, problem))
    return StudyStatus(study, tuple(runs), result.away)


def _counted_run(run_ids: Sequence[str], useful: Container[str]) -> str:
    """Return the newest useful run, or else the newest. ``run_ids``: the newest is last."""
    for run_id in reversed(run_ids):
        if run_id in useful:
            return run_id
    return run_ids[-1]


def _why_missing(point: StudyPoint) -> str:
    """Return why there is no run of a point, in one line."""
    if point.problem:
        return point.problem
    return REMOVED if point.submitted else MISSING


def with_run_ids(status: StudyStatus, new_id: Callable[[str], str]) -> Study:
    """Return a study with its submitted runs marked, and with new ids for the other runs.

    The other runs were refused or never tried.
    """

    def marked(item: StudyRun) -> StudyPoint:
        if item.state == job_states.NOT_SUBMITTED:
            return replace(
                item.point, run_id=new_id(run_name(item.point.run_id)), submitted=False, problem=""
            )
        return replace(item.point, submitted=True)

    return replace(status.study, points=tuple(map(marked, status.runs)))


def last_open(status: StudyStatus) -> Dependency | None:
    """Return the last run that is not over, for the next one to wait for."""
    runs = [item.status.run for item in status.runs if item.status and not item.over]
    last = max(runs, key=lambda run: run.created_s, default=None)
    if last and last.job_id:
        return Dependency(last.run_id, last.job_id, "any")
    return None
