"""The table that draws only the rows on the screen: where its cursor and its first row are after other rows came."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, cast

from textual.app import App

from hpcrun.features.top.pager import TableScreen

AROUND = 4
"""Lines of the screen around nine rows: the title, the names of the columns, the message, and the keys."""


class Shown(TableScreen[str]):
    """A table whose rows are their keys."""

    def cells(self, row: str) -> tuple[str, Mapping[str, str], Mapping[str, str]]:
        return " ", {"name": row}, {}

    def column_widths(self, width: int) -> Mapping[str, int]:
        return {"name": 10}

    def take(self, *numbers: int) -> None:
        keys = [f"run-{number}" for number in numbers]
        self.show_rows(keys, keys)

    @property
    def place(self) -> tuple[str | None, int, int | None]:
        """The key with the cursor, the first row on the screen, and the number of the row with the cursor."""
        return self.key, self.rows.top, self.rows.cursor


def play(scene: Callable[[Shown], None]) -> None:
    """Play a scene with a table of which nine rows have room."""

    async def run_it() -> None:
        app: App[Any] = App()
        async with app.run_test(size=(40, 9 + AROUND)) as pilot:
            await app.push_screen(Shown(cast(Any, None)))
            await pilot.pause()
            assert isinstance(app.screen, Shown)
            scene(app.screen)

    asyncio.run(run_it())


def test_the_row_with_the_cursor_stays_where_it_is_on_the_screen_when_rows_come_before_it() -> None:
    def scene(table: Shown) -> None:
        table.take(*range(50))
        table.action_move(20)
        table.action_move(-4)
        assert table.place == ("run-16", 12, 16)
        table.take(*range(-3, 50))
        assert table.place == ("run-16", 15, 19)
        table.take(*range(10, 50))
        assert table.place == ("run-16", 2, 6)
        assert table.rows.on_screen == [f"run-{number}" for number in range(12, 21)]

    play(scene)


def test_the_cursor_is_at_the_top_until_it_is_moved_and_stays_inside() -> None:
    def scene(table: Shown) -> None:
        table.take(1, 2)
        table.take(0, 1, 2)
        assert table.place == ("run-0", 0, 0)
        table.action_move(2)
        table.take(0, 1)  # its row is gone: the cursor takes the place nearest to it
        assert table.place == ("run-1", 0, 1)
        table.take()
        assert table.key is None
        table.take(*range(30))
        table.action_page(1)
        assert table.place == ("run-9", 1, 9)

    play(scene)
