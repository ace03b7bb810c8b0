"""The model of a step, and how good its forecasts are: the back-test against published tables."""

from __future__ import annotations

import math
import runpy
from functools import cache
from statistics import median
from typing import Any

import pytest

from hpcrun.features.scaling.step_model import TYPICAL_LOSS, StepModel, StepSize, TimedStep, fixed_share
from tests.harness import REPO

FIRST = TimedStep(StepSize(1, 1, 64), 0.1)


@pytest.fixture(scope="module")
def backtest() -> dict[str, Any]:
    names = runpy.run_path(str(REPO / "benchmarks" / "backtest.py"))
    return {**names, "all_points": cache(names["all_points"])}


@pytest.mark.parametrize(("given", "error", "inside"), [(1, 0.12, 0.75), (2, 0.10, 0.70), (3, 0.11, 0.70)])
def test_published_tables_are_forecast_from_their_first_points(
    backtest: dict[str, Any], given: int, error: float, inside: float
) -> None:
    points = backtest["all_points"](given)
    assert median(point.error for point in points) < error
    assert sum(point.inside for point in points) / len(points) > inside


def test_every_table_of_the_back_test_names_its_source(backtest: dict[str, Any]) -> None:
    tables = backtest["load_tables"]()
    published = {table["source"].split(",")[0] for table in tables if "." in table["source"].split("/")[0]}
    assert len(published) >= 8
    assert len({table["name"] for table in tables}) == len(tables)
    for table in tables:
        assert all(gpus % nodes == 0 and value > 0 for gpus, nodes, _, value in table["points"])


def test_the_back_test_in_the_guide_is_that_of_today(backtest: dict[str, Any]) -> None:
    guide = (REPO / "docs" / "scaling-plan.md").read_text("utf-8")
    for given in (1, 2, 3):
        assert backtest["summary"](backtest["all_points"](given)) in guide.replace("\n", " ")


def test_what_was_measured_is_shown_as_it_was_measured() -> None:
    model = StepModel((FIRST, TimedStep(StepSize(2, 1, 64), 0.13), TimedStep(StepSize(1, 1, 32), 0.07)), 0.2)
    for each in model.timed:
        assert model.step_s(each.size) == each.step_s
        assert model.range_s(each.size) == (each.step_s, each.step_s)


def test_one_measurement_loses_the_typical_rate_for_each_doubling() -> None:
    model = StepModel((FIRST,), 0.0)
    assert model.step_s(StepSize(8, 1, 64)) == pytest.approx(0.1 * math.exp(3 * TYPICAL_LOSS))
    assert model.step_s(StepSize(2, 1, 32)) == pytest.approx(0.05 * math.exp(TYPICAL_LOSS))
    fastest, slowest = model.range_s(StepSize(2, 1, 64))
    assert fastest < model.step_s(StepSize(2, 1, 64)) < slowest
    assert model.range_s(StepSize(2, 2, 64))[1] > slowest  # it leaves the first node
    assert model.range_s(StepSize(8, 1, 64))[1] > slowest


def test_a_second_size_narrows_the_range() -> None:
    two = StepModel((FIRST, TimedStep(StepSize(2, 1, 64), 0.12)), 0.0)
    ranges = [model.range_s(StepSize(8, 1, 64)) for model in (StepModel((FIRST,), 0.0), two)]
    assert ranges[0][1] / ranges[0][0] > ranges[1][1] / ranges[1][0] > 1


def test_a_measured_rate_is_pulled_towards_the_typical_one_and_never_a_gain() -> None:
    measured = TimedStep(StepSize(2, 1, 64), 0.1 * math.exp(0.3))
    assert StepModel((FIRST, measured), 0.0).rate == pytest.approx(0.3 / 3 + TYPICAL_LOSS * 2 / 3)
    assert StepModel((FIRST, TimedStep(StepSize(4, 1, 64), 0.05)), 0.0).rate == 0
    assert StepModel((FIRST, TimedStep(StepSize(4, 1, 64), 0.2)), 0.0).loss(StepSize(2, 1, 64)) == pytest.approx(
        math.log(2) / 2
    )


def test_two_batches_on_the_same_gpus_say_what_does_not_shrink() -> None:
    half = TimedStep(StepSize(1, 1, 32), 0.07)
    assert fixed_share([FIRST, half], half_batch=1000) == pytest.approx(0.4)
    assert StepModel((FIRST, half), 0.4).half_batch() == pytest.approx(64 * 0.4 / 0.6)
    assert fixed_share([FIRST, TimedStep(StepSize(1, 1, 32), 0.1)], half_batch=0) == 0.99
    assert fixed_share([FIRST], half_batch=64) == pytest.approx((3e-3 + 0.097 / 2) / 0.1)
