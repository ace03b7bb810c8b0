"""The history as a table, CSV and JSON: numbers rounded for people, exact for programs; nothing
that a name does.
"""

from __future__ import annotations

import csv
import io
import json
from collections import Counter
from datetime import date
from typing import Any

import pytest

from hpcrun.features.history.command import (
    history_csv,
    history_figure,
    history_json,
    history_tables,
    hours_text,
    percent_text,
    summary_lines,
)
from hpcrun.features.history.history import Budget, CauseCount, History, HistoryRow
from tests.unit.builders import drawn

EVIL = "=cmd()\x1b[2J\u202e,\n"


def history(*rows: HistoryRow, by: str = "week", causes: tuple[CauseCount, ...] = ()) -> History:
    total = HistoryRow(
        "total",
        gpu_hours=sum(row.gpu_hours for row in rows),
        lost_gpu_hours=sum(row.lost_gpu_hours for row in rows),
    )
    total.cpu_hours = sum(row.cpu_hours for row in rows)
    return History(
        by=by,
        since_s=1_800_000_000.0,
        until_s=1_801_000_000.0,
        rows=rows,
        total=total,
        causes=causes,
        runs=1200,
        jobs=5,
        others=0,
        running=2,
        unknown=1,
        local=3,
    )


def week(**said: float) -> HistoryRow:
    ends = Counter({"completed": 2, "failed": 1, "cancelled": 4})
    return HistoryRow("2026-W47", date(2026, 11, 16), ends=ends, waits_s=[100.0, 7300.0], **said)


def shown(result: History) -> str:
    return "\n".join(drawn(history_tables(result), 80))


def test_a_table_of_weeks_fits_80_columns() -> None:
    many = week(gpu_hours=123456, lost_gpu_hours=4321.2, cpu_hours=99999)
    text = shown(history(many, many, causes=(CauseCount("cuda-out-of-memory", 12, 3.25),)))
    heading, first, *_ = (line.split() for line in text.splitlines())
    assert heading == "WEEK FROM ENDED SUCCESS GPU-HOURS LOST CPU-HOURS WAIT WAIT 90 %".split()
    assert first == "2026-11-16 7 67 % 123,456 4,321 99,999 61 min 2 h".split()
    assert "cuda-out-of-memory      12        3.2" in text
    assert max(map(len, text.splitlines())) <= 80


def test_a_figure_of_one_week_shows_its_legend_beside_the_bar() -> None:
    pytest.importorskip("matplotlib")
    figure = history_figure(history(week(gpu_hours=0.39, lost_gpu_hours=0.22)))
    figure.draw_without_rendering()
    upper, (legend,) = figure.axes[0], figure.legends
    assert [text.get_text() for text in legend.get_texts()] == [
        "not lost",
        "lost in failed attempts",
    ]
    assert upper.get_ylabel() == "GPU-hours"
    assert legend.get_window_extent().y0 > upper.bbox.y1
    bar: Any = upper.patches[0]
    assert bar.get_width() < 0.3 * (upper.get_xlim()[1] - upper.get_xlim()[0])


def test_columns_that_nobody_needs_are_left_out_and_causes_that_are_not_shown_are_counted() -> None:
    assert "CPU-HOURS" not in shown(history(week(gpu_hours=1)))
    assert "GPU-HOURS" not in shown(history(week(cpu_hours=1)))
    causes = tuple(CauseCount(f"cause-{number:02}", 2, 1.5) for number in range(25))
    rows = [line.split() for line in shown(history(week(), causes=causes)).splitlines()]
    assert rows[-2:] == [["cause-09", "2", "1.5"], ["others,", "15", "causes", "30", "22"]]


def test_a_name_can_do_nothing_in_a_table_or_a_spreadsheet() -> None:
    evil = history(HistoryRow(EVIL, gpu_hours=1), by="name", causes=(CauseCount(EVIL, 1, 1.0),))
    assert not any(char in shown(evil) for char in "\x1b\u202e")
    (row,) = csv.DictReader(io.StringIO(history_csv(evil)))
    assert row["group"] == r"'=cmd()\x1b[2J\u202e,\n"
    lines = list(
        summary_lines(evil, [Budget(EVIL, "gres/gpu", "you", 1, 2)], EVIL, "no accounting")
    )
    assert all(line.isprintable() for line in lines)


def test_programs_get_exact_numbers() -> None:
    shown = history(week(gpu_hours=1.0, lost_gpu_hours=0.5))
    (row,) = csv.DictReader(io.StringIO(history_csv(shown)))
    assert float(row["gpu_hours"]) == 1
    assert row["completed"] == "2"
    assert row["failed"] == "1"
    assert row["cancelled"] == "4"
    assert row["week_start"] == "2026-11-16"
    document = json.loads(
        json.dumps(history_json(shown, [Budget("account lab", "gres/gpu", "you", 0.1, 100)]))
    )
    assert document["rows"][0]["success"] == 2 / 3
    assert document["rows"][0]["wait_90_percent_s"] == 7300.0
    assert document["budgets"][0]["allowed_hours"] == 100


def test_the_last_lines_say_what_was_lost_and_what_the_numbers_rest_on() -> None:
    budget = Budget("account lab", "gres/gpu:a100", "all its users", 8420.4, 10_000)
    assert list(
        summary_lines(
            history(week(gpu_hours=40, lost_gpu_hours=1)), [budget], "/runs", "no accounting"
        )
    ) == [
        "lost     1.0 GPU-hours (2 %) in attempts that failed",
        "budget   account lab: 8,420 of 10,000 GPU-hours of a100 used (84 %), by all its users",
        "counted  1,200 runs in /runs since 2027-01-15",
        "         2 running, counted until now",
        "         1 job with an unknown end",
        "         3 runs on this machine not counted",
        "         no accounting",
    ]


def test_numbers_are_rounded() -> None:
    hours = {0: "0", 0.004: "< 0.01", 0.006: "0.01", 0.226: "0.23", 0.994: "0.99", 0.996: "1.0"}
    hours |= {9.94: "9.9", 9.96: "10", 12345.6: "12,346"}
    shares = {None: "-", 0: "0 %", 0.001: "< 1 %", 0.5: "50 %", 0.999: "> 99 %", 1: "100 %"}
    assert {number: hours_text(number) for number in hours} == hours
    assert {number: percent_text(number) for number in shares} == shares
