"""The sections of a run's page in ``hpcrun top``, as lines of text.

All is readable without colours. Pure.
"""

from __future__ import annotations

import math
import textwrap
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rich.text import Text

from hpcrun.actions.runs.run_metrics import Metrics, choose_metrics
from hpcrun.actions.status.decide_status import why_ended
from hpcrun.actions.status.run_status import RunStatus
from hpcrun.cli.log_output import terminal_text
from hpcrun.features.top.ranks import RankRow, RankState
from hpcrun.job import job_states as state
from hpcrun.job.text.units import format_rate, format_size, format_span
from hpcrun.runs.attempt import RESTART, Attempt
from hpcrun.views.details_text import detail_lines, recorded_plan
from hpcrun.views.metrics_table import braille_plot, curves_of, value_text
from hpcrun.views.status_table import COLOURS
from hpcrun.views.text import clock_text, count, labelled, one_line, size_and_ranks, visible

if TYPE_CHECKING:
    from hpcrun.runs.record import Run
    from hpcrun.runs.use_samples import GpuUse, NodeUse

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
    times = clock_text(elapsed_s)
    if limit_s:
        times += f" of {clock_text(limit_s)}"
    text.append(f"  {visible(run.name)}", "bold")
    job = f"job {visible(run.job_id)}" if run.job_id else "no job"
    text.append(f"  {job}")
    text.append(f"  {size_and_ranks(run)}  {times}")
    return text


# --- ranks


def rank_heading(attempt: Attempt, rows: Sequence[RankRow], shown: int, now_s: float) -> str:
    """Return a line above the ranks: the attempt, when the attempt began, and a count of states.

    The count says how many ranks are in each state.
    """
    ranks = count(len(rows), "rank")
    age = format_span(max(0.0, now_s - attempt.started_s))
    text = f"attempt {attempt.number + 1} began {age} ago; "
    if shown < len(rows):
        text += f"{shown} of {ranks} shown; "
    numbers = Counter(row.kind for row in rows)
    if len(numbers) == 1:
        return text + f"{ranks} {rows[0].kind.words}"
    present = [kind for kind in RankState if kind in numbers]
    return text + ", ".join(f"{numbers[kind]} {kind.words}" for kind in present)


class RankColumns:
    """The widths of the columns of some ranks."""

    def __init__(self, rows: Sequence[RankRow], run: Run) -> None:
        self._names: dict[int, str] = {}
        for row in rows:
            self._names[row.rank] = run.rank_name(row.rank).removeprefix("rank ")
        nodes = [visible(row.node or "-") for row in rows]
        self._rank = _widest(["RANK", *self._names.values()])
        self._state = _widest(["STATE", *(row.state for row in rows)])
        self._node = min(20, _widest(["NODE", *nodes]))

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
            age = format_span(max(0.0, now_s - row.wrote_s))
        text = Text(f"{self._names[row.rank]:>{self._rank}}  ")
        text.append(f"{row.state:<{self._state}}", row.kind.style)
        node = visible(row.node or "-")
        if len(node) > self._node:
            node = f"{node[: self._node - 1]}…"
        text.append(f"  {node:<{self._node}}  {age:>8}  ")
        return text.append(visible(terminal_text(row.line, colours=False)))


def _widest(cells: Iterable[str]) -> int:
    return max(len(cell) for cell in cells)


# --- attempts


@dataclass(frozen=True, slots=True)
class _AttemptTime:
    """When an attempt ran, in seconds since the epoch; until its start, the run waited."""

    wait_s: float  # when the wait for the attempt began
    start_s: float
    end_s: float


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
        age = format_span(max(0.0, now_s - created_s))
        return [Text(f"No attempt has started; submitted {age} ago.")]
    times = _attempt_times(attempts, created_s, None if is_over else now_s)
    first_s = times[0].wait_s
    last_s = max(each.end_s for each in times)
    if width >= 100:
        room = width - _TEXT_LEAST - 6
    else:
        room = width - 2 * _TEXT_LEAST + 8
    bar = max(10, room)
    lines = _axis(first_s, last_s, bar)
    for attempt, period in zip(attempts, times, strict=True):
        is_last = attempt is attempts[-1]
        if is_last and not is_over:
            how = "runs"
        elif is_last and ending and attempt.exit is None:
            how = ending
        else:
            how = _end_text(attempt)
        words = f"{_length(period.end_s - period.start_s)}, {how}"
        wrapped = textwrap.wrap(words, max(10, width - bar - 6), break_on_hyphens=False)
        line = Text(f"{attempt.number + 1:>3} ")
        line.append(_bar(period, first_s, last_s, bar), "bold")
        line.append(f"  {wrapped[0]}")
        lines.append(line)
        lines += [Text(f"{'':{bar + 6}}{part}") for part in wrapped[1:]]
    ran_s = sum(each.end_s - each.start_s for each in times)
    waited_s = sum(max(0.0, each.start_s - each.wait_s) for each in times)
    total = f"{count(len(attempts), 'attempt')}: ran {_length(ran_s)}, waited {_length(waited_s)}"
    return [*lines, Text(), Text(f"█ running  · waiting     {total}")]


