"""hpcrun explain of jobs of this machine that run, and their stacks, as a person calls it."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

from tests.harness import Hpcrun, wait_for
from tests.local.recorded import replace_fields

TRAIN = """
import os, sys, time
def load(path):
    time.sleep(600)
print("step 7", flush=True)
if os.environ.get("RANK", "0") == "0":
    load("shard")
time.sleep(600)
"""


def started(hpcrun: Hpcrun, *args: str, ranks: int = 1) -> Path:
    """Submit the program; return its folder when all ranks have written."""
    hpcrun.write("train.py", TRAIN)
    folder = hpcrun.submit("-P", "local", *args, check=True)
    logs = [folder / f"elements/0/attempts/0/rank-{rank}.out" for rank in range(ranks)]
    wait_for(lambda: all(log.exists() and log.stat().st_size for log in logs), 60, "all ranks")
    return folder


def silent(folder: Path, seconds: float) -> None:
    """Let all files of a run, and its begin, be older."""
    for path in (
        *folder.glob("elements/*/attempts/0/rank-*"),
        *folder.glob("elements/*/attempts/0/node-*"),
    ):
        os.utime(path, (time.time() - seconds,) * 2)


def test_a_running_job_is_explained_and_its_stacks_in_seconds(hpcrun: Hpcrun) -> None:
    folder = started(hpcrun, "--gpus", "2", "train.py", ranks=2)
    calm = hpcrun("explain", check=True).stdout
    assert calm.startswith("all 2 ranks wrote in the last 20 s: nothing looks stuck\n")
    assert "    rank 1 on local-0: " in calm
    assert "ago: step 7\n" in calm

    silent(folder, 720)
    plain = hpcrun("explain", check=True).stdout
    assert plain.startswith("no rank has written for 12 min\n")
    assert plain.splitlines()[-1].endswith(" --stacks")

    said = hpcrun.document("explain", "--stacks", check=True)
    assert said["summary"] == (
        "rank 0 on local-0 is in `time.sleep(600)` (train.py:4); "
        "rank 1 on local-0 is in `time.sleep(600)` (train.py:8), 12 min"
    )
    assert said["state"] == "RUNNING"
    (first,) = [each for each in said["evidence"] if each["who"] == "rank 0 on local-0"]
    assert first["lines"][-1] == f"{hpcrun.folder}/train.py:4 in load: time.sleep(600)"
    assert first["note"].endswith("py-spy")
    hpcrun.write("train.py", "# another text\n" * 9)  # no wrong line is shown
    assert (
        "rank 0 on local-0 is in load (train.py:4)"
        in hpcrun.document("explain", "--stacks")["summary"]
    )
    refused = hpcrun("explain", "--stacks", "--log", "slurm.out")
    assert (refused.returncode, "--stacks and logs cannot be combined" in refused.stderr) == (
        2,
        True,
    )

    hpcrun("cancel", "--yes", "last", check=True)
    hpcrun.ended()
    late = hpcrun("explain", "--stacks")
    assert late.returncode == 4
    assert "its allocation has ended" in late.stderr


def test_status_has_a_word_for_it_and_the_command_that_shows_more(hpcrun: Hpcrun) -> None:
    folder = started(hpcrun, "-G", "0", "train.py")
    assert "silent" not in hpcrun("status", check=True).stdout
    # it began two hours ago
    for record in (folder / "elements/0/attempts/0/start", folder / "supervisor.json"):
        replace_fields(record, started=json.loads(record.read_text())["started"] - 7200)
    silent(folder, 3600)
    shown = hpcrun("status", check=True)
    assert "silent 60 min" in shown.stdout
    assert shown.stderr.endswith(" --stacks shows where its ranks are\n")
    quiet = hpcrun("status", "--json", check=True)
    assert json.loads(quiet.stdout)["runs"][0]["silent_s"] // 10 == 360
    assert quiet.stderr == ""
    hpcrun("cancel", "--yes", "last", check=True)


def test_of_a_sweep_the_running_element_is_explained(hpcrun: Hpcrun) -> None:
    silent(started(hpcrun, "-G", "0", "--sweep", "lr=1,2", "train.py"), 900)
    shown = hpcrun("explain", "--stacks", check=True)
    assert (
        "is a sweep; showing element 0, which has been silent for the longest time" in shown.stderr
    )
    assert "the rank is in `time.sleep(600)` (train.py:4), 15 min" in shown.stdout
    hpcrun("cancel", "--yes", "last", check=True)
