"""hpcrun clean."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated

import typer

from hpcrun.cli.complete import run_name
from hpcrun.cli.confirm import can_ask, confirm
from hpcrun.cli.context import Context, make_context
from hpcrun.cli.output import JsonOption, show, show_json, show_rich, tell
from hpcrun.cli.status import check_states
from hpcrun.errors import UsageError

if TYPE_CHECKING:
    from hpcrun.actions.status import RunStatus

_ANY_AGE = re.compile("0+[dhms]")


def clean(
    runs: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="RUN",
            help="Job ids, run ids, names. Default: all runs.",
            show_default=False,
            autocompletion=run_name,
        ),
    ] = None,
    older_than: Annotated[
        str | None,
        typer.Option(
            "--older-than",
            metavar="AGE",
            help="Runs that ended this long ago: 12h, 30d. Default without other choice: 30d.",
            show_default=False,
        ),
    ] = None,
    states: Annotated[
        list[str] | None,
        typer.Option(
            "--state",
            metavar="STATE",
            help="Runs in these states: failed,completed.",
            show_default=False,
        ),
    ] = None,
    keep: Annotated[
        int | None,
        typer.Option("--keep", metavar="N", help="Keep the newest N of the chosen runs.", show_default=False),
    ] = None,
    checkpoints: Annotated[bool, typer.Option("--checkpoints", help="Include runs with checkpoints.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Remove without a question.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Remove the folders of runs that have ended.

    Shows the runs and their size, then asks.
    Without a terminal, --yes is required.
    """
    from hpcrun.actions.clean import DEFAULT_AGE_S, CleanChoice, plan_clean, remove_runs
    from hpcrun.views.clean import clean_json, clean_summary, clean_table, leftover_lines, staying_lines

    if keep is not None and keep < 0:
        raise UsageError(f"--keep {keep}: must be 0 or more")
    wanted = frozenset(check_states(states or []))
    age_s = _age_s(older_than)
    if age_s is None and not (runs or wanted or keep is not None):
        age_s = DEFAULT_AGE_S
    context = make_context()
    context.store.check_dedicated()
    choice = CleanChoice(age_s, wanted, keep or 0, named=bool(runs), checkpoints=checkpoints)
    now_s = context.now_s()
    plan = plan_clean(_statuses(context, runs or [], now_s), choice, store=context.store, now_s=now_s)
    if not as_json:
        tell(staying_lines(plan))
        if not (plan.going or plan.going_leftovers):
            tell([f"nothing to remove in {context.store.root}"])
            return
        if plan.going:
            show_rich(clean_table(plan, now_s))
        show(leftover_lines(plan, now_s))
    question = f"Remove {clean_summary(plan)}?"
    agreed = yes or (not as_json and can_ask() and confirm(question))
    gone, errors = remove_runs(plan, context.store, now_s=now_s) if agreed else ([], [])
    if as_json:
        show_json(clean_json(plan, removed=agreed and not errors))
    elif agreed:
        show([f"removed    {len(gone)} of {clean_summary(plan)}" if errors else f"removed    {clean_summary(plan)}"])
    else:
        tell([f"nothing was removed: {clean_summary(plan)}; to remove them: --yes"])
    if errors:
        raise errors[0]


def _age_s(text: str | None) -> int | None:
    from hpcrun.job.units import parse_time

    if text is None:
        return None
    if text.strip().isdigit():  # minutes to Slurm, days to most people
        raise UsageError(f"--older-than {text}: the unit is missing", hint=f"--older-than {text.strip()}d is days")
    try:
        return 0 if _ANY_AGE.fullmatch(text.strip()) else parse_time(text)
    except ValueError:
        raise UsageError(f"--older-than {text!r} is not an age", hint="write it as 30d, 12h or 1d12h") from None


def _statuses(context: Context, words: list[str], now_s: float) -> list[RunStatus]:
    from hpcrun.actions.find import find_run
    from hpcrun.actions.status import get_status
    from hpcrun.views.text import one_line

    found = [find_run(word, context.store) for word in words]
    tell(item.note for item in found if item.note)
    ids = list(dict.fromkeys(item.run.run_id for item in found)) if words else context.store.run_ids()
    result = get_status(ids, store=context.store, schedulers=context.scheduler, host=context.host, now_s=now_s)
    tell(one_line(f"hpcrun: {message}") for message in result.damaged)
    if result.away:
        tell(["hpcrun: the scheduler does not respond; runs that may still be running are kept"])
    return list(result.runs)
