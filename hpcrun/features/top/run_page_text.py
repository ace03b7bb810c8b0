"""The sections of a run's page in ``hpcrun top``, as lines of text.

All is readable without colours. Pure.
"""

from __future__ import annotations

import math
import textwrap
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from rich.text import Text

from hpcrun.actions.runs.run_metrics import Metrics, choose_metrics
from hpcrun.actions.status.decide_status import ended_text
from hpcrun.actions.status.run_status import RunStatus
from hpcrun.cli.log_output import terminal_text
from hpcrun.features.top.ranks import RankRow, RankState
from hpcrun.job import job_states as state
from hpcrun.job.text.units import format_rate, format_size, format_span
from hpcrun.runs.attempt import Attempt
from hpcrun.views.details_text import detail_lines, recorded_plan
from hpcrun.views.metrics_table import braille_plot, curves_of, value_text
from hpcrun.views.status_table import COLOURS
from hpcrun.views.text import clock_text, count, labelled, one_line, size_text, visible

if TYPE_CHECKING:
    from hpcrun.runs.record import Run
    from hpcrun.runs.use_samples import NodeUse

_BARS = "▁▂▃▄▅▆▇█"
_TEXT_LEAST = 24  # the least columns for the words beside a bar


def title_text(item: RunStatus, now_s: float) -> Text:
    """Return the state, the name, the job, its size and its time."""
    run, status = item.run, item.status
    colour = COLOURS.get(status.state, "red" if status.final else "")
    text = Text(status.state, style=f"bold {colour}".strip())
    elapsed_s = status.elapsed_s
    if elapsed_s is not None and status.state == state.RUNNING and not item.stale:
        elapsed_s += max(0, int(now_s - status.asked_s))
    limit_s = status.limit_s or run.walltime_s
    times = clock_text(elapsed_s) + (f" of {clock_text(limit_s)}" if limit_s else "")
    text.append(f"  {visible(run.name)}", "bold")
    text.append(f"  job {visible(run.job_id)}" if run.job_id else "  no job")
    text.append(f"  {size_text(run)}, {count(run.world_size, 'rank')}  {times}")
    return text


# --- ranks


def rank_heading(attempt: Attempt, rows: Sequence[RankRow], shown: int, now_s: float) -> str:
    """Return a line above the ranks: the attempt, when the attempt began, and a count of states.

    The count says how many ranks are in each state.
    """
    if shown < len(rows):
        filtered = f"{shown} of {count(len(rows), 'rank')} shown; "
    else:
        filtered = ""
    began = (
        f"attempt {attempt.number + 1} began {format_span(max(0.0, now_s - attempt.started_s))} ago"
    )
    kinds = [row.kind for row in rows]
    listed = ", ".join(f"{kinds.count(kind)} {kind.words}" for kind in RankState if kind in kinds)
    if len(set(kinds)) == 1:
        listed = f"{count(len(rows), 'rank')} {kinds[0].words}"
    return f"{began}; {filtered}{listed}"


class RankColumns:
    """The widths of the columns of some ranks."""

    def __init__(self, rows: Sequence[RankRow], run: Run) -> None:
        self._names = {row.rank: run.rank_name(row.rank).removeprefix("rank ") for row in rows}
        self._rank = max(map(len, ("RANK", *self._names.values())))
        self._state = max([5, *(len(row.state) for row in rows)])
        self._node = min(20, max([4, *(len(visible(row.node or "-")) for row in rows)]))

    def heading(self) -> str:
        """Return the names of the columns."""
        return (
            f"{'RANK':>{self._rank}}  {'STATE':<{self._state}}  {'NODE':<{self._node}}  "
            f"{'OUTPUT':>8}  LAST LINE"
        )

    def line(self, row: RankRow, now_s: float) -> Text:
        """Return one rank; its last line goes on beyond the screen."""
        if row.wrote_s is None:
            age = "-"
        else:
            age = f"{format_span(max(0.0, now_s - row.wrote_s))}"
        text = Text(f"{self._names[row.rank]:>{self._rank}}  ")
        text.append(f"{row.state:<{self._state}}", row.kind.style)
        node = visible(row.node or "-")
        if len(node) > self._node:
            node = f"{node[: self._node - 1]}…"
        text.append(f"  {node:<{self._node}}  {age:>8}  ")
        return text.append(visible(terminal_text(row.line, colours=False)))


