"""Lines of which only those on the screen are drawn, whatever their number.

Lines are drawn as they are, never as markup. Textual's own lists draw or measure every line that
they are given, before the first one is shown: 1,000 runs take a DataTable 0.2 s, and the last block
of a log takes a RichLog 1 s. Of these lines, only the rows of wrapped ones are counted.
"""

from __future__ import annotations

import io
from bisect import bisect_right
from collections.abc import Callable, Sequence
from itertools import accumulate
from math import ceil
from typing import Generic, TypeVar

from rich.cells import chop_cells
from rich.console import Console
from rich.segment import Segment
from rich.style import Style
from rich.text import Text
from textual.geometry import Region, Size, Spacing
from textual.reactive import reactive
from textual.scroll_view import ScrollView
from textual.strip import Strip
from textual.widget import Widget

from hpcrun.runs.log_files import LONGEST_LINE
from hpcrun.views.text import visible

Line = TypeVar("Line")
_CONSOLE = Console(file=io.StringIO())  # renders nothing, and knows the names of colours
_PLAIN = Style()
_REVERSED = Style(reverse=True)


def strip_of(line: Text, width: int, left: int = 0) -> Strip:
    """Return a line from one column on, in a given number of cells.

    Invisible characters are written out. ``…`` says that the line goes on.
    """
    parts = line.render(_CONSOLE)
    strip = Strip(Segment(visible(text), style or _PLAIN) for text, style, _ in parts)
    if strip.cell_length > left + width:
        strip = Strip([*strip.crop(left, left + width - 1), Segment("…", _PLAIN)])
    else:
        strip = strip.crop(left)
    return strip.adjust_cell_length(width, _PLAIN)


def wrapped(line: Text, width: int, indent: int = 0) -> list[Text]:
    """Return a line in parts of so many cells, all but the first one indented."""
    if line.cell_len <= width:
        return [line]
    first = "".join(chop_cells(line.plain, width)[:1])
    rest = chop_cells(line.plain[len(first) :], width - indent)
    begin, *parts = line.divide(accumulate(map(len, [first, *rest[:-1]])))
    return [begin, *(Text.assemble(" " * indent, part) for part in parts)]


def count_rows(line: str, width: int, indent: int = 0) -> int:
    """Return the number of parts in which a line is wrapped."""
    if line.isascii():
        return 1 + max(0, ceil((len(line) - width) / (width - indent)))
    return len(wrapped(Text(line), width, indent))


class TextRow(Widget):
    """One row of text, which is drawn again when its text changes."""

    DEFAULT_CSS = "TextRow { height: 1; background: ansi_default; color: ansi_default; }"
    text: reactive[Text] = reactive(Text())

    def render_line(self, y: int) -> Strip:  # noqa: ARG002 - it has one
        """Return the row for the terminal."""
        return strip_of(self.text, self.size.width)


