"""Snapshots of code, and the copies of the programs that run inside jobs."""

from __future__ import annotations

import os
import threading
import time
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest

from hpcrun.errors import PlanError
from hpcrun.job.run_paths import RunFolder, RunsFolder
from hpcrun.runs.folder_checks import UnsafeFolderError
from hpcrun.runs.job_code import (
    CodeFile,
    check_count,
    copy_code,
    measure_code,
    walk_code,
)
from hpcrun.runs.job_programs import put_programs, remove_unused_programs
from hpcrun.runs.store import RunStore
from tests.unit.builders import run, write

MB = 1024 * 1024


def test_code_is_every_file_and_link_but_those_of_git_python_and_virtual_environments(
    tmp_path: Path,
) -> None:
    code = ["a.py", "package/b.py", "package/data/c.txt", "package/.hidden"]
    others = [
        ".git/config",
        "package/__pycache__/b.pyc",
        "env/pyvenv.cfg",
        "env/lib/torch.py",
        "runs/1/run.json",
    ]
    for path in (*code, *others):
        write(tmp_path / path, "")
    (tmp_path / "linked").symlink_to("package")
    # and so is none of it, whatever it is called
    (tmp_path / "package/venv").symlink_to(tmp_path / "env")
    assert sorted(walk_code(tmp_path, [tmp_path / "runs"])) == sorted([*code, "linked"])
    (tmp_path / "env/pyvenv.cfg").unlink()
    assert "env/lib/torch.py" in walk_code(tmp_path, [])
    assert "runs/1/run.json" in walk_code(tmp_path, [])


def test_what_is_as_large_as_may_be_is_taken_and_what_is_more_is_refused(tmp_path: Path) -> None:
    sizes = {"f": 40, "e": 20, "d": 15, "c": 14, "b": 8, "a": 3}
    for name, size in sizes.items():
        os.truncate(write(tmp_path / name, ""), size * MB)
    paths = [*sizes, "deleted"]
    assert [(file.path, file.size) for file in measure_code(tmp_path, paths, 100)] == [
        (name, size * MB) for name, size in sizes.items()
    ]
    os.truncate(tmp_path / "a", 3 * MB + 1)
    with pytest.raises(PlanError) as refused:
        measure_code(tmp_path, paths, 100)
    first, *largest = refused.value.message.splitlines()
    assert first.endswith(
        "is 100 MB in 6 files, over the limit of a snapshot (100 MB); the largest:"
    )
    assert largest == [
        "  40.0 MB  f",
        "  20.0 MB  e",
        "  15.0 MB  d",
        "  14.0 MB  c",
        "  8.0 MB  b",
    ]
    check_count(["a.py"] * 50_000, tmp_path)
    with pytest.raises(PlanError, match=f"there are more than 50000 files in {tmp_path}"):
        check_count(["a.py"] * 50_001, tmp_path)


def test_links_within_the_code_lead_to_the_copy_and_those_out_of_it_to_where_they_led(
    tmp_path: Path,
) -> None:
    root, outside = tmp_path / "code", write(tmp_path / "data/set.csv", "1,2\n")
    write(root / "package/a.py", "1\n")
    links = {"near": "package/a.py", "absolute": str(root / "package/a.py"), "itself": str(root)}
    links |= {"out": "../data/set.csv", "beside": f"{root}-other/x"}
    for name, leads in links.items():
        (root / name).symlink_to(leads)
    os.mkfifo(root / "pipe")
    files = measure_code(root, ["package/a.py", *links, "pipe"], 1)
    assert [(file.path, file.link, file.leaves) for file in files] == [
        ("package/a.py", None, False),
        ("near", "package/a.py", False),
        ("absolute", "package/a.py", False),
        ("itself", ".", False),
        ("out", str(outside), True),
        ("beside", f"{root}-other/x", True),
    ]
    copy = tmp_path / "copy"
    copy_code(root, files, copy, "package")
    assert (copy / "absolute").resolve() == copy / "package/a.py"
    assert (copy / "out").read_text() == "1,2\n"


