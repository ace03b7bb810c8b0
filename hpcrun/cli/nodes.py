"""hpcrun nodes."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from hpcrun.cli.context import make_context
from hpcrun.cli.output import JsonOption, show, show_json
from hpcrun.errors import NotFoundError, UsageError

FORGET = "forget"


def nodes(
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[forget [NODE...]]", help="Remove these nodes from the list. Default: all.", show_default=False
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """List the nodes on which your runs failed in the last 24 hours.

    hpcrun submit --exclude-bad-nodes excludes them.
    """
    from hpcrun.views.text import age_text, one_line

    context = make_context()
    command, *named = words or ["list"]
    if command == FORGET:
        forgotten = context.failed_nodes.forget(named, context.now_s())
        missing = [node for node in named if node not in forgotten]
        if forgotten:
            show([f"forgotten  {one_line(', '.join(forgotten))}"])
        if missing:
            raise NotFoundError(
                f"not in the list of failed nodes: {', '.join(missing)}", hint="hpcrun nodes lists them"
            )
        return
    if words:
        raise UsageError(f"unknown word {command!r}", hint="hpcrun nodes forget NODE")
    now_s = context.now_s()
    known = context.failed_nodes.known(now_s)
    if as_json:
        show_json({"kind": "nodes", "nodes": [asdict(one) for one in known]})
        return
    if not known:
        show(["no node failed in the last 24 hours"])
        return
    rows = [("NODE", "LAST FAILURE", "REASON", "RUN")]
    rows += [(one.node, age_text(max(0.0, now_s - one.failed_s)), one.why, one.run_id) for one in known]
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    show([one_line("  ".join((*(f"{row[i]:<{widths[i]}}" for i in range(3)), row[3]))) for row in rows])
