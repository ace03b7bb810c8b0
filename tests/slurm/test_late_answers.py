"""What status shows while Slurm takes its time."""

from __future__ import annotations

import time

import pexpect
import pytest

from tests.harness import Hpcrun

pytestmark = pytest.mark.slurm

HELD = ("submit", "-P", "cpu", "--sbatch", "hold", "-J", "held", "true")
NO_ANSWER = "no response for 3 s; showing the last known state"


def late_squeue(person: Hpcrun, seconds: float) -> dict[str, str]:
    """An environment whose squeue is the real one, after some seconds."""
    folder = person.folder / "late"
    folder.mkdir()
    (folder / "squeue").write_text(f'#!/bin/sh\nsleep {seconds}\nPATH=${{PATH#*:}}\nexec squeue "$@"\n')
    (folder / "squeue").chmod(0o755)
    return {"PATH": f"{folder}:{person.environ['PATH']}"}


def at_terminal(person: Hpcrun, *args: str, env: dict[str, str] | None = None) -> pexpect.spawn[str]:
    command, *rest = [*person.become, *person.argv(*args)]
    return pexpect.spawn(
        command, rest, env={**person.environ, **(env or {})}, cwd=person.folder, timeout=20, encoding="utf-8",
        dimensions=(40, 100),
    )  # fmt: skip


def test_a_late_answer_is_bridged_by_what_was_last_known(as_researcher: Hpcrun) -> None:
    as_researcher(*HELD, check=True)
    as_researcher("status", check=True)
    env = late_squeue(as_researcher, 5)
    began = time.monotonic()
    child = at_terminal(as_researcher, "status", env=env)
    child.expect(r"held .*PENDING(?s:.*)as\s+of\s+\d+\s+s\s+ago")  # wrapped wherever the column ends
    child.expect_exact(NO_ANSWER)
    assert 2.5 < time.monotonic() - began < 4.9
    child.expect("held .*PENDING")
    child.expect(pexpect.EOF)
    child.close()
    assert child.exitstatus == 0
    assert time.monotonic() - began > 5
    assert "ago" not in (child.before or "")
    piped = as_researcher("status", env=env, check=True)
    assert piped.stdout.count("PENDING") == 1
    assert piped.stderr == ""


def test_ctrl_c_does_not_wait_for_the_answer(as_researcher: Hpcrun) -> None:
    as_researcher(*HELD, check=True)
    child = at_terminal(as_researcher, "status", env=late_squeue(as_researcher, 60))
    child.expect_exact(NO_ANSWER)
    began = time.monotonic()
    child.sendintr()
    child.expect(pexpect.EOF)
    child.close()
    assert child.exitstatus == 130
    assert time.monotonic() - began < 2


def test_an_answer_that_never_comes_is_given_up_after_ten_seconds(as_researcher: Hpcrun) -> None:
    as_researcher(*HELD, check=True)
    env = late_squeue(as_researcher, 60)
    began = time.monotonic()
    child = at_terminal(as_researcher, "status", env=env)
    child.expect_exact(NO_ANSWER)
    child.expect_exact("timed out after 10 s")
    child.expect(pexpect.EOF)
    child.close()
    assert child.exitstatus == 5
    assert time.monotonic() - began < 13
