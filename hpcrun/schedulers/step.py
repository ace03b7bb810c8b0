"""Commands inside the allocation of a running job, beside its own ranks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hpcrun.schedulers.environment import clean_env
from hpcrun.schedulers.process import Completed, run_command, run_on_terminal

ANSWER_WITHIN_S = 20
"""srun would wait without limit for a node that does not respond."""


@dataclass(frozen=True, slots=True)
class Allocation:
    """The nodes of a running Slurm job.

    Attributes:
        nodes: their number.
        cpus_per_node: CPUs of the job, None if unknown: a step without a number of CPUs gets one.
    """

    job_id: str
    nodes: int
    cpus_per_node: int | None
    env: Mapping[str, str]

    def on_every_node(self, command: Sequence[str], within_s: int = ANSWER_WITHIN_S) -> Completed:
        """Run a command once on each node, and end it after some seconds."""
        step = step_command(self.job_id, nodes=self.nodes, cpus=None)
        # timeout sends SIGTERM, so that srun ends the step; after SIGKILL the step would stay
        argv = ["timeout", "--kill-after=2", str(within_s), *step, *command]
        return run_command(argv, timeout_s=within_s + 5, env=self._env())

    def shell(self, shell: Sequence[str], *, node: str | None, workdir: str | None, is_terminal: bool) -> int:
        """Open a shell on a node, by default the first; return its exit status.

        Raises:
            OSError: there is no srun.
        """
        argv = shell_command(self.job_id, node=node, cpus=self.cpus_per_node, workdir=workdir, is_terminal=is_terminal)
        return run_on_terminal([*argv, *shell], self._env())

    def _env(self) -> dict[str, str]:
        return clean_env(self.env)


def plain_job_id(job_id: str, env: Mapping[str, str]) -> str:
    """Return srun's id of a job: an element of an array, 123_4, also has a plain number (squeue(1), %A).

    If squeue does not show it, the id is returned unchanged.
    """
    if "_" not in job_id:
        return job_id
    argv = ["squeue", "--noheader", f"--jobs={job_id}", "--format=%A"]
    answer = run_command(argv, timeout_s=ANSWER_WITHIN_S, env=clean_env(env))
    found = answer.stdout.split()
    return found[0] if answer.ok and len(found) == 1 and found[0].isdigit() else job_id


def step_command(job_id: str, *, nodes: int, cpus: int | None) -> list[str]:
    """Return the srun that starts one task per node beside the job's own step.

    ``--overlap``: share CPUs, memory and GPUs with the job's own step (without it, since Slurm 20.11, the new step
    would wait for the end of the job's own step). No ``--gres``: then a step sees all GPUs of the job. ``--mem=0``: all
    its memory.
    """
    each = [f"--cpus-per-task={cpus}"] if cpus else []
    return ["srun", f"--jobid={job_id}", "--overlap", "--mem=0", f"--nodes={nodes}", f"--ntasks={nodes}",
            "--ntasks-per-node=1", *each, "--quiet", "--kill-on-bad-exit=0"]  # fmt: skip


def shell_command(
    job_id: str, *, node: str | None, cpus: int | None, workdir: str | None, is_terminal: bool
) -> list[str]:
    """Return the srun of an interactive shell, without the shell."""
    place = [f"--nodelist={node}"] if node else []
    folder = [f"--chdir={workdir}"] if workdir else []
    pty = ["--pty"] if is_terminal else []
    return [*step_command(job_id, nodes=1, cpus=cpus), *place, *folder, *pty]
