"""How status looks: columns, CSV, narrow terminals, and what it says of damaged runs."""

from __future__ import annotations

import csv
import io
import json
import os
import time
from pathlib import Path

import pytest

from tests.harness import Hpcrun, wait_for
from tests.local.recorded import record, replace_fields

PYTHON_JOB = ("submit", "-P", "local", "--launcher", "python")


@pytest.fixture
def two_runs(hpcrun: Hpcrun) -> Hpcrun:
    for name, status in (("good", 0), ("bad", 1)):
        run = record(hpcrun, name, ranks=1)
        run.ended(time.time() - 60, status)
        end = {"rank": 0, "node": "local-0", "status": status, "ended": time.time() - 60}
        (run.attempt(over=False) / "rank-0.exit").write_text(json.dumps(end))
    return hpcrun


def test_columns_csv_and_pandas(two_runs: Hpcrun) -> None:
    hpcrun = two_runs
    shown = hpcrun(
        "status", "--columns", "name,exit_status", "--columns", "state", check=True
    ).stdout
    table = [["NAME", "EXIT_STATUS", "STATE"], ["good", "0", "COMPLETED"], ["bad", "1", "FAILED"]]
    assert [line.split() for line in shown.splitlines()] == table
    import pandas  # which each worker of the tests would import while it collects them

    table = pandas.read_csv(io.StringIO(hpcrun("status", "--csv", check=True).stdout))
    assert list(table["state"]) == ["COMPLETED", "FAILED"]
    assert list(table.columns[:4]) == ["run_id", "name", "job_id", "state"]
    runs = hpcrun.document("status", check=True)["runs"]
    assert set(table.columns) <= set(runs[0])
    chosen = hpcrun("status", "--csv", "--columns", "name,why", "bad", check=True).stdout
    why = "rank 0 on local-0 failed first with exit status 1"
    assert list(csv.reader(chosen.splitlines())) == [["name", "why"], ["bad", why]]


def test_what_cannot_be_shown(two_runs: Hpcrun, subtests: pytest.Subtests) -> None:
    for options, message in (
        (("--columns", "nmae"), "did you mean 'name'?"),
        (("--state", "complete"), "did you mean 'COMPLETED'?"),
        (("--json", "--csv"), "cannot be combined"),
        (("--json", "--columns", "name"), "cannot be combined"),
        (("--watch", "--csv"), "cannot be combined"),
        (("--gpus", "--csv"), "cannot be combined"),
        (("--gpus", "--state", "failed"), "--gpus and --state cannot be combined"),
    ):
        with subtests.test(options=options):
            wrong = two_runs("status", *options)
            assert (wrong.returncode, message in wrong.stdout + wrong.stderr) == (2, True), options
    assert "bad" not in two_runs("status", "--state", "completed", check=True).stdout
    assert "good" not in two_runs("status", "--state", "failed,timeout", check=True).stdout


def test_a_narrow_terminal_gets_fewer_columns_and_no_color_is_obeyed(
    two_runs: Hpcrun, subtests: pytest.Subtests
) -> None:
    for columns in (20, 40, 60, 80):
        with subtests.test(columns=columns):
            lines = two_runs.screen("status", columns=columns).splitlines()
            assert all(len(line) <= columns for line in lines), columns
            assert [
                line.split()[0] for line in lines if "COMPLETED" in line or "FAILED" in line
            ] == [
                "good",
                "bad",
            ]
    assert "\x1b[32m" in two_runs.screen("status", env={})
    assert "\x1b[3" not in two_runs.screen("status", env={"NO_COLOR": "1"})
    assert "\x1b" not in two_runs("status").stdout


def test_a_record_cut_in_half_tells_what_is_left_of_it(two_runs: Hpcrun) -> None:
    hpcrun = two_runs
    bad = hpcrun.status("bad")
    path = Path(bad["folder"]) / "run.json"
    path.write_text(path.read_text()[: path.read_text().index('"nodes"')])
    shown = hpcrun("status", check=True)
    assert "good" in shown.stdout
    assert f"job {bad['job_id']}, last known FAILED, exit status 1" in shown.stderr
    (damaged,) = hpcrun.document("status", check=True)["damaged"]
    assert f"is damaged: {path} cannot be read" in damaged


def test_more_of_a_running_run(hpcrun: Hpcrun) -> None:
    script = "echo begin; printf '\\033[31mstep 7\\033[0m\\n'; sleep 60"
    hpcrun(*PYTHON_JOB, "-J", "live", "--time", "10m", "bash", "-c", script, check=True)
    try:
        logs = "*/elements/0/attempts/0/rank-0.out"
        wait_for(
            lambda: any("step 7" in path.read_text() for path in hpcrun.runs.glob(logs)),
            20,
            "its line",
        )
        shown = hpcrun("status", "-v", check=True).stdout
        assert "last line    step 7" in shown
        assert "of 10:00" in shown
        (live,) = json.loads(hpcrun("status", "-v", "--json", check=True).stdout)["runs"]
        assert "step 7" in live["last_line"]
    finally:
        hpcrun("cancel", "live", check=True)


