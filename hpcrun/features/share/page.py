"""A run as one HTML page: it contains all that it shows, and loads or runs nothing.

The template cleans, shortens and escapes every value.
"""

from __future__ import annotations

import re
from base64 import b64encode
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from hashlib import sha256
from itertools import groupby
from pathlib import Path
from typing import Any

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

from hpcrun.actions.status.run_status import failed_elements
from hpcrun.explain.ended import Explanation
from hpcrun.features.share import page_rows
from hpcrun.features.share.drawings import (
    COLOURS,
    WIDE,
    Bar,
    Drawing,
    Lane,
    line_chart,
    time_line,
    use_section,
)
from hpcrun.features.share.gather_page import AttemptSpan, SharedRun, SharedText
from hpcrun.features.sweep.compare_elements import SweepTable
from hpcrun.job.job_states import COMPLETED
from hpcrun.job.text.hide_secrets import SecretHider
from hpcrun.job.text.units import format_size, listed
from hpcrun.runs.metric_files import Value
from hpcrun.version import __version__
from hpcrun.views.details_text import recorded_plan
from hpcrun.views.metrics_table import curves_of, value_text
from hpcrun.views.text import clock_text, count, harmless, without_colours

MOST_BYTES = 5_000_000  # bytes of the page: mail servers take ten million
_ROOMS = (1.0, 0.2, 0.04, 0.0)
"""The share of the long texts and tables that is shown: the first with which the page is small
enough.
"""
_LOG_BYTES = 60_000
_SCRIPT_BYTES = 200_000
_DIFF_BYTES = 400_000
_DIFF_LINES = 5_000
_OPEN_DIFF_LINES = 60
_LONGEST_LINE = 2_000
_LONGEST_CELL = 200
_MOST_EVIDENCE = 40
_LONGEST_HEAD = 30
_MOST_FAILED = 20
_MOST_CHARTS = 24
_MOST_VALUES = 100
_MOST_LANES = 40
_MOST_ROWS = 500
_MOST_COLUMNS = 30
_LEGEND = {
    "wait": "pending",
    "run": "running",
    "ok": "completed",
    "again": "requeued or restarted",
    "stop": "cancelled",
    "bad": "failed",
}
_LINE_KINDS = (
    ("+++", "file"),
    ("---", "file"),
    ("diff ", "file"),
    ("@@", "hunk"),
    ("+", "add"),
    ("-", "del"),
)
_BINARY = re.compile(r"^GIT binary patch\n(?:.+\n|\n(?!diff ))*", re.MULTILINE)


class _Cleaner:
    """The filter that makes the text of others fit for the page.

    The page gets no secrets, no control characters, and not the caller's home folder.
    """

    def __init__(self, hider: SecretHider, home: str) -> None:
        self._hider = hider
        self._home: re.Pattern[str] | None = None
        if len(home) > 1:
            self._home = re.compile(rf"{re.escape(home.rstrip('/'))}(?![\w.-])")

    def __call__(self, value: object) -> object:
        """Return a value as text.

        A number stays as it is, and so does what the template itself has made.
        """
        if isinstance(value, Markup | int | float):
            return value
        return self.text(str(value))

    def text(self, text: str) -> str:
        """Return text without what must not be on the page."""
        text = without_colours(harmless(text)).replace("\r", "\n")
        text = self._hider.hide(text.encode("utf-8", "replace").decode())
        return self._home.sub("~", text) if self._home else text

    def short(self, text: str, most: int = _LONGEST_CELL) -> str:
        """Return the beginning of a text, on one line."""
        text = " ".join(self.text(text[: 20 * most]).split())
        return text if len(text) <= most else f"{text[: most - 1]}…"

    def lines(self, text: str) -> str:
        """Return text whose lines have a readable length."""
        return "\n".join(map(_cut, self.text(text).split("\n")))


