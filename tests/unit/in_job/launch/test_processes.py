"""Starting a program that does not exist."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from hpcrun.in_job.launch.processes import try_start


def test_what_cannot_be_started_is_said_and_stderr_stays_open(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert try_start(["no-such-program"], {}) == (0, 127)
    assert try_start([str(tmp_path)], {}, err=str(tmp_path / "err")) == (0, 126)
    print("and on", file=sys.stderr)
    assert (
        capfd.readouterr().err
        == "hpcrun: cannot start no-such-program: No such file or directory\nand on\n"
    )
    assert (tmp_path / "err").read_text() == f"hpcrun: cannot start {tmp_path}: Permission denied\n"
