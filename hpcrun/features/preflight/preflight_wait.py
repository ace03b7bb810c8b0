"""preflight: wait for a job that checks its nodes, and tell which of them are bad.

This works whatever became of the job.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from hpcrun.actions.ports import Ports
from hpcrun.actions.runs.cancel import cancel_runs
from hpcrun.actions.status.run_status import RunStatus
from hpcrun.actions.status.status_query import one_status
from hpcrun.errors import JobFailedError, NotFoundError
from hpcrun.files.reading import read_object
from hpcrun.in_job.preflight.judge import judge, read_reports
from hpcrun.job import job_states
from hpcrun.job.job_states import is_silent
from hpcrun.runs.attempt import Attempt, last_attempt

_MOST_VERDICT = 32 << 20  # bytes of the verdict: each pair of a thousand nodes has a line
NAME = "preflight"
WALLTIME_S = 300  # half a minute of checks, and what modules and set-up commands take
LOOK_EVERY_S = 0.3
# how often the scheduler is asked; there is one such job, and somebody waits for it
ASK_EVERY_S = 3.0
# how long the script may take to start before Slurm is asked whether the job's nodes answer
SILENT_AFTER_S = 10.0
JUDGED_WITHIN_S = 60.0
"""How long a script that has started may take before Slurm is asked whether its nodes still answer.
"""
SETTLES_S = 2.0  # how long the records of a job that has ended may be behind one another
SHOWN_WITHIN_S = 60.0
"""How long NFS may hide a verdict that has been written: it remembers for a while that there was
none (acdirmax).
"""
AWAY_TIMES = 3  # how often the scheduler may not answer


PreflightResult = tuple[RunStatus, dict[str, Any]]
"""The run with how it ended, and the verdict that ``in_job/preflight/judge.py`` has written, or
would have.
"""


class PreflightWatch:
    """Waits for one preflight."""

    def __init__(self, run_id: str, ports: Ports, tell: Callable[[str], None]) -> None:
        self._run_id = run_id
        self._ports = ports
        self._tell = tell
        self._folder = ports.store.folder(run_id)
        self._last_state = ""
        self._away = 0

    def wait(self) -> PreflightResult:
        """Wait until the nodes are judged, and tell what the job does, whenever that changes.

        Raises:
            JobFailedError: the job ended before that, for another reason than its nodes.
            SchedulerError: the scheduler is away.
        """
        item = self._ask()
        runs_since = None
        ended_at = None
        asked_at = time.monotonic()
        while True:
            attempt = last_attempt(self._folder)
            verdict = _verdict(attempt)
            if verdict:
                return item, verdict
            now = time.monotonic()
            if item.status.final or (attempt is not None and attempt.exit is not None):
                ended_at = ended_at or now
                patience_s = SHOWN_WITHIN_S if _has_judged(item, attempt) else SETTLES_S
                if now - ended_at > patience_s:
                    return self._judge_here(self._ask(), attempt)
            if item.status.state == job_states.RUNNING and runs_since is None:
                runs_since = now
            if now - asked_at > ASK_EVERY_S:
                running_s = now - runs_since if runs_since is not None else 0.0
                if self._is_stuck(item, attempt, running_s):
                    return self._give_up(item, attempt)
                item = self._ask()
                asked_at = time.monotonic()
            time.sleep(LOOK_EVERY_S)

    def cancel(self) -> str:
        """End the job, and return what the scheduler's list then says: was or is being cancelled.

        Raises:
            SchedulerError: the scheduler refuses or is away, or lists the job as before.
            NotFoundError: the scheduler lists no such job.
        """
        cancellation = cancel_runs([self._get()], self._ports)
        cancellation.check()
        if any(cancelled.seen == "ending" for cancelled in cancellation.runs):
            return "is being cancelled"
        return "was cancelled"

    def _get(self) -> RunStatus:
        result = one_status(self._run_id, self._ports)
        if result.away is None:
            self._away = 0
            return result.runs[0]
        self._away += 1
        if self._away >= AWAY_TIMES:
            raise result.away
        return result.runs[0]

    def _ask(self) -> RunStatus:
        item = self._get()
        status = item.status
        state_text = status.state
        if status.hosts:
            state_text += f" on {status.hosts}"
        elif status.reason:
            state_text += f" ({status.reason})"
        if state_text != self._last_state:
            self._last_state = state_text
            self._tell(state_text)
        return item

    def _states(self, item: RunStatus) -> dict[str, str]:
        hosts = item.status.hosts
        if hosts:
            return self._ports.schedulers(item.run.scheduler).node_states(hosts)
        return {}

    def _is_stuck(self, item: RunStatus, attempt: Attempt | None, running_s: float) -> bool:
        """Whether nothing more will come: the node of the script is gone.

        All else ends at the job's time limit.
        """
        patience_s = SILENT_AFTER_S if attempt is None else JUDGED_WITHIN_S
        if running_s < patience_s:
            return False
        return any(map(is_silent, self._states(item).values()))

    def _give_up(self, item: RunStatus, attempt: Attempt | None) -> PreflightResult:
        try:
            return self._judge_here(item, attempt)
        finally:
            with suppress(NotFoundError):  # gone meanwhile
                done = self.cancel()
                self._tell(f"the job {done}: the preflight cannot finish")

    def _judge_here(self, item: RunStatus, attempt: Attempt | None) -> PreflightResult:
        """Judge a job that could not judge its nodes itself.

        What its nodes have written and what Slurm says of them decide this.

        Raises:
            JobFailedError: the job ended for a reason that is not in its nodes.
        """
        states = self._states(item)
        silent = {}
        for node, node_state in states.items():
            if is_silent(node_state):
                silent[node] = f"Slurm state {node_state.rstrip('*')}, not responding"
        reports = {}
        if attempt:
            reports = read_reports(attempt.folder.preflight, list(states))
        status = item.status
        if silent or (status.state == job_states.NODE_FAIL and reports):
            return item, judge(list(states), reports, srun_errors=silent)
        how = f"ended as {status.state}"
        if status.reason:
            how += f": {status.reason}"
        if attempt is not None and attempt.exit is not None and attempt.exit.message:
            how = f"failed: {attempt.exit.message}"
        job_id = item.run.job_id
        raise JobFailedError(
            f"the preflight job {job_id} {how}", hint=f"hpcrun logs --batch {job_id}"
        )


def _has_judged(item: RunStatus, attempt: Attempt | None) -> bool:
    """Whether the script has come to its verdict, as far as is known."""
    if attempt is None or attempt.exit is None:
        return item.status.state in (job_states.COMPLETED, job_states.FAILED)
    return attempt.exit.status == 0 or attempt.exit.message.startswith("preflight:")


def _verdict(attempt: Attempt | None) -> dict[str, Any] | None:
    if attempt is None:
        return None
    try:
        return read_object(attempt.folder.verdict, _MOST_VERDICT)
    except (OSError, ValueError):
        return None