def _cut(line: str) -> str:
    if len(line) <= _LONGEST_LINE:
        return line
    return f"{line[:_LONGEST_LINE]}… ({len(line)} characters)"


def share_page(shared: SharedRun, hider: SecretHider, home: str) -> bytes:
    """Return the page of a run, without secrets, and with ``~`` for the caller's home.

    The hider counts the secrets.
    """
    clean = _Cleaner(hider, home)
    folder = Path(__file__).parent
    css = folder.joinpath("page.css").read_text("utf-8")
    environment = Environment(
        autoescape=True,
        finalize=clean,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"short": clean.short, "lines": clean.lines}
    template = environment.from_string(folder.joinpath("page.html.j2").read_text("utf-8"))
    digest = b64encode(sha256(css.encode()).digest()).decode()
    for room in _ROOMS:
        text = template.render(
            _parts(shared, clean.lines, room),
            css=Markup(css),
            css_hash=Markup(f"sha256-{digest}"),
            version=__version__,
            notes=_notes(shared, hider),
        )
        content = text.encode("utf-8", "replace")
        if len(content) <= MOST_BYTES:
            break
    return content


def _notes(shared: SharedRun, hider: SecretHider) -> Iterator[str]:
    """Yield the lines at the end of the page, by when all of its secrets are counted."""
    for missing in shared.missing:
        yield f"Not complete: {missing}."
    yield f"Made by hpcrun {__version__} on {page_rows.date_text(shared.now_s)}."
    if hider.count == 1:
        yield "1 value looks like a secret and is hidden: ***"
    elif hider.count:
        yield f"{hider.count} values look like secrets and are hidden: ***"
    yield (
        "~ is the home folder of the person who made this page. The page loads nothing and runs "
        "no program."
    )


def _parts(shared: SharedRun, clean: Callable[[str], str], room: float) -> dict[str, Any]:
    item = shared.item
    run = item.run
    charts, values = _metrics(shared)
    lanes = _lanes(shared)
    timeline = time_line(lanes[:_MOST_LANES]) if lanes else None
    attempts: list[list[object]] = []
    if not item.elements:
        attempts = [_attempt_cells(span) for span in shared.attempts]
    script = None
    if shared.script:
        script = _shown(shared.script, clean, int(_SCRIPT_BYTES * room))
    log_bytes = int(_LOG_BYTES * room)
    logs = []
    for source, end in shared.logs:
        logs.append((source, _shown(end, clean, log_bytes, "before these lines", end=True)))
    return {
        "item": item,
        "run": run,
        "state": "LOST" if item.lost else item.status.state,
        "kind": page_rows.kind_of(item.status),
        "submitted": page_rows.date_text(run.created_s),
        "tiles": page_rows.tiles(shared),
        "cause": _cause(shared.explanation),
        "failed": _failed(shared),
        "facts": page_rows.facts(shared),
        "command": page_rows.command_text(shared.command),
        "program": page_rows.program_text(shared),
        "timeline": timeline,
        "legend": _legend(shared.attempts),
        "lanes_left_out": len(lanes) - _MOST_LANES,
        "attempts": attempts,
        "table": _table(shared.table, int(_MOST_ROWS * room)),
        "charts": charts,
        "values": values[:_MOST_VALUES],
        "values_left_out": len(values) - _MOST_VALUES,
        "use": use_section(shared.use),
        "logs": logs,
        "plan": recorded_plan(run),
        "script": script,
        "code": page_rows.code_rows(shared),
        "diff": _diff(shared.diff, clean, room),
    }


def _attempt_cells(span: AttemptSpan) -> list[object]:
    """Return a row of the table of attempts: number, start, time, nodes, end."""
    return [
        span.attempt.number + 1,
        page_rows.date_text(span.attempt.started_s),
        _ran(span),
        listed(span.nodes, page_rows.MOST_NODES),
        page_rows.ended(span)[1],
    ]


