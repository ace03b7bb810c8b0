"""hpcrun gpu."""

from __future__ import annotations

import time
from typing import Annotated

import typer

from hpcrun.cli.complete import run_name
from hpcrun.cli.context import Context, make_context
from hpcrun.cli.output import JsonOption, clear_screen, show, show_json, show_rich, tell
from hpcrun.errors import InterruptedByUser, SchedulerError, UsageError

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
) -> None:
    """Show the load of a running job's GPUs, by node and rank.

    Network traffic of the nodes is shown as well.
    """
    if watch and as_json:
        raise UsageError("--watch and --json cannot be combined")
    from hpcrun.actions.find_element import find_element

    context = make_context()
    found = find_element(run, context.store)
    tell([found.note] if found.note else [])
    run_id = found.run.run_id
    if not watch:
        _look(run_id, found.element, context, as_json=as_json)
        return
    try:
        while True:
            clear_screen()
            tell([f"every {WATCH_EVERY_S} s, {time.strftime('%H:%M:%S')}; Ctrl-C to stop; jobs are not affected"])
            try:
                _look(run_id, found.element, context, as_json=False)
            except SchedulerError as error:  # may come back
                tell([f"hpcrun: {error.message}"])
            time.sleep(WATCH_EVERY_S)
    except KeyboardInterrupt:
        raise InterruptedByUser("stopped watching; the job is not affected") from None


def _look(run_id: str, element: int | None, context: Context, *, as_json: bool) -> None:
    from hpcrun.actions.element_choice import one_element
    from hpcrun.actions.gpu import read_gpus
    from hpcrun.views.gpu import gpu_json, gpu_table, ports_table, without_lines

    waiter = context.waiter(run_id)
    item, note = one_element(waiter.refresh(), element)
    tell([note] if note else [])
    result = read_gpus(item, context.env)
    if as_json:
        show_json(gpu_json(result))
        return
    if result.rows:
        show_rich(gpu_table(result))
    show(without_lines(result))
    if result.ports:
        show([""])
        show_rich(ports_table(result))
