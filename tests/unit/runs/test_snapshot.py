"""What of a folder is code, how much of it there may be, and what a copy of it looks like."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from hpcrun.errors import PlanError
from hpcrun.runs.job_code import MOST_FILES, CodeFile, check_count, copy_code, measure_code, walk_code
from tests.unit.given import write

MB = 1024 * 1024


def sized(path: Path, size: int) -> None:
    write(path, "")
    os.truncate(path, size)


def test_code_is_every_file_and_link_but_those_of_git_python_and_virtual_environments(tmp_path: Path) -> None:
    code = ["a.py", "package/b.py", "package/data/c.txt", "package/.hidden"]
    others = [".git/config", "package/__pycache__/b.pyc", "env/pyvenv.cfg", "env/lib/torch.py", "runs/1/run.json"]
    for path in (*code, *others):
        write(tmp_path / path, "")
    (tmp_path / "linked").symlink_to("package")
    (tmp_path / "package/venv").symlink_to(tmp_path / "env")  # and so is none of it, whatever it is called
    assert sorted(walk_code(tmp_path, [tmp_path / "runs"])) == sorted([*code, "linked"])
    (tmp_path / "env/pyvenv.cfg").unlink()
    assert "env/lib/torch.py" in walk_code(tmp_path, [])
    assert "runs/1/run.json" in walk_code(tmp_path, [])


def test_what_is_as_large_as_may_be_is_taken_and_a_byte_more_is_refused_with_the_largest(tmp_path: Path) -> None:
    sizes = {"f": 40, "e": 20, "d": 15, "c": 14, "b": 8, "a": 3}
    for name, size in sizes.items():
        sized(tmp_path / name, size * MB)
    paths = [*sizes, "deleted"]
    assert [(file.path, file.size) for file in measure_code(tmp_path, paths, 100)] == [
        (name, size * MB) for name, size in sizes.items()
    ]
    sized(tmp_path / "a", 3 * MB + 1)
    with pytest.raises(PlanError) as refused:
        measure_code(tmp_path, paths, 100)
    first, *largest = refused.value.message.splitlines()
    assert first.endswith("is 100 MB in 6 files, over the limit of a snapshot (100 MB); the largest:")
    assert largest == ["  40.0 MB  f", "  20.0 MB  e", "  15.0 MB  d", "  14.0 MB  c", "  8.0 MB  b"]


def test_more_files_than_code_has_are_refused(tmp_path: Path) -> None:
    check_count(["a.py"] * MOST_FILES, tmp_path)
    with pytest.raises(PlanError, match=f"there are more than {MOST_FILES} files in {tmp_path}"):
        check_count(["a.py"] * (MOST_FILES + 1), tmp_path)


def test_links_within_the_code_lead_to_the_copy_and_those_out_of_it_to_where_they_led(tmp_path: Path) -> None:
    root, outside = tmp_path / "code", write(tmp_path / "data/set.csv", "1,2\n")
    write(root / "package/a.py", "1\n")
    for name, leads in {
        "near": "package/a.py",
        "absolute": str(root / "package/a.py"),
        "itself": str(root),
        "out": "../data/set.csv",
        "beside": f"{root}-other/x",
    }.items():
        (root / name).symlink_to(leads)
    os.mkfifo(root / "pipe")

    files = measure_code(root, ["package/a.py", "near", "absolute", "itself", "out", "beside", "pipe"], 1)

    assert files == (
        CodeFile("package/a.py", 2),
        CodeFile("near", 0, "package/a.py"),
        CodeFile("absolute", 0, "package/a.py"),
        CodeFile("itself", 0, "."),
        CodeFile("out", 0, str(outside), leaves=True),
        CodeFile("beside", 0, f"{root}-other/x", leaves=True),
    )
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
    assert (status.st_mode & 0o7777, status.st_mtime_ns) == (0o751, 1_100_000_000_000_000_002)
    assert copy.stat().st_mode & 0o7777 == 0o700
    assert (copy / "empty/below").is_dir()