def _cause(explanation: Explanation | None) -> dict[str, Any] | None:
    if explanation is None:
        return None
    heading = "Why it failed" if explanation.item.status.final else "What its ranks do"
    if explanation.item.element is not None:
        heading += f", element {explanation.item.element}"
    blocks: list[tuple[str, str]] = []
    rows: list[tuple[str, str]] = []
    for number, one in enumerate(explanation.evidence):
        head = one.who
        if one.where:
            head += f" ({one.where})"
        if one.note:
            head += f": {one.note}"
        lines = "\n".join(one.lines[:_MOST_EVIDENCE])
        is_short = len(one.lines) == 1 and len(head) < _LONGEST_HEAD
        if number and is_short:
            rows.append((head, lines))
        else:
            blocks.append((head, lines))
    if explanation.fix:
        rows.append(("what to do", explanation.fix))
    unread = "\n".join(explanation.unread)
    if unread:
        rows.append(("not read", unread))
    return {
        "heading": heading,
        "summary": explanation.summary,
        "evidence": blocks,
        "rows": rows,
    }


def _failed(shared: SharedRun) -> list[tuple[str, str]]:
    """Return what happened to each failed element of a sweep, the first of many.

    The result is empty if there are fewer than two: the page explains a single failed element.
    """
    elements = shared.item.elements
    rows: list[tuple[str, str]] = []
    for one in elements:
        cause = one.status.cause
        if cause and one.status.state != COMPLETED and len(rows) < _MOST_FAILED:
            rows.append((page_rows.element_label(one.index, shared), cause))
    if len(rows) < 2:
        return []
    others = len(failed_elements(elements)) - len(rows)
    if others:
        rows.append(("others", f"{others} more did not complete"))
    return rows


def _lanes(shared: SharedRun) -> list[Lane]:
    lanes: list[Lane] = []
    for index, spans in groupby(shared.attempts, key=lambda span: span.element):
        label = "attempts"
        if shared.item.elements:
            label = page_rows.element_label(index, shared)
        lanes.append((label, list(_bars(spans, shared.item.run.created_s))))
    return lanes


def _bars(spans: Iterable[AttemptSpan], before_s: float) -> Iterator[Bar]:
    for span in spans:
        start_s = span.attempt.started_s
        if start_s > before_s:
            title = f"pending for {clock_text(int(start_s - before_s))}"
            yield Bar(before_s, start_s, "wait", title)
        before_s = span.ended_s
        kind, words = page_rows.ended(span)
        title = f"attempt {span.attempt.number + 1}, {_ran(span)}: {words}"
        yield Bar(start_s, before_s, kind, title)


def _ran(span: AttemptSpan) -> str:
    return clock_text(max(0, round(span.ended_s - span.attempt.started_s)))


def _legend(spans: Sequence[AttemptSpan]) -> list[tuple[str, str]]:
    used = {"wait", *(page_rows.ended(span)[0] for span in spans)}
    return [(kind, label) for kind, label in _LEGEND.items() if kind in used]


def _table(table: SweepTable | None, most_rows: int) -> dict[str, Any] | None:
    if table is None:
        return None
    names = table.names[:_MOST_COLUMNS]
    parameters = table.parameters[:_MOST_COLUMNS]
    headings = [("element", True), ("state", False)]
    headings += [(name, False) for name in parameters]
    headings.append(("step", True))
    headings += [(name, True) for name in names]
    rows = []
    for row in table.rows[:most_rows]:
        values = dict(row.parameters)
        cells = [(str(row.index), "number"), (row.ended, page_rows.kind_of(row.status))]
        cells += [(values.get(name, "-"), "") for name in parameters]
        cells.append((value_text(row.step), "number"))
        cells += [(value_text(row.values.get(name)), "number") for name in names]
        rows.append(cells)
    order = f"By {table.ranking.words}." if table.ranking else "No element has a metric."
    return {
        "order": order,
        "chart": _table_chart(table),
        "headings": headings,
        "rows": rows,
        "left_out": len(table.rows) - len(rows),
    }


