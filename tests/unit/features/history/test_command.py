"""What hpcrun history tells besides its table, and when its table begins."""

from __future__ import annotations

import pytest

from hpcrun.actions.status.past_jobs import NOT_EXAMINED
from hpcrun.errors import UsageError
from hpcrun.features.history.command import _remarks, _since_s
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
