"""A screen with lines of text, and a search in the lines.

Long lines go on to the right, or are wrapped.
"""

from __future__ import annotations

import re
from typing import ClassVar

from textual.binding import Binding, BindingType

from hpcrun.features.top.screen import TopScreen
from hpcrun.job.text.patterns import Pattern, PatternError, compile_pattern

AROUND = 3  # lines above and below a match, where there is room
_SIDE_STEP = 16  # columns that one key moves sideways


class TextScreen(TopScreen):
    """A screen with lines of text."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("space", "page(1)", "one screen down", show=False),
        Binding("l,right", f"sideways({_SIDE_STEP})", "to the right", show=False),
        Binding("h,left", f"sideways(-{_SIDE_STEP})", "to the left", show=False),
    ]

    search_words = ""

    def action_sideways(self, columns: int) -> None:
        """Move to the right or to the left, where lines are not wrapped."""
        if self.lines.wraps:
            self.lines.wrap(False)
            self.say("")
        self.lines.sideways(columns)

    def action_search(self) -> None:
        """Type what to search for."""

        def done(words: str | None) -> None:
            self.search_words = words or ""
            if self.search_words:
                self.search()

        self.type_line("", lambda _: None, done)

    def search(self) -> None:
        """Go to the first line with what is searched for; each screen does so in its own way."""
        raise NotImplementedError


def search_pattern(words: str) -> tuple[Pattern, str]:
    """Return the regular expression that a person searches for, and a remark on the search.

    Without capital letters, case does not matter. The search takes text that is no regular
    expression literally; the remark says so, with a comma at its end.
    """
    flags = "(?i)" if words == words.lower() else ""
    try:
        return compile_pattern(flags + words), ""
    except PatternError:
        literal = compile_pattern(flags + re.escape(words))
        return literal, "searched as plain text (no regular expression), "


def turned_text(up: bool) -> str:
    """Return the remark on a search that had to go on from the other end."""
    return f"from the {'end' if up else 'top'} again, "
