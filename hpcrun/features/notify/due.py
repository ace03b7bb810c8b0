"""Which messages about a run are due, and who sends messages that its job could not send.

The next command that asks for the run's status sends these messages in the background.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from hpcrun.actions.hooks import Hooks
from hpcrun.actions.status.known_run import KnownRun
from hpcrun.actions.status.run_status import RunStatus, element_row, failed_elements
from hpcrun.actions.status.status_query import run_status
from hpcrun.features.notify.deliveries import deliveries, delivery_lines, unclaimed
from hpcrun.job import job_states
from hpcrun.job.request.notify_options import (
    ATTEMPT,
    EVENTS,
    FAILED,
    FINISHED,
    FIRST_FAILURE,
    FIRST_STEP,
    IDLE,
    STARTED,
    WAITING,
    WAITING_S,
    Notify,
    event_kind,
)
from hpcrun.job.run_paths import RunFolder
from hpcrun.machine.process import leave_running
from hpcrun.runs.attempt import Attempt, attempts, has_started, last_attempts
from hpcrun.runs.elements import all_elements
from hpcrun.runs.record import Run

END_IS_NEWS_S = 86400.0  # a message about an end is sent up to a day late
IS_NEWS_S = 3600.0  # any other message is sent up to an hour late
_LAST_ATTEMPTS = 3
# after an attempt to send the messages of a run, no other one begins for so long
TRIED_FOR_S = 120.0
JOB_FIRST_S = 30.0  # the job itself has so long to send the message about its start or its end
MOST_AT_ONCE = 50


def notify_of(run: Run) -> Notify | None:
    """Return the messages that a run's record requests, None if it requests none."""
    record = run.plan.get("notify")
    if not isinstance(record, dict) or not isinstance(record.get("to"), list):
        return None
    to = tuple(text for text in record["to"] if isinstance(text, str))
    events = record.get("events")
    waiting_s = record.get("waiting_s")
    named = tuple(event for event in EVENTS if isinstance(events, list) and event in events)
    if not to:
        return None
    if not isinstance(waiting_s, int) or waiting_s <= 0:
        waiting_s = WAITING_S
    return Notify(to, named, waiting_s)


def status_in_job(run: Run, folder: Path, now_s: float) -> RunStatus:
    """Return the status of a run by its records alone, as the job of the run sees it.

    Slurm still takes the job for running.
    """
    one = KnownRun(run, folder, all_elements(run), None, {})
    return run_status(one, now_s, one.records(), {})


def due_events(
    item: RunStatus, notify: Notify, now_s: float, reported: str | None = None
) -> list[str]:
    """Return the events of which there should be a message by now, sent or not.

    The job reports an event that just came, in ``reported``.
    """
    events = _events(item, notify, now_s)
    if reported in (STARTED, FIRST_STEP):
        events.insert(0, reported)
    wanted = set(notify.events)
    if FAILED in wanted and item.status.state != job_states.COMPLETED:
        wanted.add(FINISHED)
    return [event for event in dict.fromkeys(events) if event_kind(event) in wanted]


def _events(item: RunStatus, notify: Notify, now_s: float) -> list[str]:
    newest: list[Attempt] = []
    if not item.elements:
        newest = list(islice(attempts(item.folder, 0, item.run.deciding_role), _LAST_ATTEMPTS))
    if item.status.final:
        return [FINISHED] if _has_end_to_report(item, newest, now_s) else []
    if item.elements:
        return _events_of_sweep(item, notify, now_s)
    if not newest:
        return [WAITING] if _waits_long(item, notify, now_s) else []
    events = []
    followed = newest[1:]  # by another attempt
    if newest[0].exit and newest[0].exit.again:
        followed = newest
    if followed:
        last = followed[0]
        ended_s = last.exit.ended_s if last.exit else last.alive_s
        if now_s - ended_s < END_IS_NEWS_S:
            events.append(f"{ATTEMPT}-{last.number}")
    if newest[0].exit is None:
        events += _events_of_running(newest[0], now_s)
    return events


def _has_end_to_report(item: RunStatus, newest: Sequence[Attempt], now_s: float) -> bool:
    """Whether a run ended lately, and not by the hand of a person who knows."""
    status = item.status
    if status.state in (job_states.CANCELLED, job_states.NOT_SUBMITTED):
        if not has_started(item.folder):
            return False  # the person who cancelled it knows
    ended_s = status.asked_s
    if newest and newest[0].exit:
        ended_s = newest[0].exit.ended_s
    return now_s - ended_s < END_IS_NEWS_S


def _events_of_running(attempt: Attempt, now_s: float) -> list[str]:
    events = []
    if attempt.number == 0 and now_s - attempt.started_s < IS_NEWS_S:
        events.append(STARTED)
    if _has_metrics(attempt, now_s):
        events.append(FIRST_STEP)
    if attempt.folder.idle.exists():
        events.append(f"{IDLE}-{attempt.number}")
    return events


