"""The status of a run from all sources.

The sources are the scheduler's answer, the script's records, and the last known status.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from hpcrun.job import job_states as state
from hpcrun.job.job_states import JobInfo, explain_reason, is_terminal, waits_to_start
from hpcrun.job.text.units import host_list
from hpcrun.runs.attempt import (
    IDLE,
    NODE_FAILURE,
    RESTART,
    Attempt,
    ExitRecord,
    dead_nodes,
    hosts,
    last_attempts,
)
from hpcrun.runs.elements import ElementRecords
from hpcrun.runs.record import LastStatus, Run
from hpcrun.schedulers.submit_claim import Sending

MISSED_FOR_S = 60.0
"""A job counts as missing if answers so far apart lack it.

One squeue answer serves all polls of at most a minute.
"""
UNSENT_FOR_S = 30.0
"""The same for a submission, for which squeue is called each time: a busy slurmctld may not list
its job yet.
"""
SUBMITTED_WITHIN_S = 600.0
"""A submission older than this is NOT_SUBMITTED once squeue does not list its job."""
ALIVE_WITHIN_S = 120.0
"""The script sends a heartbeat every 30 s; clocks of two hosts may differ a little."""
LOST_AFTER_S = 86400.0
"""After so long without a heartbeat, a run whose end is unknown is lost, and an unfinished folder
is a leftover.
"""
BEFORE_START = "cancelled before it started"

_ENDED_BY = {
    "time_limit": (state.TIMEOUT, "time limit"),
    "preemption": (state.PREEMPTED, "preempted"),
    NODE_FAILURE: (state.NODE_FAIL, "a node failed"),
    "cancelled": (state.CANCELLED, "cancelled"),
    IDLE: (state.CANCELLED, ""),
    "requeued": (state.UNKNOWN, "requeued by Slurm or an administrator"),
    "terminated": (state.UNKNOWN, "ended by SIGTERM"),
    "failure": (state.FAILED, ""),
}
"""The script's word for why an attempt ended → the state that it is then, and what a person says
besides.
"""


def decide_status(
    run: Run,
    info: JobInfo | None,
    records: ElementRecords,
    last: LastStatus | None,
    *,
    answered: bool,
    now_s: float,
    sending: Sending | None = None,
) -> LastStatus:
    """Decide the status of an element of a run.

    Args:
        run: the run of the element.
        info: the scheduler's answer; None if it does not list the job, or did not answer.
        records: those of the script and of ``hpcrun cancel``.
        last: the last known status.
        answered: whether the scheduler answered at all.
        now_s: the present time, in seconds since the epoch.
        sending: the progress of its submission before the query, for a run without a job.
    """
    if info is not None:
        return _from_answer(run, info, records, now_s)
    attempt = records.attempt
    cancelled = records.cancelled
    exit_ = attempt.exit if attempt else None
    if exit_ and exit_.again:
        return _from_again(run, exit_, answered=answered, cancelled=cancelled, now_s=now_s)
    if attempt and exit_ and (answered or not exit_.signal):
        status = _from_exit(run, attempt, cancelled=cancelled, now_s=now_s)
        if status.state != state.UNKNOWN:
            return status
        # the scheduler's next answer may tell who ended it
        return _missed(run, last, now_s) or status
    if run.job_id is None:
        return _without_job(run, last, sending, answered=answered, now_s=now_s)
    if not answered:
        return last or _from_start(run, attempt, now_s)
    return _not_listed(run, records, last, now_s)


def _from_answer(run: Run, info: JobInfo, records: ElementRecords, now_s: float) -> LastStatus:
    """Judge a job that the scheduler lists."""
    if info.state == state.REVOKED and records.attempt is not None:
        return _from_sibling(run, records.attempt, cancelled=records.cancelled, now_s=now_s)
    by_newer = _from_newer_record(run, info, records, now_s)
    if by_newer is not None:
        return by_newer
    by_record = _from_own_record(run, info, records.attempt, now_s)
    if by_record is not None:
        return by_record
    return _from_scheduler(info, records.attempt, now_s)


def _not_listed(
    run: Run, records: ElementRecords, last: LastStatus | None, now_s: float
) -> LastStatus:
    """Judge a submitted job that has no exit record and that the scheduler does not list."""
    attempt = records.attempt
    if records.cancelled:
        # a cancelled job may leave no record: its script did not handle signals yet, or it was an
        # element of an array before it became a job of its own
        reason = None if attempt else BEFORE_START
        return LastStatus(state.CANCELLED, now_s, final=True, reason=reason, limit_s=run.walltime_s)
    if attempt is not None and now_s - attempt.alive_s < ALIVE_WITHIN_S:
        return _from_start(run, attempt, now_s)
    missed = _missed(run, last, now_s)
    if missed is not None:
        return missed
    if last and last.state == state.UNKNOWN:
        return last
    reason = "the scheduler has no record of it, and it wrote no exit status"
    if last:
        reason += f"; last seen {last.state}"
    return LastStatus(state.UNKNOWN, now_s, reason=reason)


def _from_newer_record(
    run: Run, info: JobInfo, records: ElementRecords, now_s: float
) -> LastStatus | None:
    """Judge a job by the records that its script wrote after the query; None without such a record.

    So starts and ends are known at once although an answer is shared for ten seconds. Slurm may
    know better why an attempt failed (OUT_OF_MEMORY) and who ended it: then its next answer
    decides.
    """
    attempt = records.attempt
    if attempt is None or is_terminal(info.state):
        return None
    exit_ = attempt.exit
    written_s = exit_.ended_s if exit_ else attempt.started_s
    if written_s <= info.asked_s:
        return None
    is_running = exit_ is None or (exit_.again and exit_.how == RESTART)
    if is_running and info.state == state.RUNNING:
        return None
    if exit_ is None or is_running:
        return _from_start(run, attempt, now_s)
    if exit_.again:
        return _from_again(run, exit_, answered=False, cancelled=records.cancelled, now_s=now_s)
    if exit_.signal and not records.cancelled:
        return None
    by_record = _from_exit(run, attempt, cancelled=records.cancelled, now_s=now_s)
    if by_record.state in (state.COMPLETED, state.CANCELLED):
        return by_record
    return replace(by_record, state=state.COMPLETING, final=False)


def _from_own_record(
    run: Run, info: JobInfo, attempt: Attempt | None, now_s: float
) -> LastStatus | None:
    """Return a status from a job's own record, if the record has priority over the scheduler.

    Slurm 24.11 reports PREEMPTED for a job that was preempted once, started again, and then ended
    by itself. A local supervisor that was killed after the script had ended leaves NODE_FAIL.

    Returns:
        The status; None if the scheduler's state has priority.
    """
    is_local_failure = info.state == state.NODE_FAIL and run.scheduler == "local"
    if info.state != state.PREEMPTED and not is_local_failure:
        return None
    if attempt is None or attempt.exit is None:
        return None
    exit_ = attempt.exit
    ended_by_itself = not exit_.signal and exit_.reason in ("", "failure")
    if exit_.again or not ended_by_itself:
        return None
    by_record = _from_exit(run, attempt, cancelled=False, now_s=now_s)
    return replace(
        by_record,
        elapsed_s=info.elapsed_s or by_record.elapsed_s,
        limit_s=info.limit_s or by_record.limit_s,
    )


def _from_sibling(run: Run, attempt: Attempt, *, cancelled: bool, now_s: float) -> LastStatus:
    """Judge a job that another cluster of the federation runs, by the run's own records."""
    if attempt.exit is None:
        running = _from_start(run, attempt, now_s)
        return replace(running, reason="on another cluster of the federation")
    if attempt.exit.again:
        return _from_again(run, attempt.exit, answered=False, cancelled=cancelled, now_s=now_s)
    return _from_exit(run, attempt, cancelled=cancelled, now_s=now_s)


