"""hpcrun history: its options, and the history as tables, CSV, JSON and a figure."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hpcrun.cli.context import Context, make_context
from hpcrun.cli.options import check_new_file, check_one_of, flag, option, read_duration
from hpcrun.cli.output import (
    JsonOption,
    Outcome,
    Outcomes,
    TextPart,
    note,
    printed,
    stdout,
    table,
    verbatim,
)
from hpcrun.errors import PlanError, UsageError, did_you_mean
from hpcrun.features.history.history import Budget, History, HistoryRow, budgets_of, get_history
from hpcrun.features.history.past_jobs import NOT_EXAMINED, PastJob, accounted_jobs
from hpcrun.job.text.units import format_span
from hpcrun.views.figure import DARK, PAGE, new_figure, paper_style, save_figure, style_of
from hpcrun.views.text import count, csv_text, fields_of, one_line, text_table

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from rich.console import RenderableType
    from rich.table import Table

_BY = ("week", "project", "account", "name", "profile", "cluster")
FIELDS = (
    "group",
    "week_start",
    "ended",
    "completed",
    "failed",
    "cancelled",
    "success",
    "gpu_hours",
    "lost_gpu_hours",
    "cpu_hours",
    "wait_median_s",
    "wait_90_percent_s",
)
"""The columns of --csv and the fields of a row in --json: never rename or remove one; add at the
end.
"""
_WITHOUT_ACCOUNTING = "without removed runs and other jobs: --all-jobs adds them"
_MOST_CAUSES = 10
_MOST_BARS = 20
_LEAST_BARS = 5
"""A figure of fewer bars has room for so many, so that none is as wide as the figure."""


def history(
    by: str = option("--by WHAT", f"Rows of the table: {', '.join(_BY)}.", default="week"),
    since: str = option(
        "--since TIME", "Begin this long ago, or on this day: 30d, 8w, 2026-10-01.", default="12w"
    ),
    all_jobs: bool = flag(
        "--all-jobs",
        "Include your jobs without a run folder, from Slurm's accounting: removed runs, and jobs "
        "that hpcrun did not "
        "submit.",
    ),
    plot: Path | None = option("--plot FILE", "Draw the table to a PNG, PDF or SVG file."),
    force: bool = flag("--force", "Replace an existing FILE of --plot."),
    as_csv: bool = flag("--csv", "Print CSV."),
    as_json: JsonOption = False,
) -> Outcomes:
    """Show the GPU-hours of your runs, how many of them succeeded, and how long they waited.

    With the causes of failures, and the use of your budget where Slurm has one.
    Success: runs that completed, of those that completed or failed; runs that
    you cancelled do not count. An element of a sweep counts as a run.
    """
    if by not in _BY:
        raise UsageError(f"--by {by}: no such choice", hint=did_you_mean(by, _BY, ", ".join(_BY)))
    check_one_of(plot=plot, csv=as_csv, json=as_json)
    if plot is not None:
        if plot.suffix.lower() not in (".png", ".pdf", ".svg"):
            raise UsageError(
                f"--plot {plot}: the name must end with .png, .pdf or .svg",
                hint="--plot history.pdf",
            )
        check_new_file("--plot", plot, force=force)
    context = make_context()
    since_s = _since_s(since, context.now_s())
    no_slurm = context.scheduler("slurm").unavailable()
    accounted, accounting = (
        _accounted(context, since_s, no_slurm) if all_jobs else ([], _WITHOUT_ACCOUNTING)
    )
    result = get_history(
        context.ports, by=by, since_s=since_s, rules=context.rules, accounted=accounted
    )
    yield note(_remarks(result))
    if plot is not None:
        save_history_figure(result, plot)
        yield printed([one_line(f"written  {plot}")])
        return
    if as_csv or no_slurm:
        budgets = []
    else:
        budgets = budgets_of(context.queue().limits(), result.qos)
    if all_jobs and result.others:
        accounting = (
            f"{result.others:,} more {'job' if result.others == 1 else 'jobs'} from "
            "Slurm's accounting"
        )
    folder = str(context.store.root)
    yield Outcome(
        lambda: (
            [verbatim(history_csv(result))]
            if as_csv
            else _text(result, budgets, folder, accounting)
        ),
        lambda: history_json(result, budgets),
    )


def _accounted(context: Context, since_s: float, no_slurm: str | None) -> tuple[list[PastJob], str]:
    """Return the jobs from Slurm's accounting, and what to tell about it."""
    if no_slurm:
        return [], f"no more jobs from Slurm's accounting: {no_slurm}"
    jobs, answer = accounted_jobs(since_s, context.now_s(), context.env)
    if answer.ok:
        return jobs, "no more jobs in Slurm's accounting"
    return [], one_line(f"no more jobs from Slurm's accounting: {' '.join(answer.words().split())}")


