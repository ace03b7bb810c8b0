"""hpcrun gpu."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from hpcrun.cli.complete import run_name
from hpcrun.cli.context import Context, make_context
from hpcrun.cli.interrupt import interrupted_as
from hpcrun.cli.outcome import Outcome, Outcomes, TextPart, cleared, note, stdout, table
from hpcrun.cli.output import JsonOption
from hpcrun.errors import InterruptedByUser, SchedulerError, UsageError

if TYPE_CHECKING:
    from hpcrun.actions.runs.gpu import GpuResult

WATCH_EVERY_S = 10
"""Each look is a step of the job, which the controller has to make."""


def gpu(
    run: Annotated[
        str,
        typer.Argument(
            metavar="RUN",
            help="Job id, run id, name, or 'last', the default. RUN/3 is element 3 of a sweep.",
            show_default=False,
            autocompletion=run_name,
        ),
    ] = "last",
    watch: Annotated[
        bool, typer.Option("--watch", "-w", help=f"Refresh every {WATCH_EVERY_S} s until Ctrl-C.")
    ] = False,
    as_json: JsonOption = False,
) -> Outcomes:
    """Show the load of a running job's GPUs, by node and rank.

    Network traffic of the nodes is shown as well.
    """
    if watch and as_json:
        raise UsageError("--watch and --json cannot be combined")
    from hpcrun.actions.runs.find import find_element

    context = make_context()
    found = find_element(run, context.store)
    yield note([found.note])
    run_id = found.run.run_id
    if not watch:
        yield from _look(run_id, found.element, context)
        return
    with interrupted_as(InterruptedByUser("stopped watching; the job is not affected")):
        while True:
            yield Outcome(lambda: [cleared()])
            yield note([f"every {WATCH_EVERY_S} s, {time.strftime('%H:%M:%S')}; Ctrl-C to stop; jobs are not affected"])
            try:
                yield from _look(run_id, found.element, context)
            except SchedulerError as error:  # may come back
                yield note([f"hpcrun: {error.message}"])
            time.sleep(WATCH_EVERY_S)


def _look(run_id: str, element: int | None, context: Context) -> Outcomes:
    from hpcrun.actions.runs.allocation import one_element
    from hpcrun.actions.runs.gpu import read_gpus
    from hpcrun.views.gpu import gpu_json

    waiter = context.waiter(run_id)
    item, remark = one_element(waiter.refresh(), element)
    yield note([remark])
    result = read_gpus(item, context.env)
    yield Outcome(lambda: _text(result), lambda: gpu_json(result))


def _text(result: GpuResult) -> Iterator[TextPart]:
    from hpcrun.views.gpu import gpu_table, ports_table, without_lines

    if result.rows:
        yield table(gpu_table(result))
    yield stdout(without_lines(result))
    if result.ports:
        yield stdout([""])
        yield table(ports_table(result))
