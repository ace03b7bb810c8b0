"""The rows of tables: their values, what is left out, and what tells rows of one size apart."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from hpcrun.errors import UsageError
from hpcrun.features.scaling.table_cells import (
    CellSize,
    cell_number,
    cell_size,
    is_empty,
    plain_cell,
)
from hpcrun.features.scaling.table_columns import (
    COLUMNS,
    MEASURED,
    PERCENT,
    TEXTS,
    Chosen,
    TableColumns,
    own_value,
    published_value,
    read_cell,
)
from hpcrun.features.scaling.table_layout import Layout, TableLine

CLAIMS = ("speedup", "efficiency_percent", "gpu_hours", "samples_per_s", "steps")
"""Columns that can contradict the others."""
_NAMES_RUNS = {"dataset", "epoch", "repeat", "run"}
"""Columns that already tell rows apart."""
_REMARKS = re.compile(
    r"(?:note|status|comment|remark|verdict|result|assessment|rating|interpretation|observation"
    r"|analysis|bottleneck|source|reference|link|date|commit|quality|improvement|run|trial|seed"
    r"|repeat|job|id|index|learning|lr|step|latency|cost|price|memory|mem|utili[sz]ation"
    r"|util|gain|loss|accuracy|overhead|node|host|batch|rank)s?",
    re.IGNORECASE,
)
"""Words of columns that do not say what was run, but how it went, or what grows with the GPUs."""


@dataclass(slots=True)
class TableRow:
    """A line with what was read of it."""

    line: TableLine
    place: str  # file and line
    values: dict[str, Any] = field(default_factory=dict)  # by field
    claims: dict[str, str] = field(default_factory=dict)  # by column, as they were written
    unread: list[str] = field(default_factory=list)  # cells of read columns
    label: str = ""  # what the cell of its size says besides
    card: str = ""  # the type of its GPUs
    step_s: float | None = None


def read_rows(
    layout: Layout, choice: TableColumns, name: str, gpus_per_node: int | None
) -> tuple[list[TableRow], list[str]]:
    """Return the rows, and notes on what was left out.

    ``gpus_per_node`` makes GPUs of nodes, where the table has only these.

    Raises:
        UsageError: no row can be read, or one contradicts the header or the options.
    """
    rows = []
    notes = []
    for line in layout.body:
        row = _row(choice, line, f"{name}:{line.number}", gpus_per_node)
        missing = ", ".join(row.unread)
        if "gpus" not in row.values or (row.unread and not MEASURED & row.values.keys()):
            notes.append(f"{row.place}: left out: {missing}")
            continue
        rows.append(row)
        if missing:
            notes.append(f"{row.place}: not read: {missing}")
    if not rows:
        raise UsageError(f"{name}: no row has numbers that are read", hint="; ".join(notes[:3]))
    return rows, notes


def _row(choice: TableColumns, line: TableLine, place: str, gpus_per_node: int | None) -> TableRow:
    """Return a row with the values of its cells.

    Raises:
        UsageError: a value of hpcrun's own column cannot be read.
    """
    row = TableRow(line, place)
    size = _set_size(row, choice, gpus_per_node)
    for column in choice.columns:
        cell = line.cells[column.at]
        if column.name in ("gpus", "nodes") or is_empty(cell):
            continue
        if column.meaning is None:
            _set_own(row, column, cell)
        else:
            _set_published(row, column, cell, size.gpus if size else 1)
    _derive(row.values, row.step_s)
    return row


def _set_size(row: TableRow, choice: TableColumns, gpus_per_node: int | None) -> CellSize | None:
    """Set the GPUs and the nodes of a row.

    Raises:
        UsageError: one of them cannot be read.
    """
    for column in choice.columns:
        if column.name not in ("gpus", "nodes"):
            continue
        cell = row.line.cells[column.at]
        size = cell_size(cell)
        _set_number(row, column, cell, size)
        if column.name == "gpus" and size is not None:
            row.label = size.label
            row.card = size.card
            if size.nodes:
                row.values.setdefault("nodes", size.nodes)
    if gpus_per_node and "nodes" in row.values:
        row.values.setdefault("gpus", row.values["nodes"] * gpus_per_node)
    return CellSize(row.values["gpus"]) if "gpus" in row.values else None


def _set_number(row: TableRow, column: Chosen, cell: str, size: CellSize | None) -> None:
    """Set the number of GPUs or nodes that a cell has.

    Raises:
        UsageError: the cell has no number, and its column is one that hpcrun defines.
    """
    is_own = column.meaning is None
    if is_own and not cell and column.name == "gpus":
        raise UsageError(f"{row.place}: column gpus is empty")
    if is_own and cell and (size is None or not size.named):
        row.values[column.name] = own_value(column.name, cell, row.place)
    elif size is not None and size.gpus > 0:
        row.values[column.name] = size.gpus
    elif cell:
        row.unread.append(f"{column.header} {cell[:40]!r}")


def _set_own(row: TableRow, column: Chosen, cell: str) -> None:
    known = COLUMNS[column.name]
    value = own_value(column.name, cell if column.name in TEXTS else _bare(cell), row.place)
    row.values[known.field] = value if known.factor == 1 else value * known.factor
    if column.name in CLAIMS:
        row.claims[column.name] = f"{value:g}" if known.type is PERCENT else _bare(cell)


_MARKS = re.compile(r"[~≈]\s*(?=[\d.])|(?<=[\d.])\s*[x×%](?=$)")
"""What stands around a number: ``~1.8x``, ``87.3%``."""


def _bare(cell: str) -> str:
    return _MARKS.sub("", cell)


def _set_published(row: TableRow, column: Chosen, cell: str, gpus: int) -> None:
    """Set the value of a column that other people named.

    Raises:
        UsageError: a time has no unit, in the header or the cell.
    """
    value = read_cell(column, cell, gpus)
    if value is None:
        if column.name in ("time", "epoch_time") and re.fullmatch(r"[\d.]+", plain_cell(cell)):
            raise UsageError(
                f"{row.place}: column {column.name}: {cell!r}: has no unit; "
                f"write {cell}m for minutes, or {cell}s, {cell}h or {cell}d"
            )
        row.unread.append(f"{column.header} {cell[:40]!r}")
        return
    if column.name in ("step_time", "steps_per_s"):
        row.step_s = value.number if column.name == "step_time" else 1 / value.number
        return
    name = "batch_size" if column.name == "batch_per_gpu" else column.name
    number = published_value(name, value.number)
    if number is None:
        row.unread.append(f"{column.header} {cell[:40]!r}")
        return
    row.values[column.field] = number
    if value.counted:
        row.values["rate_of"] = value.counted
    if name in CLAIMS and value.claim:
        row.claims[name] = f"{number:g}" if name == "efficiency_percent" else value.claim


def _derive(values: dict[str, Any], step_s: float | None) -> None:
    """Set what follows from the steps and the batch of a row."""
    batch = values.get("batch_size")
    if batch and "steps" in values:
        values.setdefault("samples", values["steps"] * batch)
    if batch and step_s:
        values.setdefault("samples_per_s", batch / step_s)


def name_data_sets(rows: Sequence[TableRow], layout: Layout, choice: TableColumns) -> list[str]:
    """Set the data set of rows by the columns that tell rows of one size apart.

    Other columns with texts in which the rows of a data set differ are their ``conditions``.

    Returns:
        The columns that became data sets.
    """
    if any(column.name in _NAMES_RUNS for column in choice.columns):
        return []
    labels = _labels(rows, layout, choice)
    used = _separating(rows, labels)
    for at, row in enumerate(rows):
        if used:
            row.values["dataset"] = ", ".join(label.name(at) for label in used)
    _set_conditions(rows, labels)
    return [label.header for label in used]


def _separating(rows: Sequence[TableRow], labels: Sequence[_Label]) -> list[_Label]:
    """Return the fewest labels by which rows of one size differ, if a label has several sizes."""
    used: list[_Label] = []
    while _repeated(rows, used):
        fewest = min(labels, key=lambda label: _repeated(rows, [*used, label]), default=None)
        if fewest is None or _repeated(rows, [*used, fewest]) == _repeated(rows, used):
            break
        used.append(fewest)
    names = [tuple(label.texts[at] for label in used) for at in range(len(rows))]
    sizes = {(name, row.values["gpus"]) for name, row in zip(names, rows, strict=True)}
    # a name beside the size, as IMDB (4 GPUs), is meant to tell rows apart
    is_named = any(row.label for row in rows)
    return used if is_named or len(sizes) > len(set(names)) else []


def _set_conditions(rows: Sequence[TableRow], labels: Sequence[_Label]) -> None:
    """Set how rows were run, where the rows of a data set differ in it.

    A text that only repeats the size, as ``TP=4`` on 4 GPUs, says nothing.
    """
    sets: dict[str, list[int]] = {}
    for at, row in enumerate(rows):
        sets.setdefault(row.values.get("dataset", ""), []).append(at)
    for places in sets.values():
        for label in labels:
            kinds = {_without_size(label.texts[at], rows[at]) for at in places} - {""}
            is_same = len({label.texts[at] for at in places}) == 1
            if not label.tells or is_same or len(kinds) < 2:
                continue
            for at in places:
                values = rows[at].values
                text = f"{label.header} {label.texts[at]}"
                values["conditions"] = ", ".join(filter(None, (values.get("conditions"), text)))


def _without_size(text: str, row: TableRow) -> str:
    """Return a text without the number of GPUs of its row; "" for ``single GPU``."""
    size = cell_size(text)
    if size is not None and size.gpus == row.values["gpus"] and not size.label:
        return ""
    return re.sub(rf"(?<![\d.]){row.values['gpus']}(?![\d.])", "N", text)


@dataclass(frozen=True, slots=True)
class _Label:
    """A column in which rows differ."""

    header: str
    texts: list[str]  # of each row
    tells: bool  # it says what was run

    def name(self, at: int) -> str:
        """Return the name of a row; a number alone would not say what it counts."""
        text = self.texts[at]
        return text if _is_text(text) else f"{self.header} {text}"


def _labels(rows: Sequence[TableRow], layout: Layout, choice: TableColumns) -> list[_Label]:
    """Return the columns that may tell rows apart, from left to right."""
    measured = [column.at for column in choice.columns if column.field in MEASURED]
    sizes = [column.at for column in choice.columns if column.name in ("gpus", "nodes")]
    first_measured = min(measured, default=0)
    first_size = min(sizes)
    labels = []
    names = [row.label for row in rows]
    if len({*names} - {""}) > 1:
        labels.append(_Label(layout.header[first_size], names, tells=True))
    for at in choice.unread:
        cells = _filled_down(plain_cell(row.line.cells[at]) for row in rows)
        label = _column_label(
            layout.header[at], cells, is_left=at < first_measured, is_first=at < first_size
        )
        if label is not None:
            labels.append(label)
    return labels


def _column_label(header: str, cells: list[str], *, is_left: bool, is_first: bool) -> _Label | None:
    """Return a column as a label; None if it does not tell rows apart, or is a remark on them.

    Args:
        header: its header.
        cells: its cell of each row.
        is_left: it stands before all measurements.
        is_first: it stands before all sizes.
    """
    is_text = any(_is_text(cell) for cell in cells)
    is_setting = is_left and not any(map(_has_unit, cells))
    if len(set(cells)) < 2 or not (is_text or is_setting):
        return None
    is_remark = any(_REMARKS.fullmatch(part) for part in re.split(r"[\W_]+", header))
    if is_remark and not is_setting:
        return None
    return _Label(header, cells, tells=not is_remark and (is_text or is_first))


def _filled_down(cells: Iterable[str]) -> list[str]:
    """Return the cells of a column in which an empty cell has the text of the one above."""
    filled: list[str] = []
    for cell in cells:
        filled.append(cell or (filled[-1] if filled else ""))
    return filled


def _is_text(cell: str) -> bool:
    return not is_empty(cell) and not re.match(r"[^\w(]*[\d.]", cell)


def _has_unit(cell: str) -> bool:
    number = cell_number(cell)
    return number is not None and bool(number.unit)


def _repeated(rows: Sequence[TableRow], labels: Sequence[_Label]) -> int:
    """Return how many rows have the size and the labels of an earlier row."""
    keys = set()
    for at, row in enumerate(rows):
        size = [row.values.get(name) for name in ("gpus", "nodes", "batch_size", "dataset")]
        keys.add((*size, *(label.texts[at] for label in labels)))
    return len(rows) - len(keys)
