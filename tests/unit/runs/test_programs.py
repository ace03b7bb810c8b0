"""The copies of the programs that run inside jobs: shared by runs, whole, this user's alone, and removed by clean."""

from __future__ import annotations

import os
import threading
import time
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest

from hpcrun.job.layout import RunFolder, RunsFolder
from hpcrun.runs.folder_checks import UnsafeFolderError
from hpcrun.runs.job_code import put_programs, remove_unused_programs
from hpcrun.runs.store import RunStore
from tests.unit.given import run

FILES = {f"{folder}/{name}.py": f"{name} = 1\n".encode() * 100 for folder in ("launch", "runtime") for name in "abcde"}
NEWER = {**FILES, "launch/a.py": b"a = 2\n"}


def whole(copy: Path, files: dict[str, bytes]) -> bool:
    return {str(path.relative_to(copy)): path.read_bytes() for path in copy.rglob("*.py")} == files


def put(root: Path) -> Path:
    return put_programs(RunsFolder(root), FILES)


def test_each_version_has_one_copy(tmp_path: Path) -> None:
    runs = RunsFolder(tmp_path)
    first, second = put_programs(runs, FILES), put_programs(runs, NEWER)
    inode = (first / "launch/a.py").stat().st_ino
    assert put_programs(runs, FILES) == first != second
    assert (first / "launch/a.py").stat().st_ino == inode  # it was not written again
    assert (whole(first, FILES), whole(second, NEWER)) == (True, True)


def test_submissions_at_once_make_one_copy(tmp_path: Path) -> None:
    with ProcessPoolExecutor(8) as pool:
        (copy,) = {*pool.map(put, [tmp_path] * 40)}
    assert whole(copy, FILES)
    assert os.listdir(copy.parent) == [copy.name]


@pytest.mark.parametrize("elsewhere", [False, True])
def test_each_run_links_to_its_copy(elsewhere: bool, tmp_path: Path) -> None:
    store, place = RunStore(tmp_path / "runs"), tmp_path / "place"
    one = run()
    folder = store.create(one, "", place if elsewhere else None, programs=FILES)
    assert whole(RunFolder(folder).programs().resolve(), FILES)
    assert RunFolder(store.folder(one.run_id)).programs().resolve().parent == tmp_path / "runs/.programs"


def test_a_damaged_copy_is_replaced(tmp_path: Path) -> None:
    copy = put(tmp_path)
    for damage in (
        lambda: (copy / "launch/a.py").write_bytes(b""),
        lambda: (copy / "launch/a.py").unlink(),
        lambda: copy.chmod(0o777),
        lambda: (copy / "launch").chmod(0o707),
        lambda: os.chown(copy, 65534, -1),
    ):
        damage()
        (copy / "launch/json.py").touch()
        assert put(tmp_path) == copy
        assert whole(copy, FILES)
        assert copy.stat().st_mode & 0o077 == (copy / "launch").stat().st_mode & 0o077 == 0


def test_a_link_of_another_user_is_not_followed(tmp_path: Path) -> None:
    copy = put(tmp_path)
    theirs = copy.rename(tmp_path / "theirs")
    os.chown(theirs, 65534, -1)
    copy.symlink_to(theirs)
    assert put(tmp_path).resolve() == copy


def test_copies_that_others_could_change_are_not_used(tmp_path: Path) -> None:
    copies = put(tmp_path).parent
    copies.chmod(0o777)
    with pytest.raises(UnsafeFolderError, match="other users can write to"):
        put(tmp_path)


def test_clean_removes_what_no_run_uses(tmp_path: Path) -> None:
    store = RunStore(tmp_path / "runs")
    folder = store.create(run(), "", programs=FILES)
    runs, later = RunsFolder(store.root), time.time() + 1
    unused = put_programs(runs, NEWER)
    (runs.programs_aside(unused.name, 7)).mkdir()  # of a submission that was killed
    remove_unused_programs(runs, time.time() - 60)
    assert len(os.listdir(runs.programs())) == 3  # a submission may have begun
    store.remove_leftovers([], later)
    assert os.listdir(runs.programs()) == [RunFolder(folder).programs().resolve().name]
    store.delete(folder.name)
    assert len(os.listdir(runs.programs())) == 1
    store.remove_leftovers([], later)
    assert os.listdir(runs.programs()) == []


def test_clean_keeps_what_a_run_that_cannot_be_reached_may_use(tmp_path: Path) -> None:
    store, place = RunStore(tmp_path / "runs"), tmp_path / "place"
    store.create(run(), "", place, programs=FILES)
    place.rename(tmp_path / "unmounted")
    store.remove_leftovers([], time.time() + 1)
    assert len(os.listdir(RunsFolder(store.root).programs())) == 1


def test_no_run_that_is_submitted_while_clean_works_is_without_programs(tmp_path: Path) -> None:
    store, done = RunStore(tmp_path / "runs"), threading.Event()
    store.create(run("20260101-000000-first-0000"), "", programs=NEWER)
    runs = RunsFolder(store.root)
    copy = put_programs(runs, FILES)

    def clean() -> None:
        while not done.is_set():
            with suppress(FileNotFoundError):
                os.utime(copy, (0, 0))  # no run has used it for years
            remove_unused_programs(runs, time.time() - 60)

    cleaner = threading.Thread(target=clean)
    cleaner.start()
    for number in range(1, 40):
        run_id = f"20260101-000000-a-{number:04x}"
        store.create(run(run_id), "", programs=FILES)
        if number % 3:
            store.delete(run_id)
    done.set()
    cleaner.join()
    left = store.run_ids()
    assert len(left) == 14
    for run_id in left:
        programs = RunFolder(store.folder(run_id)).programs()
        assert whole(programs, NEWER if "first" in run_id else FILES)
