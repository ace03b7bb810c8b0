"""cancel, hold and release: end runs, keep pending ones from starting, and release them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress

from hpcrun.actions.ports import Ports
from hpcrun.actions.runs.allocation import unlisted_words
from hpcrun.actions.status.run_status import RunStatus, element_of, unconfirmed_text
from hpcrun.actions.status.status_query import get_status
from hpcrun.errors import HpcrunError, NotFoundError, SchedulerError
from hpcrun.files.writing import make_folder
from hpcrun.job.job_states import PENDING
from hpcrun.job.run_paths import JobFolder, RunFolder
from hpcrun.machine.command_log import logged_to
from hpcrun.runs.elements import all_elements
from hpcrun.runs.record import Run
from hpcrun.runs.store import RunStore
from hpcrun.schedulers.protocol import JobRef, Verb

Named = tuple[str, int | None]
"""A run id, and the element of a sweep where only that is meant."""

# Only jobs that the scheduler has just listed for these runs are changed: another job may have the
# id by now.


def change_runs(
    verb: Verb, runs: Sequence[RunStatus], ports: Ports
) -> tuple[list[RunStatus], list[RunStatus]]:
    """Cancel, hold or release runs and elements of sweeps, each through its own scheduler.

    Returns:
        Those whose jobs the scheduler has accepted to change, and the others: over, not pending,
        or not listed by a scheduler that can be queried from here.

    Raises:
        SchedulerError: a run to cancel has no job id yet, or may have been requeued after its end,
            or the scheduler refuses.
    """
    changed = [item for item in runs if _can_change(verb, item)]
    others = [item for item in runs if not _can_change(verb, item)]
    if verb == "cancel":
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
    for name, refs in _by_scheduler(changed):
        scheduler = ports.schedulers(name)
        if verb == "cancel":
            with _marked(refs):
                scheduler.change(verb, refs)
        else:
            scheduler.change(verb, refs)
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


@contextmanager
def _marked(refs: Sequence[JobRef]) -> Iterator[None]:
    """Note in the folders of runs that their jobs are cancelled.

    Raises:
        SchedulerError: the scheduler does not cancel the jobs; the notes are removed.
    """
    folders = [JobFolder(ref.folder) for ref in refs]
    # the record tells why the job ended after the scheduler has forgotten it
    new_marks = [folder.cancelled for folder in folders if not folder.cancelled.exists()]
    for folder in folders:
        with suppress(OSError):
            make_folder(folder.path, 0o700)
            folder.cancelled.touch(0o600)  # an older mark is about an earlier attempt
    try:
        with ExitStack() as stack:
            for run_folder in {folder.run for folder in folders}:
                stack.enter_context(logged_to(RunFolder(run_folder).journal, "cancel"))
            yield
    except SchedulerError:
        for mark in new_marks:
            with suppress(OSError):
                mark.unlink()
        raise


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
        if item.element is None:
            folder = item.folder
        else:
            folder = RunFolder(item.folder).element(item.element).path
        shares = named[item.run.job_id] < _elements_of_task(item)
        ref = JobRef(folder, item.run.job_id, shares=shares)
        refs.setdefault(item.run.scheduler, []).append(ref)
    yield from sorted(refs.items())
