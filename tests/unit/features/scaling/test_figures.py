"""The limits of what the figures of a report mark and name."""

from __future__ import annotations

import pytest
from matplotlib.figure import Figure

from hpcrun.features.scaling.axes import brief, spans
from hpcrun.features.scaling.figures import _draw_epochs
from hpcrun.features.scaling.points import Spread
from hpcrun.views.figure import ordered_styles, paper_style


@pytest.mark.parametrize(("epochs", "marker"), [(29, "o"), (30, "")])
def test_the_epochs_of_a_long_training_are_not_marked(epochs: int, marker: str) -> None:
    numbers = {number: Spread(10.0, 10.0, 10.0, 1) for number in range(epochs)}
    (style,) = ordered_styles(1)
    with paper_style():
        curve = _draw_epochs(Figure().subplots(), numbers, {**style, "marker": "o"})
    assert curve.get_marker() == marker


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (9_999.0, "9999"),
        (10_000.0, "10k"),
        (235_400.0, "235k"),
        (1_234_000.0, "1234k"),
        (9_999_000.0, "9999k"),
        (10_000_000.0, "10M"),
        (2.5e11, "250G"),
        (1e13, "10000G"),
        (0.25, "0.25"),
    ],
)
def test_a_large_number_in_a_figure_is_brief(value: float, text: str) -> None:
    assert brief(value) == text


@pytest.mark.parametrize(
    ("values", "are_far_apart"),
    [([1, 8], False), ([1, 8.1], True), ([3], False), ([0, 9], False), ([-1, 9], False)],
)
def test_values_that_differ_more_than_eightfold_have_a_logarithmic_axis(
    values: list[float], are_far_apart: bool
) -> None:
    assert spans(values) == are_far_apart