class LineView(ScrollView, Generic[Line], can_focus=False):
    """Lines through which a person scrolls, or of which a person chooses one.

    Args:
        draw: a line → its text.
        plain: a line → its text, to count the rows of; where that is faster than to draw the line.
        key: a line → what tells that a later line is the same one.
        chooses: whether keys move a cursor through the lines; else they scroll.

    Attributes:
        cursor: the number of the line that is chosen, or that a search has found; None before a
            person has chosen one: then it is the first.
        wraps: whether a long line takes several rows; else it goes on beyond the screen.
        indent: the columns before the other rows of a wrapped line.
        follows: whether the last line stays on the screen when others come.
    """

    DEFAULT_CSS = """
    LineView { height: 1fr; overflow: hidden; background: ansi_default; color: ansi_default; }
    """

    def __init__(
        self,
        draw: Callable[[Line], Text],
        *,
        plain: Callable[[Line], str] | None = None,
        key: Callable[[Line], object] = id,
        chooses: bool = False,
        id: str | None = None,
    ) -> None:
        super().__init__(id=id)
        self.lines: Sequence[Line] = ()
        self.cursor: int | None = None
        self.chooses = chooses
        self.wraps = False
        self.indent = 0
        self.follows = False
        self._draw_line = draw
        self._plain_text = plain or (lambda line: draw(line).plain)
        self._line_key = key
        self._first_rows: Sequence[int] = (0,)  # of each line, and of the one that would be next
        self._strips: list[Strip] = []  # the rows on the screen

    # --- what is on the screen

    def render_line(self, y: int) -> Strip:
        """Return a row for the terminal, as it was at the last update."""
        if y < len(self._strips):
            return self._strips[y]
        return Strip.blank(self.size.width)

    def update(self) -> None:
        """Draw the rows that have changed since the last call.

        Rows that are sent again would end a selection that a person makes with the mouse.
        """
        before = self._strips
        top = self.scroll_offset.y
        self._strips = [self._strip(top + y) for y in range(self.size.height)]
        for y, strip in enumerate(self._strips):
            if before[y : y + 1] != [strip]:
                self.refresh_line(top + y)

    def _strip(self, row: int) -> Strip:
        width = self.size.width
        if row >= self._first_rows[-1]:
            return Strip.blank(width)
        number = self._number_at(row)
        text = self._draw_line(self.lines[number])
        if self.wraps:
            rows = wrapped(text, *self._wrapping)
            text = rows[min(row - self._first_rows[number], len(rows) - 1)]
        strip = strip_of(text, width, self.scroll_offset.x)
        if number == self.chosen:  # without its colours: they would be the background
            return Strip([Segment(strip.text, _REVERSED)])
        return strip

    @property
    def chosen(self) -> int | None:
        """The number of the line with the cursor."""
        if self.chooses and self.cursor is None:
            return 0
        return self.cursor

    @property
    def _wrapping(self) -> tuple[int, int]:
        """The width and the indent of wrapped lines."""
        width = max(2, self.size.width)
        if self.indent < width // 2:
            return width, self.indent
        return width, 0

    def _number_at(self, row: int) -> int:
        return max(0, min(bisect_right(self._first_rows, row), len(self.lines)) - 1)

    @property
    def top(self) -> int:
        """The number of the first line on the screen."""
        return self._number_at(self.scroll_offset.y)

    @property
    def on_screen(self) -> Sequence[Line]:
        """The lines of which the screen has room for the first row at least, if none is wrapped."""
        return self.lines[self.top : self.top + self.size.height]

    def share(self) -> str:
        """Return the place as ``top``, ``end`` or ``37%``."""
        row = self.scroll_offset.y
        if row >= self.max_scroll_y:
            return "end" if row else "all"
        if row == 0:
            return "top"
        return f"{100 * row // self.virtual_size.height}%"

    # --- what can happen to it

    def show(self, lines: Sequence[Line]) -> None:
        """Take other lines.

        The end stays on the screen where it is followed; else the line that a person has chosen,
        or the first one on the screen, stays where it is.
        """
        before = self.lines
        fixed = self.cursor if self.chooses else self.top
        part = self.scroll_offset.y - self._first_rows[fixed or 0]
        self.lines = lines
        self._lay_out()
        row = 0
        if self.follows:
            row = self.virtual_size.height
        elif lines and fixed is not None:
            first_row, next_row = self._rows_of(self._number_now(before, fixed))
            row = min(first_row + part, next_row - 1)  # on a wider screen, it may have fewer rows
        self._scroll(row)
        if self.cursor is not None:
            self.cursor = self._number_now(before, self.cursor)
            if self.chooses:
                self._reveal(self.cursor)
        self.update()

    def _number_now(self, before: Sequence[Line], number: int) -> int:
        """Return the number that a line has now; of a line that is gone, the number that it had."""
        if number < len(before):
            key = self._line_key(before[number])
            numbers = (now for now, line in enumerate(self.lines) if self._line_key(line) == key)
            number = next(numbers, number)
        return max(0, min(number, len(self.lines) - 1))

    def _lay_out(self) -> None:
        self._first_rows = range(len(self.lines) + 1)
        width = LONGEST_LINE
        if self.wraps and self.size.width:
            width, indent = self._wrapping
            counts = (count_rows(self._plain_text(line), width, indent) for line in self.lines)
            self._first_rows = [0, *accumulate(counts)]
        self.set_reactive(LineView.virtual_size, Size(width, self._first_rows[-1]))

    def _rows_of(self, number: int) -> tuple[int, int]:
        """Return the first row of a line, and that of the next line."""
        return self._first_rows[number], self._first_rows[number + 1]

    def _scroll(self, row: int) -> None:
        self.scroll_to(y=row, animate=False, force=True)

    def on_resize(self) -> None:
        """Fit the lines into the new size."""
        self.show(self.lines)

    def wrap(self, wraps: bool) -> None:
        """Wrap long lines, or do not; the line at the top stays, from its beginning."""
        if wraps != self.wraps:
            self.wraps = wraps
            self._scroll(self._first_rows[self.top])
            self.sideways(-LONGEST_LINE)
            self.show(self.lines)

    def sideways(self, columns: int) -> None:
        """Move to the right or to the left."""
        self.scroll_relative(x=columns, animate=False, force=True)
        self.update()

    def move(self, rows: int) -> None:
        """Move the cursor, or the rows where there is none."""
        if self.chooses:
            self.choose((self.cursor or 0) + rows)
        else:
            self._scroll(self.scroll_offset.y + rows)
            self.update()

    def choose(self, number: int, around: int = 0) -> None:
        """Put the cursor on a line, and show it; with lines around it, if it is not there yet."""
        self.cursor = max(0, min(number, len(self.lines) - 1))
        self._reveal(self.cursor, around)
        self.update()

    def _reveal(self, number: int, around: int = 0) -> None:
        if self.lines:
            first_row, next_row = self._rows_of(number)
            self.scroll_to_region(
                Region(self.scroll_offset.x, first_row, 1, next_row - first_row),
                spacing=Spacing(around, 0, around, 0),
                animate=False,
                force=True,
            )
