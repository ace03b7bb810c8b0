"""Commands of a script or a coding agent: without a terminal, stdin closed, output captured."""

from __future__ import annotations

import json
import re
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.harness import Completed, Hpcrun, wait_for
from tests.harness import without_stdin as closed

JOB = ("submit", "-P", "local", "--gpus", "0")


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


def piped(hpcrun: Hpcrun, argv: Sequence[str]) -> subprocess.Popen[str]:
    """Start a command without a terminal, whose stdout the test reads."""
    return subprocess.Popen(
        argv,
        env=hpcrun.environ,
        cwd=hpcrun.folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )


@pytest.mark.parametrize("words", ["--state running", "last", "twice"])
def test_cancel_does_nothing_without_ids(hpcrun: Hpcrun, words: str) -> None:
    runs = sleeping(hpcrun, "once", "twice", "twice")
    done = closed(hpcrun, f"hpcrun cancel {words}")
    assert done.returncode == 2
    assert "nothing was cancelled: without a terminal, cancel needs ids\n" in done.stderr
    assert "--yes" not in done.stderr
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


@pytest.mark.parametrize("verb", ["hold", "release"])
@pytest.mark.parametrize("name", ["last", "twice"])
def test_hold_and_release_do_nothing_without_ids(hpcrun: Hpcrun, verb: str, name: str) -> None:
    runs = sleeping(hpcrun, "twice", "twice")
    done = closed(hpcrun, f"hpcrun {verb} {name} --json")
    refused = document(done)
    assert (done.returncode, refused["kind"], refused["changed"]) == (2, verb, [])
    assert refused["matches"][-1]["run_id"] == runs[-1]["run_id"]
    assert refused["error"]["hint"] == f"hpcrun {verb} {runs[-1]['run_id']}"


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
    "wait",
)


def test_an_empty_id_is_an_error(hpcrun: Hpcrun, subtests: pytest.Subtests) -> None:
    hpcrun(*JOB, "-J", "x", "true", check=True)
    for command in OF_A_RUN:
        with subtests.test(command=command):
            text = " TEXT" if command == "note" else ""
            done = closed(hpcrun, f'hpcrun {command} ""{text}')
            assert done.returncode == 2
            assert "is empty" in done.stderr


def test_a_command_says_which_run_is_the_newest(hpcrun: Hpcrun, subtests: pytest.Subtests) -> None:
    hpcrun(*JOB, "-J", "x", "--wait", "echo", "loss=1", check=True)
    job_id = hpcrun.status()["job_id"]
    newest = f"the newest of all runs: x, job {job_id}\n"
    for command in ("explain", "logs", "metrics", "metrics --csv", "share"):
        with subtests.test(command=command):
            assert newest in closed(hpcrun, f"hpcrun {command}").stderr
            assert newest in closed(hpcrun, f"hpcrun {command} last").stderr
            assert "newest" not in closed(hpcrun, f"hpcrun {command} {job_id}").stderr


# --- submit --wait, submit --parsable, wait ------------------------------------------------------


def cut_off(hpcrun: Hpcrun, *args: str, by: signal.Signals) -> tuple[str, int]:
    """End a command once it has printed the ids of jobs; return its stdout and exit status."""
    with piped(hpcrun, hpcrun.argv(*args)) as process:
        assert process.stdout is not None
        first = process.stdout.readline()
        while "job_ids" not in first:
            first += process.stdout.readline()
        process.send_signal(by)
        text = first + process.stdout.read()
    return text, process.returncode


