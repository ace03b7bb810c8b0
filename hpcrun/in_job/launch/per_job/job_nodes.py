"""The nodes of a job: those of its allocation, those of the step, those that are left out."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

from .. import slurm_requests
from .dead_nodes import next_nodes

if TYPE_CHECKING:
    from .job_arguments import JobOptions


class JobNodes:
    """The nodes of this job, and the choice of those that run the step.

    Attributes:
        hosts: the nodes of the step.
        left_out: the nodes that are not used any more, since they failed or start no step.
    """

    def __init__(self, options: JobOptions) -> None:
        self.hosts: list[str] = []
        self.left_out: list[str] = []
        self._allotted: list[str] = []
        self._options = options

    @property
    def script_host(self) -> str:
        """The node of the batch script."""
        return self._allotted[0]

    def set_hosts(self) -> None:
        """Set the nodes of the first step; ``set_restart_hosts`` has set those of a later one."""
        options = self._options
        if options.nodes is not None:
            names = [options.within or f"local-{number}" for number in range(options.nodes)]
            self._allotted = names
            self.hosts = names
            return
        if not self._allotted:
            self._allotted = slurm_requests.expand(os.environ["SLURM_JOB_NODELIST"])
        if not self.hosts:
            self.hosts = self._allotted[: len(self._allotted) - options.spares]
        if options.spares:
            # the GPUs of all nodes: srun would request them on fewer nodes
            os.environ.pop("SLURM_GPUS", None)

    def set_restart_hosts(self, nodes: list[str], last_resort: list[str]) -> bool:
        """Set the nodes of the next attempt; leave the nodes as they are if there are too few.

        Args:
            nodes: the nodes that Slurm counts to the job now.
            last_resort: the nodes that are left out, but are used rather than too few.

        Returns:
            Whether there are as many nodes as before.
        """
        needed = len(self.hosts)
        chosen = next_nodes(nodes, self.hosts, self.left_out)
        if len(chosen) < needed and last_resort:
            self.left_out = [node for node in self.left_out if node not in last_resort]
            chosen = next_nodes(nodes, self.hosts, self.left_out)
        if len(chosen) < needed:
            return False
        self.hosts = chosen
        return True

    def guard_hosts(self) -> list[str]:
        """Return the nodes that can watch the node of the batch script, the preferred one first."""
        unusable = {self.script_host, *self.left_out}
        hosts = dict.fromkeys((*self.hosts, *self._allotted))
        return [host for host in hosts if host not in unusable]

    def place(self, command: list[str], *, is_restart: bool) -> list[str]:
        """Return the command of the step, with the names of its nodes where srun needs the names.

        Args:
            command: the command of the step.
            is_restart: the allocation had a step before.
        """
        if self._options.is_local or self._options.script:
            return command
        if self.hosts == self._allotted and not is_restart:
            return command
        return [command[0], f"--nodelist={','.join(self.hosts)}", "--overlap", *command[1:]]


def ask_nodes(requeues: int) -> tuple[list[str], str]:
    """Return the nodes that Slurm counts to this job now, and why there are none.

    Args:
        requeues: how often Slurm had requeued the job when this attempt began.

    Returns:
        The nodes, and the empty string. Or no nodes, if Slurm has ended the job, has requeued it
        while this node had no network, or does not respond.
    """
    for pause_s in range(1, slurm_requests.TRIES + 1):
        job = slurm_requests.job()
        if job.was_requeued_after(requeues):
            return [], "Slurm has requeued the job"
        if job.state == "RUNNING" and job.nodes:
            return slurm_requests.expand(job.nodes), ""
        if job.state:
            return [], f"Slurm reports the job as {job.state}"
        time.sleep(pause_s)
    return [], "Slurm does not respond"
