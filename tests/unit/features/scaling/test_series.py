"""From the metrics of runs to rows."""

from __future__ import annotations

from typing import Any

import pytest

from hpcrun.features.scaling.points import Epoch, Point, epochs_of, last_whole_number
from hpcrun.features.scaling.series import Series, build_series


def run(gpus: int, *times_s: float, **fields: Any) -> Point:
    """A run whose epochs took so long."""
    return Point(
        gpus, epochs=tuple(Epoch(n, time_s=time) for n, time in enumerate(times_s, 1)), **fields
    )


def one(*points: Point, weak: bool = False, warmup: int = 1) -> Series:
    (series,) = build_series(points, weak=weak, warmup=warmup)
    return series


def test_a_time_of_zero_is_no_time_and_the_last_epoch_always_counts(
    subtests: pytest.Subtests,
) -> None:
    runs = [run(1, 50, 10, 10), run(2, 30, 5, 7), run(4, 4)]
    for warmup, times in ((1, [10, 6, 4]), (0, [70 / 3, 14, 4]), (9, [10, 7, 4])):
        with subtests.test(warmup=warmup):
            rows = one(*runs, warmup=warmup).rows
            assert [row.time_s and row.time_s.mean for row in rows] == pytest.approx(times)
    zeros = one(
        run(1, 0.0, speedup=1.0, total_s=0.0), run(4, 0.0, speedup=2.0, startup_s=1.0, total_s=0.0)
    ).rows
    assert [(row.time_s, row.shares.startup) for row in zeros] == [(None, None)] * 2


def test_repeats_make_one_row_with_their_range() -> None:
    series = one(run(1, 10), run(4, 2, repeat=1), run(4, 3, repeat=2), run(4, 4, repeat=3))
    row = series.rows[1]
    assert [row.speedup.mean, row.speedup.low, row.speedup.high, row.speedup.n] == pytest.approx(
        [10 / 3, 2.5, 5, 3]
    )
    assert row.efficiency == pytest.approx(10 / 12)
    assert row.gpu_hours == pytest.approx(4 * 3 / 3600)
    assert row.speedup.deviation == pytest.approx(1 / 3)


def test_the_smallest_size_is_the_baseline_and_said_to_be() -> None:
    series = one(run(8, 10), run(16, 6))
    assert series.rows[1].efficiency == pytest.approx(10 / 6 / 2)
    assert "smallest size is 8 GPUs" in series.remarks[0]
    (series,) = build_series([run(2, 10), run(4, 6)], unit="ranks")
    assert series.unit == "ranks"
    assert series.rows[0].unit == "ranks"
    assert series.remarks[0].startswith("the smallest size is 2 ranks")
    assert series.remarks[0].endswith("not 1 rank")


def test_several_ways_over_nodes_are_rows_of_their_own_and_no_comparison() -> None:
    series = one(run(1, 12), run(4, 4, nodes=2), run(4, 3, nodes=1))
    assert [(row.gpus, row.nodes) for row in series.rows] == [(1, 1), (4, 1), (4, 2)]
    assert [(row.gpus, row.nodes) for row in series.sizes] == [(1, 1), (4, 1)]
    assert "1 (4.00×), 2 (3.00×)" in series.remarks[0]
    assert not one(run(4, 10)).compared
    assert not one(run(4, 10), run(4, 9, nodes=2)).compared
    assert one(run(1, 10), run(4, 3)).compared


def test_other_batches_at_one_size_are_no_repeats() -> None:
    series = build_series(
        [run(4, 36, batch_size=1024), run(4, 17, batch_size=4096), run(1, 36, batch_size=1024)]
    )
    assert [each.name for each in series] == ["batch 1024", "batch 4096"]
    named = build_series(
        [run(4, 36, batch_size=8, dataset="a"), run(4, 17, batch_size=9, dataset="a")]
    )
    assert [(each.name, each.dataset) for each in named] == [
        ("a, batch 8", "a"),
        ("a, batch 9", "a"),
    ]
    # a batch that grows with the GPUs is an ordinary study
    assert len(build_series([run(1, 9, batch_size=8), run(2, 5, batch_size=16)])) == 1


@pytest.mark.parametrize("state", ["FAILED", "PENDING", "COMPLETED"])
def test_a_run_without_metrics_does_not_split_a_study_by_batch(state: str) -> None:
    sizes = [run(gpus, 10, batch_size=1024 * gpus) for gpus in (1, 2, 4)]
    series = one(*sizes, Point(2, state=state), weak=True)
    assert [row.gpus for row in series.rows] == [1, 2, 4]
    assert len(series.left_out) == 1


def test_runs_that_cannot_be_compared_are_left_out_with_their_problem() -> None:
    series = one(
        run(1, 10),
        run(2, 5, state="FAILED", problem="rank 1 ran out of memory"),
        run(4, 3, state="TIMEOUT"),
    )
    assert [row.gpus for row in series.rows] == [1]
    assert [problem for _, problem in series.left_out] == ["rank 1 ran out of memory", "TIMEOUT"]
    nothing = one(run(1, 10, state="FAILED"))
    assert nothing.rows == ()
    assert len(nothing.left_out) == 1
    silent = Point(4, total_s=100, source="elapsed")
    series = one(run(1, 10, total_s=50), run(4, 3, total_s=30), silent)
    assert series.basis == "epoch"
    assert series.left_out == (
        (silent, "it has no time of an epoch, which the other runs are compared by"),
    )
    silent = Point(4, total_s=25, source="elapsed")  # alone at its size, it sets the measure of all
    series = one(run(1, 10, total_s=50), run(2, 6, total_s=40), silent)
    assert series.basis == "run"
    assert series.sources == ("metrics", "elapsed")
    assert [row.speedup.mean for row in series.rows] == [1, 1.25, 2]
    unlike = one(run(1, 10), run(2, 6), silent)
    assert unlike.basis == "epoch"
    assert [point for point, _ in unlike.left_out] == [silent]


