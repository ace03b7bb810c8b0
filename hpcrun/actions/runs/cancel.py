"""cancel, hold and release: end runs, keep pending ones from starting, and release them."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from hpcrun.actions.note_action import note_action
from hpcrun.actions.ports import Ports
from hpcrun.actions.runs.allocation import unlisted_words
from hpcrun.actions.status.run_status import RunStatus, element_of, unconfirmed_text
from hpcrun.actions.status.status_query import get_status
from hpcrun.errors import HpcrunError, NotFoundError, SchedulerError
from hpcrun.files.writing import make_folder
from hpcrun.job.job_states import COMPLETING, PENDING
from hpcrun.job.run_paths import JobFolder, RunFolder
from hpcrun.machine.command_log import logged_to
from hpcrun.runs.elements import all_elements
from hpcrun.runs.record import Run
from hpcrun.runs.store import RunStore
from hpcrun.schedulers.protocol import JobRef, Verb

Named = tuple[str, int | None]
"""A run id, and the element of a sweep where only that is meant."""

_ENDING = frozenset({COMPLETING, "STAGE_OUT", "SIGNALING"})
LOOKS_AFTER_S = (0.0, 0.5, 1.0, 2.0)
"""The pause before each look at jobs that were cancelled, as long as one goes on.

Slurm changes the state of a job in the moment in which it accepts scancel, so one look is the rule.
"""

Seen = Literal["gone", "ending", "going on", "unknown"]
"""What the scheduler lists of a run after it was cancelled: no live job, one whose processes are
being terminated, one as before, or no answer.
"""


@dataclass(frozen=True, slots=True)
class CancelledRun:
    """A run that a scheduler was asked to cancel, and what the scheduler lists afterwards.

    ``item`` is the run with its newest status.
    """

    item: RunStatus
    seen: Seen


@dataclass(frozen=True, slots=True)
class Cancellation:
    """What became of the runs to cancel.

    Attributes:
        runs: those that a scheduler was asked to cancel.
        others: the rest: over, or not listed by a scheduler that can be queried from here.
    """

    runs: list[CancelledRun]
    others: list[RunStatus]

    def check(self) -> None:
        """Check that no run goes on, as far as is known.

        Raises:
            SchedulerError: a job is listed as before, or the scheduler did not respond afterwards.
            NotFoundError: the scheduler does not list at least one run that has not ended.
        """
        for run in self.runs:
            job = f"job {run.item.run.job_id}"
            if run.seen == "going on":
                raise SchedulerError(
                    f"{job} was not cancelled: Slurm still lists it as {run.item.status.state}",
                    hint=f"scancel --verbose {run.item.run.job_id} shows Slurm's answer",
                )
            if run.seen == "unknown":
                raise SchedulerError(
                    f"{job}: scancel was accepted, but Slurm has not said since what became of it",
                    hint=f"hpcrun status {run.item.run.job_id}",
                )
        check_listed(self.others)


# Only jobs that the scheduler has just listed for these runs are changed: another job may have the
# id by now.


def cancel_runs(runs: Sequence[RunStatus], ports: Ports) -> Cancellation:
    """Cancel runs and elements of sweeps, and look at what their schedulers list afterwards.

    Raises:
        SchedulerError: a run has no job id yet, or may have been requeued after its end, or the
            scheduler refuses.
    """
    changed = [item for item in runs if _can_change("cancel", item)]
    others = [item for item in runs if not _can_change("cancel", item)]
    _check_others(others)
    marks: list[Mark] = []
    note_action(ports, "cancel", [item.run for item in changed])
    for name, refs in _by_scheduler(changed):
        with _marked(refs) as new_marks:
            ports.schedulers(name).change("cancel", refs)
        marks += new_marks
    cancelled = _look_after(changed, ports)
    for each in cancelled:
        if each.seen == "going on":
            folder = _job_folder(each.item)
            _take_back([mark for mark in marks if mark.path.is_relative_to(folder)])
    return Cancellation(cancelled, others)


def _check_others(others: Sequence[RunStatus]) -> None:
    """Check that none of the runs that are not cancelled may have a job all the same.

    Raises:
        SchedulerError: a run has no job id yet, or may have been requeued after its end.
    """
    nameless = [item.run for item in _unlisted(others) if item.run.job_id is None]
    if nameless:
        raise SchedulerError(
            f"{nameless[0].run_id} has no job id yet: sbatch has not answered",
            hint="run hpcrun status until it has a job id",
        )
    unconfirmed = [item for item in others if item.unconfirmed]
    if unconfirmed:
        run = unconfirmed[0].run
        raise SchedulerError(
            f"{run.run_id}: {unconfirmed_text(unconfirmed[0])}; nothing was cancelled",
            hint=f"hpcrun status {run.run_id} on {run.place} asks again",
        )


def _look_after(items: Sequence[RunStatus], ports: Ports) -> list[CancelledRun]:
    """Return what the schedulers list of runs that were just cancelled."""
    cancelled = [CancelledRun(item, "unknown") for item in items]
    if not items:
        return cancelled
    named = [(item.run.run_id, item.element) for item in items]
    for pause_s in LOOKS_AFTER_S:
        time.sleep(pause_s)
        with suppress(SchedulerError):
            cancelled = [CancelledRun(item, _seen(item)) for item in named_statuses(named, ports)]
        if all(each.seen in ("gone", "ending") for each in cancelled):
            break
    return cancelled


def _seen(item: RunStatus) -> Seen:
    """Return what the scheduler's newest answer says of a run that was cancelled.

    Slurm changes the state of a job at once. A job on this machine has got its signal, and an
    element of a pack its mark: both may take some seconds to end.
    """
    if not item.live:
        return "gone"
    if item.run.scheduler != "slurm" or all_elements(item.run).packed:
        return "ending"
    if item.elements:
        statuses = [element.status for element in item.elements if element.live]
    else:
        statuses = [item.status]
    # a final state of a listed job is that of the script's own record: its processes still end
    if all(status.final or status.state in _ENDING for status in statuses):
        return "ending"
    return "going on"


def change_pending(
    verb: Verb, runs: Sequence[RunStatus], ports: Ports
) -> tuple[list[RunStatus], list[RunStatus]]:
    """Hold or release runs and elements of sweeps, each through its own scheduler.

    Returns:
        Those whose jobs the scheduler has accepted to change, and the others: over, not pending,
        or not listed by a scheduler that can be queried from here.
    """
    changed = [item for item in runs if _can_change(verb, item)]
    others = [item for item in runs if not _can_change(verb, item)]
    note_action(ports, verb, [item.run for item in changed])
    for name, refs in _by_scheduler(changed):
        ports.schedulers(name).change(verb, refs)
    return changed, others


def _can_change(verb: Verb, item: RunStatus) -> bool:
    """Return whether the scheduler lists a job that may be cancelled, or a pending one."""
    if not item.live or item.status.final:
        return False
    if verb == "cancel":
        return True
    if item.elements:
        statuses = [element.status for element in item.elements if element.live]
    else:
        statuses = [item.status]
    is_pending = any(status.state == PENDING for status in statuses)
    return is_pending and item.run.job_id is not None


def _unlisted(others: Sequence[RunStatus]) -> list[RunStatus]:
    return [item for item in others if not item.live and not item.status.final]


def check_listed(others: Sequence[RunStatus]) -> None:
    """Raise an error for runs of which nothing was cancelled, although they have not ended.

    Raises:
        NotFoundError: the scheduler does not list at least one run.
    """
    unlisted = _unlisted(others)
    if unlisted:
        lines = []
        for item in unlisted:
            why = unlisted_words(item)
            lines.append(f"{why}: nothing was cancelled (run {item.run.run_id})")
        raise NotFoundError("\n".join(lines), hint=f"hpcrun status {unlisted[0].run.run_id}")


@dataclass(frozen=True, slots=True)
class Mark:
    """The note in a run's folder that its job is cancelled.

    ``before_s`` is the time of an older note, of the same attempt or an earlier one, in seconds
    since the epoch; None if there was none.
    """

    path: Path
    before_s: float | None


@contextmanager
def _marked(refs: Sequence[JobRef]) -> Iterator[list[Mark]]:
    """Note in the folders of runs that their jobs are cancelled, and yield the notes.

    Raises:
        SchedulerError: the scheduler does not cancel the jobs; the notes are taken back.
    """
    folders = [JobFolder(ref.folder) for ref in refs]
    marks = []
    for folder in folders:
        # the record tells why the job ended after the scheduler has forgotten it
        before_s = None
        with suppress(OSError):
            before_s = folder.cancelled.stat().st_mtime
        marks.append(Mark(folder.cancelled, before_s))
        with suppress(OSError):
            make_folder(folder.path, 0o700)
            folder.cancelled.touch(0o600)
    try:
        with ExitStack() as stack:
            for run_folder in {folder.run for folder in folders}:
                stack.enter_context(logged_to(RunFolder(run_folder).journal, "cancel"))
            yield marks
    except SchedulerError:
        _take_back(marks)
        raise


def _take_back(marks: Sequence[Mark]) -> None:
    for mark in marks:
        with suppress(OSError):
            if mark.before_s is None:
                mark.path.unlink()
            else:
                os.utime(mark.path, (mark.before_s, mark.before_s))


def left_waiting(run_ids: Collection[str], store: RunStore) -> list[Run]:
    """Return the other runs that may start once these runs are cancelled.

    Slurm cancels the runs that wait for the completion of these runs, so the result does not have
    those.
    """
    waiting = []
    for run_id in store.active_ids():
        if run_id in run_ids:
            continue
        try:
            run = store.load(run_id)
        except HpcrunError:
            continue
        awaited = [after for after in run.after if after["run_id"] in run_ids]
        conditions = {after["condition"] for after in awaited}
        if conditions and "ok" not in conditions:
            waiting.append(run)
    return waiting


def named_statuses(named: Sequence[Named], ports: Ports) -> list[RunStatus]:
    """Return the status of what a person has named.

    A run has its own status; an element is shown as a run of its own.
    """
    result = get_status([run_id for run_id, _ in named], ports)
    if result.away:
        raise result.away
    by_id = {item.run.run_id: item for item in result.runs}
    statuses = []
    for run_id, index in dict.fromkeys(named):
        if run_id not in by_id:
            continue
        item = by_id[run_id]
        if index is not None:
            item = element_of(item, index)
        statuses.append(item)
    return statuses


def _job_folder(item: RunStatus) -> Path:
    """Return the folder of a run, or of the element that is meant."""
    if item.element is None:
        return item.folder
    return RunFolder(item.folder).element(item.element).path


def _elements_of_task(item: RunStatus) -> int:
    """Return how many elements share the task of an element of a pack; 0 of anything else."""
    elements = all_elements(item.run)
    if item.element is None or not elements.packed:
        return 0
    return list(elements.tasks.values()).count(elements.tasks[item.element])


def _by_scheduler(items: Sequence[RunStatus]) -> Iterator[tuple[str, list[JobRef]]]:
    """Yield the name of each scheduler with the jobs of the runs that it has."""
    refs: dict[str, list[JobRef]] = {}
    named = Counter(item.run.job_id for item in items)
    for item in items:
        shares = named[item.run.job_id] < _elements_of_task(item)
        ref = JobRef(_job_folder(item), item.run.job_id, shares=shares)
        refs.setdefault(item.run.scheduler, []).append(ref)
    yield from sorted(refs.items())
