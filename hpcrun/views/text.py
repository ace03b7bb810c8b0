"""Makes text safe and short for a terminal; and makes tables, all in one form.

A table has no frame and two blanks between columns.
"""

from __future__ import annotations

import csv
import io
import os
import re
import textwrap
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from hpcrun.actions.hooks import hooks_of
from hpcrun.job.text.secret_files import MOST_NAMED
from hpcrun.job.text.units import count as count  # views take it from here
from hpcrun.job.text.units import format_memory, format_size, format_time, listed
from hpcrun.job.text.unseen import UNSEEN

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text

    from hpcrun.runs.record import Run

# A log may only set colours (SGR) on a terminal. All other sequences that start with ESC or CSI
# move the cursor, set the title, or make the terminal send input. Joiners, selectors and fillers
# stay: Persian, Hindi, Korean and emoji need them. All else that UNSEEN finds changes the direction
# of text (Unicode UAX 9), breaks lines, or is invisible: with it a line could look like another.
_STAYS = re.compile(
    "\x1b\\[[0-9;:]*m"
    "|[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180d\u180f\u200c\u200d\u3164\ufe00-\ufe0f\uffa0]"
)
_COLOUR = re.compile(r"\x1b\[[0-9;:]*m")


def harmless(text: str) -> str:
    """Return a job's text without anything that could control a terminal; colours stay."""
    return UNSEEN.sub(lambda match: match[0] if _STAYS.fullmatch(match[0]) else "", text)


def without_colours(text: str) -> str:
    """Return harmless text without its colours.

    This is for NO_COLOR, and for lines with a limited width.
    """
    return _COLOUR.sub("", text)


def one_line(text: str) -> str:
    """Return text on one line, control characters shown as ``?``."""
    return "".join(char if char.isprintable() else "?" for char in text)


_JOINERS = "\u200c\u200d"


def written_line(path: str | os.PathLike[str], more: str = "") -> str:
    """Return the line that names a file which a command has written, and more about the file."""
    return one_line(f"written  {hooks_of('remote').file_place(path)}{more}")


def visible(text: str) -> str:
    r"""Return text with invisible characters written as ``\x1b``.

    Invisible characters are control characters, line ends and direction marks. The joiners U+200C
    and U+200D stay: Persian, Hindi and emoji need them.
    """
    if text.isprintable():
        return text
    shown = []
    for char in text:
        if char.isprintable() or char in _JOINERS:
            shown.append(char)
        else:
            shown.append(ascii(char)[1:-1])
    return "".join(shown)


_FORMULA = ("=", "+", "-", "@")


def csv_text(header: Iterable[str], rows: Iterable[Iterable[object]]) -> str:
    """Return a line of names and rows as CSV.

    An unknown value is empty, true and false are 1 and 0. All CSV files of hpcrun come from this
    function.
    """
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(map(csv_cell, header))
    writer.writerows(map(_csv_value, row) for row in rows)
    return out.getvalue()


def _csv_value(value: object) -> object:
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, str):
        return csv_cell(value)
    return value


