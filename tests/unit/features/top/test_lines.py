"""What is on the screen of many lines, and what a key changes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, TypeVar, cast

import pytest
from rich.text import Text
from textual.app import App, ComposeResult
from textual.screen import Screen

from hpcrun.features.top.lines import LineView, count_rows, strip_of, wrapped
from hpcrun.features.top.table import TableScreen, table_line
from hpcrun.features.top.text_screen import TextScreen, search_pattern

Scene = Callable[[LineView[str]], None]


def _numbered(count: int, text: str = "line") -> list[str]:
    return [f"{text} {number}" for number in range(count)]


def _shown(lines: LineView[Any]) -> list[str]:
    """The rows on the screen; an empty one at the end is not there."""
    rows = [lines.render_line(y).text.rstrip() for y in range(lines.size.height)]
    while rows and not rows[-1]:
        rows.pop()
    return rows


class ShownLines(App[None]):
    """Lines on the whole of a terminal."""

    def __init__(self, lines: LineView[str]) -> None:
        super().__init__()
        self._lines = lines

    def compose(self) -> ComposeResult:
        yield self._lines


def _play(
    shown: Sequence[str],
    scene: Scene,
    *,
    width: int = 10,
    height: int = 5,
    wraps: bool = False,
    **options: Any,
) -> None:
    """Play a scene with lines on a terminal of a size."""
    lines: LineView[str] = LineView(Text, **options)
    lines.wraps = wraps

    async def run_it() -> None:
        async with ShownLines(lines).run_test(size=(width, height)) as pilot:
            lines.show(shown)
            await pilot.pause()
            scene(lines)

    asyncio.run(run_it())


def test_a_move_shows_the_lines_around_it_and_stops_at_the_end() -> None:
    def scene(lines: LineView[str]) -> None:
        lines.move(4)
        assert _shown(lines)[0] == "line 4"
        lines.move(20)
        assert _shown(lines) == [f"line {number}" for number in range(7, 12)]
        assert lines.share() == "end"
        lines.move(-4)
        assert lines.share() == "25%"
        lines.move(-90)
        assert _shown(lines)[0] == "line 0"
        assert lines.share() == "top"

    _play(_numbered(12), scene)


@pytest.mark.parametrize("count", [0, 3])
def test_few_lines_are_all_on_the_screen(count: int) -> None:
    def scene(lines: LineView[str]) -> None:
        lines.move(4)
        assert _shown(lines) == _numbered(count)
        assert lines.share() == "all"

    _play(_numbered(count), scene)


def test_wrapped_lines_move_row_by_row() -> None:
    texts = _numbered(4, "a line of twenty cell")

    def scene(lines: LineView[str]) -> None:
        lines.move(1)
        assert _shown(lines)[:3] == ["twenty cel", "l 0", "a line of"]
        lines.move(99)
        assert _shown(lines) == ["twenty cel", "l 2", "a line of", "twenty cel", "l 3"]
        lines.move(-2)
        assert _shown(lines)[0] == "l 1"

    _play(texts, scene, wraps=True)


def test_without_wrapping_the_line_at_the_top_stays() -> None:
    def scene(lines: LineView[str]) -> None:
        lines.move(2)  # the last row of the first line
        lines.wrap(False)
        assert _shown(lines) == ["a line of…"] * 5
        assert lines.top == 0
        assert lines.scroll_offset.y == 0

    _play(_numbered(20, "a line of twenty cell"), scene, wraps=True)


def test_wrapped_lines_begin_at_the_left() -> None:
    def scene(lines: LineView[str]) -> None:
        lines.sideways(16)
        lines.wrap(True)
        assert _shown(lines)[0] == "a line of"

    _play(_numbered(20, "a line of twenty cell"), scene)


def test_lines_that_are_wrapped_already_keep_their_place() -> None:
    def scene(lines: LineView[str]) -> None:
        lines.move(2)
        lines.wrap(True)
        assert lines.top == 0
        assert lines.scroll_offset.y == 2

    _play(_numbered(20, "a line of twenty cell"), scene, wraps=True)


def test_on_a_wider_screen_the_line_at_the_top_stays() -> None:
    lines: LineView[str] = LineView(Text)
    lines.wraps = True

    async def run_it() -> None:
        async with ShownLines(lines).run_test(size=(10, 5)) as pilot:
            lines.show(_numbered(20, "a line of twenty cell"))
            await pilot.pause()
            lines.move(5)
            await pilot.resize_terminal(30, 5)
            await pilot.pause()
            assert _shown(lines)[0] == "a line of twenty cell 1"

    asyncio.run(run_it())


def test_wrapped_lines_fit_into_another_width() -> None:
    lines: LineView[str] = LineView(Text)
    lines.wraps = True

    async def run_it() -> None:
        async with ShownLines(lines).run_test(size=(10, 4)) as pilot:
            lines.follows = True
            lines.show(_numbered(9, "a line of 20 cells"))
            await pilot.pause()
            assert _shown(lines) == ["a line of", "20 cells 7", "a line of", "20 cells 8"]
            await pilot.resize_terminal(20, 3)
            await pilot.pause()
            assert _shown(lines) == [f"a line of 20 cells {number}" for number in (6, 7, 8)]

    asyncio.run(run_it())


def test_the_cursor_stays_on_the_screen() -> None:
    def scene(lines: LineView[str]) -> None:
        lines.choose(0)
        lines.move(7)
        assert lines.cursor == 7
        assert lines.top == 3
        lines.move(-7)
        assert lines.cursor == 0
        assert lines.top == 0
        lines.move(100)
        assert lines.cursor == 19
        assert lines.top == 15
        lines.show(lines.lines[:3])
        assert lines.cursor == 2
        assert lines.top == 0

    _play(_numbered(20), scene, chooses=True)


def test_lines_that_come_leave_the_line_at_the_top_where_it_is() -> None:
    def scene(lines: LineView[str]) -> None:
        lines.move(8)
        before = list(lines.lines)
        lines.show(["older", *before])
        assert _shown(lines)[0] == "line 8"
        lines.follows = True
        lines.show([*before, "newer"])
        assert _shown(lines)[-1] == "newer"

    _play(_numbered(20), scene)


def test_a_match_is_shown_with_some_lines_around_it_and_stays_marked() -> None:
    def marked(lines: LineView[str]) -> list[str]:
        strips = [lines.render_line(y) for y in range(lines.size.height)]
        return [
            strip.text.rstrip()
            for strip in strips
            if all(part.style and part.style.reverse for part in strip)
        ]

    def scene(lines: LineView[str]) -> None:
        lines.choose(50, around=3)
        assert {f"line {number}" for number in range(47, 54)} <= {*_shown(lines)}
        lines.choose(20, around=3)
        assert lines.top == 17
        assert marked(lines) == ["line 20"]
        lines.show(["older", *lines.lines])
        assert lines.top == 18
        assert marked(lines) == ["line 20"]

    _play(_numbered(100), scene, height=10)


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
    assert strip_of(Text(text), width, left).text == shown


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
    assert count_rows(text, width, indent) == len(parts)


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

    def __init__(self) -> None:
        super().__init__(
            cast(Any, None), lambda row: table_line(self.widths, {"name": row}), lambda row: row
        )

    def title_line(self) -> Text:
        return Text("a table")

    def take(self, *numbers: int) -> None:
        self.show_rows([f"run-{number}" for number in numbers], {"name": 10})

    @property
    def place(self) -> tuple[str | None, int, int | None]:
        """The key with the cursor, the first row on the screen, and the number of the row with the
        cursor.
        """
        return self.row, self.lines.top, self.lines.chosen


S = TypeVar("S", bound=Screen[Any])


def on_screen(shown: S, scene: Callable[[S], None]) -> None:
    """Play a scene with a screen of forty columns that has room for nine rows of a table."""

    async def run_it() -> None:
        app: App[Any] = App()
        async with app.run_test(size=(40, 9 + AROUND)) as pilot:
            await app.push_screen(shown)
            await pilot.pause()
            scene(shown)

    asyncio.run(run_it())


def play(scene: Callable[[Shown], None]) -> None:
    """Play a scene with a table of which nine rows have room."""
    on_screen(Shown(), scene)


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
        assert table.lines.on_screen == [f"run-{number}" for number in range(12, 21)]

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
        assert table.row is None
        table.take(*range(30))
        table.action_page(1)
        assert table.place == ("run-9", 1, 9)

    play(scene)


# --- long lines ----------------------------------------------------------------------------------


class Reading(TextScreen):
    """Six lines of a hundred columns, which are wrapped into three rows each."""

    def __init__(self) -> None:
        super().__init__(cast(Any, None), LineView[str](Text))
        self.lines.wraps = True

    def title_line(self) -> Text:
        return Text("lines")

    def on_mount(self) -> None:
        self.lines.show([str(number) * 100 for number in range(6)])

    @property
    def shown(self) -> list[str]:
        """What stands on the screen."""
        return _shown(self.lines)


def test_to_the_right_lines_are_no_longer_wrapped() -> None:
    def scene(screen: Reading) -> None:
        assert screen.shown[:4] == ["0" * 40, "0" * 40, "0" * 20, "1" * 40]
        screen.action_sideways(16)
        assert screen.shown == [f"{number}" * 39 + "…" for number in range(6)]
        assert screen.lines.scroll_offset.x == 16
        screen.action_sideways(16)
        assert screen.lines.scroll_offset.x == 32

    on_screen(Reading(), scene)


def test_there_is_nothing_on_the_left_of_a_line() -> None:
    def scene(screen: Reading) -> None:
        screen.action_sideways(16)
        screen.action_sideways(-16)
        screen.action_sideways(-16)
        assert screen.lines.scroll_offset.x == 0

    on_screen(Reading(), scene)


def test_to_the_right_no_line_is_lost() -> None:
    def scene(screen: Reading) -> None:
        screen.action_move(1)  # the second row of the first line is at the top
        screen.action_sideways(16)
        assert screen.shown == [f"{number}" * 39 + "…" for number in range(6)]

    on_screen(Reading(), scene)
