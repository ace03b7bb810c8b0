"""hpcrun history: its options, and the history as tables, CSV, JSON and a figure."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hpcrun.actions.status.past_jobs import NOT_EXAMINED, PastJob
from hpcrun.actions.status.run_filter import filter_words
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
from hpcrun.features.history.accounted_jobs import accounted_jobs
from hpcrun.features.history.history import (
    Budget,
    CauseCount,
    History,
    HistoryRow,
    budgets_of,
    get_history,
)
from hpcrun.job.text.units import format_span
from hpcrun.views.figure import DARK, PAGE, new_figure, paper_style, save_figure, style_of
from hpcrun.views.text import count, csv_text, fields_of, one_line, text_table, written_line

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from rich.console import RenderableType
    from rich.table import Table

_BY = ("week", "project", "account", "name", "profile", "cluster", "agent")
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
_WITHOUT_ACCOUNTING = "without your other jobs: --all-jobs adds them"
_MOST_CAUSES = 10
_MOST_BARS = 20
_LEAST_BARS = 5
"""A figure of fewer bars has room for so many, so that none is as wide as the figure."""
_FIGURE_SUFFIXES = (".png", ".pdf", ".svg")
_COUNTED_ENDS = ("completed", "failed", "cancelled")
_LONGEST_LABEL = 24


def history(
    by: str = option("--by WHAT", f"Rows of the table: {', '.join(_BY)}.", default="week"),
    since: str = option(
        "--since TIME", "Begin this long ago, or on this day: 30d, 8w, 2026-10-01.", default="12w"
    ),
    words: str | None = option(
        "--filter WORDS",
        "Count only runs with all these words in their name, command, --env, note, state or "
        "nodes, and none behind a !.",
    ),
    all_jobs: bool = flag(
        "--all-jobs",
        "Include your jobs without a run folder, from Slurm's accounting, such as jobs that hpcrun "
        "did not submit.",
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
    check_one_of(**{"filter": words, "all-jobs": all_jobs})
    if plot is not None:
        _check_plot(plot, force=force)
    context = make_context()
    since_s = _since_s(since, context.now_s())
    no_slurm = context.scheduler("slurm").unavailable()
    accounted: list[PastJob] = []
    accounting = _WITHOUT_ACCOUNTING
    if all_jobs:
        accounted, accounting = _accounted(context, since_s, no_slurm)
    result = get_history(
        context.ports,
        by=by,
        since_s=since_s,
        rules=context.rules,
        accounted=accounted,
        words=filter_words(words or ""),
    )
    if all_jobs and result.others:
        jobs = "job" if result.others == 1 else "jobs"
        accounting = f"{result.others:,} more {jobs} from Slurm's accounting"
        if not any(job.gpus for job in accounted):
            accounting += ", which lists no GPUs for them"
    yield note(_remarks(result))
    if plot is not None:
        save_history_figure(result, plot)
        yield printed([written_line(plot)])
        return
    budgets: list[Budget] = []
    if not as_csv and not no_slurm:
        budgets = budgets_of(context.queue().limits(), result.qos)
    folder = str(context.store.root)

    def text() -> Iterable[TextPart]:
        if as_csv:
            return [verbatim(history_csv(result))]
        return _text(result, budgets, folder, accounting)

    yield Outcome(text, lambda: history_json(result, budgets))


def _check_plot(plot: Path, *, force: bool) -> None:
    """Check that the figure can be written to this file.

    Raises:
        UsageError: the name has no suffix of a figure.
    """
    if plot.suffix.lower() not in _FIGURE_SUFFIXES:
        raise UsageError(
            f"--plot {plot}: the name must end with .png, .pdf or .svg", hint="--plot history.pdf"
        )
    check_new_file("--plot", plot, force=force)


def _accounted(context: Context, since_s: float, no_slurm: str | None) -> tuple[list[PastJob], str]:
    """Return the jobs from Slurm's accounting, and what to tell about it."""
    if no_slurm:
        return [], f"no more jobs from Slurm's accounting: {no_slurm}"
    jobs, answer = accounted_jobs(since_s, context.now_s(), context.env)
    if answer.ok:
        return jobs, "no more jobs in Slurm's accounting"
    message = " ".join(answer.words().split())
    return [], one_line(f"no more jobs from Slurm's accounting: {message}")