def _attempt_times(
    attempts: Sequence[Attempt], created_s: float, now_s: float | None
) -> list[_AttemptTime]:
    """Return when each attempt ran; ``now_s`` ends the last one, and is None if the job is over."""
    times = []
    wait_s = min(created_s, attempts[0].started_s)
    for attempt in attempts:
        if now_s is not None and attempt is attempts[-1]:
            end_s = now_s
        else:
            end_s = attempt.exit.ended_s if attempt.exit else attempt.alive_s
        end_s = max(attempt.started_s, end_s)
        times.append(_AttemptTime(wait_s, attempt.started_s, end_s))
        wait_s = end_s
    return times


def _axis(first_s: float, last_s: float, width: int) -> list[Text]:
    """Return the two lines above the bars: the first and the last time, and a ruler."""
    first = time.localtime(first_s)
    last = time.localtime(last_s)
    several_days = first[:3] != last[:3]
    form = "%d %b %H:%M" if several_days else "%H:%M:%S"
    left = time.strftime(form, first)
    right = time.strftime(form, last).rjust(width - len(left))
    return [Text(f"    {left}{right}", "dim"), Text(f"    ├{'─' * (width - 2)}┤", "dim")]


def attempt_of(line: Text) -> int | None:
    """Return the number of the attempt that a line of ``attempt_lines`` begins, else None."""
    number = line.plain[:4].strip()
    return int(number) - 1 if number.isdecimal() else None


def _bar(period: _AttemptTime, first_s: float, last_s: float, width: int) -> str:
    """Return an attempt as dots for the wait before its start, and a bar from there to its end.

    The bar is at least one column wide.
    """

    def column(at_s: float) -> int:
        if last_s > first_s:
            return round((at_s - first_s) / (last_s - first_s) * width)
        return 0

    left = min(width - 1, column(period.start_s))
    right = max(left + 1, column(period.end_s))
    wait = min(left, column(period.wait_s))
    return (" " * wait + "·" * (left - wait) + "█" * (right - left)).ljust(width)


def _end_text(attempt: Attempt) -> str:
    """Return how an attempt ended, on which nodes, and whether the job goes on after it."""
    end = attempt.exit
    text = why_ended(attempt)
    if end is None:
        return visible(text)
    if not end.reason and end.status == 0:
        text = "completed"
    if end.nodes:
        text += f" ({', '.join(end.nodes)})"
    if end.how == RESTART:
        text += ", restarted in the allocation"
    elif end.again:
        text += ", requeued"
    return visible(text)


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
    place = chosen % len(names)
    name = names[place]
    heading = f"{one_line(name)} by step"
    listed = 0  # lines for the list of metrics
    if len(names) > 1:
        heading += f" ({place + 1} of {len(names)}: m next, M before)"
        listed = len(names) + 2
    lines = [Text(heading + _begins(metrics), "bold")]
    curves = curves_of(choose_metrics(metrics, [name]), name)
    if curves:
        rows = max(5, min(20, height - 3 - min(listed, 6)))
        plot = braille_plot(list(curves.values()), width, rows)
        lines += [Text(line) for line in plot]
    else:
        lines.append(Text("no values that are finite numbers"))
    lines.append(Text())
    if len(names) == 1:
        return [*lines, Text(_numbers_text(metrics, name))]
    longest = max(len(one_line(each)) for each in names)
    for each in names:
        mark = ">" if each == name else " "
        row = _metric_row(metrics, each, min(24, longest), width - 2)
        lines.append(Text(f"{mark} {row}"))
    return lines


def _begins(metrics: Metrics) -> str:
    """Return the steps at which attempts begin: ``; attempt 2 from step 120``."""
    first: dict[int, float] = {}
    for row in metrics.rows:
        if row.step is not None:
            first.setdefault(row.attempt, row.step)
    later = []
    for number, step in sorted(first.items()):
        if number:
            later.append(f"attempt {number + 1} from step {step:g}")
    return f"; {', '.join(later[-3:])}" if later else ""


def _metric_row(metrics: Metrics, name: str, label_width: int, width: int) -> str:
    """Return the name of a metric, a small curve if there is room, and its numbers."""
    label = f"{one_line(name):<{label_width}}  "
    room = width - len(label) - 50
    curve = ""
    if room >= 8:
        curve = f"{sparkline(_finite_values(metrics, name), room):<{room}}  "
    return f"{label}{curve}{_numbers_text(metrics, name)}"


