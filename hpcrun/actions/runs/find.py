"""Finding the run that a person means: a run id, a job id, a name, or ``last``; an element: ``RUN/3``, ``123_3``."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from hpcrun.errors import HpcrunError, NotFoundError, UsageError, nearest
from hpcrun.job.layout import JOB_ID, RUN_ID
from hpcrun.job.layout import run_name as run_name
from hpcrun.job.parameters import index_ranges
from hpcrun.job.units import format_age
from hpcrun.runs.elements import Elements, elements_of
from hpcrun.runs.record import Run
from hpcrun.runs.store import RunStore

LAST = "last"
_DATE = len("YYYYMMDD")
_ELEMENT = re.compile(r"(?P<run>.+)/(?P<index>\d{1,7})", re.ASCII)
_ANY_JOB = re.compile(r"\d{1,20}(_\d{1,7})?", re.ASCII)
_TASK = re.compile(r"(?P<run>L?\d+)_(?P<task>\d{1,7})", re.ASCII)


@dataclass(frozen=True, slots=True)
class FoundRun:
    """A run, and what to say where the word could have meant an older one too."""

    run: Run
    note: str | None = None


def find_run(word: str, store: RunStore) -> FoundRun:
    """Find one run.

    Args:
        word: a run id or the beginning of one, a job id or a name (the newest wins, said so), or ``last``.
    """
    try:
        return _find(word, store)
    except NotFoundError as error:
        if is_job_number(word):
            what = f"hpcrun explain {word} explains it, scancel {word} cancels it"
            error.job_id, error.if_listed = word, f"hpcrun did not submit this job: {what}"
        raise


def _find(word: str, store: RunStore) -> FoundRun:
    if not word.strip():
        raise UsageError("the name of the run is empty", hint="hpcrun status lists the runs; 'last' is the newest")
    ids = store.run_ids()
    if not ids:
        raise NotFoundError(f"there are no runs in {store.root}", hint="hpcrun submit creates one")
    if word == LAST:
        ids = [run_id for run_id in ids if RUN_ID.fullmatch(run_id)] or ids  # somebody's file may lie there too
        return FoundRun(_newest(ids, store))
    if word in ids:
        return FoundRun(store.load(word))
    found = _by_job_id(word, ids, store) if JOB_ID.fullmatch(word) else None
    if found:
        return found
    if is_job_number(word):
        # Every run id begins with its date: a shorter number is a job id, not the beginning of ids.
        ids = [run_id for run_id in ids if len(word) >= _DATE or _is_named(word, run_id)]
    named = [run_id for run_id in ids if run_name(run_id) == word]
    if len(named) > 1:
        newest = _newest(named, store).run_id
        ids = [*(run_id for run_id in ids if run_id != newest), newest]
    run_id, note = choose_id(word, ids, ("run", "runs"), "hpcrun status --all lists them")
    return FoundRun(store.load(run_id), note)


def _newest(ids: Sequence[str], store: RunStore) -> Run:
    """Return the newest of some runs; ids tell time in seconds, records more exactly."""
    second = ids[-1][:15]  # YYYYMMDD-HHMMSS
    return max((store.load(run_id) for run_id in ids if run_id.startswith(second)), key=lambda run: run.created_s)


def is_job_number(word: str) -> bool:
    """Return whether a word can be the number of a Slurm job, or of one of its elements, ``123_4``."""
    return _ANY_JOB.fullmatch(word) is not None


def _is_named(word: str, run_id: str) -> bool:
    return run_name(run_id) == word or run_id.endswith(f"-{word}")


def newest_line(run: Run) -> str:
    """Return the line that names the newest run, for a command that was given no RUN: ``last`` is its default."""
    job = f"job {run.job_id}" if run.job_id else run.run_id
    return f"the newest of all runs: {run.name}, {job}"


def choose_id(word: str, ids: Sequence[str], nouns: tuple[str, str], listing: str) -> tuple[str, str | None]:
    """Choose the id that a word means: a name (the newest wins, said so), the id's beginning, or its end.

    Args:
        ids: oldest first.
        nouns: what they are ids of, one and several.
        listing: a hint that says how all of them are listed.
    """
    noun, plural = nouns
    named = [item for item in ids if run_name(item) == word]
    if named:
        note = f"{word}: the newest of {len(named)} {plural} of that name, {named[-1]}" if len(named) > 1 else None
        return named[-1], note
    begun = [item for item in ids if item.startswith(word) or item.endswith(f"-{word}")]
    if len(begun) == 1:
        return begun[0], None
    if begun:
        listed = "\n".join(f"  {item}" for item in begun[-10:])
        raise UsageError(f"{word!r} matches {len(begun)} {plural}:\n{listed}", hint=f"write more of the {noun}'s id")
    close = nearest(word, sorted({run_name(item) for item in ids}))
    raise NotFoundError(f"there is no {noun} {word!r}", hint=f"did you mean {close!r}?" if close else listing)


def _by_job_id(word: str, ids: Sequence[str], store: RunStore) -> FoundRun | None:
    """Find the run of a job: first where the index says, and in the runs that it does not know, then in all."""
    noted = store.noted_jobs()
    likely = {run_id for run_id in ids if run_id not in noted or word in noted[run_id]}
    found = _with_job(word, likely, store, noted) or _with_job(word, set(ids) - likely, store, noted)
    found.sort(key=lambda run: run.created_s, reverse=True)
    if len({run.cluster or run.host for run in found}) > 1:
        lines = "\n".join(f"  {_choice(run, store)}" for run in found)
        raise UsageError(f"job id {word} belongs to {len(found)} runs:\n{lines}", hint="name the run by its id")
    if not found:
        return None
    # where one cluster has used an id again, its older jobs are over
    note = f"{word}: the newest of {len(found)} runs of that job id, {found[0].run_id}" if len(found) > 1 else None
    return FoundRun(found[0], note)


def _choice(run: Run, store: RunStore) -> str:
    last = store.last_status(run.run_id)
    state = last.state if last else "not polled yet"
    made = format_age(time.time() - run.created_s)
    return f"{run.run_id}  {run.name}  {state}, {made} ({run.cluster or run.host})"


def _with_job(word: str, ids: Collection[str], store: RunStore, noted: Mapping[str, frozenset[str]]) -> list[Run]:
    """Return the runs whose own record has a job id, and note in the index what was read."""
    found = []
    for run_id in ids:
        try:
            run = store.load(run_id)
        except HpcrunError:  # damaged, or no run at all
            continue
        if run.job_id not in noted.get(run_id, ()):
            store.note_job(run)
        if run.job_id == word:
            found.append(run)
    return found


@dataclass(frozen=True, slots=True)
class FoundElement:
    """A run, one of its elements where one was named, and what to say besides."""

    run: Run
    element: int | None = None
    note: str | None = None


def find_element(
    word: str, store: RunStore, elements_in: Callable[[Run, Path], Elements | None] | None = None
) -> FoundElement:
    """Find a run, or an element of a sweep.

    Args:
        word: what :func:`find_run` takes; behind it ``/3`` or, behind a job id, ``_3`` names an element.
        elements_in: a run and its folder → its elements, for a command that knows arrays that are no sweeps too.

    Raises:
        NotFoundError: there is no such run or element.
        UsageError: several runs could be meant.
    """

    def elements(run: Run) -> Elements | None:
        return elements_in(run, store.folder(run.run_id)) if elements_in else elements_of(run)

    if match := _ELEMENT.fullmatch(word):
        found = find_run(match["run"], store)
        return FoundElement(found.run, _checked_index(found.run, elements(found.run), int(match["index"])), found.note)
    if match := _TASK.fullmatch(word):
        try:
            run = find_run(match["run"], store).run
        except NotFoundError:
            run = None
        if run and run.job_id == match["run"] and (there := elements(run)):
            return FoundElement(run, _checked_index(run, there, int(match["task"]) + there.first))
    found = find_run(word, store)
    return FoundElement(found.run, None, found.note)


def _checked_index(run: Run, elements: Elements | None, index: int) -> int:
    if elements is None:
        raise NotFoundError(f"{run.run_id} is no sweep: it has no element {index}", hint=f"name it as {run.job_id}")
    if index not in elements.parameters:
        raise NotFoundError(
            f"{run.run_id} has no element {index}", hint=f"its elements are {index_ranges(elements.parameters)}"
        )
    return index
