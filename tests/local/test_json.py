"""--json: one document on stdout for every command, whether it succeeds or fails, and never a
second.
"""

from __future__ import annotations

import json
from typing import Any

from tests.harness import Completed, Hpcrun
from tests.unit.builders import write

LOCAL = ("-P", "local", "--json")
CPU = ("--gpus", "0")


def document(done: Completed) -> dict[str, Any]:
    """The one document on stdout; it has an error if, and only if, the exit status is bad."""
    found: dict[str, Any] = json.loads(done.stdout)  # a second one would be "Extra data"
    assert found["schema"] == 1
    error = found.get("error")
    assert bool(error) == bool(done.returncode), done.stdout
    if error:
        assert error["exit_code"] == done.returncode
        assert error["message"]
    return found


def test_what_was_submitted_and_how_it_failed_are_one_document(hpcrun: Hpcrun) -> None:
    one = hpcrun("submit", *LOCAL, *CPU, "--wait", "false")
    found = document(one)
    assert (one.returncode, found["kind"], found["state"], found["exit_status"]) == (
        7,
        "submitted",
        "FAILED",
        1,
    )
    assert found["error"]["hint"] == f"hpcrun explain {found['job_id']}"
    sweep = hpcrun("submit", *LOCAL, *CPU, "--wait", "--sweep", "x=0,1", "sh", "-c", "exit {x}")
    found = document(sweep)
    assert (sweep.returncode, found["kind"], found["state"]) == (7, "submitted", "FAILED")
    assert "1 of 2 elements did not complete, numbers: 1" in found["error"]["message"]
    study = hpcrun(
        "scale", "run", *LOCAL, "--ranks", "1", "--launcher", "python", "--wait", "false"
    )
    found = document(study)
    assert (study.returncode, found["kind"]) == (7, "study")
    assert "1 of 1 run did not complete" in found["error"]["message"]
    assert document(hpcrun("submit", *LOCAL, *CPU, "--wait", "true"))["state"] == "COMPLETED"


def test_every_command_answers_in_one_document(hpcrun: Hpcrun) -> None:
    log = "from hpcrun_runtime import log_metrics\nlog_metrics(step=1, loss=2.5)\n"
    write(hpcrun.folder / "job.py", log)
    document(hpcrun("submit", *LOCAL, *CPU, "--wait", "job.py"))
    write(hpcrun.home / ".config/hpcrun/profiles/bad.yaml", "partitoin: x\n")
    commands = (
        (0, "submit", *LOCAL, *CPU, "--dry-run", "true"),
        (0, "resubmit", "last", "--json", "--dry-run"),
        (6, "resubmit", "none", "--json"),
        (2, "submit", *LOCAL, "--chain", "2", "--wait", "true"),
        (2, "submit", "--nodse", "2", *LOCAL, "true"),
        (2, "submit", "--nodes", "x", *LOCAL, "true"),
        (3, "submit", "-P", "none", "--json", "true"),
        (0, "status", "--json"),
        (6, "status", "none", "--json"),
        (0, "explain", "last", "--json"),
        (0, "metrics", "--json"),
        (2, "metrics", "--json", "--csv"),
        (4, "status", "--gpus", "--json"),
        (2, "where", "--json"),
        (3, "profile", "validate", "bad", "--json"),
        (0, "profile", "show", "local", "--json"),
        (3, "profile", "show", "bad", "--json"),
        (6, "profile", "env", "none", "--json"),
        (0, "scale", "run", "--list", "--json"),
        (6, "scale", "run", "--show", "none", "--json"),
        (6, "scale", "report", "none", "--json"),
        (0, "clean", "--json"),
        (3, "doctor", "-P", "bad", "--json"),
        (2, "scale", "plan", "--epoch-time", "x", "--json"),
    )
    for status, *command in commands:
        done = hpcrun(*command)
        assert done.returncode == status, (command, done.stdout, done.stderr)
        document(done)
