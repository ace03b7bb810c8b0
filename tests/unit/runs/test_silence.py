"""The usual pause between the lines of a rank."""

from __future__ import annotations

from pathlib import Path

from hpcrun.runs.silence import _mean_pause_s


def test_a_log_that_its_program_has_just_emptied_has_a_mean_pause(tmp_path: Path) -> None:
    log = tmp_path / "rank-0.out"
    log.touch()
    started_s = log.lstat().st_mtime - 40
    assert _mean_pause_s(log, "1\n2\n3\n4\n", started_s) == 10
    assert _mean_pause_s(log, "1\n2\n", started_s) is None
