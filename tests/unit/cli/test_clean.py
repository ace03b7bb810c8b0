"""clean: which ages count, and the lines about what goes and what stays."""

from __future__ import annotations

from pathlib import Path

import pytest

from hpcrun.actions.runs.clean_runs import (
    HAS_CHECKPOINTS,
    Candidate,
    CleanLeftover,
    CleanPlan,
    DiskUsage,
)
from hpcrun.actions.status.run_status import RunStatus
from hpcrun.cli.clean import _age_s, _json, _staying_lines, _summary
from hpcrun.runs.record import LastStatus
from hpcrun.runs.store import Leftover
from tests.unit.builders import run

MIB = 1024**2


def candidate(*, size: int = 3 * MIB, checkpoints: int = 0, kept: str | None = None) -> Candidate:
    """Return a run that failed, with this size on disk."""
    item = RunStatus(run(), Path("runs/train"), LastStatus("FAILED", 500.0, final=True))
    return Candidate(item, 400.0, DiskUsage(size, checkpoints), kept)


def leftover(kept: str | None = None) -> CleanLeftover:
    """Return a folder of an interrupted submission."""
    return CleanLeftover(Leftover(Path("runs/.new-1"), "1", 300.0, kept), 0 if kept else MIB)


@pytest.mark.parametrize(
    ("older_than", "has_choice", "age_s"),
    [
        (None, False, 30 * 86400),
        (None, True, None),
        ("2h", False, 7200),
        ("2h", True, 7200),
        ("0d", False, 0),
        (" 00h ", True, 0),
    ],
)
def test_the_default_age_counts_without_another_choice(
    older_than: str | None, has_choice: bool, age_s: int | None
) -> None:
    assert _age_s(older_than, has_choice=has_choice) == age_s


def test_runs_with_checkpoints_stay_in_one_line_behind_the_other_reasons() -> None:
    with_checkpoints = candidate(checkpoints=2 * MIB, kept=HAS_CHECKPOINTS)
    staying = (with_checkpoints, candidate(kept="it still runs"), with_checkpoints)
    plan = CleanPlan((), staying, (leftover("not yours"), leftover()))
    assert list(_staying_lines(plan)) == [
        "kept       20260102-030405-train-0a1b: it still runs",
        "kept       2 runs with checkpoints (4.0M): add --checkpoints to remove them",
        "kept       runs/.new-1: not yours; check it by hand",
    ]


@pytest.mark.parametrize(
    ("plan", "text"),
    [
        (CleanPlan((candidate(),), ()), "1 run, 3.0M"),
        (CleanPlan((), (), (leftover(),)), "1 leftover folder, 1.0M"),
        (
            CleanPlan((candidate(checkpoints=MIB),), (), (leftover(),)),
            "1 run and 1 leftover folder, 4.0M, of which 1.0M are checkpoints",
        ),
    ],
    ids=["a run", "a leftover", "both"],
)
def test_the_question_names_what_goes_and_its_size(plan: CleanPlan, text: str) -> None:
    assert _summary(plan) == text


def test_the_document_keeps_what_goes_apart_from_what_stays() -> None:
    plan = CleanPlan(
        (candidate(),), (candidate(kept="it still runs"),), (leftover(), leftover("not yours"))
    )
    document = _json(plan, plan.going, removed=True)
    assert [item["why"] for item in document["runs"]] == [None]
    assert [item["why"] for item in document["kept"]] == ["it still runs"]
    assert [item["why"] for item in document["leftovers"]] == [None]
    assert [item["why"] for item in document["kept_leftovers"]] == ["not yours"]


def test_the_json_says_of_each_run_whether_it_was_removed() -> None:
    first = candidate(size=MIB)
    second = candidate(size=2 * MIB)
    document = _json(CleanPlan((first, second), (candidate(kept="lives"),)), [first], removed=False)
    assert document["removed"] is False
    assert [each["removed"] for each in document["runs"]] == [True, False]
    assert [each["removed"] for each in document["kept"]] == [False]