@pytest.mark.parametrize(("by", "exit_status"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_a_wait_that_a_signal_cuts_off_has_printed_the_whole_document(
    hpcrun: Hpcrun, by: signal.Signals, exit_status: int
) -> None:
    text, status = cut_off(hpcrun, *JOB, "--wait", "--json", "sleep", "300", by=by)
    printed = json.loads(text)
    assert printed["job_id"] == hpcrun.status()["job_id"]
    assert printed["plan"]["command_line"] == "sleep 300"
    assert (status, printed["error"]["exit_code"]) == (exit_status, exit_status)
    assert hpcrun.status()["state"] == "RUNNING"


@pytest.mark.parametrize(("by", "exit_status"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_hpcrun_wait_that_a_signal_cuts_off_prints_a_document(
    hpcrun: Hpcrun, by: signal.Signals, exit_status: int
) -> None:
    sleeping(hpcrun, "slow")
    with piped(hpcrun, hpcrun.argv("wait", "slow", "--json")) as process:
        wait_for(lambda: catches(process.pid, signal.SIGTERM), 30, "it to wait")
        process.send_signal(by)
        text, _ = process.communicate()
    assert json.loads(text)["error"]["exit_code"] == exit_status
    assert process.returncode == exit_status


def catches(pid: int, number: signal.Signals) -> bool:
    """Whether a process has a handler for a signal."""
    status = Path(f"/proc/{pid}/status").read_text()
    [mask] = re.findall(r"^SigCgt:\s+(\w+)$", status, re.MULTILINE)
    return bool(int(mask, 16) >> (number - 1) & 1)


def test_nohup_keeps_a_wait_alive(hpcrun: Hpcrun) -> None:
    sleeping(hpcrun, "slow")
    with piped(
        hpcrun, ["nohup", *hpcrun.argv("wait", "slow", "--json", "--timeout", "5s")]
    ) as process:
        wait_for(lambda: catches(process.pid, signal.SIGTERM), 30, "it to wait")
        process.send_signal(signal.SIGHUP)
        text, _ = process.communicate()
    assert process.returncode == 8
    assert json.loads(text)["runs"][0]["state"] == "RUNNING"


def test_a_wait_that_is_killed_has_printed_the_id(hpcrun: Hpcrun) -> None:
    text, _ = cut_off(hpcrun, *JOB, "--wait", "--json", "sleep", "300", by=signal.SIGKILL)
    assert f'"job_id": "{hpcrun.status()["job_id"]}"' in text


def test_parsable_prints_the_id_alone_before_the_end(hpcrun: Hpcrun) -> None:
    plain = closed(hpcrun, f"hpcrun {' '.join(JOB)} --parsable true")
    assert plain.stdout == f"{hpcrun.status()['job_id']}\n"
    with piped(hpcrun, hpcrun.argv(*JOB, "--parsable", "--wait", "sleep", "300")) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == f"{hpcrun.status()['job_id']}\n"
        process.kill()


def test_the_end_of_a_failed_run_has_its_cause_and_its_rank(hpcrun: Hpcrun) -> None:
    hpcrun.write("train.py", "raise KeyError('recall')\n")
    done = closed(hpcrun, f"hpcrun {' '.join(JOB)} --wait --json train.py")
    end = document(done)
    assert done.returncode == 7
    assert "KeyError: 'recall' at train.py:1" in end["cause"]
    assert (end["rank"], end["rank_exit_status"], end["exit_status"]) == (0, 1, 1)
    [again] = document(closed(hpcrun, f"hpcrun wait {end['job_id']} --json"))["runs"]
    same = ("state", "exit_status", "cause", "rank", "never_starts")
    assert {name: again[name] for name in same} == {name: end[name] for name in same}


def test_the_exit_status_of_wait_says_how_the_runs_ended(
    hpcrun: Hpcrun, subtests: pytest.Subtests
) -> None:
    for name, seconds, end in (("good", 0, 0), ("bad", 0, 3), ("slow", 300, 0)):
        program = f"'sleep {seconds}; exit {end}'"
        assert closed(hpcrun, f"hpcrun {' '.join(JOB)} -J {name} --wrap {program}").returncode == 0
    hpcrun.ended("good")
    hpcrun.ended("bad")
    for words, status in (
        ("good", 0),
        ("good bad", 7),
        ("good slow --timeout 2s", 8),
        ("bad slow --timeout 2s", 8),
        ("good slow --any", 0),
        ("bad slow --any", 7),
        ("slow --any --timeout 2s", 8),
    ):
        with subtests.test(words=words):
            done = closed(hpcrun, f"hpcrun wait {words}")
            assert done.returncode == status
            assert done.stdout.count("\n") == len(words.split(" --")[0].split())


# --- metrics -------------------------------------------------------------------------------------


def test_metrics_as_csv_without_rows_says_why_on_stderr(hpcrun: Hpcrun) -> None:
    hpcrun(*JOB, "--wait", "true", check=True)
    done = closed(hpcrun, "hpcrun metrics last --csv")
    assert done.stdout.count("\n") == 1  # the header
    assert "hpcrun: no metrics\nhint: call hpcrun_runtime.log_metrics" in done.stderr
