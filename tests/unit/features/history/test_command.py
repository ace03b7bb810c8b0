"""What hpcrun history tells besides its table, and when its table begins."""

from __future__ import annotations

from datetime import date

import pytest

from hpcrun.actions.status.past_jobs import NOT_EXAMINED
from hpcrun.errors import UsageError
from hpcrun.features.history.command import _causes_table, _label, _remarks, _since_s
from hpcrun.features.history.history import CauseCount, History, HistoryRow

NOW = 1_800_000_000.0


def history(*causes: CauseCount) -> History:
    return History(
        by="week",
        since_s=0.0,
        until_s=NOW,
        rows=(),
        total=HistoryRow("total"),
        causes=causes,
        runs=0,
        jobs=0,
        others=0,
        running=0,
        unknown=0,
        local=0,
    )


def test_failures_without_an_examined_cause_are_announced() -> None:
    examined = CauseCount("KeyError", 3, 1.0)
    assert list(_remarks(history(examined))) == []
    (remark,) = _remarks(history(examined, CauseCount(NOT_EXAMINED, 2, 1.0)))
    assert remark == (
        "hpcrun: the causes of 2 failures are not examined yet: the next hpcrun history goes on"
    )


@pytest.mark.parametrize(("text", "begin_s"), [("1d", NOW - 86400), ("1960-01-01", 0.0)])
def test_a_history_begins_at_a_length_of_time_or_a_day_and_not_before_1970(
    text: str, begin_s: float
) -> None:
    assert _since_s(text, NOW) == begin_s


def test_a_history_cannot_begin_in_the_future() -> None:
    with pytest.raises(UsageError, match="lies in the future"):
        _since_s("2100-01-01", NOW)


def test_the_ten_most_frequent_causes_have_rows_of_their_own() -> None:
    causes = [CauseCount(f"cause {number}", 20 - number, 2.0) for number in range(12)]
    assert _causes_table(history(*causes[:10])).row_count == 10
    cells = [str(list(column.cells)[-1]) for column in _causes_table(history(*causes)).columns]
    assert cells == ["others, 2 causes", "19", "4.0"]


@pytest.mark.parametrize(
    ("row", "label"),
    [
        pytest.param(HistoryRow("x", date(2026, 3, 2)), "02 Mar", id="a week"),
        pytest.param(HistoryRow("x" * 24), "x" * 24, id="a name"),
        pytest.param(HistoryRow("y" + "x" * 24), "…" + "x" * 23, id="a long name"),
    ],
)
def test_a_bar_has_the_end_of_a_long_name(row: HistoryRow, label: str) -> None:
    assert _label(row) == label
