"""How doctor judges Slurm as it is seen from here."""

from __future__ import annotations

import pytest

from hpcrun.features.doctor.site import (
    SlurmAnswers,
    judge_accounting,
    judge_commands,
    judge_controller,
    judge_slurm,
    judge_versions,
)
from hpcrun.schedulers.client import COMMANDS, Ping, Server
from tests.unit.actions.profiles.test_detect import facts

UP = Ping((Server("primary", "head1", True),), 0.012)


@pytest.mark.parametrize(
    ("missing", "level", "says"),
    [
        ((), "green", "sbatch squeue scancel scontrol sinfo srun sacct, version 22.05.8"),
        (("srun",), "yellow", "srun not on PATH"),
        (("sbatch", "srun"), "red", "sbatch, srun not on PATH"),
        (COMMANDS, "red", "none of Slurm's commands is on PATH"),
    ],
)
def test_commands(missing: tuple[str, ...], level: str, says: str) -> None:
    check = judge_commands(missing, "22.05.8")
    assert (check.level, check.seen) == (level, says)
    assert (check.fix is None) == (level == "green")


@pytest.mark.parametrize(
    ("client", "controller", "mismatch"),
    [("22.05.8", "22.05.2", False), ("23.02.6", "22.05.8", True), (None, "22.05.8", False), ("22.05.8", None, False)],
)
def test_another_major_release_is_said(client: str | None, controller: str | None, mismatch: bool) -> None:
    check = judge_versions(client, controller)
    assert (check is not None) == mismatch
    if check:
        assert (check.level, check.seen) == ("yellow", "commands of Slurm 23.02.6, a controller of 22.05.8")


@pytest.mark.parametrize(
    ("ping", "level", "says"),
    [
        (UP, "green", "head1 answers within 12 ms"),
        (Ping(UP.servers, 3.21), "yellow", "head1 answers within 3.2 s"),
        (Ping((*UP.servers, Server("backup", "head2", False)), 0.1), "yellow", "head2 (backup) is down"),
        (Ping((Server("primary", "head1", False),), 0.1), "red", "head1 (primary) does not respond"),
        (Ping((), 10.0, "no response to scontrol ping: timed out after 10 s"), "red", "timed out after 10 s"),
    ],
)
def test_the_controller(ping: Ping, level: str, says: str) -> None:
    check = judge_controller(ping)
    assert check.level == level
    assert says in check.seen
    assert ping.away == (level == "red")


def test_without_accounting_the_run_folders_have_the_last_word() -> None:
    check = judge_accounting(facts([], [], accounting=False, problems={"sacct": "accounting storage is disabled"}))
    assert (check.level, check.seen) == ("yellow", "sacct: accounting storage is disabled")
    assert "run folder" in (check.fix or "")
    assert judge_accounting(facts([], [])).level == "green"


def test_a_command_that_hangs_is_one_line_and_the_rest_is_judged() -> None:
    found = facts([], [], problems={"scontrol show node": "timed out after 10 s"}, config={"SLURM_VERSION": "22.05.8"})
    checks = judge_slurm(SlurmAnswers((), "22.05.8", UP, found))
    assert [(check.name, check.level) for check in checks] == [
        ("commands", "green"), ("controller", "green"), ("scontrol show node", "yellow"), ("accounting", "green")
    ]  # fmt: skip


def test_of_a_controller_that_is_away_nothing_more_is_said() -> None:
    away = Ping((Server("primary", "head1", False),), 0.1)
    assert [check.name for check in judge_slurm(SlurmAnswers((), "22.05.8", away))] == ["commands", "controller"]
    assert [check.name for check in judge_slurm(SlurmAnswers(COMMANDS))] == ["commands"]
