"""What a host may write to this terminal: text, colours and a screen, but nothing that answers.

Sequences that set the title or the clipboard, print, or make the terminal send input are left out
(xterm: ctlseqs). The host's own hpcrun writes none of them.
"""

from __future__ import annotations

import re

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

_MOST_HELD = 64 * 1024
# CSI; strings, as OSC and DCS; other sequences of ESC; ENQ; C1 in UTF-8
_CONTROL = re.compile(
    rb"\x1b(?:\[[0-?]*[ -/]*[@-~]|[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)?|[ -/]*[0-~])?"
    rb"|\x05|\xc2[\x80-\x9f]"
)
_UNFINISHED = re.compile(rb"(?:\x1b(?:\[[0-?]*[ -/]*|[\]PX^_][^\x07\x1b]*\x1b?|[ -/]*)|\xc2)\Z")
# the cursor, erasing, colours, modes, scrolling; the saved cursor, the keypad, ASCII
_STAYS = re.compile(rb"\x1b(?:\[[0-?]*[A-HJ-MPSTXZ@dfhlmrsu]|[78=>DEM]|\(B)")


class FromHost:
    """Passes the output of a host on, without what could control the terminal otherwise."""

    def __init__(self, write: Callable[[bytes], object]) -> None:
        self._write = write
        self._held = b""

    def take(self, chunk: bytes) -> None:
        """Pass on a part of the output; an unfinished sequence waits for the next part."""
        data = self._held + chunk
        self._held = b""
        unfinished = _UNFINISHED.search(data)
        if unfinished and len(unfinished[0]) < _MOST_HELD:
            self._held = unfinished[0]
            data = data[: unfinished.start()]
        self._write(_CONTROL.sub(_if_harmless, data))


def _if_harmless(match: re.Match[bytes]) -> bytes:
    return match[0] if _STAYS.fullmatch(match[0]) else b""
