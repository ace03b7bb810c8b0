"""An explanation as text: the answer, the evidence, what to do; and its JSON."""

from __future__ import annotations

import textwrap
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from hpcrun.explain.diagnosis.flight_meetings import Flight, Stand
from hpcrun.explain.diagnosis.waiting_cause import group_text
from hpcrun.explain.ended import Explanation
from hpcrun.explain.wording import Evidence
from hpcrun.job.text.units import cut_at_word
from hpcrun.views.text import fields_of, harmless, labelled, one_line, without_colours

if TYPE_CHECKING:
    from rich.text import Text

_ROOM_LEAST = 30
_MOST_MEETINGS = 20
_SCREEN_ROWS = 22
"""A terminal of 24 lines less the prompt and a note."""


def explanation_text(explanation: Explanation, width: int) -> Text:
    """Return the answer, then evidence, then what to do, at most ``width`` characters wide.

    Where that fills more than a screen, long lines of evidence are cut to fewer rows.
    """
    room = max(_ROOM_LEAST, width)
    texts = [_text(explanation, room, most_rows) for most_rows in (3, 2, 1)]
    return next((text for text in texts if text.plain.count("\n") < _SCREEN_ROWS), texts[-1])


def _text(explanation: Explanation, room: int, most_rows: int) -> Text:
    from rich.text import Text

    text = Text("".join(f"{line}\n" for line in _wrapped(explanation.summary, room)))
    text.stylize("bold")
    text.append("\n" if explanation.evidence or explanation.unread else "")
    for evidence in explanation.evidence:
        _append_evidence(text, evidence, room, most_rows)
    text.append("".join(f"not read: {one_line(missing)}\n" for missing in explanation.unread))
    text.append("\n")
    if explanation.fix:
        fix = labelled("fix", one_line(explanation.fix), 6, room)
    else:
        fix = []
    for line in (*fix, *([f"next  {one_line(explanation.next)}"] if explanation.next else [])):
        text.append(line[:6], "bold").append(f"{line[6:]}\n")
    text.rstrip()
    return text


def _append_evidence(text: Text, evidence: Evidence, room: int, most_rows: int) -> None:
    who, where, lines = one_line(evidence.who), one_line(evidence.where or ""), evidence.lines
    if not where and len(lines) == 1:
        where, lines = _plain(lines[0]), ()
    note = f" ({one_line(evidence.note)})" if evidence.note else ""
    start = len(text)
    text.append(
        "\n  ".join(_wrapped(f"{who}{note}  {where}", room - 2)) + "\n",
        "dim" if evidence.where else "",
    )
    text.stylize("cyan", start, start + len(who))
    for line in lines:
        plain = cut_at_word(_plain(line), most_rows * (room - 4))
        parts = textwrap.wrap(plain, room - 4, break_on_hyphens=False, subsequent_indent="  ")
        shown = parts[:most_rows]
        if len(parts) > len(shown):
            shown[-1] = f"{shown[-1][: room - 5]}…"
        text.append("".join(f"    {part}\n" for part in shown))


def _plain(line: str) -> str:
    return one_line(without_colours(harmless(line.strip())))


def _wrapped(words: str, room: int) -> list[str]:
    return textwrap.wrap(one_line(words), room, break_on_hyphens=False, break_long_words=False) or [
        ""
    ]


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
        "role": explanation.role.name if explanation.role else None,
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
