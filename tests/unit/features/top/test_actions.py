"""What is done to runs from hpcrun top: to which, by which commands, what is asked before, and what
is said after.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from hpcrun.features.top.actions import (
    commands,
    nothing_to_do,
    possible,
    question,
    run_hpcrun,
    summary,
)
from hpcrun.features.top.reader import Done
from hpcrun.features.top.rows import TopRow, run_rows
from tests.unit.features.top.test_rows import item

RUNNING, WAITING, OVER, SWEEP = run_rows(
    [item("a"), item("b", "PENDING"), item("c", "FAILED"), item("lr", elements="rpff")], {}
)
ALL = [RUNNING, WAITING, OVER, SWEEP]


def keys(rows: list[TopRow]) -> list[str]:
    return [row.name for row in rows]


def test_only_what_a_verb_can_be_done_to_is_chosen() -> None:
    assert keys(possible("cancel", ALL)) == ["a", "b", "lr"]
    assert keys(possible("resubmit", ALL)) == ["c"]
    assert keys(possible("hold", ALL)) == keys(possible("release", ALL)) == ["b", "lr"]
    assert keys(possible("cancel", [SWEEP, *SWEEP.children])) == ["lr"]  # the elements are in it
    assert keys(possible("cancel", SWEEP.children)) == ["lr/0", "lr/1"]
    assert possible("cancel", run_rows([], {"x": "damaged"})) == []


def test_runs_are_named_by_their_ids_and_elements_of_a_sweep_are_resubmitted_together() -> None:
    assert commands("cancel", [RUNNING, SWEEP.children[1]]) == [
        ["cancel", "--yes", RUNNING.key, f"{SWEEP.key}/1"]
    ]
    failed = possible("resubmit", [OVER, *SWEEP.children])
    assert commands("resubmit", failed) == [
        ["resubmit", OVER.key],
        ["resubmit", SWEEP.key, "--elements", "2-3"],
    ]


def test_the_question_says_what_and_how_many() -> None:
    title, lines = question("cancel", [RUNNING, SWEEP.children[0]], 2)
    assert title == "Cancel 1 run and 1 element?"
    assert lines[:2] == ["a  job 1000  RUNNING", "lr/0  job 7_0  RUNNING"]
    assert lines[-1] == "2 others chosen: already ended."
    title, lines = question("hold", [WAITING] * 12, 0)
    assert title == "Hold 12 runs?"
    assert lines[10] == "... and 2 more"
    assert question("cancel", [SWEEP], 0)[1][0] == "lr  job 1000  RUNNING  all 4 elements"


def test_the_message_is_what_the_command_said() -> None:
    submitted = Done(
        "hpcrun resubmit x",
        ("x  1 node", "submitted  job 5, run y", "look  hpcrun status 5"),
        ok=True,
    )
    refused = Done(
        "hpcrun resubmit z", ("note", "hpcrun: z is still RUNNING", "hint: ..."), ok=False
    )
    assert summary([submitted]) == "submitted  job 5, run y   (2 more lines: m)"
    assert summary([submitted, refused]) == "hpcrun: z is still RUNNING   (5 more lines: m)"
    elements = tuple(f"cancelled  element {n} of job 31, run z" for n in range(3))
    assert (
        summary([Done("hpcrun cancel", elements, ok=True)]) == f"{elements[0]}   (2 more lines: m)"
    )
    assert nothing_to_do("cancel", [OVER]) == "nothing to cancel: c (already ended)"
    assert nothing_to_do("cancel", [OVER, OVER]) == "nothing to cancel: 2 runs (already ended)"
    assert nothing_to_do("cancel", []) == "nothing to cancel: there is no run"
    assert summary([Done("hpcrun cancel x", ("cancelled  job 5",), ok=True)]) == "cancelled  job 5"


def test_a_command_imports_nothing_from_the_folder_where_top_was_called(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "typer.py").write_text("print('stranger')\n")
    monkeypatch.chdir(tmp_path)
    done = run_hpcrun(["cancel", "nothing"], {**os.environ, "HPCRUN_RUNS": str(tmp_path / "runs")})
    assert not done.ok
    assert done.line == "hpcrun cancel nothing"
    assert done.lines[0].startswith("hpcrun: there are no runs in")
