"""status: which runs and elements are shown."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hpcrun.actions.runs.hardware_use import RecordedUse
from hpcrun.actions.status.run_status import ElementStatus, RunStatus, StatusResult
from hpcrun.cli.context import Context
from hpcrun.cli.status import _listing, _named, _recorded_text, _Request, _text
from hpcrun.errors import NotFoundError
from hpcrun.runs.record import LastStatus
from hpcrun.runs.use_samples import UseSummary
from tests.unit.builders import run

SWEEP = "20260102-030405-sweep-0a1b"


def request(**values: Any) -> _Request:
    """Return the request of ``hpcrun status`` without options, but for these."""
    options: dict[str, Any] = {
        "context": None,
        "words": [],
        "wanted": set(),
        "filter": [],
        "everything": False,
        "columns": (),
        "csv": False,
        "json": False,
        "verbose": False,
        "watch": False,
    }
    return _Request(**options | values)


def sweep() -> RunStatus:
    """Return a sweep of three elements, of which the first has failed."""
    states = ["FAILED", "RUNNING", "RUNNING"]
    elements = [
        ElementStatus(index, f"4711_{index}", (), LastStatus(state, 500.0))
        for index, state in enumerate(states)
    ]
    return RunStatus(run(SWEEP), Path(), LastStatus("RUNNING", 500.0), elements=elements)


def lost() -> RunStatus:
    """Return a run whose end is unknown."""
    return RunStatus(run(), Path(), LastStatus("UNKNOWN", 500.0), lost=True)


def names(result: StatusResult) -> list[str]:
    """Return the names in the rows."""
    return [item.run.name for item in result.runs]


def test_lost_runs_are_counted_for_a_person_who_named_no_run() -> None:
    listing = _listing(request(), StatusResult((lost(), sweep())), {})
    assert listing.lost == 1
    assert names(listing.rows) == ["sweep"]


def test_lost_runs_are_rows_for_a_program_and_with_all() -> None:
    for options in ({"csv": True}, {"json": True}, {"everything": True}):
        listing = _listing(request(**options), StatusResult((lost(), sweep())), {})
        assert listing.lost == 0
        assert names(listing.rows) == ["train", "sweep"]


def test_a_wanted_state_chooses_among_the_elements_of_a_named_sweep() -> None:
    listing = _listing(request(wanted={"FAILED"}), StatusResult((sweep(),)), {SWEEP: None})
    assert names(listing.rows) == ["sweep/0"]
    assert [element.index for element in listing.result.runs[0].elements] == [0]


def test_a_filter_chooses_among_the_runs_and_among_the_elements_of_a_named_sweep() -> None:
    whole = StatusResult((sweep(),))
    named = _listing(request(filter=["!failed"]), whole, {SWEEP: None})
    assert "sweep/0" not in names(named.rows)
    assert names(named.rows)
    assert names(_listing(request(filter=["!failed"]), whole, {}).rows) == ["sweep"]
    assert names(_listing(request(filter=["other"]), whole, {}).rows) == []
    both = request(filter=["sweep"], wanted={"FAILED"})
    assert names(_listing(both, whole, {SWEEP: None}).rows) == ["sweep/0"]


def existing(words: str, runs: Path) -> tuple[list[str], NotFoundError | None]:
    """Return the ids of those of the named runs that exist, and the error for the others."""
    context = Context({"HPCRUN_RUNS": str(runs)}, runs)
    finding = _named(request(context=context, words=words.split()))
    while True:
        try:
            next(finding)
        except StopIteration as end:
            named, missing = end.value
            return [item.run.run_id for item in named], missing


def test_the_runs_that_exist_are_shown_before_the_error_for_the_others(tmp_path: Path) -> None:
    store = Context({"HPCRUN_RUNS": str(tmp_path)}, tmp_path).store
    store.create(run(), "")
    assert existing("train 4711", tmp_path) == ([run().run_id] * 2, None)
    ids, missing = existing("nope train never", tmp_path)
    assert ids == [run().run_id]
    assert missing is not None
    assert missing.message == "there is no run 'nope'; there is no run 'never'"
    with pytest.raises(NotFoundError, match="there is no run 'nope'"):
        existing("nope never", tmp_path)


def recorded(elements: int) -> list[str]:
    """The lines on stderr about the recorded use of a sweep."""
    uses = []
    for index in range(elements):
        summary = UseSummary(60.0 * (index + 1), 1, 1.0, 2.0, 8, 1 << 30, 8 << 30)
        uses.append(RecordedUse(SWEEP, {"n1": summary}, {}, index))
    parts = _recorded_text(uses)
    return [line for part in parts if part.kind == "stderr" for line in part.lines]


def test_at_most_twenty_elements_are_shown_with_their_use() -> None:
    longest = "recorded over 20 min; PEAK and MEMORY: highest, other columns: mean"
    assert recorded(20) == [longest]
    assert recorded(21) == [
        "the first 20 elements; RUN/N shows one, --json has all",
        longest,
    ]


@pytest.mark.parametrize(
    ("options", "which"),
    [
        ({}, ""),
        ({"wanted": {"FAILED"}}, " in this state"),
        ({"filter": ["x"]}, " with these words"),
        ({"wanted": {"FAILED"}, "filter": ["x"]}, " in this state with these words"),
    ],
    ids=["all", "state", "words", "both"],
)
def test_without_runs_that_is_said(tmp_path: Path, options: dict[str, Any], which: str) -> None:
    context = Context({"HPCRUN_RUNS": str(tmp_path)}, tmp_path)
    asked = request(context=context, **options)
    [part] = _text(asked, _listing(asked, StatusResult(()), {}), [], 600.0)
    assert part.kind == "stderr"
    assert part.lines == (f"no runs{which} in {tmp_path}",)


def test_only_lost_runs_are_one_line(tmp_path: Path) -> None:
    context = Context({"HPCRUN_RUNS": str(tmp_path)}, tmp_path)
    asked = request(context=context)
    [part] = _text(asked, _listing(asked, StatusResult((lost(),)), {}), [], 600.0)
    assert part.kind == "stdout"
    [line] = part.lines
    assert line.startswith("1 run ")
