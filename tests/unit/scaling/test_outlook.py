"""The serial fraction of series that follow a law, and the forecasts of the next sizes."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from hpcrun.features.scaling.points import Epoch, Point
from hpcrun.features.scaling.series import build_series
from hpcrun.features.scaling.step_model import Outlook, outlook


def outlook_of(time_s: Callable[[int], float], sizes: Sequence[int] = (1, 2, 4, 8), *, weak: bool = False) -> Outlook:
    (series,) = build_series([Point(n, epochs=(Epoch(1, time_s=time_s(n)),)) for n in sizes], weak=weak)
    return outlook(series)


@pytest.mark.parametrize("sizes", [(1, 2, 4, 8), (4, 8, 16), (1, 4)])
def test_amdahl_is_measured_at_every_size_and_from_every_baseline(sizes: tuple[int, ...]) -> None:
    found = outlook_of(lambda n: 10 + 90 / n, sizes)
    assert [found.serial, *found.serial_range] == pytest.approx([0.1, 0.1, 0.1])
    assert found.with_more_work == pytest.approx(sizes[-1] - 0.1 * (sizes[-1] - 1))
    assert not found.grows


@pytest.mark.parametrize("sizes", [(1, 2, 4, 8), (2, 8)])
def test_gustafson_is_measured_in_a_weak_study(sizes: tuple[int, ...]) -> None:
    # S(N) = N − s(N−1), and the time of an epoch whose work grows with N is N/S(N)
    assert outlook_of(lambda n: n / (n - 0.2 * (n - 1)), sizes, weak=True).serial == pytest.approx(0.2)


def test_a_fraction_that_grows_is_the_cost_of_more() -> None:
    assert outlook_of(lambda n: 5 + 95 / n + 3 * (n - 1)).grows
    assert not outlook_of(lambda n: 5 + 95 / n + 3 * (n - 1), (1, 8)).grows  # one size shows no growth


def test_fractions_stay_between_none_and_all() -> None:
    assert outlook_of(lambda n: 100 / n**1.1).serial == 0
    assert outlook_of(lambda n: 100 * n**0.05).serial == 1


def test_the_next_sizes_lose_what_the_measured_doublings_lost() -> None:
    found = outlook_of(lambda n: 100 / n**0.9, (1, 2, 4, 8, 16, 32, 64))
    near, far = found.predictions
    assert (near.gpus, far.gpus) == (128, 256)
    assert near.speedup == pytest.approx(64**0.9 * 2**0.9, rel=0.01)
    assert near.efficiency == pytest.approx(near.speedup / 128)
    assert near.low < near.speedup < near.high
    assert far.high / far.low > near.high / near.low


def test_a_baseline_of_several_gpus_keeps_its_scale() -> None:
    prediction = outlook_of(lambda n: 100 / n, (4, 8)).predictions[0]
    assert prediction.gpus == 16
    assert prediction.speedup / prediction.efficiency == pytest.approx(4)
