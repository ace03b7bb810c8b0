"""The metrics of a run: some of their names, and their last rows."""

from __future__ import annotations

import pytest

from hpcrun.actions.runs.run_metrics import Metrics, choose_metrics, last_rows
from hpcrun.errors import NotFoundError
from hpcrun.runs.metric_files import MetricsRow

FIRST = MetricsRow(0, 0, 1.0, None, {"loss": 3.0})
SECOND = MetricsRow(0, 0, 2.0, None, {"loss": 2.0, "epoch": 1})
THIRD = MetricsRow(0, 0, 3.0, None, {"epoch": 2})
METRICS = Metrics(("loss", "epoch"), (FIRST, SECOND, THIRD))


@pytest.mark.parametrize(
    ("number", "rows"),
    [
        (None, (FIRST, SECOND, THIRD)),
        (0, ()),
        (1, (THIRD,)),
        (2, (SECOND, THIRD)),
        (9, (FIRST, SECOND, THIRD)),
    ],
)
def test_the_last_rows_are_as_many_as_were_named(
    number: int | None, rows: tuple[MetricsRow, ...]
) -> None:
    assert last_rows(METRICS, number).rows == rows


def test_a_row_without_a_chosen_metric_is_left_out() -> None:
    chosen = choose_metrics(METRICS, ["loss"])
    assert chosen.names == ("loss",)
    assert [row.values for row in chosen.rows] == [{"loss": 3.0}, {"loss": 2.0}]


def test_a_metric_that_no_row_has_is_an_error() -> None:
    with pytest.raises(NotFoundError, match="there is no metric 'los'"):
        choose_metrics(METRICS, ["los"])
