"""Saving: whole or not at all, one at a time."""

from __future__ import annotations

import os
import resource
import socket
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

from hpcrun.errors import ProfileError
from hpcrun.profiles import save
from hpcrun.profiles.save import locked, replace_text
from tests.harness import REPO

HOST = socket.gethostname()


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
        with pytest.raises(ProfileError, match=r"x\.yaml cannot be saved: File too large; the file is unchanged"):
            replace_text(path, "new" * 100)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert path.read_text() == "old"
    assert names(tmp_path) == {"x.yaml"}


def test_a_lock_that_a_living_program_holds_is_waited_for_and_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(save, "WAIT_S", 0.2)
    path = tmp_path / "x.yaml"
    changed = pytest.raises(ProfileError, match="changed by another program")
    with locked(path, HOST), changed as refused, locked(path, HOST):
        pass
    assert refused.value.hint == f"if that program no longer runs: rm {tmp_path}/.x.yaml.lock"
    with locked(path, HOST):
        pass
    assert names(tmp_path) == set()


def test_the_lock_of_a_dead_program_is_taken_over(tmp_path: Path) -> None:
    dead = subprocess.run([sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, text=True)
    (tmp_path / ".x.yaml.lock").write_text(f"{HOST} {dead.stdout.strip()} aaaa")
    with locked(tmp_path / "x.yaml", HOST):
        assert names(tmp_path) == {".x.yaml.lock"}
    assert names(tmp_path) == set()


def test_a_lock_of_another_host_is_taken_over_when_it_is_old(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(save, "WAIT_S", 0.2)
    lock = tmp_path / ".x.yaml.lock"
    lock.write_text("elsewhere 1 aaaa")
    with pytest.raises(ProfileError, match=r"elsewhere 1"), locked(tmp_path / "x.yaml", HOST):
        pass
    old = time.time() - 2 * save.STALE_S
    os.utime(lock, (old, old))
    with locked(tmp_path / "x.yaml", HOST):
        pass


ADDS = """
import socket, sys
from pathlib import Path
from hpcrun.profiles.save import locked, replace_text
path = Path(sys.argv[1])
for _ in range(20):
    with locked(path, socket.gethostname()):
        replace_text(path, str(int(path.read_text()) + 1))
"""


def test_no_update_is_lost_between_programs(tmp_path: Path) -> None:
    path = tmp_path / "count"
    path.write_text("0")
    programs = [subprocess.Popen([sys.executable, "-c", ADDS, str(path)], cwd=REPO) for _ in range(4)]
    assert [program.wait(60) for program in programs] == [0] * 4
    assert path.read_text() == "80"
    assert names(tmp_path) == {"count"}