def test_numbers_that_are_none_do_not_count(subtests: pytest.Subtests) -> None:
    for bad in (float("nan"), float("inf"), 0.0, -1.0):
        with subtests.test(bad=bad):
            series = one(run(1, 9, 10), run(2, bad, bad))
            assert [row.gpus for row in series.rows] == [1]
            assert len(series.left_out) == 1


def test_a_weak_study_compares_work_done() -> None:
    rates = [Point(n, epochs=(Epoch(1, time_s=60.0, samples_per_s=100 * n * 0.9),)) for n in (2, 4)]
    base = Point(1, epochs=(Epoch(1, time_s=60.0, samples_per_s=100),))
    by_rate = one(base, *rates, weak=True)
    assert by_rate.basis == "throughput"
    assert [row.efficiency for row in by_rate.rows] == pytest.approx([1, 0.9, 0.9])
    by_time = one(run(1, 60), run(4, 75), weak=True)
    assert by_time.rows[1].speedup.mean == pytest.approx(4 * 60 / 75)
    assert by_time.rows[1].efficiency == pytest.approx(0.8)


def test_samples_per_second_follow_from_samples_and_epochs_of_other_sizes_are_remarked_on() -> None:
    (row,) = one(run(1, 10, samples=1000, batch_size=300)).rows
    assert row.samples_per_s
    assert row.samples_per_s.mean == 100
    assert row.steps == 4
    runs = [run(1, 10, samples=1000), run(2, 10, samples=2000)]
    assert "--weak" in one(*runs).remarks[0]
    assert one(*runs, weak=True).remarks == ()


def test_published_speedups_and_the_times_beside_them() -> None:
    series = one(Point(1, speedup=1.0), run(4, 42.3, speedup=0.46))
    assert series.basis == "published"
    assert [(row.time_derived, row.time_s and row.time_s.mean) for row in series.rows] == [
        (True, pytest.approx(42.3 * 0.46)),
        (False, 42.3),
    ]
    assert [row.time_s for row in one(Point(1, speedup=1.0), Point(4, speedup=3.49)).rows] == [
        None,
        None,
    ]
    lone = one(Point(8, speedup=7.0, source="csv"))
    assert [(row.gpus, row.speedup.mean, row.efficiency) for row in lone.rows] == [
        (1, 1, 1),
        (8, 7.0, 0.875),
    ]
    timed = one(*(Point(n, total_s=3600 / n, speedup=0.9 * n, source="csv") for n in (2, 4)))
    assert timed.basis == "published"
    assert timed.time_of == "run"
    assert [(row.gpus, row.speedup.mean) for row in timed.rows] == [(1, 1), (2, 1.8), (4, 3.6)]
    assert [row.time_s and row.time_s.mean for row in timed.rows] == [
        pytest.approx(3240),
        1800,
        900,
    ]
    series = one(*(Point(n, total_s=3600 / n, speedup=n / 2 * 0.99, source="csv") for n in (2, 4)))
    assert series.basis == "run"
    assert [row.gpus for row in series.rows] == [2, 4]
    assert [row.published for row in series.rows] == [0.99, 1.98]


def test_what_was_said_of_an_epoch() -> None:
    rows = [
        (
            2,
            {
                "epoch_time": 3,
                "accuracy": 0.5,
                "val_accuracy": 0.75,
                "loss": 1.5,
                "data_time": 0.25,
                "sync_time": 0.5,
            },
        ),
        (1, {"epoch_time": 4.5, "samples_per_s": 200, "accuracy": 0.5}),
    ]
    assert epochs_of(rows) == (
        Epoch(1, 4.5, 200, 0.5),
        Epoch(2, 3, accuracy=0.75, loss=1.5, data_s=0.25, sync_s=0.5),
    )
    steps: list[tuple[float | None, dict[str, Any]]] = [
        (step, {"loss": 1.0, "samples_per_s": 9}) for step in range(9)
    ]
    assert len(epochs_of(steps)) == 9
    # rows without a step are counted
    steps += [(None, {"epoch_time": 2.0}), (None, {"epoch_time": 3.0})]
    assert epochs_of(steps) == (Epoch(1, 2.0), Epoch(2, 3.0))  # steps between epochs are none
    assert last_whole_number([None, 64, 128.0]) == 128
    assert last_whole_number([0, 1.5, "7", True]) is None


@pytest.mark.parametrize("value", [0, -1, float("nan"), float("inf"), True, "12"])
def test_a_time_that_is_none_makes_no_epoch_and_such_a_speed_is_left_out(value: Any) -> None:
    assert epochs_of([(1, {"epoch_time": value})]) == ()
    assert epochs_of([(1, {"epoch_time": 2.0, "samples_per_s": value})]) == (Epoch(1, 2.0),)


@pytest.mark.parametrize(
    ("samples", "weak", "remarked"),
    [(1100, False, False), (1101, False, True), (4000, False, True), (4000, True, False)],
    ids=["padding", "more than padding", "grows", "known to grow"],
)
def test_epochs_that_grow_with_the_size_are_remarked_unless_the_study_is_weak(
    samples: int, weak: bool, remarked: bool
) -> None:
    remarks = one(run(1, 10, samples=1000), run(4, 10, samples=samples), weak=weak).remarks
    assert any("add --weak" in remark for remark in remarks) == remarked
