"""Which sizes are worth their GPUs, on the tables that people argued about, and the verdicts on
them.
"""

from __future__ import annotations

import pytest

from hpcrun.features.scaling.points import Epoch, Point
from hpcrun.features.scaling.sentences import percent_text
from hpcrun.features.scaling.series import Series, build_series
from hpcrun.features.scaling.worth_its_gpus import (
    Advice,
    advise,
    pareto,
    reaches,
    steps,
    to_percent,
    verdict,
)


def study(*speedups: tuple[int, float]) -> Series:
    (series,) = build_series([Point(n, epochs=(Epoch(1, time_s=3600 / s),)) for n, s in speedups])
    return series


def advice(series: Series, least: float = 0.7) -> Advice:
    found = advise(series, least)
    assert found
    return found


@pytest.mark.parametrize(
    ("speedup", "word"),
    [
        (3.4, "good"),
        (3.1, "good"),
        (3.08, "diminishing returns"),
        (2.79, "diminishing returns"),
        (2.77, "poor"),
        (1, "poor"),
        (0.999, "poor"),
        (0.99, "negative scaling"),
    ],
)
def test_verdicts_have_one_target_for_all_gpus_and_for_the_added_ones(
    speedup: float, word: str
) -> None:
    series = study((1, 1), (4, speedup))
    found = advice(series)
    assert [verdict(row, series, found) for row in series.rows] == ["baseline", word]
    assert [verdict(row, series, None) for row in series.rows] == ["baseline", "no verdict"]
    assert (found.value.gpus == 4) == (word == "good")


def test_only_the_smallest_size_is_the_baseline_not_its_gpus_on_more_nodes() -> None:
    times_s = {(4, 1): 1000, (4, 2): 1250, (8, 2): 550}
    points = [
        Point(gpus, nodes, epochs=(Epoch(1, time_s=time_s),))
        for (gpus, nodes), time_s in times_s.items()
    ]
    (series,) = build_series(points)
    verdicts = [verdict(row, series, advice(series)) for row in series.rows]
    assert verdicts == ["baseline", "negative scaling", "good"]
    verdicts = [verdict(row, series, None) for row in series.rows]
    assert verdicts == ["baseline", "no verdict", "no verdict"]


def test_another_target_changes_advice_and_verdicts_alike() -> None:
    series, words = study((1, 1), (4, 2.6)), {0.5: "good", 0.6: "diminishing returns", 0.66: "poor"}
    assert {
        target: verdict(series.rows[1], series, advice(series, target)) for target in words
    } == words


def test_a_size_to_request_is_never_poor() -> None:
    for series in (study((1, 1), (64, 57.4)), study((1, 1), (64, 63.9))):
        found = advice(series, 0.9)
        assert found.value.gpus == 64
        assert verdict(series.rows[1], series, found) == "good"


def test_doubtful_sizes_carry_no_advice() -> None:
    series = study((1, 1), (2, 1.9), (4, 9))
    found = advise(series, 0.7, frozenset({4}))
    assert found
    assert found.value.gpus == 2
    assert found.fastest.gpus == 2
    assert found.next_step is None
    assert [verdict(row, series, found) for row in series.rows] == [
        "baseline",
        "good",
        "no verdict",
    ]
    assert advise(series, 0.7, frozenset({1})) is None
    assert advise(series, 0.7, frozenset({2, 4})) is None


def test_one_size_no_size_and_the_sizes_that_no_other_beats() -> None:
    lone = study((4, 1))
    assert advise(lone) is None
    assert verdict(lone.rows[0], lone, None) == ""
    (empty,) = build_series([Point(1, state="FAILED")])
    assert advise(empty) is None
    #    GPU-hours 1, 1.33, 1.25 and 4; the second is beaten by the third
    series = study((1, 1), (2, 1.5), (4, 3.2), (8, 2))
    assert [row.gpus for row in pareto(series.rows)] == [4, 1]


def largest(*speedups: tuple[int, float], target: float = 0.65) -> int:
    return max(
        (step.gpus for step in steps(speedups, target) if step.taken), default=speedups[0][0]
    )


def test_which_added_gpus_are_worth_it() -> None:
    assert largest((1, 1), (4, 3.0)) == 4  # "2.8-3.2x (75-80% efficiency)"
    assert largest((1, 1), (2, 1.75), (4, 3.0)) == 2  # here the last two bring 63 %
    assert largest((1, 1), (4, 2.8)) == 1
    table = ((1, 1), (2, 12 / 6.5), (4, 12 / 3.5), (8, 6.0))
    assert largest(*table) == 4  # as the authors of the table say
    assert [step.added for step in steps(table)] == pytest.approx([0.846, 0.791, 0.643], abs=1e-3)
    assert largest(*table, target=0.6) == 8
    assert largest(*table, target=0.8) == 2
    # a small miss hides no larger gain
    assert largest((1, 1), (2, 1.68), (4, 3.26), (8, 6.11), target=0.7) == 8
    second = steps(((1, 1), (2, 1.6), (4, 3.26), (8, 6.11)))[1]
    assert second.before == 1
    assert second.gpus == 4
    assert second.taken is True
    assert largest((1, 1), (2, 1.865), target=0.87) == 2  # 86.5 % is shown as 87 %
    assert steps([(4, 1.0)]) == ()
    assert steps([]) == ()


def test_an_efficiency_reaches_the_target_if_it_is_shown_as_the_target() -> None:
    assert reaches(0.645, 0.65)
    assert not reaches(0.6449, 0.65)


@pytest.mark.parametrize(
    ("share", "percent"),
    [(0.285, 29), (0.575, 58), (0.2849, 28), (0.125, 13), (-0.005, 0), (-0.545, -54), (1.0, 100)],
)
def test_a_half_per_cent_is_rounded_up_though_its_binary_fraction_is_smaller(
    share: float, percent: int
) -> None:
    assert to_percent(share) == percent


@pytest.mark.parametrize(
    ("share", "text"), [(0.8725, "87.3 %"), (0.5005, "50.1 %"), (0.50049, "50.0 %")]
)
def test_half_a_tenth_of_a_per_cent_is_rounded_up(share: float, text: str) -> None:
    assert percent_text(share) == text
