"""Messages that a job could not send: the next command that asks for the run's status sends them, in the background."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path

from hpcrun.actions.jobs.new_run import sender_folder
from hpcrun.actions.status.run_status import RunStatus
from hpcrun.features.notify.due import END_IS_NEWS_S, due_events, notify_of
from hpcrun.features.notify.messages import unclaimed
from hpcrun.job.layout import RunFolder
from hpcrun.job.notify import STARTED, WAITING
from hpcrun.runs.attempt import last_attempts
from hpcrun.schedulers.process import leave_running

TRIED_FOR_S = 120.0
"""After an attempt to send the messages of a run, no other one begins for so long."""
LOOK_AGAIN_S = 30.0
"""How often a process looks at the records of a run."""
JOB_FIRST_S = 30.0
"""The job itself has so long to send the message about its start or its end."""

MOST_AT_ONCE = 50
_LOOKED: dict[str, float] = {}
"""Run id → when this process last looked at its records."""


def send_late(items: Sequence[RunStatus], runs: Path, now_s: float) -> None:
    """Start a process that sends the messages of these runs that are due and that nobody has sent.

    Args:
        runs: the runs folder.
    """
    late_ones = (
        item for item in items if _is_worth_a_look(item, now_s) and _is_late(item, now_s) and _is_untried(item.folder)
    )
    late = list(islice(late_ones, MOST_AT_ONCE))
    if not late:
        return
    here = ("env", f"HPCRUN_RUNS={runs.absolute()}")
    program = [*here, sys.executable, "-m", "hpcrun", "notify", "--known", *(item.run.run_id for item in late)]
    with suppress(OSError):
        leave_running(program, cwd=sender_folder(), log=RunFolder(late[0].folder).messages("log"))


def _is_worth_a_look(item: RunStatus, now_s: float) -> bool:
    """Whether the records of a run are worth a look now: hpcrun top asks for thousands of runs every few seconds."""
    run_id, status = item.run.run_id, item.status
    if item.elsewhere or (status.final and now_s - status.asked_s > END_IS_NEWS_S):
        return False
    if now_s - _LOOKED.get(run_id, -LOOK_AGAIN_S) < LOOK_AGAIN_S:
        return False
    _LOOKED[run_id] = now_s
    return True


def _is_late(item: RunStatus, now_s: float) -> bool:
    notify = notify_of(item.run)
    if notify is None:
        return False
    events = due_events(item, notify, now_s)
    if not events or now_s - _changed_s(item) < JOB_FIRST_S:
        return False
    to: Sequence[str] = notify.to
    if not item.status.final and STARTED in notify.events and WAITING not in events:
        to = unclaimed(item.folder, STARTED, to)  # the others were reached by the job itself, which goes on
    return any(unclaimed(item.folder, event, to) for event in events)


def _changed_s(item: RunStatus) -> float:
    """Return when the job of a run last started or ended by its records; 0 if it never did."""
    newest = last_attempts(item.folder)
    return max((attempt.exit.ended_s if attempt.exit else attempt.started_s for attempt in newest), default=0.0)


def _is_untried(folder: Path) -> bool:
    """Whether no other command has just tried: a try takes a second of a CPU, and may send nothing."""
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
