"""The states of a job: Slurm's own names, and the few hpcrun adds before and beside them.

Source: Slurm's job_state_codes.shtml and slurm/slurm.h, 19.05 to 26.05. A state that is not in the table is
shown as it came and never taken for the end.
"""

from __future__ import annotations

from dataclasses import dataclass

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
FAILED = "FAILED"
CANCELLED = "CANCELLED"
TIMEOUT = "TIMEOUT"
NODE_FAIL = "NODE_FAIL"
PREEMPTED = "PREEMPTED"
PENDING = "PENDING"
RUNNING = "RUNNING"

SUBMITTING = "SUBMITTING"
"""sbatch was called, and nothing is known yet of a job."""
NOT_SUBMITTED = "NOT_SUBMITTED"
"""sbatch was called, and no job came of it."""
UNKNOWN = "UNKNOWN"
"""Nobody who was asked knows what became of the job."""

STATES = _TERMINAL | _ACTIVE | {SUBMITTING, NOT_SUBMITTED, UNKNOWN}


def base_state(text: str) -> str:
    """Return the state alone from Slurm's text: ``CANCELLED by 1000`` and ``CANCELLED+`` are CANCELLED."""
    words = text.split()
    return (words[0].rstrip("+").upper() if words else "") or UNKNOWN


def is_terminal(state: str) -> bool:
    """Return whether a job in this state is over for good."""
    return state in _TERMINAL or state == NOT_SUBMITTED


def is_silent(node_state: str) -> bool:
    """Return whether a node in this state, as sinfo shows it, does not answer: ``down``, or with ``*`` behind it."""
    return node_state.lower().startswith("down") or node_state.endswith("*")


@dataclass(frozen=True, slots=True)
class JobInfo:
    """What a scheduler says of one job. ``None`` is what it does not say.

    Attributes:
        state: a state as :func:`base_state` returns it.
        reason: why it waits, or why it ended, in the scheduler's word.
        elapsed_s, limit_s: seconds running and allowed.
        hosts: Slurm's node list, as text.
        exit_status, signal: of the batch script.
        script: path of the script the job was submitted with, or the command line that submitted it.
        archived: said by the accounting database, which may take a job for running that the controller lost.
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
    archived: bool = False


def is_live(info: JobInfo | None) -> bool:
    """Return whether the scheduler itself lists a job that is not over: one that can be cancelled or entered."""
    return info is not None and not info.archived and not is_terminal(info.state)
