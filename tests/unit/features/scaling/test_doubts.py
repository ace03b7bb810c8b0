"""What makes times unreliable: each is said with the sizes to measure again, and carries no
verdict.
"""

from __future__ import annotations

from typing import Any

import pytest

from hpcrun.features.scaling.doubts import Doubt, _slow_epochs, doubts_of
from hpcrun.features.scaling.points import Epoch, Point
from hpcrun.features.scaling.report_files import report_text
from hpcrun.features.scaling.series import build_series
from hpcrun.features.scaling.sizes import ScaleCommand
from hpcrun.features.scaling.study_report import Part, ReportOptions, make_report


def run(gpus: int, *times_s: float, **fields: Any) -> Point:
    """A run whose epochs took so long."""
    return Point(
        gpus, epochs=tuple(Epoch(n, time_s=time) for n, time in enumerate(times_s, 1)), **fields
    )


def twice(gpus: int, *times_s: float) -> list[Point]:
    """Two runs that agree."""
    return [run(gpus, *times_s, repeat=1), run(gpus, *(1.01 * time for time in times_s), repeat=2)]


def doubts(*points: Point, warmup: int = 1, weak: bool = False) -> dict[str, Doubt]:
    (series,) = build_series(points, warmup=warmup, weak=weak)
    return {doubt.kind: doubt for doubt in doubts_of(series, warmup)}


def part(*points: Point, **options: Any) -> Part:
    return make_report(points, ReportOptions("study", **options)).parts[0]


GOOD = [*twice(1, 50, 20, 20, 20), *twice(2, 30, 11, 11, 11), *twice(4, 20, 6, 6, 6)]


def test_more_than_the_ideal_is_no_verdict_on_any_size() -> None:
    runs = [*twice(1, 50, 47, 47), *twice(2, 20, 10, 10), *twice(4, 20, 11, 11)]
    found = doubts(*runs)["super-linear"]
    assert "2 GPUs are 4.70 times as fast as 1: 235 % of the ideal" in found.evidence
    assert found.gpus == (1, 2, 4)
    assert found.again == (1, 2, 4)
    judged = part(*runs, command=ScaleCommand("train.py", profile="-P a100"))
    assert judged.advice is None
    assert judged.again == "hpcrun scale run -P a100 --gpus 1,2,4 --repeat 3 --chain train.py"


def test_a_size_in_doubt_does_not_take_the_verdict_from_the_others() -> None:
    found = part(*LONE)
    assert found.advice
    assert found.advice.value.gpus == 2
    assert set(found.advice.doubtful) == {8}
    assert found.outlook
    # and no forecast begins at it
    assert [each.gpus for each in found.outlook.predictions] == [4, 8]


def test_a_law_speaks_of_the_largest_size_that_it_was_measured_at() -> None:
    found = make_report(
        [*twice(1, 9, 20, 20), *twice(2, 9, 11, 11), run(4, 9, 6, 6)], ReportOptions("study")
    )
    assert found.parts[0].outlook
    assert found.parts[0].outlook.gpus == 2
    assert round(found.parts[0].outlook.with_more_work, 2) == 1.9
    text = " ".join(" ".join(report_text(found)).split())
    assert "serial 10.0 % of the work on one GPU, by 2 GPUs" in text
    assert "more work 2 GPUs with proportionally more work would reach 1.9×" in text


def whole(source: Any, *, name: str = "", repeats: tuple[int, ...] = (1, 2)) -> list[Point]:
    """Runs on one and two GPUs of which the whole time is known."""
    return [
        Point(n, total_s=60 / n, source=source, repeat=r, run=name) for n in (1, 2) for r in repeats
    ]


SHORT = [*twice(1, 9, 5, 5), *twice(2, 5, 2.9, 2.9)]
LONE = [*twice(1, 9, 20, 20), *twice(2, 9, 11, 11), run(8, 9, 4, 4)]
BUSY = ((2,), (1, 2), "the node was busy", "nothing else runs on the nodes")


