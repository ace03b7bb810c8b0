"""The results of doctor, for a terminal and as JSON."""

from __future__ import annotations

import textwrap
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from hpcrun.features.doctor.check import GROUPS, Check, Checkup, Level
from hpcrun.views.text import one_line

if TYPE_CHECKING:
    from rich.text import Text

# A word for each level, since a pipe has no colours.
_WORDS: dict[Level, str] = {"green": "ok", "yellow": "warning", "red": "error"}
_LEVEL_WIDTH = max(map(len, _WORDS.values()))
_NAME_MOST = 20
_ROOM_LEAST = 30


def checkup_text(checkup: Checkup, width: int, *, brief: bool = False) -> Text:
    """Return the checks by group, at most ``width`` characters wide if this leaves room for words.

    Args:
        brief: only the warnings and errors, and how many checks there were.
    """
    from rich.text import Text

    text = Text()
    shown = [check for check in checkup.checks if not (brief and check.level == "green")]
    column = min(_NAME_MOST, max((len(one_line(check.name)) for check in shown), default=0))
    for group in GROUPS:
        checks = [check for check in shown if check.group == group]
        if checks:
            about = f" {checkup.profile}" if group == "Profile" and checkup.profile else ""
            text.append(one_line(f"{group}{about}") + "\n", style="bold")
        for check in checks:
            _append(text, check, column, width)
    counts = {level: sum(check.level == level for check in checkup.checks) for level in _WORDS}
    text.append(", ".join(f"{number} {_WORDS[level]}" for level, number in counts.items() if number))
    return text


def _append(text: Text, check: Check, column: int, width: int) -> None:
    word = _WORDS[check.level]
    text.append(f"  {word:<{_LEVEL_WIDTH}}", style=check.level)
    indent = 2 + _LEVEL_WIDTH + 2 + column + 2
    room = max(_ROOM_LEAST, width - indent)
    name = one_line(check.name)
    lines = _wrapped(check.seen, room)
    if len(name) > column:
        text.append(f"  {name}\n")
    else:
        text.append(f"  {name:<{column}}  {lines.pop(0)}\n")
    lines += _wrapped(f"fix: {check.fix}", room) if check.fix else []
    text.append("".join(f"{' ' * indent}{line}\n" for line in lines))


def _wrapped(words: str, room: int) -> list[str]:
    return textwrap.wrap(one_line(" ".join(words.split())), room, break_on_hyphens=False) or [""]


def checkup_json(checkup: Checkup) -> dict[str, Any]:
    """Return the checks as a JSON document."""
    return {
        "kind": "doctor",
        "profile": checkup.profile,
        "ok": checkup.ok,
        "checks": [asdict(check) for check in checkup.checks],
    }
