"""Arrays in Slurm's answers: elements that run, elements that wait, and one word for all of them."""

from __future__ import annotations

import pytest

from hpcrun.job.state import JobInfo
from hpcrun.schedulers.slurm_text import by_job_id, element_ids


@pytest.mark.parametrize(
    ("job_id", "elements"),
    [
        ("7", ["7"]),
        ("7_4", ["7_4"]),
        ("7_[2-4]", ["7_2", "7_3", "7_4"]),
        ("7_[0,5,8-9%2]", ["7_0", "7_5", "7_8", "7_9"]),
        ("7+1", ["7+1"]),
    ],
)
def test_an_id_stands_for_elements(job_id: str, elements: list[str]) -> None:
    assert element_ids(job_id) == elements


def test_a_thousand_waiting_elements_are_one_line_of_squeue() -> None:
    found = by_job_id([JobInfo("7_[0-999%10]", "PENDING", reason="Priority")])
    assert len(found) == 1001  # and the array itself
    assert found["7_999"] == JobInfo("7_999", "PENDING", reason="Priority")


@pytest.mark.parametrize(
    ("states", "whole"),
    [
        (["PENDING", "RUNNING", "FAILED"], "RUNNING"),
        (["PENDING", "COMPLETED"], "PENDING"),
        (["COMPLETED", "FAILED", "COMPLETED"], "FAILED"),
        (["COMPLETED", "COMPLETED"], "COMPLETED"),
    ],
)
def test_an_array_is_over_when_all_elements_are_and_well_when_all_are(states: list[str], whole: str) -> None:
    found = by_job_id([JobInfo(f"7_{index}", state) for index, state in enumerate(states)])
    assert found["7"].state == whole


def test_an_array_says_how_many_are_in_which_state_and_where() -> None:
    found = by_job_id(
        [
            JobInfo("7_0", "COMPLETED", hosts="n1", elapsed_s=5),
            JobInfo("7_1", "COMPLETED", hosts="n2", elapsed_s=9),
            JobInfo("7_2", "FAILED", hosts="n1"),
            JobInfo("8", "RUNNING", hosts="n3"),
        ]
    )
    assert (found["7"].reason, found["7"].hosts) == ("elements: 2 COMPLETED, 1 FAILED", "n1,n2")
    assert found["7"].elapsed_s == 9
    assert found["8"] == JobInfo("8", "RUNNING", hosts="n3")
