"""hpcrun hold, hpcrun release."""

from __future__ import annotations

from typing import Annotated

from hpcrun.actions.runs.cancel import HoldResult, hold_runs
from hpcrun.actions.runs.find import find_element
from hpcrun.cli.complete import RUNS
from hpcrun.cli.context import make_context
from hpcrun.cli.output import Outcome, Outcomes, TextPart, note, stderr, stdout
from hpcrun.errors import PlanError


def hold(runs: Annotated[list[str], RUNS]) -> Outcomes:
    """Keep pending runs from starting until they are released (scontrol hold)."""
    yield from _change(runs, release=False)


def release(runs: Annotated[list[str], RUNS]) -> Outcomes:
    """Let runs that were held start again (scontrol release)."""
    yield from _change(runs, release=True)


def _change(words: list[str], *, release: bool) -> Outcomes:
    context = make_context()
    named = [find_element(name, context.store) for name in words]
    yield note(item.note for item in named)
    result = hold_runs(named, context.ports, release=release)
    yield Outcome(lambda: _text(result, release=release))
    if not result.changed:
        verb = "released" if release else "held"
        raise PlanError(f"nothing was {verb}: only a pending job can be {verb}", hint="hpcrun status lists the runs")


def _text(result: HoldResult, *, release: bool) -> list[TextPart]:
    verb = "released" if release else "held"
    return [
        stdout(f"{verb}  job {item.run.job_id}, run {item.run.run_id}" for item in result.changed),
        stderr(f"hpcrun: job {item.run.job_id or '-'} is {item.status.state}, not pending" for item in result.others),
    ]
