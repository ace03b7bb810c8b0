"""What every scheduler can do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from hpcrun.job.state import JobInfo


@dataclass(frozen=True, slots=True)
class Submission:
    """A script on its way.

    Attributes:
        folder: the run's folder, which holds the script already.
        script: its text.
        workdir: where the job starts.
        env: the environment to submit with, whole.
        walltime_s: time limit in seconds, for a scheduler that does not read it from the script.
        warn_s: seconds between the warning (SIGUSR1) and the time limit, None for no warning; as above.
        dependency: the jobs it waits for, as sbatch's ``--dependency`` takes them; empty for none.
        elements: the elements of a sweep, empty for an ordinary job; each has a log of its own.
        max_parallel: how many of them may run at once; as above.
    """

    name: str
    folder: Path
    script: str
    workdir: Path
    env: Mapping[str, str]
    walltime_s: int | None
    warn_s: int | None = None
    dependency: str = ""
    elements: tuple[int, ...] = ()
    max_parallel: int | None = None


@dataclass(frozen=True, slots=True)
class SubmittedJob:
    """The job that came of it, and what the scheduler said besides (a site's remarks), else empty."""

    job_id: str
    remarks: str = ""


@dataclass(frozen=True, slots=True)
class JobRef:
    """A job to ask about. ``job_id`` is None where it was never learned: the folder finds it.

    Attributes:
        since_s: look for a job without an id in the scheduler's archive too, from this time on, in seconds since the
            epoch.
    """

    folder: Path
    job_id: str | None
    since_s: float | None = None


@dataclass(frozen=True, slots=True)
class ArrayLimits:
    """How large a cluster lets arrays be: ``array`` tasks in one, numbered below that; ``jobs`` of all users in all."""

    array: int
    jobs: int


class Scheduler(Protocol):
    """Who runs jobs."""

    @property
    def name(self) -> str:
        """``slurm`` or ``local``."""
        ...

    def unavailable(self) -> str | None:
        """Return why nothing can be submitted here, None where it can."""
        ...

    def cluster(self) -> str | None:
        """Return the name under which this scheduler's job ids are unique; None for this host."""
        ...

    def array_limits(self) -> ArrayLimits | None:
        """Return how large an array may be, None where there is no limit or nobody says."""
        ...

    def submit(self, submission: Submission) -> SubmittedJob:
        """Submit a script.

        Raises:
            SubmissionUncertainError: no answer came; the job may exist.
            SchedulerError: refused; there is no job.
        """
        ...

    def poll(self, jobs: Sequence[JobRef]) -> dict[Path, JobInfo]:
        """Ask about all jobs at once; a job nobody knows is left out.

        Returns:
            folder → what is known.

        Raises:
            SchedulerError: the scheduler is away.
        """
        ...

    def node_states(self, hosts: str) -> dict[str, str]:
        """Return node → what the scheduler says of it; nothing where it knows no nodes, or is away.

        Args:
            hosts: a node list as :class:`JobInfo` has it.
        """
        ...

    def cancel(self, jobs: Sequence[JobRef]) -> None:
        """End jobs; those that are over already are no error.

        Raises:
            SchedulerError: refused or away.
        """
        ...