def _without_job(
    run: Run, last: LastStatus | None, sending: Sending | None, *, answered: bool, now_s: float
) -> LastStatus:
    """Judge a run without a known job: there is none only if no process can submit it any more."""
    if sending is Sending.NEVER:
        return LastStatus(
            state.NOT_SUBMITTED,
            now_s,
            final=True,
            reason="interrupted before submission; submit it again",
        )
    if not answered:
        return last or _from_start(run, None, now_s)
    if sending is Sending.UNDER_WAY:
        return LastStatus(state.SUBMITTING, now_s, reason="sbatch has not answered yet")
    if last and last.missed_s is not None:
        since_s = last.missed_s
    else:
        since_s = now_s
    if now_s - since_s < UNSENT_FOR_S and now_s - run.created_s < SUBMITTED_WITHIN_S:
        reason = "sbatch did not respond, and Slurm lists no job yet; check again in 30 s"
        return LastStatus(state.SUBMITTING, now_s, reason=reason, missed_s=since_s)
    return LastStatus(
        state.NOT_SUBMITTED, now_s, final=True, reason="not submitted; submit it again"
    )


def _missed(run: Run, last: LastStatus | None, now_s: float) -> LastStatus | None:
    """Return the last known status while answers have lacked a live job for a short time only.

    Returns:
        The status; None once the job has been missing for MISSED_FOR_S, or had no live status.
    """
    if last is None:
        if now_s - run.created_s >= MISSED_FOR_S:
            return None
        last = _from_start(run, None, now_s)
    if last.final or last.state == state.UNKNOWN:
        return None
    since_s = now_s if last.missed_s is None else last.missed_s
    if now_s - since_s >= MISSED_FOR_S:
        return None
    scheduler = "this machine" if run.scheduler == "local" else "Slurm"
    return replace(last, missed_s=since_s, reason=f"{scheduler} does not list this job")


