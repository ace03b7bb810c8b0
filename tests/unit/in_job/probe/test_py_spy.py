"""Which py-spy is run, and what is made of what it prints: with small programs of that name."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from hpcrun.in_job.probe.py_spy import FORBIDDEN, absolute, dump, find_py_spy


def py_spy(folder: Path, text: str) -> str:
    folder.mkdir(exist_ok=True)
    path = folder / "py-spy"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


def dumped(program: str, seconds: float = 20.0) -> tuple[str, str]:
    return dump(program, 7, "/usr/bin:/bin", time.monotonic() + seconds)


def test_relative_folders_of_a_path_are_left_out() -> None:
    assert absolute("/usr/bin::.:bin:/bin") == "/usr/bin:/bin"


def test_the_py_spy_of_the_rank_comes_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    beside, on_path, given, own = (
        py_spy(tmp_path / name, "") for name in ("beside", "path", "given", "own")
    )
    monkeypatch.setenv("PATH", str(tmp_path / "own"))
    path = str(tmp_path / "path")
    assert find_py_spy(str(tmp_path / "beside/python"), path, given) == beside
    assert find_py_spy("python", path, given) == on_path
    assert find_py_spy("python", "", given) == given
    assert find_py_spy("python", "", "given") == own
    assert find_py_spy("python", "", str(tmp_path) + "/none") == own
    monkeypatch.setenv("PATH", "own")
    assert find_py_spy("python", "", "") == ""


def test_a_dump_is_what_it_prints(tmp_path: Path) -> None:
    program = py_spy(tmp_path, 'echo "$*"')
    assert dumped(program) == ("dump --json --nonblocking --pid 7\n", "")


def test_its_environment_has_the_path_alone(tmp_path: Path) -> None:
    program = py_spy(tmp_path, 'echo "$PATH $LC_ALL ${HOME-none}"; pwd')
    assert dumped(program)[0] == "/usr/bin:/bin C.UTF-8 none\n/\n"


def test_it_is_tried_three_times(tmp_path: Path) -> None:
    count = tmp_path / "count"
    program = py_spy(tmp_path, f'echo x >>"{count}"; echo "Error: half of a change" >&2; exit 1')
    assert dumped(program) == ("", "py-spy: half of a change")
    assert count.read_text() == "x\n" * 3


def test_a_failure_without_words_has_its_status(tmp_path: Path) -> None:
    assert dumped(py_spy(tmp_path, "exit 3")) == ("", "py-spy: exit status 3")


def test_a_forbidden_process_is_tried_once(tmp_path: Path) -> None:
    program = py_spy(tmp_path, f"echo x >>'{tmp_path}/n'; echo 'Permission Denied' >&2; exit 1")
    assert dumped(program) == ("", FORBIDDEN)
    assert (tmp_path / "n").read_text() == "x\n"


def test_one_that_hangs_is_killed(tmp_path: Path) -> None:
    text, problem = dumped(py_spy(tmp_path, "sleep 60"), 0.3)
    assert (text, problem) == ("", "py-spy did not respond for 0.3 s")


def test_without_time_it_is_not_started(tmp_path: Path) -> None:
    program = py_spy(tmp_path, f"touch '{tmp_path}/started'")
    assert dumped(program, 0.0) == ("", "no time was left for py-spy")
    assert not (tmp_path / "started").exists()


def test_too_much_output_is_not_read(tmp_path: Path) -> None:
    assert dumped(py_spy(tmp_path, "yes")) == ("", "py-spy printed more than 4 MB")


def test_one_that_cannot_be_started_is_named(tmp_path: Path) -> None:
    assert dumped(str(tmp_path)) == ("", f"{tmp_path}: Permission denied")
