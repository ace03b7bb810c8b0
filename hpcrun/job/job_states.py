"""The states of a job, and Slurm's reasons for a pending job in plain words.

The states are Slurm's own and the few that hpcrun adds.

Sources: job_state_codes.shtml and slurm/slurm.h for the states, src/common/job_state_reason.c
(job_reason_codes.shtml) for the reasons, 19.05 to 26.05. A state that is not in the table is shown
unchanged and never counts as final.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache, lru_cache
from math import inf

from hpcrun.errors import UsageError, did_you_mean
from hpcrun.job.text.units import table_rows

_TERMINAL = frozenset(
    "COMPLETED CANCELLED FAILED TIMEOUT NODE_FAIL PREEMPTED BOOT_FAIL DEADLINE "
    "OUT_OF_MEMORY".split()
)
_ACTIVE = frozenset(
    """
    PENDING RUNNING SUSPENDED COMPLETING CONFIGURING STAGE_OUT RESIZING SIGNALING STOPPED EXPEDITING
    REQUEUED REQUEUE_FED REQUEUE_HOLD SPECIAL_EXIT RESV_DEL_HOLD REVOKED
    """.split()
)
_WAITING = frozenset(
    "PENDING CONFIGURING REQUEUED REQUEUE_FED REQUEUE_HOLD SPECIAL_EXIT RESV_DEL_HOLD".split()
)

PENDING = "PENDING"
RUNNING = "RUNNING"
COMPLETING = "COMPLETING"
COMPLETED = "COMPLETED"
FAILED = "FAILED"
CANCELLED = "CANCELLED"
TIMEOUT = "TIMEOUT"
NODE_FAIL = "NODE_FAIL"
PREEMPTED = "PREEMPTED"
REVOKED = "REVOKED"  # another cluster of the federation runs the job: no end of the job

SUBMITTING = "SUBMITTING"  # sbatch was called, and no job is known yet
NOT_SUBMITTED = "NOT_SUBMITTED"  # sbatch was called, and there is no job
UNKNOWN = "UNKNOWN"  # neither Slurm nor the run's records know the end of the job

LAUNCH_FAILURE = "JobLaunchFailure"
"""squeue's reason of a job whose script did not start; on Slurm 22.05 also of one that a signal
ended."""
RESTARTED_HERE = "this machine was restarted"  # the reason of a local job's end

EXIT_ABORTED = 134
EXIT_KILLED = 137
EXIT_TERMINATED = 143
"""The exit statuses of a rank that SIGABRT, SIGKILL or SIGTERM ended: 128 + the number of the
signal.
"""

STATES = _TERMINAL | _ACTIVE | {SUBMITTING, NOT_SUBMITTED, UNKNOWN}


def base_state(text: str) -> str:
    """Return only the state from Slurm's text.

    The state of ``CANCELLED by 1000`` and ``CANCELLED+`` is CANCELLED.
    """
    words = text.split()
    return (words[0].rstrip("+").upper() if words else "") or UNKNOWN


def is_terminal(state: str) -> bool:
    """Return whether this state is final."""
    return state in _TERMINAL or state == NOT_SUBMITTED


def waits_to_start(state: str) -> bool:
    """Return whether a job in this state waits for its first or its next attempt."""
    return state in _WAITING


def is_silent(node_state: str) -> bool:
    """Return whether a node in this state of sinfo does not respond.

    Such a state is ``down``, or it ends with ``*``.
    """
    return node_state.lower().startswith("down") or node_state.endswith("*")


@dataclass(frozen=True, slots=True)
class JobInfo:
    """A scheduler's information on one job; ``None`` for what the scheduler does not report."""

    job_id: str
    state: str  # a state as :func:`base_state` returns it
    reason: str | None = None  # the scheduler's reason why it is pending, or why it ended
    elapsed_s: int | None = None  # seconds running and allowed
    limit_s: int | None = None
    hosts: str | None = None  # Slurm's node list, as text
    exit_status: int | None = None  # of the batch script
    signal: int | None = None
    # path of the script the job was submitted with, or the command line that submitted it
    script: str | None = None
    # when Slurm expects to start it while it is pending, in seconds since the epoch
    start_s: float | None = None
    # from the accounting database, which may list a job as running that the controller has lost
    archived: bool = False
    # when the scheduler was asked, in seconds since the epoch; records of the run may be newer
    asked_s: float = inf