def _from_scheduler(info: JobInfo, attempt: Attempt | None, now_s: float) -> LastStatus:
    """Judge a job by the scheduler's answer; the record of its end adds who ended it, and why."""
    exit_ = attempt.exit if attempt else None
    final = is_terminal(info.state)
    end = exit_ if final and exit_ and not exit_.again else None
    shown = _state_with_record(info.state, end) if end else info.state
    reason: str | None = _end_reason(end) if end else None
    if not reason:
        reason = _schedulers_reason(info, shown, attempt)
    if info.exit_status is not None:
        status = info.exit_status
    elif final and exit_:
        status = exit_.status
    else:
        status = None
    return LastStatus(
        shown,
        now_s,
        final=final,
        reason=reason,
        elapsed_s=info.elapsed_s,
        limit_s=info.limit_s,
        hosts=info.hosts,
        exit_status=status,
        signal=info.signal,
        start_s=info.start_s,
    )


def _schedulers_reason(info: JobInfo, shown: str, attempt: Attempt | None) -> str | None:
    """Return the scheduler's reason as far as it explains the state that is shown."""
    reason = info.reason
    if shown in (state.COMPLETED, state.CANCELLED):
        # squeue keeps the last reason for which the job was pending
        reason = _final_reason(reason)
    if attempt is None:
        was_pending = shown == state.CANCELLED and not info.elapsed_s
        return reason or (BEFORE_START if was_pending else None)
    is_over = attempt.exit is None or not attempt.exit.again
    if reason == state.LAUNCH_FAILURE and is_terminal(info.state) and is_over:
        return None  # its script has started: a signal ended it
    return reason


def _state_with_record(shown: str, exit_: ExitRecord) -> str:
    """Return the state of a job that has ended, from Slurm's state and the record of its end.

    An attempt that was stopped ends with a special status, which Slurm takes for a failure.
    """
    by_record = _ENDED_BY.get(exit_.reason, (shown, ""))[0]
    if shown == state.CANCELLED and by_record == state.NODE_FAIL:
        # in_job/launch/per_job/guard.py has ended a job whose script was lost
        return by_record
    was_stopped = by_record not in (state.UNKNOWN, state.FAILED)
    if was_stopped and shown in (state.FAILED, state.COMPLETED):
        return by_record
    return shown