def _remarks(result: History) -> Iterator[str]:
    yield from (one_line(f"hpcrun: {message}") for message in result.damaged)
    if result.away:
        yield one_line(f"hpcrun: {result.away.message}; the states are the last known")
    left = sum(jobs for cause, jobs, _ in result.causes if cause == NOT_EXAMINED)
    if left:
        yield (
            f"hpcrun: the causes of {count(left, 'failure')} are not examined yet: the next "
            "hpcrun history goes on"
        )


def _since_s(text: str, now_s: float) -> float:
    """Return when the history begins, in seconds since the epoch.

    Raises:
        UsageError: the text is neither a length of time nor a day, or the day lies in the future.
    """
    if not re.match(r"\d{4}-\d\d-", text.strip()):
        return max(0.0, now_s - read_duration("--since", text))
    hint = "--since 30d, --since 8w, --since 2026-10-01"
    try:
        begin_s = datetime.fromisoformat(text.strip()).timestamp()
    except (ValueError, OverflowError, OSError):
        raise UsageError(
            f"--since {text!r} is neither a length of time nor a day", hint=hint
        ) from None
    if begin_s > now_s:
        raise UsageError(f"--since {text}: lies in the future", hint=hint)
    return max(0.0, begin_s)


def _text(
    result: History, budgets: list[Budget], folder: str, accounting: str
) -> Iterator[TextPart]:
    lines = summary_lines(result, budgets, folder, accounting)
    if result.rows:
        yield table(history_tables(result))
    yield stdout(["", *lines] if result.rows else ["no runs on a cluster in this time", *lines])


def history_tables(history: History) -> RenderableType:
    """Return the rows, and below them the causes of failure, for a terminal."""
    from rich.console import Group

    return Group(_history_table(history), *(("", _causes_table(history)) if history.causes else ()))


def _history_table(history: History) -> Table:
    """Return the rows for a terminal, and their total; the CPU-hours only if there are any."""
    has_cpus = history.total.cpu_hours > 0
    has_gpus = history.total.gpu_hours > 0 or history.total.cpu_hours == 0
    key = "WEEK FROM" if history.by == "week" else history.by.upper()
    rows = [*history.rows, *([history.total] if len(history.rows) > 1 else [])]
    numbers: dict[str, Callable[[HistoryRow], str]] = {
        "ENDED": lambda group: f"{group.ended:,}",
        "SUCCESS": lambda group: percent_text(group.success),
        **({"GPU-HOURS": lambda group: hours_text(group.gpu_hours)} if has_gpus else {}),
        **({"LOST": lambda group: hours_text(group.lost_gpu_hours)} if has_gpus else {}),
        **({"CPU-HOURS": lambda group: hours_text(group.cpu_hours)} if has_cpus else {}),
        "WAIT": lambda group: _wait_text(group.wait_median_s),
        "WAIT 90 %": lambda group: _wait_text(group.wait_90_percent_s),
    }
    cells = ([_key_text(group), *(text(group) for text in numbers.values())] for group in rows)
    return text_table((key, *numbers), cells, right=tuple(numbers), whole=tuple(numbers))


def _causes_table(history: History) -> Table:
    """Return the most frequent causes of failure for a terminal."""
    shown = list(history.causes[:_MOST_CAUSES])
    others = history.causes[_MOST_CAUSES:]
    if others:
        _, jobs, gpu_hours = zip(*others, strict=True)
        shown.append((f"others, {count(len(others), 'cause')}", sum(jobs), sum(gpu_hours)))
    rows = ([cause, f"{jobs:,}", hours_text(gpu_hours)] for cause, jobs, gpu_hours in shown)
    numbers = ("FAILED", "GPU-HOURS")
    return text_table(("CAUSE OF FAILURE", *numbers), rows, right=numbers, whole=numbers)


def summary_lines(
    history: History, budgets: Sequence[Budget], folder: str, accounting: str
) -> Iterator[str]:
    """Yield what the failures have cost, the budgets, and what the numbers rest on."""
    total, since = history.total, f"{datetime.fromtimestamp(history.since_s):%Y-%m-%d}"
    if total.lost_gpu_hours:
        share = percent_text(total.lost_gpu_hours / total.gpu_hours)
        yield (
            f"lost     {hours_text(total.lost_gpu_hours)} GPU-hours ({share}) in attempts that "
            "failed"
        )
    for budget in budgets:
        yield one_line(
            f"budget   {budget.holder}: {hours_text(budget.used_hours)} of "
            f"{hours_text(budget.allowed_hours)} "
            f"{budget.unit} used ({percent_text(budget.share)}), by {budget.whose}"
        )
    left_out = [
        f"{history.running:,} running, counted until now" if history.running else "",
        f"{count(history.unknown, 'job')} with an unknown end" if history.unknown else "",
        f"{count(history.local, 'run')} on this machine not counted" if history.local else "",
    ]
    yield one_line(
        f"counted  {history.runs:,} {'run' if history.runs == 1 else 'runs'} in {folder} since "
        f"{since}"
    )
    yield from (f"         {text}" for text in left_out if text)
    yield f"         {accounting}"


