"""Metrics as text, CSV, JSON and curves."""

from __future__ import annotations

import json
import math
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from rich.table import Table
from ruamel.yaml import YAML

from hpcrun.actions.runs.run_metrics import Metrics
from hpcrun.cli.metrics import how_to_record
from hpcrun.errors import HpcrunError
from hpcrun.runs.metric_files import MetricsRow
from hpcrun.views.metrics_table import (
    braille_plot,
    curves_of,
    metrics_csv,
    metrics_json,
    metrics_table,
    plot_lines,
    save_png,
    value_text,
)


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (None, "-"),
        (3, "3"),
        (3.0, "3"),
        (1 / 3, "0.333333"),
        (1e-8, "1e-08"),
        (999999999.0, "999999999"),
        (1e9, "1e+09"),
        (math.nan, "nan"),
        (math.inf, "inf"),
        (1e300, "1e+300"),
        ("a\x1b[2J", "a?[2J"),
    ],
)
def test_numbers_are_short(value: float | str | None, shown: str) -> None:
    assert value_text(value) == shown


ROWS = (
    MetricsRow(0, 0, 1, 5.5, {"loss": 0.5, "note": 'a,"b"'}),
    MetricsRow(0, 1, 2.0, None, {"loss": math.nan}),
    MetricsRow(0, 1, None, None, {"loss": -math.inf}),
)
METRICS = Metrics(("loss", "note"), ROWS)


def test_csv_json_and_a_table_that_counts_attempts_from_1_as_status_does() -> None:
    assert metrics_csv({None: METRICS}) == (
        'rank,attempt,step,time,loss,note\n0,0,1,5.5,0.5,"a,""b"""\n0,1,2,,nan,\n0,1,,,-inf,\n'
    )
    attempts, steps, *_ = (
        [str(cell) for cell in column.cells] for column in metrics_table({None: METRICS}).columns
    )
    assert attempts == ["1", "2", "2"]
    assert steps == ["1", "2", "-"]
    text = json.dumps(metrics_json({None: METRICS}, "run"), allow_nan=False)
    rows = json.loads(text)["rows"]
    assert [row["values"]["loss"] for row in rows] == [0.5, "NaN", "-Infinity"]
    assert [row["step"] for row in rows] == [1, 2, None]


def test_a_value_without_a_step_is_not_on_the_curve_of_those_that_have_one() -> None:
    rows = [MetricsRow(0, 0, step, None, {"loss": 3.0}) for step in (0, 100, None)]
    assert curves_of(Metrics(("loss",), tuple(rows)), "loss") == {0: [(0, 3.0), (100, 3.0)]}
    assert curves_of(Metrics(("loss",), tuple(rows[2:])), "loss") == {0: [(0, 3.0)]}


def test_any_numbers_have_a_picture_and_a_curve_goes_from_corner_to_corner(
    subtests: pytest.Subtests,
) -> None:
    lines = braille_plot([[(0, 0), (9, 90)]], 12, 3)
    assert lines[0].startswith("90 ┤")
    assert lines[2].startswith(" 0 ┤")
    assert lines[3].split() == ["0", "9"]
    assert lines[0][-1] != "\u2800"
    assert lines[2][4] != "\u2800"
    assert plot_lines(METRICS, 40)[0] == "loss by step"
    for points in ([(1, 1)], [(1, 5), (2, 5)], [(0, -1e308), (1, 1e308)], [(3, 1), (3, 2)]):
        with subtests.test(points=points):
            for width in (1, 20, 80, 400):
                with subtests.test(width=width):
                    assert any(
                        "\u2801" <= char <= "\u28ff"
                        for char in "".join(braille_plot([points], width))
                    )
    assert plot_lines(METRICS, 40)[-2:] == ["note", "no values"]


@pytest.mark.parametrize("name", ["$\\foo{$", "a$b", "$$", "\x1b[31m\u202e$x^$"])
def test_a_name_is_drawn_as_it_is(name: str, tmp_path: Path) -> None:
    rows = tuple(MetricsRow(0, 0, step, None, {name: float(step)}) for step in (1, 2))
    save_png(Metrics((name,), rows), tmp_path / "a.png", "train")
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")


