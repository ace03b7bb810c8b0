"""What a test has started ends with the test, and nothing else does."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.harness import end_processes_of, process_ids, processes_of, wait_for

WAITS = [sys.executable, "-ISc", "import time; time.sleep(600)"]


@contextmanager
def running(*words: str, env: Mapping[str, str] | None = None) -> Iterator[subprocess.Popen[bytes]]:
    """A process with these words and variables, which leads a session of its own."""
    process = subprocess.Popen([*WAITS, *words], env=env or {}, start_new_session=True)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


@pytest.mark.parametrize(
    ("words", "env"),
    [
        ((), {"HPCRUN_RUNS": "{}/runs"}),
        ((), {"PATH": "/bin:{}"}),
        (("--folder={}",), {}),
        (("{}/train.py",), {}),
    ],
    ids=["a variable", "the end of a variable", "an option", "an argument"],
)
def test_a_process_of_the_folder_is_ended(
    tmp_path: Path, words: tuple[str, ...], env: dict[str, str]
) -> None:
    env = {name: value.format(tmp_path) for name, value in env.items()}
    with running(*(word.format(tmp_path) for word in words), env=env) as process:
        wait_for(lambda: process.pid in processes_of(tmp_path), 20, "its command line")
        end_processes_of(tmp_path)
        assert process.wait(10) == -9


def test_the_process_of_a_folder_with_a_longer_name_goes_on(tmp_path: Path) -> None:
    with running(f"{tmp_path}0/train.py", env={"HOME": f"{tmp_path}-1"}) as process:
        wait_for(lambda: process.pid in processes_of(Path(f"{tmp_path}0")), 20, "its command line")
        end_processes_of(tmp_path)
        assert process.poll() is None


def test_a_process_that_is_older_than_the_folder_is_not_looked_at(tmp_path: Path) -> None:
    with running(str(tmp_path)) as process:
        wait_for(lambda: process.pid in processes_of(tmp_path), 20, "its command line")
        end_processes_of(tmp_path, process_ids())
        assert process.poll() is None
        end_processes_of(tmp_path, process_ids() - {process.pid})
        assert process.wait(10) == -9


def test_this_process_goes_on(tmp_path: Path) -> None:
    with running(str(tmp_path)):
        assert os.getpid() not in processes_of(tmp_path)


FORKS = """
import os, time
for _ in range(100):
    os.fork() or time.sleep(60)
    time.sleep(0.1)
"""


def test_what_a_process_starts_while_it_is_ended_ends_too(tmp_path: Path) -> None:
    process = subprocess.Popen([sys.executable, "-ISc", FORKS, str(tmp_path)])
    try:
        wait_for(lambda: len(processes_of(tmp_path)) > 2, 20, "some processes")
        end_processes_of(tmp_path)
        assert processes_of(tmp_path) == []
    finally:
        process.kill()
        process.wait()
