"""A run as one HTML page: it contains all that it shows, and loads or runs nothing."""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256
from itertools import groupby
from pathlib import Path
from typing import Any

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

from hpcrun.actions.status.run_status import failed_elements
from hpcrun.explain.ended import Explanation
from hpcrun.features.share import facts
from hpcrun.features.share.drawings import (
    COLOURS,
    WIDE,
    Curve,
    Lane,
    Span,
    line_chart,
    number_text,
    time_line,
    use_section,
)
from hpcrun.features.share.share import AttemptSpan, LogEnd, SharedRun, SharedText
from hpcrun.features.sweep.sweep import SweepTable
from hpcrun.job import state
from hpcrun.job.secret_hider import SecretHider
from hpcrun.job.units import format_size, listed
from hpcrun.runs.metrics import Value
from hpcrun.version import __version__
from hpcrun.views.details import recorded_plan
from hpcrun.views.metrics import curves_of, value_text
from hpcrun.views.text import count, harmless, without_colours

MOST_BYTES = 5_000_000  # bytes of the page: mail servers take ten million
_ROOMS = (1.0, 0.2, 0.04, 0.0)
"""The share of the long texts that is shown: the first with which the page is small enough."""
_LOG_BYTES, _SCRIPT_BYTES, _DIFF_BYTES, _DIFF_LINES = 60_000, 200_000, 400_000, 5_000
_OPEN_LOGS, _OPEN_DIFF_LINES = 2, 60
_LONGEST_LINE, _LONGEST_CELL, _LONGEST_SENTENCE = 2_000, 200, 2_000
_MOST_EVIDENCE, _LONGEST_HEAD, _MOST_FAILED = 40, 30, 20
_MOST_CHARTS, _MOST_VALUES, _MOST_LANES, _MOST_ROWS, _MOST_COLUMNS = 24, 100, 40, 500, 30
_LEGEND = {
    "wait": "pending", "run": "running", "ok": "completed", "again": "requeued or restarted",
    "stop": "cancelled", "bad": "failed",
}  # fmt: skip
_LINE_KINDS = (("+++", "file"), ("---", "file"), ("diff ", "file"), ("@@", "hunk"), ("+", "add"), ("-", "del"))
_BINARY = re.compile(r"^GIT binary patch\n(?:.+\n|\n(?!diff ))*", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class SharedPage:
    """The page, and how many secrets were hidden in it."""

    content: bytes
    hidden: int


class _Writer:
    """Makes text of others fit for the page: without secrets, control characters and the caller's home folder."""

    def __init__(self, hider: SecretHider, home: str) -> None:
        self._hider = hider
        self._home = re.compile(rf"{re.escape(home.rstrip('/'))}(?![\w.-])") if len(home) > 1 else None

    def __call__(self, value: object) -> object:
        """Return a value as text; a drawing stays as it is, its texts were made fit before."""
        return value if isinstance(value, Markup) else self.text(str(value))

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
    return line if len(line) <= _LONGEST_LINE else f"{line[:_LONGEST_LINE]}… ({len(line)} characters)"


def share_page(shared: SharedRun, hider: SecretHider, home: str) -> SharedPage:
    """Return the page of a run, without secrets, and with ``~`` for the caller's home folder."""
    write = _Writer(hider, home)
    for room in _ROOMS:
        content = _render(shared, write, hider, room).encode("utf-8", "replace")
        if len(content) <= MOST_BYTES:
            break
    return SharedPage(content, hider.count)


def _render(shared: SharedRun, write: _Writer, hider: SecretHider, room: float) -> str:
    folder = Path(__file__).parent
    css = folder.joinpath("page.css").read_text("utf-8")
    environment = Environment(
        autoescape=True, finalize=write, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    template = environment.from_string(folder.joinpath("page.html.j2").read_text("utf-8"))
    digest = b64encode(sha256(css.encode()).digest()).decode()
    parts = _parts(shared, write, room)
    more = {"css": Markup(css), "css_hash": Markup(f"sha256-{digest}"), "version": __version__}
    return template.render({**parts, **more, "notes": [*_notes(shared, hider.count)]})


def _notes(shared: SharedRun, hidden: int) -> Iterator[str]:
    yield from (f"Not complete: {missing}." for missing in shared.missing)
    yield f"Made by hpcrun {__version__} on {facts.date_text(shared.now_s)}."
    if hidden:
        what = "1 value looks like a secret and is" if hidden == 1 else f"{hidden} values look like secrets and are"
        yield f"{what} hidden: ***"
    yield "~ is the home folder of the person who made this page. The page loads nothing and runs no program."


def _parts(shared: SharedRun, write: _Writer, room: float) -> dict[str, Any]:
    item, run = shared.item, shared.item.run
    job = f"job {run.job_id}, " if run.job_id else ""
    charts, values, more = _metrics(shared, write)
    return {
        "name": write.short(run.name),
        "state": "LOST" if item.lost else item.status.state,
        "kind": facts.kind_of(item.status),
        "subtitle": write.short(f"{job}submitted {facts.date_text(run.created_s)}"),
        "verdict": "" if shared.explanation else write.short(item.status.cause or "", _LONGEST_SENTENCE),
        "tiles": [(label, write.short(text)) for label, text in facts.tiles(shared)],
        "cause": _cause(shared.explanation, write) if shared.explanation else None,
        "failed": _failed(shared, write),
        "facts": _rows(facts.facts(shared), write),
        "command": write.lines(facts.command_text(shared.command)),
        "program": write.lines(facts.program_text(shared)),
        "cwd": write.short(run.cwd or "", _LONGEST_SENTENCE),
        "timeline": time_line(lanes) if (lanes := _lanes(shared, write)) else None,
        "attempts": _attempts(shared, write),
        "table": _table(shared.table, write) if shared.table else None,
        "charts": charts,
        "values": values,
        "metrics_more": more,
        "use": use_section(shared.use, write.short),
        "logs": [_log(log, number, write, room) for number, log in enumerate(shared.logs)],
        "plan": _rows(recorded_plan(run), write),
        "script": _script(shared.script, write, room) if shared.script else None,
        "code": _rows(facts.code_rows(shared), write),
        "diff": _diff(shared.diff, write, room) if shared.diff else None,
    }


def _rows(pairs: Iterator[tuple[str, str]], write: _Writer) -> list[tuple[str, str]]:
    return [(label, write.lines(text)[:20_000]) for label, text in pairs]


def _cause(explanation: Explanation, write: _Writer) -> dict[str, Any]:
    item = explanation.item
    element = f", element {item.element}" if item.element is not None else ""
    blocks, rows = list[tuple[str, str]](), list[tuple[str, str]]()
    for number, one in enumerate(explanation.evidence):
        where = f" ({one.where})" if one.where else ""
        note = f": {one.note}" if one.note else ""
        head = write.short(f"{one.who}{where}{note}", _LONGEST_SENTENCE)
        lines = write.lines("\n".join(one.lines[:_MOST_EVIDENCE]))
        (rows if number and len(one.lines) == 1 and len(head) < _LONGEST_HEAD else blocks).append((head, lines))
    more = (("what to do", explanation.fix), ("not read", "\n".join(explanation.unread)))
    rows += [(label, write.lines(text)) for label, text in more if text]
    heading = "Why it failed" if item.status.final else "What its ranks do"
    return {
        "heading": heading + element,
        "summary": write.short(explanation.summary, _LONGEST_SENTENCE),
        "evidence": blocks,
        "rows": rows,
    }


def _failed(shared: SharedRun, write: _Writer) -> list[tuple[str, str]]:
    """Return what happened to each failed element of a sweep, the first of many; nothing where one is explained."""
    failed = [one for one in shared.item.elements if one.status.cause and one.status.state != state.COMPLETED]
    rows = [
        (write.short(facts.element_label(one.index, shared)), write.short(one.status.cause or "", _LONGEST_SENTENCE))
        for one in failed[:_MOST_FAILED]
    ]
    others = len(failed_elements(shared.item.elements)) - len(rows)
    more = [("others", f"{others} more did not complete")] if others else []
    return [*rows, *more] if len(rows) > 1 else []


def _lanes(shared: SharedRun, write: _Writer) -> list[Lane]:
    lanes = []
    spans = groupby(shared.attempts, key=lambda span: span.element)
    for index, group in spans:
        mine = list(group)
        label = facts.element_label(index, shared) if shared.item.elements else "attempts"
        lanes.append(Lane(write.short(label), [*_spans(mine, shared, write)]))
    return lanes[:_MOST_LANES]


def _spans(mine: Sequence[AttemptSpan], shared: SharedRun, write: _Writer) -> Iterator[Span]:
    before_s = shared.item.run.created_s
    for span in mine:
        start_s, newest = span.attempt.started_s, span is mine[-1]
        if start_s > before_s:
            yield Span(before_s, start_s, "wait", f"pending for {facts.duration_text(start_s - before_s)}")
        before_s = span.ended_s
        words = facts.ended_words(span, shared, newest=newest)
        length = facts.duration_text(before_s - start_s)
        title = write.short(f"attempt {span.attempt.number + 1}, {length}: {words}")
        yield Span(start_s, before_s, _kind(span, shared, newest=newest), title)


def _kind(span: AttemptSpan, shared: SharedRun, *, newest: bool) -> str:
    exit_ = span.attempt.exit
    if exit_ is None:
        return "run" if newest and not shared.item.status.final else "bad"
    if facts.is_cancelled(span, shared, newest=newest):
        return "stop"
    return "again" if exit_.again else "ok" if exit_.status == 0 else "bad"


def _attempts(shared: SharedRun, write: _Writer) -> dict[str, Any]:
    spans = [] if shared.item.elements else shared.attempts
    rows = [
        (str(span.attempt.number + 1), facts.date_text(span.attempt.started_s),
         facts.duration_text(span.ended_s - span.attempt.started_s),
         write.short(listed(span.nodes, facts.MOST_NODES)),
         write.short(facts.ended_words(span, shared, newest=span is spans[-1])))
        for span in spans
    ]  # fmt: skip
    lanes = len({span.element for span in shared.attempts})
    more = f"The time line shows {_MOST_LANES} of {lanes} elements." if lanes > _MOST_LANES else ""
    used = {"wait", *(_kind(span, shared, newest=span is shared.attempts[-1]) for span in shared.attempts)}
    return {
        "heading": "Time line" if shared.item.elements else "Attempts",
        "headings": ("attempt", "started", "ran for", "nodes", "end"),
        "legend": [(kind, label) for kind, label in _LEGEND.items() if kind in used],
        "rows": rows,
        "more": more,
    }


def _table(table: SweepTable, write: _Writer) -> dict[str, Any]:
    ranking, names = table.ranking, table.names[:_MOST_COLUMNS]
    parameters = table.parameters[:_MOST_COLUMNS]
    numbers = ("step", *names)
    headings = [("element", True), ("state", False), *((write.short(name), False) for name in parameters),
                *((write.short(name), True) for name in numbers)]  # fmt: skip
    rows = []
    for row in table.rows[:_MOST_ROWS]:
        ended = f"{row.status.state} ({row.status.exit_status})" if row.status.exit_status else row.status.state
        values = dict(row.parameters)
        cells = [(str(row.index), "number"), (ended, facts.kind_of(row.status))]
        cells += [(write.short(values.get(name, "-")), "") for name in parameters]
        cells += [(value_text(row.step), "number")]
        cells += [(write.short(value_text(row.values.get(name))), "number") for name in names]
        rows.append(cells)
    drawn = []
    for row in table.rows if ranking else ():
        points = next(iter(curves_of(row.metrics, ranking.metric if ranking else "").values()), [])
        if points:
            label = " ".join(f"{name}={value}" for name, value in row.parameters)
            drawn.append(Curve(write.short(f"{row.index}: {label}", 60), points))
    drawn = drawn[:COLOURS]
    metric = write.short(ranking.metric) if ranking else ""
    left_out = len(table.rows) - len(rows)
    return {
        "order": f"By {write.short(ranking.words)}." if ranking else "No element has a metric.",
        "metric": metric,
        "chart": line_chart(metric, drawn, width=WIDE) if drawn else None,
        "legend": [curve.name for curve in drawn],
        "headings": headings,
        "rows": rows,
        "more": f"{left_out} more elements are left out." if left_out else "",
    }


def _metrics(shared: SharedRun, write: _Writer) -> tuple[list[dict[str, Any]], list[tuple[str, str]], str]:
    """Return the charts, the values that cannot be drawn, and what is left out."""
    charts: list[dict[str, Any]] = []
    values: dict[str, str] = {}
    metrics = shared.metrics
    if metrics is None:
        return charts, [], ""
    last: dict[str, Value] = {name: value for row in metrics.rows for name, value in row.values.items()}
    for name in metrics.names:
        points = next(iter(curves_of(metrics, name).values()), [])
        if len(points) < 2 or len(charts) >= _MOST_CHARTS:
            values[write.short(name)] = write.short(value_text(last[name]))
            continue
        charts.append(_chart(write.short(name), points, last[name]))
    left_out = len(values) - _MOST_VALUES
    return charts, list(values.items())[:_MOST_VALUES], f"{left_out} more metrics are left out." if left_out > 0 else ""


def _chart(name: str, points: Sequence[tuple[float, float]], last: Value) -> dict[str, Any]:
    low, high = min(points, key=lambda point: point[1]), max(points, key=lambda point: point[1])
    words = [f"last {value_text(last)} at step {number_text(points[-1][0])}"]
    if isinstance(last, float | int) and last == points[-1][1]:
        words += [f"{label} {number_text(y)} at step {number_text(x)}"
                  for label, (x, y) in (("lowest", low), ("highest", high)) if y != last]  # fmt: skip
    return {"name": name, "words": ", ".join(words), "drawing": line_chart(name, [Curve("", points)])}


def _log(log: LogEnd, number: int, write: _Writer, room: float) -> dict[str, Any]:
    text, most = write.lines(log.end.text), int(_LOG_BYTES * room)
    shown = text if len(text) <= most else text[len(text) - most :].partition("\n")[2]  # whole lines
    more = log.end.bytes_left_out + len(text) - len(shown)
    parts = (log.source, log.stream, log.why)
    return {
        "summary": write.short(", ".join(part for part in parts if part)),
        "text": shown,
        "more": f"{format_size(more)} before these lines are not shown." if more > 0 else "",
        "open": number < _OPEN_LOGS,
    }


def _first(text: str, most: int) -> str:
    """Return the first whole lines of a text."""
    return text if len(text) <= most else text[:most].rpartition("\n")[0]


def _script(script: SharedText, write: _Writer, room: float) -> dict[str, Any]:
    text = write.lines(script.text)
    shown = _first(text, int(_SCRIPT_BYTES * room))
    more = script.bytes_left_out + len(text) - len(shown)
    return {"text": shown, "more": f"{format_size(more)} more are not shown." if more > 0 else ""}


def _diff(diff: SharedText, write: _Writer, room: float) -> dict[str, Any]:
    text = write.lines(_BINARY.sub("(a binary file)\n", diff.text)).rstrip("\n")
    lines = _first(text, int(_DIFF_BYTES * room)).split("\n")[: int(_DIFF_LINES * room)]
    parts = [
        (kind, "".join(f"{line}\n" for line in group)) for kind, group in groupby(lines, key=_line_kind)
    ]  # fmt: skip
    more = diff.bytes_left_out + len(text) - sum(len(part) for _, part in parts)
    files = sum(line.startswith("diff --git ") for line in text.split("\n"))
    added, removed = (sum(_line_kind(line) == kind for line in lines) for kind in ("add", "del"))
    return {
        "summary": f"Changes since the commit: {count(files, 'file')}, {added} lines added, {removed} removed",
        "parts": parts,
        "more": f"{format_size(more)} more are not shown." if more > 2 else "",
        "open": len(lines) <= _OPEN_DIFF_LINES,
    }


def _line_kind(line: str) -> str:
    return next((kind for start, kind in _LINE_KINDS if line.startswith(start)), "")
