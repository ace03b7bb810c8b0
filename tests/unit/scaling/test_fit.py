"""The laws: what they find in numbers that follow them, and what they say where they cannot know."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

import pytest

from hpcrun.scaling.fit import Estimate, Fit, best_fit, fit_series, scaled_speedup
from hpcrun.scaling.points import Epoch, Point
from hpcrun.scaling.series import build_series

SIZES = (1, 2, 4, 8, 16)


def fits(
    time_s: Callable[[int], float], sizes: Sequence[int] = SIZES, *, weak: bool = False, repeats: int = 1
) -> dict[str, Fit]:
    points = [Point(n, repeat=r, epochs=(Epoch(1, time_s=time_s(n)),)) for n in sizes for r in range(repeats)]
    (series,) = build_series(points, weak=weak)
    return {fit.law: fit for fit in fit_series(series)}


def test_amdahl_finds_the_serial_fraction() -> None:
    found = fits(lambda n: 10 + 90 / n)["amdahl"]
    assert found.serial
    assert found.serial.value == pytest.approx(0.1)
    assert found.error == pytest.approx(0, abs=1e-9)
    assert [each.gpus for each in found.predictions] == [32, 64]
    assert [each.speedup.value for each in found.predictions] == pytest.approx(
        [1 / (0.1 + 0.9 / 32), 1 / (0.1 + 0.9 / 64)]
    )
    assert found.predictions[0].efficiency.value == pytest.approx(1 / (0.1 + 0.9 / 32) / 32)


def test_a_larger_baseline_changes_no_fraction() -> None:
    found = fits(lambda n: 10 + 90 / n, (4, 8, 16))["amdahl"]
    assert found.serial
    assert found.serial.value == pytest.approx(0.1)


def test_gustafson_finds_the_serial_fraction_of_a_weak_study() -> None:
    # S(N) = N − s(N−1), and the time of an epoch whose work grows with N is N/S(N)
    found = fits(lambda n: n / (n - 0.2 * (n - 1)), weak=True)
    assert set(found) == {"gustafson", "communication"}
    serial = found["gustafson"].serial
    assert serial
    assert serial.value == pytest.approx(0.2)
    assert found["gustafson"].predictions[0].speedup.value == pytest.approx(32 - 0.2 * 31)
    assert best_fit([*found.values()]) is found["gustafson"]
    assert best_fit([]) is None


def test_gustafson_says_of_a_strong_study_what_more_work_would_reach() -> None:
    assert scaled_speedup(Estimate(0.25, 0.125, 0.5), 9) == Estimate(7, 5, 8)
    assert scaled_speedup(Estimate(0.1), 11).low is None


def test_communication_finds_both_its_terms_and_the_peak() -> None:
    found = fits(lambda n: 5 + 95 / n + 0.5 * (n - 1))
    full = found["communication"]
    assert full.serial
    assert full.communication
    assert full.serial.value == pytest.approx(0.05)
    assert full.communication.value == pytest.approx(0.005)
    assert full.peak == round((95 / 0.5) ** 0.5)
    assert full.predictions[1].speedup.value < full.predictions[0].speedup.value
    assert best_fit([found["amdahl"], full]) is full


def test_communication_of_a_weak_study() -> None:
    found = fits(lambda n: 10 + 0.1 * (n - 1), weak=True)
    cost = found["communication"].communication
    assert cost
    assert cost.value == pytest.approx(0.01)
    assert best_fit([*found.values()]) is found["communication"]


def test_without_communication_the_simple_law_predicts() -> None:
    found = fits(lambda n: (10 + 90 / n) * (1.02 if n in (2, 8) else 1))
    assert best_fit([*found.values()]) is found["amdahl"]


def test_two_sizes_give_numbers_and_no_interval() -> None:
    found = fits(lambda n: 10 + 90 / n, (1, 4))
    assert set(found) == {"amdahl"}
    (serial, prediction) = found["amdahl"].serial, found["amdahl"].predictions[0]
    assert serial
    assert (serial.low, serial.high, prediction.speedup.low) == (None, None, None)
    assert serial.value == pytest.approx(0.1)
    assert fits(lambda n: 1.0, (1,)) == {}


def test_a_law_with_as_many_terms_as_sizes_has_an_interval_only_from_repeats() -> None:
    noise = random.Random(4)
    alone = fits(lambda n: 10 + 90 / n + n, (1, 2, 4))["communication"]
    again = fits(lambda n: (10 + 90 / n + n) * noise.gauss(1, 0.02), (1, 2, 4), repeats=4)["communication"]
    assert alone.serial
    assert again.serial
    assert alone.serial.low is None
    assert again.serial.low is not None


def test_slower_with_more_gpus_is_no_amdahl() -> None:
    found = fits(lambda n: 10.0 * n, (1, 2, 4))
    assert not found["amdahl"].describes
    assert found["communication"].describes


def test_fractions_stay_between_none_and_all() -> None:
    faster_than_ideal = fits(lambda n: 100 / n**1.1)["amdahl"].serial
    slower = fits(lambda n: 100 * n**0.05)["amdahl"].serial
    for serial, value in ((faster_than_ideal, 0), (slower, 1)):
        assert serial
        assert serial.low is not None
        assert serial.high is not None
        assert serial.value == pytest.approx(value)
        assert 0 <= serial.low <= serial.value <= serial.high <= 1 + 1e-9


def test_the_interval_holds_the_truth_as_often_as_it_says() -> None:
    noise, within, studies = random.Random(1), 0, 150
    for _ in range(studies):
        serial = fits(lambda n: (10 + 90 / n) * noise.gauss(1, 0.03), (1, 2, 4, 8))["amdahl"].serial
        assert serial
        assert serial.low is not None
        assert serial.high is not None
        within += serial.low <= 0.1 <= serial.high
    # of 150 with 95 % each, fewer than 133 are once in three thousand
    assert 133 <= within < studies


def test_the_same_numbers_give_the_same_interval() -> None:
    assert fits(lambda n: 10 + 90 / n + n % 3) == fits(lambda n: 10 + 90 / n + n % 3)