def _remarks(result: History) -> Iterator[str]:
    for message in result.damaged:
        yield one_line(f"hpcrun: {message}")
    if result.away:
        yield one_line(f"hpcrun: {result.away.message}; the states are the last known")
    left = sum(cause.failed for cause in result.causes if cause.cause == NOT_EXAMINED)
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
    day = text.strip()
    hint = "--since 30d, --since 8w, --since 2026-10-01"
    if not re.match(r"\d{4}-\d\d-", day):
        try:
            return max(0.0, now_s - read_duration("--since", text))
        except UsageError as error:
            error.hint = hint
            raise
    try:
        begin_s = datetime.fromisoformat(day).timestamp()
    except (ValueError, OverflowError, OSError):
        message = f"--since {text!r} is neither a length of time nor a day"
        raise UsageError(message, hint=hint) from None
    if begin_s > now_s:
        raise UsageError(f"--since {text}: lies in the future", hint=hint)
    return max(0.0, begin_s)


def _text(
    result: History, budgets: list[Budget], folder: str, accounting: str
) -> Iterator[TextPart]:
    if result.rows:
        yield table(history_tables(result))
        first_line = ""
    else:
        first_line = "no runs on a cluster in this time"
    yield stdout([first_line, *summary_lines(result, budgets, folder, accounting)])


def history_tables(history: History) -> RenderableType:
    """Return the rows, and below them the causes of failure, for a terminal."""
    from rich.console import Group

    rows = _history_table(history)
    if not history.causes:
        return Group(rows)
    return Group(rows, "", _causes_table(history))


def _history_table(history: History) -> Table:
    """Return the rows for a terminal, and their total; the CPU-hours only if there are any."""
    total = history.total
    key = "WEEK FROM" if history.by == "week" else history.by.upper()
    rows = list(history.rows)
    if len(rows) > 1:
        rows.append(total)
    numbers: dict[str, Callable[[HistoryRow], str]] = {
        "ENDED": lambda row: f"{row.ended:,}",
        "SUCCESS": lambda row: percent_text(row.success),
    }
    if total.gpu_hours > 0 or total.cpu_hours == 0:
        numbers["GPU-HOURS"] = lambda row: hours_text(row.gpu_hours)
        numbers["LOST"] = lambda row: hours_text(row.lost_gpu_hours)
    if total.cpu_hours > 0:
        numbers["CPU-HOURS"] = lambda row: hours_text(row.cpu_hours)
    numbers["WAIT"] = lambda row: _wait_text(row.wait_median_s)
    numbers["WAIT 90 %"] = lambda row: _wait_text(row.wait_90_percent_s)
    cells = []
    for row in rows:
        texts = [number_text(row) for number_text in numbers.values()]
        cells.append([_key_text(row), *texts])
    return text_table((key, *numbers), cells, right=tuple(numbers), whole=tuple(numbers))


def _causes_table(history: History) -> Table:
    """Return the most frequent causes of failure for a terminal."""
    shown = list(history.causes[:_MOST_CAUSES])
    others = history.causes[_MOST_CAUSES:]
    if others:
        name = f"others, {count(len(others), 'cause')}"
        failed = sum(cause.failed for cause in others)
        gpu_hours = sum(cause.gpu_hours for cause in others)
        shown.append(CauseCount(name, failed, gpu_hours))
    rows = []
    for cause in shown:
        rows.append([cause.cause, f"{cause.failed:,}", hours_text(cause.gpu_hours)])
    numbers = ("FAILED", "GPU-HOURS")
    return text_table(("CAUSE OF FAILURE", *numbers), rows, right=numbers, whole=numbers)


def summary_lines(
    history: History, budgets: Sequence[Budget], folder: str, accounting: str
) -> Iterator[str]:
    """Yield what the failures have cost, the budgets, and what the numbers rest on."""
    total = history.total
    if total.lost_gpu_hours:
        lost = hours_text(total.lost_gpu_hours)
        share = percent_text(total.lost_gpu_hours / total.gpu_hours)
        yield f"lost     {lost} GPU-hours ({share}) in attempts that failed"
    for budget in budgets:
        used = hours_text(budget.used_hours)
        allowed = hours_text(budget.allowed_hours)
        share = percent_text(budget.share)
        use = f"{used} of {allowed} {budget.unit} used ({share})"
        yield one_line(f"budget   {budget.holder}: {use}, by {budget.whose}")
    runs = "run" if history.runs == 1 else "runs"
    since = f"{datetime.fromtimestamp(history.since_s):%Y-%m-%d}"
    yield one_line(f"counted  {history.runs:,} {runs} in {folder} since {since}")
    if history.removed:
        yield f"         {history.removed:,} of them removed by hpcrun clean"
    if history.running:
        yield f"         {history.running:,} running, counted until now"
    if history.unknown:
        yield f"         {count(history.unknown, 'job')} with an unknown end"
    if history.local:
        yield f"         {count(history.local, 'run')} on this machine not counted"
    yield f"         {accounting}"


