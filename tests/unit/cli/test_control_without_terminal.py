"""Which runs are changed although nobody can be asked."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hpcrun.actions.runs.find import FoundRun
from hpcrun.actions.status.run_status import RunStatus
from hpcrun.cli.context import Context
from hpcrun.cli.control_without_terminal import check_consent
from hpcrun.cli.output import render
from hpcrun.errors import UsageError
from hpcrun.runs.record import LastStatus
from tests.unit.builders import run

OWN = {"terminal": False, "agent": None}
PERSON = {"terminal": True, "agent": None}
IDS = ("20260101-000000-train-0001", "20260102-030405-train-0a1b")


@pytest.fixture
def context(tmp_path: Path) -> Context:
    return Context({"HPCRUN_RUNS": str(tmp_path / "runs")}, tmp_path)


def item(by: object = OWN, state: str = "RUNNING", job_id: str = "7") -> RunStatus:
    """A run that was submitted in this way."""
    status = LastStatus(state, 500.0, final=state == "FAILED")
    return RunStatus(run(by=by, job_id=job_id), Path("train"), status)


def refusal(context: Context, found: FoundRun | None = None, *items: RunStatus) -> UsageError:
    """The error of a cancellation without a terminal."""
    words = [found.run.name] if found else []
    named = [found] if found else []
    with pytest.raises(UsageError) as refused:
        render(check_consent("cancel", words, named, items, context))
    return refused.value


def consents(context: Context, word: str, *items: RunStatus) -> bool:
    named: list[FoundRun] = [FoundRun(items[0].run)]
    return render(check_consent("cancel", [word], named, items, context)) == 0


def test_a_run_named_by_its_id_is_changed(context: Context) -> None:
    assert consents(context, "7", item())
    assert consents(context, "7", item(PERSON, "FAILED"))


@pytest.mark.parametrize(
    ("by", "said"),
    [
        (PERSON, "7 was submitted at a terminal, and here is none: nothing was cancelled"),
        (None, "7 perhaps was submitted at a terminal"),
    ],
    ids=["terminal", "unknown"],
)
def test_a_run_of_a_person_is_not_changed(context: Context, by: object, said: str) -> None:
    error = refusal(context, FoundRun(item(by).run), item(by))
    assert said in error.message
    assert error.hint is not None
    assert error.hint.startswith("ask the person, who can type hpcrun cancel 7 ")


def test_several_runs_of_a_person_are_named_together(context: Context) -> None:
    items = [item(PERSON), item(None, job_id="8"), item(job_id="9")]
    found: Any = [FoundRun(each.run) for each in items]
    with pytest.raises(UsageError, match=r"^7 8 perhaps were submitted at a terminal"):
        render(check_consent("cancel", ["7", "8", "9"], found, items, context))


def test_the_name_of_several_runs_is_not_enough(context: Context) -> None:
    for run_id in IDS:
        made = run(run_id, scheduler="local", cluster=None, host=context.host, job_id="L1")
        context.store.create(made, "")
    found = FoundRun(item().run, matches=IDS)
    lines = refusal(context, found, item()).message.splitlines()
    assert lines[0] == (
        "'train' is the name of 2 runs, and nothing was cancelled: without a terminal, cancel "
        "needs ids"
    )
    assert [line.split()[0] for line in lines[1:]] == list(IDS)


def test_at_most_twenty_runs_are_listed(context: Context) -> None:
    items = [item(job_id=str(number)) for number in range(23)]
    error = refusal(context, None, *items)
    lines = error.message.splitlines()
    assert lines[0].startswith("--state chooses 23 runs, and nothing was cancelled")
    assert len(lines) == 22
    assert lines[1].endswith("job 3  RUNNING")
    assert lines[-1] == "  and 3 older ones"
    exactly = refusal(context, None, *items[:20]).message.splitlines()
    assert len(exactly) == 21
