"""Decide why an attempt ended, whether another one follows, and the exit status.

Nothing here reads a file or asks Slurm by itself: the facts and the two questions are arguments.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..records import (
    NODE_FAILURE,
    OVER,
    REQUEUE,
    RESTART,
    TERM_STATUS,
    TERMINATED,
    TIME_LIMIT,
    first_failed,
)

if TYPE_CHECKING:
    from ..slurm_requests import JobSays

STOPPED_STATUS = 124
"""Stopped, and not completed, which status 0 would mean. 124 is the exit status of timeout(1)."""
OWN_END = ""
CANCELLED = "cancelled"
FAILURE = "failure"
PREEMPTION = "preemption"
REQUEUED = "requeued"
IDLE = "idle"


@dataclass(frozen=True)
class Ended:
    """The facts about an attempt whose ranks have ended, or are no longer waited for.

    Attributes:
        status: exit status of the step, 128 + n for signal n.
        exits: the ranks' exit records.
        nodes: those of the nodes, whose launcher may fail before it has ranks.
        signalled: this process got SIGTERM: scancel, the time limit, the end of a preemption's
            grace time.
        stop: why the ranks were asked to stop.
        cancelled: hpcrun cancel has left a mark.
        was_preempted: a node has recorded Slurm's preemption in time.
        given_up: ranks continued after the grace time of a warning, or of the end of idle GPUs.
        requeues: how often Slurm had requeued the job when this attempt began.
        silent: this process has ended the step because of nodes without a heartbeat.
        idle: this process has ended the step because all GPUs were idle.
        with_returned: this attempt had a node on which the attempt before was lost.
        unrecorded: a node has started ranks, and none of them has left a record of its end.
    """

    status: int
    exits: tuple[dict[str, Any], ...] = ()
    signalled: bool = False
    stop: frozenset[str] = frozenset()
    cancelled: bool = False
    was_preempted: bool = False
    given_up: bool = False
    requeues: int = 0
    silent: bool = False
    idle: bool = False
    with_returned: bool = False
    nodes: tuple[dict[str, Any], ...] = ()
    unrecorded: bool = False

    @property
    def first_failed(self) -> dict[str, Any] | None:
        """The record of the rank that failed first, or, if no rank did, of the node."""
        return first_failed(self.exits) or first_failed(self.nodes)

    @property
    def by_returned_node(self) -> bool:
        """Return whether a returning node ended the step.

        The node did so by its remains of the job, or refused to start the step.
        """
        return self.with_returned and self.status != 0 and first_failed(self.exits) is None

    @property
    def warned(self) -> bool:
        """Whether the ranks were warned of the time limit."""
        return TIME_LIMIT in self.stop

    @property
    def lost_ranks(self) -> bool:
        """Whether Slurm has terminated ranks of a step that ended with status 0.

        srun may end with that status if it loses a node.
        """
        if self.status != 0:
            return False
        return any(record["status"] and record.get("told") == "TERM" for record in self.exits)

    @property
    def terminated(self) -> bool:
        """Whether this process, a node or a rank got SIGTERM."""
        return self.signalled or TERMINATED in self.stop or self.lost_ranks

    @property
    def done_anyway(self) -> bool:
        """Whether the ranks completed, and none of them knew of a request to stop."""
        if self.status != 0 or self.given_up or self.lost_ranks:
            return False
        return not any(record.get("heard") for record in self.exits)


@dataclass(frozen=True)
class Rules:
    """The limits from the plan.

    Attributes:
        times: how often the job may be requeued.
        restarts: how often it may be restarted in its allocation, in all.
        on_failure: a failure of the program is also a reason.
    """

    times: int = 0
    restarts: int = 0
    on_failure: bool = False


def why_it_ended(ended: Ended, ask: Callable[[], JobSays], dead: Callable[[], list[str]]) -> str:
    """Return why an attempt ended; the empty string if its ranks completed.

    Args:
        ended: what is known of the end of the attempt.
        ask: returns what Slurm reports of the job; called only if necessary.
        dead: returns the nodes that do not respond; called only if necessary.
    """
    if ended.silent and not ended.signalled:
        return NODE_FAILURE
    if ended.idle and not ended.signalled:
        return OWN_END if ended.done_anyway else IDLE
    if ended.terminated:
        return _why_terminated(ended, ask, dead)
    if ended.warned:
        return OWN_END if ended.done_anyway else TIME_LIMIT
    if ended.status == 0:
        return _why_unrecorded(ended, ask, dead) if ended.unrecorded else OWN_END
    if ended.by_returned_node or dead():
        return NODE_FAILURE
    return FAILURE


def _why_unrecorded(ended: Ended, ask: Callable[[], JobSays], dead: Callable[[], list[str]]) -> str:
    """Return why a step ended with status 0, although a node has no record of its ranks' end.

    srun may end with status 0 if it loses a node: Slurm knows whether it has lost one.
    """
    answer = ask()
    if answer.was_requeued_after(ended.requeues):
        return _why_requeued(ended, dead)
    if answer.state == "NODE_FAIL" or answer.reason == "NodeDown":
        return NODE_FAILURE
    return OWN_END


def _why_terminated(ended: Ended, ask: Callable[[], JobSays], dead: Callable[[], list[str]]) -> str:
    """Return the reason of a SIGTERM: cancelled, preempted, requeued or the time limit.

    Only Slurm knows the reason. While a job ends, scontrol shows only COMPLETING instead of its
    state. An unknown reason counts as cancelled: a job that a user has cancelled must not run
    again.
    """
    if ended.cancelled:
        return CANCELLED
    answer = ask()
    if not answer.state:
        return TERMINATED  # Slurm does not respond, and cannot requeue
    if answer.state == "RUNNING":
        return _why_while_running(ended, answer, dead)
    if answer.was_requeued_after(ended.requeues):
        return _why_requeued(ended, dead)
    if answer.state == "TIMEOUT" or answer.reason == "TimeLimit":
        return TIME_LIMIT
    if answer.state == "NODE_FAIL" or answer.reason == "NodeDown":
        return NODE_FAILURE
    if answer.state == "PREEMPTED":
        return PREEMPTION
    return CANCELLED


def _why_while_running(ended: Ended, answer: JobSays, dead: Callable[[], list[str]]) -> str:
    """Return the reason of a SIGTERM after which Slurm still reports the job as running."""
    if ended.was_preempted or answer.preempted:
        return OWN_END if ended.done_anyway else PREEMPTION
    if answer.was_requeued_after(ended.requeues):
        return NODE_FAILURE  # the job runs elsewhere, and this node has returned
    if ended.by_returned_node or dead():
        return NODE_FAILURE
    if ended.warned:
        return OWN_END if ended.done_anyway else TIME_LIMIT
    return TERMINATED


def _why_requeued(ended: Ended, dead: Callable[[], list[str]]) -> str:
    """Return why Slurm has requeued the job, by itself or by scontrol."""
    if ended.was_preempted:
        return PREEMPTION
    if dead():
        return NODE_FAILURE
    if ended.warned:
        return TIME_LIMIT  # Lightning calls scontrol requeue at the warning
    return REQUEUED


def allows_another_attempt(why: str, rules: Rules) -> bool:
    """Return whether a job may continue after an attempt that ended for this reason."""
    if why == FAILURE:
        return rules.on_failure
    return why not in (OWN_END, CANCELLED, TERMINATED, IDLE)


def what_next(why: str, rules: Rules, *, requeues: int, restarts: int, enough: bool) -> str:
    """Return how the job continues: ``RESTART``, ``REQUEUE``, or ``OVER``.

    Args:
        why: the reason for which the attempt ended.
        rules: when and how often the job may continue.
        requeues: how often the job has been requeued before.
        restarts: how often the job has been restarted before.
        enough: the allocation has as many nodes left as the job needs.
    """
    if not allows_another_attempt(why, rules):
        return OVER
    if why in (FAILURE, NODE_FAILURE) and restarts < rules.restarts and enough:
        return RESTART
    if requeues < rules.times:
        return REQUEUE
    return OVER


def why_not_continued(why: str, rules: Rules, *, obstacle: str) -> str:
    """Return why an interrupted job does not continue; empty if it was not requested to.

    Args:
        why: the reason for which the attempt ended.
        rules: when and how often the job may continue.
        obstacle: why a restart that the rules allow is not possible; empty if they allow none.
    """
    if not allows_another_attempt(why, rules):
        return ""
    obstacles = {}  # what the job is not → why
    if rules.restarts and why in (FAILURE, NODE_FAILURE):
        obstacles["restarted"] = obstacle or f"--restarts {rules.restarts} is used up"
    if rules.times:
        obstacles["requeued"] = f"--requeue {rules.times} is used up"
    if not obstacles:
        return ""
    return f"not {' or '.join(obstacles)}: {', '.join(obstacles.values())}"


def final_status(ended: Ended, why: str, rules: Rules) -> int:
    """Return the exit status of the job: the status of what failed first.

    The status is 128 + n if signal n ended what failed first.
    """
    if ended.signalled or ended.lost_ranks:
        return TERM_STATUS
    if ended.status == 0 and why == NODE_FAILURE:
        return TERM_STATUS
    if ended.status == 0:
        stopped = why == IDLE or allows_another_attempt(why, rules)
        return STOPPED_STATUS if stopped else 0
    if why == IDLE:
        return TERM_STATUS
    if ended.first_failed:
        return int(ended.first_failed["status"])
    return ended.status
