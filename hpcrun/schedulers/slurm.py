"""Slurm: one squeue and at most one sacct for any number of jobs; sbatch through submitit."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from hpcrun.errors import SchedulerError
from hpcrun.job.state import JobInfo
from hpcrun.schedulers import slurm_text as text
from hpcrun.schedulers.environment import clean_env
from hpcrun.schedulers.process import Completed, run_command
from hpcrun.schedulers.protocol import JobRef, Submission, Submitted

# With the controller away squeue gives up after about ten seconds by itself (MessageTimeout).
ANSWER_WITHIN_S = 20.0
_CONF_FILES = ("/etc/slurm/slurm.conf", "/run/slurm/conf/slurm.conf", "/etc/slurm-llnl/slurm.conf")


@dataclass(frozen=True, slots=True)
class SlurmScheduler:
    """The cluster whose commands are on PATH.

    Attributes:
        env: the environment its commands run in.
    """

    env: Mapping[str, str]
    name: str = "slurm"

    def unavailable(self) -> str | None:
        """Return why nothing can be submitted here, None where it can."""
        if shutil.which("sbatch", path=self.env.get("PATH")) is None:
            return "there is no sbatch on this machine's PATH"
        return None

    def cluster(self) -> str | None:
        """Return ClusterName: from slurm.conf where it can be read, which costs the controller nothing."""
        for path in filter(None, (self.env.get("SLURM_CONF"), *_CONF_FILES)):
            try:
                found = text.parse_cluster_name(Path(path).read_text("utf-8", errors="replace"))
            except OSError:
                continue
            if found:
                return found
        answer = self._run(["scontrol", "show", "config"])
        return text.parse_cluster_name(answer.stdout) if answer.ok else None

    def submit(self, submission: Submission) -> Submitted:
        """Submit a script through submitit.

        Raises:
            SubmissionUncertainError: no answer came; the job may exist.
            SchedulerError: refused; there is no job.
        """
        from hpcrun.schedulers.sbatch import submit_with_submitit  # submitit is slow to import: only here

        env = {**clean_env(submission.env), "HPCRUN_RUN_DIR": str(submission.folder)}
        return submit_with_submitit(submission, env)

    def poll(self, jobs: Sequence[JobRef]) -> dict[Path, JobInfo]:
        """Ask squeue, and sacct for those it has forgotten.

        Raises:
            SchedulerError: the controller is away.
        """
        if not jobs:
            return {}
        answer = self._run(text.squeue_command(os.getuid()))
        if not answer.ok:
            raise SchedulerError(f"Slurm does not answer: {answer.words()}", hint="sinfo tells when it is back")
        listed = text.parse_squeue(answer.stdout)
        by_id = {info.job_id: info for info in listed}
        by_folder = {str(Path(info.script).parent): info for info in listed if info.script}
        found: dict[Path, JobInfo] = {}
        for job in jobs:
            info = by_id.get(job.job_id) if job.job_id else by_folder.get(str(job.folder))
            if info:
                found[job.folder] = info
        forgotten = {job.job_id: job.folder for job in jobs if job.job_id and job.folder not in found}
        if forgotten:
            # A cluster without accounting answers with an error: then the run folder has the last word.
            answer = self._run(text.sacct_command(sorted(forgotten)))
            for info in text.parse_sacct(answer.stdout):
                if info.job_id in forgotten:
                    found[forgotten[info.job_id]] = info
        return found

    def cancel(self, jobs: Sequence[JobRef]) -> None:
        """End jobs with one scancel.

        Raises:
            SchedulerError: scancel refused, or the controller is away.
        """
        ids = [job.job_id for job in jobs if job.job_id]
        answer = self._run(["scancel", "--quiet", *ids])  # --quiet: a job that is over already is no error
        if not answer.ok:
            raise SchedulerError(f"scancel failed: {answer.words()}", hint="hpcrun status shows what is left")

    def _run(self, argv: Sequence[str]) -> Completed:
        env = {**clean_env(self.env), "LC_ALL": "C"}
        return run_command(argv, timeout_s=ANSWER_WITHIN_S, env=env)
