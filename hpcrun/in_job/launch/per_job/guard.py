"""End or requeue a job with --no-kill if its first node fails.

The command is ``launch guard NODE REQUEUE|OVER``.

Slurm removes a failed node from such a job, ends the steps on this node, and keeps the job, even if
it was the node of the batch script: the job would then idle until its time limit. So one more step,
on another node, watches for this. It asks Slurm only if the node does not respond, or the job has
no heartbeat.
"""

from __future__ import annotations

import os
import signal
import time

from .. import records, slurm_requests
from ..processes import has_ended, launch_program, reap, send, try_start
from ..records import OVER
from .dead_nodes import answers
from .exit_record import write_exit

LOOK_S = 10.0
ASK_S = 30.0
NO_HEARTBEAT_S = 75.0
"""The job has a heartbeat every 30 s."""
RENEW_S = 15.0
END_S = 2.0
"""The least time between two starts of a guard; and how long srun has to end it."""
_EXCLUDE = "HPCRUN_EXCLUDE_BAD"


class Guard:
    """The guard of a node, on another node, as a separate step.

    Args:
        node: the node that the guard watches.
        hosts: the nodes that may run the guard, one at a time.
        how: whether the job is requeued or ends.
        exclude: the failed node is not used again.
    """

    def __init__(self, node: str, *, hosts: list[str], how: str, exclude: bool) -> None:
        self._node = node
        self._hosts = hosts
        self._how = how
        self._exclude = exclude
        self._srun = 0
        self._starts = 0
        self._start_at = 0.0
        self._look_at = 0.0

    def renew(self, now: float) -> None:
        """Start the guard, or start it again if it has ended: it was killed, or its node failed."""
        if now < self._start_at or not self._hosts:
            return
        if self._srun and not has_ended(self._srun):
            return
        if self._srun:
            reap(self._srun)
        self._start_at = now + RENEW_S
        # another node than the one where it has ended
        step, env = slurm_requests.small_step(self._hosts[self._starts % len(self._hosts)])
        self._starts += 1
        if self._exclude:
            env[_EXCLUDE] = "1"
        log = os.path.join(records.attempt_dir(), "guard.log")
        step += ["--job-name=guard", "--export=ALL", *launch_program(), "guard"]
        self._srun, _ = try_start([*step, self._node, self._how], env, out=log, err=log)

    def has_acted(self, now: float) -> bool:
        """Whether the guard has ended or requeued the job, which Slurm may not have told this node.

        The exit record shows it: this process writes the record later.
        """
        if now < self._look_at:
            return False
        self._look_at = now + LOOK_S
        return bool(records.read_text("exit"))

    def end(self) -> None:
        """End it with its srun, which may not return if this node has no network."""
        if not self._srun:
            return
        send(self._srun, signal.SIGTERM)
        until = time.monotonic() + END_S
        while not has_ended(self._srun) and time.monotonic() < until:
            time.sleep(0.02)
        send(self._srun, signal.SIGKILL)
        reap(self._srun)
        self._srun = 0
        self._hosts = []


def main(arguments: list[str]) -> int:
    """Watch the job until the node of its script has failed, or its attempt has ended."""
    node, how = arguments
    beat = ""
    changed_at = time.monotonic()
    ask_at = 0.0
    while not records.read_text("exit"):
        time.sleep(LOOK_S)
        now = time.monotonic()
        heartbeat = records.read_text("heartbeat")
        if heartbeat != beat:
            beat = heartbeat
            changed_at = now
        if now <= ask_at:
            continue
        if now - changed_at > NO_HEARTBEAT_S or not answers(node):
            ask_at = now + ASK_S
            job = slurm_requests.job()
            if job.state == "RUNNING" and job.lost_its_script:
                return _end(job.batch_host, how)
    return 0


def _end(node: str, how: str) -> int:
    """End or requeue the job, whose node has failed; return 0."""
    message = ""
    if how == OVER:
        message = (
            "the node of the batch script failed, and --requeue does not allow another attempt"
        )
    write_exit(
        records.TERM_STATUS,
        signalled=False,
        why=records.NODE_FAILURE,
        message=message,
        how=how,
        nodes=[node],
    )
    if how == OVER:
        problem = slurm_requests.cancel()
    else:
        problem = slurm_requests.requeue([node] if _EXCLUDE in os.environ else [])
    if problem:
        records.say(problem)
    return 0
