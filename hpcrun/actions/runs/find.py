"""Finding the run that the user names: a run id, a job id, a name, or ``last``.

An element is ``RUN/3`` or ``123_3``.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from hpcrun.actions.status.run_status import RunStatus
from hpcrun.errors import HpcrunError, NotFoundError, UsageError, did_you_mean
from hpcrun.job.run_paths import JOB_ID, RUN_ID, RunsFolder, run_name
from hpcrun.job.text.quoting import job_name_from
from hpcrun.job.text.units import index_ranges
from hpcrun.runs.attempt import names_in
from hpcrun.runs.elements import Elements, elements_of
from hpcrun.runs.record import Run
from hpcrun.runs.store import RunStore

LAST = "last"
_DATE = len("YYYYMMDD")
_ELEMENT = re.compile(r"(?P<run>.+)/(?P<index>\d{1,7})", re.ASCII)
_ANY_JOB = re.compile(r"\d{1,20}(_\d{1,7})?", re.ASCII)  # a Slurm job, or one of its elements
_TASK = re.compile(r"(?P<run>L?\d+)_(?P<task>\d{1,7})", re.ASCII)


@dataclass(frozen=True, slots=True)
class FoundRun:
    """A run, its element if one was named, and a note if the label could also mean another run."""

    run: Run
    element: int | None = None
    note: str | None = None
    # the ids of all runs that the label could mean, oldest first; empty if it means only this one
    matches: tuple[str, ...] = ()

    @property
    def named(self) -> tuple[str, int | None]:
        """Its id, and the number of the element."""
        return self.run.run_id, self.element


def find_run(label: str, store: RunStore) -> FoundRun:
    """Return the run that a label names: by run id, job id, name, or ``last``.

    The label may be the beginning of a run id. Of the runs with a name, the newest wins, with a
    note.

    Raises:
        NotFoundError: there is no such run; the message has the nearest name.
        UsageError: several runs match; the message lists them.
    """
    try:
        return _find(label, store)
    except NotFoundError as error:
        if _ANY_JOB.fullmatch(label):
            what = f"hpcrun explain {label} explains it, scancel {label} cancels it"
            error.job_id = label
            error.if_listed = f"hpcrun did not submit this job: {what}"
            of_name = job_name_from(label)
            if of_name in map(run_name, store.run_ids()):
                error.hint = f"did you mean {of_name}?"
        raise


def find_element(label: str, store: RunStore) -> FoundRun:
    """Return the run that a label names, as :func:`find_run` does, or an element of an array.

    An element is ``RUN/3``, or ``_3`` behind a job id.
    """
    match = _ELEMENT.fullmatch(label)
    if match:
        named = find_run(match["run"], store)
        index = _checked_index(named.run, elements_of(named.run), int(match["index"]))
        return replace(named, element=index)
    match = _TASK.fullmatch(label)
    if match:
        try:
            run = find_run(match["run"], store).run
        except NotFoundError:
            return find_run(label, store)
        elements = elements_of(run)
        if elements and run.job_id == match["run"]:
            return FoundRun(run, _element_of_task(run, elements, int(match["task"])))
    return find_run(label, store)


def named_elements(named: Iterable[FoundRun | RunStatus]) -> dict[str, set[int] | None]:
    """Return the named elements of each run, by run id; None where a run itself is named."""
    chosen: dict[str, set[int] | None] = {}
    for item in named:
        indices = chosen.setdefault(item.run.run_id, set())
        if item.element is None:
            chosen[item.run.run_id] = None
        elif indices is not None:
            indices.add(item.element)
    return chosen


def _element_of_task(run: Run, elements: Elements, task: int) -> int:
    indices = [index for index, number in elements.tasks.items() if number == task]
    if not indices:
        raise NotFoundError(
            f"{run.run_id} has no element in task {task}",
            hint=f"its elements are {index_ranges(elements.parameters)}",
        )
    if len(indices) > 1:
        raise UsageError(
            f"task {run.job_id}_{task} runs the elements {index_ranges(indices)}",
            hint=f"name one: {run.job_id}/{indices[0]}; scancel {run.job_id}_{task} cancels the "
            "task",
        )
    return indices[0]


def _checked_index(run: Run, elements: Elements | None, index: int) -> int:
    if elements is None:
        raise NotFoundError(
            f"{run.run_id} is no array: it has no element {index}", hint=f"name it as {run.job_id}"
        )
    if index not in elements.parameters:
        raise NotFoundError(
            f"{run.run_id} has no element {index}",
            hint=f"its elements are {index_ranges(elements.parameters)}",
        )
    return index


def _find(label: str, store: RunStore) -> FoundRun:
    check_not_empty(label, "run", "hpcrun status lists the runs; 'last' is the newest")
    ids = store.run_ids()
    if not ids:
        raise NotFoundError(f"there are no runs in {store.root}", hint="hpcrun submit creates one")
    if label == LAST:
        # users may have put other files there
        ids = [run_id for run_id in ids if RUN_ID.fullmatch(run_id)] or ids
        return FoundRun(_newest(ids, store))
    if label in ids:
        return FoundRun(store.load(label))
    if JOB_ID.fullmatch(label):
        by_job = _by_job_id(label, ids, store)
        if by_job:
            return by_job
    return _by_name(label, ids, store)


def _of_given_name(label: str, ids: Sequence[str], store: RunStore) -> list[str]:
    """Return the runs whose jobs were given this name, which their folders cannot have."""
    of_run = job_name_from(label)
    named = []
    for run_id in ids:
        if run_name(run_id) == of_run:
            run = store.load(run_id)
            directives = dict(run.plan.get("directives", ()))
            if label in (directives.get("job-name"), run.request.get("name")):
                named.append(run_id)
    return named


def _by_name(label: str, ids: Sequence[str], store: RunStore) -> FoundRun:
    """Return the run with a name, or whose id begins or ends with the label.

    Raises:
        NotFoundError: there is no such run, but possibly a study of this name.
        UsageError: several runs match.
    """
    named = [run_id for run_id in ids if run_name(run_id) == label]
    if not named and not _ANY_JOB.fullmatch(label):
        named = _of_given_name(label, ids, store)
        label = run_name(named[0]) if named else label
    if not named and label in map(run_name, names_in(RunsFolder(store.root).studies)):
        raise NotFoundError(
            f"no run is named {label!r}, but a scaling study",
            hint=f"hpcrun scale run --show {label}",
        )
    matching = _candidates(label, named, ids)
    matches: tuple[str, ...] = ()
    if len(named) > 1:
        newest = _newest(named, store).run_id
        matching.remove(newest)
        matching.append(newest)
        matches = tuple(run_id for run_id in matching if run_id in named)
    run_id, note = choose_id(label, matching, ("run", "runs"), "hpcrun status --all lists them")
    return FoundRun(store.load(run_id), note=note, matches=matches)


def _candidates(label: str, named: Sequence[str], ids: Sequence[str]) -> list[str]:
    """Return the ids of which a label may be the name, the beginning or the end."""
    if not _ANY_JOB.fullmatch(label) or len(label) >= _DATE:
        return list(ids)
    # Every run id begins with its date: a shorter number is a job id, not the beginning of ids.
    end = f"-{label}"
    return [run_id for run_id in ids if run_id in named or run_id.endswith(end)]


def _newest(ids: Sequence[str], store: RunStore) -> Run:
    """Return the newest of some runs; ids tell time in seconds, records more exactly."""
    second = ids[-1][:15]  # YYYYMMDD-HHMMSS
    runs = [store.load(run_id) for run_id in ids if run_id.startswith(second)]
    return max(runs, key=lambda run: run.created_s)


def is_last(label: str) -> bool:
    """Return whether a label means the newest run, or an element of it."""
    return label.partition("/")[0] == LAST


def newest_line(run: Run) -> str:
    """Return the line that names the newest run.

    The line is for a command that was given no RUN: ``last`` is its default.
    """
    job = f"job {run.job_id}" if run.job_id else run.run_id
    return f"the newest of all runs: {run.name}, {job}"


def check_not_empty(label: str, noun: str, listing: str) -> None:
    """Check that a label is not empty, as a script's is whose variable is not set.

    Raises:
        UsageError: it is empty.
    """
    if not label.strip():
        raise UsageError(f"the name of the {noun} is empty", hint=listing)


def choose_id(
    label: str, ids: Sequence[str], nouns: tuple[str, str], listing: str
) -> tuple[str, str | None]:
    """Return the id that a label means.

    The label is a name (the newest wins, with a note), the id's beginning, or its end.

    Args:
        label: what the user typed.
        ids: oldest first.
        nouns: the word for one of them, and for several.
        listing: a hint with the command that lists all of them.

    Raises:
        UsageError: several ids match.
        NotFoundError: no id matches.
    """
    noun, plural = nouns
    named = [item for item in ids if run_name(item) == label]
    if len(named) == 1:
        return named[0], None
    if named:
        note = f"{label}: the newest of {len(named)} {plural} of that name, {named[-1]}"
        return named[-1], note
    begun = [item for item in ids if item.startswith(label) or item.endswith(f"-{label}")]
    if len(begun) == 1:
        return begun[0], None
    if begun:
        listed = "\n".join(f"  {item}" for item in begun[-10:])
        raise UsageError(
            f"{label!r} matches {len(begun)} {plural}:\n{listed}",
            hint=f"write more of the {noun}'s id",
        )
    hint = did_you_mean(label, sorted({run_name(item) for item in ids}), listing)
    raise NotFoundError(f"there is no {noun} {label!r}", hint=hint)


def _by_job_id(job_id: str, ids: Sequence[str], store: RunStore) -> FoundRun | None:
    """Return the run of a job, found by the job's id.

    The search begins where the index says and in the runs that the index does not know, then goes
    through all runs.

    Raises:
        UsageError: runs of several clusters or hosts have this job id.
    """
    noted = store.noted_jobs()
    likely = {run_id for run_id in ids if run_id not in noted or job_id in noted[run_id]}
    matches = _with_job(job_id, likely, noted, store)
    if not matches:
        matches = _with_job(job_id, set(ids) - likely, noted, store)
    if not matches:
        return None
    matches.sort(key=lambda run: run.created_s, reverse=True)
    places = [run.cluster or run.host for run in matches]
    if len(set(places)) > 1:
        lines = [f"  {run.run_id}  {place}" for run, place in zip(matches, places, strict=True)]
        raise UsageError(
            f"job id {job_id} belongs to {len(matches)} runs:\n" + "\n".join(lines),
            hint="name the run by its id",
        )
    # where one cluster has used an id again, its older jobs are over
    newest = matches[0]
    if len(matches) == 1:
        return FoundRun(newest)
    note = f"{job_id}: the newest of {len(matches)} runs of that job id, {newest.run_id}"
    oldest_first = tuple(run.run_id for run in reversed(matches))
    return FoundRun(newest, note=note, matches=oldest_first)


def _with_job(
    job_id: str, ids: Collection[str], noted: Mapping[str, Collection[str]], store: RunStore
) -> list[Run]:
    """Return the runs that have a job, and note the jobs of those that the index does not know."""
    matches = []
    for run_id in ids:
        try:
            run = store.load(run_id)
        except HpcrunError:  # damaged, or no run at all
            continue
        if run.job_id not in noted.get(run_id, ()):
            store.note_job(run)
        if run.job_id == job_id:
            matches.append(run)
    return matches
