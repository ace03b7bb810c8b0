"""hpcrun open."""

from __future__ import annotations

from typing import Annotated

import typer

from hpcrun.cli.complete import RunArgument
from hpcrun.cli.context import make_context
from hpcrun.cli.outcome import Outcome, Outcomes, note, stderr, stdout
from hpcrun.cli.output import JsonOption
from hpcrun.errors import NotFoundError


def open_(
    run: RunArgument = "last",
    url_only: Annotated[
        bool, typer.Option("--url", help="Print only the address of the page, and open no browser.")
    ] = False,
    as_json: JsonOption = False,
) -> Outcomes:
    """Open the page of a run in wandb, MLflow or another tracker.

    Without a display it prints the address. What trackers wrote on disk is shown with the command that displays it.
    """
    from hpcrun.actions.runs.find import find_element
    from hpcrun.features.trackers.display import display_hints, tracked_json, tracked_lines
    from hpcrun.features.trackers.open_and_sync import show_page, tracked, tunnel_to

    context = make_context()
    found = find_element(run, context.store)
    yield note([found.note])
    result = tracked(found.run, context.store.folder(found.run.run_id), found.element)
    hints = display_hints(result, run)
    page = result.page
    if page is None and not hints:
        raise NotFoundError(
            f"run {found.run.name} has no wandb or MLflow page",
            hint="hpcrun reads what wandb and MLflow print, and looks for files in the folder where the run started",
        )
    if url_only:
        if page is None:
            raise NotFoundError(f"{found.run.name} has no page, only files on disk", hint=hints[0])
        yield Outcome(lambda: [stdout([page])], lambda: tracked_json(result))
        return
    shown = [stdout(tracked_lines(result)), stderr(f"hint: {hint}" for hint in hints)]
    yield Outcome(lambda: shown, lambda: tracked_json(result))
    if page and not as_json:
        opened = show_page(page, context.env)
        if not opened and (tunnel := tunnel_to(page, context.host)):
            yield note(["on your own computer, first run this and leave it open:", f"  {tunnel}"])
