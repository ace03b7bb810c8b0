"""hpcrun clean."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from hpcrun.actions.runs.clean_runs import (
    DEFAULT_AGE_S,
    HAS_CHECKPOINTS,
    CleanChoice,
    CleanPlan,
    plan_clean,
    remove_runs,
)
from hpcrun.actions.runs.find import find_run
from hpcrun.actions.status.status_query import get_status
from hpcrun.cli.complete import run_name
from hpcrun.cli.confirm import confirm
from hpcrun.cli.context import make_context
from hpcrun.cli.options import argument, check_least, flag, option, read_duration
from hpcrun.cli.output import (
    JsonOption,
    Outcome,
    Outcomes,
    TextPart,
    can_ask,
    note,
    stderr,
    stdout,
    table,
)
from hpcrun.errors import UsageError
from hpcrun.job.job_states import parse_states
from hpcrun.job.text.units import format_age
from hpcrun.runs.store import RunStore
from hpcrun.views.text import bytes_text, count, fields_of, one_line, text_table

_ANY_AGE = re.compile("0+[dhms]")


def clean(
    runs: list[str] | None = argument(
        "RUN", "Job ids, run ids, names. Default: all runs.", complete=run_name
    ),
    older_than: str | None = option(
        "--older-than AGE",
        "Runs that ended this long ago: 12h, 30d. Default without other choice: 30d.",
    ),
    states: list[str] | None = option("--state STATE", "Runs in these states: failed,completed."),
    keep: int | None = option("--keep N", "Keep the newest N of the chosen runs."),
    everything: bool = flag("--all", "All runs that have ended, however long ago."),
    checkpoints: bool = flag("--checkpoints", "Include runs with checkpoints."),
    yes: bool = flag("--yes -y", "Remove without a question."),
    as_json: JsonOption = False,
) -> Outcomes:
    """Remove the folders of runs that have ended.

    Shows the runs and their size, then asks.
    Without a terminal, --yes is required.
    """
    check_least("--keep", keep, 0)
    if everything and (runs or older_than is not None):
        raise UsageError(
            "--all cannot be combined with RUN or --older-than", hint="leave one of them out"
        )
    wanted = frozenset(parse_states(states or []))
    by_default = older_than is None and not (everything or runs or wanted or keep is not None)
    age_s = DEFAULT_AGE_S if by_default else None
    if older_than is not None:
        if _ANY_AGE.fullmatch(older_than.strip()):
            age_s = 0
        else:
            age_s = read_duration("--older-than", older_than)
    context = make_context()
    context.store.check_dedicated()
    choice = CleanChoice(age_s, wanted, keep or 0, named=bool(runs), checkpoints=checkpoints)
    named = [find_run(name, context.store) for name in runs or []]
    yield note(item.note for item in named)
    ids = list(dict.fromkeys(item.run.run_id for item in named)) or context.store.run_ids()
    result, now_s = get_status(ids, context.ports), context.now_s()
    yield note(one_line(f"hpcrun: {message}") for message in result.damaged)
    if result.away:
        yield note(
            ["hpcrun: the scheduler does not respond; runs that may still be running are kept"]
        )
    plan = plan_clean(result.runs, choice, store=context.store, now_s=now_s)
    if by_default:
        younger = sum(item.status.final for item in result.runs) - len(plan.going)
    else:
        younger = 0
    yield Outcome(lambda: _text(plan, context.store, now_s, younger))
    if not (as_json or plan.going or plan.going_leftovers):
        return
    agreed = yes or (not as_json and can_ask() and confirm(f"Remove {_summary(plan)}?"))
    gone, errors = remove_runs(plan, context.store, now_s=now_s) if agreed else ([], [])
    yield Outcome(
        lambda: [_end(plan, len(gone), agreed=agreed, failed=bool(errors))],
        lambda: _json(plan, removed=agreed and not errors),
        failure=errors[0] if errors else None,
    )


def _text(plan: CleanPlan, store: RunStore, now_s: float, younger: int) -> Iterator[TextPart]:
    """Return the runs that would go; or that there are none, and how many would with --all."""
    yield stderr(_staying_lines(plan))
    if not (plan.going or plan.going_leftovers):
        yield stderr([f"nothing to remove in {store.root}"])
        if younger:
            yield stderr(
                [
                    f"hint: {count(younger, 'run')} ended in the last 30 days: --all, or "
                    "--older-than 7d"
                ]
            )
    if plan.going:
        rows = (
            (
                each.item.run.run_id,
                each.item.status.state,
                format_age(now_s - each.ended_s),
                bytes_text(each.size.total),
                bytes_text(each.size.checkpoints) if each.size.checkpoints else "-",
            )
            for each in plan.going
        )
        headings = ("RUN", "STATE", "ENDED", "SIZE", "CHECKPOINTS")
        yield table(text_table(headings, rows, right=headings[3:], whole=headings[1:]))
    yield stdout(
        f"leftover   {one_line(str(each.leftover.path))}: interrupted while hpcrun created or "
        "removed it, "
        f"{format_age(now_s - each.leftover.changed_s)}, {bytes_text(each.total)}"
        for each in plan.going_leftovers
    )


def _staying_lines(plan: CleanPlan) -> Iterator[str]:
    """Yield the requested runs that stay, with the reasons; runs with checkpoints in one line."""
    held = [each.size.checkpoints for each in plan.staying if each.kept == HAS_CHECKPOINTS]
    kept = [
        (each.item.run.run_id, each.kept) for each in plan.staying if each.kept != HAS_CHECKPOINTS
    ]
    if held:
        which = f"{count(len(held), 'run')} with checkpoints ({bytes_text(sum(held))})"
        kept.append((which, "add --checkpoints to remove them"))
    leftovers = (each.leftover for each in plan.leftovers if each.leftover.kept)
    kept += [(str(each.path), f"{each.kept}; check it by hand") for each in leftovers]
    return (f"kept       {one_line(what)}: {why}" for what, why in kept)


def _summary(plan: CleanPlan) -> str:
    """Return what would be removed, in one line."""
    numbers = ((len(plan.going), "run"), (len(plan.going_leftovers), "leftover folder"))
    text = (
        f"{' and '.join(count(number, noun) for number, noun in numbers if number)}, "
        f"{bytes_text(plan.total)}"
    )
    if plan.checkpoints:
        return f"{text}, of which {bytes_text(plan.checkpoints)} are checkpoints"
    return text


def _end(plan: CleanPlan, gone: int, *, agreed: bool, failed: bool) -> TextPart:
    if not agreed:
        return stderr([f"nothing was removed: {_summary(plan)}; to remove them: --yes"])
    return stdout(
        [f"removed    {gone} of {_summary(plan)}" if failed else f"removed    {_summary(plan)}"]
    )


def _json(plan: CleanPlan, *, removed: bool) -> dict[str, Any]:
    """Return a plan as a JSON document; ``removed``: whether it was carried out."""
    runs = [
        {
            "run_id": each.item.run.run_id,
            "state": each.item.status.state,
            "folder": each.item.folder,
            "ended_s": each.ended_s,
            "bytes": each.size.total,
            "checkpoint_bytes": each.size.checkpoints,
            "why": each.kept,
        }
        for each in (*plan.going, *plan.staying)
    ]
    leftovers = [
        {
            **fields_of(item, "run_id changed_s"),
            "folder": item.path,
            "bytes": each.total,
            "why": item.kept,
        }
        for each in plan.leftovers
        for item in (each.leftover,)
    ]
    return {
        "kind": "clean",
        "removed": removed,
        "bytes": plan.total,
        "checkpoint_bytes": plan.checkpoints,
        "runs": runs[: len(plan.going)],
        "kept": runs[len(plan.going) :],
        "leftovers": [each for each in leftovers if not each["why"]],
        "kept_leftovers": [each for each in leftovers if each["why"]],
    }
