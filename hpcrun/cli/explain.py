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
            help="Job id, run id, name, or 'last', the default. RUN/3 is element 3 of a sweep.",
            show_default=False,
            autocompletion=run_name,
        ),
    ] = "last",
    _json: JsonOption = False,
) -> Outcomes:
    """Explain why a run failed: the cause, the evidence, what to do.

    For an unknown failure it shows the exception and the last lines of the
    rank that failed first.
    """
    from hpcrun.actions.explain.explain import explain as explain_run
    from hpcrun.actions.explain.rules import load_rules
    from hpcrun.actions.runs.find import LAST, newest_line
    from hpcrun.actions.runs.find_element import find_element
    from hpcrun.actions.status.status import element_row, get_status
    from hpcrun.views.explain import explanation_json, explanation_text

    context = make_context()
    found = find_element(run, context.store)
    yield note([found.note])
    if run == LAST:
        yield Outcome(notes=[for_person(newest_line(found.run))])
    rules = load_rules(context.layers.values())
    result = get_status([found.run.run_id], context.ports)
    if not result.runs:
        raise NotFoundError(
            f"the folder of {found.run.run_id} no longer exists, or cannot be read", hint="hpcrun status --all"
        )
    item = result.runs[0]
    if found.element is not None:
        item = next(element_row(item, one) for one in item.elements if one.index == found.element)
    explanation = explain_run(item, rules)
    asked, answered = found.element, explanation.item.element
    if asked != answered:
        yield note([f"{run} is a sweep; showing its first failed element, {answered}"])
    yield Outcome(
        lambda: [table(explanation_text(explanation, width()))],
        lambda: explanation_json(explanation),
    )
    if result.away:
        yield note([f"hpcrun: {result.away.message}; shown is what the run's folder records"])
