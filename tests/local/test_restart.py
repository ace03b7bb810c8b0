"""Restarts without the queue on this machine, with real processes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.harness import Hpcrun

LOCAL = ("-P", "local", "--gpus", "0", "--nodes", "2")

# fails in its first attempt on one node, while the other waits; then both do their work
SECOND_TIME = """
import os, sys, time
from hpcrun_runtime import attempt, checkpoint_dir
node = os.environ["NODE_RANK"]
saved = checkpoint_dir() / "saved"
print(f"attempt {attempt()}, port {os.environ['MASTER_PORT']}, saved {saved.exists()}")
print(os.environ["TORCH_FR_DUMP_TEMP_FILE"], os.environ["HPCRUN_ATTEMPT_DIR"], flush=True)
if attempt() < int(sys.argv[1]):
    if node == "0":
        time.sleep(600)
    saved.touch()
    sys.exit(3)
"""


def attempt(folder: Path, number: int) -> Path:
    return folder / "elements/0/attempts" / str(number)


def exit_of(folder: Path, number: int) -> dict[str, Any]:
    return dict(json.loads((attempt(folder, number) / "exit").read_text()))


def run(
    hpcrun: Hpcrun, script: str, *args: str, options: tuple[str, ...] = ()
) -> tuple[Path, dict[str, Any]]:
    """Submit a script and wait for its end; return the run's folder and its status."""
    hpcrun.write("train.py", script)
    return hpcrun.submit(
        *LOCAL, "--retry-on-failure", *options, "train.py", *args, check=True
    ), hpcrun.ended()


def starts(folder: Path) -> int:
    return len(list(folder.glob("elements/0/attempts/*/start")))


def test_a_rank_that_fails_once_is_restarted_in_place(hpcrun: Hpcrun) -> None:
    folder, status = run(hpcrun, SECOND_TIME, "1", options=("--restarts", "1"))
    assert status["state"] == "COMPLETED"
    assert status["attempt"] == 1
    assert status["before"] == "exit status 3, restarted in place"
    first, second = exit_of(folder, 0), exit_of(folder, 1)
    assert first["status"] == 3
    assert first["reason"] == "failure"
    assert first["again"] is True
    assert first["how"] == "restart"
    assert first["nodes"] == ["local-1"]
    assert second["status"] == 0
    assert second["again"] is False
    assert second["how"] == ""
    # one script, and so one supervisor's attempt
    assert (folder / "batch.log").read_text().count("the job is restarted in this allocation") == 1
    # every attempt has a folder, a port and a flight recorder of its own
    said = [(attempt(folder, number) / "rank-0.out").read_text().split() for number in (0, 1)]
    ports = {words[3] for words in said}
    assert len(ports) == 2
    assert [words[1] for words in said] == ["0,", "1,"]
    assert said[1][5] == "True"
    for number, words in enumerate(said):
        assert words[6:] == [
            str(attempt(folder, number) / "flight/rank_"),
            str(attempt(folder, number)),
        ]


def test_behind_the_restarts_comes_the_queue_and_the_numbers_go_on(hpcrun: Hpcrun) -> None:
    folder, status = run(hpcrun, SECOND_TIME, "3", options=("--restarts", "2", "--requeue", "1"))
    assert status["state"] == "COMPLETED"
    assert status["attempt"] == 3
    assert starts(folder) == 4
    assert [exit_of(folder, number)["how"] for number in range(4)] == [
        "restart",
        "restart",
        "requeue",
        "",
    ]
    table = " ".join(hpcrun("status", "last", check=True).stdout.split())
    assert "attempt 4/4" in table
    assert "before: " not in table  # it is over: what counts is how it ended
    said = hpcrun("explain", "last", check=True).stdout
    assert "attempts 1-2: exit status 3 (local-1), restarted in place" in said
    assert "attempt 3: exit status 3 (local-1), requeued" in said


def test_restarts_are_used_up_and_spares_need_them(hpcrun: Hpcrun) -> None:
    folder, status = run(hpcrun, SECOND_TIME, "9", options=("--restarts", "1"))
    assert (status["state"], status["exit_status"], starts(folder)) == ("FAILED", 3, 2)
    assert "not restarted: --restarts 1 is used up" in status["reason"]
    for profile, options, message in (
        ("a100", (), "--spares has no effect without --restarts"),
        ("local", ("--restarts", "1"), "--spares needs Slurm"),
    ):
        done = hpcrun(
            "submit", "-P", profile, "--gpus", "0", *options, "--spares", "1", "--dry-run", "true"
        )
        assert (done.returncode, message in done.stderr) == (2, True)


def test_a_failure_that_repeats_itself_is_not_retried(hpcrun: Hpcrun) -> None:
    folder, status = run(hpcrun, "raise KeyError('x')", options=("--restarts", "5"))
    assert (status["state"], starts(folder)) == ("FAILED", 2)
    assert status["reason"].startswith("not retried: attempts 1 and 2 ended with the same KeyError")
