"""Which element of a sweep is looked into, and what it looks like as a run of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from hpcrun.actions.runs.allocation import one_element
from hpcrun.actions.status.elements import ElementStatus
from hpcrun.actions.status.status import RunStatus
from hpcrun.errors import UsageError
from hpcrun.runs.record import LastStatus
from tests.unit.given import run


def sweep(*states: str) -> RunStatus:
    elements = tuple(
        ElementStatus(index, f"4711_{index}", (("n", str(index)),), LastStatus(state, 1.0, state == "COMPLETED"))
        for index, state in enumerate(states)
    )
    return RunStatus(run(), Path("/r"), LastStatus("RUNNING", 1.0), elements=elements)


def test_the_only_element_that_runs_is_meant_and_that_is_said() -> None:
    found, said = one_element(sweep("COMPLETED", "PENDING", "RUNNING", "FAILED"), None)
    assert (found.run.name, found.run.job_id, found.element) == ("train/2", "4711_2", 2)
    assert said == "train is a sweep; showing element 2"


def test_where_several_run_one_must_be_named() -> None:
    item = sweep("RUNNING", "COMPLETED", "RUNNING")
    with pytest.raises(UsageError, match="2 of its elements run: 0,2") as refused:
        one_element(item, None)
    assert refused.value.hint == "name one: 4711/0"
    assert one_element(item, 2)[0].element == 2


def test_where_none_runs_the_sweep_itself_is_meant() -> None:
    item = sweep("COMPLETED", "PENDING")
    assert one_element(item, None) == (item, None)
