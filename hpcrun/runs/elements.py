"""The elements of a run: their parameters, job ids, folders and records.

For a sweep, also what was last known of each element.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hpcrun.files.reading import read_object
from hpcrun.files.writing import replace_file
from hpcrun.job.request.parameters import Parameters, parse_indices, tasks_of, with_parameters
from hpcrun.job.run_paths import JobFolder, RunFolder
from hpcrun.runs.attempt import Attempt, attempts, names_in
from hpcrun.runs.record import MOST_RUN, LastStatus, Run, known_fields, read_status

_INDEX = re.compile(r"0|[1-9]\d{0,6}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Elements:
    """The elements of a run.

    Each is a job of its own: a task of an array, or the run's only job.
    """

    parameters: Mapping[int, Parameters]  # number of an element → its parameters
    # number of an element → the task of the array that runs it
    tasks: Mapping[int, int] = field(default_factory=dict)
    are_array: bool = True  # they are tasks of an array
    packed: bool = False  # each task runs several of them

    def job_id(self, run: Run, index: int) -> str | None:
        """Return the job id of an element.

        The id is ``123``, or ``123_4`` as Slurm writes a task of an array.
        """
        if run.job_id and self.are_array:
            return f"{run.job_id}_{self.tasks[index]}"
        return run.job_id

    def job_folder(self, folder: Path, index: int) -> JobFolder:
        """Return the folder by which schedulers know an element's job.

        The folder is the run's own where the job is the only job.
        """
        if self.are_array:
            return RunFolder(folder).element(index)
        return RunFolder(folder)

    def batch_log(self, folder: Path, index: int) -> Path:
        """Return the log of an element's batch script."""
        if self.are_array:
            return RunFolder(folder).task_log(self.tasks[index])
        return RunFolder(folder).batch_log


_ONLY_ONE = Elements({0: ()}, are_array=False)


class _ChosenRows(Mapping[int, Parameters]):
    """The parameters of the chosen elements, made from the rows of a request when they are needed.

    A table of runs needs only the number of elements, of which there may be thousands.
    """

    def __init__(self, chosen: Iterable[int], rows: Any) -> None:
        self._chosen = dict.fromkeys(chosen)
        self._rows = rows

    def __getitem__(self, index: int) -> Parameters:
        if index not in self._chosen:
            raise KeyError(index)
        return tuple((name, text) for name, text in self._rows[index])

    def __iter__(self) -> Iterator[int]:
        return iter(self._chosen)

    def __len__(self) -> int:
        return len(self._chosen)


def all_elements(run: Run) -> Elements:
    """Return the elements of a run; a run that is not a sweep has only element 0."""
    return elements_of(run) or _ONLY_ONE


def elements_of(run: Run) -> Elements | None:
    """Return the elements of an array; None of a single job.

    Calls of Python functions have no parameters.
    """
    sweep = run.plan.get("sweep")
    if not sweep:
        return None
    chosen = parse_indices(sweep["indices"])
    rows = run.request.get("sweep")
    parameters = _ChosenRows(chosen, rows or dict.fromkeys(chosen, ()))
    pack = sweep.get("pack")
    return Elements(parameters, tasks_of(chosen, sweep["first"], pack), packed=pack is not None)


def request_of(run: Run, element: int | None) -> Mapping[str, Any]:
    """Return the recorded request of a run; that of an element has the arguments of the element."""
    if element is None:
        return run.request
    parameters = dict(all_elements(run).parameters.get(element, ()))
    if not parameters:
        return run.request
    words = run.request.get("args", ())
    with suppress(ValueError):  # the arguments name a parameter that the record lacks
        words = with_parameters(words, parameters, element, ValueError)
    return {**run.request, "args": words}


@dataclass(frozen=True, slots=True)
class ElementRecords:
    """What the run's folder says of an element."""

    newest: Sequence[Attempt] = ()  # its attempts, the newest first
    # ``hpcrun cancel`` was called for it or for the whole run, since its newest attempt began
    cancelled: bool = False

    @property
    def attempt(self) -> Attempt | None:
        """The newest attempt, None where none has started."""
        return self.newest[0] if self.newest else None

    @property
    def ended(self) -> bool:
        """Whether the script has said how its job ended, once and for all.

        A script that got a signal does not know from whom: its job is over for certain only if it
        was cancelled.
        """
        end = self.attempt.exit if self.attempt else None
        if end is None or end.again:
            return False
        return self.cancelled or not end.signal


def records_of(run_folder: Path, index: int = 0) -> ElementRecords:
    """Return what a run's folder says of one element."""
    folder = RunFolder(run_folder)
    return _records(folder, index, _changed_s(folder.cancelled))


def all_records(run_folder: Path, indices: Iterable[int]) -> dict[int, ElementRecords]:
    """Return what a run's folder says of elements.

    Elements without a folder of their own cost nothing.
    """
    folder = RunFolder(run_folder)
    there = set(names_in(folder.elements))
    marked_s = _changed_s(folder.cancelled)
    untouched = ElementRecords((), marked_s > 0)
    records = {}
    for index in indices:
        if str(index) in there:
            records[index] = _records(folder, index, marked_s)
        else:
            records[index] = untouched
    return records


def _records(folder: RunFolder, index: int, marked_s: float) -> ElementRecords:
    """Return the records of an element of a run whose mark of ``cancel`` has this time.

    A mark that is older than the newest attempt is about an attempt before, after whose end Slurm
    has requeued the job. Both times are those of the file system, which has one clock.
    """
    newest = tuple(attempts(folder.path, index))
    marked_s = max(marked_s, _changed_s(folder.element(index).cancelled))
    if not marked_s:
        return ElementRecords(newest)
    begun_s = _changed_s(newest[0].folder.start) if newest else 0.0
    return ElementRecords(newest, marked_s >= begun_s)


def _changed_s(path: Path) -> float:
    """Return when a file was written, in seconds since the epoch; 0 if it does not exist."""
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


def load_statuses(run_folder: Path) -> dict[int, LastStatus]:
    """Return the last known status of each element whose record can be read."""
    try:
        data = read_object(RunFolder(run_folder).element_statuses, MOST_RUN)
    except (OSError, ValueError):
        return {}
    statuses = {}
    for index, fields in data.items():
        if _INDEX.fullmatch(index) and isinstance(fields, dict):
            with suppress(ValueError):
                statuses[int(index)] = read_status(fields, needed=())
    return statuses


def save_statuses(run_folder: Path, statuses: Mapping[int, LastStatus]) -> None:
    """Save the status of each element, in one file.

    A thousand small files would be slow to write and to read.
    """
    defaults = known_fields(LastStatus("", 0.0))
    records: dict[int, dict[str, Any]] = {}
    for index, status in statuses.items():
        fields = known_fields(status)
        records[index] = {name: fields[name] for name in fields if fields[name] != defaults[name]}
    path = RunFolder(run_folder).element_statuses
    with suppress(OSError):  # only a copy, like status.json
        replace_file(path, json.dumps(records) + "\n", durable=False)
