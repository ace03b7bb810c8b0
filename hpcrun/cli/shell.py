"""hpcrun shell."""

from __future__ import annotations

import sys

from hpcrun.actions.runs.allocation import nodes_of, one_element, open_shell
from hpcrun.actions.runs.find import find_element
from hpcrun.actions.status.status import one_status
from hpcrun.cli.complete import RunArgument
from hpcrun.cli.context import make_context
from hpcrun.cli.options import option
from hpcrun.cli.output import Outcome, Outcomes, note


def shell(
    run: RunArgument = "last",
    node: str | None = option("--node NAME", "Node of the job. Default: the first."),
) -> Outcomes:
    """Open a shell inside the allocation of a running job.

    It shares the CPUs, memory and GPUs of the ranks, and ends with the job.
    Without a terminal it reads commands from stdin.
    """
    context = make_context()
    named = find_element(run, context.store)
    yield note([named.note])
    item, remark = one_element(one_status(named.run.run_id, context.ports).runs[0], named.element)
    yield note([remark])
    is_terminal = sys.stdin.isatty()
    if is_terminal and item.status.state == "RUNNING":
        place = node or next(iter(nodes_of(item)), "the first node")
        where = "this machine" if named.run.scheduler == "local" else f"{place} (job {item.run.job_id})"
        yield note([f"Shell on {where}. Type exit to leave."])
    status = open_shell(item, node, context.env, is_terminal=is_terminal)
    yield Outcome(status=status if status >= 0 else 128 - status)
