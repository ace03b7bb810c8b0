"""The layout of published tables: CSV or Markdown, alone or in a text, sizes in rows or columns."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from hpcrun.errors import UsageError
from hpcrun.features.scaling.table_cells import CellSize, cell_number, cell_size, plain_cell
from hpcrun.features.scaling.table_words import header_meaning, unit_meaning

_SEPARATORS = ",;\t|"
_COMMENT = re.compile(r"#(?!\s*(?:of\s+)?gpus\s*[,;\t|])", re.IGNORECASE)
"""The beginning of a line that is not read; a header may begin with ``#gpus``."""
_RULE = re.compile(r"\s*\|?\s*:?-+[\s|:+-]*")
"""The line of Markdown below a header."""
_BRACKETS = re.compile(r"[(\[]([^()\[\]]+)[)\]]")
_NAMES = {"time": "Time", "samples_per_s": "Throughput", "speedup": "Speedup"}
"""Quantity of a unit → a header for it."""


@dataclass(frozen=True, slots=True)
class TableLine:
    """The cells of one line of a file."""

    number: int
    cells: list[str]


@dataclass(frozen=True, slots=True)
class Layout:
    """A table with a row for each measurement."""

    header: list[str]
    body: list[TableLine]
    note: str = ""  # which sizes stood in the header
    unread: tuple[str, ...] = ()  # the cells of such a header that are no sizes
    decimal_commas: bool = False  # its separator lets people write decimals with commas


def read_layout(text: str, name: str) -> Layout:
    """Return the table of a text; without rows if the text has none.

    Raises:
        UsageError: the text is not valid CSV, or has several tables of sizes.
    """
    lines = text.splitlines()
    tables = [block for block in _markdown_tables(lines) if _has_sizes(block)]
    if len(tables) > 1:
        numbers = ", ".join(str(block[0].number) for block in tables)
        raise UsageError(
            f"{name}: several tables: they begin in lines {numbers}",
            hint="save the one to read in a file of its own",
        )
    if tables:
        rows = tables[0]
        separator = "|"
    else:
        separator = _separator(lines)
        rows = list(_separated(lines, separator, name))
    if not rows:
        return Layout([], [])
    layout = Layout(rows[0].cells, rows[1:], decimal_commas=separator == ";")
    return _with_sizes_in_rows(layout, name)


def _markdown_tables(lines: Sequence[str]) -> Iterator[list[TableLine]]:
    """Yield the tables of a Markdown text: each has a rule below its header."""
    for place, rule in enumerate(lines[1:], start=1):
        if "|" not in rule or not _RULE.fullmatch(rule) or "|" not in lines[place - 1]:
            continue
        block = [TableLine(place, _cells(lines[place - 1]))]
        for number, line in enumerate(lines[place + 1 :], start=place + 2):
            if "|" not in line:
                break
            if not _RULE.fullmatch(line):
                cells = _cells(line)
                missing = len(block[0].cells) - len(cells)
                block.append(TableLine(number, [*cells, *[""] * missing]))
        yield block


def _cells(line: str) -> list[str]:
    text = line.strip().removeprefix("|")
    if text.endswith("|"):
        text = text[:-1]
    return [cell.strip() for cell in re.split(r"(?<!\\)\|", text)]


def _has_sizes(block: Sequence[TableLine]) -> bool:
    """Whether a table has numbers of GPUs or nodes in a column, or in its header."""
    for cell in block[0].cells:
        meaning = header_meaning(cell)
        if cell in ("gpus", "nodes") or (meaning and meaning.quantity in ("gpus", "nodes")):
            return True
    if len(_header_sizes(block[0].cells)) > 1:
        return True
    return sizes_column(block[0].cells, block[1:]) is not None


def sizes_column(header: Sequence[str], body: Sequence[TableLine]) -> int | None:
    """Return the column whose cells all name GPUs, such as ``4x V100``; None if there is none."""
    for at in range(len(header)):
        sizes = [cell_size(line.cells[at]) for line in body if at < len(line.cells)]
        if sizes and all(size and size.named for size in sizes):
            return at
    return None


def _separator(lines: Sequence[str]) -> str:
    header = next((line for line in lines if line.strip() and not _COMMENT.match(line)), "")
    return max(_SEPARATORS, key=header.count)


