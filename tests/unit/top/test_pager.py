"""Which part of some lines is on the screen."""

from __future__ import annotations

from rich.style import Style
from rich.text import Text

from hpcrun.features.top.pager import Pages, pieces_of, search_pattern, sliced, wrapped
from hpcrun.features.top.screen import Row, cut

_PLAIN = Style()


def _pages(count: int, *, height: int = 5, width: int = 10, wraps: bool = False, text: str = "line") -> Pages[str]:
    def draw(line: str) -> Row:
        return [(line, _PLAIN)]

    pages = Pages(draw, width=width, height=height, wraps=wraps)
    pages.show([f"{text} {number}" for number in range(count)])
    return pages


def _text(rows: list[Row]) -> list[str]:
    return ["".join(text for text, _ in row) for row in rows]


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
    assert len(pages.rows_of(0)) == 3
    pages.move(1)
    assert (pages.top, pages.part) == (0, 1)
    pages.to_end()
    assert (pages.top, pages.part) == (2, 1)
    assert _text(pages.rows())[-1] == "l 3"
    pages.move(-2)
    assert (pages.top, pages.part) == (1, 2)


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
    assert Style(reverse=True) in [style for _, style in pages.rows()[1]]


def test_a_line_is_cut_at_the_side_and_says_so() -> None:
    row: Row = [("0123456789", _PLAIN), ("abc", Style(bold=True))]
    assert _text([sliced(row, 0, 13)]) == ["0123456789abc"]
    assert sliced(row, 0, 12) == [("0123456789", _PLAIN), ("a", Style(bold=True)), ("…", _PLAIN)]
    assert _text([sliced(row, 8, 20)]) == ["89abc"]
    assert _text([sliced([("漢字漢字", _PLAIN)], 2, 4)]) == ["字…"]


def test_a_text_that_is_cut_has_at_most_so_many_cells() -> None:
    assert [cut("abcdef", width) for width in (0, 1, 3, 6)] == ["", "…", "ab…", "abcdef"]
    assert [cut("漢字漢字", width) for width in (0, 1, 3, 5, 8)] == ["", "…", "漢…", "漢字…", "漢字漢字"]
    assert cut("漢字漢字", 4) == "漢 …"  # half of a character has no room: a blank stands there


def test_wide_characters_are_not_split_between_rows() -> None:
    assert _text(wrapped([("漢字漢", _PLAIN)], 5)) == ["漢字", "漢"]
    assert _text(wrapped([("abcdefgh", _PLAIN), ("ij", _PLAIN)], 4)) == ["abcd", "efgh", "ij"]
    assert _text(wrapped([("err│", _PLAIN), ("abcdefghijklm", _PLAIN)], 10, 4)) == ["err│abcdef", "    ghijkl", "    m"]
    assert wrapped([], 4) == [[]]


def test_markup_is_text() -> None:
    assert pieces_of(Text("[bold]no[/bold]")) == [("[bold]no[/bold]", _PLAIN)]


def test_a_search_ignores_case_unless_it_has_capitals() -> None:
    assert search_pattern("error")[0].is_in("KeyError")
    assert not search_pattern("error E")[0].is_in("KeyError e")
    assert search_pattern("loss [0-9]")[0].is_in("Loss 3")
    assert search_pattern("f(x")[0].is_in("call f(x)")
    assert search_pattern("f(x")[1] == "searched as plain text (no regular expression), "
