"""Lines through which a person pages.

A person pages up and down, and sideways or with wrapped lines; lists and tables have a cursor.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

from rich.segment import Segment
from rich.style import Style
from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.strip import Strip

from hpcrun.features.top.screen import TextLines, TopScreen, strip_of, wrapped
from hpcrun.job.text.patterns import Pattern, PatternError, compile_pattern
from hpcrun.views.text import GAP, visible

if TYPE_CHECKING:
    from hpcrun.features.top.reader import Reader

Line = TypeVar("Line")
_SIDE_STEP = 16  # columns that one key moves sideways
_REVERSED = Style(reverse=True)
# the columns of numbers, whose texts stand at the right
_RIGHT = ("elapsed", "limit", "nodes", "running", "pending")


@dataclass(slots=True)
class Pages(Generic[Line]):
    """What part of some lines is on the screen. Pure.

    Attributes:
        top, part: the first line on the screen, and which of its rows where lines are wrapped.
    """

    draw: Callable[[Line], Text]  # a line → its text
    lines: Sequence[Line] = ()
    width: int = 80
    height: int = 24
    top: int = 0
    part: int = 0
    left: int = 0  # the first column on the screen
    cursor: int | None = None  # the chosen line; None where none can be chosen
    mark: int | None = None  # the line that a search has found
    wraps: bool = False  # a long line takes several rows; else it goes on beyond the screen
    indent: int = 0  # columns before the other rows of a wrapped line
    overlap: int = 1  # rows that stay on the screen when it moves by a screen

    def show(self, lines: Sequence[Line], *, follow: bool = False) -> None:
        """Take other lines.

        The end stays on the screen, or else the line at the top, if that line is among the new
        lines.
        """
        anchor = self.lines[self.top] if self.top < len(self.lines) else None
        self.lines = lines
        if follow:
            self.to_end()
            return
        if anchor is not None and not (self.top < len(lines) and lines[self.top] is anchor):
            self.top = next(
                (number for number, line in enumerate(lines) if line is anchor), self.top
            )
        self.keep_inside()

    def resize(self, width: int, height: int) -> None:
        """Fit the lines into another size."""
        self.width, self.height = width, height
        self.keep_inside()

    def wrap(self, wraps: bool) -> None:
        """Wrap long lines, or do not; the line at the top stays, from its beginning."""
        if wraps != self.wraps:
            self.wraps = wraps
            self.part = 0
            self.left = 0

    def rows(self) -> list[Strip]:
        """Return what is on the screen."""
        shown: list[Strip] = []
        number, part = self.top, self.part
        while len(shown) < self.height and number < len(self.lines):
            rows = [strip_of(text, self.width, self.left) for text in self._parts_of(number)[part:]]
            # without its colours: they would become its background
            if number in (self.cursor, self.mark):
                rows = [Strip([Segment(row.text, _REVERSED)]) for row in rows]
            shown += rows
            number, part = number + 1, 0
        return shown[: self.height]

    def _parts_of(self, number: int) -> list[Text]:
        text = self.draw(self.lines[number])
        if self.wraps:
            return wrapped(text, self.width, self.indent)
        return [text]

    @property
    def on_screen(self) -> Sequence[Line]:
        """The lines of which the screen has room for the first row at least, if none is wrapped."""
        return self.lines[self.top : self.top + self.height]

    @property
    def is_at_end(self) -> bool:
        """Whether the last row is on the screen."""
        return (self.top, self.part) >= self._last_place()

    def move(self, rows: int) -> None:
        """Move the cursor, or the rows where there is none."""
        if self.cursor is not None:
            self.choose(self.cursor + rows)
            return
        for _ in range(abs(rows)):
            self._step(rows > 0)
        self.keep_inside()

    def page(self, pages: int) -> None:
        """Move by a screen."""
        self.move(pages * max(1, self.height - self.overlap))

    def to_start(self) -> None:
        """Move to the first line."""
        self.top = self.part = 0
        self.cursor = None if self.cursor is None else 0

    def to_end(self) -> None:
        """Move to the last line."""
        self.top, self.part = self._last_place()
        self.cursor = None if self.cursor is None else max(0, len(self.lines) - 1)

    def choose(self, number: int) -> None:
        """Put the cursor on a line, and show it."""
        self.cursor = max(0, min(number, len(self.lines) - 1))
        self.reveal(self.cursor, margin=0)

    def reveal(self, number: int, *, margin: int = 3) -> None:
        """Bring a line on the screen; where it is not yet, with some lines before it."""
        if self.top <= number and self._is_on_screen(number):
            return
        if number < self.top:
            self.top, self.part = max(0, number - margin), 0
        else:
            self.top, self.part = number, 0
            for _ in range(max(0, self.height - 1 - margin)):
                self._step(False)
        self._stop_at_end()

    def share(self) -> str:
        """Return the place as ``top``, ``end`` or ``37%``."""
        if self.top == 0 and self.part == 0:
            return "all" if self.is_at_end else "top"
        if self.is_at_end:
            return "end"
        return f"{100 * self.top // max(1, len(self.lines))}%"

    def keep_inside(self) -> None:
        """Move back to the lines that there are, and to the cursor."""
        self._stop_at_end()
        if self.cursor is not None:
            self.choose(self.cursor)

    def _is_on_screen(self, number: int) -> bool:
        """Whether a line that is not before the top is wholly on the screen."""
        if number - self.top >= self.height:
            return False
        return sum(map(self._height_of, range(self.top, number + 1))) - self.part <= self.height

    def _height_of(self, number: int) -> int:
        return len(self._parts_of(number)) if self.wraps else 1

    def _step(self, down: bool) -> None:
        if down and self.lines and self.part + 1 < self._height_of(self.top):
            self.part += 1
        elif down and self.top + 1 < len(self.lines):
            self.top, self.part = self.top + 1, 0
        elif not down and self.part:
            self.part -= 1
        elif not down and self.top:
            self.top -= 1
            self.part = self._height_of(self.top) - 1

    def _last_place(self) -> tuple[int, int]:
        """Return the top with which the last row is at the bottom of the screen."""
        left = self.height
        number = len(self.lines)
        while number > 0 and left > 0:
            number -= 1
            left -= self._height_of(number)
        return (number, max(0, -left)) if self.lines else (0, 0)

    def _stop_at_end(self) -> None:
        self.top, self.part = min((self.top, self.part), self._last_place())
        if self.part:  # on a wider screen, the line at the top may have fewer rows
            self.part = min(self.part, self._height_of(self.top) - 1)


class Pager(TextLines):
    """Shows lines of any number; only those on the screen are drawn."""

    DEFAULT_CSS = "Pager { height: 1fr; }"

    def __init__(self, pages: Pages[Any]) -> None:
        super().__init__(lambda _: "", id="body")
        self.pages = pages
        self._rows: list[Strip] = []

    def render_line(self, y: int) -> Strip:
        """Return a row."""
        if y < len(self._rows):
            return self._rows[y]
        return Strip.blank(self.size.width)

    def take(self, pages: Pages[Any]) -> None:
        """Show other lines."""
        self.pages = pages
        pages.width, pages.height = self.size

    def update(self) -> None:
        """Draw what has changed since the last call."""
        self.pages.width, self.pages.height = self.size
        self._rows = self.pages.rows()
        super().update()

    def on_resize(self) -> None:
        """Fit the lines into the new size."""
        self.pages.resize(*self.size)
        self._rows = self.pages.rows()
        self.refresh()


class PagerScreen(TopScreen):
    """A screen with a pager, ``#body``."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("j,down", "move(1)", "down", show=False),
        Binding("k,up", "move(-1)", "up", show=False),
        Binding("pagedown,ctrl+f", "page(1)", "one screen down", show=False),
        Binding("pageup,ctrl+b", "page(-1)", "one screen up", show=False),
    ]

    @property
    def pager(self) -> Pager:
        """The lines."""
        return self.query_one("#body", Pager)

    def moved(self, *, up: bool) -> None:  # noqa: ARG002 - a log is read on where its lines end
        """Draw what has moved."""
        self.draw()

    def action_move(self, rows: int) -> None:
        """Move up or down."""
        self.pager.pages.move(rows)
        self.moved(up=rows < 0)

    def action_page(self, pages: int) -> None:
        """Move by a screen."""
        self.pager.pages.page(pages)
        self.moved(up=pages < 0)

    def action_start(self) -> None:
        """Move to the first line."""
        self.pager.pages.to_start()
        self.moved(up=True)

    def action_end(self) -> None:
        """Move to the last line."""
        self.pager.pages.to_end()
        self.moved(up=False)


