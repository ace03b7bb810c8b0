"""A screen with a table: the names of its columns, and rows with a cursor."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar, Generic, TypeVar

from rich.text import Text
from textual.binding import Binding, BindingType
from textual.widget import Widget

from hpcrun.features.top.lines import LineView, TextRow
from hpcrun.features.top.screen import ALL_LINES, TopScreen
from hpcrun.views.text import GAP, visible

if TYPE_CHECKING:
    from hpcrun.features.top.reader import Reader

Row = TypeVar("Row")
# the columns of numbers, whose texts stand at the right
_RIGHT = ("elapsed", "limit", "nodes", "running", "pending")


class TableScreen(TopScreen, Generic[Row]):
    """A screen with a table.

    Args:
        draw: a row → its text, by ``table_line``.
        key: a row → what stays the same in a later reading.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("g,home", f"move(-{ALL_LINES})", "first row", show=False),
        Binding("G,end", f"move({ALL_LINES})", "last row", show=False),
    ]

    def __init__(
        self, reader: Reader, draw: Callable[[Row], Text], key: Callable[[Row], str]
    ) -> None:
        super().__init__(reader, LineView(draw, key=key, chooses=True))
        self.widths: Mapping[str, int] = {}  # of the columns for which there is room
        self._heading_row = TextRow(id="columns")

    def body(self) -> Iterable[Widget]:
        """Return the table."""
        return [self._heading_row, self.lines]

    @property
    def row(self) -> Row | None:
        """The row with the cursor."""
        if self.lines.lines:
            row: Row = self.lines.lines[self.lines.chosen or 0]
            return row
        return None

    def show_rows(self, rows: Sequence[Row], widths: Mapping[str, int]) -> None:
        """Take other rows, and the widths of the columns."""
        self.widths = widths
        names = {name: name.upper() for name in widths}
        self._heading_row.text = table_line(widths, names, styles=dict.fromkeys(names, "bold"))
        self.lines.show(rows)
        self.draw_rows()


def table_line(
    widths: Mapping[str, int],
    texts: Mapping[str, str],
    *,
    sign: str = " ",
    styles: Mapping[str, str] | None = None,
) -> Text:
    """Return a row of a table.

    Args:
        widths: column → its width, in terminal columns.
        texts: column → what is in it.
        sign: what is before the row.
        styles: column → its style.
    """
    cells = []
    for name, width in widths.items():
        cell = Text(visible(texts.get(name, "")), (styles or {}).get(name, ""))
        cell.overflow = "ellipsis"
        cell.align("right" if name in _RIGHT else "left", width)
        cells.append(cell)
    return Text.assemble((sign, "bold"), Text(" " * GAP).join(cells))