def history_csv(history: History) -> str:
    """Return the rows as CSV, without the total."""
    return csv_text(FIELDS, (row_json(group).values() for group in history.rows))


def history_json(history: History, budgets: Sequence[Budget]) -> dict[str, Any]:
    """Return the history as a JSON document."""
    return {
        "kind": "history",
        **fields_of(history, "by since_s until_s runs jobs others running unknown local"),
        "rows": [row_json(group) for group in history.rows],
        "total": row_json(history.total),
        "causes": [
            dict(zip(("cause", "failed", "gpu_hours"), each, strict=True))
            for each in history.causes
        ],
        "budgets": [asdict(each) for each in budgets],
    }


def row_json(group: HistoryRow) -> dict[str, Any]:
    """Return a row with exact numbers."""
    return {
        "group": group.key,
        "week_start": group.week and group.week.isoformat(),
        "ended": group.ended,
        **{end: group.ends[end] for end in ("completed", "failed", "cancelled")},
        **fields_of(
            group, "success gpu_hours lost_gpu_hours cpu_hours wait_median_s wait_90_percent_s"
        ),
    }


def hours_text(hours: float) -> str:
    """Return hours as people need them: one digit behind the point below ten, none above."""
    if hours == 0:
        return "0"
    if hours < 0.05:
        return "< 0.1"
    if hours < 9.95:
        return f"{hours:.1f}"
    return f"{hours:,.0f}"


def percent_text(share: float | None) -> str:
    """Return a part of 1 in whole per cent.

    The text is 100 % only if the part is all, and 0 % only if the part is nothing.
    """
    if share is None:
        return "-"
    percent = round(100 * share)
    if percent >= 100 and share < 1:
        return "> 99 %"
    return "< 1 %" if percent == 0 and share > 0 else f"{percent} %"


def _wait_text(seconds: float | None) -> str:
    return "-" if seconds is None else format_span(seconds)


def _key_text(group: HistoryRow) -> str:
    return group.week.isoformat() if group.week else group.key


def save_history_figure(history: History, path: Path) -> None:
    """Draw the GPU-hours and the success rate of each row into a file.

    The GPU-hours show the lost part, and the success rate is below them.

    Raises:
        PlanError: there is no run in this time.
    """
    if not history.rows:
        raise PlanError(
            "there is nothing to draw: no run in this time", hint="--since 1000d looks further back"
        )
    with paper_style("--plot FILE"):
        save_figure(history_figure(history), path)


def history_figure(history: History) -> Figure:
    """Return the figure of a history that has rows."""
    if history.by == "week":
        groups = history.rows[-_MOST_BARS:]
    else:
        groups = history.rows[:_MOST_BARS]
    figure = new_figure(PAGE, 4.6)
    colours = [style_of(number)["color"] for number in range(2)]
    upper, lower = figure.subplots(2, sharex=True, height_ratios=(2, 1))
    places = range(len(groups))
    useful = [group.gpu_hours - group.lost_gpu_hours for group in groups]
    lost = [group.lost_gpu_hours for group in groups]
    if history.total.gpu_hours:
        upper.bar(places, useful, color=colours[0], label="not lost")
        upper.bar(
            places,
            lost,
            bottom=useful,
            label="lost in failed attempts",
            color=colours[1],
            hatch="//",
            edgecolor="white",
        )
        figure.legend(loc="outside upper center", ncols=2)
    else:
        upper.bar(places, [group.cpu_hours for group in groups], color=colours[0])
    upper.set_ylabel("GPU-hours" if history.total.gpu_hours else "CPU-hours")
    middle = (len(groups) - 1) / 2
    half = max(len(groups), _LEAST_BARS) / 2
    upper.set_xlim(middle - half, middle + half)
    rated = [
        (place, 100 * group.success)
        for place, group in enumerate(groups)
        if group.success is not None
    ]
    lower.plot(
        *zip(*rated, strict=True) if rated else ((), ()),
        marker="o",
        color=DARK,
        linestyle="-" if history.by == "week" else "none",
    )
    lower.set_ylim(-5, 105)
    lower.set_ylabel("success in %")
    labels = [_label(group) for group in groups]
    lower.set_xticks(list(places), labels, rotation=45, ha="right", rotation_mode="anchor")
    return figure


def _label(group: HistoryRow) -> str:
    """Return the name of a bar."""
    if group.week:
        text = f"{group.week:%d %b}"
    else:
        text = one_line(_key_text(group))
    return text if len(text) <= 24 else f"…{text[-23:]}"
