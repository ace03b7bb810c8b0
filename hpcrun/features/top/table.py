"""A table of any number of rows: only those on the screen are drawn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar, Generic

from rich.cells import set_cell_size
from rich.style import Style
from textual.app import ComposeResult
from textual.binding import Binding, BindingType

from hpcrun.features.top.pager import Line, Pager, PagerScreen, Pages
from hpcrun.features.top.screen import BOLD, PLAIN, Row, TextLines, cut
from hpcrun.views.text import GAP, visible

if TYPE_CHECKING:
    from hpcrun.features.top.reader import Reader

_RIGHT = ("elapsed", "limit", "nodes", "running", "pending")  # the columns of numbers, whose texts stand at the right


class TableScreen(PagerScreen, Generic[Line]):
    """A screen with a table: the names of its columns, and rows with a cursor."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("g,home", "start", "first row", show=False),
        Binding("G,end", "end", "last row", show=False),
    ]

    def __init__(self, reader: Reader) -> None:
        super().__init__(reader)
        self.rows: Pages[Line] = Pages(self._draw_row, cursor=0, overlap=0)
        self._keys: Sequence[str] = ()
        self._widths: Mapping[str, int] = {}
        self._was_moved = False

    def body(self) -> ComposeResult:
        """Yield the table."""
        yield TextLines(
            lambda *_: self._pieces(" ", {name: name.upper() for name in self._widths}, {}, BOLD), id="columns"
        )
        yield Pager(self.rows)

    def cells(self, row: Line) -> tuple[str, Mapping[str, str], Mapping[str, Style]]:
        """Return the sign before a row, its text by column, and the style of some columns; each screen has its own."""
        raise NotImplementedError

    def column_widths(self, width: int) -> Mapping[str, int]:
        """Return the columns of a screen so wide, each with its width; each screen has its own."""
        raise NotImplementedError

    @property
    def key(self) -> str | None:
        """The key of the row with the cursor."""
        return self._keys[self.rows.cursor or 0] if self._keys else None

    def show_rows(self, rows: Sequence[Line], keys: Sequence[str]) -> None:
        """Take other rows and their keys; the cursor stays at its row or its place, at the top before it was moved."""
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

    def _draw_row(self, row: Line) -> Row:
        return self._pieces(*self.cells(row), PLAIN)

    def _pieces(self, sign: str, texts: Mapping[str, str], styles: Mapping[str, Style], base: Style) -> Row:
        pieces: Row = [(sign, BOLD)]
        for name, wide in self._widths.items():
            text = cut(visible(texts.get(name, "")), wide)
            padded = text.rjust(wide) if name in _RIGHT else set_cell_size(text, wide)
            pieces += [(padded, base + styles.get(name, PLAIN)), (" " * GAP, base)]
        return pieces[:-1]
