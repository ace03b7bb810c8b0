"""An explanation as text: the answer, the evidence, what to do; and its JSON."""

from __future__ import annotations

import textwrap
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from hpcrun.explain.diagnosis.flight_meetings import Flight, Meeting, Stand
from hpcrun.explain.diagnosis.waiting_cause import group_text
from hpcrun.explain.ended import Explanation
from hpcrun.explain.evidence import Evidence
from hpcrun.job.text.units import cut_at_word
from hpcrun.views.end_json import waiting_json
from hpcrun.views.text import fields_of, harmless, labelled, one_line, without_colours

if TYPE_CHECKING:
    from rich.text import Text

_ROOM_LEAST = 30
_INDENT = 6
"""The width of the labels ``fix`` and ``next``."""
_MOST_MEETINGS = 20
_SCREEN_ROWS = 22
"""A terminal of 24 lines less the prompt and a note."""


def explanation_text(explanation: Explanation, width: int) -> Text:
    """Return the answer, then evidence, then what to do, at most ``width`` characters wide.

    Where that fills more than a screen, long lines of evidence are cut to fewer rows.
    """
    room = max(_ROOM_LEAST, width)
    for most_rows in (3, 2):
        text = _text(explanation, room, most_rows)
        if text.plain.count("\n") < _SCREEN_ROWS:
            return text
    return _text(explanation, room, most_rows=1)


def _text(explanation: Explanation, room: int, most_rows: int) -> Text:
    """Return the text of an explanation.

    Args:
        explanation: the answer with its evidence.
        room: the most characters of a line.
        most_rows: the most rows of a line of evidence.
    """
    from rich.text import Text

    text = Text("\n".join(_wrapped(explanation.summary, room)) + "\n")
    text.stylize("bold")
    if explanation.evidence or explanation.unread:
        text.append("\n")
    for evidence in explanation.evidence:
        _append_evidence(text, evidence, room, most_rows)
    for missing in explanation.unread:
        text.append(f"not read: {one_line(missing)}\n")
    text.append("\n")
    lines = []
    if explanation.fix:
        lines += labelled("fix", one_line(explanation.fix), _INDENT, room)
    if explanation.next:
        lines.append(f"next  {one_line(explanation.next)}")
    for line in lines:
        text.append(line[:_INDENT], "bold")
        text.append(f"{line[_INDENT:]}\n")
    text.rstrip()
    return text


def _append_evidence(text: Text, evidence: Evidence, room: int, most_rows: int) -> None:
    """Append the source of evidence, then its lines; a line without a place stands beside it."""
    source = one_line(evidence.who)
    place = one_line(evidence.where or "")
    lines = evidence.lines
    if not place and len(lines) == 1:
        place = _plain(lines[0])
        lines = ()
    head = source
    if evidence.note:
        head += f" ({one_line(evidence.note)})"
    rows = _wrapped(f"{head}  {place}", room - 2)
    start = len(text)
    text.append("\n  ".join(rows) + "\n", "dim" if evidence.where else "")
    text.stylize("cyan", start, start + len(source))
    for line in lines:
        for row in _folded(_plain(line), room - 4, most_rows):
            text.append(f"    {row}\n")


def _folded(line: str, room: int, most_rows: int) -> list[str]:
    """Return a line folded between words, cut to so many rows."""
    cut = cut_at_word(line, most_rows * room)
    rows = textwrap.wrap(cut, room, break_on_hyphens=False, subsequent_indent="  ")
    shown = rows[:most_rows]
    if len(rows) > most_rows:
        shown[-1] = f"{shown[-1][: room - 1]}…"
    return shown


def _plain(line: str) -> str:
    return one_line(without_colours(harmless(line.strip())))


def _wrapped(text: str, room: int) -> list[str]:
    lines = textwrap.wrap(one_line(text), room, break_on_hyphens=False, break_long_words=False)
    return lines or [""]


def explanation_json(explanation: Explanation) -> dict[str, Any]:
    """Return the explanation as a JSON document."""
    item = explanation.item
    run_id = item.run.run_id or None
    document = {
        "kind": "explain",
        "run_id": run_id,
        "job_id": item.run.job_id,
        "folder": item.folder if run_id else None,
        **fields_of(item.status, "state exit_status"),
        **fields_of(explanation, "summary rule level source rank node"),
        "role": None,
        "evidence": [asdict(evidence) for evidence in explanation.evidence],
        **fields_of(explanation, "fix next unread"),
        "flight": None,
        **waiting_json(item),
    }
    if explanation.role:
        document["role"] = explanation.role.name
    if explanation.flight:
        document["flight"] = _flight_json(explanation.flight)
    return document


def _flight_json(flight: Flight) -> dict[str, Any]:
    """Return where the ranks stood: the collective that all wait for comes first."""
    return {
        "dumps": list(flight.dumps),
        "no_dump": list(flight.unknown),
        "in_circle": flight.in_circle,
        "collectives": [_meeting_json(meeting) for meeting in flight.meetings[:_MOST_MEETINGS]],
    }


def _meeting_json(meeting: Meeting) -> dict[str, Any]:
    return {
        "finding": meeting.finding.name.lower(),
        "collective": meeting.name,
        "number": meeting.number,
        "group": group_text(meeting.group),
        "came": [_stand_json(stand) for stand in meeting.came],
        "absent": [_stand_json(stand) for stand in meeting.absent],
        "no_dump": list(meeting.unknown),
    }


def _stand_json(stand: Stand) -> dict[str, Any]:
    document: dict[str, Any] = {
        "ranks": list(stand.ranks),
        "collective": None,
        "number": None,
        "group": None,
        "tensors": None,
        "at": None,
    }
    if stand.group:
        document["group"] = group_text(stand.group)
    call = stand.call
    if call:
        document["collective"] = call.kind.name
        document["number"] = call.number or None
        document["tensors"] = call.kind.tensors
        if call.place:
            document["at"] = f"{call.place.file}:{call.place.line}"
    return document
