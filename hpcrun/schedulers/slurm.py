"""Slurm: one squeue and at most one sacct for any number of jobs; sbatch through submitit.

squeue's last answer is in a file that all processes of a user share, so that many polls need one
request: one line of JSON and then squeue's text. It is only a copy: if it cannot be read or
written, squeue is called.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import ClassVar

from hpcrun.errors import SchedulerError
from hpcrun.job.state import PENDING, JobInfo, is_terminal
from hpcrun.reading import open_regular
from hpcrun.schedulers import slurm_text as text
from hpcrun.schedulers.process import NO_RESPONSE, Completed, SlurmSite, env_for_slurm
from hpcrun.schedulers.protocol import ArrayLimits, JobRef, Scheduler, Submission, SubmittedJob
from hpcrun.schedulers.slurm_text import array_id, jobs_of_runs
from hpcrun.writing import flocked, replace_file

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

    def unavailable(self) -> str | None:
        """Return a reason without sbatch."""
        if shutil.which("sbatch", path=self.env.get("PATH")) is None:
            return "there is no sbatch on this machine's PATH"
        return None

    def cluster(self) -> str | None:
        """Return ClusterName: from slurm.conf if it can be read, which needs no request to the
        controller.
        """
        for path in filter(None, (self.env.get("SLURM_CONF"), *_CONF_FILES)):
            with suppress(OSError):
                name = text.parse_cluster_name(Path(path).read_text("utf-8", errors="replace"))
                if name:
                    return name
        if "cluster" not in self._known:  # without slurm.conf: ask only once, also for many polls
            answer = self._run(["scontrol", "show", "config"])
            if not answer.ok:
                return None
            self._known["cluster"] = text.parse_cluster_name(answer.stdout)
        return self._known["cluster"]

    def array_limits(self) -> ArrayLimits | None:
        """Return MaxArraySize and MaxJobCount, None if the controller does not report them."""
        return text.parse_array_limits(self._run(["scontrol", "show", "config"]).stdout)

    def submit(self, submission: Submission) -> SubmittedJob:
        """Submit a script through submitit."""
        # submitit is slow to import: only here
        from hpcrun.schedulers.sbatch import submit_with_submitit

        env = {**env_for_slurm(submission.env), "HPCRUN_RUN_DIR": str(submission.folder)}
        return submit_with_submitit(submission, env)

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
        listed = [replace(info, asked_s=answer.asked_s) for info in text.parse_squeue(done.stdout)]
        # a new answer lists all of them
        if answer.asked_s >= began_s:
            late = []
        else:
            late = [job for job in jobs if job.job_id]
        new = [job for job in late if job.submitted_s + ACCEPTED_WITHIN_S > answer.asked_s]
        # any record is newer
        infos = {job.folder: JobInfo(str(job.job_id), PENDING, asked_s=0.0) for job in new}
        infos |= jobs_of_runs(listed, jobs)
        forgotten = [job for job in jobs if job.job_id and job.folder not in infos]
        if forgotten:
            # A cluster without accounting answers with an error: then the run folder decides.
            ids = sorted({array_id(job.job_id) for job in forgotten if job.job_id})
            answers = [self._run(text.sacct_command(part)).stdout for part in text.in_parts(ids)]
            archived = jobs_of_runs(text.parse_sacct("\n".join(answers)), forgotten)
            # squeue lists every running job. If a controller loses its state, other jobs stay in
            # the database as running forever (sacctmgr(1), "show runawayjobs").
            infos |= {folder: info for folder, info in archived.items() if is_terminal(info.state)}
        return {**self._archived(jobs, infos), **infos}

    def _list(self, *, shared: bool) -> Answer:
        def ask() -> Completed:
            return self._run(text.squeue_command(os.getuid()), within_s=LIST_WITHIN_S)

        if self.cache is None:
            return Answer(time.time(), 0.0, ask())
        cache = QueueCache(self.cache, self.cluster())
        return cache.shared(ask) if shared else cache.afresh(ask)

    def _archived(
        self, jobs: Sequence[JobRef], infos: Mapping[Path, JobInfo]
    ) -> dict[Path, JobInfo]:
        """Ask accounting for jobs with unknown ids, by the command line of their submission.

        A Slurm whose sacct has no SubmitLine (before 21.08), or one without accounting, answers
        with an error: then squeue's answer decides.
        """
        lost = [
            job
            for job in jobs
            if job.since_s is not None and not job.job_id and job.folder not in infos
        ]
        if not lost:
            return {}
        since_s = min(job.since_s for job in lost if job.since_s is not None)
        return jobs_of_runs(
            text.parse_sacct(self._run(text.sacct_lines_command(since_s)).stdout), lost
        )

    def node_states(self, hosts: str) -> dict[str, str]:
        """Ask sinfo for the states of nodes; see :func:`hpcrun.job.state.is_silent`."""
        answer = self._run(text.node_states_command(hosts))
        return text.parse_node_states(answer.stdout) if answer.ok else {}

    def cancel(self, jobs: Sequence[JobRef]) -> None:
        """Cancel jobs with one scancel; its task ends an element of a pack, by the mark in its
        folder.
        """
        ids = [job.job_id for job in jobs if job.job_id and not job.shares]
        # --quiet: a job that has already ended is no error
        if ids:
            self._run(["scancel", "--quiet", *ids]).checked(
                "scancel failed", "hpcrun status shows what is left"
            )

    def hold(self, jobs: Sequence[JobRef], *, release: bool = False) -> None:
        """Hold or release jobs with one scontrol."""
        verb = "release" if release else "hold"
        shared = next((job for job in jobs if job.shares), None)
        if shared:
            raise SchedulerError(
                f"task {shared.job_id} runs other elements, too: one alone cannot be held",
                hint=f"scontrol {verb} {shared.job_id}, or hpcrun {verb} RUN",
            )
        ids = ",".join(job.job_id for job in jobs if job.job_id)
        self._run(["scontrol", verb, ids]).checked(
            f"scontrol {verb} failed", "hpcrun status shows what is held"
        )

    def _run(self, argv: Sequence[str], *, within_s: float = ANSWER_WITHIN_S) -> Completed:
        return SlurmSite(self.env, within_s).run(argv)


# the shortest time between two polls of the controller, for all processes of a user together
EVERY_S = 10.0
# the longest pause: it doubles while the controller is slow or does not respond
LONGEST_PAUSE_S = 60.0
SLOW_S = 2.0
# a process waits so long for another one that calls squeue, whose timeout is shorter
ASKED_WITHIN_S = 12.0
_MOST_BYTES = 32 << 20  # of a copy: more than the text of 100,000 jobs


@dataclass(frozen=True, slots=True)
class Answer:
    """squeue's answer."""

    asked_s: float  # when squeue was called, in seconds since the epoch
    pause_s: float  # how long polls may use this answer
    done: Completed


