"""Slurm: one squeue and at most one sacct for any number of jobs; sbatch through submitit.

squeue's last answer is in a file that all processes of a user share, so that many polls need one
request: one line of JSON and then squeue's text. It is only a copy: if it cannot be read or
written, squeue is called.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from hpcrun.errors import SchedulerError
from hpcrun.job.job_states import PENDING, JobInfo, OverLimit, is_terminal
from hpcrun.machine.clean_environment import env_for_slurm, env_of_caller, is_inside_job
from hpcrun.machine.process import NO_RESPONSE, Completed, SlurmSite
from hpcrun.schedulers import slurm_text
from hpcrun.schedulers.protocol import (
    ArrayLimits,
    JobRef,
    Scheduler,
    Submission,
    SubmittedJob,
    Verb,
)
from hpcrun.schedulers.queue_cache import Answer, QueueCache
from hpcrun.schedulers.slurm_text import array_id, jobs_of_runs

# If the controller does not respond, squeue itself ends after about ten seconds (MessageTimeout).
ANSWER_WITHIN_S = 20.0
LIST_WITHIN_S = 10.0  # how long a user who calls status waits for squeue
# an answer asked within this time after a submission may not list its job yet
ACCEPTED_WITHIN_S = 2.0
_CONF_FILES = ("/etc/slurm/slurm.conf", "/run/slurm/conf/slurm.conf", "/etc/slurm-llnl/slurm.conf")


@dataclass(frozen=True, slots=True)
class SlurmScheduler(Scheduler):
    """The cluster whose commands are on PATH."""

    env: Mapping[str, str]  # the environment its commands run in
    name: str = "slurm"
    # folder of the answer that a user's processes share; None for no sharing
    cache: Path | None = None
    # accept an answer that is ten seconds old, or older while the controller is slow or does not
    # respond
    polls: bool = False
    _known: dict[str, str | None] = field(default_factory=dict)
    # job id and reason → the limit that the job alone is over
    _over: dict[tuple[str, str], OverLimit | None] = field(default_factory=dict)

    def unavailable(self) -> str | None:
        """Return a reason without sbatch."""
        if shutil.which("sbatch", path=self.env.get("PATH")) is None:
            return "there is no sbatch on this machine's PATH"
        return None

    def cluster(self) -> str | None:
        """Return ClusterName, from slurm.conf if that file can be read.

        The file needs no request to the controller.
        """
        paths = [self.env.get("SLURM_CONF"), *_CONF_FILES]
        for path in paths:
            if not path:
                continue
            with suppress(OSError):
                conf = Path(path).read_text("utf-8", errors="replace")
                name = slurm_text.parse_cluster_name(conf)
                if name:
                    return name
        if "cluster" not in self._known:  # without slurm.conf: ask only once, also for many polls
            answer = self._run(["scontrol", "show", "config"])
            if not answer.ok:
                return None
            self._known["cluster"] = slurm_text.parse_cluster_name(answer.stdout)
        return self._known["cluster"]

    def array_limits(self) -> ArrayLimits | None:
        """Return MaxArraySize and MaxJobCount, None if the controller does not report them."""
        return slurm_text.parse_array_limits(self._run(["scontrol", "show", "config"]).stdout)

    def submit(self, submission: Submission) -> SubmittedJob:
        """Submit a script through submitit."""
        # submitit is slow to import: only here
        from hpcrun.schedulers.sbatch import submit_with_submitit

        if submission.called_in and not is_inside_job(submission.env):
            env = env_of_caller(submission.env)
        else:
            env = env_for_slurm(submission.env)
        env["HPCRUN_RUN_DIR"] = str(submission.folder)
        return submit_with_submitit(submission, env)

    def may_requeue(self, job_id: str) -> bool | None:
        """Ask scontrol for the job as Slurm has accepted it; None without an answer."""
        answer = self._run(["scontrol", "--oneliner", "show", "job", job_id])
        return slurm_text.parse_requeue(answer.stdout)

    def poll(self, jobs: Sequence[JobRef]) -> dict[Path, JobInfo]:
        """Call squeue, and sacct for the jobs that squeue does not list.

        A job that was submitted after the squeue call is pending. For a submission whose end is
        unknown (``since_s``), squeue is called anew: the shared answer does not suffice.
        """
        if not jobs:
            return {}
        began_s = time.time()
        answer = self._list(shared=self.polls and all(job.since_s is None for job in jobs))
        done = answer.done.checked(*NO_RESPONSE)
        infos: dict[Path, JobInfo] = {}
        if answer.asked_s < began_s:  # a new answer lists all jobs
            infos = _too_new(jobs, answer.asked_s)
        listed = slurm_text.parse_squeue(done.stdout)
        infos |= jobs_of_runs([replace(info, asked_s=answer.asked_s) for info in listed], jobs)
        not_listed = [job for job in jobs if job.folder not in infos]
        infos |= self._ended([job for job in not_listed if job.job_id and not job.has_ended])
        infos |= self._without_id([job for job in not_listed if not job.job_id])
        return infos

    def _list(self, *, shared: bool) -> Answer:
        def ask() -> Completed:
            return self._run(slurm_text.squeue_command(os.getuid()), within_s=LIST_WITHIN_S)

        if self.cache is None:
            return Answer(time.time(), 0.0, ask())
        cache = QueueCache(self.cache, self.cluster())
        return cache.shared(ask) if shared else cache.afresh(ask)

    def _ended(self, jobs: Sequence[JobRef]) -> dict[Path, JobInfo]:
        """Ask accounting for jobs that have ended, by their ids.

        A cluster without accounting answers with an error: then the run folder decides.
        """
        ids = sorted({array_id(job.job_id) for job in jobs if job.job_id})
        answers = []
        for part in slurm_text.in_parts(ids):
            answers.append(self._run(slurm_text.sacct_command(part)).stdout)
        archived = jobs_of_runs(slurm_text.parse_sacct("\n".join(answers)), jobs)
        # squeue lists every running job. If a controller loses its state, other jobs stay in the
        # database as running forever (sacctmgr(1), "show runawayjobs").
        return {folder: info for folder, info in archived.items() if is_terminal(info.state)}

    def _without_id(self, jobs: Sequence[JobRef]) -> dict[Path, JobInfo]:
        """Ask accounting for jobs with unknown ids, by the command line of their submission.

        A Slurm whose sacct has no SubmitLine (before 21.08), or one without accounting, answers
        with an error: then squeue's answer decides.
        """
        lost = [job for job in jobs if job.since_s is not None]
        if not lost:
            return {}
        since_s = min(job.since_s for job in lost if job.since_s is not None)
        answer = self._run(slurm_text.sacct_lines_command(since_s))
        return jobs_of_runs(slurm_text.parse_sacct(answer.stdout), lost)

    def node_states(self, hosts: str) -> dict[str, str]:
        """Ask sinfo for the states of nodes; see :func:`hpcrun.job.job_states.is_silent`."""
        answer = self._run(slurm_text.node_states_command(hosts))
        return slurm_text.parse_node_states(answer.stdout) if answer.ok else {}

    def over_limits(self, reasons: Mapping[str, str]) -> dict[str, OverLimit]:
        """Ask squeue and scontrol; a command that polls asks once for each job and reason."""
        from hpcrun.schedulers.over_limits import find_over_limits  # few jobs have such a reason

        new = {job: reason for job, reason in reasons.items() if (job, reason) not in self._over}
        if new:
            limits = find_over_limits(self.env, new)
            self._over.update({(job, new[job]): limit for job, limit in limits.items()})
        over = {}
        for job, reason in reasons.items():
            limit = self._over.get((job, reason))
            if limit is not None:
                over[job] = limit
        return over

    def change(self, verb: Verb, jobs: Sequence[JobRef]) -> None:
        """Cancel, hold or release jobs with one command.

        A task ends a cancelled element of a pack, by the mark in the element's folder.

        Raises:
            SchedulerError: a job to hold or to release shares its task with other elements, or
                the command failed.
        """
        shared = [job.job_id for job in jobs if job.shares]
        ids = [job.job_id for job in jobs if job.job_id and not job.shares]
        if verb == "cancel":
            argv = ["scancel", "--quiet", *ids]  # --quiet: a job that has ended is no error
            command = "scancel"
            changed = "left"
        elif shared:
            raise SchedulerError(
                f"task {shared[0]} runs other elements, too: one alone cannot be held",
                hint=f"scontrol {verb} {shared[0]}, or hpcrun {verb} RUN",
            )
        else:
            argv = ["scontrol", verb, ",".join(ids)]
            command = f"scontrol {verb}"
            changed = "held"
        if ids:
            self._run(argv).checked(f"{command} failed", f"hpcrun status shows what is {changed}")

    def _run(self, argv: Sequence[str], *, within_s: float = ANSWER_WITHIN_S) -> Completed:
        return SlurmSite(self.env, within_s).run(argv)


def _too_new(jobs: Sequence[JobRef], asked_s: float) -> dict[Path, JobInfo]:
    """Return the jobs that an answer from this time may not list yet; they are pending."""
    infos = {}
    for job in jobs:
        if job.job_id and job.submitted_s + ACCEPTED_WITHIN_S > asked_s:
            infos[job.folder] = JobInfo(job.job_id, PENDING, asked_s=0.0)  # any record is newer
    return infos
