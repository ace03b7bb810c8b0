"""hpcrun cancel."""

from __future__ import annotations

from typing import Annotated

import typer

from hpcrun.cli.complete import run_name
from hpcrun.cli.context import make_context
from hpcrun.cli.output import show, tell


def cancel(
    runs: Annotated[
        list[str],
        typer.Argument(
            metavar="RUN", help="Job ids, run ids, names, or 'last'.", show_default=False, autocompletion=run_name
        ),
    ],
) -> None:
    """End runs."""
    from hpcrun.actions.cancel import cancel_runs
    from hpcrun.actions.find import find_run
    from hpcrun.actions.status import get_status

    context = make_context()
    found = [find_run(word, context.store) for word in runs]
    tell(item.note for item in found if item.note)
    ids = list(dict.fromkeys(item.run.run_id for item in found))
    result = get_status(
        ids, store=context.store, schedulers=context.scheduler, host=context.host, now_s=context.now_s()
    )
    if result.away:
        raise result.away
    told, over = cancel_runs(result.runs, store=context.store, schedulers=context.scheduler)
    show(f"cancelled  job {item.run.job_id}, run {item.run.run_id}" for item in told)
    tell(f"hpcrun: job {item.run.job_id} is over already: {item.status.state}" for item in over)
