"""hpcrun nodes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hpcrun.cli.context import make_context
from hpcrun.cli.outcome import Outcome, TextPart, stdout, table
from hpcrun.cli.output import JsonOption
from hpcrun.errors import NotFoundError, UsageError

if TYPE_CHECKING:
    from hpcrun.runs.failed_nodes import FailedNode, FailedNodes

FORGET = "forget"


def nodes(
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[forget [NODE...]]", help="Remove these nodes from the list. Default: all.", show_default=False
        ),
    ] = None,
    _json: JsonOption = False,
) -> Outcome:
    """List the nodes on which your runs failed in the last 24 hours.

    hpcrun submit --exclude-bad-nodes excludes them.
    """
    context = make_context()
    now_s = context.now_s()
    command, *named = words or ["list"]
    if command == FORGET:
        return _forget(named, context.failed_nodes, now_s)
    if words:
        raise UsageError(f"unknown word {command!r}", hint="hpcrun nodes forget NODE")
    known = context.failed_nodes.known(now_s)
    return Outcome(lambda: [_listed(known, now_s)], lambda: _document(known))


def _forget(named: Sequence[str], failed: FailedNodes, now_s: float) -> Outcome:
    from hpcrun.views.text import one_line

    forgotten = failed.forget(named, now_s)
    missing = [node for node in named if node not in forgotten]
    failure = None
    if missing:
        failure = NotFoundError(
            f"not in the list of failed nodes: {', '.join(missing)}", hint="hpcrun nodes lists them"
        )
    lines = [f"forgotten  {one_line(', '.join(forgotten))}"] if forgotten else []
    return Outcome(lambda: [stdout(lines)], lambda: _document(failed.known(now_s)), failure=failure)


def _document(known: Iterable[FailedNode]) -> dict[str, Any]:
    return {"kind": "nodes", "nodes": [asdict(one) for one in known]}


def _listed(known: Sequence[FailedNode], now_s: float) -> TextPart:
    from hpcrun.job.units import format_age
    from hpcrun.views.text import text_table

    if not known:
        return stdout(["no node failed in the last 24 hours"])
    rows = ((one.node, format_age(now_s - one.failed_s), one.why, one.run_id) for one in known)
    return table(text_table(("NODE", "LAST FAILURE", "REASON", "RUN"), rows))
