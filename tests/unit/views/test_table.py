"""Tables for a terminal."""

from __future__ import annotations

from rich.console import Console

from hpcrun.views.text import fitting, text_table


def drawn(width: int, *rows: tuple[str, ...]) -> list[str]:
    console = Console(width=width, height=25, highlight=False, markup=False)
    table = text_table(("NAME", "SIZE", "REASON"), rows, right=("SIZE",), whole=("NAME",))
    with console.capture() as capture:
        console.print(table)
    return [line.rstrip() for line in capture.get().splitlines()]


def test_on_a_narrow_terminal_the_columns_that_are_not_whole_are_folded() -> None:
    row = ("a-long-name", "7", "the node failed")
    assert drawn(80, row) == ["NAME         SIZE  REASON", "a-long-name     7  the node failed"]
    assert drawn(27, row) == ["NAME         SIZE  REASON", "a-long-name     7  the node", "                   failed"]


def test_cells_are_shown_as_they_are_and_do_nothing_to_the_terminal() -> None:
    assert drawn(80, ("[bold]x", ":warning:", "a\x1b[2Jb\nc"))[1] == "[bold]x  :warning:  a?[2Jb?c"


def test_columns_are_left_out_in_order_until_the_others_fit() -> None:
    needed = {"a": 10, "b": 5, "c": 5}
    assert fitting(needed, 24, ("x", "c", "b")) == ("a", "b", "c")
    assert fitting(needed, 23, ("x", "c", "b")) == ("a", "b")
    assert fitting(needed, 5, ("x", "c", "b")) == ("a",)
