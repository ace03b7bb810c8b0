"""What the picture of a sweep shows: curves of the best elements, and each by its parameters."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from matplotlib.figure import Figure

from hpcrun.actions.runs.run_metrics import Metrics
from hpcrun.actions.status.run_status import ElementStatus, RunStatus
from hpcrun.errors import PlanError
from hpcrun.features.sweep.command import (
    _apart,
    _draw_curves,
    _draw_parallel,
    _short,
    _Tick,
    save_sweep_png,
)
from hpcrun.features.sweep.compare_elements import SweepTable, sweep_table
from hpcrun.views.figure import ordered_styles, paper_style
from tests.unit.builders import run
from tests.unit.features.sweep.test_compare_elements import DONE, metrics


def table_of(number: int, steps: int = 2) -> SweepTable:
    """A sweep of this many elements, of which the last is best."""
    elements = []
    measured: dict[int, Metrics] = {}
    for index in range(number):
        parameters = (("lr", str(10**index)), ("model", f"m{index}"))
        elements.append(ElementStatus(index, f"4_{index}", parameters, DONE))
        rows: list[tuple[int, dict[str, float | str]]]
        rows = [(step, {"loss": 1 / (1 + index + step)}) for step in range(steps)]
        measured[index] = metrics(*rows)
    record = run(plan={"sweep": {"indices": f"0-{number - 1}", "first": 0}})
    item = RunStatus(record, Path("/x"), DONE, elements=tuple(elements))
    return sweep_table([(item, measured)], "loss")


def drawn_curves(number: int, steps: int = 2) -> Any:
    """The axes with the curves of a sweep."""
    with paper_style():
        axes = Figure().subplots()
        _draw_curves(axes, table_of(number, steps), ordered_styles(number))
    return axes


def test_the_curves_of_elements_are_named_by_their_parameters() -> None:
    axes = drawn_curves(2)
    assert [line.get_label() for line in axes.lines] == ["1: lr=10 model=m1", "0: lr=1 model=m0"]
    assert axes.lines[1].get_xydata().tolist() == [[0, 1], [1, 0.5]]
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("step", "loss")
    assert axes.get_legend().get_title().get_text() == "best first"


def test_twenty_elements_have_curves_and_ten_of_them_names() -> None:
    axes = drawn_curves(21)
    assert len(axes.lines) == 20
    named = [line for line in axes.lines if not line.get_label().startswith("_")]
    assert len(named) == 10
    assert named[0].get_label().startswith("20: ")


@pytest.mark.parametrize(("steps", "has_markers"), [(29, True), (30, False)])
def test_the_points_of_a_long_curve_are_not_marked(steps: int, has_markers: bool) -> None:
    (line,) = drawn_curves(1, steps).lines
    assert (line.get_marker() not in ("", "None")) == has_markers


def test_a_line_goes_from_parameters_to_a_result() -> None:
    with paper_style():
        axes: Any = Figure().subplots()
        table = table_of(3)
        _draw_parallel(axes, table.scored, table, ordered_styles(3))
    worst, middle, best, *across = axes.lines
    assert best.get_xydata().tolist() == [[0, 1], [1, 0], [2, 0]]
    assert middle.get_xydata()[:2].tolist() == [[0, 0.5], [1, 0.5]]
    assert worst.get_xydata().tolist() == [[0, 0], [1, 1], [2, 1]]
    assert [line.get_xdata()[0] for line in across] == [0, 1, 2]
    assert [label.get_text() for label in axes.get_xticklabels()] == ["lr", "model", "loss"]
    assert axes.get_xlim() == (-0.15, 2.4)
    texts = [text.get_text() for text in axes.texts]
    assert texts == ["1", "10", "100", "m2", "m1", "m0", "0.25", "0.3333", "0.5"]


def test_labels_of_an_axis_have_room() -> None:
    ticks = [_Tick(0.0, "a"), _Tick(0.05, "b"), _Tick(0.06, "c"), _Tick(1.0, "d")]
    assert [tick.text for tick in _apart(ticks)] == ["a", "c", "d"]
    close = [_Tick(0.0, "a"), _Tick(0.5, "b"), _Tick(0.55, "c")]
    assert [tick.text for tick in _apart(close)] == ["a", "c"]
    assert [tick.text for tick in _apart(close[1:])] == ["b"]


def test_a_long_name_is_cut() -> None:
    assert _short("x" * 40) == "x" * 40
    assert _short("x" * 41) == "x" * 39 + "…"


def test_a_sweep_without_a_value_has_no_picture(tmp_path: Path) -> None:
    item = RunStatus(run(), Path("/x"), DONE, elements=(ElementStatus(0, "4_0", (), DONE),))
    with pytest.raises(PlanError, match="no element has a value to draw"):
        save_sweep_png(sweep_table([(item, {0: metrics()})]), tmp_path / "x.png")
    assert list(tmp_path.iterdir()) == []