def test_the_hint_names_the_file_and_an_example_that_can_be_pasted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    text, example = how_to_record().split("config.yaml: ")
    assert str(tmp_path / "hpcrun") in text
    assert YAML(typ="safe").load(example) == {"metrics": {"loss": "loss ([0-9.]+)"}}


RANKS = Metrics(
    ("loss",),
    (
        MetricsRow(0, 0, None, None, {"loss": 1.0}),
        MetricsRow(1, 0, None, None, {"loss": 2.0}),
        MetricsRow(0, 0, None, None, {"other": 2.0}),
    ),
    unreadable=3,
)


def test_a_table_names_the_rank_the_attempt_and_the_element_where_there_are_several() -> None:
    at = f"{datetime.fromtimestamp(5.5):%H:%M:%S}"
    assert _cells_of(metrics_table({None: METRICS})) == [
        ["ATTEMPT", "STEP", "loss", "note", "TIME"],
        ["1", "1", "0.5", 'a,"b"', at],
        ["2", "2", "nan", "-", "-"],
        ["2", "-", "-inf", "-", "-"],
    ]
    assert _cells_of(metrics_table({None: RANKS}))[:3] == [
        ["RANK", "STEP", "loss", "TIME"],
        ["0", "-", "1", "-"],
        ["1", "-", "2", "-"],
    ]
    parameters = {3: (("lr", "0.1"), ("b", "2")), 5: ()}
    table = metrics_table({3: Metrics(("x\n",), ()), 5: RANKS}, parameters)
    assert _cells_of(table)[:3] == [
        ["ELEMENT", "PARAMETERS", "RANK", "STEP", "x?", "loss", "TIME"],
        ["3", "lr=0.1 b=2", "-", "-", "-", "-", "-"],
        ["5", "", "0", "-", "-", "1", "-"],
    ]
    right = [str(column.header) for column in table.columns if column.justify == "right"]
    assert right == ["ELEMENT", "RANK", "STEP", "x?", "loss", "TIME"]


def _cells_of(table: Table) -> list[list[str]]:
    columns = [[str(column.header), *map(str, column.cells)] for column in table.columns]
    return [list(row) for row in zip(*columns, strict=True)]


def test_the_csv_of_a_sweep_begins_with_the_element() -> None:
    metrics = Metrics(("loss",), (MetricsRow(1, 0, 2.0, 3.0, {"loss": 2.0**53}),))
    assert metrics_csv({4: metrics, 5: RANKS}).splitlines() == [
        "element,rank,attempt,step,time,loss",
        "4,1,0,2,3,9007199254740992.0",
        "5,0,0,,,1",
        "5,1,0,,,2",
        "5,0,0,,,",
    ]


def test_the_json_of_a_sweep_has_the_rows_of_each_element() -> None:
    row = MetricsRow(1, 0, 2.0, 3.5, {"loss": math.inf, "epoch": 1})
    metrics = Metrics(("loss", "epoch"), (row,))
    rows = {
        "rows": [
            {
                "rank": 1,
                "attempt": 0,
                "time_s": 3.5,
                "step": 2,
                "values": {"loss": "Infinity", "epoch": 1},
            }
        ],
        "unreadable_lines": 0,
    }
    head = {"kind": "metrics", "run_id": "r", "metrics": ["loss", "epoch"]}
    assert metrics_json({None: metrics}, "r") == {**head, **rows, "element": None}
    assert metrics_json({2: metrics}, "r", element=2) == {**head, **rows, "element": 2}
    assert metrics_json({2: metrics}, "r", {2: (("lr", "1"),)}) == {
        **head,
        "elements": [{"element": 2, "parameters": {"lr": "1"}, **rows}],
    }
    assert metrics_json({None: RANKS}, "r")["unreadable_lines"] == 3


def test_curves_are_by_rank_and_over_positions_where_no_value_has_a_step() -> None:
    assert curves_of(RANKS, "loss") == {0: [(0, 1.0)], 1: [(1, 2.0)]}
    rows = [MetricsRow(0, 0, 1, None, {"loss": value}) for value in (math.nan, "x", 4)]
    assert curves_of(Metrics(("loss",), tuple(rows)), "loss") == {0: [(1.0, 4.0)]}


