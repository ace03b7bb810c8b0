"""A job on this machine: its step, its record, its attempts and its preflight."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.unit.in_job.attempts import LAUNCH, Attempt

RANK = [*LAUNCH, "rank", "--once", "--"]


def launch(job: Attempt, options: str, *command: str, **env: str) -> tuple[int, str]:
    """Run a job of one node to its end; return its status and its log."""
    done = job.launch("job", "--nodes", "1", *options.split(), "--", *command, **env)
    return done.returncode, done.stdout + done.stderr


def end(job: Attempt, number: int = 0) -> dict[str, Any]:
    """Return the record of an attempt, without its time."""
    record = json.loads((job.folder.parent / f"{number}/exit").read_text())
    assert record.pop("ended") > 0
    return dict(record)


NOTHING = {"signal": "", "message": "", "reason": "", "again": False, "how": ""}
NOTHING |= {"nodes": [], "alone": 0, "workers": []}


# --- the step ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("command", "status"),
    [
        (("sh", "-c", "exit 7"), 7),
        (("no-such-program",), 127),
    ],
)
def test_the_status_of_the_step_is_that_of_the_job(
    job: Attempt, command: tuple[str, ...], status: int
) -> None:
    assert launch(job, "", *command)[0] == status
    assert end(job) == {"status": status, **NOTHING}


NODES = "echo $HPCRUN_NODE $HPCRUN_NODE_RANK $HPCRUN_NODE_ADDR ${CUDA_VISIBLE_DEVICES-none}"


@pytest.mark.parametrize(
    ("options", "gpus"),
    [(("--gpus", "0,1;2"), ("0,1", "2"))],
)
def test_each_node_of_this_machine_has_a_name_and_gpus(
    job: Attempt, options: tuple[str, ...], gpus: tuple[str, str]
) -> None:
    done = job.launch("job", "--nodes", "2", *options, "--", "sh", "-c", NODES)
    names = [f"local-{number} {number} 127.0.0.1 {gpus[number]}" for number in (0, 1)]
    assert sorted(done.stdout.splitlines()) == names
    assert job.text("hosts").split() == ["local-0", "local-1"]


def test_ranks_are_sampled_as_idle_gpus_need_it(job: Attempt) -> None:
    text = 'test "$HPCRUN_SAMPLE_S" = 6'
    assert launch(job, "--sample 10 --cancel-idle 60", "sh", "-c", text)[0] == 0


# --- signals -------------------------------------------------------------------------------------


def signal_job(job: Attempt, options: str, number: int, text: str) -> int:
    """Signal a job whose step has printed "up" into a file; return its status."""
    words = ["job", "--nodes", "1", *options.split(), "--", "sh", "-c"]
    process = job.start(*words, f"{text} echo up >$HPCRUN_ATTEMPT_DIR/up; sleep 60 & wait")
    job.until("up", "up")
    subprocess.run(["kill", f"-{number}", str(process.pid)], check=True)
    return process.wait(20)


@pytest.mark.parametrize("number", [signal.SIGINT])
def test_a_terminated_job_terminates_its_step(job: Attempt, number: int) -> None:
    assert signal_job(job, "", number, "trap 'touch $HPCRUN_RUN_DIR/got; exit 9' TERM;") == 143
    assert (job.run / "got").exists()
    assert end(job) == {**NOTHING, "status": 143, "signal": "TERM"}


def test_a_warned_job_stops_its_ranks_and_is_requeued(job: Attempt) -> None:
    status = signal_job(job, "--grace 0 --requeue 1", signal.SIGUSR1, "trap 'exit 9' TERM;")
    assert status == 143
    assert os.listdir(job.folder / "stop") == ["time_limit"]
    requeued = {"again": True, "how": "requeue", "reason": "time_limit"}
    assert end(job) == {**NOTHING, **requeued, "status": 143}


def test_a_job_without_warn_ignores_the_warning(job: Attempt) -> None:
    text = "trap 'exit 9' TERM; (sleep 0.7; kill $$) >&- 2>&- &"
    assert signal_job(job, "", signal.SIGUSR1, text) == 9
    assert not (job.folder / "stop").exists()


# --- attempts ------------------------------------------------------------------------------------


def test_a_failed_attempt_is_followed_by_a_restart(job: Attempt) -> None:
    text = 'test -e "$HPCRUN_RUN_DIR/second" && exit 0; touch "$HPCRUN_RUN_DIR/second"; exit 3'
    options = "--grace 60 --restarts 1 --retry-on-failure"
    status, log = launch(job, options, *LAUNCH, "node", "--", *RANK, "sh", "-c", text)
    assert status == 0
    assert "attempt 1 ended by failure; the job is restarted in this allocation" in log
    restarted = {"again": True, "how": "restart", "reason": "failure", "nodes": ["local-0"]}
    assert end(job) == {**NOTHING, **restarted, "status": 3}
    assert end(job, 1) == {**NOTHING, "status": 0}
    second = job.folder.parent / "1"
    assert json.loads((second / "start").read_text())["host"] == os.uname().nodename
    assert (second / "rank-0.exit").exists()


@pytest.mark.parametrize(("requeues", "status"), [("1", 0), ("2", 1)])
def test_a_job_that_was_requeued_too_often_is_refused(
    job: Attempt, requeues: str, status: int
) -> None:
    env = {"HPCRUN_REQUEUES": requeues}
    assert launch(job, "--grace 60 --requeue 1", "true", **env)[0] == status
    message = "started once more than --requeue 1 allows" if status else ""
    assert end(job) == {**NOTHING, "status": status, "message": message}


def test_a_failure_is_requeued_by_the_supervisor(job: Attempt) -> None:
    options = "--grace 60 --requeue 1 --retry-on-failure"
    status, log = launch(job, options, *LAUNCH, "node", "--", *RANK, "sh", "-c", "exit 3")
    assert status == 3
    assert "attempt 1 ended by failure; the job is requeued by its supervisor" in log
    assert (end(job)["how"], end(job)["reason"]) == ("requeue", "failure")


def test_a_failed_role_s_message_is_that_of_the_job(job: Attempt) -> None:
    (job.folder / "roles").mkdir()
    (job.folder / "roles/a.end").write_text('{"message": "role a failed", "time": 1}')
    assert launch(job, "", "sh", "-c", "exit 4")[0] == 4
    assert end(job)["message"] == "role a failed"


def test_a_job_leaves_nothing_running_and_a_tidy_folder(job: Attempt) -> None:
    launch(job, "", "sh", "-c", "echo $HPCRUN_ATTEMPT_DIR")
    assert sorted(os.listdir(job.folder)) == ["exit", "hosts"]


# --- the preflight -------------------------------------------------------------------------------


@pytest.fixture
def preflight(job: Attempt) -> Path:
    """The folder of the preflight's reports."""
    programs = job.run / "programs/preflight"
    programs.mkdir(parents=True)
    (programs / "node.py").touch()
    return job.folder / "preflight"