@pytest.mark.parametrize(
    ("runs", "warmup", "kind", "gpus", "again", "evidence", "remedy"),
    [
        (SHORT, 1, "short epochs", (2,), (1, 2), "with 2 GPUs an epoch takes 2.9 s", ""),
        (whole("elapsed"), 1, "short epochs", (2,), (1, 2), "30 s", ""),
        (
            [run(1, 9, 20, 20), run(2, 9, 11, 11)],
            1,
            "no repeats",
            (1, 2),
            (1, 2),
            "each size ran only once, so the error is unknown",
            "",
        ),
        (LONE, 1, "no repeats", (8,), (1, 2, 8), "8 GPUs ran only once", ""),
        (whole("csv", name="listed", repeats=(1,)), 1, "no repeats", (1, 2), (1, 2), "", ""),
        (
            [*twice(1, 50, 20, 20, 20), *twice(2, 30, 11, 11, 11)],
            0,
            "warm-up",
            (1, 2),
            (),
            "with 2 GPUs the first counted epoch took 30.3 s, the later ones 11.1 s",
            "add --warmup 1 to this command",
        ),
        (
            [*twice(1, 90, 50, 40, 20, 20, 20), *twice(2, 30, 11, 11, 11)],
            1,
            "warm-up",
            (1,),
            (),
            "",
            "add --warmup 3 to this command",
        ),
        (
            [*twice(1, 20), *twice(2, 11)],
            1,
            "warm-up",
            (1, 2),
            (1, 2),
            "",
            "train 3 epochs or more",
        ),
        (
            [*twice(1, 9, 20, 20, 20), run(2, 9, 11, 11), run(2, 9, 13, 13, repeat=2)],
            1,
            "noise",
            *BUSY,
        ),
        (
            [*twice(1, 9, 20, 20, 20), *(run(2, 9, 11, 11, 16, 11, 17, repeat=n) for n in (1, 2))],
            1,
            "noise",
            *BUSY,
        ),
    ],
)
def test_what_is_in_doubt(
    runs: list[Point],
    warmup: int,
    kind: str,
    gpus: tuple[int, ...],
    again: tuple[int, ...],
    evidence: str,
    remedy: str,
) -> None:
    found = doubts(*runs, warmup=warmup)[kind]
    assert found.gpus == gpus
    assert found.again == again
    assert evidence in found.evidence
    assert remedy in found.remedy


def test_what_is_believed() -> None:
    assert doubts(*GOOD) == {}
    found = part(*GOOD)
    assert found.advice
    assert found.advice.value.gpus == 4
    assert found.again == ""
    # a little more than the ideal is chance
    assert doubts(*twice(1, 9, 40, 40), *twice(2, 9, 19.5, 19.5)) == {}
    assert "super-linear" in doubts(*twice(1, 50, 40, 40), *twice(2, 50, 30, 30), weak=True)
    # a table says which time it means, and its row may be a mean
    assert doubts(*whole("csv")) == {}
    assert doubts(*whole("csv", repeats=(1,))) == {}
    assert "warm-up" not in doubts(
        *[run(n, 20 / n, source="csv", repeat=r) for n in (1, 2) for r in (1, 2)]
    )
    many = [run(2, 9, 11 + n % 4, 11 + n % 4, repeat=n) for n in range(1, 41)]
    # their mean is known though some are far from it
    assert "noise" not in doubts(*twice(1, 9, 24, 24), *many)


def test_two_epochs_of_a_run_are_too_few_to_call_it_noisy() -> None:
    few = [run(2, 9, 11, 13, repeat=number) for number in (1, 2)]
    assert "noise" not in doubts(*twice(1, 9, 20, 20, 20), *few)
    more = [run(2, 9, 11, 13, 11, repeat=number) for number in (1, 2)]
    assert "noise" in doubts(*twice(1, 9, 20, 20, 20), *more)


def test_the_warm_up_to_leave_out_is_that_of_the_slowest_start() -> None:
    short = twice(1, 90, 40, 20, 20, 20)
    long = twice(2, 90, 50, 30, 11, 11, 11)
    assert "add --warmup 3 to this command" in doubts(*short, *long)["warm-up"].remedy


def test_a_run_that_has_not_ended_leaves_no_verdict() -> None:
    report = make_report([*GOOD, Point(8, state="RUNNING", ended=False)], ReportOptions("study"))
    assert report.unfinished == "1 running"
    assert report.parts[0].advice is None
    assert (
        make_report([*GOOD, Point(8, problem="not ended yet")], ReportOptions("study")).unfinished
        == ""
    )


@pytest.mark.parametrize(
    ("times_s", "slow"),
    [
        ([12.0, 10.0, 10.0], 0),
        ([12.1, 10.0, 10.0], 1),
        ([30.0, 13.0, 10.0, 10.0], 2),
        ([10.0, 30.0, 10.0, 10.0], 0),
        ([30.0, 10.0], 1),
        ([30.0], 0),
        ([], 0),
    ],
)
def test_an_epoch_is_slow_by_the_later_ones(times_s: list[float], slow: int) -> None:
    assert _slow_epochs(times_s) == slow
