"""hpcrun status."""

from __future__ import annotations

import time
from typing import Annotated

import typer

from hpcrun.cli.complete import run_name
from hpcrun.cli.context import Context, make_context
from hpcrun.cli.output import JsonOption, clear_screen, show_json, show_rich, tell, width
from hpcrun.errors import InterruptedByUser, SchedulerError, UsageError, nearest

MIN_INTERVAL_S = 10


def status(
    runs: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="RUN",
            help="Job ids, run ids, names, or 'last'; by default the newest.",
            show_default=False,
            autocompletion=run_name,
        ),
    ] = None,
    everything: Annotated[bool, typer.Option("--all", "-a", help="Show every run, not only the newest.")] = False,
    states: Annotated[
        list[str] | None,
        typer.Option(
            "--state",
            metavar="STATE",
            help="Only runs in this state. Repeatable, or separated by commas.",
            show_default=False,
        ),
    ] = None,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Show it again and again; Ctrl-C ends it.")] = False,
    interval: Annotated[
        int, typer.Option("--interval", help=f"Seconds between two looks; at least {MIN_INTERVAL_S}.")
    ] = 15,
    as_json: JsonOption = False,
) -> None:
    """Show the newest runs and every run that is not over, newest last."""
    wanted = _check_states(states or [])
    if watch and as_json:
        raise UsageError("--watch and --json exclude each other")
    if interval < MIN_INTERVAL_S:
        raise UsageError(f"--interval {interval}: the controller is asked at most every {MIN_INTERVAL_S} s")
    context = make_context()
    if not watch:
        _show(context, runs or [], wanted, everything=everything, as_json=as_json)
        return
    try:
        while True:
            clear_screen()
            tell([f"every {interval} s, {time.strftime('%H:%M:%S')}; Ctrl-C ends this, and no job"])
            try:
                _show(context, runs or [], wanted, everything=everything, as_json=False)
            except SchedulerError as error:  # a controller that is away may come back
                tell([f"hpcrun: {error.message}"])
            time.sleep(interval)
    except KeyboardInterrupt:
        raise InterruptedByUser("no longer watching; the jobs go on") from None


def _show(context: Context, words: list[str], wanted: set[str], *, everything: bool, as_json: bool) -> None:
    from dataclasses import replace

    from hpcrun.actions.find import find_run
    from hpcrun.actions.status import chosen_ids, get_status
    from hpcrun.views.status import status_json, status_table

    found = [find_run(word, context.store) for word in words]
    tell(item.note for item in found if item.note)
    ids = [item.run.run_id for item in found] or chosen_ids(context.store, everything=everything or bool(wanted))
    now_s = context.now_s()
    result = get_status(ids, store=context.store, schedulers=context.scheduler, host=context.host, now_s=now_s)
    if wanted:
        result = replace(result, runs=tuple(item for item in result.runs if item.status.state in wanted))
    if as_json:
        show_json(status_json(result))
    elif result.runs:
        show_rich(status_table(result, now_s, width()))
    else:
        tell([f"no runs{' in this state' if wanted else ''} in {context.store.root}"])
    tell(f"hpcrun: {message}" for message in result.damaged)
    if result.away:
        raise result.away


def _check_states(given: list[str]) -> set[str]:
    from hpcrun.job.state import STATES

    wanted = {word.strip().upper() for item in given for word in item.split(",") if word.strip()}
    for word in sorted(wanted - STATES):
        close = nearest(word, sorted(STATES))
        raise UsageError(
            f"--state {word}: no such state",
            hint=f"did you mean {close}?" if close else ", ".join(sorted(STATES)),
        )
    return wanted
