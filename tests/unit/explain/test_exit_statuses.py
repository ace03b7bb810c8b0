"""What the end of a rank's log says where its exit status is not that of an uncaught exception."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.unit.explain.test_corpus import explained
from tests.unit.explain.written import NCCL_GONE, TRACE, Written, write_run

TERMINATE = "terminate called without an active exception"
SAID = "rank 5 on node02 failed first"
VALUE = f"{TRACE}ValueError: image 4711 is truncated\n"


def summary(folder: Path, err: str, status: int, others: str = NCCL_GONE) -> str:
    write_run(Written(None, err, others, status=status), folder)
    return explained(folder).summary


@pytest.mark.parametrize("status", [1, 2, 127])
@pytest.mark.parametrize("after", ["", "giving up\n"])
def test_a_printed_exception_is_named_whatever_the_program_returns(tmp_path: Path, status: int, after: str) -> None:
    said = summary(tmp_path / "run", VALUE + after, status)
    assert said == f"{SAID}: ValueError: image 4711 is truncated at train.py:63"


def test_the_exception_of_a_thread_is_named_where_the_program_then_gives_up(tmp_path: Path) -> None:
    said = summary(tmp_path / "run", f"Exception in thread Thread-1 (loader):\n{TRACE}OSError: stale file handle\n", 2)
    assert said == f"{SAID}: OSError: stale file handle at train.py:63"


def test_an_exception_after_which_the_program_continued_is_not_named(tmp_path: Path) -> None:
    on = "".join(f"step {step}\n" for step in range(9))
    assert summary(tmp_path / "lines", VALUE + on, 3) == f"{SAID} with exit status 3"
    folder = tmp_path / "times"  # what it printed then is in its other log
    write_run(Written(None, VALUE, status=3), folder)
    os.utime(folder / "elements/0/attempts/0/rank-5.err", (1500.0, 1500.0))
    assert explained(folder).summary == f"{SAID} with exit status 3"


def test_a_signal_is_not_explained_by_an_exception_before_it(tmp_path: Path) -> None:
    assert "ValueError" not in summary(tmp_path / "run", VALUE, 139)


@pytest.mark.parametrize(
    ("status", "err"),
    [
        (1, "step 3\nERROR: no tokenizer found in ./tok; run prepare.py first\n"),
        (17, "2026-11-23 05:28:58,922 CRITICAL root: disk quota exceeded while writing /scratch/x\n"),
        (4, "step 3\nprepare: cannot read /data/a.tar\n"),
    ],
)
def test_a_last_line_that_complains_is_in_the_answer(tmp_path: Path, status: int, err: str) -> None:
    line = err.splitlines()[-1]
    assert summary(tmp_path / "run", err, status) == f"{SAID} with exit status {status}: {line}"


def test_a_last_line_that_does_not_complain_is_not(tmp_path: Path) -> None:
    assert summary(tmp_path / "steps", "ERROR: skipped a.tar\n" + "step\n" * 5, 3) == f"{SAID} with exit status 3"
    assert summary(tmp_path / "done", "saved the model\n", 3) == f"{SAID} with exit status 3"


@pytest.mark.parametrize(
    ("status", "lead", "said"),
    [
        (127, "bash: ", "run.sh: No such file or directory"),
        (126, "/bin/sh: ", "./run.sh: Permission denied"),
        (134, "", TERMINATE),
    ],
)
def test_a_message_of_a_shell_or_of_cpp_is_the_answer(tmp_path: Path, status: int, lead: str, said: str) -> None:
    assert summary(tmp_path / "run", f"{lead}{said}\n", status, others="") == f"{SAID}: {said}"
