"""Where the curves and bars of the page lie: in units of its drawings, from the upper left."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import pytest

from hpcrun.features.share.drawings import (
    WIDE,
    Bar,
    Scale,
    _scale_of,
    _thin,
    _time_form,
    line_chart,
    time_line,
    use_section,
)
from hpcrun.runs.use_samples import GpuUse, NodeUse, UseSample

GB = 1024**3


def test_a_chart_goes_from_corner_to_corner_between_its_marks() -> None:
    chart = line_chart("loss", [("train", [(0, 0), (5, 25), (10, 100)])])
    ((label, line, dots),) = chart["curves"]
    assert label == "train"
    assert line == "56.0,174.0 260.0,133.5 464.0,12.0"
    assert dots[1] == (260.0, 133.5, 2.5, "25 at step 5")
    assert (chart["width"], chart["height"]) == (480, 200)
    assert (chart["left"], chart["right"]) == (56, 464)


def test_the_marks_of_a_chart_are_round() -> None:
    chart = line_chart("loss", [("", [(0, 0), (10, 100)])])
    assert chart["rows"] == [
        (174.0, "0"),
        (141.6, "20"),
        (109.2, "40"),
        (76.8, "60"),
        (44.4, "80"),
        (12.0, "100"),
    ]
    assert chart["columns"] == [
        (56.0, "0"),
        (137.6, "2"),
        (219.2, "4"),
        (300.8, "6"),
        (382.4, "8"),
    ]


def test_a_chart_may_be_as_wide_as_the_page() -> None:
    chart = line_chart("loss", [("", [(0, 0), (10, 100)])], width=WIDE)
    assert chart["right"] == 944
    assert chart["curves"][0][1] == "56.0,174.0 944.0,12.0"


def test_a_chart_of_one_step_has_it_in_the_middle() -> None:
    chart = line_chart("loss", [("", [(7, 5)])], x_name="epoch", unit=" %")
    assert chart["columns"] == [(260.0, "7")]
    assert chart["curves"][0][2] == [(260.0, 93.0, 2.5, "5 % at epoch 7")]
    assert chart["x_name"] == "epoch"


def test_the_ends_of_an_axis_may_be_given() -> None:
    chart = line_chart("GPUs", [("", [(0, 50), (1, 50)])], least=0.0, most=100.0)
    assert chart["curves"][0][1] == "56.0,93.0 464.0,93.0"


@pytest.mark.parametrize(
    ("values", "scale"),
    [
        ([1, 300], Scale(1, 300)),
        ([1, 301], Scale(1, 301, log=True)),
        ([0, 301], Scale(0, 301)),
        ([-1, 301], Scale(-1, 301)),
        ([5, 5], Scale(4.5, 5.5)),
        ([-20], Scale(-22, -18)),
        ([0], Scale(-1, 1)),
        ([sys.float_info.max], Scale(sys.float_info.max * 0.9, sys.float_info.max)),
    ],
)
def test_an_axis_is_logarithmic_where_values_differ_much(
    values: Sequence[float], scale: Scale
) -> None:
    found = _scale_of(values)
    assert (found.low, found.high) == pytest.approx((scale.low, scale.high))
    assert found.log == scale.log


def test_an_axis_from_a_given_value_is_linear() -> None:
    assert _scale_of([1, 1000], least=0.5) == Scale(0.5, 1000)
    assert _scale_of([1, 1000], most=2000) == Scale(1, 2000, log=True)


@pytest.mark.parametrize(
    ("scale", "marks"),
    [
        (Scale(0, 10), [0, 2, 4, 6, 8, 10]),
        (Scale(0, 26), [0, 10, 20]),
        (Scale(3, 4), [3, 3.2, 3.4, 3.6, 3.8, 4]),
        (Scale(-5, 5), [-4, -2, 0, 2, 4]),
        (Scale(0, 1e-320), [0, 1e-320]),
        (Scale(1, 1000, log=True), [1, 10, 100, 1000]),
        (Scale(0.5, 2e7, log=True), [1, 100, 1e4, 1e6]),
    ],
)
def test_marks_are_round_and_few(scale: Scale, marks: list[float]) -> None:
    assert scale.marks() == pytest.approx(marks)


def test_a_logarithmic_axis_gives_each_power_the_same_room() -> None:
    scale = Scale(1, 100, log=True)
    assert [scale.place(value) for value in (1, 10, 100)] == [0, 0.5, 1]
    assert Scale(0, 100).place(10) == 0.1
    assert Scale(7, 7).place(7) == 0.5


def test_a_long_curve_keeps_its_ends_and_extremes() -> None:
    short = [(float(step), 0.0) for step in range(400)]
    assert _thin(short) is short
    long = [(float(step), float(step % 3)) for step in range(401)]
    thin = _thin(long)
    assert thin[0] == long[0]
    assert thin[-1] == long[-1]
    # stretches of three points: of each the lowest, and the highest two steps later
    assert thin[1:5] == [long[0], long[2], long[3], long[5]]
    assert len(thin) == 2 + 2 * 134


def test_of_many_points_only_the_last_is_marked() -> None:
    def radii(number: int) -> list[float]:
        points = [(step, step) for step in range(number)]
        dots = line_chart("loss", [("", points)])["curves"][0][2]
        return [radius for _, _, radius, _ in dots]

    assert radii(60) == [2.5] * 60
    assert radii(61) == [0] * 30 + [2.5]
    assert radii(62) == [0] * 31 + [2.5]


def test_bars_lie_on_a_common_time_line() -> None:
    first = Bar(1000, 1400, "ok", "attempt 1")
    second = Bar(1025, 1100, "bad", "attempt 2")
    drawing = time_line([("3/0", [first]), ("3/1", [second])])
    assert drawing["lanes"] == [
        (0, "3/0", [(120.0, 830.0, "ok", "attempt 1")]),
        (26, "3/1", [(171.9, 155.6, "bad", "attempt 2")]),
    ]
    assert [left for left, _ in drawing["marks"]] == [120.0, 327.5, 535.0, 742.5, 950.0]
    assert (drawing["width"], drawing["bottom"]) == (960, 56)
    assert (drawing["left"], drawing["height"]) == (110, 18)


def test_a_bar_of_an_instant_can_be_seen() -> None:
    instants = [Bar(0, 0, "ok", ""), Bar(1000, 1000, "ok", "")]
    ((_, _, bars),) = time_line([("", [*instants, Bar(0, 1000, "ok", "")])])["lanes"]
    assert [bar[:2] for bar in bars] == [(120.0, 4), (946, 4), (120.0, 830.0)]


@pytest.mark.parametrize(
    ("length_s", "form"),
    [
        (599, "%H:%M:%S"),
        (600, "%H:%M"),
        (86399, "%H:%M"),
        (86400, "%d %b %H:%M"),
    ],
)
def test_the_times_of_a_short_line_have_seconds(length_s: float, form: str) -> None:
    assert _time_form(length_s) == form


def sample(minute: float, *busy: float, rdma: float | None = None) -> UseSample:
    """A sample of a node whose GPUs are so busy."""
    gpus = []
    for number, share in enumerate(busy):
        gpus.append(GpuUse(number, share, (number + 1) * GB, 80 * GB, None))
    return UseSample(60 * minute, 2.5, 3 * GB, 4e6, rdma, tuple(gpus))


def use(node: str, *samples: UseSample) -> NodeUse:
    """The use of a node that was sampled from the first second."""
    return NodeUse(node, 8, 64 * GB, samples, started=60)


def charts(*nodes: NodeUse) -> dict[str, dict[str, Any]]:
    """The charts of these nodes, by name."""
    return {chart["drawing"]["name"]: chart for chart in use_section(nodes)["charts"]}


def titles(chart: dict[str, Any]) -> list[str]:
    """The titles of the points of the first curve."""
    _, _, dots = chart["drawing"]["curves"][0]
    return [title for *_, title in dots]


def test_the_use_of_a_node_is_drawn_by_minutes() -> None:
    found = charts(use("n1", sample(2, 0.2, 0.4), sample(3, 0.6, 1.0)))
    assert titles(found["GPUs busy"]) == ["30 % at min 1", "80 % at min 2"]
    assert titles(found["GPU memory"]) == ["2 GB at min 1", "2 GB at min 2"]
    assert titles(found["CPUs busy"]) == ["2.5 at min 1", "2.5 at min 2"]
    assert titles(found["memory"]) == ["3 GB at min 1", "3 GB at min 2"]
    assert titles(found["network"]) == ["4 MB/s at min 1", "4 MB/s at min 2"]
    assert "RDMA" not in found
    assert found["GPUs busy"]["words"] == "%"


def test_what_a_node_does_not_have_is_not_drawn() -> None:
    found = charts(use("n1", sample(2, rdma=5e6), sample(3, rdma=6e6)))
    assert list(found) == ["CPUs busy", "memory", "network", "RDMA"]
    assert titles(found["RDMA"]) == ["5 MB/s at min 1", "6 MB/s at min 2"]
    assert charts(use("n1", sample(2, 0.5))) == {}


def test_the_axis_of_busy_gpus_goes_from_none_to_all() -> None:
    found = charts(use("n1", sample(2, 0.5), sample(3, 0.5)))
    rows = found["GPUs busy"]["drawing"]["rows"]
    assert (rows[0], rows[-1]) == ((174.0, "0"), (12.0, "100"))
    rows = found["GPU memory"]["drawing"]["rows"]
    assert (rows[0], rows[-1]) == ((174.0, "0"), (12.0, "1"))


def test_the_curves_of_several_nodes_have_their_names() -> None:
    nodes = [use(f"n{number}", sample(2), sample(3)) for number in range(9)]
    assert [label for label, *_ in charts(nodes[0])["memory"]["drawing"]["curves"]] == [""]
    eight = charts(*nodes[:8])["memory"]
    assert [label for label, *_ in eight["drawing"]["curves"]] == [f"n{n}" for n in range(8)]
    assert eight["words"] == "GB"
    nine = charts(*nodes)["memory"]
    assert nine["words"] == "GB, the first 8 nodes"
    assert len(nine["drawing"]["curves"]) == 8


def test_a_table_has_rows_for_the_first_nodes() -> None:
    nodes = [use(f"n{number}", sample(2), sample(3)) for number in range(33)]
    nodes[1] = use("n1", sample(2, 0.5), sample(3, 0.5))
    found = use_section(nodes)
    assert found["headings"][0] == "node"
    assert len(found["rows"]) == 32
    assert found["left_out"] == 1
    assert found["rows"][0][0] == "n0"
    assert "-" in found["rows"][0]
    assert "-" not in found["rows"][1]


def test_without_a_sample_there_is_no_row() -> None:
    found = use_section([use("n1")])
    assert (found["headings"], found["rows"], found["charts"]) == (("node",), [], [])
