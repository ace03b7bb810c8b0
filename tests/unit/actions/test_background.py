"""Calls in the background: the answer, or None first where it is late."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from hpcrun.actions.status.wait import answers_of
from hpcrun.errors import SchedulerError


def failing() -> int:
    raise SchedulerError("away")


@pytest.mark.parametrize(("ask", "raises"), [(lambda: 7, False), (failing, True)])
def test_a_quick_answer_is_just_the_answer(ask: Callable[[], int], raises: bool) -> None:
    answers = answers_of(ask, 20)
    if raises:
        with pytest.raises(SchedulerError, match="away"):
            next(answers)
    else:
        assert list(answers) == [7]


def test_before_a_late_answer_comes_none() -> None:
    may_answer = threading.Event()
    answers = answers_of(may_answer.wait, 0.01)
    assert next(answers) is None
    may_answer.set()
    assert list(answers) == [True]
