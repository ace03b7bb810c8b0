"""How a job continues: what was asked for, else the profile's, and its warning."""

from __future__ import annotations

from typing import Any

import pytest

from hpcrun.errors import UsageError
from hpcrun.job.resources.requeue import Requeue, check_warning, decide_requeue
from tests.unit.builders import plan, request, slurm_profile


@pytest.mark.parametrize(
    ("asked", "of_profile", "requeue"),
    [
        ({}, {}, None),
        ({"requeue": 3}, {"warn": "5m"}, Requeue(3, 300)),
        ({"requeue": 3, "warn_s": "90s"}, {"warn": "5m"}, Requeue(3, 90)),
        ({}, {"times": 2}, Requeue(2, 120)),
        ({"requeue": 5}, {"times": 2}, Requeue(5, 120)),
        ({"requeue": 0}, {"times": 2}, None),
        ({"warn_s": "2m"}, {}, Requeue(0, 120)),  # it is only warned
    ],
)
def test_an_option_decides_the_requeue_else_the_profile(
    asked: dict[str, Any], of_profile: dict[str, Any], requeue: Requeue | None
) -> None:
    assert decide_requeue(request(**asked), slurm_profile(requeue=of_profile)) == requeue


@pytest.mark.parametrize(
    ("warn_s", "grace_s"), [(6, 4), (30, 20), (59, 40), (60, 40), (120, 100), (600, 580)]
)
def test_of_the_warning_a_part_is_kept_for_starting_again(warn_s: int, grace_s: int) -> None:
    assert Requeue(1, warn_s).grace_s == grace_s


def test_a_warning_must_not_come_before_the_ranks_listen() -> None:
    check_warning(Requeue(1, 60), 121)
    check_warning(Requeue(1, 10_000), None)
    for seconds in (60, 120):
        with pytest.raises(UsageError, match=f"a signal {seconds} s before the end"):
            check_warning(Requeue(1, seconds), 120)
    with pytest.raises(UsageError) as caught:
        plan(requeue="1", warn_s="5m", walltime_s="5m")
    assert "--time 00:07:00" in (caught.value.hint or "")
    assert plan(requeue="1", warn_s="5m", walltime_s="7m").requeue == Requeue(1, 300)