def csv_cell(text: str) -> str:
    r"""Return text for a cell of CSV that is safe on a terminal and in a spreadsheet.

    Invisible characters (control characters, those that change the direction of text, line ends)
    are written in Python's form, ``\x1b``, so that different names stay different. Text that a
    spreadsheet would read as a formula gets a leading apostrophe: OWASP, "CSV Injection". A number,
    such as -1.5, does not change.
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
    if seconds is None:
        return "-"
    return format_time(seconds)


def clock_text(seconds: int | None) -> str:
    """Return a time in squeue's form, without leading zeros.

    Examples are ``0:19``, ``1:00:00`` and ``2-00:00:00``.
    """
    if seconds is None:
        return "-"
    text = format_time(seconds)
    if "-" not in text:
        return text.removeprefix("00:").removeprefix("0")
    return text


def memory_text(megabytes: int | None) -> str:
    """Return a memory size in words."""
    if megabytes is None:
        return "the site's default"
    if megabytes == 0:
        return "all of the node"
    return f"{format_memory(megabytes)} per node"


def short_size(run: Run) -> str:
    """Return nodes × GPUs per node, ``2×4``; ``2 nodes`` of a run without GPUs."""
    if run.gpus_on_node:
        return f"{run.node_choice or run.nodes}×{run.gpus_on_node}"
    return nodes_text(run)


def nodes_text(run: Run) -> str:
    """Return the nodes of a run: ``2 nodes``, or ``2-4 nodes`` until Slurm has chosen."""
    return f"{run.node_choice} nodes" if run.node_choice else count(run.nodes, "node")


def ranks_text(run: Run) -> str:
    """Return the ranks of a run, at most so many until Slurm has chosen the nodes."""
    text = count(run.world_size, "rank")
    return f"at most {text}" if run.node_choice else text


def bytes_text(number: int) -> str:
    """Return a size in the largest unit that fits, like du -h."""
    size = float(number)
    for unit in ("B", "K", "M", "G"):
        if size < 1000:
            if unit == "B" or size >= 10:
                return f"{size:.0f}{unit}"
            return f"{size:.1f}{unit}"
        size /= 1024
    return f"{size:.1f}T"


def size_text(run: Run) -> str:
    """Return the nodes of a run, and the GPUs of each: ``2 nodes × 4 GPUs``."""
    text = nodes_text(run)
    if run.gpus_on_node:
        text += f" × {count(run.gpus_on_node, 'GPU')}"
    return text


def size_and_ranks(run: Run) -> str:
    """Return the size of a run with its ranks, if their number is known."""
    ranks = f", {ranks_text(run)}" if run.world_size else ""
    return size_text(run) + ranks


def code_text(code: dict[str, Any]) -> str:
    """Return the code in words: the size of its copy, its source, its commit."""
    if not code.get("copied", True):
        text = f"commit {(code['commit'] or '')[:12]} of {code['root']}"
        if code.get("changed") is None:
            return f"{text}, its changes are not known"
        return f"{text} and {code['changes']}" if code["changes"] else text
    text = f"{count(code['files'], 'file')}, {format_size(code['bytes'])} of {code['root']}"
    if code["commit"]:
        text += f", commit {code['commit'][:12]}"
    if code["changes"]:
        text += f" and {code['changes']}"
    if code.get("left_out"):
        text += f", without {listed(code['left_out'], MOST_NAMED)}"
    return text


def versions_text(versions: Mapping[str, str]) -> str:
    """Return ``torch 2.9.1, cuda 12.8``."""
    return ", ".join(f"{name} {version}" for name, version in versions.items())


def labelled(
    label: str, text: str, indent: int, width: int, *, break_long_words: bool = False
) -> list[str]:
    """Return text behind a label, folded between words and indented.

    Lines are at most ``width`` characters long; commands stay whole.
    """
    wrap = textwrap.TextWrapper(
        width,
        initial_indent=f"{label:<{indent - 1}} ",
        subsequent_indent=" " * indent,
        break_long_words=break_long_words,
        break_on_hyphens=False,
    )
    return wrap.wrap(text) or [label.rstrip()]


def folded_command(groups: Iterable[str], width: int) -> list[str]:
    """Return the lines of a command that can be pasted.

    An option and its value, which are a group, stay together.
    """
    lines = [""]
    for text in groups:
        if not lines[-1]:
            lines[-1] = text
        elif len(lines[-1]) + len(text) > width:
            lines[-1] += " \\"
            lines.append(f"    {text}")
        else:
            lines[-1] += f" {text}"
    return lines


def rows_csv(rows: Sequence[Mapping[str, Any]], columns: Sequence[str]) -> str:
    """Return rows as CSV of some columns, without the last line end."""
    cells = ([row.get(name) for name in columns] for row in rows)
    return csv_text(columns, cells).removesuffix("\n")


def fields_of(item: object, names: str) -> dict[str, Any]:
    """Return attributes of a record by their names, for a JSON document.

    Whatever else the record holds stays out of the document.
    """
    return {name: getattr(item, name) for name in names.split()}


GAP = 2


def text_table(
    headings: Collection[str],
    rows: Iterable[Iterable[str | Text]],
    *,
    right: Collection[str] = (),
    whole: Collection[str] = (),
    widths: Mapping[str, int] | None = None,
    least: Mapping[str, int] | None = None,
) -> Table:
    """Return a table; on a narrow terminal its columns are folded.

    Args:
        headings: the headings of the columns.
        rows: cells; a plain one is shown on one line, literally.
        right: headings of columns of numbers.
        whole: headings of columns that are never folded: the others are folded first, then these
            are cut.
        widths: heading → its width, whatever its cells need.
        least: heading → the width below which it is not cut.
    """
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, padding=(0, GAP, 0, 0))
    for heading in headings:
        table.add_column(
            heading,
            justify="right" if heading in right else "left",
            overflow="ellipsis" if heading in whole else "fold",
            no_wrap=heading in whole,
            width=(widths or {}).get(heading),
            min_width=(least or {}).get(heading),
        )
    for row in rows:
        cells = []
        for cell in row:
            if isinstance(cell, str):
                cells.append(Text(one_line(cell)))
            else:
                cells.append(cell)
        table.add_row(*cells)
    return table


def fitting(needed: Mapping[str, int], width: int, dropped: Sequence[str]) -> tuple[str, ...]:
    """Return the columns of a table that a terminal has room for.

    Args:
        needed: column → the least that it needs.
        width: the width of the terminal, in characters.
        dropped: those that can be done without, what is missed least first.
    """
    left = list(needed)
    for name in dropped:
        if sum(needed[column] + GAP for column in left) - GAP <= width:
            break
        if name in needed:
            left.remove(name)
    return tuple(left)


def start_text(start_s: float | None, now_s: float) -> str:
    """Return when Slurm expects to start a job, in words."""
    if start_s is None:
        return "Slurm gives no estimate"
    at = time.strftime("%Y-%m-%d %H:%M", time.localtime(start_s))
    wait = clock_text(max(0, int(start_s - now_s)))
    return f"expected {at}, in {wait}, earlier if other jobs end early"
