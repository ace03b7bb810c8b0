"""Being started again on this machine: warned, given up, and how the options are refused."""

from __future__ import annotations

import json
import os
import shutil
import signal
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from tests.harness import REPO, Hpcrun, wait_for

LOCAL = ("submit", "-P", "local", "--gpus", "0", "--requeue", "1", "--warn", "6s")

ASKS = """
import sys, time
from hpcrun_runtime import attempt, checkpoint_dir, should_stop
saved = checkpoint_dir() / "saved"
print(f"attempt {attempt()}, {'goes on' if saved.exists() else 'begins'}", flush=True)
while not attempt():
    if should_stop():
        saved.touch()
        break
    time.sleep(0.1)
"""
PLAIN = """
import time
while True:
    print(time.time(), flush=True)
    time.sleep(0.1)
"""


def submit(hpcrun: Hpcrun, script: str, *options: str) -> Path:
    """Submit a script; return the run's folder."""
    hpcrun.write("train.py", script)
    return hpcrun.submit(*LOCAL[1:], *options, "train.py", check=True)


def attempt(folder: Path, number: int) -> Path:
    return folder / "elements/0/attempts" / str(number)


def has_begun(attempt_dir: Path) -> bool:
    log = attempt_dir / "rank-0.out"
    return log.exists() and log.stat().st_size > 0


def warn(folder: Path, number: int) -> None:
    """Do what the supervisor does before the time limit, once the rank of an attempt has begun."""
    wait_for(partial(has_begun, attempt(folder, number)), 30, f"attempt {number} to begin")
    supervisor = json.loads((folder / "supervisor.json").read_text())["pid"]
    children = Path(f"/proc/{supervisor}/task/{supervisor}/children").read_text().split()
    alive = [int(child) for child in children if Path(f"/proc/{child}/cmdline").read_bytes()]
    os.kill(min(alive), signal.SIGUSR1)  # the others are orphans of the script


def test_the_supervisor_warns_before_the_time_limit_of_every_attempt(hpcrun: Hpcrun) -> None:
    """Called as submit calls it, with a limit that submit would not take: the shortest with a
    warning is a minute.
    """
    folder = hpcrun.folder / "run"
    (folder / "runtime").mkdir(parents=True)
    (folder / "submit.ready").touch()
    shutil.copy(REPO / "hpcrun/in_job/hpcrun_runtime.py", folder / "runtime")
    hpcrun.write("train.py", ASKS)
    hpcrun.write_script("run/script.sh", *LOCAL[1:], "train.py")
    supervisor = str(REPO / "hpcrun/schedulers/supervisor.py")
    hpcrun.run("python", supervisor, str(folder), "8", "6", env={"HPCRUN_RUN_DIR": str(folder)})
    record = folder / "supervisor.json"
    wait_for(lambda: record.exists() and "state" in json.loads(record.read_text()), 40, "the end")
    assert json.loads(record.read_text())["state"] == "COMPLETED"
    started = json.loads((attempt(folder, 0) / "start").read_text())["started"]
    warned = float((attempt(folder, 0) / "stop/time_limit").read_text().split()[1])
    assert 1.5 < warned - started < 7  # 6 s before a limit of 8 s
    assert (attempt(folder, 1) / "rank-0.out").read_text() == "attempt 1, goes on\n"


def test_one_that_asks_saves_and_goes_on_and_follow_shows_what_both_attempts_say(
    hpcrun: Hpcrun,
) -> None:
    hpcrun.write("train.py", ASKS)
    with ThreadPoolExecutor(1) as follower:
        following = follower.submit(hpcrun, *LOCAL, "--follow", "train.py", timeout=60)
        folder = wait_for(lambda: next(hpcrun.runs.glob("2*"), None), 30, "the run's folder")
        wait_for((folder / "supervisor.json").exists, 30, "its supervisor")
        warn(folder, 0)
        done = following.result()
    assert done.returncode == 0
    assert done.stdout.index("attempt 0, begins\n") < done.stdout.index("attempt 1, goes on\n")
    assert "hpcrun: attempt 2 begins\n" in done.stderr
    assert "COMPLETED" in done.stderr
    found = hpcrun.status()
    assert found["state"] == "COMPLETED"
    assert found["attempt"] == 1
    assert found["before"] == "time limit"
    assert json.loads((attempt(folder, 0) / "rank-0.exit").read_text())["heard"] is True
    assert hpcrun("logs", check=True).stdout == "attempt 1, goes on\n"
    assert "attempt 2/2" in hpcrun("status", check=True).stdout


def test_one_that_hears_nothing_is_given_up_and_the_last_attempt_is_the_end(hpcrun: Hpcrun) -> None:
    folder = submit(hpcrun, PLAIN)
    for number in (0, 1):
        warn(folder, number)
    found = hpcrun.ended()
    assert found["state"] == "TIMEOUT"
    assert found["attempt"] == 1
    assert "time limit, not requeued: --requeue 1 is used up" in " ".join(
        hpcrun("status").stdout.split()
    )
    warned = float((attempt(folder, 0) / "stop/time_limit").read_text().split()[1])
    last_word = float((attempt(folder, 0) / "rank-0.out").read_text().split()[-1])
    assert 3.5 < last_word - warned < 15  # a grace time of 4 s
