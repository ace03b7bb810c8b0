"""The elements of a run that is a sweep: their parameters, their job ids, and the last known status of each."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hpcrun.job.layout import RunFolder
from hpcrun.job.parameters import Parameters, parse_indices
from hpcrun.reading import read_object
from hpcrun.runs.record import MOST_RUN, LastStatus, Run, read_status, status_record
from hpcrun.runs.write import replace_file

_INDEX = re.compile(r"0|[1-9]\d{0,6}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Elements:
    """The elements of a sweep.

    Attributes:
        parameters: number of an element → its parameters.
        first: the element that is task 0 of the Slurm array; not 0 in a sweep that needs several arrays.
    """

    parameters: Mapping[int, Parameters]
    first: int = 0

    def job_id(self, run: Run, index: int) -> str | None:
        """Return the job id of an element in Slurm's form: ``123_4``."""
        return None if run.job_id is None else f"{run.job_id}_{index - self.first}"

    def batch_log(self, folder: Path, index: int) -> Path:
        """Return the log of an element's batch script."""
        return RunFolder(folder).task_log(index - self.first)


def elements_of(run: Run) -> Elements | None:
    """Return the elements of a run, None if it is not a sweep."""
    sweep = run.plan.get("sweep")
    if not sweep:
        return None
    rows = run.request["sweep"]
    chosen = parse_indices(sweep["indices"])
    return Elements({index: tuple((name, text) for name, text in rows[index]) for index in chosen}, sweep["first"])


def batch_log(run_folder: Path, run: Run, index: int) -> Path:
    """Return the log of the batch script: of an element of a sweep, or of the run."""
    elements = elements_of(run)
    return elements.batch_log(run_folder, index) if elements else RunFolder(run_folder).batch_log


def load_statuses(run_folder: Path) -> dict[int, LastStatus]:
    """Return the last known status of each element whose record can be read."""
    return _statuses(_load(run_folder))


def _load(run_folder: Path) -> dict[str, Any]:
    try:
        return read_object(RunFolder(run_folder).element_statuses, MOST_RUN)
    except (OSError, ValueError):
        return {}


def _statuses(data: Mapping[str, Any]) -> dict[int, LastStatus]:
    found = {}
    for index, said in data.items():
        if _INDEX.fullmatch(index) and isinstance(said, dict):
            with suppress(ValueError):
                found[int(index)] = read_status(said, needed=())
    return found


def save_statuses(run_folder: Path, statuses: Mapping[int, LastStatus]) -> None:
    """Save the status of each element, in one file: a thousand small files would be slow to write and to read.

    Fields of another version of hpcrun stay.
    """
    unsaid, before = status_record(LastStatus("", 0.0)), _load(run_folder)
    known = _statuses(before)
    said: dict[str, Any] = {name: value for name, value in before.items() if _INDEX.fullmatch(name) is None}
    for index, status in statuses.items():
        last = known.get(index)
        changed = {name: value for name, value in status_record(status).items() if value != unsaid[name]}
        said[str(index)] = {**changed, **(last.unknown if last else {}), **status.unknown}
    with suppress(OSError):  # only a copy, like status.json
        replace_file(RunFolder(run_folder).element_statuses, json.dumps(said) + "\n", durable=False)
