"""The warning before the time limit: each process of a rank that handles it gets it once."""

from __future__ import annotations

import os
import shlex
import signal
import sys
from pathlib import Path

import pytest

from tests.launch.jobs import job, python

MANAGED = ("--grace", "60", "--requeue", "1")
SAVES = """
import multiprocessing, os, signal, sys, time
until = time.monotonic() + 15
def save(*_):
    global until
    until = time.monotonic() + 1.3
    os.write(1, b"warned by %d\\n" % os.getpid())
signal.signal(signal.SIGUSR1, save)
worker = multiprocessing.get_context("fork").Process(target=time.sleep, args=(60,), daemon=True)
worker.start()
print("ready", flush=True)
while time.monotonic() < until:
    time.sleep(0.1)
print("worker lives", worker.is_alive(), flush=True)
"""
BEHIND = {
    "directly": "exec {program}",
    "bash": "{program}; exit 0",
    "timeout": "timeout 60 {program}",
    "xargs": "echo | xargs {program}",
    "a pipe": "{program} | cat",
    "setsid": "setsid --wait {program}",
}


@pytest.mark.parametrize("command", BEHIND.values(), ids=BEHIND)
def test_the_warning_arrives_once(tmp_path: Path, command: str) -> None:
    program = shlex.join(python(tmp_path, SAVES))
    shell = ["bash", "-c", command.format(program=program)]
    with job(tmp_path, shell, options=MANAGED) as running:
        running.until("ready")
        os.kill(running.process.pid, signal.SIGUSR1)
        assert running.end() == 124
        assert running.out().count("warned by") == 1
        assert "worker lives True" in running.out()
        assert running.rank(0)["heard"]


def test_a_shell_and_its_program_that_both_handle_the_warning_get_it(tmp_path: Path) -> None:
    program = shlex.join(python(tmp_path, SAVES))
    shell = f"trap 'echo the shell, too' USR1; {program} & wait; wait"
    with job(tmp_path, ["bash", "-c", shell], options=MANAGED) as running:
        running.until("ready")
        os.kill(running.process.pid, signal.SIGUSR1)
        assert running.end() == 124
        assert running.out().count("warned by") == 1
        assert running.out().count("the shell, too") == 1


def test_a_rank_without_a_handler_is_not_killed(tmp_path: Path) -> None:
    text = [sys.executable, "-c", "import time; print('ready', flush=True); time.sleep(3)"]
    with job(tmp_path, text, options=MANAGED) as running:
        running.until("ready")
        os.kill(running.process.pid, signal.SIGUSR1)
        assert running.end() == 0
        assert not running.rank(0)["heard"]
