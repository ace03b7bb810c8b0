"""Which rank stopped first, from how long the ranks have been silent."""

from __future__ import annotations

import pytest

from hpcrun.runs.silence import silence_sentence


def sentence(
    silent_s: dict[int, float | None], running_s: float = 7200.0, usual_s: float | None = 2.0
) -> str:
    return silence_sentence(
        silent_s, lambda rank: f"rank {rank} on n{rank}", running_s=running_s, usual_s=usual_s
    )


@pytest.mark.parametrize(
    ("silent_s", "text"),
    [
        ({0: 3.0, 1: 17.0, 2: 5.0}, "all 3 ranks wrote in the last 20 s: nothing looks stuck"),
        ({0: 3.0}, "the job wrote 3 s ago: nothing looks stuck"),
        ({0: 3.0, 1: 7190.0}, "rank 0 wrote 3 s ago: nothing looks stuck"),
        (
            {0: None, 1: None},
            "the job is running; no rank has written anything since it started 2 h ago",
        ),
        (
            {0: 720.0},
            "the job has written nothing for 12 min, which usually takes 2 s from line to line",
        ),
        (
            {rank: 720.0 + rank / 10 for rank in range(16)},
            "no rank has written for 12 min, which usually takes 2 s from line to line",
        ),
        (
            {rank: 720.0 if rank == 11 else 660.0 for rank in range(16)},
            "rank 11 on n11 last wrote 12 min ago; the other 15 wrote 11 min ago",
        ),
        ({0: 720.0, 1: 660.0}, "rank 0 on n0 last wrote 12 min ago; rank 1 wrote 11 min ago"),
        (
            {0: 720.0, 1: 720.0, 2: 660.0, 3: 660.0, 4: 660.0},
            "rank 0 on n0 and rank 1 on n1 last wrote 12 min ago; 3 others wrote 11 min ago",
        ),
        (
            {0: 720.0, 1: 7190.0, 2: None},
            "no rank has written for 12 min, which usually takes 2 s from line to line"
            " (2 other ranks wrote only at the start, or nothing)",
        ),
    ],
)
def test_who_stopped_first(silent_s: dict[int, float | None], text: str) -> None:
    assert sentence(silent_s) == text


def test_a_job_that_prints_seldom_is_not_stuck_between_two_lines() -> None:
    said = (
        "the job wrote 25 min ago: at 10 min from line to line until then, that is too early "
        "to "
        "call it stuck"
    )
    assert sentence({0: 1500.0}, usual_s=600.0) == said
    assert sentence({0: 1900.0}, usual_s=600.0).startswith("the job has written nothing for 31 min")
    assert sentence({0: 30.0}, usual_s=None) == "the job has written nothing for 30 s"