def history_csv(history: History) -> str:
    """Return the rows as CSV, without the total."""
    return csv_text(FIELDS, [row_json(row).values() for row in history.rows])


def history_json(history: History, budgets: Sequence[Budget]) -> dict[str, Any]:
    """Return the history as a JSON document."""
    return {
        "kind": "history",
        **fields_of(history, "by since_s until_s runs jobs others running unknown local removed"),
        "rows": [row_json(row) for row in history.rows],
        "total": row_json(history.total),
        "causes": [asdict(cause) for cause in history.causes],
        "budgets": [asdict(budget) for budget in budgets],
    }


def row_json(row: HistoryRow) -> dict[str, Any]:
    """Return a row with exact numbers."""
    return {
        "group": row.key,
        "week_start": row.week and row.week.isoformat(),
        "ended": row.ended,
        **{end: row.ends[end] for end in _COUNTED_ENDS},
        **fields_of(
            row, "success gpu_hours lost_gpu_hours cpu_hours wait_median_s wait_90_percent_s"
        ),
    }


def hours_text(hours: float) -> str:
    """Return hours as people need them: two digits behind the point below 1, none from 10 on."""
    if hours == 0:
        return "0"
    if hours < 0.005:
        return "< 0.01"
    if hours < 0.995:
        return f"{hours:.2f}"
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
    if percent == 0 and share > 0:
        return "< 1 %"
    return f"{percent} %"


def _wait_text(seconds: float | None) -> str:
    return "-" if seconds is None else format_span(seconds)


def _key_text(row: HistoryRow) -> str:
    return row.week.isoformat() if row.week else row.key


def save_history_figure(history: History, path: Path) -> None:
    """Draw the GPU-hours and the success rate of each row into a file.

    The GPU-hours show the lost part, and the success rate is below them.

    Raises:
        PlanError: there is no run in this time.
    """
    if not history.rows:
        message = "there is nothing to draw: no run on a cluster in this time"
        raise PlanError(message, hint="--since 1000d looks further back")
    with paper_style("--plot FILE"):
        save_figure(history_figure(history), path)


def history_figure(history: History) -> Figure:
    """Return the figure of a history that has rows."""
    if history.by == "week":
        rows = history.rows[-_MOST_BARS:]
    else:
        rows = history.rows[:_MOST_BARS]
    figure = new_figure(PAGE, 4.6)
    upper, lower = figure.subplots(2, sharex=True, height_ratios=(2, 1))
    has_gpus = bool(history.total.gpu_hours)
    if has_gpus:
        _draw_gpu_hours(upper, rows)
        figure.legend(loc="outside upper center", ncols=2)
    else:
        cpu_hours = [row.cpu_hours for row in rows]
        upper.bar(range(len(rows)), cpu_hours, color=style_of(0)["color"])
    upper.set_ylabel("GPU-hours" if has_gpus else "CPU-hours")
    middle = (len(rows) - 1) / 2
    half = max(len(rows), _LEAST_BARS) / 2
    upper.set_xlim(middle - half, middle + half)
    _draw_success(lower, rows, linestyle="-" if history.by == "week" else "none")
    labels = [_label(row) for row in rows]
    places = list(range(len(rows)))
    lower.set_xticks(places, labels, rotation=45, ha="right", rotation_mode="anchor")
    return figure


def _draw_gpu_hours(axes: Axes, rows: Sequence[HistoryRow]) -> None:
    """Draw the GPU-hours of each row, and above them those that were lost."""
    places = range(len(rows))
    useful = [row.gpu_hours - row.lost_gpu_hours for row in rows]
    lost = [row.lost_gpu_hours for row in rows]
    axes.bar(places, useful, color=style_of(0)["color"], label="not lost")
    axes.bar(
        places,
        lost,
        bottom=useful,
        label="lost in failed attempts",
        color=style_of(1)["color"],
        hatch="//",
        edgecolor="white",
    )


def _draw_success(axes: Axes, rows: Sequence[HistoryRow], linestyle: str) -> None:
    """Draw the success rate of each row that has one."""
    places = []
    percent = []
    for place, row in enumerate(rows):
        if row.success is not None:
            places.append(place)
            percent.append(100 * row.success)
    axes.plot(places, percent, marker="o", color=DARK, linestyle=linestyle)
    axes.set_ylim(-5, 105)
    axes.set_ylabel("success in %")


def _label(row: HistoryRow) -> str:
    """Return the name of a bar."""
    if row.week:
        text = f"{row.week:%d %b}"
    else:
        text = one_line(row.key)
    if len(text) > _LONGEST_LABEL:
        text = f"…{text[1 - _LONGEST_LABEL :]}"
    return text
