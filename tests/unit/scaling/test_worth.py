"""Which sizes are worth their GPUs: the one definition, on the tables that people argued about."""

from __future__ import annotations

import pytest

from hpcrun.features.scaling.verdict import steps


def largest(*speedups: tuple[int, float], target: float = 0.65) -> int:
    return max((step.gpus for step in steps(speedups, target) if step.taken), default=speedups[0][0])


def test_a_team_s_goal_is_worth_it() -> None:
    assert largest((1, 1), (4, 3.0)) == 4  # "2.8-3.2x (75-80% efficiency)"
    assert largest((1, 1), (2, 1.75), (4, 3.0)) == 2  # here the last two bring 63 %
    assert largest((1, 1), (4, 2.8)) == 1


def test_diminishing_returns_as_the_authors_of_the_table_call_them() -> None:
    table = ((1, 1), (2, 12 / 6.5), (4, 12 / 3.5), (8, 6.0))
    assert largest(*table) == 4
    assert [step.added for step in steps(table)] == pytest.approx([0.846, 0.791, 0.643], abs=1e-3)
    assert largest(*table, target=0.6) == 8
    assert largest(*table, target=0.8) == 2


def test_a_small_miss_at_a_small_size_does_not_hide_a_gain_at_a_larger_one() -> None:
    assert largest((1, 1), (2, 1.68), (4, 3.26), (8, 6.11), target=0.7) == 8
    second = steps(((1, 1), (2, 1.6), (4, 3.26), (8, 6.11)))[1]
    assert (second.before, second.gpus, second.taken) == (1, 4, True)


def test_a_size_alone_and_none() -> None:
    assert steps([(4, 1.0)]) == ()
    assert steps([]) == ()
