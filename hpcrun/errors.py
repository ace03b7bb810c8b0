"""The exception tree: one class per exit code, every message with what to do next.

Only ``hpcrun.cli`` prints these and exits with ``exit_code``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence


class HpcrunError(Exception):
    """Something a person can put right: what was wrong and where, and one thing to try.

    Args:
        message: what was wrong and where (file and key, or the command and its own words).
        hint: one thing to do about it, printed on a line of its own.
    """

    exit_code = 1

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        if hint:
            # a traceback of a program that uses hpcrun.Executor shows it
            self.__notes__ = [f"hint: {hint}"]


class UsageError(HpcrunError):
    """The request contradicts itself or cannot be read."""

    exit_code = 2


class ProfileError(HpcrunError):
    """A profile, configuration or template file is wrong."""

    exit_code = 3


class PlanError(HpcrunError):
    """The request is clear, but it cannot run with this profile or on this machine."""

    exit_code = 4


class SchedulerError(HpcrunError):
    """The scheduler refused, or is away."""

    exit_code = 5


class SubmissionUncertainError(SchedulerError):
    """The scheduler did not answer: the job may have been submitted."""


class NotFoundError(HpcrunError):
    """No such run, job or log.

    ``if_listed`` is the hint if Slurm lists ``job_id``, which is no run's.
    """

    exit_code = 6
    job_id = if_listed = ""


class JobFailedError(HpcrunError):
    """The job that was waited for did not end well."""

    exit_code = 7


class TimeOverError(HpcrunError):
    """The runs that were waited for have not ended in the given time."""

    exit_code = 8


class InterruptedByUser(HpcrunError):
    """Ctrl-C, with what is still going on and how to come back."""

    exit_code = 130
    job_ids: tuple[str, ...] = ()  # of the jobs that the command had submitted for certain

    @classmethod
    def after(cls, job_ids: Sequence[str]) -> InterruptedByUser:
        """Return the error of a command that had submitted these jobs."""
        if not job_ids:
            return cls("interrupted")
        jobs = f"job {job_ids[0]} was" if len(job_ids) == 1 else f"{len(job_ids)} jobs were"
        error = cls(
            f"interrupted; {jobs} submitted", hint=f"to cancel: hpcrun cancel {' '.join(job_ids)}"
        )
        error.job_ids = tuple(job_ids)
        return error


_LONGEST_WORD = 200


def did_you_mean(text: str, known: Iterable[str], otherwise: str = "") -> str:
    """Return a hint to the known word closest to a misspelt one, else another hint."""
    close = nearest(text, list(known))
    return f"did you mean {close!r}?" if close else otherwise


def nearest(text: str, known: list[str]) -> str | None:
    """Return the known word closest to a misspelt one, or None where none is close."""
    if len(text) > _LONGEST_WORD:  # the time grows with its length, and it is no word
        return None
    import difflib

    matches = difflib.get_close_matches(text, known, n=1, cutoff=0.6)
    return matches[0] if matches else None
