"""Signals that come early, before the job has started its ranks, and late, after the program has ended of them."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.harness import REPO
from tests.launch.given import wait_until

WRAPPER = """
import os, signal, sys, threading, time
from hpcrun.launch.processes import hear, start, wait
hear()
pid = start(["sh", "-c", sys.argv[1]], os.environ)
late = threading.Timer(0.4, os.kill, (os.getpid(), signal.SIGTERM))
late.start()
found = wait([pid], lambda info: print("heard", info.si_signo, flush=True))
print(found[1])
late.join()
"""


@pytest.mark.parametrize("program", ["kill -TERM $$", "exit 143"], ids=["a program", "a wrapper"])
def test_a_signal_that_comes_after_the_end_that_it_made_is_heard(program: str) -> None:
    done = subprocess.run([sys.executable, "-c", WRAPPER, program], capture_output=True, text=True, timeout=30)
    assert done.stdout == "heard 15\n143\n", done.stderr


def test_after_any_other_end_no_signal_is_waited_for() -> None:
    done = subprocess.run([sys.executable, "-c", WRAPPER, "exit 3"], capture_output=True, text=True, timeout=30)
    assert done.stdout == "3\n", done.stderr


def test_a_job_that_is_ended_while_it_loads_its_modules_leaves_a_record(tmp_path: Path) -> None:
    launch, attempt = tmp_path / "programs/launch", tmp_path / "elements/0/attempts/0"
    shutil.copytree(REPO / "hpcrun/launch", launch, ignore=shutil.ignore_patterns("__pycache__"))
    attempt.mkdir(parents=True)
    begun, go = tmp_path / "begun", tmp_path / "go"
    slow = [
        "import os, pathlib, time",
        f"pathlib.Path({str(begun)!r}).touch()",
        f"while not pathlib.Path({str(go)!r}).exists(): time.sleep(0.01)",
    ]
    module = launch / "node.py"  # the job loads it for the nodes
    module.write_text(module.read_text().replace("import os", "\n".join(slow), 1))
    env = {**os.environ, "HPCRUN_RUN_DIR": str(tmp_path), "HPCRUN_ATTEMPT_DIR": str(attempt), "HPCRUN_JOB_ID": "L1"}
    command = [sys.executable, "-ISB", str(launch / "__main__.py"), "job", "--nodes", "1", "--", "sleep", "60"]
    process = subprocess.Popen(command, env={**env, "HPCRUN_ELEMENT": "0", "HPCRUN_ATTEMPT": "0"}, cwd=tmp_path)
    wait_until(begun.exists, "the job to load its modules")
    process.send_signal(signal.SIGTERM)
    go.touch()
    assert process.wait(30) == 143
    assert json.loads((attempt / "exit").read_text())["signal"] == "TERM"
