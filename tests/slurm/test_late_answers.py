"""What status shows while Slurm takes its time."""

from __future__ import annotations

import time

import pytest

from tests.harness import Hpcrun, at_end

pytestmark = pytest.mark.slurm

HELD = ("submit", "-P", "cpu", "--sbatch", "hold", "-J", "held", "true")
NO_ANSWER = "no response for 3 s; showing the last known state"


def late_squeue(person: Hpcrun, seconds: float) -> dict[str, str | None]:
    """An environment whose squeue is the real one, after some seconds."""
    return person.shims(squeue=f'sleep {seconds}\nPATH=${{PATH#*:}}\nexec squeue "$@"')


def test_a_late_answer_is_bridged_by_what_was_last_known(as_researcher: Hpcrun) -> None:
    as_researcher(*HELD, check=True)
    as_researcher("status", check=True)
    env = late_squeue(as_researcher, 5)
    began = time.monotonic()
    child = as_researcher.terminal("status", env=env, size=(40, 100))
    child.expect(r"held .*PENDING(?s:.*)as\s+of\s+\d+\s+s\s+ago")  # wrapped wherever the column ends
    child.expect_exact(NO_ANSWER)
    assert time.monotonic() - began > 2.5
    child.expect("held .*PENDING")
    status, rest = at_end(child)
    assert (status, "ago" in rest) == (0, False)
    assert time.monotonic() - began > 5
    piped = as_researcher("status", env=env, check=True)
    assert piped.stdout.count("PENDING") == 1
    assert piped.stderr == ""


def test_an_answer_that_never_comes_is_given_up_after_ten_seconds(as_researcher: Hpcrun) -> None:
    as_researcher(*HELD, check=True)
    env = late_squeue(as_researcher, 60)
    child = as_researcher.terminal("status", env=env, size=(40, 100))
    impatient = as_researcher.terminal("status", env=env, size=(40, 100))
    impatient.expect_exact(NO_ANSWER)
    began = time.monotonic()
    impatient.sendintr()  # Ctrl-C does not wait for the answer
    assert at_end(impatient)[0] == 130
    assert time.monotonic() - began < 6
    child.expect_exact(NO_ANSWER)
    child.expect_exact("timed out after 10 s")
    assert at_end(child)[0] == 5
