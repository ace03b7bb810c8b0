"""Saving: whole or not at all, one at a time."""

from __future__ import annotations

import os
import resource
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from hpcrun.errors import ProfileError
from hpcrun.profiles import yaml_file
from hpcrun.profiles.yaml_file import locked, replace_text
from tests.harness import REPO


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_permissions_stay_and_a_link_goes_on_pointing(tmp_path: Path) -> None:
    real, link = tmp_path / "real.yaml", tmp_path / "link.yaml"
    real.write_text("old")
    real.chmod(0o640)
    link.symlink_to(real)
    replace_text(link, "new\r\n")
    assert link.is_symlink()
    assert real.read_bytes() == b"new\r\n"
    assert stat.S_IMODE(real.stat().st_mode) == 0o640
    assert names(tmp_path) == {"real.yaml", "link.yaml"}


def test_a_new_file_can_be_read_as_the_umask_says(tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        replace_text(tmp_path / "deep/er/x.yaml", "x")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "deep/er/x.yaml").stat().st_mode) == 0o644


def test_where_there_is_no_space_the_old_file_stays(tmp_path: Path) -> None:
    path = tmp_path / "x.yaml"
    path.write_text("old")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10, hard))
    try:
        with pytest.raises(
            ProfileError, match=r"x\.yaml cannot be saved: File too large; the file is unchanged"
        ):
            replace_text(path, "new" * 100)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert path.read_text() == "old"
    assert names(tmp_path) == {"x.yaml"}


def test_a_lock_that_another_program_holds_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(yaml_file, "WAIT_S", 0.2)
    lock = tmp_path / "profiles" / ".lock"
    with (
        locked(lock),
        pytest.raises(ProfileError, match="changed by another program"),
        locked(lock),
    ):
        pass
    with locked(lock):
        pass


ADDS = """
import sys
from pathlib import Path
from hpcrun.profiles.yaml_file import locked, replace_text
path = Path(sys.argv[1])
for _ in range(20):
    with locked(path.with_name(".lock")):
        replace_text(path, str(int(path.read_text()) + 1))
"""


def test_no_update_is_lost_between_programs(tmp_path: Path) -> None:
    path = tmp_path / "count"
    path.write_text("0")
    programs = [
        subprocess.Popen([sys.executable, "-c", ADDS, str(path)], cwd=REPO) for _ in range(4)
    ]
    assert [program.wait(60) for program in programs] == [0] * 4
    assert path.read_text() == "80"
    assert names(tmp_path) == {"count", ".lock"}