def test_a_copy_keeps_modes_and_times_and_is_closed_to_others(tmp_path: Path) -> None:
    program = write(tmp_path / "code/bin/run", "#!/bin/sh\n")
    program.chmod(0o4751)
    os.utime(program, ns=(1_000_000_000_000_000_001, 1_100_000_000_000_000_002))
    copy = tmp_path / "copy"
    copy_code(tmp_path / "code", [CodeFile("bin/run", 10)], copy, "empty/below")
    status = (copy / "bin/run").stat()
    assert status.st_mode & 0o7777 == 0o751
    assert status.st_mtime_ns == 1_100_000_000_000_000_002
    assert copy.stat().st_mode & 0o7777 == 0o700
    assert (copy / "empty/below").is_dir()


FILES = {
    f"{folder}/{name}.py": f"{name} = 1\n".encode() * 100
    for folder in ("launch", "runtime")
    for name in "abcde"
}
NEWER = {**FILES, "launch/a.py": b"a = 2\n"}


def whole(copy: Path, files: dict[str, bytes]) -> bool:
    return {str(path.relative_to(copy)): path.read_bytes() for path in copy.rglob("*.py")} == files


def put(root: Path) -> Path:
    return put_programs(RunsFolder(root), FILES)


def test_each_version_has_one_copy_and_submissions_at_once_make_one(tmp_path: Path) -> None:
    with ProcessPoolExecutor(8) as pool:
        (copy,) = {*pool.map(put, [tmp_path] * 40)}
    assert whole(copy, FILES)
    assert os.listdir(copy.parent) == [copy.name]
    runs = RunsFolder(tmp_path)
    first, second = put_programs(runs, FILES), put_programs(runs, NEWER)
    inode = (first / "launch/a.py").stat().st_ino
    assert put_programs(runs, FILES) == first == copy != second
    assert (first / "launch/a.py").stat().st_ino == inode  # it was not written again
    assert whole(first, FILES) is True
    assert whole(second, NEWER) is True


@pytest.mark.parametrize("elsewhere", [False, True])
def test_each_run_links_to_its_copy_which_clean_keeps_though_the_run_cannot_be_reached(
    elsewhere: bool, tmp_path: Path
) -> None:
    store, place = RunStore(tmp_path / "runs"), tmp_path / "place"
    folder = store.create(run(), "", place if elsewhere else None, programs=FILES)
    assert whole(RunFolder(folder).programs().resolve(), FILES)
    assert (
        RunFolder(store.folder(folder.name)).programs().resolve().parent
        == tmp_path / "runs/.programs"
    )
    if elsewhere:
        place.rename(tmp_path / "unmounted")
    store.remove_leftovers([], time.time() + 1)
    assert len(os.listdir(RunsFolder(store.root).programs())) == 1


def test_a_damaged_copy_is_replaced(tmp_path: Path, subtests: pytest.Subtests) -> None:
    copy = put(tmp_path)
    for damage in (
        lambda: (copy / "launch/a.py").write_bytes(b""),
        lambda: (copy / "launch/a.py").unlink(),
        lambda: copy.chmod(0o777),
        lambda: (copy / "launch").chmod(0o707),
        lambda: os.chown(copy, 65534, -1),
    ):
        with subtests.test(damage=damage):
            damage()
            (copy / "launch/json.py").touch()
            assert put(tmp_path) == copy
            assert whole(copy, FILES)
            assert copy.stat().st_mode & 0o077 == (copy / "launch").stat().st_mode & 0o077 == 0


def test_copies_that_others_could_change_are_not_used(tmp_path: Path) -> None:
    copy = put(tmp_path)
    theirs = copy.rename(tmp_path / "theirs")
    os.chown(theirs, 65534, -1)
    copy.symlink_to(theirs)
    assert put(tmp_path).resolve() == copy
    copy.parent.chmod(0o777)
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
