"""Metrics as text, CSV, JSON and curves."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from hpcrun.actions.runs.run_metrics import Metrics
from hpcrun.cli.metrics import how_to_record
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
    assert (attempts, steps) == (["1", "2", "2"], ["1", "2", "-"])
    text = json.dumps(metrics_json({None: METRICS}, "run"), allow_nan=False)
    rows = json.loads(text)["rows"]
    assert [row["values"]["loss"] for row in rows] == [0.5, "NaN", "-Infinity"]
    assert [row["step"] for row in rows] == [1, 2, None]


def test_a_value_without_a_step_is_not_on_the_curve_of_those_that_have_one() -> None:
    rows = [MetricsRow(0, 0, step, None, {"loss": 3.0}) for step in (0, 100, None)]
    assert curves_of(Metrics(("loss",), tuple(rows)), "loss") == {0: [(0, 3.0), (100, 3.0)]}
    assert curves_of(Metrics(("loss",), tuple(rows[2:])), "loss") == {0: [(0, 3.0)]}


def test_any_numbers_have_a_picture_and_a_curve_goes_from_corner_to_corner() -> None:
    lines = braille_plot([[(0, 0), (9, 90)]], 12, 3)
    assert lines[0].startswith("90 ┤")
    assert lines[2].startswith(" 0 ┤")
    assert lines[3].split() == ["0", "9"]
    assert lines[0][-1] != "\u2800" and lines[2][4] != "\u2800"
    assert plot_lines(METRICS, 40)[0] == "loss by step"
    for points in ([(1, 1)], [(1, 5), (2, 5)], [(0, -1e308), (1, 1e308)], [(3, 1), (3, 2)]):
        for width in (1, 20, 80, 400):
            assert any(
                "\u2801" <= char <= "\u28ff" for char in "".join(braille_plot([points], width))
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
