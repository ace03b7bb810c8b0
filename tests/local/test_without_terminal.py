"""Commands of a script or a coding agent: without a terminal, stdin closed, output captured."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.harness import Completed, Hpcrun, wait_for

JOB = ("submit", "-P", "local", "--gpus", "0", "--cpus", "1")


def closed(hpcrun: Hpcrun, line: str) -> Completed:
    """Run a line of bash, in which stdin is closed."""
    return hpcrun.shell(f"{line} <&-")


def document(done: Completed) -> dict[str, Any]:
    """What a command printed with ``--json``."""
    return dict(json.loads(done.stdout))


def sleeping(hpcrun: Hpcrun, *names: str) -> list[dict[str, Any]]:
    """Submit a run for each name, and return their statuses once all of them run."""
    for name in names:
        hpcrun(*JOB, "-J", name, "sleep", "300", check=True)

    def running() -> list[dict[str, Any]] | None:
        runs: list[dict[str, Any]] = hpcrun.document("status", check=True)["runs"]
        return runs if all(run["state"] == "RUNNING" for run in runs) else None

    return wait_for(running, 30, "all to run")


# --- cancel, hold, release -----------------------------------------------------------------------


@pytest.mark.parametrize("words", ["--state running", "last", "twice"])
def test_cancel_does_nothing_without_ids_or_yes(hpcrun: Hpcrun, words: str) -> None:
    runs = sleeping(hpcrun, "once", "twice", "twice")
    done = closed(hpcrun, f"hpcrun cancel {words}")
    assert done.returncode == 2
    assert "nothing was cancelled: without a terminal, cancel needs ids or --yes" in done.stderr
    assert f"{runs[-1]['run_id']}  job {runs[-1]['job_id']}  RUNNING\n" in done.stderr
    hint = done.stderr.splitlines()[-1]
    assert hint.startswith("hint: hpcrun cancel ")
    states = [run["state"] for run in hpcrun.document("status", check=True)["runs"]]
    assert states == ["RUNNING"] * 3
    allowed = closed(hpcrun, f"hpcrun cancel --yes {words}")
    assert allowed.returncode == 0
    assert f", run {runs[-1]['run_id']}\n" in allowed.stdout


def test_the_hint_of_a_refused_cancel_cancels_what_was_meant(hpcrun: Hpcrun) -> None:
    sleeping(hpcrun, "one", "two")
    refused = closed(hpcrun, "hpcrun cancel --state running")
    line = refused.stderr.splitlines()[-1].removeprefix("hint: ")
    assert closed(hpcrun, line).stdout.count("cancelled  job ") == 2


def test_cancel_of_an_id_and_of_a_name_that_is_unique_asks_nothing(hpcrun: Hpcrun) -> None:
    by_id, _ = sleeping(hpcrun, "one", "two")
    done = closed(hpcrun, f"hpcrun cancel {by_id['job_id']} two")
    assert (done.returncode, done.stdout.count("cancelled  job ")) == (0, 2)


def test_cancel_prints_what_it_changed_as_json(hpcrun: Hpcrun) -> None:
    [run] = sleeping(hpcrun, "one")
    done = document(closed(hpcrun, f"hpcrun cancel {run['job_id']} --json"))
    assert done["kind"] == "cancel"
    [changed] = done["changed"]
    assert changed["run_id"] == run["run_id"]
    assert changed["job_id"] == run["job_id"]
    assert changed["result"] == "being cancelled"
    hpcrun.ended("one")
    again = document(closed(hpcrun, f"hpcrun cancel {run['job_id']} --json"))
    assert again["changed"] == []
    assert again["others"][0]["state"] == "CANCELLED"


def test_a_refused_cancel_has_the_runs_in_its_json(hpcrun: Hpcrun) -> None:
    runs = sleeping(hpcrun, "one", "two")
    refused = document(closed(hpcrun, "hpcrun cancel --state running --json"))
    assert [match["run_id"] for match in refused["matches"]] == [run["run_id"] for run in runs]
    assert refused["error"]["exit_code"] == 2


def test_json_of_cancel_without_such_a_run_is_a_document(hpcrun: Hpcrun) -> None:
    done = closed(hpcrun, "hpcrun cancel --state pending --json")
    assert (done.returncode, document(done)["changed"]) == (0, [])


# --- which run -----------------------------------------------------------------------------------

OF_A_RUN = (
    "cancel",
    "compare x",
    "explain",
    "fetch",
    "hold",
    "logs",
    "metrics",
    "note",
    "notify",
    "open",
    "release",
    "resubmit",
    "scale report",
    "scale run --show",
    "share",
    "shell",
    "status",
    "status --gpus",
    "sweep",
)


@pytest.mark.parametrize("command", OF_A_RUN)
def test_an_empty_id_is_an_error(hpcrun: Hpcrun, command: str) -> None:
    hpcrun(*JOB, "-J", "x", "true", check=True)
    text = " TEXT" if command == "note" else ""
    done = closed(hpcrun, f'hpcrun {command} ""{text}')
    assert done.returncode == 2
    assert "is empty" in done.stderr


@pytest.mark.parametrize("command", ["explain", "logs", "metrics", "metrics --csv", "share"])
def test_a_command_says_which_run_is_the_newest(hpcrun: Hpcrun, command: str) -> None:
    hpcrun(*JOB, "-J", "x", "--wait", "echo", "loss=1", check=True)
    job_id = hpcrun.status()["job_id"]
    for run in ("", " last"):
        assert f"the newest of all runs: x, job {job_id}\n" in closed(
            hpcrun, f"hpcrun {command}{run}"
        ).stderr
    assert "newest" not in closed(hpcrun, f"hpcrun {command} {job_id}").stderr
