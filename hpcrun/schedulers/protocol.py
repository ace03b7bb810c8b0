"""The interface of every scheduler."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

from hpcrun.job.job_states import JobInfo, OverLimit

Verb = Literal["cancel", "hold", "release"]
"""What a person does to a job of the queue."""


@dataclass(frozen=True, slots=True)
class Submission:
    """A script to submit."""

    folder: Path  # the run's folder, which already contains the script
    script: str  # its text
    workdir: Path  # where the job starts
    env: Mapping[str, str]  # the complete environment of the submission
    # time limit in seconds, for a scheduler that does not read it from the script
    walltime_s: int | None
    # seconds between the warning (SIGUSR1) and the time limit, None for no warning; as above
    warn_s: int | None = None
    # the jobs on which it depends, in the form of sbatch's ``--dependency``; empty for none
    dependency: str = ""
    # the elements of a sweep, empty for an ordinary job; each has its own log
    elements: tuple[int, ...] = ()
    max_parallel: int | None = None  # how many of them may run at once; as above
    # the folder where a person's own batch script is submitted: its environment is passed on as it
    # is; None for other jobs
    called_in: Path | None = None
    # the comment of the job for accounting, instead of the script's; empty for the script's
    comment: str = ""


@dataclass(frozen=True, slots=True)
class SubmittedJob:
    """The submitted job, and other messages of the scheduler (a site's remarks), else empty."""

    job_id: str
    remarks: str = ""


@dataclass(frozen=True, slots=True)
class JobRef:
    """A job to ask about.

    ``job_id`` is None if hpcrun never learned it: then the folder identifies the job.
    """

    folder: Path
    job_id: str | None
    # also search the scheduler's archive for a job without an id, from this time on, in seconds
    # since the epoch
    since_s: float | None = None
    has_ended: bool = False  # its end is known: the archive cannot say whether it was requeued
    shares: bool = False  # it is an element of a pack: its job runs others, too
    submitted_s: float = 0.0  # when its submission began, in seconds since the epoch


@dataclass(frozen=True, slots=True)
class ArrayLimits:
    """The limits of a cluster on arrays and jobs.

    ``array`` is the number of tasks in an array, whose numbers are below it; ``jobs`` is the number
    of jobs of all users together.
    """

    array: int
    jobs: int


class Scheduler(Protocol):
    """Runs jobs; one that knows neither clusters nor nodes need not say so."""

    @property
    def name(self) -> str:
        """``slurm`` or ``local``."""
        ...

    def unavailable(self) -> str | None:
        """Return why hpcrun cannot submit here, None if it can."""
        return None

    def cluster(self) -> str | None:
        """Return the name under which this scheduler's job ids are unique; None for this host."""
        return None

    def array_limits(self) -> ArrayLimits | None:
        """Return the limits of arrays, None if there are none or they are unknown."""
        return None

    def submit(self, submission: Submission) -> SubmittedJob:
        """Submit a script.

        It raises SubmissionUncertainError if no answer came: the job may exist; SchedulerError if
        there is no job.
        """
        ...

    def may_requeue(self, job_id: str) -> bool | None:  # noqa: ARG002 - for those that requeue
        """Return whether a job may be requeued, None if that is unknown.

        A site may change the request of a job at its submission.
        """
        return None

    def poll(self, jobs: Sequence[JobRef]) -> dict[Path, JobInfo]:
        """Ask about all jobs at once: folder → information; an unknown job is left out.

        This and the rest raise SchedulerError if the scheduler refuses, or does not respond.
        """
        ...

    def node_states(self, hosts: str) -> dict[str, str]:  # noqa: ARG002 - for those that know nodes
        """Return node → the scheduler's state of the node.

        ``hosts`` is a node list in the form of :class:`JobInfo`. The result is empty if the
        scheduler knows no nodes, or does not respond.
        """
        return {}

    def end_signal(self, job_id: str) -> int | None:  # noqa: ARG002 - for those that keep accounts
        """Return the signal that ended a job; None without one, or an answer."""
        return None

    def over_limits(
        self,
        reasons: Mapping[str, str],  # noqa: ARG002 - for those that have limits
    ) -> Mapping[str, OverLimit]:
        """Return the limits that pending jobs alone are over; a job without one is left out.

        ``reasons`` is job id → the scheduler's reason. Both have the id of a whole array.
        """
        return {}

    def change(self, verb: Verb, jobs: Sequence[JobRef]) -> None:
        """Cancel jobs, keep pending jobs from starting, or let held jobs start again.

        To cancel a job that has already ended is not an error.
        """
        ...