CHECK = ["sh", "-c", "echo checked $HPCRUN_NODE"]
GOOD = ["sh", "-c", "echo all is well"]
BAD = ["sh", "-c", "echo n2 is slow; exit 1"]


def test_the_step_starts_if_the_nodes_are_well(job: Attempt, preflight: Path) -> None:
    command = [*CHECK, "&&", *GOOD, "&&", "sh", "-c", "echo started; exit 5"]
    status, log = launch(job, "--preflight", *command)
    assert (status, log) == (5, "hpcrun: all is well\nstarted\n")
    assert (preflight / "nodes.log").read_text() == "checked local-0\n"


@pytest.mark.parametrize(
    ("judge", "message"),
    [
        (BAD, "n2 is slow"),
    ],
)
def test_the_step_does_not_start_if_the_judge_objects(
    job: Attempt, preflight: Path, judge: list[str], message: str
) -> None:
    status, log = launch(job, "--preflight", *CHECK, "&&", *judge, "&&", "echo", "started")
    assert (status, log) == (1, f"hpcrun: {message}\n")
    assert end(job) == {**NOTHING, "status": 1, "message": message}


def test_without_its_programs_a_preflight_is_refused(job: Attempt) -> None:
    status, log = launch(job, "--preflight", *CHECK, "&&", *GOOD)
    assert status == 1
    assert log.startswith("hpcrun: the programs of the preflight are put beside the script by ")


def test_a_judge_that_does_not_respond_is_said(job: Attempt, preflight: Path) -> None:
    command = [*CHECK, "&&", "sh", "-c", "exec sleep 60"]
    status, log = launch(job, "--preflight", *command, HPCRUN_PREFLIGHT_S="-0.8")
    problem = "the preflight was not judged: the Python of the job does not respond"
    assert (status, log) == (1, f"hpcrun: {problem}\n")
