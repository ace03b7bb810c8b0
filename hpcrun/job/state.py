"""The states of a job: Slurm's own names, and the few that hpcrun adds.

Source: Slurm's job_state_codes.shtml and slurm/slurm.h, 19.05 to 26.05. A state that is not in the table is
shown unchanged and never counts as final.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

from hpcrun.errors import UsageError, nearest

_TERMINAL = frozenset(
    "COMPLETED CANCELLED FAILED TIMEOUT NODE_FAIL PREEMPTED BOOT_FAIL DEADLINE OUT_OF_MEMORY REVOKED".split()
)
_ACTIVE = frozenset(
    """
    PENDING RUNNING SUSPENDED COMPLETING CONFIGURING STAGE_OUT RESIZING SIGNALING STOPPED EXPEDITING
    REQUEUED REQUEUE_FED REQUEUE_HOLD SPECIAL_EXIT RESV_DEL_HOLD
    """.split()
)

COMPLETED = "COMPLETED"
COMPLETING = "COMPLETING"
FAILED = "FAILED"
CANCELLED = "CANCELLED"
TIMEOUT = "TIMEOUT"
NODE_FAIL = "NODE_FAIL"
PREEMPTED = "PREEMPTED"
PENDING = "PENDING"
RUNNING = "RUNNING"

SUBMITTING = "SUBMITTING"
"""sbatch was called, and no job is known yet."""
NOT_SUBMITTED = "NOT_SUBMITTED"
"""sbatch was called, and there is no job."""
UNKNOWN = "UNKNOWN"
"""Neither Slurm nor the run's records know the end of the job."""

EXIT_ABORTED, EXIT_KILLED, EXIT_TERMINATED = 134, 137, 143
"""The exit statuses of a rank that SIGABRT, SIGKILL or SIGTERM ended: 128 + the number of the signal."""

STATES = _TERMINAL | _ACTIVE | {SUBMITTING, NOT_SUBMITTED, UNKNOWN}


def base_state(text: str) -> str:
    """Return only the state from Slurm's text: ``CANCELLED by 1000`` and ``CANCELLED+`` are CANCELLED."""
    words = text.split()
    return (words[0].rstrip("+").upper() if words else "") or UNKNOWN


def is_terminal(state: str) -> bool:
    """Return whether this state is final."""
    return state in _TERMINAL or state == NOT_SUBMITTED


def is_silent(node_state: str) -> bool:
    """Return whether a node in this state of sinfo does not respond: ``down``, or a state that ends with ``*``."""
    return node_state.lower().startswith("down") or node_state.endswith("*")


@dataclass(frozen=True, slots=True)
class JobInfo:
    """A scheduler's information on one job; ``None`` for what the scheduler does not report.

    Attributes:
        state: a state as :func:`base_state` returns it.
        reason: the scheduler's reason why it is pending, or why it ended.
        elapsed_s, limit_s: seconds running and allowed.
        hosts: Slurm's node list, as text.
        exit_status, signal: of the batch script.
        script: path of the script the job was submitted with, or the command line that submitted it.
        start_s: when Slurm expects to start it while it is pending, in seconds since the epoch.
        archived: from the accounting database, which may list a job as running that the controller has lost.
        asked_s: when the scheduler was asked, in seconds since the epoch; records of the run may be newer.
    """

    job_id: str
    state: str
    reason: str | None = None
    elapsed_s: int | None = None
    limit_s: int | None = None
    hosts: str | None = None
    exit_status: int | None = None
    signal: int | None = None
    script: str | None = None
    start_s: float | None = None
    archived: bool = False
    asked_s: float = inf


def is_live(info: JobInfo | None) -> bool:
    """Return whether the scheduler itself lists the job as not ended, so that it can be cancelled or entered."""
    return info is not None and not info.archived and not is_terminal(info.state)


def parse_states(given: list[str]) -> set[str]:
    """Return the states that were asked for.

    Raises:
        UsageError: there is no such state.
    """
    wanted = {state.strip().upper() for item in given for state in item.split(",") if state.strip()}
    for state in sorted(wanted - STATES):
        close = nearest(state, sorted(STATES))
        raise UsageError(
            f"--state {state}: no such state",
            hint=f"did you mean {close}?" if close else ", ".join(sorted(STATES)),
        )
    return wanted