# --- attempts


def attempt_lines(
    attempts: Sequence[Attempt],
    created_s: float,
    now_s: float,
    width: int,
    *,
    is_over: bool,
    ending: str = "",
) -> list[Text]:
    """Return a run's attempts as bars over real time, the oldest first.

    Each bar has the reason of its attempt's end.

    Args:
        attempts: the attempts, the oldest first.
        created_s: when the run was submitted, in seconds since the epoch; the time until its first
            start is waiting time.
        now_s: the present time, in seconds since the epoch.
        width: the width of the terminal, in columns.
        is_over: whether the job has ended; otherwise the last attempt runs.
        ending: how Slurm says that the job ended, for a last attempt that left no record.
    """
    if not attempts:
        return [
            Text(
                f"No attempt has started; submitted {format_span(max(0.0, now_s - created_s))} ago."
            )
        ]
    ends = [attempt.exit.ended_s if attempt.exit else attempt.alive_s for attempt in attempts]
    ends[-1] = ends[-1] if is_over else now_s
    spans = [
        (each.started_s, max(each.started_s, end)) for each, end in zip(attempts, ends, strict=True)
    ]
    first = min(created_s, spans[0][0])
    last = max(end for _, end in spans)
    bar = max(10, width - _TEXT_LEAST - 6 if width >= 100 else width - 2 * _TEXT_LEAST + 8)
    several_days = time.localtime(first)[:3] != time.localtime(last)[:3]
    form = "%d %b %H:%M" if several_days else "%H:%M:%S"
    left, right = (time.strftime(form, time.localtime(at)) for at in (first, last))
    axis = (f"{left}{right.rjust(bar - len(left))}", f"├{'─' * (bar - 2)}┤")
    lines = [Text(f"    {line}", "dim") for line in axis]
    before = first
    for attempt, (begin, end) in zip(attempts, spans, strict=True):
        drawn = _bar(before, begin, end, first, last, bar)
        is_last = attempt is attempts[-1]
        if is_last and not is_over:
            how = "runs"
        elif is_last and ending and attempt.exit is None:
            how = ending
        else:
            how = _end_text(attempt)
        words = f"{_length(end - begin)}, {how}"
        head, *more = textwrap.wrap(words, max(10, width - bar - 6), break_on_hyphens=False) or [""]
        line = Text(f"{attempt.number + 1:>3} ").append(drawn, "bold").append(f"  {head}")
        lines += [line, *(Text(f"{'':{bar + 6}}{part}") for part in more)]
        before = end
    ran = sum(end - begin for begin, end in spans)
    waited = sum(
        max(0.0, begin - end)
        for (_, end), (begin, _) in zip([(0.0, first), *spans], spans, strict=False)
    )
    total = f"{count(len(attempts), 'attempt')}: ran {_length(ran)}, waited {_length(waited)}"
    return [*lines, Text(), Text(f"█ running  · waiting     {total}")]


def attempt_of(line: Text) -> int | None:
    """Return the number of the attempt that a line of ``attempt_lines`` begins, else None."""
    number = line.plain[:4].strip()
    return int(number) - 1 if number.isdecimal() else None


def _bar(before: float, begin: float, end: float, first: float, last: float, width: int) -> str:
    """Return dots from ``before`` to ``begin`` and a bar from there to ``end``.

    The bar is at least one column wide.
    """

    def column(at: float) -> int:
        if last > first:
            return round((at - first) / (last - first) * width)
        return 0

    left = min(width - 1, column(begin))
    right = max(left + 1, column(end))
    wait = min(left, column(before))
    return (" " * wait + "·" * (left - wait) + "█" * (right - left)).ljust(width)