def is_live(info: JobInfo | None) -> bool:
    """Return whether the scheduler itself lists the job as not ended.

    Such a job can be cancelled or entered.
    """
    return info is not None and not info.archived and not is_terminal(info.state)


@dataclass(frozen=True, slots=True)
class Reason:
    """Why a job is pending."""

    short: str  # a few words for a table
    advice: str  # what to do, as a sentence
    is_final: bool  # the job never starts as it is


@dataclass(frozen=True, slots=True)
class OverLimit:
    """A limit that a pending job alone is over: it never starts as it is."""

    holder: str  # ``QOS short``, ``account lab``, or ``account lab, you``
    what: str  # Slurm's name of the resource: ``gres/gpu``, ``cpu minutes``; memory is in MB
    requested: float
    allowed: float
    whose: str  # whose jobs count: ``you``, or ``all its users``

    @property
    def reason(self) -> Reason:
        """Why the job is pending, in place of Slurm's reason."""
        name, _, per = self.what.partition(" ")
        resource = _RESOURCE_WORDS.get(name, name)
        if name.startswith("gres/gpu:"):
            resource = f"{name.removeprefix('gres/gpu:')} GPUs"
        if per:
            resource += f" x {per}"
        holder = self.holder.removesuffix(", you")
        whose = f"for {self.whose} together"
        if self.whose == "you":
            whose = "per user"
        short = f"requests {self.requested:g} {resource}, {holder} allows {self.allowed:g} {whose}"
        option = "--account"
        if holder.startswith("QOS"):
            option = "--qos"
        advice = f"It will never start: request less, or use another {option}."
        return Reason(short, advice, True)


_RESOURCE_WORDS = {
    "gres/gpu": "GPUs",
    "cpu": "CPUs",
    "mem": "MB of memory",
    "node": "nodes",
}


def is_limit(reason: str) -> bool:
    """Return whether a reason is a limit that running jobs, or the job alone, may have reached."""
    known = explain_reason(reason)
    is_known = known is not None and known.is_final
    return not is_known and reason.startswith(("QOSMax", "QOSGrp", "Assoc"))


def parse_states(given: list[str]) -> set[str]:
    """Return the states that the user has asked for.

    Raises:
        UsageError: if a state is unknown.
    """
    wanted = {state.strip().upper() for item in given for state in item.split(",") if state.strip()}
    for state in sorted(wanted - STATES):
        hint = did_you_mean(state, sorted(STATES), ", ".join(sorted(STATES)))
        raise UsageError(f"--state {state}: no such state", hint=hint)
    return wanted


