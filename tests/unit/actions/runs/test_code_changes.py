"""The files of two snapshots: which differ, and how. Links are not followed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from hpcrun.actions.runs import code_changes
from hpcrun.actions.runs.code_changes import changed_files, diff_lines, snapshot_folder
from hpcrun.job.run_paths import RunFolder
from hpcrun.runs.store import RunStore
from tests.unit.builders import run, write

SECRET = "a secret\n"


@pytest.fixture
def folders(tmp_path: Path) -> tuple[Path, Path]:
    """Two snapshots with the same files, except for those that a test changes."""
    for name in ("before", "after"):
        write(tmp_path / name / "same.py", "x = 1\n")
        write(tmp_path / name / "pkg/train.py", "a\nb\tB\nc\n")
    os.utime(tmp_path / "before/same.py", (1, 1))  # another time alone is no difference
    write(tmp_path / "secret", SECRET)
    return tmp_path / "before", tmp_path / "after"


def test_the_same_files_do_not_differ(folders: tuple[Path, Path]) -> None:
    write(folders[1] / "__pycache__/x.pyc", "")
    assert changed_files(*folders) == {}
    assert list(diff_lines(*folders, ("1", "2"))) == []


def test_changed_new_and_missing_files(folders: tuple[Path, Path]) -> None:
    before, after = folders
    write(after / "pkg/train.py", "a\nb\tB2\nc\nd\n")
    write(before / "old.py", "x\n")
    write(after / "new.py", "y\n")
    (after / "data.bin").write_bytes(b"\0")
    assert changed_files(before, after) == {
        "data.bin": "new",
        "new.py": "new",
        "old.py": "gone",
        "pkg/train.py": "+2 -1",
    }
    text = "\n".join(diff_lines(before, after, ("1", "2")))
    assert "data.bin: new\n--- 1/new.py\n+++ 2/new.py\n@@ -0,0 +1 @@\n+y\n" in text
    assert "--- 1/pkg/train.py\n+++ 2/pkg/train.py\n@@ -1,3 +1,4 @@\n a\n-b\tB\n+b\tB2\n" in text


def test_links_and_fifos_are_neither_followed_nor_opened(folders: tuple[Path, Path]) -> None:
    before, after = folders
    write(before / "link", "was a file\n")
    (after / "link").symlink_to("../secret")
    (after / "new-link").symlink_to("../secret")
    for folder, target in ((before, "same.py"), (after, "../secret")):
        (folder / "moved").symlink_to(target)
    os.mkfifo(after / "pipe")
    write(before / "pipe", "")
    (after / "folder").symlink_to(after.parent, target_is_directory=True)
    assert changed_files(before, after) == {
        "link": "not a plain file",
        "moved": "another link",
        "new-link": "new",
        "pipe": "not a plain file",
    }
    assert SECRET.strip() not in "\n".join(diff_lines(before, after, ("1", "2")))


def test_large_files_are_not_read(
    folders: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(code_changes, "_MOST_BYTES", 10)
    for number, folder in enumerate(folders):
        write(folder / "equal", "x" * 11)
        write(folder / "other", "x" * (11 + number))
        os.utime(folder / "equal", (number, number))
    assert changed_files(*folders) == {"equal": "not compared", "other": "differs"}


def test_a_snapshot_may_be_an_earlier_run_s_and_is_no_link(tmp_path: Path) -> None:
    store = RunStore(tmp_path / "runs")
    owner = run("20260102-030405-train-0a1b")
    later = run("20260102-030406-train-0a1b", code_of=owner.run_id)
    folders = [RunFolder(store.create(each, "")) for each in (owner, later)]
    assert snapshot_folder(later, store) is None
    folders[0].code.mkdir()
    folders[1].code.symlink_to(folders[0].code)
    assert snapshot_folder(owner, store) == snapshot_folder(later, store) == folders[0].code
    folders[0].code.rmdir()
    write(tmp_path / "keys/id", SECRET)
    folders[0].code.symlink_to(tmp_path / "keys")
    assert snapshot_folder(owner, store) is None
    lost = run("20260102-030407-train-0a1b", code_of="20260102-030407-train-0000")
    assert snapshot_folder(lost, store) is None
