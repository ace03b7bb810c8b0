"""Finding one element of a sweep: ``RUN/3``, or Slurm's ``123_3``."""

from __future__ import annotations

import re
from dataclasses import dataclass

from hpcrun.actions.runs.find import find_run
from hpcrun.errors import NotFoundError
from hpcrun.job.parameters import index_ranges
from hpcrun.runs.elements import elements_of
from hpcrun.runs.record import Run
from hpcrun.runs.store import RunStore

_ELEMENT = re.compile(r"(?P<run>.+)/(?P<index>\d{1,7})", re.ASCII)
_TASK = re.compile(r"(?P<run>L?\d+)_(?P<task>\d{1,7})", re.ASCII)


@dataclass(frozen=True, slots=True)
class FoundElement:
    """A run, one of its elements where one was named, and what to say besides."""

    run: Run
    element: int | None = None
    note: str | None = None


def find_element(word: str, store: RunStore) -> FoundElement:
    """Find a run, or an element of a sweep.

    Args:
        word: what :func:`find_run` takes; behind it ``/3`` or, behind a job id, ``_3`` names an element.

    Raises:
        NotFoundError: there is no such run or element.
        UsageError: several runs could be meant.
    """
    if match := _ELEMENT.fullmatch(word):
        found = find_run(match["run"], store)
        return FoundElement(found.run, _check(found.run, int(match["index"])), found.note)
    if match := _TASK.fullmatch(word):
        try:
            run = find_run(match["run"], store).run
        except NotFoundError:
            run = None
        if run and run.job_id == match["run"] and (elements := elements_of(run)):
            return FoundElement(run, _check(run, int(match["task"]) + elements.first))
    found = find_run(word, store)
    return FoundElement(found.run, None, found.note)


def _check(run: Run, index: int) -> int:
    elements = elements_of(run)
    if elements is None:
        raise NotFoundError(f"{run.run_id} is no sweep: it has no element {index}", hint=f"name it as {run.job_id}")
    if index not in elements.parameters:
        raise NotFoundError(
            f"{run.run_id} has no element {index}", hint=f"its elements are {index_ranges(elements.parameters)}"
        )
    return index
