"""hpcrun sync."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hpcrun.cli.complete import RunsArgument
from hpcrun.cli.context import make_context
from hpcrun.cli.outcome import Outcome, Outcomes, note, printed
from hpcrun.cli.output import JsonOption
from hpcrun.errors import PlanError

if TYPE_CHECKING:
    from hpcrun.features.trackers.open_and_sync import SyncResult


def sync(
    runs: RunsArgument = None,
    as_json: JsonOption = False,
) -> Outcomes:
    """Upload the offline wandb runs of runs that have ended.

    It calls `wandb sync` of the run's own Python, with your own login of wandb.
    """
    from hpcrun.actions.runs.find import find_element
    from hpcrun.features.trackers.display import sync_json, sync_lines
    from hpcrun.features.trackers.open_and_sync import sync_wandb

    context = make_context()
    found = [find_element(word, context.store) for word in runs or ["last"]]
    yield note(each.note for each in found)
    results: list[SyncResult] = []
    for each in found:
        results.append(result := sync_wandb(each.run, context.store, each.element, context.env))
        if not as_json:
            yield printed(sync_lines(result))
    failures = [result.failure for result in results if result.failure]
    failure = PlanError(failures[0], hint=_hint(failures[0])) if failures else None
    yield Outcome(document=lambda: {"kind": "sync", "runs": [sync_json(result) for result in results]}, failure=failure)


def _hint(failure: str) -> str:
    return "log in with `wandb login`, then again: hpcrun sync" if "API key" in failure else "again: hpcrun sync"
