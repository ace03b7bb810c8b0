"""What is said of a run, from what is known: never a guess."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hpcrun.actions.status.decide_status import (
    attempt_times,
    decide_status,
    ended_state,
    with_attempts,
)
from hpcrun.job.job_states import JobInfo
from hpcrun.job.run_paths import AttemptFolder
from hpcrun.runs.attempt import Attempt, ExitRecord
from hpcrun.runs.elements import ElementRecords
from hpcrun.runs.record import LastStatus, Run
from hpcrun.schedulers.queue_cache import LONGEST_PAUSE_S
from hpcrun.schedulers.submit_claim import Sending
from tests.unit.builders import run, write

NOW = 10_000.0
STARTED = 9_000.0


def attempt(folder: Path, exit_: ExitRecord | None = None) -> Attempt:
    write(folder / "hosts", "node1\nnode2\n")
    return Attempt(AttemptFolder(folder), 0, "4711", "node1", STARTED, exit_, STARTED)


def decide(
    info: JobInfo | None = None,
    attempt: Attempt | None = None,
    last: LastStatus | None = None,
    *,
    of: Run | None = None,
    answered: bool = True,
    cancelled: bool = False,
    sending: Sending | None = None,
    now_s: float = NOW,
) -> LastStatus:
    records = ElementRecords((attempt,) if attempt else (), cancelled)
    return decide_status(
        of or run(), info, records, last, answered=answered, now_s=now_s, sending=sending
    )


def stopped(reason: str, *, again: bool, status: int = 124, message: str = "") -> ExitRecord:
    return ExitRecord(status, "", 9_500.0, message, reason, again)


WELL, TOLD = ExitRecord(0, "", 9_500.0), ExitRecord(143, "TERM", 9_500.0)
REQUEUED = ExitRecord(124, "", NOW - 5, "", "time_limit", True)
IDLE = ExitRecord(143, "", NOW, "cancelled: its GPUs were idle for 30 min", "idle")
PENDING, RUNNING = LastStatus("PENDING", 500.0, reason="Resources"), LastStatus("RUNNING", 500.0)
LOST = replace(RUNNING, missed_s=NOW - 60)
BY_SIGTERM = (
    "terminated by SIGTERM (cancelled, preempted or time limit); Slurm no longer has the record"
)
FAILED, CANCELLED = (
    JobInfo("4711", "FAILED", "NonZeroExitCode"),
    JobInfo("4711", "CANCELLED", "Resources", elapsed_s=0),
)
KILLED, PREEMPTED = (
    JobInfo("L1", "NODE_FAIL", "the job's supervisor left no record of its end"),
    JobInfo("4711", "PREEMPTED"),
)
OVER = {"elapsed_s": 500, "hosts": "node[1-2]", "limit_s": 3600, "final": True}


@pytest.mark.parametrize(
    ("known", "exit_", "expected"),
    [
        # the scheduler's word comes first; of a job that ended, squeue keeps the last reason for
        # which it waited
        *(
            (
                {"info": JobInfo("4711", state, "Resources", 5, 60, "node1")},
                WELL,
                {
                    "state": state,
                    "final": final,
                    "asked_s": NOW,
                    "reason": reason,
                    "elapsed_s": 5,
                    "limit_s": 60,
                    "hosts": "node1",
                },
            )
            for state, final, reason in (
                ("PENDING", False, "Resources"),
                ("TELEPORTING", False, "Resources"),
                ("COMPLETED", True, None),
                ("CANCELLED", True, None),
                ("OUT_OF_MEMORY", True, "Resources"),
            )
        ),
        # Slurm 24.11 says PREEMPTED|0:0 of a job that was preempted once and whose last attempt
        # ended well
        (
            {"info": replace(PREEMPTED, elapsed_s=77)},
            WELL,
            {"state": "COMPLETED", "exit_status": 0, "elapsed_s": 77},
        ),
        *(
            (
                {"info": PREEMPTED},
                exit_,
                {"state": state, "final": True, "exit_status": exit_ and exit_.status},
            )
            for exit_, state in (
                (stopped("failure", again=False, status=3), "FAILED"),
                (stopped("failure", again=True), "PREEMPTED"),
                (stopped("preemption", again=False), "PREEMPTED"),
                (TOLD, "PREEMPTED"),
                (None, "PREEMPTED"),
            )
        ),
        # the reason of a job that is over
        (
            {"info": FAILED},
            ExitRecord(1, "", 9_500.0, "no module"),
            {"reason": "no module", "exit_status": 1},
        ),
        ({"info": replace(FAILED, exit_status=3, signal=9)}, None, {"exit_status": 3, "signal": 9}),
        # not why it was pending
        ({"info": CANCELLED}, None, {"reason": "cancelled before it started"}),
        (
            {"info": CANCELLED},
            ExitRecord(143, "TERM", 9_500.0, reason="preemption", again=True),
            {"reason": None},
        ),
        (
            {"info": replace(CANCELLED, reason="DependencyNeverSatisfied")},
            None,
            {"reason": "DependencyNeverSatisfied"},
        ),
        # the script's reason at the last attempt, where the scheduler's state says no more
        *(
            (
                {"info": info},
                stopped(reason, again=False, message="not requeued"),
                {"state": state, "final": True, "reason": text},
            )
            for reason, state, text in (
                ("time_limit", "TIMEOUT", "time limit, not requeued"),
                ("preemption", "PREEMPTED", "preempted, not requeued"),
                ("node_failure", "NODE_FAIL", "a node failed, not requeued"),
                ("failure", "FAILED", "not requeued"),
            )
            for info in (FAILED, None)
        ),
        *(
            ({"info": JobInfo("4711", state)}, stopped("preemption", again=False), {"state": state})
            for state in ("CANCELLED", "TIMEOUT", "OUT_OF_MEMORY")
        ),
        *(
            ({"info": info}, IDLE, {"state": "CANCELLED", "reason": IDLE.message, "final": True})
            for info in (FAILED, None)
        ),
        # a local supervisor that was killed after its job had ended
        ({"info": KILLED, "of": run(scheduler="local")}, WELL, {"state": "COMPLETED"}),
        ({"info": KILLED, "of": run(scheduler="local")}, None, {"state": "NODE_FAIL"}),
        ({"info": KILLED}, WELL, {"state": "NODE_FAIL"}),
        # the scheduler has no record of a job that was told to end
        ({"cancelled": True}, TOLD, {"state": "CANCELLED"}),
        (
            {"cancelled": True},
            None,
            {"state": "CANCELLED", "final": True, "reason": "cancelled before it started"},
        ),
        ({}, replace(TOLD, ended_s=STARTED + 3600), {"state": "TIMEOUT"}),
        ({"of": run(walltime_s=None)}, replace(TOLD, ended_s=STARTED + 3600), {"state": "UNKNOWN"}),
        ({}, TOLD, {"state": "UNKNOWN", "reason": BY_SIGTERM}),
        ({"last": RUNNING}, TOLD, {"state": "RUNNING"}),  # the next answer may say who ended it
        ({"last": LOST}, TOLD, {"state": "UNKNOWN"}),
        # it has forgotten a job, or is away
        *(
            (
                {"answered": answered},
                ExitRecord(status, "", 9_500.0),
                {"state": state, "exit_status": status, **OVER},
            )
            for status, state in ((0, "COMPLETED"), (137, "FAILED"))
            for answered in (True, False)
        ),
        ({"answered": False}, TOLD, {"final": False, "reason": None}),
        (
            {"answered": False, "last": PENDING},
            None,
            {"state": "PENDING", "asked_s": 500.0, "reason": "Resources"},
        ),
        ({"answered": False}, None, {"state": "PENDING", "final": False, "asked_s": 1000.0}),
        ({"answered": False, "of": run(job_id=None)}, None, {"state": "SUBMITTING"}),
        # of a run without a job: the scheduler may know one, and has to say that it does not
        *(
            (
                {"of": run(job_id=None), "sending": sending, "answered": answered},
                None,
                {"state": state, "final": state == "NOT_SUBMITTED"},
            )
            for sending, answered, state in (
                (Sending.UNDER_WAY, True, "SUBMITTING"),
                (Sending.UNDER_WAY, False, "SUBMITTING"),
                (Sending.ENDED, True, "NOT_SUBMITTED"),
                (Sending.ENDED, False, "SUBMITTING"),
                (Sending.NEVER, True, "NOT_SUBMITTED"),
                (Sending.NEVER, False, "NOT_SUBMITTED"),
            )
        ),
        # it leaves out a job
        (
            {"of": run(created_s=NOW - 1)},
            None,
            {"state": "PENDING", "final": False, "missed_s": NOW},
        ),
        (
            {
                "info": JobInfo("4711", "RUNNING"),
                "last": replace(RUNNING, missed_s=NOW, reason="not listed"),
            },
            None,
            {"state": "RUNNING", "missed_s": None, "reason": None},
        ),
        # between two attempts
        ({}, REQUEUED, {"state": "PENDING", "final": False, "reason": "to be requeued"}),
        (
            {"answered": False},
            REQUEUED,
            {"state": "PENDING", "final": False, "reason": "to be requeued"},
        ),
        (
            {},
            replace(REQUEUED, ended_s=NOW - 120),
            {"state": "PENDING", "final": False},
        ),
        (
            {},
            replace(REQUEUED, ended_s=NOW - 121),
            {"state": "UNKNOWN", "final": False},
        ),
        ({"cancelled": True}, REQUEUED, {"state": "CANCELLED", "final": True}),
    ],
)
def test_the_status_by_all_that_is_known(
    known: dict[str, Any], exit_: ExitRecord | None, expected: dict[str, Any], tmp_path: Path
) -> None:
    status = decide(attempt=attempt(tmp_path, exit_) if exit_ else None, **known)
    assert {name: getattr(status, name) for name in expected} == expected


def test_a_launch_failure_is_the_reason_only_of_a_job_that_has_not_started(tmp_path: Path) -> None:
    answer = JobInfo("4711", "FAILED", "JobLaunchFailure")
    assert decide(answer).reason == "JobLaunchFailure"
    assert decide(answer, attempt(tmp_path)).reason is None


def test_with_the_scheduler_away_and_nothing_known_the_folder_speaks(tmp_path: Path) -> None:
    status = decide(None, attempt(tmp_path), answered=False)
    assert status.state == "RUNNING"
    assert status.final is False
    assert status.elapsed_s == 1000
    assert status.hosts == "node[1-2]"


def test_slurm_has_a_moment_after_sbatch_is_gone() -> None:
    lost = run(job_id=None, created_s=NOW - 5)
    first = decide(of=lost, sending=Sending.ENDED)
    assert first.state == "SUBMITTING"
    assert first.missed_s == NOW
    soon = decide(last=first, of=lost, sending=Sending.ENDED, now_s=NOW + 29)
    assert soon.state == "SUBMITTING"
    assert soon.missed_s == NOW
    for later_s in (30, 31):
        later = decide(last=soon, of=lost, sending=Sending.ENDED, now_s=NOW + later_s)
        assert later.state == "NOT_SUBMITTED"
        assert later.final is True
    found = decide(JobInfo("4711", "PENDING"), last=soon, of=lost, sending=Sending.ENDED)
    assert found.state == "PENDING"
    assert found.missed_s is None


@pytest.mark.parametrize(("age_s", "state"), [(599, "SUBMITTING"), (600, "NOT_SUBMITTED")])
def test_a_submission_of_ten_minutes_has_no_moment(age_s: int, state: str) -> None:
    lost = run(job_id=None, created_s=NOW - age_s)
    assert decide(of=lost, sending=Sending.ENDED).state == state


def test_a_job_nobody_knows_and_that_left_no_record_is_unknown_and_stays_open(
    tmp_path: Path,
) -> None:
    status = decide(None, attempt(tmp_path), LOST)
    assert status.state == "UNKNOWN"
    assert status.final is False
    assert status.reason is not None
    assert "last seen RUNNING" in status.reason
    assert decide(None, attempt(tmp_path), status) == status


def test_one_answer_that_leaves_a_job_out_changes_nothing_and_a_later_one_does() -> None:
    # two polls of a slow controller may read the same answer
    assert LONGEST_PAUSE_S <= 60
    first = decide(last=LastStatus("RUNNING", 500.0, elapsed_s=5))
    assert first.state == "RUNNING"
    assert first.elapsed_s == 5
    assert first.asked_s == 500.0
    assert first.missed_s == NOW
    assert first.reason == "Slurm does not list this job"
    assert decide(last=first, now_s=NOW + 59) == first
    assert decide(last=first, now_s=NOW + 60).state == "UNKNOWN"


@pytest.mark.parametrize("last", [PENDING, RUNNING])
@pytest.mark.parametrize("begun", [False, True])
def test_a_cancelled_job_that_is_left_out_is_cancelled_at_once(
    last: LastStatus, begun: bool, tmp_path: Path
) -> None:
    record = attempt(tmp_path) if begun else None
    assert decide(None, record, last, cancelled=True).state == "CANCELLED"
    assert decide(None, record, last, cancelled=True, answered=False).state == last.state


def test_a_job_that_gives_signs_of_life_runs_whatever_the_scheduler_leaves_out(
    tmp_path: Path,
) -> None:
    alive = Attempt(AttemptFolder(tmp_path), 0, "4711", "node1", STARTED, None, NOW - 40)
    assert decide(None, alive, LOST).state == "RUNNING"


def test_a_cancelled_job_is_cancelled_although_its_heartbeat_is_fresh(tmp_path: Path) -> None:
    alive = Attempt(AttemptFolder(tmp_path), 0, "4711", "node1", STARTED, None, NOW - 40)
    status = decide(None, alive, RUNNING, cancelled=True)
    assert status.state == "CANCELLED"
    assert status.final is True
    assert status.reason is None


def test_hosts_that_cannot_be_read_are_left_out(tmp_path: Path) -> None:
    status = decide(
        attempt=Attempt(AttemptFolder(tmp_path), 0, "4711", "node1", STARTED, WELL, STARTED)
    )
    assert status.state == "COMPLETED"
    assert status.hosts is None


# --- being started again -------------------------------------------------------------------------


def numbered(number: int, exit_: ExitRecord | None = None) -> Attempt:
    return Attempt(
        AttemptFolder(Path("/nowhere")), number, "4711", "node1", STARTED, exit_, STARTED
    )


@pytest.mark.parametrize(
    ("ended", "before"),
    [
        (stopped("time_limit", again=True), "time limit"),
        (stopped("preemption", again=True), "preempted"),
        (stopped("node_failure", again=True), "a node failed"),
        (stopped("requeued", again=True), "requeued by Slurm or an administrator"),
        (stopped("failure", again=True, status=3), "exit status 3"),
        (stopped("", again=False, status=9), "exit status 9"),
        (stopped("a_word_of_a_later_hpcrun", again=True, status=4), "exit status 4"),
        (None, "no record of its end, cause unknown"),
    ],
)
def test_the_attempt_before_is_said_to_have_ended_by(ended: ExitRecord | None, before: str) -> None:
    status = with_attempts(RUNNING, [numbered(1), numbered(0, ended)])
    assert status.attempt == 1
    assert status.before == before


def test_an_attempt_without_a_record_has_lost_the_nodes_that_slurm_saw_dead(
    tmp_path: Path,
) -> None:
    write(tmp_path / "dead-nodes", '{"nodes": ["n2", "n3"], "asked": 5.0}')
    lost = replace(numbered(0), folder=AttemptFolder(tmp_path))
    before = with_attempts(RUNNING, [numbered(1), lost]).before
    assert before == "no heartbeat from n2, n3: a node failed"
    assert ended_state(lost) == "NODE_FAIL"
    assert ended_state(numbered(0)) == "UNKNOWN"


def test_the_attempt_of_a_job_is_the_next_while_it_waits_to_be_requeued_else_its_last() -> None:
    assert with_attempts(PENDING, []) == PENDING
    waits = with_attempts(PENDING, [numbered(1, stopped("preemption", again=True)), numbered(0)])
    assert waits.attempt == 2
    assert waits.before == "preempted"
    over = LastStatus("TIMEOUT", NOW, final=True)
    ended = with_attempts(over, [numbered(1, stopped("time_limit", again=True)), numbered(0)])
    assert ended.attempt == 1
    assert ended.before == "no record of its end, cause unknown"


LATER = NOW + 5
AGAIN = ExitRecord(124, "", LATER, reason="time_limit", again=True, how="requeue")


@pytest.mark.parametrize(
    ("exit_", "cancelled", "expected"),
    [
        (ExitRecord(0, "", LATER), False, ("COMPLETED", True)),
        # Slurm may say OUT_OF_MEMORY
        (ExitRecord(1, "", LATER, reason="failure"), False, ("COMPLETING", False)),
        (ExitRecord(143, "TERM", LATER), False, ("RUNNING", False)),
        (ExitRecord(143, "TERM", LATER), True, ("CANCELLED", True)),
        (AGAIN, False, ("PENDING", False)),
        (replace(AGAIN, how="restart"), False, ("RUNNING", False)),
        (ExitRecord(0, "", NOW - 5), False, ("RUNNING", False)),
    ],
)
def test_what_the_script_wrote_since_slurm_was_asked_is_newer(
    exit_: ExitRecord, cancelled: bool, expected: tuple[str, bool], tmp_path: Path
) -> None:
    info = JobInfo("4711", "RUNNING", asked_s=NOW)
    status = decide(info, attempt(tmp_path, exit_), cancelled=cancelled, now_s=NOW + 9)
    assert (status.state, status.final) == expected
    ended = decide(
        replace(info, state="TIMEOUT"), attempt(tmp_path, exit_), cancelled=cancelled, now_s=NOW + 9
    )
    assert ended.state == "TIMEOUT"
    assert ended.final is True


def test_a_job_that_started_since_slurm_was_asked_runs(tmp_path: Path) -> None:
    waits = JobInfo("4711", "PENDING", "Priority", asked_s=STARTED - 5)
    status = decide(waits, attempt(tmp_path), now_s=STARTED + 5)
    assert status.state == "RUNNING"
    assert status.reason is None
    assert status.elapsed_s == 5
    assert status.hosts == "node[1-2]"
    # requeued
    assert decide(replace(waits, asked_s=STARTED + 5), attempt(tmp_path)).state == "PENDING"
    # its script may not have written them yet
    runs = replace(waits, state="RUNNING", hosts="node[1-2]")
    assert decide(runs, attempt(tmp_path)).hosts == "node[1-2]"


def test_the_time_of_a_run_is_that_of_all_its_attempts(tmp_path: Path) -> None:
    def started(number: int, started_s: float, exit_: ExitRecord | None) -> Attempt:
        return Attempt(
            AttemptFolder(tmp_path), number, "4711", "node1", started_s, exit_, started_s + 30
        )

    requeued = started(
        0, 1000.0, ExitRecord(124, "", 1100.0, reason="time_limit", again=True, how="requeue")
    )
    lost = started(1, 2000.0, None)  # until its last heartbeat
    restarted = started(
        2, 3000.0, ExitRecord(3, "", 3050.0, reason="failure", again=True, how="restart")
    )
    runs = started(3, 3060.0, None)
    newest = (runs, restarted, lost, requeued)
    # Slurm's, since the allocation of the last two began
    status = LastStatus("RUNNING", NOW, elapsed_s=500)
    assert attempt_times(newest, status) == [(1000, 1100), (2000, 2030), (3000, 3060), (3060, 3500)]
    told = with_attempts(status, newest)
    assert told.total_elapsed_s == 100 + 30 + 500
    assert told.elapsed_s == 500
    assert told.ran_s == 630
    assert with_attempts(status, (runs,)).ran_s == 500
    waits = with_attempts(LastStatus("PENDING", NOW, elapsed_s=0), (requeued,))
    assert waits.attempt == 1
    assert waits.ran_s == 100


def test_the_message_of_the_script_is_the_reason_of_a_failure_by_itself(tmp_path: Path) -> None:
    failed = ExitRecord(1, "", 9_500.0, "cannot read the container image")
    status = decide(attempt=attempt(tmp_path, failed))
    assert status.state == "FAILED"
    assert status.reason == "cannot read the container image"