# The first pattern that matches the whole of Slurm's word decides. Pattern | in short | never, for
# a job that never starts as it is | what to do
_REASONS = """
None|Reason | not scheduled yet | Wait about a minute: Slurm has not scheduled it yet.
Priority | other jobs have a higher priority | \
  Wait. A shorter --time helps backfill start it sooner; `sprio -j JOB` shows its priority.
Resources | next in the queue, waiting for free resources | \
  Wait, or ask for fewer nodes; `sinfo -R` shows drained and down nodes; \
  `hpcrun where` compares profiles.
Dependency | waits for another job | Wait for it; `hpcrun status --verbose` names it.
DependencyNeverSatisfied | its dependency can never be satisfied | never | \
  cancel it, and submit it again with another --after.
BeginTime | before its begin time | Wait: a requeued job starts after about two minutes.
JobArrayTaskLimit | limited by --max-parallel | Wait, or raise --max-parallel.
Licenses | all licenses are in use | \
  Wait until licenses are free; `scontrol show lic` shows how many are left.
Prolog|Cleaning|SchedDefer|Schedule|SchedulingDefer|NodeDown|FrontEndDown|BurstBuffer.* | \
  Slurm is preparing or cleaning up nodes | \
  Wait; ask the administrators if it takes more than a few minutes.

JobHeldUser | held by you | `scontrol release JOB` lets it start.
job requeued in held state | requeued, and held by an administrator | \
  `hpcrun release JOB` lets it start, unless only an administrator may.
JobHeldAdmin | held by an administrator | Ask the administrators: only they can release it.
JobHoldMaxRequeue | requeued too often | See `hpcrun explain JOB`, then `scontrol release JOB`.
JobLaunchFailure|launch failed requeued held|.*RaisedSignal.* | \
  held: the launch on its nodes failed | \
  Tell the administrators which node it was, then `scontrol release JOB`.

ReqNodeNotAvail.*[Rr]eserved for maintenance.* | would overlap a maintenance window | \
  Use a --time that ends before the maintenance begins.
ReqNodeNotAvail.*|Nodes required for job are DOWN.* | \
  required nodes are down, drained or reserved | \
  Wait until they are back, or choose other nodes; `sinfo -R` shows why they are not available.
BadConstraints|Constraints | no node has the features of --constraint | \
  `sinfo -o '%N %f'` shows the features of the nodes.
Reservation | its reservation has not begun | `scontrol show reservation` shows when it begins.
ReservationDeleted|ReservationInvalid|InvalidReservation | its reservation no longer exists | \
  Submit it again without --reservation, or with another.

PartitionTimeLimit | requests more time than the partition allows | never | \
  use a shorter --time, or another --partition (`sinfo -o '%P %l'`).
PartitionNodeLimit|PartitionConfig | requests more nodes than the partition allows | never | \
  use fewer --nodes, or another --partition (`scontrol show partition`).
PartitionDown|PartitionInactive | the partition is closed | \
  Choose another --partition, or ask the administrators.
AccountNotAllowed|InvalidAccount|QOSNotAllowed|InvalidQOS | its account or QOS may not run here | \
  `sacctmgr show assoc user=$USER` lists yours; submit it again with --account or --qos.

.*RunMinutes.* | your running jobs have the allowed time reserved | \
  Wait for them, or ask for a shorter --time.
.*(Minutes|Billing).* | the budget of the account or QOS is exhausted | \
  Request a larger budget, or use another --account; `sshare` shows it.
QOSMaxJobsPerUserLimit|MaxJobsPerUser|QOSMaxJobsPerUser | \
  you have reached the QOS limit of running jobs | \
  Wait for one of them, or use another --qos.
QOSMaxSubmitJobPerUserLimit | you have reached the QOS limit of submitted jobs | \
  Wait until one of them ends.
QOSMax.*PerUser.* | your running jobs have reached the QOS limit per user | \
  Wait for them, ask for fewer GPUs, CPUs or less memory, or use another --qos.
QOSMaxWallDurationPerJobLimit | requests more time than the QOS allows per job | never | \
  use a shorter --time, or another --qos.
QOSMax.*Per(Job|Node).*|QOSMaxNodePerJobLimit | requests more than the QOS allows per job | \
  never | \
  request less, or use another --qos (`sacctmgr show qos`).
QOSMin.* | requests less than the QOS requires | Use another --qos: this one is for larger jobs.
QOSGrp.* | all users of the QOS together have reached its limit | \
  Wait for their jobs, or use another --qos.
QOS.* | a limit of the QOS | \
  `sacctmgr show qos` shows the limits; wait for your other jobs or ask for less.
Assoc(iation)?Grp.* | the jobs of your account have reached its limit | \
  Wait for them, or use another --account.
AssocMaxWall.*|AssocMax.*PerJob.* | requests more than your account allows per job | never | \
  request less.
Assoc.*|Max.*PerAccount.*|AccountingPolicy|Association.* | a limit of your account | \
  `sacctmgr show assoc user=$USER` shows the limits; wait for your other jobs or ask for less.
MaxMemPerLimit | requests more memory than is allowed | never | use a smaller --mem.
DeadLine | cannot end before its deadline | never | submit it again without --deadline.
NvidiaImexChannels|MpiPortsBusy | ports or channels of the nodes are used up | \
  Wait; ask the administrators if it takes long.
"""


@cache
def _reasons() -> list[list[str]]:
    return table_rows(_REASONS)


@lru_cache(maxsize=256)  # the pending elements of a sweep have the same one
def explain_reason(reason: str) -> Reason | None:
    """Return the meaning of Slurm's reason, None for an unknown reason."""
    for pattern, short, *never, advice in _reasons():
        if re.fullmatch(pattern, reason):
            return Reason(short, f"It will never start: {advice}" if never else advice, bool(never))
    return None
