"""The states of a job, which are the end, and Slurm's reasons in plain words."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpcrun.job.job_states import STATES, base_state, explain_reason, is_silent, is_terminal

OVER = [
    "COMPLETED",
    "CANCELLED",
    "FAILED",
    "TIMEOUT",
    "NODE_FAIL",
    "PREEMPTED",
    "BOOT_FAIL",
    "DEADLINE",
    "OUT_OF_MEMORY",
    "NOT_SUBMITTED",
]
NOT_OVER = [
    "PENDING",
    "RUNNING",
    "SUSPENDED",
    "COMPLETING",
    "CONFIGURING",
    "STAGE_OUT",
    "RESIZING",
    "SIGNALING",
    "STOPPED",
    "REQUEUED",
    "REQUEUE_FED",
    "REQUEUE_HOLD",
    "SPECIAL_EXIT",
    "RESV_DEL_HOLD",
    "REVOKED",
    "SUBMITTING",
    "UNKNOWN",
]


@pytest.mark.parametrize("state", OVER + NOT_OVER)
def test_a_job_in_this_state_is_over_or_not(state: str) -> None:
    assert is_terminal(state) is (state in OVER)
    assert state in STATES


def test_slurm_s_text_is_reduced_to_the_state() -> None:
    states = {
        "CANCELLED by 1000": "CANCELLED",
        "CANCELLED+": "CANCELLED",
        "running": "RUNNING",
        "  ": "UNKNOWN",
        "+": "UNKNOWN",
        "TELEPORTING": "TELEPORTING",
    }
    assert {text: base_state(text) for text in states} == states
    assert not is_terminal("TELEPORTING")  # never seen before: shown as it is, and not the end


@given(st.text())
def test_any_text_is_a_state(text: str) -> None:
    assert isinstance(base_state(text), str)


def test_a_node_that_does_not_respond_is_silent() -> None:
    assert not any(map(is_silent, ("idle", "allocated", "draining", "idle~")))
    assert all(map(is_silent, ("down", "down*", "allocated*", "completing*", "DOWN")))


# With these a job never starts as it is.
NEVER = (
    "PartitionNodeLimit DependencyNeverSatisfied MaxMemPerLimit PartitionTimeLimit QOSMaxGRESPerJob"
).split()


@pytest.mark.parametrize(
    ("word", "short"),
    [
        ("Resources", "next in the queue, waiting for free resources"),
        ("Priority", "other jobs have a higher priority"),
        ("QOSMaxJobsPerUserLimit", "you have reached the QOS limit of running jobs"),
        ("QOSMaxGRESPerUser", "your running jobs have reached the QOS limit per user"),
        ("QOSMaxGRESPerJob", "requests more than the QOS allows per job"),
        ("QOSGrpGRES", "all users of the QOS together have reached its limit"),
        ("QOSGrpGRESRunMinutes", "your running jobs have the allowed time reserved"),
        ("AssocGrpBillingMinutes", "the budget of the account or QOS is exhausted"),
        ("AssocGrpCpuLimit", "the jobs of your account have reached its limit"),
        (
            "ReqNodeNotAvail, UnavailableNodes:a100-1",
            "required nodes are down, drained or reserved",
        ),
        ("ReqNodeNotAvail, Reserved for maintenance", "would overlap a maintenance window"),
        ("PartitionTimeLimit", "requests more time than the partition allows"),
        ("Licenses", "all licenses are in use"),
        ("JobHeldAdmin", "held by an administrator"),
        ("BeginTime", "before its begin time"),
        ("launch failed requeued held", "held: the launch on its nodes failed"),
        ("PartitionNodeLimit", "requests more nodes than the partition allows"),
        ("DependencyNeverSatisfied", "its dependency can never be satisfied"),
        ("MaxMemPerLimit", "requests more memory than is allowed"),
    ],
)
def test_a_reason_is_explained(word: str, short: str) -> None:
    reason = explain_reason(word)
    assert reason is not None
    assert reason.short == short
    assert reason.is_final == (word in NEVER)
    assert reason.advice.endswith(".")
    assert explain_reason("SomethingNew2031") is None