@dataclass(frozen=True)
class SharedCopy:
    """A copy of a cluster's answers, in a file that all processes of a user share."""

    folder: Path  # it belongs to the user
    cluster: str | None  # None if it has no name
    kind: ClassVar[str]

    @property
    def path(self) -> Path:
        """The file: one for each cluster, since a home may be that of several."""
        return (
            self.folder / f"{self.kind}-{re.sub(r'[^A-Za-z0-9_-]', '_', self.cluster or 'unnamed')}"
        )

    def read(self) -> bytes:
        """Return the copy; OSError if there is none, or if another user could have written it."""
        with open_regular(self.path, links=False) as file:
            status = os.fstat(file.fileno())
            if (
                status.st_uid != os.geteuid()
                or status.st_mode & 0o022
                or status.st_size > _MOST_BYTES
            ):
                raise OSError("another user can write to it, or it is too large")
            return file.read()

    def write(self, content: bytes) -> None:
        """Replace the copy, if that is possible."""
        with suppress(OSError):
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            replace_file(self.path, content, durable=False)


@dataclass(frozen=True)
class QueueCache(SharedCopy):
    """squeue's answer."""

    kind = "squeue"
    clock: Callable[[], float] = time.time  # seconds since the epoch

    def shared(self, ask: Callable[[], Completed]) -> Answer:
        """Return an answer that is young enough, from any process; else call squeue, one process at
        a time.
        """
        known = self._young()
        if known:
            return known
        with ExitStack() as held:
            # Wait for a process that already calls squeue; without locks two may call it, which is
            # harmless.
            with suppress(OSError):
                self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
                held.enter_context(flocked(self.path.with_suffix(".lock"), ASKED_WITHIN_S))
            # another process may have written it meanwhile
            return self._young() or self.afresh(ask)

    def afresh(self, ask: Callable[[], Completed]) -> Answer:
        """Call squeue, and store the answer for polls."""
        before = self._known()
        asked_s = self.clock()
        began = time.monotonic()
        done = ask()
        pause_s = EVERY_S
        if not done.ok or time.monotonic() - began > SLOW_S:
            pause_s = min(2 * (before.pause_s if before else EVERY_S), LONGEST_PAUSE_S)
        head = {"asked_s": asked_s, "pause_s": pause_s, "done": {**asdict(done), "stdout": ""}}
        self.write(f"{json.dumps(head)}\n{done.stdout}".encode("utf-8", "surrogateescape"))
        return Answer(asked_s, pause_s, done)

    def _young(self) -> Answer | None:
        """Return the stored answer while polls may use it; one from the future is from before a
        clock was set back.
        """
        known = self._known()
        if known and 0 <= self.clock() - known.asked_s < known.pause_s:
            return known
        return None

    def _known(self) -> Answer | None:
        try:
            head, _, text = self.read().decode("utf-8", "surrogateescape").partition("\n")
            record = json.loads(head)
            done = Completed(**{**record["done"], "stdout": text})
            return Answer(float(record["asked_s"]), float(record["pause_s"]), done)
        except (OSError, ValueError, TypeError, KeyError):
            return None
