"""What hpcrun tells of the commands that it runs."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from hpcrun.journal import kept_in, note, timed
from hpcrun.schedulers.process import run_command


def test_what_is_told_meanwhile_is_in_the_file_and_nothing_else(tmp_path: Path) -> None:
    file = tmp_path / "hpcrun.log"
    note("before")
    with kept_in(file, "cancel"):
        run_command(["sh", "-c", "exit 3"], timeout_s=10)
        run_command([str(tmp_path / "none")], timeout_s=10)
        run_command(["sleep", "9"], timeout_s=0.1)
    note("after")
    lines = [line.partition(" cancel: ") for line in file.read_text().splitlines()]
    assert all(re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d[+-]\d{4}", when) for when, _, _ in lines)
    told = [re.sub(r"\d\.\d{3} s$", "N s", what) for _, _, what in lines]
    assert told[0] == "sh -c 'exit 3': exit status 3, N s"
    assert told[1].endswith("none: No such file or directory, N s")
    assert told[2:] == ["sleep 9: timed out after 0.1 s, N s"]


def test_a_file_that_cannot_be_written_stops_nobody(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with kept_in(tmp_path / "no folder" / "hpcrun.log", "submit"):
        assert run_command(["true"], timeout_s=10).ok
    with kept_in(Path("/dev/full"), "submit"):
        assert run_command(["true"], timeout_s=10).ok
    assert capfd.readouterr() == ("", "")


def test_a_command_that_raises_is_told_on_one_line_without_control_characters(tmp_path: Path) -> None:
    file = tmp_path / "hpcrun.log"
    with kept_in(file, "submit"), pytest.raises(RuntimeError), timed("sbatch"):
        raise RuntimeError("refused:\n\x1b[2Jno such partition")
    assert " submit: sbatch: RuntimeError refused: ?[2Jno such partition, 0.0" in file.read_text()


def test_a_program_that_uses_hpcrun_has_its_own_logs_for_itself(tmp_path: Path) -> None:
    code = f"""
import logging, pathlib
logging.basicConfig(level=logging.DEBUG)
from hpcrun.journal import kept_in, note
with kept_in(pathlib.Path({str(tmp_path / "hpcrun.log")!r}), "submit"):
    note("told")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    assert (tmp_path / "hpcrun.log").read_text().endswith(" submit: told\n")


def test_nobody_who_does_not_listen_pays_for_logging() -> None:
    code = "import sys; from hpcrun.schedulers.process import run_command; run_command(['true'], timeout_s=9)"
    done = subprocess.run([sys.executable, "-c", f"{code}; print('logging' in sys.modules)"], capture_output=True)
    assert done.stdout == b"False\n"
