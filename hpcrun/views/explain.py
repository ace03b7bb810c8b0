"""An explanation as text: the answer, the evidence, what to do; and its JSON."""

from __future__ import annotations

import textwrap
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from hpcrun.explain.diagnosis.flight_meetings import Flight, Stand
from hpcrun.explain.diagnosis.waiting_cause import group_text
from hpcrun.explain.ended import Explanation
from hpcrun.explain.wording import Evidence
from hpcrun.views.text import fields_of, harmless, one_line, without_colours

if TYPE_CHECKING:
    from rich.text import Text

_ROOM_LEAST = 30
_MOST_MEETINGS = 20
_MOST_LINES_EACH = 3
"""The most lines of the terminal for a line of evidence."""


def explanation_text(explanation: Explanation, width: int) -> Text:
    """Return the answer first, then evidence, then what to do, at most ``width`` characters wide."""
    from rich.text import Text

    text = Text()
    room = max(_ROOM_LEAST, width)
    for line in _wrapped(explanation.summary, room):
        text.append(f"{line}\n", "bold")
    for evidence in explanation.evidence:
        text.append("\n")
        _append_evidence(text, evidence, room)
    for missing in explanation.unread:
        text.append(f"\nnot read: {one_line(missing)}\n")
    rows = [("fix", explanation.fix), ("next", explanation.next)]
    if any(words for _, words in rows):
        text.append("\n")
    for name, words in rows:
        if words:
            first, *more = _wrapped(words, room - 6) if name == "fix" else [one_line(words)]
            text.append(f"{name:<4}  ", "bold")
            text.append("".join(f"{line}\n" for line in (first, *(f"      {line}" for line in more))))
    text.rstrip()
    return text


def _append_evidence(text: Text, evidence: Evidence, room: int) -> None:
    note = f" ({one_line(evidence.note)})" if evidence.note else ""
    head = f"{one_line(evidence.who)}{note}"
    where = one_line(evidence.where) if evidence.where else ""
    if where and len(head) + 2 + len(where) > room:
        text.append(f"{head}\n", "cyan")
        text.append(f"  {where}\n", "dim")
    else:
        text.append(head, "cyan")
        text.append(f"  {where}\n" if where else "\n", "dim")
    for line in evidence.lines:
        plain = one_line(without_colours(harmless(line.strip())))
        parts = textwrap.wrap(plain, room - 4, break_on_hyphens=False, subsequent_indent="  ")
        shown = parts[:_MOST_LINES_EACH]
        if len(parts) > len(shown):
            shown[-1] = f"{shown[-1][: room - 5]}…"
        text.append("".join(f"    {part}\n" for part in shown))


def _wrapped(words: str, room: int) -> list[str]:
    return textwrap.wrap(one_line(words), room, break_on_hyphens=False, break_long_words=False) or [""]


def explanation_json(explanation: Explanation) -> dict[str, Any]:
    """Return the explanation as a JSON document."""
    item = explanation.item
    return {
        "kind": "explain",
        "run_id": item.run.run_id or None,
        "job_id": item.run.job_id,
        "folder": item.folder if item.run.run_id else None,
        **fields_of(item.status, "state exit_status"),
        **fields_of(explanation, "summary rule level source rank node"),
        "evidence": [asdict(evidence) for evidence in explanation.evidence],
        **fields_of(explanation, "fix next unread"),
        "flight": _flight_json(explanation.flight) if explanation.flight else None,
    }


def _flight_json(flight: Flight) -> dict[str, Any]:
    """Return where the ranks stood: the collective that all wait for comes first."""
    return {
        "dumps": list(flight.dumps),
        "no_dump": list(flight.unknown),
        "in_circle": flight.in_circle,
        "collectives": [
            {
                "finding": one.finding.name.lower(),
                "collective": one.name,
                "number": one.number,
                "group": group_text(one.group),
                "came": [_stand_json(stand) for stand in one.came],
                "absent": [_stand_json(stand) for stand in one.absent],
                "no_dump": list(one.unknown),
            }
            for one in flight.meetings[:_MOST_MEETINGS]
        ],
    }


def _stand_json(stand: Stand) -> dict[str, Any]:
    call = stand.call
    place = call.place if call else None
    return {
        "ranks": list(stand.ranks),
        "collective": call.kind.name if call else None,
        "number": (call.number or None) if call else None,
        "group": group_text(stand.group) if stand.group else None,
        "tensors": call.kind.tensors if call else None,
        "at": f"{place.file}:{place.line}" if place else None,
    }
