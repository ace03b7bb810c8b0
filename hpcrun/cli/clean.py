"""hpcrun clean."""

from __future__ import annotations

import re
from collections.abc import Collection, Generator, Iterator
from dataclasses import replace
from typing import Any

from hpcrun.actions.runs.clean_runs import (
    DEFAULT_AGE_S,
    HAS_CHECKPOINTS,
    Candidate,
    CleanChoice,
    CleanLeftover,
    CleanPlan,
    plan_clean,
    remove_runs,
    still_going,
)
from hpcrun.actions.runs.find import find_run
from hpcrun.actions.status.run_status import StatusResult
from hpcrun.actions.status.status_query import get_status
from hpcrun.cli.complete import run_name
from hpcrun.cli.confirm import confirm
from hpcrun.cli.context import Context, make_context
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
    has_choice = everything or bool(runs or wanted) or keep is not None
    age_s = _age_s(older_than, has_choice=has_choice)
    context = make_context()
    store = context.store
    store.check_dedicated()
    choice = CleanChoice(age_s, wanted, keep or 0, named=bool(runs), checkpoints=checkpoints)
    result = yield from _statuses(runs or [], context)
    now_s = context.now_s()
    plan = plan_clean(result.runs, choice, store=store, now_s=now_s)
    younger = 0
    if older_than is None and not has_choice:
        chosen = len(plan.going) + len(plan.staying)
        younger = sum(item.status.final for item in result.runs) - chosen
    yield Outcome(lambda: _text(plan, store, now_s, younger))
    if as_json or not _is_empty(plan):
        yield _carry_out(plan, choice, context, yes=yes, as_json=as_json)


def _statuses(names: list[str], context: Context) -> Generator[Outcome, None, StatusResult]:
    """Return the statuses of the named runs, or of all, and print remarks on them."""
    named = [find_run(name, context.store) for name in names]
    yield note(item.note for item in named)
    run_ids = list(dict.fromkeys(item.run.run_id for item in named))
    result = get_status(run_ids or context.store.run_ids(), context.ports)
    yield note(one_line(f"hpcrun: {message}") for message in result.damaged)
    if result.away:
        yield note(
            ["hpcrun: the scheduler does not respond; runs that may still be running are kept"]
        )
    return result


def _age_s(older_than: str | None, *, has_choice: bool) -> int | None:
    """Return how long ago the runs ended, at least; None for no limit.

    Args:
        older_than: the value of --older-than.
        has_choice: whether another option chooses runs; otherwise the default age counts.
    """
    if older_than is None:
        return None if has_choice else DEFAULT_AGE_S
    if _ANY_AGE.fullmatch(older_than.strip()):
        return 0
    return read_duration("--older-than", older_than)


def _is_empty(plan: CleanPlan) -> bool:
    return not plan.going and not plan.going_leftovers


def _carry_out(
    plan: CleanPlan, choice: CleanChoice, context: Context, *, yes: bool, as_json: bool
) -> Outcome:
    """Remove what is to go, if the user agrees, and return what was removed."""
    agreed = yes
    kept: list[str] = []
    if not yes and not as_json and can_ask():
        agreed = confirm(f"Remove {_summary(plan)}?")
        if agreed:
            plan = still_going(plan, choice, context.ports)
            kept = list(_staying_lines(replace(plan, leftovers=())))
            if _is_empty(plan):
                return Outcome(lambda: [stderr([*kept, "nothing was removed"])])
    if not agreed:
        remark = f"nothing was removed: {_summary(plan)}; to remove them: --yes"
        return Outcome(lambda: [stderr([remark])], lambda: _json(plan, [], removed=False))
    gone, errors = remove_runs(plan, context.ports)
    line = f"removed    {_summary(plan)}"
    if errors:
        line = f"removed    {len(gone)} of {_summary(plan)}"
    return Outcome(
        lambda: [stderr(kept), stdout([line])],
        lambda: _json(plan, gone, removed=not errors),
        failure=errors[0] if errors else None,
    )