def _table_chart(table: SweepTable) -> Drawing | None:
    """Return the curves of the best elements, None if no element has a metric to draw."""
    if table.ranking is None:
        return None
    metric = table.ranking.metric
    curves = []
    for row in table.rows:
        points = next(iter(curves_of(row.metrics, metric).values()), [])
        if points:
            label = " ".join(f"{name}={value}" for name, value in row.parameters)
            curves.append((f"{row.index}: {label}", points))
    if not curves:
        return None
    return line_chart(metric, curves[:COLOURS], width=WIDE)


def _metrics(shared: SharedRun) -> tuple[list[tuple[str, Drawing]], list[tuple[str, str]]]:
    """Return the charts, each behind its words, and the values that cannot be drawn."""
    charts: list[tuple[str, Drawing]] = []
    values: list[tuple[str, str]] = []
    metrics = shared.metrics
    if metrics is None:
        return charts, values
    last: dict[str, Value] = {}
    for row in metrics.rows:
        last |= row.values
    for name in metrics.names:
        points = next(iter(curves_of(metrics, name).values()), [])
        if len(points) < 2 or len(charts) >= _MOST_CHARTS:
            values.append((name, value_text(last[name])))
        else:
            charts.append((_chart_words(points, last[name]), line_chart(name, [("", points)])))
    return charts, values


def _chart_words(points: Sequence[tuple[float, float]], last: Value) -> str:
    words = [f"last {value_text(last)} at step {value_text(points[-1][0])}"]
    if isinstance(last, float | int) and last == points[-1][1]:
        for label, end in (("lowest", min), ("highest", max)):
            x, y = end(points, key=lambda point: point[1])
            if y != last:
                words.append(f"{label} {value_text(y)} at step {value_text(x)}")
    return ", ".join(words)


def _shown(
    part: SharedText,
    clean: Callable[[str], str],
    most: int,
    where: str = "more",
    *,
    end: bool = False,
) -> tuple[str, str]:
    """Return the first or last whole lines of a text, and how much is not shown.

    The function cleans the text first, and then cuts the text.
    """
    text = clean(part.text)
    if len(text) <= most:
        shown = text
    elif end:
        shown = text[len(text) - most :].partition("\n")[2]
    else:
        shown = _first(text, most)
    more = part.bytes_left_out + len(text) - len(shown)
    left_out = ""
    if more > 0:
        left_out = f"{format_size(more)} {where} are not shown."
    return shown, left_out


def _first(text: str, most: int) -> str:
    """Return the first whole lines of a text."""
    if len(text) <= most:
        return text
    return text[:most].rpartition("\n")[0]


def _diff(
    diff: SharedText | None, clean: Callable[[str], str], room: float
) -> dict[str, Any] | None:
    if diff is None:
        return None
    text = clean(_BINARY.sub("(a binary file)\n", diff.text)).rstrip("\n")
    lines = _first(text, int(_DIFF_BYTES * room)).split("\n")[: int(_DIFF_LINES * room)]
    parts = []
    for kind, group in groupby(lines, key=_line_kind):
        parts.append((kind, "".join(f"{line}\n" for line in group)))
    more = diff.bytes_left_out + len(text) - sum(len(part) for _, part in parts)
    left_out = ""
    if more > 2:
        left_out = f"{format_size(more)} more are not shown."
    files = sum(line.startswith("diff --git ") for line in text.split("\n"))
    kinds = Counter(_line_kind(line) for line in lines)
    changes = f"{kinds['add']} lines added, {kinds['del']} removed"
    return {
        "summary": f"Changes since the commit: {count(files, 'file')}, {changes}",
        "parts": parts,
        "more": left_out,
        "open": len(lines) <= _OPEN_DIFF_LINES,
    }


def _line_kind(line: str) -> str:
    for start, kind in _LINE_KINDS:
        if line.startswith(start):
            return kind
    return ""
