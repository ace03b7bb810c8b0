"""Makes text safe and short for a terminal."""

from __future__ import annotations

import csv
import io
import re
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from hpcrun.job.units import format_memory, format_time

# A log may only set colours (SGR) on a terminal. All other sequences that start with ESC or CSI move the cursor, set
# the title, or make the terminal send input.
_ESCAPE = re.compile(
    r"(?P<colour>\x1b\[[0-9;:]*m)"
    r"|\x1b\[[0-?]*[ -/]*[@-~]"  # CSI
    r"|\x1b[\]PX^_].*?(?:\x07|\x1b\\|$)"  # OSC, DCS, SOS, PM, APC: up to their end
    r"|\x1b.?|[\x80-\x9f]|[\x00-\x08\x0b\x0c\x0e-\x1a\x1c-\x1f\x7f]"
    # Characters that change the direction of text (Unicode UAX 9), break lines, or are invisible: with them a line
    # could look like another. The joiners U+200C and U+200D stay: Persian, Hindi and emoji need them.
    "|[\u00ad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\U000e0000-\U000e007f]",
    re.DOTALL | re.MULTILINE,
)
_COLOUR = re.compile(r"\x1b\[[0-9;:]*m")


def harmless(text: str) -> str:
    """Return a job's text without anything that could control a terminal; colours stay."""
    return _ESCAPE.sub(lambda match: match["colour"] or "", text)


def without_colours(text: str) -> str:
    """Return harmless text without its colours: for NO_COLOR, and for lines with a limited width."""
    return _COLOUR.sub("", text)


def one_line(text: str) -> str:
    """Return text on one line, control characters shown as ``?``."""
    return "".join(char if char.isprintable() else "?" for char in text)


_JOINERS = "\u200c\u200d"


def visible(text: str) -> str:
    """Return text with invisible characters (control characters, line ends, direction marks) written as ``\\x1b``.

    The joiners U+200C and U+200D stay: Persian, Hindi and emoji need them.
    """
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() or char in _JOINERS else ascii(char)[1:-1] for char in text)


_FORMULA = ("=", "+", "-", "@")


def csv_text(header: Iterable[str], rows: Iterable[Iterable[object]]) -> str:
    """Return a line of names and rows as CSV; an unknown value is empty, true and false are 1 and 0.

    All CSV files of hpcrun come from this function.
    """
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(map(csv_cell, header))
    writer.writerows(map(_csv_value, row) for row in rows)
    return out.getvalue()


def _csv_value(value: object) -> object:
    if isinstance(value, bool):
        return int(value)
    return csv_cell(value) if isinstance(value, str) else value


def csv_cell(text: str) -> str:
    """Return text for a cell of CSV that is safe on a terminal and in a spreadsheet.

    Invisible characters (control characters, those that change the direction of text, line ends) are written in
    Python's form, ``\\x1b``, so that different names stay different. Text that a spreadsheet would read as a
    formula gets a leading apostrophe: OWASP, "CSV Injection". A number, such as -1.5, does not change.
    """
    text = visible(text)
    if not text.startswith(_FORMULA):
        return text
    try:
        float(text)
    except ValueError:
        return f"'{text}"
    return text


def time_text(seconds: int | None) -> str:
    """Return a time in Slurm's form, ``-`` if there is none."""
    return "-" if seconds is None else format_time(seconds)


def clock_text(seconds: int | None) -> str:
    """Return a time in squeue's form, without leading zeros: ``0:19``, ``1:00:00``, ``2-00:00:00``."""
    if seconds is None:
        return "-"
    text = format_time(seconds)
    return text.removeprefix("00:").removeprefix("0") if "-" not in text else text


def memory_text(megabytes: int | None) -> str:
    """Return a memory size in words."""
    if megabytes is None:
        return "the site's default"
    return "all of the node" if megabytes == 0 else f"{format_memory(megabytes)} per node"


def count(number: int, noun: str) -> str:
    """Return ``1 node``, ``2 nodes``."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def labelled(label: str, text: str, indent: int, width: int, *, break_long_words: bool = False) -> list[str]:
    """Return text behind a label, folded between words at ``width`` characters and indented; commands stay whole."""
    wrap = textwrap.TextWrapper(
        width,
        initial_indent=f"{label:<{indent - 1}} ",
        subsequent_indent=" " * indent,
        break_long_words=break_long_words,
        break_on_hyphens=False,
    )
    return wrap.wrap(text) or [label.rstrip()]


def rows_csv(rows: Sequence[Mapping[str, Any]], columns: Sequence[str]) -> str:
    """Return rows as CSV of some columns, without the last line end."""
    return csv_text(columns, ([row.get(name) for name in columns] for row in rows)).removesuffix("\n")