def _numbers_text(metrics: Metrics, name: str) -> str:
    values = [row.values[name] for row in metrics.rows if name in row.values]
    text = f"last {value_text(values[-1] if values else None)}"
    finite = _finite_values(metrics, name)
    if finite:
        text += f", least {value_text(min(finite))}, most {value_text(max(finite))}"
    return text


def _finite_values(metrics: Metrics, name: str) -> list[float]:
    finite = []
    for row in metrics.rows:
        value = row.values.get(name)
        if isinstance(value, float | int) and math.isfinite(value):
            finite.append(float(value))
    return finite


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
        if lines:
            lines.append(Text())
        heading = f"{visible(node.node)}: {_length(last - first)} until {clock}"
        lines.append(Text(heading, "bold"))
        for row in _use_rows(node):
            curve = sparkline(row.values, room, 0.0, row.most)
            lines.append(Text(f"  {row.label:<8} {curve:<{room}}  {row.text}"))
    return lines


@dataclass(frozen=True, slots=True)
class _UseRow:
    """The use of one kind of hardware over time."""

    label: str
    values: Sequence[float]
    most: float | None  # the highest value that there can be; None if unknown
    text: str  # the numbers in words


def _use_rows(node: NodeUse) -> Iterator[_UseRow]:
    """Yield what a node used: of each GPU, of its CPUs, its memory and its networks."""
    yield from _gpu_rows(node)
    cpus = [sample.cpus for sample in node.samples]
    text = f"{cpus[-1]:.1f}"
    if node.cpus:
        text += f" of {node.cpus}"
    yield _UseRow("CPUs", cpus, node.cpus, f"{text} busy (mean {_mean(cpus):.1f})")
    memories = [sample.memory for sample in node.samples]
    text = format_size(memories[-1])
    if node.memory_limit:
        text += f" of {format_size(node.memory_limit)}"
    text += f" (most {format_size(max(memories))})"
    yield _UseRow("memory", memories, node.memory_limit, text)
    networks = [sample.network for sample in node.samples]
    yield _UseRow("network", networks, None, _rates_text(networks))
    rdma = [sample.rdma for sample in node.samples if sample.rdma is not None]
    if rdma:
        yield _UseRow("RDMA", rdma, None, _rates_text(rdma))


def _gpu_rows(node: NodeUse) -> Iterator[_UseRow]:
    """Yield the use of each GPU of a node."""
    uses: dict[int, list[GpuUse]] = {}
    for sample in node.samples:
        for gpu in sample.gpus:
            uses.setdefault(gpu.index, []).append(gpu)
    for index, gpus in sorted(uses.items()):
        last = gpus[-1]
        busy = [gpu.busy for gpu in gpus]
        text = f"{last.busy:.0%} busy (mean {_mean(busy):.0%}), {format_size(last.memory)}"
        if last.memory_total:
            text += f" of {format_size(last.memory_total)}"
        if last.power is not None:
            text += f", {last.power:.0f} W"
        yield _UseRow(f"GPU {index}", busy, 1.0, text)


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _rates_text(rates: Sequence[float]) -> str:
    return f"{format_rate(rates[-1])} (most {format_rate(max(rates))})"


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
    most = max(means)
    if high is not None and high > least:
        most = high
    # the means of equal values differ in their last digit
    if not most - least > 1e-9 * max(abs(most), abs(least)):
        return _BARS[0] * columns
    bars = ""
    for mean in means:
        share = min(1.0, max(0.0, (mean - least) / (most - least)))
        bars += _BARS[min(len(_BARS) - 1, int(share * len(_BARS)))]
    return bars


# --- script and plan


def plan_lines(item: RunStatus, submit_line: str, width: int) -> list[Text]:
    """Return the command that submits the same run, its resources, and its folder.

    The lines also tell the run's code and relations.
    """
    run = item.run
    lines = [Text(visible(line)) for line in submit_line.splitlines()]
    lines += [Text(), Text("resources", "bold")]
    for label, words in recorded_plan(run):
        indented = f"  {label}"
        for line in words.split("\n"):
            lines += [Text(each) for each in labelled(indented, one_line(line), 15, width)]
            indented = ""
    lines += [Text(), Text(f"run {visible(run.run_id)}", "bold")]
    submitted = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(run.created_s))
    origin = [("submitted", f"{submitted} on {run.host}")]
    if run.cwd:
        origin.append(("from", run.cwd))
    origin.append(("profile", run.profile))
    # the first line is the run's id, which stands above
    lines += [Text(line) for line in detail_lines(item, width, origin)[1:]]
    return lines