class TableScreen(PagerScreen, Generic[Line]):
    """A screen with a table: the names of its columns, and rows with a cursor."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("g,home", "start", "first row", show=False),
        Binding("G,end", "end", "last row", show=False),
    ]

    def __init__(self, reader: Reader) -> None:
        super().__init__(reader)
        self.rows: Pages[Line] = Pages(
            lambda row: self._line(*self.cells(row)), cursor=0, overlap=0
        )
        self._keys: Sequence[str] = ()
        self._widths: Mapping[str, int] = {}
        self._was_moved = False

    def body(self) -> ComposeResult:
        """Yield the table."""
        yield TextLines(lambda _: self._heading(), id="columns")
        yield Pager(self.rows)

    def cells(self, row: Line) -> tuple[str, Mapping[str, str], Mapping[str, str]]:
        """Return the sign before a row, its text by column, and the style of some columns.

        Each screen has its own cells.
        """
        raise NotImplementedError

    def column_widths(self, width: int) -> Mapping[str, int]:
        """Return the columns of a screen so wide, each with its width; each screen has its own."""
        raise NotImplementedError

    @property
    def key(self) -> str | None:
        """The key of the row with the cursor."""
        return self._keys[self.rows.cursor or 0] if self._keys else None

    def show_rows(self, rows: Sequence[Line], keys: Sequence[str]) -> None:
        """Take other rows and their keys.

        The cursor stays at its row or at its place. Before a person moves the cursor, the cursor
        stays at the top.
        """
        if self._was_moved and self.key in keys:
            moved = keys.index(self.key) - (self.rows.cursor or 0)
            self.rows.cursor = (self.rows.cursor or 0) + moved
            self.rows.top = max(0, self.rows.top + moved)
        self.rows.lines, self._keys = rows, keys
        self.rows.keep_inside()
        self._fit()

    def _fit(self) -> None:
        self._widths = self.column_widths(self.size.width)
        self.draw()

    def on_resize(self) -> None:
        """Fit the columns to the new size."""
        self._fit()

    def moved(self, *, up: bool) -> None:  # noqa: ARG002 - all rows are there already
        """Draw the rows."""
        self._was_moved = True
        self.pager.update()

    def _heading(self) -> Text:
        return self._line(
            " ", {name: name.upper() for name in self._widths}, dict.fromkeys(self._widths, "bold")
        )

    def _line(self, sign: str, texts: Mapping[str, str], styles: Mapping[str, str]) -> Text:
        cells = []
        for name, wide in self._widths.items():
            cell = Text(visible(texts.get(name, "")), styles.get(name, ""), overflow="ellipsis")
            cell.align("right" if name in _RIGHT else "left", wide)
            cells.append(cell)
        return Text.assemble((sign, "bold"), Text(" " * GAP).join(cells))


class TextScreen(PagerScreen):
    """A screen with lines of text, and a search in the lines.

    Long lines go on to the right, or are wrapped.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("space", "page(1)", "one screen down", show=False),
        Binding("l,right", f"sideways({_SIDE_STEP})", "to the right", show=False),
        Binding("h,left", f"sideways(-{_SIDE_STEP})", "to the left", show=False),
    ]

    def __init__(self, reader: Reader) -> None:
        super().__init__(reader)
        self._search = ""

    def action_sideways(self, columns: int) -> None:
        """Move to the right or to the left, where lines are not wrapped."""
        pages = self.pager.pages
        if pages.wraps:
            pages.wrap(False)
            self.say("")
        pages.left = max(0, pages.left + columns)
        self.draw()

    def action_search(self) -> None:
        """Type what to search for."""

        def done(words: str | None) -> None:
            self._search = words or ""
            if self._search:
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
        return compile_pattern(
            flags + re.escape(words)
        ), "searched as plain text (no regular expression), "
