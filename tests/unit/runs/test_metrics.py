"""Numbers that ranks noted, and those that stand in their logs."""

from __future__ import annotations

import math
from pathlib import Path

from hpcrun.job.layout import AttemptFolder
from hpcrun.job.patterns import Pattern, compile_pattern
from hpcrun.runs.attempt import Attempt
from hpcrun.runs.metrics import LogMetrics, MetricsRow, Unreadable, join, metric_ranks, noted


def attempt(folder: Path, number: int = 0) -> Attempt:
    return Attempt(AttemptFolder(folder), number, "1", "here", 0.0, None, 0.0)


def row(step: float | None, rank: int = 0, attempt: int = 0, **values: float) -> MetricsRow:
    return MetricsRow(rank, attempt, step, None, values)


def test_lines_that_were_cut_off_are_counted_and_left_out(tmp_path: Path) -> None:
    lines = ['{"time": 5.0, "step": 1, "loss": NaN, "note": "x", "odd": [1]}', "[1]", '{"time": 6.0, "st']
    (tmp_path / "rank-0.metrics").write_text("\n".join(lines))
    bad = Unreadable()
    (found,) = noted(attempt(tmp_path), 0, bad)
    assert (found.step, found.time_s, found.values["note"], sorted(found.values)) == (1, 5.0, "x", ["loss", "note"])
    assert math.isnan(float(found.values["loss"]))
    assert bad.lines == 2
    assert metric_ranks(AttemptFolder(tmp_path)) == [0]
    assert metric_ranks(AttemptFolder(tmp_path / "none")) == []


def test_what_a_later_attempt_says_of_a_step_stands() -> None:
    rows = [row(1, loss=9), row(2, loss=8, lr=1), row(2, attempt=1, loss=7), row(3, attempt=1, loss=6)]
    assert join(rows) == [row(1, loss=9), row(2, attempt=1, loss=7, lr=1), row(3, attempt=1, loss=6)]


def test_rows_are_ordered_by_rank_and_step_and_those_without_a_step_stay_in_place() -> None:
    rows = [row(2, rank=1, a=1), row(10, a=2), row(9, a=3), row(None, a=4), row(None, a=4)]
    assert join(rows) == [row(9, a=3), row(None, a=4), row(None, a=4), row(10, a=2), row(2, rank=1, a=1)]


def patterns(**said: str) -> dict[str, Pattern]:
    return {name: compile_pattern(text) for name, text in said.items()}


def test_metrics_of_a_log_are_numbered_over_all_attempts(tmp_path: Path) -> None:
    finder = LogMetrics(patterns(loss=r"loss (?P<value>[0-9.e+-]+)", epoch_time=r"took ([0-9.,]+) s"))
    (tmp_path / "rank-0.out").write_text("loss 0.5\ntook 1,234.5 s\n10:00:00 loss 4e-1 took 2 s\nloss ...\n")
    (tmp_path / "rank-0.err").write_text("\rloss 0.9\rloss 0.3\n")
    first = list(finder.rows(attempt(tmp_path), 0))
    assert [(item.step, dict(item.values)) for item in first] == [
        (1, {"loss": 0.5}),
        (1, {"epoch_time": 1234.5}),
        (2, {"loss": 0.4, "epoch_time": 2.0}),
        (3, {"loss": 0.3}),
    ]
    again = list(finder.rows(attempt(tmp_path, 1), 0))
    assert [item.step for item in again] == [4, 3, 5, 6]


def test_a_line_may_name_its_step() -> None:
    finder = LogMetrics(patterns(step=r"epoch (\d+)", loss=r"loss (\S+)"))
    assert finder.read("epoch 7: loss 0.1") == (7, {"loss": 0.1})
    assert finder.read("epoch 8") == (8, {})
    grouped = LogMetrics(patterns(loss=r"\[(?P<step>\d+)\] loss (?P<value>\S+)"))
    assert grouped.read("[12] loss nan")[0] == 12
