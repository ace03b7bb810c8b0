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
    from hpcrun.actions.gpu import GpuResult

WATCH_EVERY_S = 10
"""Each look is a step of the job, which the controller has to make."""


def gpu(
    run: Annotated[
        str,
        typer.Argument(
            metavar="RUN",
            help="Job id, run id, name, or 'last'; RUN/3 is one element of a sweep.",
            show_default=False,
            autocompletion=run_name,
        ),
    ] = "last",
    watch: Annotated[
        bool, typer.Option("--watch", "-w", help=f"Look again every {WATCH_EVERY_S} s; Ctrl-C ends it.")
    ] = False,
    as_json: JsonOption = False,
) -> Outcomes:
    """Show what the GPUs of a running job are doing.

    By node and rank, and what the network of the nodes moves.
    """
    if watch and as_json:
        raise UsageError("--watch and --json exclude each other")
    from hpcrun.actions.find_element import find_element

    context = make_context()
    found = find_element(run, context.store)
    yield note([found.note])
    run_id = found.run.run_id
    if not watch:
        yield from _look(run_id, found.element, context)
        return
    with interrupted_as(InterruptedByUser("no longer watching; the job goes on")):
        while True:
            yield Outcome(lambda: [cleared()])
            yield note([f"every {WATCH_EVERY_S} s, {time.strftime('%H:%M:%S')}; Ctrl-C ends this, and no job"])
            try:
                yield from _look(run_id, found.element, context)
            except SchedulerError as error:  # may come back
                yield note([f"hpcrun: {error.message}"])
            time.sleep(WATCH_EVERY_S)


def _look(run_id: str, element: int | None, context: Context) -> Outcomes:
    from hpcrun.actions.element_choice import one_element
    from hpcrun.actions.gpu import read_gpus
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
