"""status: the state of each run, from one query to the scheduler, else from the run's folder.

The state is never a guess.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import overload

from hpcrun.actions.ports import Ports
from hpcrun.actions.status.decide_status import decide_status, is_lost, keep_since, with_attempts
from hpcrun.actions.status.known_run import Answers, KnownRun, is_settled, known_run
from hpcrun.actions.status.run_status import (
    ElementStatus,
    RunStatus,
    StatusResult,
    combine,
    limit_reason,
    never_started,
    waits_of,
)
from hpcrun.errors import HpcrunError, NotFoundError, SchedulerError
from hpcrun.files.reading import read_text
from hpcrun.job import job_states as state
from hpcrun.job.job_states import JobInfo, is_live
from hpcrun.job.run_paths import RunFolder, run_name
from hpcrun.runs.attempt import (
    NODE_FAILURE,
    Attempt,
    chain_stop,
    dead_nodes,
    has_started,
    last_attempt,
    last_attempts,
    with_granted_nodes,
)
from hpcrun.runs.elements import (
    ElementRecords,
    load_statuses,
    save_statuses,
)
from hpcrun.runs.failed_nodes import FailedNode
from hpcrun.runs.record import LastStatus, Run
from hpcrun.runs.store import DamagedRunError, NewerRunError, RunStore, UnsafeRunError
from hpcrun.schedulers.protocol import JobRef, Scheduler
from hpcrun.schedulers.submit_claim import Sending, settle_submission

NEWEST = 10
"""How many runs are shown where none is named, besides those that are not over."""


def chosen_ids(store: RunStore, *, everything: bool) -> list[str]:
    """Return the runs to show if none is named: the active ones and the newest, or all."""
    ids = store.run_ids()
    if everything:
        return ids
    active = set(store.active_ids())
    older = (run_id for run_id in ids[:-NEWEST] if run_id in active)
    return [*older, *ids[-NEWEST:]]


def active_ids(store: RunStore) -> list[str]:
    """Return the runs that have not ended, oldest first; a marker without a run is ignored."""
    active = set(store.active_ids())
    return [run_id for run_id in store.run_ids() if run_id in active]


def get_status(run_ids: Sequence[str], ports: Ports) -> StatusResult:
    """Return the status of runs, with one query to each scheduler for any number of them.

    What is new is written into the folders of the runs. Runs of another cluster or host are not
    queried, since their job ids mean nothing here; nor are those of a store that is only read. The
    result is passed to ``ports.on_status``.
    """
    store, now_s = ports.store, ports.now_s()
    if store.is_read_only:
        return last_known(run_ids, store=store, now_s=now_s)
    runs, damaged = _load(run_ids, store)
    # one query also includes the runs for which these may wait
    others, _ = _load(_awaited_ids(runs, store), store)
    items: dict[str, RunStatus] = {}
    away: SchedulerError | None = None
    for name in sorted({run.scheduler for run in runs}):
        mine = [run for run in (*runs, *others) if run.scheduler == name]
        known = [known_run(run, store) for run in mine]
        scheduler = ports.schedulers(name)
        polled, error = _poll(scheduler, known, ports, now_s)
        items |= _with_limits(polled, scheduler)
        away = away or error
    # ids tell time in seconds; two runs of one second are in the order in which they were made
    runs.sort(key=lambda run: run.created_s)
    shown = [items[run.run_id] for run in runs]
    ports.on_status(shown, store.root, now_s)
    with_waits = tuple(_with_waits(item, items, store) for item in shown)
    return StatusResult(with_waits, away, tuple(damaged))


def _awaited_ids(runs: Sequence[Run], store: RunStore) -> list[str]:
    """Return the other runs for which the active ones of these runs may wait."""
    waiting = [run for run in runs if run.after]
    if not waiting:
        return []
    active = set(store.active_ids())
    awaited: set[str] = set()
    for run in waiting:
        if run.run_id in active:
            awaited.update(after["run_id"] for after in run.after)
    return sorted(awaited - {run.run_id for run in runs})


def one_status(run_id: str, ports: Ports) -> StatusResult:
    """Return the status of one run.

    Raises:
        NotFoundError: the folder of the run is gone.
    """
    result = get_status([run_id], ports)
    check_there([run_id], result, ports.store)
    return result


def check_there(run_ids: Sequence[str], result: StatusResult, store: RunStore) -> None:
    """Check that a result has all runs that were asked for.

    Raises:
        NotFoundError: the folder of a run is gone.
    """
    known = {item.run.run_id for item in result.runs}
    for run_id in run_ids:
        if run_id not in known:
            store.load(run_id)  # says why
            raise NotFoundError(
                f"the folder of {run_id} is gone",
                hint="hpcrun status --all lists the runs there are",
            )


def _with_waits(item: RunStatus, items: Mapping[str, RunStatus], store: RunStore) -> RunStatus:
    """Return a run with the runs for which it waits; save that it can no longer start."""

    def status_of(run_id: str) -> LastStatus | None:
        awaited = items.get(run_id)
        if awaited is None:
            return store.last_status(run_id)
        return replace(awaited.status, forgotten=is_settled(awaited.run, awaited.status))

    if not item.run.after or has_started(item.folder):
        return item
    if item.run.chain and item.status.state == state.CANCELLED:
        why = chain_stop(item.folder, item.run.job_id)
        if why:
            return replace(item, status=replace(item.status, reason=f"because {why}"))
    waits = waits_of(item.run, item.status, status_of)
    status = never_started(item.status, waits)
    if status is item.status:
        return replace(item, waits=waits)
    elements = []
    for element in item.elements:
        element_status = never_started(element.status, waits)
        elements.append(replace(element, status=element_status))
    item = replace(item, status=status, elements=tuple(elements), waits=waits)
    _save(item, store)
    return item


def last_known(run_ids: Sequence[str], *, store: RunStore, now_s: float) -> StatusResult:
    """Return the last known status of runs from their folders; no scheduler is queried."""
    runs, damaged = _load(run_ids, store)
    items = []
    for run in sorted(runs, key=lambda run: run.created_s):
        known = known_run(run, store)
        records = None if known.is_over else known.records()
        items.append(run_status(known, now_s, records))
    return StatusResult(tuple(items), damaged=tuple(damaged))


def _load(run_ids: Sequence[str], store: RunStore) -> tuple[list[Run], list[str]]:
    runs = []
    damaged = []
    for run_id in dict.fromkeys(run_ids):
        try:
            runs.append(store.load(run_id))
        except DamagedRunError as error:
            damaged.append(damage_words(run_id, error, store))
        except HpcrunError:
            continue  # removed since it was listed
    return runs, damaged


def damage_words(run_id: str, error: DamagedRunError, store: RunStore) -> str:
    """Return the problem of a damaged run, and what can still be read of the run.

    The state comes from the records of the run's script, and from the last known status.
    """
    if isinstance(error, UnsafeRunError):
        return error.message
    folder = store.folder(run_id)
    attempt = last_attempt(folder)
    last = store.last_status(run_id)
    job_ids = sorted(store.noted_jobs().get(run_id, ()))
    if not job_ids and attempt:
        job_ids = [attempt.job_id]
    known = [f"run {run_name(run_id)}"]
    known += [f"job {job_id}" for job_id in job_ids]
    if last:
        known.append(f"last known {last.state}")
    if attempt and attempt.exit:
        known.append(f"exit status {attempt.exit.status}")
    if isinstance(error, NewerRunError):
        how = "needs a newer hpcrun"
    else:
        how = "is damaged"
    return (
        f"{run_id} {how}: {error.message}; what can be read: {', '.join(known)}; its logs are "
        f"in {folder}"
    )


# --- one query about all runs, and one decision for each element ---------------------------------


class EndedElements(Sequence[ElementStatus]):
    """The elements of a sweep that is over, read from the folder of the run when one is needed.

    A table of runs needs only their number. Of an element without a saved end, the records of its
    script decide; without a record, its end is unknown.
    """

    def __init__(self, known: KnownRun, now_s: float) -> None:
        self._known = known
        self._now_s = now_s

    def __len__(self) -> int:
        return len(self._known.elements.parameters)

    @overload
    def __getitem__(self, place: int) -> ElementStatus: ...

    @overload
    def __getitem__(self, place: slice) -> Sequence[ElementStatus]: ...

    def __getitem__(self, place: int | slice) -> ElementStatus | Sequence[ElementStatus]:
        return self._statuses[place]

    @cached_property
    def _statuses(self) -> tuple[ElementStatus, ...]:
        saved = self._known.last_of_elements or load_statuses(self._known.folder)
        ended = {index: status for index, status in saved.items() if status.final}
        known = replace(self._known, last_of_elements=ended)
        records = {}
        for index, record in known.records().items():
            if record.ended or record.cancelled:
                records[index] = record
        return tuple(_judge_elements(known, records, {}, self._now_s))


def _belongs_here(run: Run, cluster: str | None, host: str) -> bool:
    """Whether a run belongs to this cluster or host, so that its job ids are valid here."""
    if run.scheduler == "local":
        return run.host == host
    return cluster is None or run.cluster in (None, cluster)


@dataclass(frozen=True, slots=True)
class _Poll:
    """What one query to a scheduler says."""

    runs: list[KnownRun]  # of this host and cluster, with the job ids that were learned
    answers: Answers | None = None  # None if the scheduler did not respond
    away: SchedulerError | None = None  # why it did not


def _ask(
    scheduler: Scheduler, runs: Sequence[KnownRun], store: RunStore, host: str, now_s: float
) -> _Poll:
    """Query a scheduler once about all open elements of all runs of this cluster and host.

    Only a sweep whose job id is new in the answer needs a second query, about its elements.
    """
    cluster = scheduler.cluster() if runs else None
    ours = [known for known in runs if _belongs_here(known.run, cluster, host)]
    # read before the query: then the scheduler knows the job of an sbatch that ends in between
    ours = [_with_progress(known, store, now_s) for known in ours]
    nameless = {known.folder for known in ours if known.run.job_id is None}
    try:
        answers = scheduler.poll(_refs(ours))
        ours = [_with_job(known, answers, store) for known in ours]
        named = [known for known in ours if known.folder in nameless]
        more = [ref for ref in _refs(named) if ref.folder not in nameless]
        if more:
            answers = {**answers, **scheduler.poll(more)}
    except SchedulerError as away:
        return _Poll([_with_job(known, {}, store) for known in ours], away=away)
    return _Poll(ours, answers)


def _with_progress(known: KnownRun, store: RunStore, now_s: float) -> KnownRun:
    """Return a run, if it has no job id, with the progress of its submission."""
    if known.run.job_id:
        return known
    sending = settle_submission(known.folder, known.run.created_s, now_s)
    if sending is Sending.ENDED:
        # its record may have been read before the submission wrote the job id
        with suppress(HpcrunError):
            newer = store.load(known.run.run_id)
            if newer.job_id:
                return replace(known, run=newer)
    return replace(known, sending=sending)


def _refs(runs: Sequence[KnownRun]) -> list[JobRef]:
    """Return the jobs to query of all these runs."""
    return list(chain.from_iterable(known.refs() for known in runs))


def _with_job(known: KnownRun, answers: Answers, store: RunStore) -> KnownRun:
    """Return a run with its missing job id, from the scheduler or from a record of its script."""
    if known.run.job_id is not None:
        return known
    info = answers.get(known.folder)
    attempt = next(last_attempts(known.folder), None)
    if info:
        job_id = info.job_id
    elif attempt:
        # the script of an array's task has written 123_4
        job_id = attempt.job_id.partition("_")[0]
    else:
        return known
    run = replace(known.run, job_id=job_id)
    with suppress(HpcrunError):  # a full disk: it is found again next time
        run = store.change(run, job_id=job_id)
    return replace(known, run=run)


def _judge_elements(
    known: KnownRun,
    records: Mapping[int, ElementRecords],
    answers: Answers | None,
    now_s: float,
) -> list[ElementStatus]:
    """Decide the status of each element of a run; without records its last known status stays."""
    statuses = []
    for index in known.elements.parameters:
        statuses.append(_judge_element(known, index, records.get(index), answers, now_s))
    return statuses


def _judge_element(
    known: KnownRun,
    index: int,
    records: ElementRecords | None,
    answers: Answers | None,
    now_s: float,
) -> ElementStatus:
    """Decide the status of one element.

    Args:
        known: the run of the element, with its last known status.
        index: the number of the element.
        records: None if its last known status stays.
        answers: None if the scheduler did not answer, or was not queried about it.
        now_s: the present time, in seconds since the epoch.
    """
    last = known.last_of_elements.get(index)
    info = None
    answered = records is not None and answers is not None
    if records is None:
        status = last or LastStatus(state.UNKNOWN, known.run.created_s)
    else:
        if answers is not None:
            info = answers.get(known.ref(index).folder)
        if known.elements.packed:
            info = _in_pack(info, records)
        status = decide_status(
            known.run, info, records, last, answered=answered, now_s=now_s, sending=known.sending
        )
        status = keep_since(with_attempts(status, records.newest), last)
    stale = _is_stale(status, answered=answered, now_s=now_s)
    parameters = known.elements.parameters[index]
    job_id = known.elements.job_id(known.run, index)
    return ElementStatus(index, job_id, parameters, status, is_live(info), stale)


def _in_pack(info: JobInfo | None, records: ElementRecords) -> JobInfo | None:
    """Return what the task of an element says of the element.

    Returns:
        The answer; None if the element's own records decide, since other elements share the task.
    """
    attempt = records.attempt
    if records.ended or (records.cancelled and attempt is None):
        return None
    starts_again = attempt is not None and attempt.exit is not None and attempt.exit.again
    if starts_again and info and info.state == state.RUNNING:
        reason = "to be requeued with the others of its task"
        return replace(info, state=state.PENDING, reason=reason)
    return info


def _is_stale(status: LastStatus, *, answered: bool, now_s: float) -> bool:
    """Return whether there is no answer, or the answer lacks the job.

    In both cases, the status of the job is the last known one.
    """
    if status.final:
        return False
    is_missed = status.missed_s is not None and status.asked_s < now_s
    return is_missed or not answered


def _poll(
    scheduler: Scheduler, runs: Sequence[KnownRun], ports: Ports, now_s: float
) -> tuple[dict[str, RunStatus], SchedulerError | None]:
    """Return the status of each run after one query to its scheduler, and why that failed."""
    store = ports.store
    listed = [known for known in runs if known.may_change]
    poll = _ask(scheduler, listed, store, ports.host, now_s)
    items = {}
    for before in poll.runs:
        known = before if poll.answers is None else before.after_answer(poll.answers)
        records = {} if known.is_over else known.records()
        item = run_status(known, now_s, records, poll.answers)
        items[known.run.run_id] = item
        if poll.answers is not None:
            _save(item, store, before.last, before.last_of_elements)
            if item.status.final and not known.is_over:
                ports.on_end(known.run.run_id)
        _note_failed_nodes(known.run, records, store, now_s)
    for known in runs:
        if known.run.run_id not in items:
            items[known.run.run_id] = run_status(known, now_s, None)
        if known.is_over and items[known.run.run_id].status.final:
            store.leave_active(known.run.run_id)
    # the end of a run is known without an answer, though not whether it has been requeued
    has_open = any(not known.is_over for known in poll.runs)
    return items, poll.away if has_open else None


def _with_limits(items: dict[str, RunStatus], scheduler: Scheduler) -> dict[str, RunStatus]:
    """Return the runs; each that one limit alone holds back has this limit.

    The scheduler is asked only if there are pending runs with such a reason.
    """
    reasons = {}
    going = [item for item in items.values() if item.live and not item.status.final]
    for item in going:
        reason = limit_reason(item)
        if reason is not None and item.run.job_id:
            reasons[item.run.job_id] = reason
    if not reasons:
        return items
    over = scheduler.over_limits(reasons)
    limited = {}
    for run_id, item in items.items():
        limited[run_id] = replace(item, over_limit=over.get(item.run.job_id or ""))
    return limited


def _note_failed_nodes(
    run: Run, records: Mapping[int, ElementRecords], store: RunStore, now_s: float
) -> None:
    if store.failed_nodes is None:
        return
    failures: list[FailedNode] = []
    for element in records.values():
        failures += failures_of(run, element.newest[:2])
    store.failed_nodes.note(failures, now_s)


def run_status(
    known: KnownRun,
    now_s: float,
    records: Mapping[int, ElementRecords] | None,
    answers: Answers | None = None,
) -> RunStatus:
    """Return the status of a run.

    Args:
        known: the run with its last known status.
        now_s: the present time, in seconds since the epoch.
        records: those of its open elements, none if the run is over; None for a run of another
            cluster or host, of which only the last known status is told.
        answers: of the scheduler; None if it did not answer.
    """
    run = known.run
    if not known.elements.are_array:  # element_row does it for each element
        run = with_granted_nodes(run, known.folder)
    if known.last is not None and known.last.final:
        ended = EndedElements(known, now_s) if known.elements.are_array else ()
        unconfirmed = known.may_return and answers is None
        return RunStatus(run, known.folder, known.last, elements=ended, unconfirmed=unconfirmed)
    elements = _judge_elements(known, records or {}, answers, now_s)
    elsewhere = records is None
    if elsewhere:
        ask_there = f"ask on {known.run.place}"
        status = known.last or LastStatus(state.UNKNOWN, known.run.created_s, reason=ask_there)
    else:
        statuses = [element.status for element in elements]
        if known.elements.are_array:
            status = combine(statuses, known.run.walltime_s)
        else:
            status = statuses[0]
        status = _with_refusal(status, known.folder)
    return RunStatus(
        run,
        known.folder,
        status,
        stale=_is_stale(status, answered=answers is not None, now_s=now_s),
        elements=tuple(elements) if known.elements.are_array else (),
        elsewhere=elsewhere,
        lost=is_lost(known.run, known.folder, status, elsewhere=elsewhere, now_s=now_s),
        live=any(each.live for each in elements),
    )


def _save(
    item: RunStatus,
    store: RunStore,
    last: LastStatus | None = None,
    known: Mapping[int, LastStatus] | None = None,
) -> None:
    """Save a new status of a run; if nothing is new, nothing is written.

    Args:
        item: the run with its new status.
        store: the store of the runs.
        last: the saved status of the run.
        known: the saved status of the run's elements, by their numbers.
    """
    known = known or {}
    if any(_is_news(each.status, known.get(each.index)) for each in item.elements):
        save_statuses(item.folder, {each.index: each.status for each in item.elements})
    if _is_news(item.status, last):
        store.save_status(item.run.run_id, item.status)


def _is_news(status: LastStatus, last: LastStatus | None) -> bool:
    """Whether a status differs from the last one, or is more than a minute newer."""
    if last is None or status.asked_s - last.asked_s >= 60:
        return True
    # Slurm's estimate changes often
    return replace(status, asked_s=last.asked_s, start_s=last.start_s) != last


def _with_refusal(status: LastStatus, folder: Path) -> LastStatus:
    """Add sbatch's message to the status of a run without a job."""
    if status.state != state.NOT_SUBMITTED:
        return status
    try:
        refusal = read_text(RunFolder(folder).sbatch_stderr).strip()
    except OSError:
        return status
    if refusal:
        return replace(status, reason=f"{status.reason}; sbatch said: {refusal.splitlines()[-1]}")
    return status


def failures_of(run: Run, attempts: Sequence[Attempt]) -> Iterator[FailedNode]:
    """Yield the failed nodes from the records of a run's attempts, the newest attempt first.

    Of an attempt without a record, these are the nodes that Slurm reported dead afterwards.
    """
    if run.scheduler != "slurm":
        return
    why = "down or not responding"
    for place, attempt in enumerate(attempts):
        exit_ = attempt.exit
        nodes: Sequence[str] = ()
        if exit_ is None and place > 0:
            nodes = dead_nodes(attempt.folder)
        elif exit_ is not None and exit_.reason == NODE_FAILURE:
            nodes = exit_.nodes
        failed_s = exit_.ended_s if exit_ else attempt.alive_s
        for node in nodes:
            yield FailedNode(node, run.cluster, failed_s, why, run.run_id)
