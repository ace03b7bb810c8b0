"""hpcrun history."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hpcrun.cli.context import Context, make_context
from hpcrun.cli.options import read_duration
from hpcrun.cli.output import JsonOption, Outcome, Outcomes, TextPart, note, printed, stdout, table, verbatim
from hpcrun.errors import PlanError, UsageError, nearest

if TYPE_CHECKING:
    from hpcrun.features.history.accounting import AccountedJob
    from hpcrun.features.history.history import Budget, History

_BY = ("week", "project", "account", "name", "profile", "cluster")


def history(
    by: Annotated[str, typer.Option("--by", metavar="WHAT", help=f"Rows of the table: {', '.join(_BY)}.")] = "week",
    since: Annotated[
        str,
        typer.Option("--since", metavar="TIME", help="Begin this long ago, or on this day: 30d, 8w, 2026-10-01."),
    ] = "12w",
    all_jobs: Annotated[
        bool,
        typer.Option(
            "--all-jobs",
            help="Include your jobs without a run folder, from Slurm's accounting: removed runs, and jobs that "
            "hpcrun did not submit.",
        ),
    ] = False,
    plot: Annotated[
        Path | None,
        typer.Option("--plot", metavar="FILE", help="Draw the table to a PNG, PDF or SVG file.", show_default=False),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace an existing FILE of --plot.")] = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print CSV.")] = False,
    as_json: JsonOption = False,
) -> Outcomes:
    """Show the GPU-hours of your runs, how many of them succeeded, and how long they waited.

    With the causes of failures, and the use of your budget where Slurm has one.
    Success: runs that completed, of those that completed or failed; runs that
    you cancelled do not count. An element of a sweep counts as a run.
    """
    if by not in _BY:
        close = nearest(by, list(_BY))
        raise UsageError(f"--by {by}: no such choice", hint=f"did you mean {close}?" if close else ", ".join(_BY))
    if sum((plot is not None, as_csv, as_json)) > 1:
        raise UsageError("--plot, --csv and --json cannot be combined", hint="choose one")
    if plot is not None:
        _check_figure(plot, force=force)
    from hpcrun.features.history.display import history_json, save_history_figure
    from hpcrun.features.history.history import budgets_of, get_history
    from hpcrun.views.text import one_line

    context = make_context()
    since_s = _since_s(since, context.now_s())
    accounted, accounting = _accounted(context, since_s, wanted=all_jobs)
    result = get_history(context.ports, by=by, since_s=since_s, rules=context.rules, accounted=accounted)
    yield note(_remarks(result))
    if plot is not None:
        save_history_figure(result, plot)
        yield printed([one_line(f"written  {plot}")])
        return
    here = not (as_csv or context.scheduler("slurm").unavailable())
    budgets = budgets_of(context.queue().limits(), result.qos) if here else []
    if all_jobs and result.others:
        accounting = f"{result.others:,} more {'job' if result.others == 1 else 'jobs'} from Slurm's accounting"
    yield Outcome(
        lambda: _text(result, budgets, str(context.store.root), accounting, as_csv=as_csv),
        lambda: history_json(result, budgets),
    )


def _check_figure(path: Path, *, force: bool) -> None:
    """Refuse a file that --plot cannot or must not write, before any work is done."""
    if path.suffix.lower() not in (".png", ".pdf", ".svg"):
        raise UsageError(f"--plot {path}: the name must end with .png, .pdf or .svg", hint="--plot history.pdf")
    if not os.path.lexists(path):
        return
    if not path.is_file():
        raise PlanError(f"{path} is not a file", hint="choose another name with --plot FILE")
    if not force:
        raise PlanError(f"{path} exists", hint="choose another name with --plot FILE, or replace it with --force")


def _text(result: History, budgets: list[Budget], folder: str, accounting: str, *, as_csv: bool) -> Iterator[TextPart]:
    from hpcrun.features.history.display import history_csv, history_tables, summary_lines

    if as_csv:
        yield verbatim(history_csv(result))
        return
    lines = summary_lines(result, budgets, folder, accounting)
    if result.rows:
        yield table(history_tables(result))
    yield stdout(["", *lines] if result.rows else ["no runs on a cluster in this time", *lines])


def _accounted(context: Context, since_s: float, *, wanted: bool) -> tuple[list[AccountedJob], str]:
    """Return the jobs from Slurm's accounting, and what is to be said of it."""
    if not wanted:
        return [], "without removed runs and other jobs: --all-jobs adds them"
    from hpcrun.features.history.accounting import accounted_jobs
    from hpcrun.views.text import one_line

    if reason := context.scheduler("slurm").unavailable():
        return [], f"no more jobs from Slurm's accounting: {reason}"
    jobs, answer = accounted_jobs(since_s, context.env)
    if answer.ok:
        return jobs, "no more jobs in Slurm's accounting"
    return [], one_line(f"no more jobs from Slurm's accounting: {' '.join(answer.words().split())}")


def _remarks(result: History) -> Iterator[str]:
    from hpcrun.features.history.past_jobs import NOT_EXAMINED
    from hpcrun.views.text import count, one_line

    yield from (one_line(f"hpcrun: {message}") for message in result.damaged)
    if result.away:
        yield one_line(f"hpcrun: {result.away.message}; the states are the last known")
    left = sum(each.jobs for each in result.causes if each.cause == NOT_EXAMINED)
    if left:
        yield f"hpcrun: the causes of {count(left, 'failure')} are not examined yet: the next hpcrun history goes on"


def _since_s(text: str, now_s: float) -> float:
    """Return when the history begins, in seconds since the epoch."""
    if not re.match(r"\d{4}-\d\d-", text.strip()):
        return max(0.0, now_s - read_duration("--since", text))
    hint = "--since 30d, --since 8w, --since 2026-10-01"
    try:
        begin_s = datetime.fromisoformat(text.strip()).timestamp()
    except (ValueError, OverflowError, OSError):
        raise UsageError(f"--since {text!r} is neither a length of time nor a day", hint=hint) from None
    if begin_s > now_s:
        raise UsageError(f"--since {text}: lies in the future", hint=hint)
    return max(0.0, begin_s)
