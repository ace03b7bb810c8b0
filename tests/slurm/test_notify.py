"""Messages from jobs on a real Slurm: once each, and without any process of the person on the login
node.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time

import pytest

from tests.harness import RESEARCHER, Hpcrun, wait_for
from tests.receivers import http_server
from tests.slurm.lab import SMALL
from tests.unit.builders import write

pytestmark = pytest.mark.slurm

LOGIN = "10.78.0.254"
"""The address at which the nodes reach this host: dev/cluster.sh."""
# the second job writes the record of its idle GPUs itself: nothing here has a GPU that could be
# idle
FAILS_ONCE = """
import json, os, sys, time
from hpcrun_runtime import attempt, log_metrics
log_metrics(step=1, loss=2.5)
if len(sys.argv) > 1:
    idle = {"since": time.time() - 1500, "warned": time.time(), "ends": time.time() + 300}
    open(os.environ["HPCRUN_ATTEMPT_DIR"] + "/idle", "w").write(json.dumps(idle))
    time.sleep(600)
time.sleep(4)
assert attempt() == 1, "the first attempt fails"
"""


def is_about_the_wait(title: str) -> bool:
    return title.startswith("held has been pending for ")


def test_every_event_arrives_once_although_all_of_the_person_s_processes_are_killed(
    as_researcher: Hpcrun,
) -> None:
    person = as_researcher
    script = str(write(person.folder / "train.py", FAILS_ONCE))
    with http_server(host="0.0.0.0") as hook:
        env = {"HOOK": f"json://{LOGIN}:{hook.port}/secret"}
        to = ("--notify", "$HOOK")
        job = (*SMALL, "-p", "cpu", "--requeue", "1", "--retry-on-failure", *to)
        waits = subprocess.Popen(
            [*person.become, *person.argv("submit", "--wait", *job, "-J", "again", script)],
            env={**person.environ, **env},
            cwd=person.folder,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        stopped = ("-J", "stopped", script, "600")
        person("submit", *SMALL, "-p", "cpu", *to, *stopped, env=env, check=True)
        write(person.home / ".config/hpcrun/config.yaml", "notify_waiting: 1s\n")
        shutil.chown(person.home / ".config/hpcrun/config.yaml", RESEARCHER)
        person(
            "submit",
            *SMALL,
            "-p",
            "cpu",
            *to,
            "-J",
            "held",
            "--sbatch",
            "hold",
            script,
            env=env,
            check=True,
        )
        wait_for(lambda: hook.titles().count("again: first step"), 60, "the first step")
        os.killpg(waits.pid, signal.SIGKILL)
        waits.wait()
        wait_for(
            lambda: "stopped: its GPUs are idle" in hook.titles(),
            30,
            "the idle GPUs of the other job",
        )

        def said_that_it_waits() -> bool:
            # looks at the messages of a run twice a minute at most
            person("status", env=env, check=True)
            return any(map(is_about_the_wait, hook.titles()))

        wait_for(said_that_it_waits, 70, "the job that waits")
        person("status", env=env, check=True)
        person.run("scancel", "--name=stopped")
        wait_for(
            lambda: [title for title in hook.titles() if title.startswith("again completed")],
            120,
            "the end",
        )
        wait_for(
            lambda: [title for title in hook.titles() if title.startswith("stopped was")],
            30,
            "the cancelled one",
        )
        time.sleep(1)
        titles = [title.partition(" after")[0] for title in hook.titles()]
        bodies = hook.bodies()
        person("status", check=True)
        assert len(hook.messages) == len(titles)
    assert [title for title in titles if title.startswith("again")] == [
        "again started",
        "again: first step",
        "again: attempt 1 failed, requeued",
        "again completed",
    ]
    assert [title for title in titles if title.startswith("stopped")] == [
        "stopped started",
        "stopped: first step",
        "stopped: its GPUs are idle",
        "stopped was cancelled",
    ]
    assert sum(map(is_about_the_wait, titles)) == 1
    assert {path for path, _ in hook.messages} == {"/secret"}
    assert any("AssertionError: the first attempt fails at train.py:10" in body for body in bodies)
