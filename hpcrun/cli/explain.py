"""hpcrun explain."""

from __future__ import annotations

from typing import Annotated

import typer

from hpcrun.cli.complete import run_name
from hpcrun.cli.context import make_context
from hpcrun.cli.outcome import Outcome, Outcomes, for_person, note, table
from hpcrun.cli.output import JsonOption, width
from hpcrun.errors import NotFoundError


def explain(
    run: Annotated[
        str,
        typer.Argument(
            metavar="RUN",
            help="Job id, run id, name, or 'last'; RUN/3 for an element of a sweep.",
            show_default=False,
            autocompletion=run_name,
        ),
    ] = "last",
    _json: JsonOption = False,
) -> Outcomes:
    """Say why a run failed: what happened, the evidence, what to do.

    Where no rule knows the failure it says so, and shows the last words of the rank that failed first.
    """
    from hpcrun.actions.explain import explain as explain_run
    from hpcrun.actions.find import LAST, newest_line
    from hpcrun.actions.find_element import find_element
    from hpcrun.actions.rules import load_rules
    from hpcrun.actions.status import element_row, get_status
    from hpcrun.views.explain import explanation_json, explanation_text

    context = make_context()
    found = find_element(run, context.store)
    yield note([found.note])
    if run == LAST:
        yield Outcome(notes=[for_person(newest_line(found.run))])
    rules = load_rules(context.layers.values())
    result = get_status(
        [found.run.run_id], store=context.store, schedulers=context.scheduler, host=context.host, now_s=context.now_s()
    )
    if not result.runs:
        raise NotFoundError(f"the folder of {found.run.run_id} is gone, or cannot be read", hint="hpcrun status --all")
    item = result.runs[0]
    if found.element is not None:
        item = next(element_row(item, one) for one in item.elements if one.index == found.element)
    explanation = explain_run(item, rules)
    asked, answered = found.element, explanation.item.element
    if asked != answered:
        yield note([f"{run} is a sweep: this is its first element that failed, {answered}"])
    yield Outcome(
        lambda: [table(explanation_text(explanation, width()))],
        lambda: explanation_json(explanation),
    )
    if result.away:
        yield note([f"hpcrun: {result.away.message}; this is what the run's folder says"])
