"""The table that draws only the rows on the screen: where its cursor and its first row are after other rows came."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from textual.app import App, ComposeResult

from hpcrun.features.top.table import VirtualTable

HEIGHT = 10


def shown(look: Callable[[VirtualTable], None]) -> None:
    """Look at a table of which nine rows have room below the headings."""

    class Shows(App[None]):
        def compose(self) -> ComposeResult:
            yield VirtualTable(lambda number: ({"name": str(number)}, {}), lambda _: {"name": 10})

    async def run_it() -> None:
        async with Shows().run_test(size=(40, HEIGHT)) as pilot:
            await pilot.pause()
            look(pilot.app.query_one(VirtualTable))

    asyncio.run(run_it())


def keys(*numbers: int) -> list[str]:
    return [f"run-{number}" for number in numbers]


def test_the_row_with_the_cursor_stays_where_it_is_on_the_screen_when_rows_come_before_it() -> None:
    def look(table: VirtualTable) -> None:
        table.show(keys(*range(50)))
        table.action_move(20)
        table.action_move(-4)
        assert (table.key, table.top) == ("run-16", 12)
        table.show(keys(*range(-3, 50)))
        assert (table.key, table.top, table.cursor - table.top) == ("run-16", 15, 4)
        table.show(keys(*range(10, 50)))
        assert (table.key, table.top, table.cursor - table.top) == ("run-16", 2, 4)
        assert table.visible_rows == range(2, 2 + HEIGHT - 1)

    shown(look)


def test_the_cursor_is_at_the_top_until_it_is_moved_and_stays_inside() -> None:
    def look(table: VirtualTable) -> None:
        table.show(keys(1, 2))
        table.show(keys(0, 1, 2))
        assert (table.key, table.cursor) == ("run-0", 0)
        table.action_move(2)
        table.show(keys(0, 1))  # its row is gone: the cursor takes the place nearest to it
        assert (table.key, table.cursor) == ("run-1", 1)
        table.show([])
        assert table.key is None

    shown(look)
