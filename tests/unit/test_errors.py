"""The exceptions with their exit codes and hints, and words that may be meant."""

from __future__ import annotations

import pytest

from hpcrun import errors
from hpcrun.errors import HpcrunError, InterruptedByUser, did_you_mean, nearest


@pytest.mark.parametrize(
    ("kind", "exit_code"),
    [
        (errors.HpcrunError, 1),
        (errors.UsageError, 2),
        (errors.ProfileError, 3),
        (errors.PlanError, 4),
        (errors.SchedulerError, 5),
        (errors.SubmissionUncertainError, 5),
        (errors.NotFoundError, 6),
        (errors.JobFailedError, 7),
        (errors.TimeOverError, 8),
        (errors.InterruptedByUser, 130),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_each_error_has_its_exit_code(kind: type[HpcrunError], exit_code: int) -> None:
    assert kind("problem").exit_code == exit_code


def test_a_traceback_shows_the_hint() -> None:
    assert HpcrunError("problem", hint="do this").__notes__ == ["hint: do this"]
    assert not hasattr(HpcrunError("problem"), "__notes__")


@pytest.mark.parametrize(
    ("job_ids", "message", "hint"),
    [
        ([], "interrupted", None),
        (["7"], "interrupted; job 7 was submitted", "to cancel: hpcrun cancel 7"),
        (["7", "8"], "interrupted; 2 jobs were submitted", "to cancel: hpcrun cancel 7 8"),
    ],
)
def test_ctrl_c_names_the_submitted_jobs(
    job_ids: list[str], message: str, hint: str | None
) -> None:
    error = InterruptedByUser.after(job_ids)
    assert (error.message, error.hint, error.job_ids) == (message, hint, tuple(job_ids))


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("partitoin", "partition"),
        ("acount", "account"),
        ("xyz", None),
    ],
)
def test_the_nearest_word_is_close(text: str, word: str | None) -> None:
    assert nearest(text, ["account", "partition"]) == word


def test_a_word_of_more_than_200_characters_is_not_compared() -> None:
    assert nearest("x" * 200, ["x" * 199]) == "x" * 199
    assert nearest("x" * 201, ["x" * 199]) is None


def test_without_a_close_word_there_is_another_hint() -> None:
    assert did_you_mean("acount", ["account"], "see --help") == "did you mean 'account'?"
    assert did_you_mean("xyz", ["account"], "see --help") == "see --help"