def test_runs_whose_end_nobody_knows_are_one_line_after_a_day(two_runs: Hpcrun) -> None:
    """tests/unit/actions/status/test_lost.py says which runs these are."""
    hpcrun = two_runs
    for name, heard_d in (("lost", 3.0), ("gone", 2.0), ("missing", 0.5)):
        run, heard_s = record(hpcrun, name), time.time() - heard_d * 86400
        replace_fields(run.folder / "run.json", host=os.uname().nodename)
        replace_fields(run.attempt(over=False) / "start", started=heard_s)
        (run.attempt(over=False) / "heartbeat").write_text(str(heard_s))
        last = {"state": "UNKNOWN", "asked_s": heard_s, "final": False}
        (run.folder / "status.json").write_text(json.dumps(last))
        (hpcrun.runs / "active").mkdir(exist_ok=True)
        (hpcrun.runs / "active" / run.folder.name).touch()
    shown = hpcrun("status", check=True).stdout.splitlines()
    assert [line.split()[0] for line in shown] == ["NAME", "good", "bad", "missing", "2"]
    assert shown[-1].startswith("2 runs without a heartbeat for over a day")
    rows = hpcrun(*shown[-1].partition("hpcrun ")[2].split(), check=True).stdout.splitlines()
    assert [row.split()[0] for row in rows] == ["NAME", "lost", "gone", "missing"]
    assert len(hpcrun("status", "--all", check=True).stdout.splitlines()) == 6
    assert (
        "it may still be running"
        in hpcrun("clean", "--state", "unknown", "--yes", check=True).stderr
    )


def test_a_note_is_written_shown_replaced_found_and_removed(two_runs: Hpcrun) -> None:
    hpcrun = two_runs
    assert ": #paper base" in hpcrun("note", "good", "#paper", "base", check=True).stdout
    assert "#paper base" in hpcrun("status", check=True).stdout
    assert "note" in hpcrun("status", "-v", "good", check=True).stdout
    hpcrun("note", "bad", "#paper", check=True)
    for words, names in (
        ("paper", ["good", "bad"]),
        ("paper !failed", ["good"]),
        ("BASE", ["good"]),
        ("never", []),
    ):
        runs = hpcrun.document("status", "--filter", words, check=True)["runs"]
        assert [run["name"] for run in runs] == names
    assert hpcrun("note", "good", check=True).stdout == "#paper base\n"
    assert ": #paper base again" in hpcrun("note", "good", "--add", "again", check=True).stdout
    assert "\nwas  #paper base again" in hpcrun("note", "good", "final", check=True).stdout
    assert hpcrun.document("status", "good", check=True)["runs"][0]["note"] == "final"
    hpcrun("note", "good", "--remove", check=True)
    assert hpcrun.document("status", "good", check=True)["runs"][0]["note"] is None
    assert "has no note" in hpcrun("note", "good", check=True).stdout
    refused = hpcrun("note", "good", "--add")
    assert (refused.returncode, "--add adds a TEXT" in refused.stderr) == (2, True)
    assert "no runs with these words" in hpcrun("status", "--filter", "final", check=True).stderr


def test_the_variables_of_a_run_are_found_and_shown(two_runs: Hpcrun) -> None:
    hpcrun = two_runs
    local = ("-P", "local", "-G", "0", "--env", "AUG=1", "--env", "MY_TOKEN=abc", "--wait")
    hpcrun("submit", *local, "-J", "varied", "true", check=True)
    shown = hpcrun("status", "-v", "--filter", "aug=1", check=True).stdout
    assert "  env          AUG=1 MY_TOKEN=***\n" in shown
    assert "no runs with these words" in hpcrun("status", "--filter", "aug=2").stderr


def test_a_note_that_cannot_be_kept(two_runs: Hpcrun, subtests: pytest.Subtests) -> None:
    hpcrun = two_runs
    new = record(hpcrun, "new")
    replace_fields(new.folder / "run.json", job_id=None, host=os.uname().nodename)
    secret = "ghp_" + "a1B2" * 9
    job = ("submit", "-P", "local", "--gpus", "0")
    for words, message in (
        (("note", "good", "x" * 201), "has 201 characters"),
        (("note", "good", f"key {secret}"), "the note holds a secret"),
        (("note", "good", "x", "--remove"), "cannot be combined"),
        (("note", "new", "x"), "has not returned a job id"),
        (("note", "none", "x"), "there is no run"),
        ((*job, "--note", "two\nlines", "true"), "--note must be one line of text"),
        ((*job, "--note", secret, "true"), "--note holds a secret"),
    ):
        with subtests.test(words=words):
            wrong = hpcrun(*words)
            assert wrong.returncode not in (0, 70)
            assert message in wrong.stderr.replace("\n  ", " ")
            assert secret not in wrong.stderr


def test_a_job_is_submitted_with_a_note(hpcrun: Hpcrun) -> None:
    job = (*PYTHON_JOB, "--gpus", "0", "--wait", "--note", "#first try", "--name", "noted")
    hpcrun.write("train.py", "")
    hpcrun(*job, "train.py", check=True)
    assert "#first try" in hpcrun("status", "noted", check=True).stdout
    hpcrun("resubmit", "noted", "--wait", check=True)  # a note is about one run
    runs = hpcrun.document("status", "--all", check=True)["runs"]
    assert [run["note"] for run in runs] == ["#first try", None]
