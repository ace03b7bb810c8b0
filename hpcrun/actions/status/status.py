"""status: what became of each run, asked of the scheduler once, else read from its folder, never guessed."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

from hpcrun.actions.jobs.bad_nodes import failures_of
from hpcrun.actions.jobs.dependencies import Wait, never_started, waits_of
from hpcrun.actions.ports import Ports
from hpcrun.actions.status.lost import is_lost, keep_since
from hpcrun.actions.status.resolve import judge, with_attempts
from hpcrun.actions.status.salvage import damage_words
from hpcrun.actions.status.sweep_status import ElementStatus, OpenSweep, judge_sweep, known_elements, open_sweep
from hpcrun.errors import HpcrunError, NotFoundError, SchedulerError
from hpcrun.job import state
from hpcrun.job.layout import RunFolder
from hpcrun.job.parameters import parameters_text
from hpcrun.job.state import JobInfo, is_live
from hpcrun.reading import read_text
from hpcrun.runs.attempt import Attempt, attempts, last_attempt
from hpcrun.runs.record import LastStatus, Run
from hpcrun.runs.store import DamagedRunError, RunStore
from hpcrun.schedulers.protocol import JobRef, Scheduler
from hpcrun.schedulers.submitter import Sending, look

NEWEST = 10
"""How many runs are shown where none is named, besides those that are not over."""


@dataclass(frozen=True, slots=True)
class RunStatus:
    """A run and its status.

    Attributes:
        stale: nobody answered, or the answer left it out; ``status`` is the last that was known, learned at its
            ``asked_s``.
        elements: of a sweep, whose ``status`` is that of all of them together.
        element: which one of a sweep this row of a table is for; None for a run as a whole.
        about: what tells this row from others of its run, such as an element's parameters.
        waits: the runs it waits for; of a run that never started those for whose sake it did not.
        elsewhere: it belongs to another cluster or host, which cannot be asked from here.
        lost: nobody knows its end, and it has given no sign of life for a day.
        live: the scheduler has just listed its job, or an element's, as one that is not over. Only then is the job id
            known to be this run's: ids are used again.
    """

    run: Run
    folder: Path
    status: LastStatus
    stale: bool = False
    elements: tuple[ElementStatus, ...] = ()
    element: int | None = None
    about: str = ""
    waits: tuple[Wait, ...] = ()
    elsewhere: bool = False
    lost: bool = False
    live: bool = False


def element_row(item: RunStatus, element: ElementStatus) -> RunStatus:
    """Return an element of a sweep as a run of its own: ``train/3``, job ``123_3``."""
    run = replace(item.run, name=f"{item.run.name}/{element.index}", job_id=element.job_id)
    return replace(
        item,
        run=run,
        status=element.status,
        stale=item.stale and not element.status.final,
        elements=(),
        element=element.index,
        about=parameters_text(element.parameters),
        live=element.live,
    )


@dataclass(frozen=True, slots=True)
class StatusResult:
    """The runs asked for, oldest first.

    Attributes:
        away: the scheduler's own words where it did not answer.
        damaged: messages about runs that cannot be read.
    """

    runs: tuple[RunStatus, ...]
    away: SchedulerError | None = None
    damaged: tuple[str, ...] = ()


def is_in(item: RunStatus, states: Collection[str]) -> bool:
    """Whether a run is in one of these states. A lost one counts as UNKNOWN, whatever it was when last heard of."""
    return item.status.state in states or (item.lost and state.UNKNOWN in states)


def without_lost(result: StatusResult) -> tuple[StatusResult, int]:
    """Return the result without the runs that are lost, and how many those are."""
    kept = tuple(item for item in result.runs if not item.lost)
    return replace(result, runs=kept), len(result.runs) - len(kept)


def chosen_ids(store: RunStore, *, everything: bool) -> list[str]:
    """Return the runs to show where none is named: the active ones and the newest, or all."""
    ids = store.run_ids()
    if everything:
        return ids
    active = set(store.active_ids())
    older = (run_id for run_id in ids[:-NEWEST] if run_id in active)
    return [*older, *ids[-NEWEST:]]


def active_ids(store: RunStore) -> list[str]:
    """Return the runs that are not over, oldest first; a marker without its run is passed over."""
    active = set(store.active_ids())
    return [run_id for run_id in store.run_ids() if run_id in active]


def get_status(run_ids: Sequence[str], ports: Ports) -> StatusResult:
    """Learn the status of runs: one question per scheduler, whatever their number.

    Runs of another cluster or host are not asked about: job ids mean nothing there.
    """
    store, now_s = ports.store, ports.now_s()
    runs, damaged = _load(run_ids, store)
    others = _waited_for(runs, store)
    known: dict[str, RunStatus] = {}
    away: SchedulerError | None = None
    for name in sorted({run.scheduler for run in runs}):
        mine = [run for run in (*runs, *others) if run.scheduler == name]
        answer, error = _ask(name, mine, ports, now_s)
        known |= answer
        away = away or error
    # ids tell time in seconds; two runs of one second are in the order in which they were made
    runs.sort(key=lambda run: run.created_s)
    return StatusResult(tuple(_with_waits(known[run.run_id], known, store) for run in runs), away, tuple(damaged))


def one_status(run_id: str, ports: Ports) -> StatusResult:
    """Learn the status of one run.

    Raises:
        NotFoundError: its folder is gone.
        DamagedRunError: its record cannot be read any more.
    """
    result = get_status([run_id], ports)
    if not result.runs:
        ports.store.load(run_id)  # says why
        raise NotFoundError(f"the folder of {run_id} is gone", hint="hpcrun status --all lists the runs there are")
    return result


def _waited_for(runs: Sequence[Run], store: RunStore) -> list[Run]:
    """Return the runs that these may wait for and that are not among them: one question serves all."""
    active = set(store.active_ids()) if any(run.after for run in runs) else set()
    asked = {run.run_id for run in runs}
    wanted = {said["run_id"] for run in runs if run.run_id in active for said in run.after} - asked
    return _load(sorted(wanted), store)[0]


def _with_waits(item: RunStatus, known: Mapping[str, RunStatus], store: RunStore) -> RunStatus:
    def status_of(run_id: str) -> LastStatus | None:
        return known[run_id].status if run_id in known else store.last_status(run_id)

    if not item.run.after or last_attempt(item.folder) is not None:
        return item
    waits = waits_of(item.run, item.status, status_of)
    status = never_started(item.status, waits)
    if status is not item.status:
        store.save_status(item.run.run_id, status)
    return replace(item, status=status, waits=waits)


def last_known(run_ids: Sequence[str], *, store: RunStore, now_s: float) -> StatusResult:
    """Return what the run folders alone say, at once; nobody is asked."""
    runs, damaged = _load(run_ids, store)
    items = []
    for run in sorted(runs, key=lambda run: run.created_s):
        folder, status = store.folder(run.run_id), store.last_status(run.run_id)
        if not _is_final(status):
            newest = list(islice(attempts(folder), 2))
            status = judge(run, None, newest[0] if newest else None, status, answered=False, cancelled=False,
                           now_s=now_s)  # fmt: skip
            status = with_attempts(status, newest)
        assert status is not None
        lost = is_lost(run, folder, status, elsewhere=False, now_s=now_s)
        items.append(RunStatus(run, folder, status, stale=not status.final, lost=lost))
    return StatusResult(tuple(items), damaged=tuple(damaged))


def _load(run_ids: Sequence[str], store: RunStore) -> tuple[list[Run], list[str]]:
    runs, damaged = [], []
    for run_id in dict.fromkeys(run_ids):
        try:
            runs.append(store.load(run_id))
        except DamagedRunError as error:
            damaged.append(damage_words(run_id, error, store))
        except HpcrunError:
            continue  # removed since it was listed
    return runs, damaged


def _ask(
    name: str, runs: Sequence[Run], ports: Ports, now_s: float
) -> tuple[dict[str, RunStatus], SchedulerError | None]:
    store, scheduler = ports.store, ports.schedulers(name)
    lasts = {run.run_id: store.last_status(run.run_id) for run in runs}
    open_runs = [run for run in runs if not _is_over(lasts[run.run_id], store.folder(run.run_id))]
    cluster = scheduler.cluster() if open_runs and name == "slurm" else None
    ours = [run for run in open_runs if _belongs_here(run, cluster, ports.host)]
    # looked at before the scheduler is asked: an sbatch that ends in between has been heard by it
    sending = {run.run_id: look(store.folder(run.run_id), run.created_s, now_s) for run in ours if run.job_id is None}
    answers: dict[Path, JobInfo] | None
    sweeps: dict[str, OpenSweep]
    error: SchedulerError | None = None
    try:
        sweeps, answers = _poll(scheduler, ours, sending, store)
    except SchedulerError as away:
        sweeps, answers, error = _sweeps(ours, store), None, away
    asked = {run.run_id for run in ours}
    statuses = {}
    for run in runs:
        folder, last = store.folder(run.run_id), lasts[run.run_id]
        if run.run_id not in asked:
            over = _is_final(last)
            if over:
                store.leave_active(run.run_id)
            known, status = known_elements(run, folder), last or _elsewhere(run)
            lost = is_lost(run, folder, status, elsewhere=not over, now_s=now_s)
            statuses[run.run_id] = RunStatus(
                run, folder, status, stale=not over, elements=known, elsewhere=not over, lost=lost
            )
            continue
        elements: tuple[ElementStatus, ...] = ()
        if sweep := sweeps.get(run.run_id):
            run = sweep.run
            status, elements = judge_sweep(sweep, answers, now_s, sending.get(run.run_id))
            live = any(element.live for element in elements)
        else:
            run = _adopt(run, answers.get(folder) if answers else None, folder, store)
            newest = list(islice(attempts(folder), 2))
            if store.failed_nodes:
                store.failed_nodes.note(failures_of(run, newest), now_s)
            status = _judge(run, folder, newest, answers, last, sending.get(run.run_id), now_s)
            live = is_live(answers.get(folder) if answers else None)
        status = keep_since(_with_refusal(status, folder), last)
        if answers is not None and not _says_the_same(status, last):
            store.save_status(run.run_id, status)
        stale = not status.final and (answers is None or (status.missed_s is not None and status.asked_s < now_s))
        lost = is_lost(run, folder, status, elsewhere=False, now_s=now_s)
        statuses[run.run_id] = RunStatus(run, folder, status, stale, elements, lost=lost, live=live)
    return statuses, error


def _judge(
    run: Run,
    folder: Path,
    newest: Sequence[Attempt],
    answers: dict[Path, JobInfo] | None,
    last: LastStatus | None,
    sending: Sending | None,
    now_s: float,
) -> LastStatus:
    status = judge(
        run,
        answers.get(folder) if answers is not None else None,
        newest[0] if newest else None,
        last,
        answered=answers is not None,
        cancelled=RunFolder(folder).cancelled.exists(),
        sending=sending,
        now_s=now_s,
    )
    return with_attempts(status, newest)


def _sweeps(runs: Sequence[Run], store: RunStore) -> dict[str, OpenSweep]:
    found = {run.run_id: open_sweep(run, store.folder(run.run_id)) for run in runs}
    return {run_id: sweep for run_id, sweep in found.items() if sweep}


def _poll(
    scheduler: Scheduler, runs: Sequence[Run], sending: Mapping[str, Sending], store: RunStore
) -> tuple[dict[str, OpenSweep], dict[Path, JobInfo]]:
    """Ask about all runs at once, and about each element of a sweep that is not known to be over."""
    sweeps = _sweeps(runs, store)
    whole = [run for run in runs if run.run_id not in sweeps or run.job_id is None]
    refs = [_reference(run, store.folder(run.run_id), sending.get(run.run_id)) for run in whole]
    refs += [ref for sweep in sweeps.values() if sweep.run.job_id for ref in sweep.refs()]
    answers = scheduler.poll(refs)
    # a sweep whose job id is learned only now: the same question again, for its elements
    lost = [sweep for sweep in sweeps.values() if sweep.run.job_id is None]
    adopted = _sweeps([_adopt(sweep.run, answers.get(sweep.folder), sweep.folder, store) for sweep in lost], store)
    if refs := [ref for sweep in adopted.values() if sweep.run.job_id for ref in sweep.refs()]:
        answers |= scheduler.poll(refs)
    return sweeps | adopted, answers


def _reference(run: Run, folder: Path, sending: Sending | None) -> JobRef:
    return JobRef(folder, run.job_id, run.created_s if sending is Sending.ENDED else None)


def _says_the_same(status: LastStatus, last: LastStatus | None) -> bool:
    """Whether nothing is new but the time of asking, and that by less than a minute: not worth a write."""
    return last is not None and status.asked_s - last.asked_s < 60 and replace(status, asked_s=last.asked_s) == last


def _is_final(last: LastStatus | None) -> bool:
    return last is not None and last.final


def _is_over(last: LastStatus | None, folder: Path) -> bool:
    """Whether nothing more can be learned of a run; one without a job that has started after all is looked at again."""
    return _is_final(last) and not (last and last.state == state.NOT_SUBMITTED and last_attempt(folder))


def _with_refusal(status: LastStatus, folder: Path) -> LastStatus:
    """Add sbatch's own words to a status that says that no job came of it."""
    if status.state != state.NOT_SUBMITTED:
        return status
    try:
        said = read_text(RunFolder(folder).sbatch_stderr).strip()
    except OSError:
        return status
    return replace(status, reason=f"{status.reason}; sbatch said: {said.splitlines()[-1]}") if said else status


def _belongs_here(run: Run, cluster: str | None, host: str) -> bool:
    return run.host == host if run.scheduler == "local" else cluster is None or run.cluster in (None, cluster)


def _elsewhere(run: Run) -> LastStatus:
    where = f"host {run.host}" if run.scheduler == "local" else f"cluster {run.cluster}"
    return LastStatus(state.UNKNOWN, run.created_s, reason=f"ask on {where}")


def _adopt(run: Run, info: JobInfo | None, folder: Path, store: RunStore) -> Run:
    """Give a run the job id it never learned, from the scheduler or from what its script wrote."""
    if run.job_id is not None:
        return run
    attempt = last_attempt(folder)
    # the script of a sweep's element has written 123_4
    job_id = info.job_id if info else attempt.job_id.partition("_")[0] if attempt else None
    if job_id is None:
        return run
    run = replace(run, job_id=job_id)
    with suppress(HpcrunError):  # a full disk: it is found again next time
        store.save(run)
    return run
