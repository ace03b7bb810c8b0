"""hpcrun cancel."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from hpcrun.cli.complete import run_name
from hpcrun.cli.confirm import can_ask, confirm
from hpcrun.cli.context import Context, make_context
from hpcrun.cli.output import show, tell
from hpcrun.cli.status import check_states
from hpcrun.errors import UsageError

if TYPE_CHECKING:
    from hpcrun.actions.status import RunStatus


def cancel(
    runs: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="RUN",
            help="Job ids, run ids, names, or 'last'. RUN/3 is element 3 of a sweep.",
            show_default=False,
            autocompletion=run_name,
        ),
    ] = None,
    states: Annotated[
        list[str] | None,
        typer.Option(
            "--state",
            metavar="STATE",
            help="Cancel runs in these states: pending,running. With RUN, only among those.",
            show_default=False,
        ),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Cancel without a question.")] = False,
) -> None:
    """Cancel runs: terminate running jobs and remove pending ones (scancel)."""
    from hpcrun.actions.cancel import cancel_runs, check_listed
    from hpcrun.actions.waits import left_waiting
    from hpcrun.views.text import count

    wanted = check_states(states or [])
    if not runs and not wanted:
        raise UsageError("no run is given", hint="hpcrun cancel RUN..., or hpcrun cancel --state pending")
    context = make_context()
    named, elements = _statuses(context, runs or [])
    items = named
    if wanted:
        items = [item for item in named if item.status.state in wanted]
        if not items:
            tell([f"no runs in this state in {context.store.root}"])
            return
        if len(items) > 1 and not yes and can_ask():
            tell(f"  {item.run.name}  job {item.run.job_id or '-'}  {item.status.state}" for item in items)
            if not confirm(f"Cancel {count(len(items), 'run')}?"):
                tell(["nothing was cancelled"])
                return
    _cancel_elements(elements, context)
    result = cancel_runs(items, store=context.store, schedulers=context.scheduler)
    told = result.told
    show(f"cancelled  job {item.run.job_id}, run {item.run.run_id}" for item in told)
    waiting = left_waiting({item.run.run_id for item in told}, context.store)
    if waiting:
        names = " ".join(str(run.job_id or run.run_id) for run in waiting)
        tell(
            [
                "hpcrun: jobs that depend on a cancelled run may start now",
                f"hint: to cancel them as well: hpcrun cancel {names}",
            ]
        )
    if wanted and len(told) > 1:
        tell([f"{count(len(told), 'run')} cancelled"])
    tell(f"hpcrun: job {item.run.job_id} has already ended: {item.status.state}" for item in result.over)
    check_listed(result.unlisted)


def _statuses(context: Context, words: list[str]) -> tuple[list[RunStatus], list[tuple[RunStatus, list[int]]]]:
    """Return the runs that were named, or all that are not over; and sweeps of which elements alone were named.

    Raises:
        SchedulerError: it does not answer.
    """
    from hpcrun.actions.find_element import find_element
    from hpcrun.actions.status import active_ids, get_status

    found = [find_element(word, context.store) for word in words]
    tell(item.note for item in found if item.note)
    ids = list(dict.fromkeys(item.run.run_id for item in found)) if words else active_ids(context.store)
    result = get_status(
        ids, store=context.store, schedulers=context.scheduler, host=context.host, now_s=context.now_s()
    )
    if result.away:
        raise result.away
    whole = {item.run.run_id for item in found if item.element is None}
    chosen: dict[str, set[int]] = {}
    for item in found:
        if item.element is not None and item.run.run_id not in whole:
            chosen.setdefault(item.run.run_id, set()).add(item.element)
    parts = [(item, sorted(chosen[item.run.run_id])) for item in result.runs if item.run.run_id in chosen]
    return [item for item in result.runs if item.run.run_id not in chosen], parts


def _cancel_elements(parts: list[tuple[RunStatus, list[int]]], context: Context) -> None:
    from hpcrun.actions.cancel import cancel_elements

    for item, indices in parts:
        ended, before = cancel_elements(item, indices, schedulers=context.scheduler)
        show(f"cancelled  element {index} of job {item.run.job_id}, run {item.run.run_id}" for index in ended)
        tell(f"hpcrun: {item.run.name}/{index} has already ended" for index in before)
