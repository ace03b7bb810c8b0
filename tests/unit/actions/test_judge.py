"""What is said of a run, from what is known: never a guess."""

from __future__ import annotations

from pathlib import Path

import pytest

from hpcrun.actions.status import SUBMITTED_WITHIN_S, judge
from hpcrun.job.state import JobInfo
from hpcrun.runs.attempt import Attempt, ExitRecord
from hpcrun.runs.record import LastStatus, Run
from tests.unit.given import run, write

NOW = 10_000.0
STARTED = 9_000.0


def attempt(folder: Path, exit_: ExitRecord | None = None) -> Attempt:
    write(folder / "hosts", "node1\nnode2\n")
    return Attempt(folder, "4711", STARTED, exit_)


def decide(
    info: JobInfo | None = None,
    attempt: Attempt | None = None,
    last: LastStatus | None = None,
    *,
    of: Run | None = None,
    answered: bool = True,
    cancelled: bool = False,
) -> LastStatus:
    return judge(of or run(), info, attempt, last, answered=answered, cancelled=cancelled, now_s=NOW)


@pytest.mark.parametrize(
    ("state", "final"),
    [
        ("PENDING", False),
        ("RUNNING", False),
        ("COMPLETING", False),
        ("SUSPENDED", False),
        ("REQUEUED", False),
        ("SPECIAL_EXIT", False),
        ("TELEPORTING", False),
        ("COMPLETED", True),
        ("FAILED", True),
        ("CANCELLED", True),
        ("TIMEOUT", True),
        ("NODE_FAIL", True),
        ("PREEMPTED", True),
        ("OUT_OF_MEMORY", True),
    ],
)
def test_the_scheduler_s_word_comes_first(state: str, final: bool, tmp_path: Path) -> None:
    ended = attempt(tmp_path, ExitRecord(0, "", 9_500.0))
    status = decide(JobInfo("4711", state, "Resources", 5, 60, "node1"), ended)
    assert (status.state, status.final, status.asked_s) == (state, final, NOW)
    assert (status.reason, status.elapsed_s, status.limit_s, status.hosts) == ("Resources", 5, 60, "node1")


def test_what_the_script_found_wrong_is_the_reason_of_a_job_that_is_over(tmp_path: Path) -> None:
    ended = attempt(tmp_path, ExitRecord(1, "", 9_500.0, "this node has no module command"))
    status = decide(JobInfo("4711", "FAILED", "NonZeroExitCode"), ended)
    assert status.reason == "this node has no module command"
    assert status.exit_status == 1


def test_the_scheduler_s_exit_status_is_kept() -> None:
    status = decide(JobInfo("4711", "FAILED", exit_status=3, signal=9))
    assert (status.exit_status, status.signal) == (3, 9)


@pytest.mark.parametrize("answered", [True, False])
@pytest.mark.parametrize(("exit_status", "state"), [(0, "COMPLETED"), (1, "FAILED"), (137, "FAILED")])
def test_a_job_the_scheduler_has_forgotten_is_judged_by_its_own_exit_record(
    exit_status: int, state: str, answered: bool, tmp_path: Path
) -> None:
    status = decide(None, attempt(tmp_path, ExitRecord(exit_status, "", 9_500.0)), answered=answered)
    assert (status.state, status.final, status.exit_status) == (state, True, exit_status)
    assert (status.elapsed_s, status.hosts, status.limit_s) == (500, "node1,node2", 3600)


def test_a_forgotten_job_that_was_told_to_end_was_cancelled_where_hpcrun_did_it(tmp_path: Path) -> None:
    told = attempt(tmp_path, ExitRecord(143, "TERM", 9_500.0))
    assert decide(None, told, cancelled=True).state == "CANCELLED"


def test_a_forgotten_job_that_was_told_to_end_at_its_limit_was_out_of_time(tmp_path: Path) -> None:
    told = attempt(tmp_path, ExitRecord(143, "TERM", STARTED + 3600))
    assert decide(None, told).state == "TIMEOUT"
    assert decide(None, told, of=run(walltime_s=None)).state == "UNKNOWN"


def test_a_forgotten_job_that_was_told_to_end_early_is_not_guessed_at(tmp_path: Path) -> None:
    status = decide(None, attempt(tmp_path, ExitRecord(143, "TERM", 9_500.0)))
    assert status.state == "UNKNOWN"
    assert status.reason is not None
    assert "cancelled, preempted or out of time" in status.reason


def test_with_the_scheduler_away_a_job_that_was_told_to_end_is_not_said_to_be_forgotten(tmp_path: Path) -> None:
    status = decide(None, attempt(tmp_path, ExitRecord(143, "TERM", 9_500.0)), answered=False)
    assert not status.final
    assert "forgotten" not in (status.reason or "")


def test_with_the_scheduler_away_the_last_that_was_known_is_shown() -> None:
    last = LastStatus("PENDING", 500.0, reason="Resources")
    assert decide(None, None, last, answered=False) == last


def test_with_the_scheduler_away_and_nothing_known_the_folder_speaks(tmp_path: Path) -> None:
    status = decide(None, attempt(tmp_path), answered=False)
    assert (status.state, status.final, status.elapsed_s, status.hosts) == ("RUNNING", False, 1000, "node1,node2")
    status = decide(None, None, answered=False)
    assert (status.state, status.final, status.asked_s) == ("PENDING", False, 1000.0)
    assert decide(None, None, of=run(job_id=None), answered=False).state == "SUBMITTING"


@pytest.mark.parametrize(
    ("age_s", "state", "final"),
    [
        (1.0, "SUBMITTING", False),
        (SUBMITTED_WITHIN_S - 1, "SUBMITTING", False),
        (SUBMITTED_WITHIN_S + 1, "NOT_SUBMITTED", True),
    ],
)
def test_a_run_without_a_job_is_not_declared_so_before_sbatch_must_have_answered(
    age_s: float, state: str, final: bool
) -> None:
    status = decide(of=run(job_id=None, created_s=NOW - age_s))
    assert (status.state, status.final) == (state, final)


def test_a_job_nobody_knows_and_that_left_no_record_is_unknown_and_stays_open(tmp_path: Path) -> None:
    last = LastStatus("RUNNING", 500.0)
    status = decide(None, attempt(tmp_path), last)
    assert (status.state, status.final) == ("UNKNOWN", False)
    assert status.reason is not None
    assert "last seen RUNNING" in status.reason
    assert decide(None, attempt(tmp_path), status) == status


def test_a_job_that_is_known_again_after_an_empty_answer_is_shown_again() -> None:
    lost = decide(None, None, LastStatus("RUNNING", 500.0))
    assert decide(JobInfo("4711", "RUNNING"), None, lost).state == "RUNNING"


def test_a_waiting_job_that_hpcrun_cancelled_and_nobody_knows_was_cancelled() -> None:
    status = decide(cancelled=True)
    assert (status.state, status.final) == ("CANCELLED", True)


def test_hosts_that_cannot_be_read_are_left_out(tmp_path: Path) -> None:
    status = decide(None, Attempt(tmp_path, "4711", STARTED, ExitRecord(0, "", 9_500.0)))
    assert (status.state, status.hosts) == ("COMPLETED", None)