def _events_of_sweep(item: RunStatus, notify: Notify, now_s: float) -> list[str]:
    """Return the events of a sweep that is not over: one of each kind for all elements."""
    if _waits_long(item, notify, now_s) and not has_started(item.folder):
        return [WAITING]
    events = []
    if item.status.state == job_states.RUNNING:
        events.append(STARTED)
    if failed_elements(item.elements):
        events.append(FIRST_FAILURE)
    if IDLE in notify.events and idle_element(item):
        events.append(f"{IDLE}-0")
    return events


@dataclass(frozen=True, slots=True)
class IdleElement:
    """An element of a sweep whose GPUs are idle."""

    row: RunStatus  # the element as a separate run
    attempt: Attempt


def idle_element(item: RunStatus) -> IdleElement | None:
    """Return the first element of a sweep whose GPUs are idle, None without one."""
    for element in item.elements:
        if element.status.state != job_states.RUNNING:
            continue
        newest = next(attempts(item.folder, element.index, item.run.deciding_role), None)
        if newest and newest.exit is None and newest.folder.idle.exists():
            return IdleElement(element_row(item, element), newest)
    return None


def _waits_long(item: RunStatus, notify: Notify, now_s: float) -> bool:
    pending_s = now_s - item.run.created_s
    return item.status.state == job_states.PENDING and pending_s >= notify.waiting_s


def _has_metrics(attempt: Attempt, now_s: float) -> bool:
    with suppress(OSError):
        recent = now_s - attempt.started_s < IS_NEWS_S
        return recent and attempt.number == 0 and attempt.folder.rank_metrics(0).stat().st_size > 0
    return False


def send_late(items: Sequence[RunStatus], runs: Path, now_s: float) -> None:
    """Start a process that sends the due messages of these runs that nobody has sent."""
    late: list[RunStatus] = []
    for item in items:
        if len(late) == MOST_AT_ONCE:
            break
        if _is_late(item, now_s) and _is_untried(item.folder):
            late.append(item)
    if not late:
        return
    runs_variable = f"HPCRUN_RUNS={runs.absolute()}"
    program = ["env", runs_variable, sys.executable, "-m", "hpcrun", "notify", "--known"]
    program += [item.run.run_id for item in late]
    with suppress(OSError):  # in the folder in which Python finds this hpcrun
        leave_running(
            program,
            cwd=Path(__file__).resolve().parents[3],
            log=RunFolder(late[0].folder).messages("log"),
        )


def _is_late(item: RunStatus, now_s: float) -> bool:
    notify = notify_of(item.run)
    status = item.status
    if notify is None or item.elsewhere:
        return False
    if status.final and now_s - status.asked_s > END_IS_NEWS_S:
        return False
    events = due_events(item, notify, now_s)
    changed_s = 0.0
    for attempt in last_attempts(item.folder):
        attempt_s = attempt.exit.ended_s if attempt.exit else attempt.started_s
        changed_s = max(changed_s, attempt_s)
    # the records say when the job started or ended
    if not events or now_s - changed_s < JOB_FIRST_S:
        return False
    to: Sequence[str] = notify.to
    if not status.final and STARTED in notify.events and WAITING not in events:
        # the others were reached by the job itself, which goes on
        to = unclaimed(item.folder, STARTED, to)
    return any(unclaimed(item.folder, event, to) for event in events)


def _is_untried(folder: Path) -> bool:
    """Return whether no other command has just tried to send the messages.

    A try takes a second of a CPU, and may send nothing.
    """
    tried = RunFolder(folder).messages("tried")
    try:
        if time.time() - tried.stat().st_mtime < TRIED_FOR_S:
            return False
    except OSError:
        pass
    with suppress(OSError):
        tried.touch(0o600)
        return True
    return False


class NotifyHooks(Hooks):
    """The hooks of messages."""

    def check_destination(self, to: str, env: Mapping[str, str]) -> None:
        """Refuse a destination that apprise does not know."""
        # apprise takes longer to import than all the rest
        from hpcrun.features.notify.send import servers_of

        servers_of(to, env)

    def on_status(self, items: Sequence[RunStatus], runs: Path, now_s: float) -> None:
        """Send the messages that jobs could not send themselves."""
        send_late(items, runs, now_s)

    def run_rows(self, item: RunStatus) -> Sequence[tuple[str, str]]:
        """Return what became of a run's messages."""
        results = deliveries(item.folder, time.time())
        return [("messages", line) for line in delivery_lines(results)]

    def run_json(self, item: RunStatus) -> list[dict[str, Any]]:
        """Return what became of a run's messages."""
        return [each.as_json() for each in deliveries(item.folder, time.time())]