def test_curves_are_over_positions_where_the_steps_begin_again_in_each_epoch() -> None:
    steps = [(0, 10), (0, 20), (1, 10)]
    rows = [MetricsRow(0, 0, step, None, {"loss": 2.0}, epoch) for epoch, step in steps]
    assert curves_of(Metrics(("loss",), tuple(rows)), "loss") == {0: [(0, 2.0), (1, 2.0), (2, 2.0)]}
    assert curves_of(Metrics(("loss",), tuple(rows[:2])), "loss") == {0: [(10, 2.0), (20, 2.0)]}


def test_curves_in_a_terminal() -> None:
    line = [(0.0, 0.0), (1.0, 1.0), (2.0, 0.5)]
    assert _drawn(braille_plot([line], 20, 4)) == [
        "1 ┤      ⢀⠔⠉⠒⠤⢄⡀",
        "  ┤    ⣀⠔⠁     ⠈⠑⠒⠤⣀",
        "  ┤  ⡠⠊",
        "0 ┤⡠⠊",
        "   0               2",
    ]
    assert _drawn(braille_plot([line, [(0.0, 1.0)]], 24, 4, names=("a", "b"))) == [
        "1 ┤⠁      ⣀⠔⠉⠒⠢⢄⣀      b",
        "  ┤    ⢀⡠⠊       ⠉⠑⠢⠤⣀ a",
        "  ┤  ⢀⠔⠁",
        "0 ┤⡠⠒⠁",
        "   0                 2",
    ]
    both = braille_plot([line, line], 24, 4, names=("a", "b"))
    assert both[1].endswith(" a,b")
    assert _drawn(braille_plot([[(3.0, 5.0)]], 1, 3)) == ["5 ┤", "  ┤    ⠂", "5 ┤", "   3"]


def _drawn(lines: list[str]) -> list[str]:
    return [line.replace("\u2800", " ") for line in lines]


def test_the_last_step_stands_below_the_curves_if_it_has_room_beside_the_first() -> None:
    curve = [(1000.0, 1.0), (200000.0, 2.0)]
    assert braille_plot([curve], 14, 2)[-1] == "   1000 200000"
    assert braille_plot([curve], 13, 2)[-1] == "   1000"
    assert braille_plot([curve[:1]], 80, 2)[-1] == "   1000"


def test_metrics_in_a_terminal_stand_below_each_other() -> None:
    two = Metrics(("a\n", "b"), (MetricsRow(0, 0, 1, None, {"a\n": 1.0, "b": 2.0}),))
    lines = plot_lines(two, 20)
    assert lines[0] == "a? by step"
    assert lines[12:14] == ["", "b by step"]
    assert len(lines) == 2 * 12 + 1


def test_nothing_to_draw_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(HpcrunError, match="there are no values to draw"):
        save_png(Metrics((), ()), tmp_path / "a.png", "train")


def test_the_picture_has_a_panel_for_each_metric_and_names_up_to_16_ranks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    figures: list[Any] = []
    monkeypatch.setattr(
        "hpcrun.views.metrics_table.save_figure", lambda figure, path: figures.append(figure)
    )
    for ranks in (1, 2, 16, 17):
        rows = [
            MetricsRow(rank, 0, step, None, {"loss\n": float(step)})
            for rank in range(ranks)
            for step in range(50 if rank else 49)
        ]
        rows.append(MetricsRow(0, 0, 1, None, {"acc": 1.0, "lr": 0.1}))
        save_png(Metrics(("loss\n", "acc", "lr"), tuple(rows)), tmp_path / "a.png", "train\n")
    panels = [figure.axes for figure in figures]
    assert figures[0].get_suptitle() == "train?"
    assert figures[0].get_size_inches().tolist() == [7.0, 6.6]
    assert [axes.get_ylabel() for axes in panels[0]] == ["loss?", "acc", "lr"]
    assert [axes.get_xlabel() for axes in panels[0]] == ["", "", "step"]
    assert [bool(axes[0].get_legend()) for axes in panels] == [False, True, True, False]
    first, second = panels[1][0].lines
    assert first.get_label() == "rank 0"
    assert second.get_label() == "rank 1"
    assert first.get_marker() not in ("", "None")
    assert second.get_marker() in ("", "None")
    assert first.get_color() != second.get_color()
    assert list(first.get_xdata()) == list(range(49))
    (alone,) = panels[0][1].lines
    assert alone.get_color() == first.get_color()
    assert alone.get_label() == "rank 0"
    assert alone.get_linewidth() < first.get_linewidth()
