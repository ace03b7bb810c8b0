"""The model of a step, and how good its forecasts are: the back-test against published tables; the
serial fraction.
"""

from __future__ import annotations

import math
import runpy
from collections.abc import Callable, Sequence
from functools import cache
from statistics import median
from typing import Any

import pytest

from hpcrun.features.scaling.forecast import (
    JobSize,
    MeasuredEpoch,
    MeasuredTraining,
    fit_steps,
    forecast,
)
from hpcrun.features.scaling.points import Epoch, Point
from hpcrun.features.scaling.series import build_series
from hpcrun.features.scaling.step_model import (
    TYPICAL_LOSS,
    Outlook,
    StepModel,
    StepSize,
    TimedStep,
    fixed_share,
    outlook,
)
from tests.harness import REPO

FIRST = TimedStep(StepSize(1, 1, 64), 0.1)


@pytest.fixture(scope="module")
def backtest() -> dict[str, Any]:
    names = runpy.run_path(str(REPO / "benchmarks" / "backtest.py"))
    return {**names, "all_points": cache(names["all_points"])}


@pytest.mark.parametrize(
    ("given", "error", "ninth", "inside"),
    [(1, 0.10, 0.65, 0.79), (2, 0.09, 0.40, 0.80), (3, 0.09, 0.40, 0.80)],
)
def test_published_trainings_are_forecast_from_their_first_sizes(
    backtest: dict[str, Any], given: int, error: float, ninth: float, inside: float
) -> None:
    points = backtest["all_points"](given)
    errors = sorted(point.error for point in points)
    assert median(errors) < error
    assert errors[len(errors) * 9 // 10] < ninth
    assert sum(point.inside for point in points) / len(points) > inside


def test_every_table_of_the_back_test_names_its_source(backtest: dict[str, Any]) -> None:
    tables = backtest["load_tables"]()
    published = {
        table["source"].split(",")[0] for table in tables if "." in table["source"].split("/")[0]
    }
    assert len(published) >= 8
    assert len({table["name"] for table in tables}) == len(tables)
    for table in tables:
        assert all(gpus % nodes == 0 and value > 0 for gpus, nodes, _, value in table["points"])


def test_the_back_test_in_the_guide_is_that_of_today(
    backtest: dict[str, Any], subtests: pytest.Subtests
) -> None:
    guide = (REPO / "docs" / "scaling-plan.md").read_text("utf-8")
    for given in (1, 2, 3):
        with subtests.test(given=given):
            assert backtest["summary"](backtest["all_points"](given)) in guide.replace("\n", " ")


def test_measurements_are_shown_and_one_alone_loses_the_typical_rate_for_each_doubling(
    subtests: pytest.Subtests,
) -> None:
    model = StepModel(
        (FIRST, TimedStep(StepSize(2, 1, 64), 0.13), TimedStep(StepSize(1, 1, 32), 0.07)), 0.2
    )
    for each in model.timed:
        assert model.step_s(each.size) == each.step_s
        assert model.range_s(each.size) == (each.step_s, each.step_s)
    model = StepModel((FIRST,), 0.0)
    assert model.step_s(StepSize(8, 1, 64)) == pytest.approx(0.1 * math.exp(3 * TYPICAL_LOSS))
    assert model.step_s(StepSize(2, 1, 32)) == pytest.approx(0.05 * math.exp(TYPICAL_LOSS))
    fastest, slowest = model.range_s(StepSize(2, 1, 64))
    assert fastest < model.step_s(StepSize(2, 1, 64)) < slowest
    assert model.range_s(StepSize(2, 2, 64))[1] > slowest  # it leaves the first node
    assert model.range_s(StepSize(8, 1, 64))[1] > slowest
    # a second size narrows the range
    two = StepModel((FIRST, TimedStep(StepSize(2, 1, 64), 0.12)), 0.0)
    one_of, two_of = (each.range_s(StepSize(8, 1, 64)) for each in (model, two))
    assert one_of[1] / one_of[0] > two_of[1] / two_of[0] > 1
    # a range between two sizes, too
    apart = StepModel((FIRST, TimedStep(StepSize(8, 1, 64), 0.12)), 0.0)
    for size in (StepSize(2, 1, 64), StepSize(4, 1, 64), StepSize(8, 2, 64)):
        with subtests.test(size=size):
            fastest, slowest = apart.range_s(size)
            assert fastest < apart.step_s(size) < slowest


def test_a_measured_rate_is_pulled_towards_the_typical_one_and_never_a_gain() -> None:
    measured = TimedStep(StepSize(2, 1, 64), 0.1 * math.exp(0.3))
    assert StepModel((FIRST, measured), 0.0).rate == pytest.approx(0.3 / 2 + TYPICAL_LOSS / 2)
    assert StepModel((FIRST, TimedStep(StepSize(4, 1, 64), 0.05)), 0.0).rate == 0
    assert StepModel((FIRST, TimedStep(StepSize(4, 1, 64), 0.2)), 0.0).loss(
        StepSize(2, 1, 64)
    ) == pytest.approx(math.log(2) / 2)
    timed = (
        FIRST,
        *(
            TimedStep(StepSize(gpus, 1, 64), 0.1 * math.exp(loss))
            for gpus, loss in ((2, 0.1), (16, 0.4))
        ),
    )
    assert StepModel(timed, 0.0).loss(StepSize(4, 1, 64)) == pytest.approx(0.2)


def test_two_batches_on_the_same_gpus_say_what_does_not_shrink() -> None:
    half = TimedStep(StepSize(1, 1, 32), 0.07)
    assert fixed_share([FIRST, half], half_batch=1000) == pytest.approx(0.4)
    assert StepModel((FIRST, half), 0.4).half_batch() == pytest.approx(64 * 0.4 / 0.6)
    assert fixed_share([FIRST, TimedStep(StepSize(1, 1, 32), 0.1)], half_batch=0) == 0.99
    assert fixed_share([FIRST], half_batch=64) == pytest.approx((8e-3 + 0.092 / 2) / 0.1)
    assert fixed_share([FIRST], half_batch=64, most_s=0.02) == pytest.approx(0.28)
    # what two sizes lost says more than a data sheet
    two = TimedStep(StepSize(2, 1, 64), 0.1)
    assert fixed_share([FIRST, two], half_batch=64) == pytest.approx(0.08)


def test_report_and_plan_forecast_the_same_from_the_same_numbers() -> None:
    times_s = {1: 100.0, 2: 55.0, 4: 31.0}
    points = [
        Point(gpus, epochs=(Epoch(1, time_s=time_s),), batch_size=256, samples=25_600)
        for gpus, time_s in times_s.items()
    ]
    (series,) = build_series(points)
    also = tuple(MeasuredEpoch(gpus, 256, times_s[gpus], 1) for gpus in (2, 4))
    work = MeasuredTraining(25_600, 256, times_s[1], nodes=1, also=also)
    steps = fit_steps(work, 295.0, [1, 1, 1])
    sizes = [JobSize(1, 1), JobSize(8, 1), JobSize(16, 1)]
    _, *planned = forecast(work, ["fixed"], sizes, steps)
    predicted = outlook(series).predictions
    assert [row.speedup for row in planned] == pytest.approx([each.speedup for each in predicted])
    assert [row.speedup_low for row in planned] == pytest.approx([each.low for each in predicted])


def outlook_of(
    time_s: Callable[[int], float], sizes: Sequence[int] = (1, 2, 4, 8), *, weak: bool = False
) -> Outlook:
    (series,) = build_series(
        [Point(n, epochs=(Epoch(1, time_s=time_s(n)),)) for n in sizes], weak=weak
    )
    return outlook(series)


@pytest.mark.parametrize("sizes", [(1, 2, 4, 8), (4, 8, 16), (1, 4)])
def test_amdahl_is_measured_at_every_size_and_from_every_baseline(sizes: tuple[int, ...]) -> None:
    found = outlook_of(lambda n: 10 + 90 / n, sizes)
    assert [found.serial, *found.serial_range] == pytest.approx([0.1, 0.1, 0.1])
    assert found.with_more_work == pytest.approx(sizes[-1] - 0.1 * (sizes[-1] - 1))
    assert not found.grows


def test_gustafson_is_measured_in_a_weak_study() -> None:
    # S(N) = N − s(N−1), and the time of an epoch whose work grows with N is N/S(N)
    for sizes in ((1, 2, 4, 8), (2, 8)):
        assert outlook_of(
            lambda n: n / (n - 0.2 * (n - 1)), sizes, weak=True
        ).serial == pytest.approx(0.2)


def test_a_fraction_that_grows_is_the_cost_of_more_and_fractions_stay_between_none_and_all() -> (
    None
):
    assert outlook_of(lambda n: 5 + 95 / n + 3 * (n - 1)).grows
    # one size shows no growth
    assert not outlook_of(lambda n: 5 + 95 / n + 3 * (n - 1), (1, 8)).grows
    assert [
        outlook_of(time).serial for time in (lambda n: 100 / n**1.1, lambda n: 100 * n**0.05)
    ] == [0, 1]
    slower: tuple[dict[int, float], ...] = (
        {2: 128, 4: 192},
        {2: 128, 8: 224},
        {2: 100, 4: 200},
        {2: 100, 4: 90, 8: 300},
    )
    assert [outlook_of(times.__getitem__, tuple(times)).serial for times in slower] == [1, 1, 1, 1]
    assert outlook_of(lambda n: 1 + (32 - n) / 992, (32, 64), weak=True).serial == 0


def test_the_next_sizes_lose_what_the_measured_doublings_lost_on_the_scale_of_the_baseline() -> (
    None
):
    found = outlook_of(lambda n: 100 / n**0.9, (1, 2, 4, 8, 16, 32, 64))
    near, far = found.predictions
    assert near.gpus == 128
    assert far.gpus == 256
    assert near.speedup == pytest.approx(64**0.9 * 2**0.9, rel=0.01)
    assert near.efficiency == pytest.approx(near.speedup / 128)
    assert near.low < near.speedup < near.high
    assert far.high / far.low > near.high / near.low
    prediction = outlook_of(lambda n: 100 / n, (4, 8)).predictions[0]
    assert prediction.gpus == 16
    assert prediction.speedup / prediction.efficiency == pytest.approx(4)
