"""A table of any number of rows: only those on the screen are drawn, and only what has changed of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar

from rich.style import Style
from textual.binding import Binding, BindingType
from textual.strip import Strip

from hpcrun.features.top.screen import BOLD, PLAIN, REVERSED, Piece, TextLines, cut, strip_of
from hpcrun.views.text import GAP, visible

_RIGHT = ("elapsed", "limit", "nodes", "running", "pending")


class VirtualTable(TextLines, can_focus=True):
    """A table with a cursor.

    Args:
        cells: number of a row → column → text, and the style of some columns.
        column_widths: width of the screen → the columns and their widths.
    """

    DEFAULT_CSS = "VirtualTable { height: 1fr; }"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("j,down", "move(1)", "down", show=False),
        Binding("k,up", "move(-1)", "up", show=False),
        Binding("pagedown,ctrl+f", "page(1)", "one screen down", show=False),
        Binding("pageup,ctrl+b", "page(-1)", "one screen up", show=False),
        Binding("g,home", "move(-1000000)", "first row", show=False),
        Binding("G,end", "move(1000000)", "last row", show=False),
    ]

    def __init__(
        self,
        cells: Callable[[int], tuple[Mapping[str, str], Mapping[str, Style]]],
        column_widths: Callable[[int], Mapping[str, int]],
        *,
        id: str | None = None,
    ) -> None:
        super().__init__(lambda *_: (), id=id)
        self._cells, self._column_widths = cells, column_widths
        self._widths: Mapping[str, int] = {}
        self._keys: Sequence[str] = ()
        self._marked: frozenset[str] = frozenset()
        self._was_moved = False
        self.cursor = self.top = 0

    @property
    def key(self) -> str | None:
        """The key of the row with the cursor."""
        return self._keys[self.cursor] if self._keys else None

    @property
    def visible_rows(self) -> range:
        """The numbers of the rows on the screen."""
        return range(self.top, min(len(self._keys), self.top + self._room))

    @property
    def _room(self) -> int:
        return max(1, self.size.height - 1)

    def show(self, keys: Sequence[str], marked: frozenset[str] = frozenset()) -> None:
        """Take other rows; the cursor stays at its row, or else at its place: at the top before it was moved.

        Args:
            keys: one for each row, none twice.
            marked: keys of the rows with a ``*``.
        """
        key = self.key if self._was_moved else None
        if key is not None and not (self.cursor < len(keys) and keys[self.cursor] == key) and key in keys:
            moved = keys.index(key) - self.cursor
            self.cursor += moved
            self.top += moved
        self._keys, self._marked = keys, marked
        self._keep_in_sight()
        self._widths = self._column_widths(self.size.width)

    def _keep_in_sight(self) -> None:
        self.cursor = max(0, min(self.cursor, len(self._keys) - 1))
        self.top = max(0, min(self.top, len(self._keys) - self._room))
        self.top = min(max(self.top, self.cursor - self._room + 1), self.cursor)

    def on_resize(self) -> None:
        """Fit the columns to the new size."""
        self._keep_in_sight()
        self._widths = self._column_widths(self.size.width)
        self.update()

    def render_line(self, y: int) -> Strip:
        """Return a line for the terminal."""
        width = self.size.width
        if y == 0:
            return strip_of(
                [(" ", BOLD), *self._pieces({name: name.upper() for name in self._widths}, {}, BOLD)], width
            )
        number = self.top + y - 1
        if number >= len(self._keys):
            return Strip.blank(width, PLAIN)
        base = REVERSED if number == self.cursor else PLAIN
        texts, styles = self._cells(number)
        sign = "*" if self._keys[number] in self._marked else " "
        return strip_of([(sign, base + BOLD), *self._pieces(texts, styles, base)], width, base)

    def _pieces(self, texts: Mapping[str, str], styles: Mapping[str, Style], base: Style) -> list[Piece]:
        pieces: list[Piece] = []
        for name, wide in self._widths.items():
            text = cut(visible(texts.get(name, "")), wide)
            padded = strip_of([(text, base)], wide).text if name not in _RIGHT else text.rjust(wide)
            # a colour would become the background of a reversed row
            own = base if base is REVERSED else base + styles.get(name, PLAIN)
            pieces += [(padded, own), (" " * GAP, base)]
        return pieces

    def action_move(self, rows: int) -> None:
        """Move the cursor."""
        self._was_moved = True
        before = self.cursor
        self.cursor = max(0, min(self.cursor + rows, len(self._keys) - 1))
        if self.cursor != before:
            self._keep_in_sight()
            self.update()

    def action_page(self, pages: int) -> None:
        """Move the cursor by screens."""
        self.action_move(pages * self._room)
