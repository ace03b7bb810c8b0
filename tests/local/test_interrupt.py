"""Ctrl-C while hpcrun starts: exit status 130 and one line, whatever is being imported."""

from __future__ import annotations

import subprocess
import time
from contextlib import suppress
from signal import SIGINT

import pytest

from tests.harness import Hpcrun

# Sends SIGINT when hpcrun imports its Nth module, then runs hpcrun as `python -m hpcrun` does.
AT_IMPORT = """
import os, runpy, signal, sys

class Interrupt:
    def __init__(self, number):
        self.left, self.begun = number, False

    def find_spec(self, name, path=None, target=None):
        if self.begun:
            self.left -= 1
            if self.left == 0:
                os.kill(os.getpid(), signal.SIGINT)
        self.begun = self.begun or name == "hpcrun.__main__"

sys.meta_path.insert(0, Interrupt(int(sys.argv.pop(1))))
runpy.run_module("hpcrun", run_name="__main__", alter_sys=True)
"""
STARTED = 150
"""SIGINT is sent at imports up to this one; `hpcrun status` makes about 200."""


@pytest.mark.parametrize("number", [1, 2, 3, *range(5, STARTED, 29)])
def test_ctrl_c_during_any_import_is_one_line(hpcrun: Hpcrun, number: int) -> None:
    done = hpcrun.run("python", "-c", AT_IMPORT, str(number), "status", check=False)
    assert (done.returncode, done.stderr.strip(), done.stdout) == (130, "hpcrun: interrupted", "")


def test_a_signal_that_the_parent_ignores_stays_ignored(hpcrun: Hpcrun) -> None:
    program = f"import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)\n{AT_IMPORT}"
    done = hpcrun.run("python", "-c", program, "10", "--version", check=False)
    assert done.returncode == 0, done.stderr


def test_ctrl_c_at_any_moment_of_the_start_is_never_a_traceback_of_hpcrun(hpcrun: Hpcrun) -> None:
    begun_s = time.monotonic()
    hpcrun.run(*hpcrun.argv("status"))
    took_s = time.monotonic() - begun_s
    for part in range(10):
        with subprocess.Popen(
            hpcrun.argv("status"),
            env=hpcrun.environ,
            cwd=hpcrun.folder,
            text=True,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        ) as process:
            with suppress(subprocess.TimeoutExpired):
                process.wait(took_s * part / 10)
            process.send_signal(SIGINT)
            _, stderr = process.communicate(timeout=60)
        # Python itself may say something
        assert f"{hpcrun.checkout}/hpcrun/" not in stderr, f"{part}: {stderr}"


# Sends SIGINT when the record of the run is replaced, after its submission: it has the job's id
# then.
AT_RECORD = """
import os, runpy, signal, sys

def interrupt(event, arguments):
    if event == "os.rename" and str(arguments[1]).endswith("/run.json"):
        os.kill(os.getpid(), signal.SIGINT)

sys.addaudithook(interrupt)
runpy.run_module("hpcrun", run_name="__main__", alter_sys=True)
"""


def test_ctrl_c_after_the_job_was_submitted_names_the_job(hpcrun: Hpcrun) -> None:
    line = ("submit", "-P", "local", "--gpus", "0", "sleep", "5")
    done = hpcrun.run("python", "-c", AT_RECORD, *line, check=False)
    assert done.returncode == 130, done.stderr
    job_id = hpcrun.status()["job_id"]
    assert done.stderr.endswith(
        f"hpcrun: interrupted; job {job_id} was submitted\nhint: to cancel: hpcrun cancel "
        f"{job_id}\n"
    )
