"""How many processes raised an exception, by the lines near its traceback."""

from __future__ import annotations

import pytest

from hpcrun.explain.diagnosis.root_exception import AFTER_MOST, _times_raised
from hpcrun.explain.diagnosis.traceback import Traceback

LINE = "KeyError: 'recall'"
PLACE = 200


@pytest.mark.parametrize(
    ("others", "times"),
    [
        ([], 1),
        ([PLACE - AFTER_MOST], 2),
        ([PLACE - AFTER_MOST - 1], 1),
        ([PLACE + AFTER_MOST - 1], 2),
        ([PLACE + AFTER_MOST], 1),
        ([PLACE - 3, PLACE + 3], 3),
        ([0], 1),
    ],
    ids="alone before long-before after long-after both first".split(),
)
def test_the_same_line_nearby_is_of_another_process(others: list[int], times: int) -> None:
    lines = ["a line"] * 400
    for place in (PLACE, *others):
        lines[place] = LINE
    raised = Traceback(begins=PLACE, ends=PLACE, last=PLACE, frames=(), exception=LINE)
    assert _times_raised(raised, lines) == times


def test_other_lines_are_of_no_process() -> None:
    lines = [f"  {LINE}", "KeyError: recall is missing", "KeyErrors", LINE]
    raised = Traceback(begins=3, ends=3, last=3, frames=(), exception=LINE)
    assert _times_raised(raised, lines) == 1
