"""Tables for a terminal, all in one form: no frame, two blanks between columns."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from hpcrun.views.text import one_line

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text

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
        rows: cells; a plain one is shown on one line, literally.
        right: headings of columns of numbers.
        whole: headings of columns that are never folded: the others are folded first, then these are cut.
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
        table.add_row(*(Text(one_line(cell)) if isinstance(cell, str) else cell for cell in row))
    return table


def fitting(needed: Mapping[str, int], width: int, dropped: Sequence[str]) -> tuple[str, ...]:
    """Return the columns of a table that a terminal has room for.

    Args:
        needed: column → the least that it needs.
        dropped: those that can be done without, what is missed least first.
    """
    left = list(needed)
    for name in dropped:
        if sum(needed[column] + GAP for column in left) - GAP <= width:
            break
        if name in needed:
            left.remove(name)
    return tuple(left)
