"""The folder of compiled files of a node: when it is used, and when its files are old enough."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from hpcrun.in_job.launch.compiled import node, saving
from hpcrun.in_job.launch.compiled.folder import FILLED, QUIET_S


def test_a_filled_folder_is_used_whatever_room_it_has_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(node, "LEAST_ROOM", 1 << 60)
    path = tmp_path / "hpcrun-compiled-1-0"
    path.mkdir(mode=0o700)
    monkeypatch.setenv(FILLED, "1")
    node._make(str(path))
    monkeypatch.setenv(FILLED, "")
    with pytest.raises(OSError, match="MiB free"):
        node._make(str(path))


@pytest.mark.parametrize(
    ("ages_s", "is_quiet"),
    [
        pytest.param([QUIET_S + 5], True, id="old"),
        pytest.param([QUIET_S + 5, 1], False, id="one young"),
        pytest.param([QUIET_S + 5, -86400], True, id="one of a clock that is ahead"),
        pytest.param([-86400], True, id="all of a clock that is ahead"),
    ],
)
def test_a_time_to_come_keeps_no_file_young(ages_s: list[float], is_quiet: bool) -> None:
    now = time.time()
    assert (node._age_s([now - age_s for age_s in ages_s]) > QUIET_S) is is_quiet


def test_more_files_than_a_start_gains_by_are_not_saved(tmp_path: Path) -> None:
    names = [str(number) for number in range(saving.MOST_FILES + 1)]
    with pytest.raises(OSError, match="there are 20,001, and more than 20,000 start no job sooner"):
        saving._save(str(tmp_path / "generation"), str(tmp_path), names, 1, None)
    assert list(tmp_path.iterdir()) == []
