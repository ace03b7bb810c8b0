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
    """

    name: str
    folder: Path
    script: str
    workdir: Path
    env: Mapping[str, str]
    walltime_s: int | None


@dataclass(frozen=True, slots=True)
class Submitted:
    """The job that came of it, and what the scheduler said besides (a site's remarks), else empty."""

    job_id: str
    remarks: str = ""


@dataclass(frozen=True, slots=True)
class JobRef:
    """A job to ask about. ``job_id`` is None where it was never learned: the folder finds it."""

    folder: Path
    job_id: str | None


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

    def submit(self, submission: Submission) -> Submitted:
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

    def cancel(self, jobs: Sequence[JobRef]) -> None:
        """End jobs; those that are over already are no error.

        Raises:
            SchedulerError: refused or away.
        """
        ...
