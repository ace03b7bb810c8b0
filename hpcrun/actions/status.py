"""status: what became of each run, asked of the scheduler once, else read from its folder, never guessed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from hpcrun.errors import HpcrunError, SchedulerError
from hpcrun.job import state
from hpcrun.job.state import JobInfo, is_terminal
from hpcrun.runs.attempt import Attempt, last_attempt
from hpcrun.runs.record import LastStatus, Run
from hpcrun.runs.store import DamagedRunError, RunStore
from hpcrun.schedulers.protocol import JobRef, Scheduler

NEWEST = 10
"""How many runs are shown where none is named, besides those that are not over."""
SUBMITTED_WITHIN_S = 120.0
"""sbatch gives up after its message time-outs; a run without a job is not declared without one before this."""
CANCELLED_MARK = "cancelled"


@dataclass(frozen=True, slots=True)
class RunStatus:
    """A run and its status.

    Attributes:
        stale: nobody answered; ``status`` is the last that was known, learned at its ``asked_s``.
    """

    run: Run
    folder: Path
    status: LastStatus
    stale: bool = False


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


Schedulers = Callable[[str], Scheduler]
"""Scheduler name → adapter; built by ``cli``."""


def chosen_ids(store: RunStore, *, everything: bool) -> list[str]:
    """Return the runs to show where none is named: the active ones and the newest, or all."""
    ids = store.run_ids()
    if everything:
        return ids
    active = set(store.active_ids())
    return sorted({*ids[-NEWEST:], *(run_id for run_id in ids if run_id in active)})


def get_status(
    run_ids: Sequence[str], *, store: RunStore, schedulers: Schedulers, host: str, now_s: float
) -> StatusResult:
    """Learn the status of runs: one question per scheduler, whatever their number.

    Runs of another cluster or host are not asked about: job ids mean nothing there.
    """
    runs, damaged = _load(run_ids, store)
    known: dict[str, RunStatus] = {}
    away: SchedulerError | None = None
    for name in sorted({run.scheduler for run in runs}):
        mine = [run for run in runs if run.scheduler == name]
        answer, error = _ask(name, mine, store, schedulers, host, now_s)
        known |= answer
        away = away or error
    # ids tell time in seconds; two runs of one second are in the order in which they were made
    runs.sort(key=lambda run: run.created_s)
    return StatusResult(tuple(known[run.run_id] for run in runs), away, tuple(damaged))


def _load(run_ids: Sequence[str], store: RunStore) -> tuple[list[Run], list[str]]:
    runs, damaged = [], []
    for run_id in run_ids:
        try:
            runs.append(store.load(run_id))
        except DamagedRunError as error:
            damaged.append(error.message)
        except HpcrunError:
            continue  # removed since it was listed
    return runs, damaged


def _ask(
    name: str, runs: Sequence[Run], store: RunStore, schedulers: Schedulers, host: str, now_s: float
) -> tuple[dict[str, RunStatus], SchedulerError | None]:
    scheduler = schedulers(name)
    lasts = {run.run_id: store.last_status(run.run_id) for run in runs}
    open_runs = [run for run in runs if not _is_final(lasts[run.run_id])]
    cluster = scheduler.cluster() if open_runs and name == "slurm" else None
    ours = [run for run in open_runs if _belongs_here(run, cluster, host)]
    answers: dict[Path, JobInfo] | None = {}
    error: SchedulerError | None = None
    try:
        answers = scheduler.poll([JobRef(store.folder(run.run_id), run.job_id) for run in ours])
    except SchedulerError as away:
        answers, error = None, away
    asked = {run.run_id for run in ours}
    statuses = {}
    for run in runs:
        folder, last = store.folder(run.run_id), lasts[run.run_id]
        if run.run_id not in asked:
            statuses[run.run_id] = RunStatus(run, folder, last or _elsewhere(run), stale=not _is_final(last))
            continue
        info = answers.get(folder) if answers is not None else None
        run = _adopt(run, info, folder, store)
        status = judge(run, info, last_attempt(folder), last, answered=answers is not None,
                       cancelled=(folder / CANCELLED_MARK).exists(), now_s=now_s)  # fmt: skip
        if answers is not None and not _says_the_same(status, last):
            store.save_status(run.run_id, status)
        statuses[run.run_id] = RunStatus(run, folder, status, stale=answers is None and not status.final)
    return statuses, error


def _says_the_same(status: LastStatus, last: LastStatus | None) -> bool:
    """Whether nothing is new but the time of asking, and that by less than a minute: not worth a write."""
    return last is not None and status.asked_s - last.asked_s < 60 and replace(status, asked_s=last.asked_s) == last


def _is_final(last: LastStatus | None) -> bool:
    return last is not None and last.final


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
    job_id = info.job_id if info else attempt.job_id if attempt else None
    if job_id is None:
        return run
    run = replace(run, job_id=job_id)
    with suppress(HpcrunError):  # a full disk: it is found again next time
        store.save(run)
    return run


def judge(
    run: Run,
    info: JobInfo | None,
    attempt: Attempt | None,
    last: LastStatus | None,
    *,
    answered: bool,
    cancelled: bool,
    now_s: float,
) -> LastStatus:
    """Decide what to say of a run, from what is known.

    Args:
        info: the scheduler's answer; None where it knows nothing of the job, or did not answer.
        attempt: what the script wrote down.
        last: what was known before.
        answered: the scheduler answered, whatever it said.
        cancelled: ``hpcrun cancel`` was called for it.
    """
    if info is not None:
        return _from_scheduler(info, attempt, now_s)
    if attempt is not None and attempt.exit is not None and (answered or not attempt.exit.signal):
        return _from_exit(run, attempt, cancelled=cancelled, now_s=now_s)
    if not answered:
        return last or _from_start(run, attempt, now_s)
    if cancelled:
        return LastStatus(state.CANCELLED, now_s, final=True, limit_s=run.walltime_s)
    if run.job_id is None:
        if now_s - run.created_s < SUBMITTED_WITHIN_S:
            return LastStatus(state.SUBMITTING, now_s, reason="sbatch has not answered yet")
        return LastStatus(state.NOT_SUBMITTED, now_s, final=True, reason="no job came of it; submit it again")
    seen = f"; last seen {last.state}" if last and last.state != state.UNKNOWN else ""
    before = last if last and last.state == state.UNKNOWN else None
    return before or LastStatus(
        state.UNKNOWN, now_s, reason=f"the scheduler no longer knows it, and it left no exit record{seen}"
    )


def _from_scheduler(info: JobInfo, attempt: Attempt | None, now_s: float) -> LastStatus:
    exit_ = attempt.exit if attempt else None
    final = is_terminal(info.state)
    message = exit_.message if final and exit_ and exit_.message else None
    status = info.exit_status if info.exit_status is not None else exit_.status if final and exit_ else None
    return LastStatus(
        info.state,
        now_s,
        final=final,
        reason=message or info.reason,
        elapsed_s=info.elapsed_s,
        limit_s=info.limit_s,
        hosts=info.hosts,
        exit_status=status,
        signal=info.signal,
    )


def _from_exit(run: Run, attempt: Attempt, *, cancelled: bool, now_s: float) -> LastStatus:
    """Judge a job that only its own exit record speaks of."""
    exit_ = attempt.exit
    assert exit_ is not None
    elapsed_s = int(exit_.ended_s - attempt.started_s)
    reason = exit_.message or None
    if not exit_.signal:
        word = state.COMPLETED if exit_.status == 0 else state.FAILED
    elif cancelled:
        word = state.CANCELLED
    elif run.walltime_s is not None and elapsed_s >= run.walltime_s:
        word = state.TIMEOUT
    else:
        word = state.UNKNOWN
        reason = "ended by SIGTERM: cancelled, preempted or out of time; the scheduler has forgotten which"
    return LastStatus(
        word, now_s, final=True, reason=reason, elapsed_s=elapsed_s, limit_s=run.walltime_s, hosts=_hosts(attempt),
        exit_status=exit_.status,
    )  # fmt: skip


def _from_start(run: Run, attempt: Attempt | None, now_s: float) -> LastStatus:
    if attempt is None:
        word = state.PENDING if run.job_id else state.SUBMITTING
        return LastStatus(word, run.created_s, reason="not started when last heard of", limit_s=run.walltime_s)
    return LastStatus(
        state.RUNNING, attempt.started_s, elapsed_s=int(now_s - attempt.started_s), limit_s=run.walltime_s,
        hosts=_hosts(attempt),
    )  # fmt: skip


def _hosts(attempt: Attempt) -> str | None:
    try:
        return ",".join((attempt.folder / "hosts").read_text("ascii").split())
    except (OSError, UnicodeDecodeError):
        return None