def _end_reason(exit_: ExitRecord) -> str:
    """Return why an attempt ended, with the message of its record."""
    text = _ENDED_BY.get(exit_.reason, ("", ""))[1]
    if text and exit_.message:
        return f"{text}, {exit_.message}"
    if exit_.status == 0 and not text:
        return exit_.message or "; ".join(exit_.notes)
    return text or exit_.message


def _final_reason(reason: str | None) -> str | None:
    """Return one of Slurm's reasons if it can be the reason of an end, else None."""
    known = explain_reason(reason) if reason else None
    if known and known.is_final:
        return reason
    return None


def _from_exit(run: Run, attempt: Attempt, *, cancelled: bool, now_s: float) -> LastStatus:
    """Judge a job by its exit record alone."""
    exit_ = attempt.exit
    assert exit_ is not None
    elapsed_s = max(0, int(exit_.ended_s - attempt.started_s))
    reason = exit_.message or None
    by_record = _ENDED_BY.get(exit_.reason, (state.UNKNOWN, ""))[0]
    if by_record != state.UNKNOWN:
        shown = by_record
        reason = _end_reason(exit_) or None
    elif not exit_.signal:
        shown = state.COMPLETED if exit_.status == 0 else state.FAILED
        reason = _end_reason(exit_) or None
    elif cancelled:
        shown = state.CANCELLED
    elif run.walltime_s is not None and elapsed_s >= run.walltime_s:
        shown = state.TIMEOUT
    else:
        shown = state.UNKNOWN
        reason = (
            "terminated by SIGTERM (cancelled, preempted or time limit); Slurm no longer has "
            "the record"
        )
    return LastStatus(
        shown,
        now_s,
        final=True,
        reason=reason,
        elapsed_s=elapsed_s,
        limit_s=run.walltime_s,
        hosts=_hosts(attempt),
        exit_status=exit_.status,
    )


def _from_again(
    run: Run, exit_: ExitRecord, *, answered: bool, cancelled: bool, now_s: float
) -> LastStatus:
    """Return the status of a job that the scheduler does not list and that is to start again.

    The last attempt of the job requested another attempt.
    """
    if answered and cancelled:
        return LastStatus(state.CANCELLED, now_s, final=True, limit_s=run.walltime_s)
    if answered and now_s - exit_.ended_s > ALIVE_WITHIN_S:
        return LastStatus(
            state.UNKNOWN,
            now_s,
            reason="it was to be requeued, but the scheduler has no record of it",
        )
    return LastStatus(state.PENDING, now_s, reason="to be requeued", limit_s=run.walltime_s)


def with_attempts(status: LastStatus, newest: Sequence[Attempt]) -> LastStatus:
    """Return the status with its attempt, and why the attempt before it ended.

    Args:
        status: the status of the run or element.
        newest: the attempts that have started, the newest first.
    """
    if not newest:
        return status
    latest = newest[0]
    number = latest.number
    before = newest[1] if len(newest) > 1 else None
    # requested by its script; or by Slurm or an administrator after its end
    is_requeued = latest.exit is not None and (latest.exit.again or waits_to_start(status.state))
    if not status.final and is_requeued:
        number = latest.number + 1  # the next attempt waits in the queue
        before = latest
    status = replace(status, attempt=number)
    if before is None:
        return status
    total_s = sum(end_s - start_s for start_s, end_s in attempt_times(newest, status))
    return replace(status, before=ended_text(before), total_elapsed_s=int(total_s))


def attempt_times(newest: Sequence[Attempt], status: LastStatus) -> list[tuple[float, float]]:
    """Return the start and the end of each attempt in seconds since the epoch, oldest first.

    A restarted attempt held its nodes until the next one began. One without an exit record ended
    with its last heartbeat, or when the scheduler says that its allocation ended; a running one has
    lasted until it was asked.

    Args:
        newest: the attempts that have started, the newest first.
        status: the status of the run or element, with the length of its allocation.
    """
    times: list[tuple[float, float]] = []
    allocated_s = 0.0
    is_restart = False
    for attempt in reversed(newest):
        if is_restart:
            start_s, end_s = times[-1]
            times[-1] = (start_s, max(end_s, attempt.started_s))
        else:
            allocated_s = attempt.started_s
        exit_ = attempt.exit
        last_s = exit_.ended_s if exit_ else attempt.alive_s
        times.append((attempt.started_s, max(attempt.started_s, last_s)))
        is_restart = exit_ is not None and exit_.how == RESTART
    if newest and not newest[0].exit and (status.final or status.state == state.RUNNING):
        start_s, end_s = times[-1]
        times[-1] = (start_s, max(end_s, allocated_s + (status.elapsed_s or 0)))
    return times


