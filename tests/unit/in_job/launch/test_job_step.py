"""The step of a job: when srun is asked again, and when its end is believed."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hpcrun.in_job.launch import job_step, processes, records, slurm_requests
from hpcrun.in_job.launch.job_step import JobStep
from hpcrun.in_job.launch.processes import HEARD
from hpcrun.in_job.launch.slurm_requests import JobSays
from tests.unit.in_job.attempts import Attempt

WAIT: Any = processes.wait


@pytest.fixture
def step(attempt: Attempt, monkeypatch: pytest.MonkeyPatch) -> Iterator[JobStep]:
    """The step of a job of Slurm."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, HEARD | {signal.SIGCHLD})
    monkeypatch.setattr(job_step, "ASK_AGAIN_S", 0.0)
    yield JobStep(None, [], lambda _: None, lambda: False)
    while signal.sigtimedwait(HEARD | {signal.SIGCHLD}, 0):
        pass
    signal.pthread_sigmask(signal.SIG_SETMASK, before)


def srun(attempt: Attempt, text: str) -> list[str]:
    """Return the words of a shell that counts how often it is called."""
    return ["sh", "-c", f"echo call >>{attempt.run}/calls; {text}"]


def calls(attempt: Attempt) -> int:
    path = attempt.run / "calls"
    return len(path.read_text().splitlines()) if path.exists() else 0


@pytest.mark.parametrize("status", [1, 137])
def test_a_step_that_fails_is_not_asked_for_again(
    attempt: Attempt, step: JobStep, status: int
) -> None:
    assert step.run(srun(attempt, f"exit {status}"), []) == status
    assert calls(attempt) == 1


def test_a_step_without_a_rank_has_not_ended_well(
    attempt: Attempt, step: JobStep, capsys: pytest.CaptureFixture[str]
) -> None:
    assert step.run(srun(attempt, "exit 0"), []) == 1
    message = "hpcrun: srun ended with exit status 0, and no rank has started\n"
    assert capsys.readouterr().err == message
    assert step.run(srun(attempt, "touch $HPCRUN_ATTEMPT_DIR/node-n1.start"), []) == 0


def test_a_step_on_this_machine_may_have_no_rank(attempt: Attempt, step: JobStep) -> None:
    local = JobStep(1, [], lambda _: None, lambda: False)
    assert local.run(["true"], ["local-0"]) == 0


FAILS_ONCE = "[ -e $HPCRUN_RUN_DIR/again ] && exit 5; touch $HPCRUN_RUN_DIR/again; exit 69"


@pytest.mark.parametrize(
    ("answers", "status", "times"),
    [
        pytest.param(["", "RUNNING"], 5, 2, id="away, then running"),
        pytest.param(["", "COMPLETING"], 1, 1, id="away, then ended"),
        pytest.param(["RUNNING"], 1, 1, id="it has refused the step"),
    ],
)
def test_srun_is_called_again_after_slurm_s_controller_was_away(
    attempt: Attempt,
    step: JobStep,
    monkeypatch: pytest.MonkeyPatch,
    answers: list[str],
    status: int,
    times: int,
) -> None:
    states = iter(answers)
    monkeypatch.setattr(slurm_requests, "job", lambda: JobSays(next(states)))
    monkeypatch.setattr(job_step, "wait", lambda *words: WAIT(*words, 0.0))
    assert step.run_other(srun(attempt, FAILS_ONCE), []) == status
    assert calls(attempt) == times


def test_a_controller_that_stays_away_ends_the_waiting(
    attempt: Attempt, step: JobStep, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slurm_requests, "job", lambda: JobSays(""))
    monkeypatch.setattr(job_step, "CONTROLLER_S", 0.05)
    monkeypatch.setattr(job_step, "wait", lambda *words: WAIT(*words, 0.0))
    assert step.run_other(srun(attempt, "exit 69"), []) == 1
    assert calls(attempt) == 1


def test_a_step_that_has_begun_is_not_asked_for_again(attempt: Attempt, step: JobStep) -> None:
    text = "touch $HPCRUN_ATTEMPT_DIR/rank-0.out; exit 69"
    assert step.run_other(srun(attempt, text), []) == 69
    assert calls(attempt) == 1


@pytest.mark.parametrize(("given", "expected"), [("", "69"), ("3", "3")])
def test_srun_tells_its_own_failure_by_a_status(
    attempt: Attempt, step: JobStep, monkeypatch: pytest.MonkeyPatch, given: str, expected: str
) -> None:
    monkeypatch.setenv("SLURM_EXIT_ERROR", given)
    if not given:
        monkeypatch.delenv("SLURM_EXIT_ERROR")
    log = attempt.run / "log"
    step.run_other(["sh", "-c", "echo $SLURM_EXIT_ERROR"], [], str(log))
    assert log.read_text() == f"{expected}\n"


@pytest.mark.usefixtures("step")
def test_the_waiting_ends_when_it_is_told_to(attempt: Attempt) -> None:
    local = JobStep(1, [], lambda _: None, lambda: True)
    assert local.run_other(["sleep", "60"], ["local-0"]) == records.TERM_STATUS
    local.tell(signal.SIGKILL)
    os.waitpid(local._children[0], 0)


@pytest.mark.usefixtures("step")
@pytest.mark.parametrize(("to_srun", "status"), [(True, 143), (False, 7)])
def test_slurm_itself_signals_the_tasks_of_srun(
    attempt: Attempt, tmp_path: Path, to_srun: bool, status: int
) -> None:
    def tick() -> bool:
        of_slurm.tell(signal.SIGTERM, to_srun=to_srun)
        (tmp_path / "told").touch()
        return False

    of_slurm = JobStep(None, [], lambda _: None, tick)
    text = f"until [ -e {tmp_path}/told ]; do sleep 0.1; done; sleep 0.2; exit 7"
    assert of_slurm.run_other(["sh", "-c", text], []) == status
