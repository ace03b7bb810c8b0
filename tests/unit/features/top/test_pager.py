"""Which part of some lines is on the screen."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, TypeVar, cast

import pytest
from rich.text import Text
from textual.app import App, ComposeResult
from textual.screen import Screen
from textual.strip import Strip

from hpcrun.features.top.pager import Pager, Pages, TableScreen, TextScreen, search_pattern
from hpcrun.features.top.screen import strip_of, wrapped


def _pages(count: int, *, wraps: bool = False, text: str = "line", height: int = 5) -> Pages[str]:
    pages = Pages[str](Text, width=10, height=height, wraps=wraps)
    pages.show([f"{text} {number}" for number in range(count)])
    return pages


def _text(rows: list[Strip]) -> list[str]:
    return [row.text.rstrip() for row in rows]


def test_a_page_down_keeps_one_line_and_stops_at_the_end() -> None:
    pages = _pages(12)
    pages.page(1)
    assert _text(pages.rows())[0] == "line 4"
    pages.page(5)
    assert _text(pages.rows()) == [f"line {number}" for number in range(7, 12)]
    assert (pages.is_at_end, pages.share()) == (True, "end")
    pages.page(-9)
    assert (pages.top, pages.share()) == (0, "top")


def test_few_lines_are_all_on_the_screen() -> None:
    pages = _pages(3)
    pages.page(1)
    assert (pages.top, pages.share(), len(pages.rows())) == (0, "all", 3)
    assert _pages(0).rows() == []


def test_wrapped_lines_move_row_by_row() -> None:
    pages = _pages(4, wraps=True, text="a line of twenty cell")
    pages.move(1)
    assert (pages.top, pages.part) == (0, 1)
    pages.to_end()
    assert (pages.top, pages.part) == (2, 1)
    assert _text(pages.rows())[-1] == "l 3"
    pages.move(-2)
    assert (pages.top, pages.part) == (1, 2)


def test_without_wrapping_the_line_at_the_top_stays() -> None:
    pages = _pages(20, wraps=True, text="a line of twenty cell")
    pages.move(2)  # the last row of the first line
    pages.wrap(False)
    assert _text(pages.rows()) == ["a line of…"] * 5
    assert (pages.top, pages.part) == (0, 0)


def test_wrapped_lines_begin_at_the_left() -> None:
    pages = _pages(20, text="a line of twenty cell")
    pages.left = 16
    pages.wrap(True)
    assert _text(pages.rows())[0] == "a line of"


def test_lines_that_are_wrapped_already_keep_their_place() -> None:
    pages = _pages(20, wraps=True, text="a line of twenty cell")
    pages.move(2)
    pages.wrap(True)
    assert (pages.top, pages.part) == (0, 2)


def test_on_a_wider_screen_the_line_at_the_top_stays() -> None:
    pages = _pages(20, wraps=True, text="a line of twenty cell")
    pages.move(5)
    pages.resize(30, 5)
    assert _text(pages.rows())[0] == "a line of twenty cell 1"


def test_the_cursor_stays_on_the_screen() -> None:
    pages = _pages(20)
    pages.choose(0)
    pages.move(7)
    assert (pages.cursor, pages.top) == (7, 3)
    pages.move(-7)
    assert (pages.cursor, pages.top) == (0, 0)
    pages.page(100)
    assert (pages.cursor, pages.top) == (19, 15)
    pages.show(pages.lines[:3])
    assert (pages.cursor, pages.top) == (2, 0)


def test_lines_that_come_leave_the_line_at_the_top_where_it_is() -> None:
    pages = _pages(20)
    pages.move(8)
    before = list(pages.lines)
    pages.show(["older", *before])
    assert _text(pages.rows())[0] == "line 8"
    pages.show([*before, "newer"], follow=True)
    assert _text(pages.rows())[-1] == "newer"


def test_a_match_is_shown_with_some_lines_around_it() -> None:
    pages = _pages(100, height=10)
    pages.reveal(50)
    assert pages.top <= 47 and pages.top + 10 >= 53
    pages.reveal(20)
    assert pages.top == 17
    pages.mark = 18
    assert [segment.style and segment.style.reverse for segment in pages.rows()[1]] == [True]


@pytest.mark.parametrize(
    ("text", "left", "width", "shown"),
    [
        ("0123456789abc", 0, 13, "0123456789abc"),
        ("0123456789abc", 0, 12, "0123456789a…"),
        ("0123456789abc", 8, 20, "89abc               "),
        ("漢字漢字", 2, 4, "字 …"),  # half of a character has no room: a blank stands there
        ("漢字漢字", 0, 4, "漢 …"),
        ("漢字漢字", 0, 8, "漢字漢字"),
        ("abc", 0, 1, "…"),
        ("abc", 0, 0, ""),
        # markup is text, and so are control characters
        ("[bold]\x1b[2J", 0, 14, "[bold]\\x1b[2J "),
    ],
)
def test_a_line_is_cut_at_the_side_and_says_so(
    text: str, left: int, width: int, shown: str
) -> None:
    assert strip_of(text, width, left).text == shown


def test_a_part_of_a_line_keeps_its_style() -> None:
    line = Text.assemble("0123456789", ("abc", "bold"))
    assert [(part.text, bool(part.style and part.style.bold)) for part in strip_of(line, 4, 8)] == [
        ("89", False),
        ("a", True),
        ("…", False),
    ]


@pytest.mark.parametrize(
    ("text", "width", "indent", "parts"),
    [
        ("漢字漢", 5, 0, ["漢字", "漢"]),  # wide characters are not split between rows
        ("abcdefghij", 4, 0, ["abcd", "efgh", "ij"]),
        ("err│abcdefghijklm", 10, 4, ["err│abcdef", "    ghijkl", "    m"]),
        ("", 4, 0, [""]),
    ],
)
def test_a_long_line_is_wrapped(text: str, width: int, indent: int, parts: list[str]) -> None:
    assert [part.plain for part in wrapped(Text(text), width, indent)] == parts


def test_a_search_ignores_case_unless_it_has_capitals() -> None:
    assert search_pattern("error")[0].is_in("KeyError")
    assert not search_pattern("error E")[0].is_in("KeyError e")
    assert search_pattern("loss [0-9]")[0].is_in("Loss 3")
    assert search_pattern("f(x")[0].is_in("call f(x)")
    assert search_pattern("f(x")[1] == "searched as plain text (no regular expression), "


# --- a table -------------------------------------------------------------------------------------

AROUND = 4
"""Lines of the screen around nine rows: the title, the names of the columns, the message, and the
keys.
"""


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
        """The key with the cursor, the first row on the screen, and the number of the row with the
        cursor.
        """
        return self.key, self.rows.top, self.rows.cursor


S = TypeVar("S", bound=Screen[Any])


def on_screen(kind: type[S], scene: Callable[[S], None]) -> None:
    """Play a scene with a screen that has nine rows of forty columns."""

    async def run_it() -> None:
        app: App[Any] = App()
        async with app.run_test(size=(40, 9 + AROUND)) as pilot:
            await app.push_screen(kind(cast(Any, None)))
            await pilot.pause()
            assert isinstance(app.screen, kind)
            scene(app.screen)

    asyncio.run(run_it())


def play(scene: Callable[[Shown], None]) -> None:
    """Play a scene with a table of which nine rows have room."""
    on_screen(Shown, scene)


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


# --- long lines ----------------------------------------------------------------------------------


def long_lines(count: int) -> list[str]:
    """Lines of a hundred columns, each with its own digits."""
    return [str(number % 10) * 100 for number in range(count)]


class Reading(TextScreen):
    """Six lines, which are wrapped into three rows each."""

    def body(self) -> ComposeResult:
        pages = Pages[str](Text, wraps=True)
        pages.show(long_lines(6))
        yield Pager(pages)

    def on_mount(self) -> None:
        self.draw()

    @property
    def shown(self) -> list[str]:
        """What stands on the screen."""
        return _text(self.pager.pages.rows())


def test_to_the_right_lines_are_no_longer_wrapped() -> None:
    def scene(screen: Reading) -> None:
        assert screen.shown[:4] == ["0" * 40, "0" * 40, "0" * 20, "1" * 40]
        screen.action_sideways(16)
        assert screen.shown == [f"{number}" * 39 + "…" for number in range(6)]
        assert screen.pager.pages.left == 16
        screen.action_sideways(16)
        assert screen.pager.pages.left == 32

    on_screen(Reading, scene)


def test_there_is_nothing_on_the_left_of_a_line() -> None:
    def scene(screen: Reading) -> None:
        screen.action_sideways(16)
        screen.action_sideways(-16)
        screen.action_sideways(-16)
        assert screen.pager.pages.left == 0

    on_screen(Reading, scene)


def test_to_the_right_no_line_is_lost() -> None:
    def scene(screen: Reading) -> None:
        screen.action_move(1)  # the second row of the first line is at the top
        screen.action_sideways(16)
        assert screen.shown == [f"{number}" * 39 + "…" for number in range(6)]

    on_screen(Reading, scene)
