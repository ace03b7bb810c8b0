"""The filter of runs: which words a run has."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hpcrun.actions.status.run_filter import filter_words, matches, matching_runs
from hpcrun.actions.status.run_status import ElementStatus, RunStatus
from hpcrun.runs.record import LastStatus
from tests.unit.builders import run

REQUEST = {"script": "train.py", "args": ["--lr", "0.1"], "env": [["AUG", "1"]]}
FAILED = LastStatus("FAILED", 1000.0, final=True, cause="KeyError: 'recall'")
COMPLETED = LastStatus("COMPLETED", 1000.0, final=True)


def item(status: LastStatus = COMPLETED, **fields: Any) -> RunStatus:
    record = run("20260102-030405-fit-0a1b", request=REQUEST, note="#paper Baseline", **fields)
    return RunStatus(record, Path("/runs/fit"), status)


def sweep(*statuses: LastStatus) -> RunStatus:
    elements = [
        ElementStatus(index, f"7_{index}", (("seed", f"s{index}"),), status)
        for index, status in enumerate(statuses)
    ]
    return replace(item(FAILED), elements=tuple(elements))


@pytest.mark.parametrize(
    ("words", "is_match"),
    [
        ("", True),
        ("fit", True),
        ("train.py", True),
        ("--lr 0.1", True),
        ("lr=0.1", True),
        ("0.2", False),
        ("#paper", True),
        ("BASELINE", True),
        ("paper !failed", True),
        ("paper !completed", False),
        ("paper final", False),
        ("4711", True),
        ("aug=1", True),
        ("aug=2", False),
        ("!", False),
    ],
)
def test_a_run_has_the_words_of_its_name_command_note_and_state(words: str, is_match: bool) -> None:
    assert matches(item(), filter_words(words)) is is_match


def test_a_run_without_a_command_or_a_note_has_its_other_words() -> None:
    bare = RunStatus(run(), Path("/runs/bare"), FAILED)
    assert matches(bare, ["recall"])
    assert not matches(bare, ["train.py"])


@pytest.mark.parametrize(
    ("words", "kept"), [("s1", [1]), ("!failed", [0, 2]), ("paper", [0, 1, 2]), ("s3", [])]
)
def test_a_sweep_has_only_the_elements_that_match(words: str, kept: Sequence[int]) -> None:
    runs = matching_runs([sweep(COMPLETED, FAILED, COMPLETED)], filter_words(words))
    assert [element.index for each in runs for element in each.elements] == kept
    assert bool(runs) == matches(sweep(COMPLETED, FAILED, COMPLETED), filter_words(words))
