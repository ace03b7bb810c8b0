"""How doctor judges the runs folder."""

from __future__ import annotations

import errno
import os
from dataclasses import replace
from pathlib import Path

import pytest

from hpcrun.features.doctor.check import Check
from hpcrun.features.doctor.site import judge_runs
from hpcrun.runs.folder_checks import Mount, RunsFolderFacts, UnsafeFolderError
from hpcrun.schedulers.host import Quota, Use

ROOT = Path("/scratch/me/runs")
NFS = Mount("nas:/export", "/scratch", "nfs4")
GOOD = RunsFolderFacts(ROOT, True, None, None, NFS, 5 * 10**12, 10**6)
NONE = Use(5, 0, 0)


def judged(place: RunsFolderFacts, quota: Quota | None = None, *, on_slurm: bool = True) -> dict[str, Check]:
    return {check.name: check for check in judge_runs(ROOT, place, quota, on_slurm=on_slurm)}


def test_a_good_place_is_green() -> None:
    checks = judged(GOOD)
    assert {check.level for check in checks.values()} == {"green"}
    assert checks["writable"].seen == "/scratch/me/runs"
    assert checks["space"].seen == "5000 GB and 1,000,000 files left"


def test_a_folder_that_is_not_there_yet_is_judged_by_the_one_above() -> None:
    checks = judged(replace(GOOD, tested=Path("/scratch"), exists=False))
    assert checks["writable"].seen == "/scratch/me/runs will be created; /scratch is writable"
    assert "access" not in checks


@pytest.mark.parametrize(
    ("number", "fix"),
    [
        (errno.EACCES, "HPCRUN_RUNS=/path uses another folder"),
        (errno.ENOSPC, "free some space there; HPCRUN_RUNS=/path uses another folder"),
        (errno.EDQUOT, "free some space there; HPCRUN_RUNS=/path uses another folder"),
    ],
)
def test_what_cannot_be_written_to_is_red(number: int, fix: str) -> None:
    check = judged(replace(GOOD, error=OSError(number, os.strerror(number))))["writable"]
    assert (check.level, check.fix) == ("red", fix)
    assert os.strerror(number) in check.seen


def test_who_else_can_write() -> None:
    assert judged(GOOD)["access"].level == "green"
    for exists in (True, False):  # a folder above may be unsafe
        unsafe = UnsafeFolderError("other users can write to /scratch", hint="chmod go-w /scratch")
        check = judged(replace(GOOD, exists=exists, unsafe=unsafe))["access"]
        assert (check.level, check.seen, check.fix) == ("red", unsafe.message, unsafe.hint)


@pytest.mark.parametrize("kind", ["nfs", "nfs4", "lustre", "gpfs", "beegfs", "ceph"])
def test_file_systems_that_nodes_share(kind: str) -> None:
    assert judged(replace(GOOD, mount=replace(NFS, kind=kind)))["file system"].level == "green"


@pytest.mark.parametrize("kind", ["tmpfs", "ext4", "xfs", "overlay", "fuse.unheard-of"])
def test_file_systems_of_one_machine(kind: str) -> None:
    place = replace(GOOD, mount=Mount("none", "/tmp", kind))
    check = judged(place)["file system"]
    assert (check.level, check.seen) == ("yellow", f"{kind} at /tmp: possibly local to this machine")
    assert judged(place, on_slurm=False)["file system"].level == "green"


@pytest.mark.parametrize(
    ("free_bytes", "free_files", "level"),
    [(0, 10**6, "red"), (10**12, 0, "red"), (10**8, None, "yellow"), (10**12, 50, "yellow"), (10**12, None, "green")],
)
def test_what_is_left(free_bytes: int, free_files: int | None, level: str) -> None:
    assert judged(replace(GOOD, free_bytes=free_bytes, free_files=free_files))["space"].level == level


@pytest.mark.parametrize(
    ("use", "level"),
    [
        (Use(50, 0, 100), "green"),
        (Use(90, 0, 100), "yellow"),
        (Use(100, 0, 100), "red"),
        (Use(60, 50, 100), "yellow"),
        (Use(40, 50, 0), "green"),
    ],
)
def test_a_quota(use: Use, level: str) -> None:
    check = judged(GOOD, Quota(NONE, use))["quota of files"]
    assert check.level == level
    assert (check.fix is None) == (level == "green")


def test_a_quota_says_how_much_is_used_and_one_without_limits_says_nothing() -> None:
    million = Use(20_000_000, 0, 100_000_000)
    assert judged(GOOD, Quota(million, NONE))["quota"].seen == "20 GB of 102 GB used"
    assert set(judged(GOOD, Quota(NONE, NONE))) == set(judged(GOOD))