def _end_text(attempt: Attempt) -> str:
    if attempt.exit and attempt.exit.nodes:
        nodes = f" ({', '.join(attempt.exit.nodes)})"
    else:
        nodes = ""
    text, place, _ = ended_text(attempt).partition(", restarted in place")
    if attempt.exit and not attempt.exit.reason and attempt.exit.status == 0:
        text = "completed"
    again = place.replace("in place", "in the allocation") or (
        ", requeued" if attempt.exit and attempt.exit.again else ""
    )
    return visible(f"{text}{nodes}{again}")


def _length(seconds: float) -> str:
    return clock_text(max(0, int(seconds)))


# --- metrics


def metric_lines(metrics: Metrics, chosen: int, width: int, height: int) -> list[Text]:
    """Return a curve of one metric over the steps, and below the curve all metrics.

    Each metric has its last value.
    """
    names = metrics.names
    if not names:
        return []
    name = names[chosen % len(names)]
    curves = curves_of(choose_metrics(metrics, [name]), name)
    if len(names) > 1:
        which = f" ({chosen % len(names) + 1} of {len(names)}: m next, M before)"
    else:
        which = ""
    lines = [Text(f"{one_line(name)} by step{which}{_begins(metrics)}", "bold")]
    listed = len(names) + 2 if len(names) > 1 else 0
    if curves:
        rows = max(5, min(20, height - 3 - min(listed, 6)))
        lines += map(Text, braille_plot(list(curves.values()), width, rows))
    else:
        lines.append(Text("no values that are finite numbers"))
    if len(names) == 1:
        return [*lines, Text(), _metric_row(metrics, name, 0, width)]
    wide = min(24, max(len(one_line(each)) for each in names))
    lines.append(Text())
    for each in names:
        row = Text("> " if each == name else "  ").append_text(
            _metric_row(metrics, each, wide, width - 2)
        )
        lines.append(row)
    return lines


def _begins(metrics: Metrics) -> str:
    """Return the steps at which attempts begin: ``; attempt 2 from step 120``."""
    first: dict[int, float] = {}
    for row in metrics.rows:
        if row.step is not None:
            first.setdefault(row.attempt, row.step)
    later = [
        f"attempt {number + 1} from step {step:g}"
        for number, step in sorted(first.items())
        if number
    ]
    return f"; {', '.join(later[-3:])}" if later else ""


def _metric_row(metrics: Metrics, name: str, wide: int, width: int) -> Text:
    values = [
        value for row in metrics.rows if isinstance(value := row.values.get(name), float | int)
    ]
    finite = [float(value) for value in values if math.isfinite(value)]
    last = next((row.values[name] for row in reversed(metrics.rows) if name in row.values), None)
    numbers = f"last {value_text(last)}" + (
        f", least {value_text(min(finite))}, most {value_text(max(finite))}" if finite else ""
    )
    label = f"{one_line(name):<{wide}}  " if wide else ""
    room = width - len(label) - 50
    if room >= 8 and wide:
        curve = f"{sparkline(finite, room):<{room}}  "
    else:
        curve = ""
    return Text(f"{label}{curve}{numbers}")


# --- use of the hardware


def use_lines(nodes: Sequence[NodeUse], width: int) -> list[Text]:
    """Return the use of GPUs, CPUs, memory and network of each node over time."""
    lines: list[Text] = []
    room = max(8, width - 58)
    for node in nodes:
        if not node.samples:
            continue
        first = node.started or node.samples[0].time
        last = node.samples[-1].time
        clock = time.strftime("%H:%M:%S", time.localtime(last))
        lines += [
            *([Text()] if lines else []),
            Text(f"{visible(node.node)}: {_length(last - first)} until {clock}", "bold"),
        ]
        lines += [
            Text(f"  {label:<8} {sparkline(values, room, 0.0, top):<{room}}  {words}")
            for label, values, top, words in _use_rows(node)
        ]
    return lines


