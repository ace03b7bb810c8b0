"""Which attempts, logs and pages of trackers are gathered for the page of a run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hpcrun.features.share.gather_page import SharedRun, SharedText
from tests.unit.builders import write
from tests.unit.features.share.test_share import (
    attempt,
    elements,
    gathered,
    made,
    write_rank,
)


def sources(of: SharedRun) -> list[str]:
    """The names of the logs."""
    return [source for source, _ in of.logs]


def test_the_newest_fifty_attempts_are_gathered(tmp_path: Path) -> None:
    folder = made(tmp_path)
    for number in range(52):
        attempt(folder, number=number)
    numbers = [span.attempt.number for span in gathered(tmp_path, logs=False).attempts]
    assert numbers == list(range(2, 52))


def test_the_logs_of_four_ranks_are_gathered(tmp_path: Path) -> None:
    place = attempt(made(tmp_path))
    for rank in range(6):
        write_rank(place, rank, "text\n", ended_s=1050.0 - 10 * rank)
    found = [source.partition(",")[0] for source in sources(gathered(tmp_path))]
    assert found == ["rank 5 on n5", "rank 4 on n4", "rank 3 on n3", "rank 2 on n2"]


def test_the_logs_of_three_elements_that_failed_are_gathered(tmp_path: Path) -> None:
    folder = made(tmp_path, **elements(6))
    states = {}
    for index in range(6):
        place = attempt(folder, element=index, status=int(index > 1))
        write_rank(place, 0, "text\n", status=int(index > 1))
        state = "FAILED" if index > 1 else "COMPLETED"
        states[index] = {"state": state, "final": True, "elapsed_s": 50}
    write(folder.element_statuses, json.dumps(states))
    found = [source.partition(":")[0] for source in sources(gathered(tmp_path))]
    assert found == ["element 2", "element 3", "element 4"]


def test_eight_pages_of_trackers_are_gathered(tmp_path: Path) -> None:
    place = attempt(made(tmp_path))
    lines = [f"wandb: View run at: https://wandb.ai/me/p/runs/x{number}\n" for number in range(10)]
    write_rank(place, 0, "".join(lines))
    assert len(gathered(tmp_path).trackers) == 8


@pytest.mark.parametrize(
    ("size", "left_out"), [(512 << 10, 0), ((512 << 10) + 3, 3)], ids=["whole", "longer"]
)
def test_half_a_megabyte_of_a_script_is_gathered(tmp_path: Path, size: int, left_out: int) -> None:
    write(made(tmp_path).script, "x" * size)
    assert gathered(tmp_path).script == SharedText("x" * (512 << 10), left_out)


@pytest.mark.parametrize(
    ("text", "end"),
    [
        pytest.param("\n\n", None, id="nothing"),
        pytest.param("a\n\n\n", SharedText("a"), id="empty lines at the end"),
        pytest.param("a\n" * 150, SharedText("a\n" * 149 + "a"), id="all lines"),
        pytest.param("ab\n" + "a\n" * 150, SharedText("a\n" * 149 + "a", 3), id="too many lines"),
        pytest.param("a secret" + "x" * (256 << 10), None, id="no whole word"),
        pytest.param(
            "y" * 9 + " " + "x" * ((256 << 10) - 2) + "\nb",
            SharedText("b", (256 << 10) + 9),
            id="a line that is not whole",
        ),
    ],
)
def test_the_end_of_a_log_is_its_last_whole_lines(
    tmp_path: Path, text: str, end: SharedText | None
) -> None:
    write_rank(attempt(made(tmp_path)), 0, text)
    logs = dict(gathered(tmp_path).logs)
    assert logs.get("rank 0 on n0, stderr, exit status 1") == end