def ended_text(attempt: Attempt) -> str:
    """Return why an attempt ended, and whether the next one began in the same allocation."""
    if attempt.exit is not None and attempt.exit.how == RESTART:
        return f"{why_ended(attempt)}, restarted in place"
    return why_ended(attempt)


def why_ended(attempt: Attempt) -> str:
    """Return why an attempt ended.

    Without a record, only the state of its nodes tells whether one failed: a full disk or
    ``scontrol requeue`` leaves none either.
    """
    if attempt.exit is None:
        dead = dead_nodes(attempt.folder)
        if dead:
            return f"no heartbeat from {', '.join(dead)}: a node failed"
        return "no record of its end, cause unknown"
    reason = attempt.exit.reason
    if reason == "failure" or reason not in _ENDED_BY:
        return f"exit status {attempt.exit.status}"
    return _ENDED_BY[reason][1]


def ended_state(attempt: Attempt) -> str:
    """Return the state in which an attempt ended.

    Returns:
        The state; UNKNOWN if something ended the attempt, and no record says what.
    """
    if attempt.exit is None:
        return state.NODE_FAIL if dead_nodes(attempt.folder) else state.UNKNOWN
    return _ENDED_BY.get(attempt.exit.reason, (state.FAILED, ""))[0]


def _from_start(run: Run, attempt: Attempt | None, now_s: float) -> LastStatus:
    """Return the status of a run of which only its start is known, or not even this."""
    if attempt is None:
        shown = state.PENDING if run.job_id else state.SUBMITTING
        return LastStatus(
            shown, run.created_s, reason="not started when last polled", limit_s=run.walltime_s
        )
    return LastStatus(
        state.RUNNING,
        attempt.started_s,
        elapsed_s=max(0, int(now_s - attempt.started_s)),
        limit_s=run.walltime_s,
        hosts=_hosts(attempt),
    )


def _hosts(attempt: Attempt) -> str | None:
    return host_list(hosts(attempt.folder)) or None


def keep_since(status: LastStatus, last: LastStatus | None) -> LastStatus:
    """Return the status of a job that is still UNKNOWN with the time when it became so."""
    if last is None or status.final or not status.state == last.state == state.UNKNOWN:
        return status
    return replace(status, asked_s=min(status.asked_s, last.asked_s))


def is_lost(run: Run, folder: Path, status: LastStatus, *, elsewhere: bool, now_s: float) -> bool:
    """Return whether a run's end has been unknown for a day, without a heartbeat.

    Args:
        run: the run.
        folder: the folder of the run.
        status: UNKNOWN since its ``asked_s`` where this cluster or host does not know the run; of a
            run elsewhere what was last known at its ``asked_s``.
        elsewhere: it belongs to a cluster or host that cannot be asked from here.
        now_s: the present time, in seconds since the epoch.
    """
    if status.final or not (elsewhere or status.state == state.UNKNOWN):
        return False
    if now_s - status.asked_s <= LOST_AFTER_S:
        return False  # before any file is opened
    return now_s - last_sign_s(run, folder, status) > LOST_AFTER_S


def last_sign_s(run: Run, folder: Path, status: LastStatus) -> float:
    """Return when a run ended, or last sent a heartbeat, in seconds since the epoch.

    For a sweep, the last element decides.
    """
    elapsed_s = status.elapsed_s or 0
    signs = []
    for attempt in last_attempts(folder):
        if attempt.exit:
            signs.append(attempt.exit.ended_s)
        else:
            signs.append(max(attempt.alive_s, attempt.started_s + elapsed_s))
    return max(signs, default=run.created_s + elapsed_s)
