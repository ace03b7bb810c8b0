"""The style of every figure."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from hpcrun.errors import PlanError
from hpcrun.views.figure import new_figure, ordered_styles, paper_style, save_figure, style_of


def test_a_figure_without_matplotlib_says_how_to_install_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    message = "--png needs matplotlib, which is not installed"
    with pytest.raises(PlanError, match=message) as refused, paper_style():
        pass
    assert refused.value.hint == 'pip install "hpcrun-slurm[plot]"'
    with pytest.raises(PlanError, match="--figures needs"), paper_style("--figures"):
        pass


def test_the_style_of_hpcrun_holds_inside_and_not_after() -> None:
    matplotlib = pytest.importorskip("matplotlib")
    with matplotlib.rc_context({"lines.dash_joinstyle": "miter", "font.size": 31.0}):
        with paper_style():
            assert matplotlib.rcParams["lines.dash_joinstyle"] == "round"
            assert matplotlib.rcParams["font.size"] != 31.0
            assert not matplotlib.rcParams["figure.constrained_layout.use"]
        assert matplotlib.rcParams["font.size"] == 31.0


def test_earlier_curves_are_wider_and_styles_repeat() -> None:
    pytest.importorskip("matplotlib")
    with paper_style():
        styles = [style_of(number) for number in range(60)]
        ordered = ordered_styles(5)
        (alone,) = ordered_styles(1)
    sizes = [(style["linewidth"], style["markersize"]) for style in styles]
    assert [(round(width, 3), round(marker, 3)) for width, marker in sizes[:5]] == [
        (2.4, 6.0),
        (2.0, 5.3),
        (1.6, 4.6),
        (1.2, 4.0),
        (1.2, 4.0),
    ]
    assert {"color", "marker"} <= set(styles[0])
    period = next(
        number for number in range(1, 60) if styles[number]["color"] == styles[0]["color"]
    )
    assert [style["color"] for style in styles[:period]] == [
        style["color"] for style in styles[period : 2 * period]
    ]
    shades = [sum(style["color"][:3]) for style in ordered]
    assert shades == sorted(shades)
    assert len(set(shades)) == 5
    assert ordered[-1]["color"] == pytest.approx((0.369, 0.789, 0.383, 1.0), abs=0.02)
    assert alone["color"] == ordered[0]["color"]
    assert [style["marker"] for style in ordered] == [style["marker"] for style in styles[:5]]


def test_a_figure_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    with paper_style():
        figure = new_figure(3.5, 2.0)
        assert figure.get_size_inches().tolist() == [3.5, 2.0]
        save_figure(figure, tmp_path / "a.png")
        with pytest.raises(PlanError, match=r"cannot write .*/none/a\.png: "):
            save_figure(figure, tmp_path / "none/a.png")
        with pytest.raises(PlanError, match=r"cannot write .*\.odd"):
            save_figure(figure, tmp_path / "a.odd")
