"""The record of a scaling study: the list of its runs, in ``studies/<id>/study.json`` below the runs folder."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from hpcrun import reading
from hpcrun.errors import HpcrunError, NotFoundError, PlanError
from hpcrun.job.layout import RunsFolder, StudyFolder
from hpcrun.runs.folder_checks import check_dedicated, check_path, check_private, make_folder, writing
from hpcrun.runs.record import REQUEST, RUN_ID, check_schema
from hpcrun.writing import flocked, replace_file

SCHEMA = 1


class DamagedStudyError(HpcrunError):
    """A study whose record cannot be read; its runs are not affected."""

    exit_code = NotFoundError.exit_code


@dataclass(frozen=True, slots=True)
class StudyPoint:
    """One run of a study."""

    gpus: int  # of the whole job; its ranks if the study counts ranks
    nodes: int
    repeat: int  # from 1
    run_id: str  # chosen before the run is made, so that a run without a record in the study is found
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
    scaling: Literal["strong", "weak"] = "strong"  # strong keeps the global batch, weak keeps the per-GPU batch
    # batch_size, lr: as requested, the learning rate as typed
    batch_size: int | None = None
    lr: str | None = None
    dataset: str = ""
    warmup: int = 1  # the number of epochs of each run that a report leaves out
    one_by_one: bool = False  # a run starts when the run before it has ended
    python: dict[str, Any] = field(default_factory=dict)  # the Python environment of its runs, as in a run's plan
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


def study_to_json(study: Study) -> str:
    """Return the text of ``study.json``."""
    fields = asdict(study)
    points = [_with_unknown(point) for point in fields.pop("points")]
    return json.dumps({"schema": SCHEMA, **_with_unknown({**fields, "points": points})}, indent=1) + "\n"


def _with_unknown(fields: dict[str, Any]) -> dict[str, Any]:
    """Add the fields that another version of hpcrun wrote to those of this version."""
    unknown = fields.pop("unknown")
    return {**fields, **unknown}


def study_from_json(content: str | bytes) -> Study:
    """Read ``study.json``."""
    data = reading.parse_object(content)
    newer = check_schema(data.pop("schema", SCHEMA), SCHEMA)
    if newer:
        raise ValueError(newer)
    known, unknown = reading.read_fields(data, _STUDY_KINDS, (*reading.needs_of(Study), "points"))
    return Study(**{**known, "points": tuple(map(_point, known["points"]))}, unknown=unknown)


def _point(fields: dict[str, Any]) -> StudyPoint:
    known, unknown = reading.read_fields(fields, _POINT_KINDS)
    return StudyPoint(**known, unknown=unknown)


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
        """Read a study's record."""
        folder = self._study(study_id)
        check_private(folder.path)
        try:
            study = study_from_json(reading.read_bytes(folder.record, _MOST))
            if study.study_id != study_id:  # a copied folder: actions on it would affect the original
                raise ValueError(f"it is the record of {study.study_id}")
            return study
        except FileNotFoundError:
            raise NotFoundError(f"there is no study {study_id!r}", hint="hpcrun scale run --list lists them") from None
        except (OSError, ValueError) as error:
            raise DamagedStudyError(
                f"{folder.record} cannot be read: {error}", hint="its runs are not affected: hpcrun status"
            ) from None

    def save(self, study: Study) -> None:
        """Write a study's record: if the process is killed, there is the complete old or new record."""
        folder = self._study(study.study_id)
        check_dedicated(self.runs)
        with writing(self.runs):
            make_folder(folder.path)
            check_private(self.runs)
            check_path(self.runs)
            replace_file(folder.record, study_to_json(study))

    @contextmanager
    def submitting(self, study_id: str) -> Iterator[None]:
        """Prevent other processes from submitting runs of this study meanwhile, if the file system has locks.

        Raises:
            PlanError: another process is submitting them.
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
        """Save the measurements of ended runs; on a full disk the runs are read again the next time."""
        with suppress(OSError):
            replace_file(self._study(study_id).measured, json.dumps(measured) + "\n", durable=False)
