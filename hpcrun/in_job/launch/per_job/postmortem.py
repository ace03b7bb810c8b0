"""Why an attempt of this job ended: the facts for why_ended.py, and the questions to Slurm."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from .. import records, slurm_requests
from ..slurm_requests import JobSays
from .why_ended import FAILURE, OWN_END, Ended, why_it_ended

if TYPE_CHECKING:
    from .job_arguments import JobOptions
    from .job_nodes import JobNodes
    from .step_monitor import StepMonitor


class Postmortem:
    """The examination of an attempt at its end.

    Args:
        options: the options of the job.
        nodes: the nodes of the job.
        monitor: the watch over the step.
        requeues: how often Slurm had requeued the job when this process began.
    """

    def __init__(
        self, options: JobOptions, nodes: JobNodes, monitor: StepMonitor, requeues: int
    ) -> None:
        self._options = options
        self._nodes = nodes
        self._monitor = monitor
        self._requeues = requeues

    def facts(self, status: int) -> Ended:
        """Return the facts about the attempt, whose step ended with this status."""
        stop = set(records.stop_reasons())
        if self._options.is_local and self._monitor.given_up:
            # the nodes of this machine get their SIGTERM from here, and may have noted it already
            stop.discard(records.TERMINATED)
        preempted = os.path.join(records.attempt_dir(), "preempted")
        exits = tuple(records.exits())
        return Ended(
            status,
            exits=exits,
            nodes=tuple(records.exits("node")),
            signalled=self._monitor.signalled,
            stop=frozenset(stop),
            cancelled=_is_cancelled(),
            was_preempted=os.path.exists(preempted),
            given_up=self._monitor.given_up,
            requeues=self._requeues,
            silent=bool(self._monitor.heartbeats.dead),
            idle=bool(self._monitor.idle_message),
            with_returned=not set(self._nodes.hosts).isdisjoint(records.lost_nodes()),
            unrecorded=not records.started_nodes() <= {record["node"] for record in exits},
        )

    def why_if_needed(self, ended: Ended) -> str:
        """Return why the attempt ended; the empty string if nothing depends on the reason."""
        if self._options.is_managed or ended.idle:
            return self.why(ended)
        if self._options.in_slurm and (ended.terminated or ended.unrecorded):
            return self.why(ended)
        return OWN_END

    def why(self, ended: Ended) -> str:
        """Return why the attempt ended; the empty string if its ranks completed."""
        return why_it_ended(ended, self._ask_slurm, self._dead_nodes)

    def failed_nodes(self, why: str, ended: Ended) -> list[str]:
        """Return the nodes on which the attempt has failed."""
        if why == FAILURE and ended.first_failed:
            return [str(ended.first_failed["node"])]
        if why == records.NODE_FAILURE:
            return self._dead_nodes()
        return []

    def _ask_slurm(self) -> JobSays:
        if not self._options.in_slurm:
            return JobSays("COMPLETING")  # a SIGTERM is then from a user
        return slurm_requests.job()

    def _dead_nodes(self) -> list[str]:
        if self._options.is_local:
            return []
        return self._monitor.heartbeats.look_closer(self._nodes.hosts)


def _is_cancelled() -> bool:
    """Return whether hpcrun cancel has left a mark for the run, or for this element of a sweep.

    A mark from before this attempt is about an earlier attempt, after whose end Slurm has requeued
    the job.
    """
    run = os.environ["HPCRUN_RUN_DIR"]
    element = os.path.join(run, "elements", os.environ["HPCRUN_ELEMENT"])
    marked_s = max(_changed_s(os.path.join(folder, "cancelled")) for folder in (run, element))
    begun_s = _changed_s(os.path.join(records.attempt_dir(), "start"))
    return marked_s > 0 and marked_s >= begun_s


def _changed_s(path: str) -> float:
    """Return when a file was written, in seconds since the epoch; 0 if it does not exist."""
    try:
        return os.stat(path).st_mtime
    except OSError:
        return 0.0
