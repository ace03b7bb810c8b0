"""How doctor judges Slurm and the runs folder, as they are seen from here; and how its checks are
shown.
"""

from __future__ import annotations

import errno
import os
from dataclasses import replace
from pathlib import Path

import pytest

from hpcrun.features.doctor.check import PROFILE, PYTHON, SLURM, Check, Checkup
from hpcrun.features.doctor.check_site import (
    SlurmAnswers,
    judge_accounting,
    judge_commands,
    judge_controller,
    judge_runs,
    judge_slurm,
    judge_versions,
)
from hpcrun.features.doctor.command import checkup_json, checkup_text
from hpcrun.machine.host import Quota, Use
from hpcrun.runs.folder_checks import Mount, RunsFolderFacts, UnsafeFolderError
from hpcrun.schedulers.client import COMMANDS, Ping, Server
from tests.unit.actions.profiles.test_detect import facts

ROOT = Path("/scratch/me/runs")
NFS = Mount("nas:/export", "/scratch", "nfs4")
GOOD = RunsFolderFacts(ROOT, True, None, None, NFS, 5 * 10**12, 10**6)
NONE = Use(5, 0, 0)


def judged(
    place: RunsFolderFacts, quota: Quota | None = None, *, on_slurm: bool = True
) -> dict[str, Check]:
    return {check.name: check for check in judge_runs(ROOT, place, quota, on_slurm=on_slurm)}


def test_a_good_place_is_green_and_one_that_is_not_there_yet_is_judged_by_the_folder_above() -> (
    None
):
    checks = judged(GOOD)
    assert {check.level for check in checks.values()} == {"green"}
    assert checks["writable"].seen == "/scratch/me/runs"
    assert checks["space"].seen == "5000 GB and 1,000,000 files left"
    checks = judged(replace(GOOD, tested=Path("/scratch"), exists=False))
    assert checks["writable"].seen == "/scratch/me/runs will be created; /scratch is writable"
    assert "access" not in checks
    assert judged(GOOD)["access"].level == "green"
    for exists in (True, False):  # a folder above may be unsafe
        unsafe = UnsafeFolderError("other users can write to /scratch", hint="chmod go-w /scratch")
        check = judged(replace(GOOD, exists=exists, unsafe=unsafe))["access"]
        assert check.level == "red"
        assert check.seen == unsafe.message
        assert check.fix == unsafe.hint


def test_what_cannot_be_written_to_is_red(subtests: pytest.Subtests) -> None:
    elsewhere = "HPCRUN_RUNS=/path uses another folder"
    full = f"free some space there; {elsewhere}"
    for number, fix in ((errno.EACCES, elsewhere), (errno.ENOSPC, full), (errno.EDQUOT, full)):
        with subtests.test(number=number):
            check = judged(replace(GOOD, error=OSError(number, os.strerror(number))))["writable"]
            assert check.level == "red"
            assert check.fix == fix
            assert os.strerror(number) in check.seen


def test_file_systems_that_nodes_share_and_those_of_one_machine(subtests: pytest.Subtests) -> None:
    for kind in ("nfs", "nfs4", "lustre", "gpfs", "beegfs", "ceph"):
        with subtests.test(kind=kind):
            assert (
                judged(replace(GOOD, mount=replace(NFS, kind=kind)))["file system"].level == "green"
            )
    for kind in ("tmpfs", "ext4", "xfs", "overlay", "fuse.unheard-of"):
        with subtests.test(kind=kind):
            place = replace(GOOD, mount=Mount("none", "/tmp", kind))
            check = judged(place)["file system"]
            assert check.level == "yellow"
            assert check.seen == f"{kind} at /tmp: possibly local to this machine"
            assert judged(place, on_slurm=False)["file system"].level == "green"


@pytest.mark.parametrize(
    ("free_bytes", "free_files", "level"),
    [
        (0, 10**6, "red"),
        (10**12, 0, "red"),
        (10**8, None, "yellow"),
        (10**12, 50, "yellow"),
        (10**12, None, "green"),
    ],
)
def test_what_is_left(free_bytes: int, free_files: int | None, level: str) -> None:
    assert (
        judged(replace(GOOD, free_bytes=free_bytes, free_files=free_files))["space"].level == level
    )


def test_a_quota_says_how_much_is_used_and_one_without_limits_says_nothing(
    subtests: pytest.Subtests,
) -> None:
    for use, level in (
        (Use(50, 0, 100), "green"),
        (Use(90, 0, 100), "yellow"),
        (Use(100, 0, 100), "red"),
        (Use(60, 50, 100), "yellow"),
        (Use(40, 50, 0), "green"),
    ):
        with subtests.test(use=use):
            check = judged(GOOD, Quota(NONE, use))["quota of files"]
            assert check.level == level
            assert (check.fix is None) == (level == "green")
    million = Use(20_000_000, 0, 100_000_000)
    assert judged(GOOD, Quota(million, NONE))["quota"].seen == "20 GB of 102 GB used"
    assert set(judged(GOOD, Quota(NONE, NONE))) == set(judged(GOOD))


UP = Ping((Server("primary", "head1", True),), 0.012)


