"""Why the step of a job with a preflight may not start."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from hpcrun.in_job.launch.per_job.run_preflight import (
    NO_PROGRAMS,
    check_nodes,
    split_commands,
)
from tests.unit.in_job.attempts import Attempt


@pytest.mark.parametrize(
    ("command", "parts"),
    [
        ("check 1 && judge 2 && step 3", ["check 1", "judge 2", "step 3"]),
        ("check && judge", ["check", "judge", ""]),
        ("check && judge && sh -c a && b", ["check", "judge", "sh -c a && b"]),
    ],
    ids=["all", "no step", "marks of the step"],
)
def test_a_command_has_the_check_the_judge_and_the_step(command: str, parts: list[str]) -> None:
    commands = split_commands(command.split())
    assert [" ".join(part) for part in (commands.check, commands.judge, commands.step)] == parts


def why_not(attempt: Attempt, judge: str, *, signalled: bool = False, local: bool = True) -> str:
    """Return why the step may not start, if a text of a shell judges."""

    def run_check(command: list[str], hosts: list[str], log: str, limit_s: float) -> None:
        with open(log, "w", encoding="utf-8") as file:
            file.write(f"{' '.join(command)} on {' '.join(hosts)}")

    monitor: Any = SimpleNamespace(run_check=run_check, signalled=signalled)
    commands = split_commands(["check", "&&", "sh", "-c", judge])
    return check_nodes(commands, monitor, ["n1", "n2"], is_local=local)


@pytest.fixture
def programs(attempt: Attempt) -> Attempt:
    """An attempt of a run that has the programs of a preflight."""
    folder = attempt.run / "programs/preflight"
    folder.mkdir(parents=True)
    (folder / "node.py").touch()
    return attempt


JUDGE = "the preflight was not judged: the Python of the job does not"


@pytest.mark.parametrize(
    ("judge", "why", "shown"),
    [
        pytest.param("echo ' well '", "", "hpcrun: well\n", id="well"),
        pytest.param("echo n1 has no GPU; exit 1", "n1 has no GPU", "", id="objects"),
        pytest.param("exit 1", f"{JUDGE} run here", "", id="cannot run"),
        pytest.param("exec sleep 60", f"{JUDGE} respond", "", id="hangs"),
    ],
)
def test_the_judge_decides_whether_the_step_starts(
    programs: Attempt,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    judge: str,
    why: str,
    shown: str,
) -> None:
    monkeypatch.setenv("HPCRUN_PREFLIGHT_S", "-0.8" if "sleep" in judge else "30")
    assert why_not(programs, judge) == why
    assert "".join(capfd.readouterr()) == shown


def test_a_signalled_job_judges_nothing(programs: Attempt) -> None:
    assert why_not(programs, "exit 1", signalled=True) == ""


@pytest.mark.parametrize(("local", "log"), [(True, "nodes.log"), (False, "srun.log")])
def test_the_check_has_a_log(programs: Attempt, local: bool, log: str) -> None:
    why_not(programs, "true", local=local)
    assert programs.text(f"preflight/{log}") == "check on n1 n2"


def test_without_programs_nothing_is_checked(attempt: Attempt) -> None:
    assert why_not(attempt, "true") == NO_PROGRAMS
    assert not (attempt.folder / "preflight/nodes.log").exists()
