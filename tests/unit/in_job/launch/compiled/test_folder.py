"""Which files of a node are compiled and complete, and where its folder can lie."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from hpcrun.in_job.launch import node_folder, records
from hpcrun.in_job.launch.compiled import folder


@pytest.fixture
def compiled(tmp_path: Path) -> Path:
    """The folder of a node."""
    (tmp_path / "files/inductor").mkdir(parents=True)
    return tmp_path


def test_the_folders_of_two_nodes_have_different_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(folder.FOLDER, "/tmp/hpcrun-compiled-7")
    monkeypatch.setenv(folder.SECRET, "secret")
    first = folder.path_on("n1")
    assert first.startswith("/tmp/hpcrun-compiled-7-")
    assert len(first) == len("/tmp/hpcrun-compiled-7-") + 16
    assert folder.path_on("n2") != first
    monkeypatch.setenv(folder.SECRET, "another")
    assert folder.path_on("n1") != first


@pytest.mark.parametrize(
    ("name", "counts"),
    [
        ("inductor/a.so", True),
        ("inductor/deep/er/a.so", True),
        ("inductor/a.lock", False),
        ("inductor/a.tmp", False),
        ("inductor/locks/a", False),
        ("inductor/tmp.pid_1/a", False),
        ("inductor/a\n", False),
    ],
)
def test_locks_and_parts_are_no_compiled_files(compiled: Path, name: str, counts: bool) -> None:
    path = compiled / "files" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
    os.utime(path, (0, 1000.5))
    expected = [(name, 1000.5)] if counts else []
    assert list(folder.compiled_files(str(compiled))) == expected


def test_what_is_no_readable_file_is_no_compiled_file(compiled: Path) -> None:
    (compiled / "files/link").symlink_to("/etc/hosts")
    (compiled / "files/closed").touch(mode=0o200)
    os.mkfifo(compiled / "files/pipe")
    assert list(folder.compiled_files(str(compiled))) == []


def test_a_file_that_a_process_writes_is_unfinished(compiled: Path) -> None:
    files = compiled / "files/inductor"
    (files / "read").touch()
    with (files / "a.so").open("w"), (files / "read").open(), (compiled / "outside").open("w"):
        assert folder.unfinished_files(str(compiled)) == {"inductor/a.so"}
        folder.note_unfinished(str(compiled), [os.getpid()])
    assert folder.unfinished_files(str(compiled)) == {"inductor/a.so"}


def test_a_process_that_is_not_named_has_no_unfinished_files(compiled: Path) -> None:
    with (compiled / "files/a.so").open("w"):
        folder.note_unfinished(str(compiled), [1 << 30])
    assert folder.unfinished_files(str(compiled)) == set()


def test_unpacked_files_are_those_that_are_noted(compiled: Path) -> None:
    assert folder.unpacked_files(str(compiled)) == set()
    (compiled / "unpacked").write_text("a\nb/c\n")
    assert folder.unpacked_files(str(compiled)) == {"a", "b/c"}


def test_compiled_files_need_a_disk_of_the_node(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tmp_path.chmod(0o700)
    assert folder.problem_of(str(tmp_path)) == ""
    assert folder.problem_of(f"{tmp_path}/x") == f"{tmp_path}/x: No such file or directory"
    tmp_path.chmod(0o777)
    assert folder.problem_of(str(tmp_path)).endswith("which has no sticky bit")
    monkeypatch.setattr(node_folder, "is_shared", lambda _: True)
    assert folder.problem_of(str(tmp_path)) == f"{tmp_path} is not on the node's own disk"


@pytest.mark.parametrize(
    ("flags", "problem"),
    [
        pytest.param(os.ST_NOSUID | os.ST_RELATIME, "", id="of programs"),
        pytest.param(os.ST_NOSUID | os.ST_NOEXEC, "programs cannot be loaded from", id="of data"),
    ],
)
def test_compiled_files_need_a_disk_from_which_programs_are_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flags: int, problem: str
) -> None:
    tmp_path.chmod(0o700)
    monkeypatch.setattr(os, "statvfs", lambda _: SimpleNamespace(f_flag=flags))
    assert folder.problem_of(str(tmp_path)) == (f"{problem} {tmp_path}" if problem else "")


@pytest.mark.parametrize(
    ("before", "after", "is_equal"),
    [
        pytest.param("flags: a b\nmodel name: X\n", "flags: a b\nmodel name: X\n", True, id="same"),
        pytest.param("flags: a b\ncpu MHz: 1\n", "flags: a b\ncpu MHz: 2\n", True, id="frequency"),
        pytest.param("flags: a b\n", "flags: a\n", False, id="flags"),
        pytest.param("Features: a\n", "Features: b\n", False, id="Arm"),
        pytest.param("model name: X\n", "model name: Y\n", False, id="model"),
        pytest.param("flags: a\n\nflags: b\n", "flags: a\n\nflags: c\n", True, id="second CPU"),
    ],
)
def test_cpus_of_one_kind_have_one_code(
    monkeypatch: pytest.MonkeyPatch, before: str, after: str, is_equal: bool
) -> None:
    codes = []
    for text in (before, after):
        monkeypatch.setattr(records, "read_text", lambda *_, text=text: text)
        codes.append(folder.cpu_kind())
    assert (codes[0] == codes[1]) == is_equal
    assert len(codes[0]) == 8
