"""Files that are whole, lines that are appended, and locks that end with their process."""

from __future__ import annotations

import errno
import fcntl
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from hpcrun.files.writing import (
    append_line,
    flocked,
    make_folder,
    replace_file,
    write_file,
)
from tests.harness import REPO

HOLDS = """
import sys, time
from pathlib import Path
from hpcrun.files.writing import flocked
with flocked(Path(sys.argv[1])) as free:
    print(free, flush=True)
    time.sleep(60)
"""


def test_a_lock_is_waited_for_and_ends_with_its_process(tmp_path: Path) -> None:
    lock = tmp_path / "lock"
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDS, str(lock)], cwd=REPO, stdout=subprocess.PIPE, text=True
    )
    assert holder.stdout
    with holder, holder.stdout:
        assert holder.stdout.readline() == "True\n"
        began = time.monotonic()
        with flocked(lock, 0.3) as free:
            assert not free
        assert time.monotonic() - began >= 0.3
        holder.kill()
    with flocked(lock) as free:
        assert free


def test_where_the_file_system_has_no_locks_one_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # what Lustre mounted without -o flock, or NFS without its lock daemon, says
    def flock(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", flock)
    with flocked(tmp_path / "lock") as free:
        assert free


@pytest.fixture
def open_umask() -> Iterator[None]:
    """An umask that takes nothing away."""
    before = os.umask(0)
    yield
    os.umask(before)


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o7777


@pytest.mark.usefixtures("open_umask")
def test_no_other_user_can_write_what_is_made(tmp_path: Path) -> None:
    make_folder(tmp_path / "a/b")
    write_file(tmp_path / "a/b/file", "x")
    append_line(tmp_path / "a/b/log", "x")
    replace_file(tmp_path / "a/b/new", "x")
    names = ("a", "a/b", "a/b/file", "a/b/log", "a/b/new")
    modes = [mode(tmp_path / name) for name in names]
    assert modes == [0o755, 0o755, 0o644, 0o600, 0o600]


@pytest.mark.usefixtures("open_umask")
def test_a_private_folder_has_private_parents(tmp_path: Path) -> None:
    make_folder(tmp_path / "a/b", 0o700)
    assert mode(tmp_path / "a") == mode(tmp_path / "a/b") == 0o700
    make_folder(tmp_path / "a/b")
    assert mode(tmp_path / "a/b") == 0o700


def test_a_file_in_the_place_of_a_folder_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(NotADirectoryError):
        make_folder(tmp_path / "file")


@pytest.mark.parametrize("durable", [True, False])
@pytest.mark.parametrize("content", ["é", "é".encode()], ids=["text", "bytes"])
def test_a_file_is_replaced_whole(tmp_path: Path, content: str | bytes, durable: bool) -> None:
    path = tmp_path / "file"
    path.write_text("a longer text")
    replace_file(path, content, durable=durable)
    assert path.read_text("utf-8") == "é"
    assert os.listdir(tmp_path) == ["file"]


@pytest.mark.parametrize(("keep", "new"), [(True, 0o640), (False, 0o600)], ids=["keep", "own"])
def test_a_replaced_file_keeps_its_permissions_where_asked(
    tmp_path: Path, keep: bool, new: int
) -> None:
    path = tmp_path / "file"
    path.touch()
    path.chmod(0o640)
    replace_file(path, "x", keep_mode=keep)
    assert mode(path) == new


def test_a_file_that_cannot_take_its_name_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "folder/inside").mkdir(parents=True)
    with pytest.raises(OSError, match="directory"):
        replace_file(tmp_path / "folder", "x")
    assert os.listdir(tmp_path) == ["folder"]


@pytest.mark.parametrize(
    ("before", "after"),
    [(b"", b"new\n"), (b"old\n", b"old\nnew\n"), (b"cut", b"cut\nnew\n")],
    ids=["empty", "whole", "cut off"],
)
def test_a_line_begins_behind_the_last(tmp_path: Path, before: bytes, after: bytes) -> None:
    (tmp_path / "log").write_bytes(before)
    append_line(tmp_path / "log", "new")
    assert (tmp_path / "log").read_bytes() == after


def test_a_line_is_made_of_any_text(tmp_path: Path) -> None:
    append_line(tmp_path / "log", "a\udcff")
    assert (tmp_path / "log").read_bytes() == b"a?\n"


def test_a_line_is_appended_to_no_link_and_no_fifo(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("file")
    os.mkfifo(tmp_path / "fifo")
    for name in ("link", "fifo"):
        with pytest.raises(OSError, match=r"symbolic links|regular file"):
            append_line(tmp_path / name, "x")


def test_a_line_is_written_though_another_process_holds_the_lock(tmp_path: Path) -> None:
    with flocked(tmp_path / "log") as free:
        assert free
        append_line(tmp_path / "log", "new", wait_s=0.01)
    assert (tmp_path / "log").read_text() == "new\n"