def _separated(lines: Sequence[str], separator: str, name: str) -> Iterator[TableLine]:
    """Yield the lines of a CSV text, without comments, rules and empty lines.

    Raises:
        UsageError: the text is not valid CSV.
    """
    # a comment may have quotes that csv would interpret
    kept = ["" if _COMMENT.match(line) or line.startswith("```") else line for line in lines]
    if separator == "|":
        kept = [line.strip().removeprefix("|").removesuffix("|") for line in kept]
    reader = csv.reader(io.StringIO("\n".join(kept)), delimiter=separator, strict=True)
    try:
        for written in reader:
            cells = [cell.strip() for cell in written]
            if any(cells):
                yield TableLine(reader.line_num, cells)
    except csv.Error as error:
        raise UsageError(f"{name}:{reader.line_num}: {error}") from None


def _header_sizes(header: Sequence[str]) -> dict[int, CellSize]:
    """Return the columns of a header that are sizes."""
    speaks_of_gpus = "gpu" in header[0].lower()
    sizes: dict[int, CellSize] = {}
    for at, cell in enumerate(header[1:], start=1):
        size = cell_size(_BRACKETS.sub(_without_unit, cell).strip())
        if size is None:
            continue
        if speaks_of_gpus or size.card or "gpu" in cell.lower():
            sizes[at] = size
    return sizes


def _without_unit(match: re.Match[str]) -> str:
    """Return brackets without the unit in them: ``1 GPU (img/s)`` is a size."""
    return "" if unit_meaning(match[1].strip()) else match[0]


def _with_sizes_in_rows(layout: Layout, name: str) -> Layout:
    """Return a table whose header has the sizes with a row for each size; others as they are.

    Raises:
        UsageError: the table does not say what its numbers are.
    """
    sizes = _header_sizes(layout.header)
    if len(sizes) < 2 or any(len(line.cells) != len(layout.header) for line in layout.body):
        return layout
    labels = [plain_cell(line.cells[0]) for line in layout.body]
    named = ", ".join(_size_text(layout.header[at], size) for at, size in sizes.items())
    note = f"sizes in the header: {named}"
    unread = tuple(cell for at, cell in enumerate(layout.header) if at and at not in sizes)
    if any(header_meaning(label) for label in labels):
        turned = _turned(layout, sizes, labels)
        return replace(turned, note=note, unread=unread)
    quantity = _quantity(layout, list(sizes))
    if not quantity:
        corner = layout.header[0] or "Time"
        raise UsageError(
            f"{name}: the table does not say what its numbers are: a time, or samples per second?",
            hint=f"write the unit into the first cell: {corner} (s), or {corner} (samples/s)",
        )
    unfolded = _unfolded(layout, sizes, labels, quantity)
    return replace(unfolded, note=note, unread=unread)


def _size_text(cell: str, size: CellSize) -> str:
    text = f"{cell} as {size.gpus}"
    if size.nodes and size.nodes > 1:
        text += f" on {size.nodes} nodes"
    return text


def _turned(layout: Layout, sizes: dict[int, CellSize], labels: Sequence[str]) -> Layout:
    """Return a table of which each row is a quantity with a row for each size."""
    header = ["gpus", "nodes", *labels]
    body = []
    for at, size in sizes.items():
        cells = [line.cells[at] for line in layout.body]
        number = layout.body[0].number
        body.append(TableLine(number, [str(size.gpus), str(size.nodes or 1), *cells]))
    return Layout(header, body)


def _unfolded(
    layout: Layout, sizes: dict[int, CellSize], labels: Sequence[str], quantity: str
) -> Layout:
    """Return a table of which each row is a data set with a row for each data set and size."""
    body = []
    for line, label in zip(layout.body, labels, strict=True):
        for at, size in sizes.items():
            nodes = str(size.nodes or 1)
            body.append(TableLine(line.number, [label, str(size.gpus), nodes, line.cells[at]]))
    return Layout(["dataset", "gpus", "nodes", quantity], body)


def _quantity(layout: Layout, places: Sequence[int]) -> str:
    """Return a header for the numbers of a table whose header has the sizes.

    It follows from the unit in the first cell, in the other cells of the header, or in the numbers.
    """
    for cell in (layout.header[0], layout.header[places[0]]):
        for unit in _BRACKETS.findall(cell):
            meaning = unit_meaning(unit.strip())
            if meaning:
                return f"{_NAMES.get(meaning.quantity, '')} ({unit.strip()})"
    meanings: set[str] = set()
    for line in layout.body:
        for at in places:
            number = cell_number(line.cells[at])
            meaning = unit_meaning(number.unit) if number else None
            if number:
                meanings.add(meaning.quantity if meaning else "")
    return _NAMES.get(meanings.pop(), "") if len(meanings) == 1 else ""