def test_commands(subtests: pytest.Subtests) -> None:
    for missing, level, says in (
        ((), "green", "sbatch squeue scancel scontrol sinfo srun sacct, version 22.05.8"),
        (("srun",), "yellow", "srun not on PATH"),
        (("sbatch", "srun"), "red", "sbatch, srun not on PATH"),
        (COMMANDS, "red", "none of Slurm's commands is on PATH"),
    ):
        with subtests.test(missing=missing):
            check = judge_commands(missing, "22.05.8")
            assert check.level == level
            assert check.seen == says
            assert (check.fix is None) == (level == "green")


def test_another_major_release_is_said() -> None:
    assert not any(
        judge_versions(*each)
        for each in (("22.05.8", "22.05.2"), (None, "22.05.8"), ("22.05.8", None))
    )
    check = judge_versions("23.02.6", "22.05.8")
    assert check
    assert check.level == "yellow"
    assert check.seen == "commands of Slurm 23.02.6, a controller of 22.05.8"


def test_the_controller(subtests: pytest.Subtests) -> None:
    for ping, level, says in (
        (UP, "green", "head1 answers within 12 ms"),
        (Ping(UP.servers, 3.21), "yellow", "head1 answers within 3.2 s"),
        (
            Ping((*UP.servers, Server("backup", "head2", False)), 0.1),
            "yellow",
            "head2 (backup) is down",
        ),
        (
            Ping((Server("primary", "head1", False),), 0.1),
            "red",
            "head1 (primary) does not respond",
        ),
        (
            Ping((), 10.0, "no response to scontrol ping: timed out after 10 s"),
            "red",
            "timed out after 10 s",
        ),
    ):
        with subtests.test(ping=ping):
            check = judge_controller(ping)
            assert check.level == level
            assert says in check.seen
            assert ping.away == (level == "red")


def test_what_does_not_respond_is_one_line() -> None:
    found = facts(
        [],
        [],
        problems={"scontrol show node": "timed out after 10 s"},
        config={"SLURM_VERSION": "22.05.8"},
    )
    checks = judge_slurm(SlurmAnswers((), "22.05.8", UP, found))
    assert [(check.name, check.level) for check in checks] == [
        ("commands", "green"),
        ("controller", "green"),
        ("scontrol show node", "yellow"),
        ("accounting", "green"),
    ]
    away = Ping((Server("primary", "head1", False),), 0.1)
    assert [check.name for check in judge_slurm(SlurmAnswers((), "22.05.8", away))] == [
        "commands",
        "controller",
    ]
    assert [check.name for check in judge_slurm(SlurmAnswers(COMMANDS))] == ["commands"]
    check = judge_accounting(
        facts([], [], accounting=False, problems={"sacct": "accounting storage is disabled"})
    )
    assert check.level == "yellow"
    assert check.seen == "sacct: accounting storage is disabled"
    assert "run folder" in (check.fix or "")
    assert judge_accounting(facts([], [])).level == "green"


LONG = (
    "a folder that compute nodes see too, unless this one is exported to them by somebody who "
    "knows how"
)
FOUND = Checkup(
    "mine",
    (
        Check(SLURM, "commands", "green", "all"),
        Check(
            PROFILE,
            "partition gpu\x1b[2J",
            "red",
            "there is no\nsuch \x1b]0;x\x07 partition",
            "hpcrun profile set",
        ),
        Check(PYTHON, "a name that is longer than any", "yellow", "not checked", LONG),
    ),
)


def test_how_checks_are_shown() -> None:
    assert checkup_text(FOUND, 400).plain.splitlines() == [
        "Slurm",
        "  ok       commands              all",
        "Profile mine",
        "  error    partition gpu?[2J     there is no such ?]0;x? partition",
        "                                 fix: hpcrun profile set",
        "Python",
        "  warning  a name that is longer than any not checked",
        f"                                 fix: {LONG}",
        "1 ok, 1 warning, 1 error",
    ]
    for width in (80, 60):
        lines = checkup_text(FOUND, width).plain.splitlines()
        assert max(map(len, lines)) <= width + 5
        assert " ".join(" ".join(lines).split()).count(LONG) == 1
    document = checkup_json(FOUND)
    assert document["kind"] == "doctor"
    assert document["profile"] == "mine"
    assert document["ok"] is False
    assert list(document["checks"][0].values()) == ["Slurm", "commands", "green", "all", None]
    assert document["checks"][0].keys() == {"group", "name", "level", "seen", "fix"}
    assert checkup_json(Checkup(None, FOUND.checks[::2]))["ok"]


@pytest.mark.parametrize(
    ("free_bytes", "size"),
    [
        (999_999, "999 kB"),
        (1_000_000, "1 MB"),
        (999_999_999, "999 MB"),
        (1_000_000_000, "1.0 GB"),
        (9_940_000_000, "9.9 GB"),
        (10_000_000_000, "10 GB"),
    ],
)
def test_free_space_is_said_in_a_unit_that_suits_its_size(free_bytes: int, size: str) -> None:
    place = replace(GOOD, free_bytes=free_bytes, free_files=None)
    assert judged(place)["space"].seen == f"{size} left"
