"""What becomes of an interrupted job, and when it is warned."""

from __future__ import annotations

from typing import Any

import pytest

from hpcrun.errors import UsageError
from hpcrun.job.requeue import Requeue, check_warning, decide_requeue
from tests.unit.given import cluster, plan, request


def decide(asked: dict[str, Any], **profile: Any) -> Requeue | None:
    return decide_requeue(request(**asked), cluster(**profile))


def test_where_nothing_was_said_nothing_is_done() -> None:
    assert decide({}) is None


def test_requeue_has_the_profiles_warning() -> None:
    assert decide({"requeue": 3}) == Requeue(3, 120)
    assert decide({"requeue": 3}, requeue={"warn": "5m"}) == Requeue(3, 300)
    assert decide({"requeue": 3, "warn_s": "90s"}, requeue={"warn": "5m"}) == Requeue(3, 90)


def test_a_profile_may_say_how_often_and_an_option_says_otherwise() -> None:
    assert decide({}, requeue={"times": 2}) == Requeue(2, 120)
    assert decide({"requeue": 5}, requeue={"times": 2}) == Requeue(5, 120)
    assert decide({"requeue": 0}, requeue={"times": 2}) is None


def test_a_job_may_be_warned_only() -> None:
    assert decide({"warn_s": "2m"}) == Requeue(0, 120)


@pytest.mark.parametrize(
    ("asked", "option"),
    [
        ({"retry_on_failure": True}, "--retry-on-failure"),
        ({"exclude_bad_nodes": True}, "--exclude-bad-nodes"),
        ({"retry_on_failure": True, "warn_s": "2m"}, "--retry-on-failure"),
    ],
)
def test_an_option_that_says_nothing_without_requeue_is_refused(asked: dict[str, Any], option: str) -> None:
    with pytest.raises(UsageError, match=option) as caught:
        decide(asked)
    assert "--requeue N" in (caught.value.hint or "")


@pytest.mark.parametrize(("warn_s", "grace_s"), [(6, 4), (30, 20), (59, 40), (60, 40), (120, 100), (600, 580)])
def test_of_the_warning_a_part_is_kept_for_starting_again(warn_s: int, grace_s: int) -> None:
    assert Requeue(1, warn_s).grace_s == grace_s


@pytest.mark.parametrize(("warn_s", "walltime_s", "fits"), [(60, 121, True), (60, 120, False), (300, 300, False)])
def test_a_warning_must_not_come_before_the_ranks_listen(warn_s: int, walltime_s: int, fits: bool) -> None:
    if fits:
        check_warning(Requeue(1, warn_s), walltime_s)
        return
    with pytest.raises(UsageError, match=f"a signal {warn_s} s before the end"):
        check_warning(Requeue(1, warn_s), walltime_s)


def test_the_hint_names_a_time_that_fits() -> None:
    with pytest.raises(UsageError) as caught:
        plan(requeue="1", warn_s="5m", walltime_s="5m")
    assert "--time 00:07:00" in (caught.value.hint or "")
    with pytest.raises(UsageError, match="'45' has no unit; write 45m for minutes, or 45s"):
        plan(requeue="1", warn_s="45", walltime_s="2m")
    assert plan(requeue="1", warn_s="5m", walltime_s="7m").requeue == Requeue(1, 300)


def test_without_a_time_limit_every_warning_fits() -> None:
    check_warning(Requeue(1, 10_000), None)
    check_warning(None, 60)
