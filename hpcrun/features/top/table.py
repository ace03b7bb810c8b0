"""A table of any number of rows: only those on the screen are drawn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar, Generic

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType

from hpcrun.features.top.pager import Line, Pager, PagerScreen, Pages
from hpcrun.features.top.screen import TextLines
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
        self.rows: Pages[Line] = Pages(lambda row: self._line(*self.cells(row)), cursor=0, overlap=0)
        self._keys: Sequence[str] = ()
        self._widths: Mapping[str, int] = {}
        self._was_moved = False

    def body(self) -> ComposeResult:
        """Yield the table."""
        yield TextLines(lambda _: self._heading(), id="columns")
        yield Pager(self.rows)

    def cells(self, row: Line) -> tuple[str, Mapping[str, str], Mapping[str, str]]:
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

    def _heading(self) -> Text:
        return self._line(" ", {name: name.upper() for name in self._widths}, dict.fromkeys(self._widths, "bold"))

    def _line(self, sign: str, texts: Mapping[str, str], styles: Mapping[str, str]) -> Text:
        cells = []
        for name, wide in self._widths.items():
            cell = Text(visible(texts.get(name, "")), styles.get(name, ""), overflow="ellipsis")
            cell.align("right" if name in _RIGHT else "left", wide)
            cells.append(cell)
        return Text.assemble((sign, "bold"), Text(" " * GAP).join(cells))
