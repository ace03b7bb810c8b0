"""Signals that come early, before the job has started its ranks, and late, after the program has
ended of them.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

from hpcrun.in_job.launch.processes import LATE_S
from tests.harness import REPO, wait_for

WRAPPER = """
import os, signal, sys, threading, time
from hpcrun.in_job.launch.processes import block_signals, start, wait
block_signals()
program, late_s = sys.argv[1], float(sys.argv[2])
pid = start(["sh", "-c", program], os.environ)
def send_late():
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    time.sleep(late_s)
    os.kill(os.getpid(), signal.SIGTERM)
sender = threading.Thread(target=send_late)
sender.start()
_, status = wait([pid], lambda info: print("heard", info.si_signo, flush=True))
print(status)
sender.join()
"""


def run_wrapper(program: str, late_s: float) -> str:
    """Return what a wrapper prints that is sent SIGTERM some seconds after its program has
    ended.
    """
    command = [sys.executable, "-c", WRAPPER, program, str(late_s)]
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=30).stdout


def test_a_signal_after_the_end_that_it_made_is_received_and_after_no_other_end_waited_for() -> (
    None
):
    for program in ("kill -TERM $$", "exit 143"):  # a program and a wrapper
        assert run_wrapper(program, LATE_S / 4) == "heard 15\n143\n"
    assert run_wrapper("exit 3", LATE_S * 0.9) == "3\n"


def test_a_job_that_is_ended_while_it_loads_its_modules_leaves_a_record(tmp_path: Path) -> None:
    launch, attempt = tmp_path / "programs/launch", tmp_path / "elements/0/attempts/0"
    shutil.copytree(
        REPO / "hpcrun/in_job/launch", launch, ignore=shutil.ignore_patterns("__pycache__")
    )
    attempt.mkdir(parents=True)
    begun, go = tmp_path / "begun", tmp_path / "go"
    slow = [
        "import os, pathlib, time",
        f"pathlib.Path({str(begun)!r}).touch()",
        f"while not pathlib.Path({str(go)!r}).exists(): time.sleep(0.01)",
    ]
    module = launch / "start_ranks.py"  # the job loads it for the nodes
    module.write_text(module.read_text().replace("import os", "\n".join(slow), 1))
    env = {
        **os.environ,
        "HPCRUN_RUN_DIR": str(tmp_path),
        "HPCRUN_ATTEMPT_DIR": str(attempt),
        "HPCRUN_JOB_ID": "L1",
    }
    command = [
        sys.executable,
        "-ISB",
        str(launch / "__main__.py"),
        "job",
        "--nodes",
        "1",
        "--",
        "sleep",
        "60",
    ]
    process = subprocess.Popen(
        command, env={**env, "HPCRUN_ELEMENT": "0", "HPCRUN_ATTEMPT": "0"}, cwd=tmp_path
    )
    try:
        wait_for(begun.exists, 20, "the job to load its modules")
        process.send_signal(signal.SIGTERM)
        go.touch()
        assert process.wait(30) == 143
    finally:
        process.kill()
        process.wait()
    assert json.loads((attempt / "exit").read_text())["signal"] == "TERM"