def _text(plan: CleanPlan, store: RunStore, now_s: float, younger: int) -> Iterator[TextPart]:
    """Yield the runs that would go; or that there are none, and how many would with --all."""
    yield stderr(_staying_lines(plan))
    if _is_empty(plan):
        yield stderr([f"nothing to remove in {store.root}"])
        if younger:
            runs = count(younger, "run")
            yield stderr([f"hint: {runs} ended in the last 30 days: --all, or --older-than 7d"])
    if plan.going:
        headings = ("RUN", "STATE", "ENDED", "SIZE", "CHECKPOINTS")
        rows = [_row(candidate, now_s) for candidate in plan.going]
        yield table(text_table(headings, rows, right=headings[3:], whole=headings[1:]))
    for sized in plan.going_leftovers:
        path = one_line(str(sized.leftover.path))
        age = format_age(now_s - sized.leftover.changed_s)
        line = f"leftover   {path}: interrupted while hpcrun created or removed it, {age}, "
        yield stdout([line + bytes_text(sized.total)])


def _row(candidate: Candidate, now_s: float) -> tuple[str, ...]:
    size = candidate.size
    return (
        candidate.item.run.run_id,
        candidate.item.status.state,
        format_age(now_s - candidate.ended_s),
        bytes_text(size.total),
        bytes_text(size.checkpoints) if size.checkpoints else "-",
    )


def _staying_lines(plan: CleanPlan) -> Iterator[str]:
    """Yield the requested runs that stay, with the reasons; runs with checkpoints in one line."""
    checkpoint_bytes = []
    for candidate in plan.staying:
        if candidate.kept == HAS_CHECKPOINTS:
            checkpoint_bytes.append(candidate.size.checkpoints)
        else:
            yield f"kept       {one_line(candidate.item.run.run_id)}: {candidate.kept}"
    if checkpoint_bytes:
        runs = count(len(checkpoint_bytes), "run")
        size = bytes_text(sum(checkpoint_bytes))
        yield f"kept       {runs} with checkpoints ({size}): add --checkpoints to remove them"
    for sized in plan.leftovers:
        leftover = sized.leftover
        if leftover.kept:
            path = one_line(str(leftover.path))
            yield f"kept       {path}: {leftover.kept}; check it by hand"


def _summary(plan: CleanPlan) -> str:
    """Return what would be removed, in one line."""
    parts = []
    if plan.going:
        parts.append(count(len(plan.going), "run"))
    if plan.going_leftovers:
        parts.append(count(len(plan.going_leftovers), "leftover folder"))
    text = f"{' and '.join(parts)}, {bytes_text(plan.total)}"
    if plan.checkpoints:
        text += f", of which {bytes_text(plan.checkpoints)} are checkpoints"
    return text


def _json(plan: CleanPlan, gone: Collection[Candidate], *, removed: bool) -> dict[str, Any]:
    """Return a plan as a JSON document.

    Args:
        plan: the plan.
        gone: its runs that were removed.
        removed: whether the whole plan was carried out.
    """
    leftovers = []
    kept_leftovers = []
    for sized in plan.leftovers:
        if sized.leftover.kept:
            kept_leftovers.append(_leftover_json(sized))
        else:
            leftovers.append(_leftover_json(sized))
    return {
        "kind": "clean",
        "removed": removed,
        "bytes": plan.total,
        "checkpoint_bytes": plan.checkpoints,
        "runs": [_run_json(candidate, removed=candidate in gone) for candidate in plan.going],
        "kept": [_run_json(candidate, removed=False) for candidate in plan.staying],
        "leftovers": leftovers,
        "kept_leftovers": kept_leftovers,
    }


def _run_json(candidate: Candidate, *, removed: bool) -> dict[str, Any]:
    return {
        "run_id": candidate.item.run.run_id,
        "state": candidate.item.status.state,
        "folder": candidate.item.folder,
        "ended_s": candidate.ended_s,
        "bytes": candidate.size.total,
        "checkpoint_bytes": candidate.size.checkpoints,
        "why": candidate.kept,
        "removed": removed,
    }


def _leftover_json(sized: CleanLeftover) -> dict[str, Any]:
    leftover = sized.leftover
    return {
        **fields_of(leftover, "run_id changed_s"),
        "folder": leftover.path,
        "bytes": sized.total,
        "why": leftover.kept,
    }
