"""The history: tables, CSV, JSON, and a figure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hpcrun.errors import PlanError
from hpcrun.features.history.groups import CauseCount, HistoryRow
from hpcrun.features.history.history import Budget, History
from hpcrun.job.units import format_span
from hpcrun.views.text import count, csv_text, one_line, text_table

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from rich.console import RenderableType
    from rich.table import Table

FIELDS = (
    "group", "week_start", "ended", "completed", "failed", "cancelled", "success", "gpu_hours", "lost_gpu_hours",
    "cpu_hours", "wait_median_s", "wait_90_percent_s",
)  # fmt: skip
"""The columns of --csv and the fields of a row in --json: never rename or remove one; add at the end."""
_HEADINGS = {"week": "WEEK FROM", "project": "PROJECT", "account": "ACCOUNT", "name": "NAME", "profile": "PROFILE",
             "cluster": "CLUSTER"}  # fmt: skip
_MOST_CAUSES, _MOST_BARS = 10, 20
_LEAST_BARS = 5
"""A figure of fewer bars has room for so many, so that none is as wide as the figure."""


def history_tables(history: History) -> RenderableType:
    """Return the rows, and below them the causes of failure, for a terminal."""
    from rich.console import Group

    return Group(_history_table(history), *(("", _causes_table(history)) if history.causes else ()))


def _history_table(history: History) -> Table:
    """Return the rows for a terminal, and their total; the CPU-hours only if there are any."""
    has_cpus, has_gpus = history.total.cpu_s > 0, history.total.gpu_s > 0 or history.total.cpu_s == 0
    key = _HEADINGS[history.by]
    rows = [*history.rows, *([history.total] if len(history.rows) > 1 else [])]
    numbers: dict[str, Callable[[HistoryRow], str]] = {
        "ENDED": lambda group: f"{group.ended:,}",
        "SUCCESS": lambda group: percent_text(group.success),
        **({"GPU-HOURS": lambda group: hours_text(group.gpu_hours)} if has_gpus else {}),
        **({"LOST": lambda group: hours_text(group.lost_gpu_hours)} if has_gpus else {}),
        **({"CPU-HOURS": lambda group: hours_text(group.cpu_hours)} if has_cpus else {}),
        "WAIT": lambda group: _wait_text(group.median_wait_s),
        "WAIT 90 %": lambda group: _wait_text(group.long_wait_s),
    }
    cells = ([_key_text(group, history), *(text(group) for text in numbers.values())] for group in rows)
    return text_table((key, *numbers), cells, right=tuple(numbers), whole=tuple(numbers))


def _causes_table(history: History) -> Table:
    """Return the most frequent causes of failure for a terminal."""
    # one more instead of a row that says that there is one more
    most = _MOST_CAUSES if len(history.causes) > _MOST_CAUSES + 1 else _MOST_CAUSES + 1
    shown, others = list(history.causes[:most]), history.causes[most:]
    if others:
        jobs, gpu_hours = sum(each.jobs for each in others), sum(each.gpu_hours for each in others)
        shown.append(CauseCount(f"others, {count(len(others), 'cause')}", jobs, gpu_hours))
    rows = ([each.cause, f"{each.jobs:,}", hours_text(each.gpu_hours)] for each in shown)
    numbers = ("FAILED", "GPU-HOURS")
    return text_table(("CAUSE OF FAILURE", *numbers), rows, right=numbers, whole=numbers)


def summary_lines(history: History, budgets: Sequence[Budget], folder: str, accounting: str) -> Iterator[str]:
    """Yield what the failures have cost, the budgets, and what the numbers rest on.

    Args:
        folder: the runs folder.
        accounting: what is to be said of Slurm's accounting.
    """
    total, since = history.total, f"{datetime.fromtimestamp(history.since_s):%Y-%m-%d}"
    if total.lost_gpu_s:
        share = percent_text(total.lost_gpu_s / total.gpu_s)
        yield f"lost     {hours_text(total.lost_gpu_hours)} GPU-hours ({share}) in attempts that failed"
    for budget in budgets:
        yield one_line(
            f"budget   {budget.holder}: {hours_text(budget.used_hours)} of {hours_text(budget.allowed_hours)} "
            f"{budget.unit} used ({percent_text(budget.share)}), by {budget.whose}"
        )
    left_out = [
        f"{history.running:,} running, counted until now" if history.running else "",
        f"{count(history.unknown, 'job')} with an unknown end" if history.unknown else "",
        f"{count(history.local, 'run')} on this machine not counted" if history.local else "",
    ]
    yield one_line(f"counted  {history.runs:,} {'run' if history.runs == 1 else 'runs'} in {folder} since {since}")
    yield from (f"         {text}" for text in left_out if text)
    yield f"         {accounting}"


def history_csv(history: History) -> str:
    """Return the rows as CSV, without the total."""
    return csv_text(FIELDS, (row_json(group).values() for group in history.rows))


def history_json(history: History, budgets: Sequence[Budget]) -> dict[str, Any]:
    """Return the history as a JSON document."""
    plain = ("by", "since_s", "until_s", "runs", "jobs", "others", "running", "unknown", "local")
    return {
        "kind": "history",
        **{name: getattr(history, name) for name in plain},
        "rows": [row_json(group) for group in history.rows],
        "total": row_json(history.total),
        "causes": [{"cause": each.cause, "failed": each.jobs, "gpu_hours": each.gpu_hours} for each in history.causes],
        "budgets": [
            {"holder": each.holder, "resource": each.resource, "whose": each.whose, "used_hours": each.used_hours,
             "allowed_hours": each.allowed_hours} for each in budgets
        ],
    }  # fmt: skip


def row_json(group: HistoryRow) -> dict[str, Any]:
    """Return a row with exact numbers."""
    return {
        "group": group.key,
        "week_start": group.week and group.week.isoformat(),
        "ended": group.ended,
        **{end: group.ends[end] for end in ("completed", "failed", "cancelled")},
        "success": group.success,
        "gpu_hours": group.gpu_hours,
        "lost_gpu_hours": group.lost_gpu_hours,
        "cpu_hours": group.cpu_hours,
        "wait_median_s": group.median_wait_s,
        "wait_90_percent_s": group.long_wait_s,
    }


def hours_text(hours: float) -> str:
    """Return hours as people need them: one digit behind the point below ten, none above."""
    if hours == 0:
        return "0"
    return "< 0.1" if hours < 0.05 else f"{hours:.1f}" if hours < 9.95 else f"{hours:,.0f}"


def percent_text(share: float | None) -> str:
    """Return a part of 1 in whole per cent; 100 % only if it is all, and 0 % only if it is nothing."""
    if share is None:
        return "-"
    percent = round(100 * share)
    if percent >= 100 and share < 1:
        return "> 99 %"
    return "< 1 %" if percent == 0 and share > 0 else f"{percent} %"


def _wait_text(seconds: float | None) -> str:
    return "-" if seconds is None else format_span(seconds)


def _key_text(group: HistoryRow, history: History) -> str:
    if group.week:
        return group.week.isoformat()
    home = str(Path.home())
    if history.by == "project" and group.key.startswith(f"{home}/"):
        return f"~{group.key[len(home) :]}"
    return group.key


def save_history_figure(history: History, path: Path) -> None:
    """Draw the GPU-hours of each row, with the lost part, and below them the success rate, into a file."""
    from hpcrun.views.figure import paper_style, save_figure

    if not history.rows:
        raise PlanError("there is nothing to draw: no run in this time", hint="--since 1000d looks further back")
    with paper_style("--plot FILE"):
        save_figure(history_figure(history), path)


def history_figure(history: History) -> Figure:
    """Return the figure of a history that has rows."""
    from hpcrun.views.figure import DARK, PAGE, new_figure, style_of

    groups = history.rows[-_MOST_BARS:] if history.by == "week" else history.rows[:_MOST_BARS]
    figure = new_figure(PAGE, 4.6)
    colours = [style_of(number)["color"] for number in range(2)]
    upper, lower = figure.subplots(2, sharex=True, height_ratios=(2, 1))
    places = range(len(groups))
    useful = [group.gpu_hours - group.lost_gpu_hours for group in groups]
    lost = [group.lost_gpu_hours for group in groups]
    if history.total.gpu_s:
        upper.bar(places, useful, color=colours[0], label="not lost")
        upper.bar(
            places,
            lost,
            bottom=useful,
            color=colours[1],
            hatch="//",
            edgecolor="white",
            label="lost in failed attempts",
        )
        figure.legend(loc="outside upper center", ncols=2)
    else:
        upper.bar(places, [group.cpu_hours for group in groups], color=colours[0])
    upper.set_ylabel("GPU-hours" if history.total.gpu_s else "CPU-hours")
    middle, half = (len(groups) - 1) / 2, max(len(groups), _LEAST_BARS) / 2
    upper.set_xlim(middle - half, middle + half)
    rated = [(place, 100 * group.success) for place, group in enumerate(groups) if group.success is not None]
    lower.plot(*zip(*rated, strict=True) if rated else ((), ()), marker="o", color=DARK,
               linestyle="-" if history.by == "week" else "none")  # fmt: skip
    lower.set_ylim(-5, 105)
    lower.set_ylabel("success in %")
    labels = [_label(group, history) for group in groups]
    lower.set_xticks(list(places), labels, rotation=45, ha="right", rotation_mode="anchor")
    return figure


def _label(group: HistoryRow, history: History) -> str:
    """Return the name of a bar."""
    text = f"{group.week:%d %b}" if group.week else one_line(_key_text(group, history))
    return text if len(text) <= 24 else f"…{text[-23:]}"
