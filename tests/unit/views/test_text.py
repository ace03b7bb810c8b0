"""Text made safe and short for a terminal."""

from __future__ import annotations

import csv
import io
import re
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from rich.text import Text

from hpcrun.actions.jobs.git import WorkTree
from hpcrun.job.text.units import format_age
from hpcrun.views.text import (
    bytes_text,
    clock_text,
    code_text,
    count,
    csv_cell,
    csv_text,
    fields_of,
    fitting,
    folded_command,
    harmless,
    labelled,
    memory_text,
    one_line,
    rows_csv,
    size_text,
    start_text,
    text_table,
    time_text,
    visible,
    without_colours,
)
from tests.unit.builders import drawn, run

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
    assert number == "1.5"
    assert missing == ""
    assert flag == "1"
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


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain é", "plain é"),
        ("a\x1b[31m\n", r"a\x1b[31m\n"),
        ("\u202ea\u200db\u200c", "\\u202ea\u200db\u200c"),
        ("\\\t", "\\\\t"),
    ],
)
def test_invisible_characters_are_written_as_escapes(text: str, shown: str) -> None:
    assert visible(text) == shown


def test_harmless_text_without_its_colours() -> None:
    assert without_colours("\x1b[1;31mred\x1b[0m [31m") == "red [31m"


@pytest.mark.parametrize(
    ("text", "cell"),
    [("=1", "'=1"), ("-a", "'-a"), ("+", "'+"), ("@x", "'@x"), ("-1.5", "-1.5"), ("a=", "a=")],
)
def test_a_cell_that_a_spreadsheet_would_compute_has_an_apostrophe(text: str, cell: str) -> None:
    assert csv_cell(text) == cell


def test_rows_as_csv_have_the_named_columns() -> None:
    rows: list[dict[str, Any]] = [{"a": True, "b": 1.5}, {"a": False, "c": "x"}]
    assert rows_csv(rows, ("b", "a", "d")) == "b,a,d\n1.5,1,\n,0,"
    assert fields_of(run("r1"), "run_id nodes") == {"run_id": "r1", "nodes": 2}


def test_times_and_sizes_in_few_characters() -> None:
    times = {
        None: "-",
        0: "0:00",
        19: "0:19",
        600: "10:00",
        3600: "1:00:00",
        36000: "10:00:00",
        172800: "2-00:00:00",
    }
    sizes = {
        0: "0B",
        999: "999B",
        1000: "1.0K",
        10240: "10K",
        5 << 20: "5.0M",
        5 << 30: "5.0G",
        5 << 40: "5.0T",
        5 << 50: "5120.0T",
    }
    assert {number: clock_text(number) for number in times} == times
    assert {number: bytes_text(number) for number in sizes} == sizes
    assert size_text(run()) == "2 nodes × 2 GPUs"
    assert size_text(run(nodes=1, gpus_per_node=0)) == "1 node"


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({}, "3 files, 2 kB of /src"),
        ({"commit": "0123456789abcdef"}, "3 files, 2 kB of /src, commit 0123456789ab"),
        (
            {"commit": "0123", "changes": "2 changes", "left_out": ["a", "b"]},
            "3 files, 2 kB of /src, commit 0123 and 2 changes, without a, b",
        ),
        ({"changes": "2 changes", "left_out": []}, "3 files, 2 kB of /src and 2 changes"),
    ],
)
def test_the_copied_code_in_words(changes: dict[str, Any], text: str) -> None:
    code = {"files": 3, "bytes": 2048, "root": "/src", "commit": None, "changes": ""}
    assert code_text({**code, **changes}) == text


@pytest.mark.parametrize(
    ("changed", "more"),
    [(0, ""), (1, " and 1 changed file"), (None, ", its changes are not known")],
)
def test_the_code_that_was_not_copied_in_words(changed: int | None, more: str) -> None:
    code = WorkTree(Path("/src"), "0123456789abcdef", changed).record()
    assert code_text(code) == f"commit 0123456789ab of /src{more}"


def test_text_behind_a_label_is_folded_below_its_own_column() -> None:
    assert labelled("label", "some words-with a-hyphen", 8, 20) == [
        "label   some",
        "        words-with",
        "        a-hyphen",
    ]
    assert labelled("label", "", 8, 20) == ["label"]
    assert labelled("label", "x" * 20, 8, 20) == [f"label   {'x' * 20}"]
    parts = labelled("label", "x" * 20, 8, 20, break_long_words=True)
    assert parts == [f"label   {'x' * 12}", f"        {'x' * 8}"]


def test_a_command_is_folded_between_its_groups() -> None:
    groups = ["hpcrun", "submit", "--nodes 2", "train.py"]
    assert folded_command(groups, 100) == ["hpcrun submit --nodes 2 train.py"]
    assert folded_command(groups, 12) == [
        "hpcrun submit \\",
        "    --nodes 2 \\",
        "    train.py",
    ]
    assert folded_command(["a-long-first-word", "b"], 3) == ["a-long-first-word \\", "    b"]
    assert folded_command([], 3) == [""]


def test_the_expected_start_of_a_job() -> None:
    assert start_text(None, 0.0) == "Slurm gives no estimate"
    at = time.strftime("%Y-%m-%d %H:%M", time.localtime(7200.0))
    for now_s, wait in ((3600.5, "59:59"), (9000.0, "0:00")):
        text = f"expected {at}, in {wait}, earlier if other jobs end early"
        assert start_text(7200.0, now_s) == text


def test_the_columns_of_a_table_are_as_wide_as_they_are_told_to_be() -> None:
    cells: list[list[str | Text]] = [[Text("a[b]", style="red"), "1"], ["x", "22"]]
    table = text_table(("A", "B"), cells, right=("B",), widths={"A": 9}, least={"B": 4})
    assert drawn(table, 80) == ["A             B", "a[b]          1", "x            22"]
    assert table.columns[0].justify == "left"
    assert [column.overflow for column in table.columns] == ["fold", "fold"]
    first, _ = table.columns[0].cells
    assert isinstance(first, Text)
    assert first.style == "red"
    whole = text_table(("A",), [("x" * 20,)], whole=("A",))
    assert drawn(whole, 8) == ["A", "xxxxxxx…"]
