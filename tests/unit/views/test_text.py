"""Text made safe and short for a terminal."""

from __future__ import annotations

import csv
import io
import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from hpcrun.job.text.units import format_age
from hpcrun.views.text import (
    count,
    csv_text,
    fitting,
    harmless,
    memory_text,
    one_line,
    text_table,
    time_text,
)
from tests.unit.given import drawn

PIECES = [
    "\x1b",
    "[",
    "]",
    "0;",
    "31",
    "m",
    "\x07",
    "\x1b\\",
    "\x9b",
    "\x9d",
    "P",
    "_",
    "a",
    "\n",
    "\r",
    "\t",
    "\b",
    "J",
    "\x1b[31m",
    "\x1b[2J",
    "\x1b]0;title\x07",
    "é",
    "\x00",
    "\x7f",
    "?25l",
    "\x18",
]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        *(
            (text, text)
            for text in (
                "plain text\n",
                "\x1b[31mred\x1b[0m",
                "\x1b[38;5;12mx",
                "50%\r60%\r",
                "a\tb",
            )
        ),
        ("\x1b[2Jgone", "gone"),
        ("\x1b[10;20Hmoved", "moved"),
        ("\x1b[?25lhidden", "hidden"),
        ("\x1b]0;title\x07x", "x"),
        ("\x1b]0;title\x1b\\x", "x"),
        ("\x1b]52;c;ZWNobyBoaQ==\x07x", "x"),
        ("\x1bP+q544e\x1b\\x", "x"),
        ("\x1b[6nasks", "asks"),
        ("\x1bcreset", "reset"),
        ("\x9b2Jx", "x"),
        ("bell\x07", "bell"),
        ("back\b\b", "back"),
        ("end\x1b", "end"),
        ("é✓", "é✓"),
    ],
)
def test_a_job_may_colour_its_output_and_nothing_else(text: str, shown: str) -> None:
    assert harmless(text) == shown


@given(st.text(max_size=40) | st.lists(st.sampled_from(PIECES), max_size=20).map("".join))
@example("\x1b\x1b[2J")
@example("\x1b[\x1b[2J")
@example("\x1b[3\x001m")
@example("\x1b]0;no end")
def test_nothing_but_colours_is_left_that_acts_on_a_terminal(text: str) -> None:
    left = re.sub(r"\x1b\[[0-9;:]*m", "", harmless(text))
    assert not [
        char for char in left if (char < " " and char not in "\t\n\r") or "\x7f" <= char <= "\x9f"
    ]


@given(st.text() | st.lists(st.sampled_from([*PIECES, "=", "-", "1", "\u202e"])).map("".join))
@example("\x1b]0;title\x07")
@example("\r=cmd")
@example("\ud83d")
@example("a\x00b")
def test_csv_acts_neither_on_a_terminal_nor_in_a_spreadsheet(text: str) -> None:
    written = csv_text([text], [[text, 1.5, None, True]])
    assert len(lines := written.split("\n")) == 3
    assert all(line.replace("\u200c", "").replace("\u200d", "").isprintable() for line in lines)
    (name,), (cell, number, missing, flag) = csv.reader(io.StringIO(written))
    assert (number, missing, flag) == ("1.5", "", "1")
    for each in (name, cell):
        assert not each.startswith(("=", "+", "-", "@")) or float(each) == float(text)


def test_csv_shows_characters_that_cannot_be_seen_and_leaves_the_others() -> None:
    texts = ["a\x1b[2Jb", "a\rb", "a\bb", "\u202etxt", "é 👩\u200d💻", "a,b", 'say "x"']
    assert csv_text(texts, [texts]).splitlines()[1] == (
        r"a\x1b[2Jb,a\rb,a\x08b,\u202etxt," + 'é 👩\u200d💻,"a,b","say ""x"""'
    )


@given(st.text())
def test_one_line_is_one_line_that_can_be_printed(text: str) -> None:
    assert one_line(text).isprintable()
    assert len(one_line(text)) == len(text)


def test_numbers_in_words() -> None:
    times = {None: "-", 0: "00:00:00", 5400: "01:30:00", 90000: "1-01:00:00"}
    memory = {
        None: "the site's default",
        0: "all of the node",
        65536: "64G per node",
        500: "500M per node",
    }
    ages = {
        -3: "0 s ago",
        0: "0 s ago",
        59.9: "59 s ago",
        60: "1 min ago",
        7200: "2 h ago",
        200000: "2 d ago",
    }
    assert {number: time_text(number) for number in times} == times
    assert {number: memory_text(number) for number in memory} == memory
    assert {number: format_age(number) for number in ages} == ages
    assert [count(number, "node") for number in (0, 1, 2)] == ["0 nodes", "1 node", "2 nodes"]


def table(width: int, *rows: tuple[str, ...]) -> list[str]:
    return drawn(
        text_table(("NAME", "SIZE", "REASON"), rows, right=("SIZE",), whole=("NAME",)), width
    )


def test_a_table_folds_what_is_not_whole_and_does_nothing_to_the_terminal() -> None:
    row = ("a-long-name", "7", "the node failed")
    assert table(80, row) == ["NAME         SIZE  REASON", "a-long-name     7  the node failed"]
    assert table(27, row) == [
        "NAME         SIZE  REASON",
        "a-long-name     7  the node",
        "                   failed",
    ]
    assert table(80, ("[bold]x", ":warning:", "a\x1b[2Jb\nc"))[1] == "[bold]x  :warning:  a?[2Jb?c"
    needed = {"a": 10, "b": 5, "c": 5}
    assert fitting(needed, 24, ("x", "c", "b")) == ("a", "b", "c")
    assert fitting(needed, 23, ("x", "c", "b")) == ("a", "b")
    assert fitting(needed, 5, ("x", "c", "b")) == ("a",)
