"""hpcrun shell."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from hpcrun.cli.complete import run_name
from hpcrun.cli.context import make_context
from hpcrun.cli.outcome import Outcome, Outcomes, note


def shell(
    run: Annotated[
        str,
        typer.Argument(
            metavar="RUN",
            help="Job id, run id, name, or 'last'; RUN/3 is one element of a sweep.",
            show_default=False,
            autocompletion=run_name,
        ),
    ] = "last",
    node: Annotated[
        str | None,
        typer.Option("--node", metavar="NAME", help="Where; by default the first node.", show_default=False),
    ] = None,
) -> Outcomes:
    """Open a shell inside the allocation of a running job.

    It stands beside the ranks, shares their CPUs, memory and GPUs, and ends with the job. Without a terminal it reads
    commands from stdin.
    """
    from hpcrun.actions.element_choice import one_element
    from hpcrun.actions.find_element import find_element
    from hpcrun.actions.shell import open_shell

    context = make_context()
    found = find_element(run, context.store)
    yield note([found.note])
    waiter = context.waiter(found.run.run_id)
    item, remark = one_element(waiter.refresh(), found.element)
    yield note([remark])
    is_terminal = sys.stdin.isatty()
    if is_terminal and item.status.state == "RUNNING":
        where = f"inside job {item.run.job_id}, on {node or 'its first node'}: it ends with the job"
        yield note([f"hpcrun: a shell {'on this machine' if found.run.scheduler == 'local' else where}; exit ends it"])
    status = open_shell(item, node, context.env, is_terminal=is_terminal)
    yield Outcome(status=status if status >= 0 else 128 - status)