def _use_rows(node: NodeUse) -> Iterator[tuple[str, list[float], float | None, str]]:
    """Yield what a node used: label, values, the most that there is, and the numbers in words."""
    samples = node.samples
    for index in sorted({gpu.index for sample in samples for gpu in sample.gpus}):
        gpus = [gpu for sample in samples for gpu in sample.gpus if gpu.index == index]
        busy, last = [gpu.busy for gpu in gpus], gpus[-1]
        memory = format_size(last.memory) + (
            f" of {format_size(last.memory_total)}" if last.memory_total else ""
        )
        power = f", {last.power:.0f} W" if last.power is not None else ""
        yield (
            f"GPU {index}",
            busy,
            1.0,
            f"{last.busy:.0%} busy (mean {sum(busy) / len(busy):.0%}), {memory}{power}",
        )
    cpus = [sample.cpus for sample in samples]
    of = f" of {node.cpus}" if node.cpus else ""
    yield "CPUs", cpus, node.cpus, f"{cpus[-1]:.1f}{of} busy (mean {sum(cpus) / len(cpus):.1f})"
    memories = [float(sample.memory) for sample in samples]
    if node.memory_limit:
        limit = f" of {format_size(node.memory_limit)}"
    else:
        limit = ""
    most = format_size(int(max(memories)))
    yield (
        "memory",
        memories,
        node.memory_limit,
        f"{format_size(int(memories[-1]))}{limit} (most {most})",
    )
    rates = {
        "network": [sample.network for sample in samples],
        "RDMA": [sample.rdma for sample in samples if sample.rdma is not None],
    }
    for label, values in rates.items():
        if values:
            yield (
                label,
                values,
                None,
                f"{format_rate(values[-1])} (most {format_rate(max(values))})",
            )


def sparkline(
    values: Sequence[float], width: int, low: float | None = None, high: float | None = None
) -> str:
    """Return values as a row of bars, at most ``width`` columns.

    Each bar is the mean of the values at its place. ``low`` and ``high`` are the values of the
    lowest and the highest bar. Where one of them is None, the bar takes the lowest or highest of
    the means.
    """
    finite = [value for value in values if math.isfinite(value)]
    if not finite or width < 1:
        return ""
    columns = min(width, len(finite))
    means = []
    for column in range(columns):
        part = finite[column * len(finite) // columns : (column + 1) * len(finite) // columns]
        means.append(math.fsum(part) / len(part))
    least = min(means) if low is None else low
    most = max(means) if high is None or not high > least else high
    # the means of equal values differ in their last digit
    if not most - least > 1e-9 * max(abs(most), abs(least)):
        return _BARS[0] * columns
    places = (min(1.0, max(0.0, (mean - least) / (most - least))) for mean in means)
    return "".join(_BARS[min(len(_BARS) - 1, int(place * len(_BARS)))] for place in places)


# --- script and plan


def plan_lines(item: RunStatus, submit_line: str, width: int) -> list[Text]:
    """Return the command that submits the same run, its resources, and its folder.

    The lines also tell the run's code and relations.
    """
    run = item.run
    lines = [Text(visible(line)) for line in submit_line.splitlines()]
    lines += [Text(), Text("resources", "bold")]
    for label, words in recorded_plan(run):
        for number, line in enumerate(words.split("\n")):
            lines += map(Text, labelled("" if number else f"  {label}", one_line(line), 15, width))
    lines += [Text(), Text(f"run {visible(run.run_id)}", "bold")]
    origin = [
        (
            "submitted",
            time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(run.created_s)) + f" on {run.host}",
        ),
        *([("from", run.cwd)] if run.cwd else []),
        ("profile", run.profile),
    ]
    return [*lines, *map(Text, detail_lines(item, width, origin)[1:])]
