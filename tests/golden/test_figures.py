"""What the figures of reports show, as text, compared with golden files.

A figure is its axes, each with its lines, bands and notes, and its legend. `make golden` writes
the files of tests/golden/figures.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from matplotlib.colors import to_hex

from hpcrun.features.scaling.figures import settled_figures
from hpcrun.features.scaling.points import Epoch, Point
from hpcrun.features.scaling.study_report import ReportOptions, make_report
from hpcrun.views.figure import paper_style

GOLDEN = Path(__file__).parent / "figures"


def runs(gpus: int, time_s: float, *, nodes: int = 1, **said: Any) -> list[Point]:
    """Two repeats of a size, of which the second takes a tenth longer, with three epochs each."""
    repeats = []
    for repeat, factor in ((1, 1.0), (2, 1.1)):
        epochs = []
        for number in (1, 2, 3):
            epoch_s = time_s * factor * (2 if number == 1 else 1)
            accuracy = 0.4 + number / 10 + 0.1 / gpus
            epochs.append(Epoch(number, epoch_s, 1000 / epoch_s, accuracy=accuracy))
        repeats.append(Point(gpus, nodes, repeat=repeat, epochs=tuple(epochs), **said))
    return repeats


def one_study() -> list[Point]:
    """A study whose last size is not worth its GPUs."""
    return [*runs(1, 100.0), *runs(2, 55.0), *runs(4, 40.0, nodes=2)]


def two_data_sets() -> list[Point]:
    """A data set that scales over many sizes, beside one of which a size was run once."""
    many = []
    for gpus in (1, 16, 256):
        many += runs(gpus, 6000.0 / gpus**0.9, dataset="large")
    single = replace(runs(2, 70.0, dataset="small")[0], repeat=1)
    return [*many, *runs(1, 100.0, dataset="small"), single]


STUDIES = {"one-study": one_study, "two-data-sets": two_data_sets}


@pytest.mark.parametrize("name", STUDIES)
def test_figures_show_what_they_did(name: str, update_golden: bool) -> None:
    path = GOLDEN / f"{name}.txt"
    report = make_report(STUDIES[name](), ReportOptions("study"))
    with paper_style():
        figures, missing = settled_figures(report)
    lines = [f"missing: {text}" for text in missing]
    for title, figure in figures.items():
        lines += ["", f"# {title}: {numbers([*figure.get_size_inches()])} inches"]
        lines += figure_lines(figure)
    text = "\n".join(lines) + "\n"
    if update_golden:
        path.write_text(text, "utf-8")
        return
    assert text == path.read_text("utf-8"), "make golden, and read the difference"


def figure_lines(figure: Any) -> Iterator[str]:
    """Yield the legend of a figure, and what its axes show."""
    for legend in figure.legends:
        for text in legend.get_texts():
            yield f"legend: {text.get_text()}"
    for axes in figure.axes:
        if axes.get_visible():
            yield from axes_lines(axes)


def axes_lines(axes: Any) -> Iterator[str]:
    """Yield what one pair of axes shows."""
    yield f"axes: {axes.get_title()}"
    for name, axis in (("x", axes.xaxis), ("y", axes.yaxis)):
        low, high = axis.get_view_interval()
        yield f"  {name}: {axis.label.get_text()}, {axis.get_scale()} from {numbers([low, high])}"
        ticks = [tick for tick in axis.get_major_ticks() if low <= tick.get_loc() <= high]
        labels = [tick.label1.get_text() for tick in ticks if tick.label1.get_visible()]
        yield f"  {name} ticks: {' '.join(labels)}"
    ends = {end for bars in axes.containers for end in bars.lines[1]}  # of bars: they have no size
    for line in axes.lines:
        if line not in ends:
            yield f"  line {line_style(line)}"
            for x, y in line.get_xydata():
                yield f"    {numbers([x, y])}"
    for band in axes.collections:
        for path in band.get_paths():
            corners = sorted({numbers(corner) for corner in path.vertices})
            yield f"  band {' | '.join(corners)}"
    for patch in axes.patches:
        box = patch.get_extents().transformed(axes.transData.inverted())
        yield f"  area from {numbers([box.x0, box.x1])}"
    for text in axes.texts:
        hidden = "" if text.get_visible() else " hidden"
        yield f"  note {text.get_text()} at {numbers(text.xy)}{hidden}"


def line_style(line: Any) -> str:
    """The style of a line and its markers."""
    colour = to_hex(line.get_color())
    fill = line.get_markerfacecolor()
    filled = fill if isinstance(fill, str) else to_hex(fill)
    style = f"{colour} line {line.get_linestyle()!r}"
    marker = f"marker {line.get_marker()!r} filled {filled}"
    return f"{style} {marker} at height {line.get_zorder():g}"


def numbers(values: Sequence[float]) -> str:
    """Numbers of a figure, as exactly as an eye can see."""
    return " ".join(f"{float(value):.4g}" for value in values)
