"""The quota of one file system in what quota(1) and Lustre's lfs print."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpcrun.schedulers.host import Quota, Use, ask_quota, parse_quota, quota_command
from tests.unit.given import write

QUOTA = """Disk quotas for user me (uid 1000):
     Filesystem  blocks   quota   limit   grace   files   quota   limit   grace
   nas:/export 104857600* 100000000 110000000 1763700000  81234  0  0  0
      /dev/sda1    1024       0       0       0      12       0       0       0
"""
# a long name stands on a line of its own
LFS = """/lustre/scratch/projects/a-long-name
              [1024]       0    2048       -      10       0      20       -
"""


def test_quota_s_line_of_what_is_mounted() -> None:
    assert parse_quota(QUOTA, ["nas:/export"]) == Quota(Use(104857600, 100000000, 110000000), Use(81234, 0, 0))
    assert parse_quota(QUOTA, ["/dev/sda1"]) == Quota(Use(1024, 0, 0), Use(12, 0, 0))
    assert parse_quota(QUOTA, ["/dev/sdb1"]) is None


def test_lustre_s() -> None:
    assert parse_quota(LFS, ["/lustre/scratch/projects/a-long-name"]) == Quota(Use(1024, 0, 2048), Use(10, 0, 20))
    assert quota_command(Path("/lustre/x"), "lustre")[:2] == ["lfs", "quota"]


@pytest.mark.parametrize("text", ["", "nas:/export", "nas:/export a b c d e f g h", "nas:/export none"])
def test_what_is_no_quota(text: str) -> None:
    assert parse_quota(text, ["nas:/export"]) is None


@given(st.text())
def test_any_text_at_all(text: str) -> None:
    parse_quota(text, ["x"])


def test_the_command_is_asked_where_it_is(tmp_path: Path) -> None:
    env = {"PATH": f"{tmp_path}:/bin"}
    assert ask_quota(Path("/x"), ["nas:/export"], "nfs", {"PATH": str(tmp_path)}) is None
    path = write(tmp_path / "quota", f"#!/bin/sh\ncat <<'END'\n{QUOTA}END\nexit 1\n")
    path.chmod(0o755)
    found = ask_quota(Path("/x"), ["nas:/export"], "nfs", env)
    assert found is not None
    assert found.space_kb.limit == 110000000
