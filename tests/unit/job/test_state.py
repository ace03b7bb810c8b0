"""The states of a job: known, unknown, and which are the end."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpcrun.job.state import STATES, base_state, is_silent, is_terminal

OVER = ["COMPLETED", "CANCELLED", "FAILED", "TIMEOUT", "NODE_FAIL", "PREEMPTED", "BOOT_FAIL", "DEADLINE",
        "OUT_OF_MEMORY", "REVOKED", "NOT_SUBMITTED"]  # fmt: skip
NOT_OVER = ["PENDING", "RUNNING", "SUSPENDED", "COMPLETING", "CONFIGURING", "STAGE_OUT", "RESIZING", "SIGNALING",
            "STOPPED", "REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD", "SPECIAL_EXIT", "RESV_DEL_HOLD", "SUBMITTING",
            "UNKNOWN"]  # fmt: skip


@pytest.mark.parametrize("state", OVER)
def test_a_job_in_this_state_is_over(state: str) -> None:
    assert is_terminal(state)
    assert state in STATES


@pytest.mark.parametrize("state", NOT_OVER)
def test_a_job_in_this_state_is_not_over(state: str) -> None:
    assert not is_terminal(state)
    assert state in STATES


def test_a_state_never_seen_before_is_shown_as_it_is_and_not_taken_for_the_end() -> None:
    assert base_state("TELEPORTING") == "TELEPORTING"
    assert not is_terminal("TELEPORTING")


@pytest.mark.parametrize(
    ("text", "state"),
    [
        ("COMPLETED", "COMPLETED"),
        ("CANCELLED by 1000", "CANCELLED"),
        ("CANCELLED+", "CANCELLED"),
        ("running", "RUNNING"),
        ("", "UNKNOWN"),
        ("  ", "UNKNOWN"),
        ("+", "UNKNOWN"),
    ],
)
def test_slurm_s_text_is_reduced_to_the_state(text: str, state: str) -> None:
    assert base_state(text) == state


@given(st.text())
def test_any_text_is_a_state(text: str) -> None:
    assert isinstance(base_state(text), str)


@pytest.mark.parametrize(
    ("node_state", "silent"),
    [("idle", False), ("allocated", False), ("draining", False), ("idle~", False), ("down", True), ("down*", True),
     ("allocated*", True), ("completing*", True), ("DOWN", True)],
)  # fmt: skip
def test_a_node_that_does_not_respond_is_silent(node_state: str, silent: bool) -> None:
    assert is_silent(node_state) is silent
