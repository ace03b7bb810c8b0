"""The columns of tables: those that hpcrun has, and which column of a published table is which."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any, NamedTuple

from pydantic import AfterValidator, BeforeValidator, Field, TypeAdapter, ValidationError

from hpcrun.errors import UsageError, did_you_mean
from hpcrun.features.scaling.table_cells import cell_number, cell_size, plain_cell
from hpcrun.features.scaling.table_layout import Layout, TableLine, sizes_column
from hpcrun.features.scaling.table_words import Meaning, header_meaning, unit_meaning
from hpcrun.job.text.units import parse_duration

_MAX_COUNT = 10**15
_MOST_COLUMNS = 1000
_LONGEST_NAME = 200
_MOST_AS_SHARE = 2.0
TOLERANCE = 0.01
"""Relative tolerance of a claim, in addition to its last digit, since the other numbers were
rounded, too.
"""

_Text = Annotated[str, Field(max_length=1000)]
_Count = Annotated[int, Field(ge=1, le=_MAX_COUNT)]
_Real = Annotated[float, Field(ge=-_MAX_COUNT, le=_MAX_COUNT, allow_inf_nan=False)]
_NotNegative = Annotated[_Real, Field(ge=0)]
_Positive = Annotated[_Real, Field(gt=0)]
_Duration = Annotated[float, BeforeValidator(lambda text: parse_duration(text.replace(" ", "")))]
# 87.3, or as a share, 0.873: nobody publishes an efficiency of 2 %
PERCENT = Annotated[
    _Positive, AfterValidator(lambda value: value if value > _MOST_AS_SHARE else 100 * value)
]
_Counts = Annotated[tuple[_Count, ...], BeforeValidator(lambda text: text.split(";"))]


class OwnColumn(NamedTuple):
    """A column that hpcrun has."""

    field: str  # of a point or an epoch, or a claim's name
    type: Any
    factor: float = 1.0


def _times(column: str, field: str) -> dict[str, OwnColumn]:
    units = {"_s": 1.0, "_min": 60.0, "_h": 3600.0}
    return {
        **{column + unit: OwnColumn(field, _Positive, factor) for unit, factor in units.items()},
        column: OwnColumn(field, _Duration),
    }


COLUMNS: dict[str, OwnColumn] = {
    "dataset": OwnColumn("dataset", _Text),
    "gpus": OwnColumn("gpus", _Count),
    "nodes": OwnColumn("nodes", _Count),
    "repeat": OwnColumn("repeat", _Count),
    "run": OwnColumn("run", _Text),
    "state": OwnColumn("state", _Text),
    "problem": OwnColumn("problem", _Text),
    **_times("time", "total_s"),
    "startup_s": OwnColumn("startup_s", _NotNegative),
    "batch_size": OwnColumn("batch_size", _Count),
    "samples": OwnColumn("samples", _Count),
    "rank_samples": OwnColumn("rank_samples", _Counts),
    "parameters": OwnColumn("parameters", _Count),
    "speedup": OwnColumn("speedup", _Positive),
    "epoch": OwnColumn("number", _Count),
    **_times("epoch_time", "time_s"),
    "samples_per_s": OwnColumn("samples_per_s", _Positive),
    "accuracy": OwnColumn("accuracy", _Real),
    "loss": OwnColumn("loss", _Real),
    "data_s": OwnColumn("data_s", _NotNegative),
    "sync_s": OwnColumn("sync_s", _NotNegative),
    "efficiency_percent": OwnColumn("efficiency_percent", PERCENT),
    "gpu_hours": OwnColumn("gpu_hours", _Positive),
    "steps": OwnColumn("steps", _Count),
}
"""Every column that is read, the field for its value, and the factor to seconds."""
MEASURED = {"total_s", "time_s", "samples_per_s", "speedup", "efficiency_percent"}
"""Fields by which sizes can be compared."""
_UNITS_OF = {"epoch_time": "time", "step_time": "time", "accuracy": "efficiency_percent"}
"""Quantity → the quantity of its unit, if that is another one."""
_TIMES = {"time", "epoch_time", "step_time"}
_WITHOUT_UNIT = {"time", "epoch_time", "step_time", "steps_per_s"}
TEXTS = {"dataset", "run", "state", "problem", "rank_samples"}


@dataclass(frozen=True, slots=True)
class Chosen:
    """A column that is read."""

    header: str
    at: int  # its place in a line
    name: str  # of COLUMNS, or a quantity of ``table_words``
    meaning: Meaning | None = None
    """None if the header is hpcrun's own name: then a cell that cannot be read is refused."""

    @property
    def field(self) -> str:
        """The field for its values."""
        if self.name in COLUMNS:
            return COLUMNS[self.name].field
        return {"batch_per_gpu": "batch_size"}.get(self.name, self.name)

    @property
    def per_gpu(self) -> bool:
        """Whether its values are of one GPU."""
        return self.meaning is not None and self.meaning.per_gpu


@dataclass(frozen=True, slots=True)
class Value:
    """A number of a published cell, in hpcrun's unit."""

    number: float
    claim: str = ""  # as it was written, if it may be compared with others
    counted: str = ""  # what a rate counts


@dataclass(frozen=True, slots=True)
class TableColumns:
    """The columns of a table that are read, in their order."""

    columns: tuple[Chosen, ...]
    unread: tuple[int, ...]  # the places of the others


def choose_columns(layout: Layout, name: str) -> TableColumns:
    """Return the columns to read.

    Raises:
        UsageError: a column is misspelt or repeated, a line is too short or too long, or two
            columns of one quantity differ in more than their unit.
    """
    _check_header(layout.header, name)
    for line in layout.body:
        if len(line.cells) != len(layout.header):
            values = f"the line has {len(line.cells)} values, the header {len(layout.header)}"
            raise UsageError(f"{name}:{line.number}: {values}")
    if layout.decimal_commas:
        _check_commas(layout, name)
    candidates: dict[str, list[Chosen]] = defaultdict(list)
    for at, cell in enumerate(layout.header):
        chosen = _candidate(cell, at, layout.body)
        if chosen is not None:
            candidates[chosen.field].append(chosen)
    if not {"gpus", "nodes"} & candidates.keys():
        at_sizes = sizes_column(layout.header, layout.body)
        if at_sizes is not None:
            header = layout.header[at_sizes]
            candidates["gpus"] = [Chosen(header, at_sizes, "gpus", Meaning("gpus"))]
    chosen_columns = []
    for same in candidates.values():
        chosen_columns.append(_best(same, candidates.get("gpus", ()), layout.body, name))
    columns = tuple(sorted(chosen_columns, key=lambda column: column.at))
    read = {column.at for column in columns}
    return TableColumns(columns, tuple(at for at in range(len(layout.header)) if at not in read))


def _check_header(header: Sequence[str], name: str) -> None:
    """Check the names of the columns of a file.

    Raises:
        UsageError: there are too many, or one is too long, repeated, or hpcrun's own misspelt.
    """
    if len(header) > _MOST_COLUMNS:
        raise UsageError(
            f"{name}: the header has {len(header)} columns; at most {_MOST_COLUMNS} are read"
        )
    for cell in header:
        if len(cell) > _LONGEST_NAME:
            raise UsageError(
                f"{name}: the name of a column has {len(cell)} characters: {cell[:40]!r} ...",
                hint="is a quotation mark not closed?",
            )
    for cell in header:
        if cell and header.count(cell) > 1:
            raise UsageError(f"{name}: column {cell!r} appears twice in the header")
        if not (cell.isidentifier() and cell.islower()) or cell in COLUMNS:
            continue
        hint = "" if header_meaning(cell) or cell == "notes" else did_you_mean(cell, COLUMNS)
        if hint:
            message = f"{name}: column {cell!r} is not known"
            raise UsageError(message, hint=f"{hint} Known columns: {', '.join(COLUMNS)}")


def _check_commas(layout: Layout, name: str) -> None:
    """Check that no number has a comma, which may be of decimals or of thousands.

    Raises:
        UsageError: one has.
    """
    for at, header in enumerate(layout.header):
        if header.lower() in TEXTS or not (header in COLUMNS or header_meaning(header)):
            continue
        for line in layout.body:
            if re.search(r"\d,\d", line.cells[at]):
                raise UsageError(
                    f"{name}:{line.number}: column {header}: {line.cells[at][:40]!r}: "
                    "the comma may be of decimals or of thousands",
                    hint="write 4450 or 4.45",
                )


def _candidate(cell: str, at: int, body: Sequence[TableLine]) -> Chosen | None:
    """Return the column that a header names, if one of its cells is a number of this quantity."""
    lower = cell.lower()
    if cell in COLUMNS or lower in TEXTS:
        return Chosen(cell, at, lower)
    meaning = header_meaning(cell)
    if meaning is None and lower in COLUMNS:
        meaning = Meaning(lower)
    if meaning is None:
        return None
    chosen = Chosen(cell, at, meaning.quantity, meaning)
    cells = [line.cells[at] for line in body]
    if lower == "scaling" and all("%" in text for text in cells):
        chosen = Chosen(cell, at, "efficiency_percent", Meaning("efficiency_percent"))
    return chosen if _has_value(chosen, cells) else None


def _has_value(column: Chosen, cells: Sequence[str]) -> bool:
    """Return whether one of the cells, if there are any, is a number of the column's quantity."""
    if not cells or any(_is_value(column, text) for text in cells):
        return True
    # a bare time is refused later, with its line; a column GPU may name the type
    return column.name in _TIMES and any(_is_bare(text) for text in cells)


def _is_value(column: Chosen, cell: str) -> bool:
    if column.name == "gpus":
        return cell_size(cell) is not None
    return read_cell(column, cell, gpus=1) is not None


def _is_bare(cell: str) -> bool:
    number = cell_number(cell)
    return number is not None and not number.unit


def read_cell(column: Chosen, cell: str, gpus: int) -> Value | None:
    """Return the number of a published cell; None if it is no number of this quantity.

    ``gpus`` is the number of GPUs of its row, for values of one GPU.
    """
    meaning = column.meaning
    assert meaning is not None  # hpcrun's own columns are not read here
    if plain_cell(cell).lower() == "baseline":
        return {"speedup": Value(1.0), "efficiency_percent": Value(100.0)}.get(column.name)
    number = cell_number(cell)
    if number is None:
        return _duration(column, cell)
    factor = meaning.factor
    counted = meaning.counted
    if number.unit:
        unit = unit_meaning(number.unit.removesuffix("baseline").strip())
        if unit is None or unit.quantity not in (column.name, _UNITS_OF.get(column.name)):
            return _duration(column, cell)
        factor = unit.factor
        counted = unit.counted
    elif factor is None and column.name in _WITHOUT_UNIT:
        return None
    value = float(number.text) * (factor or 1.0)
    if column.per_gpu or column.name == "batch_per_gpu":
        return Value(value * gpus, counted=counted)
    is_claim = factor in (None, 1.0) and column.name not in _TIMES
    return Value(value, number.text if is_claim else "", counted)


def _duration(column: Chosen, cell: str) -> Value | None:
    """Return the value of ``1h 30m`` or ``10:00``."""
    if column.name not in _TIMES:
        return None
    try:
        return Value(parse_duration(plain_cell(cell).replace(" ", "").lstrip("~≈")))
    except ValueError:
        return None


def _best(
    same: list[Chosen], gpus: Sequence[Chosen], body: Sequence[TableLine], name: str
) -> Chosen:
    """Return the one to read of columns of one quantity.

    hpcrun's own names count before others, measurements before expectations, and totals before
    numbers of one GPU.

    Raises:
        UsageError: two of them differ in more than their unit.
    """

    def order(column: Chosen) -> tuple[bool, bool, bool]:
        meaning = column.meaning
        return meaning is not None, bool(meaning and meaning.expected), column.per_gpu

    first, *others = sorted(same, key=order)
    for other in others:
        if other.meaning is None:
            message = f"{name}: column {first.name} repeats another column in another unit"
            raise UsageError(message)
        if first.meaning is None or other.meaning.expected or _agree(first, other, gpus, body):
            continue
        raise UsageError(
            f"{name}: columns {first.header!r} and {other.header!r} are both {first.name}, "
            "and differ",
            hint=f"name the one to compare {_own_name(first.name)}",
        )
    return first


def _own_name(quantity: str) -> str:
    return f"{quantity}_s" if quantity in ("time", "epoch_time") else quantity


def _agree(one: Chosen, other: Chosen, gpus: Sequence[Chosen], body: Sequence[TableLine]) -> bool:
    """Whether two columns differ only in their unit.

    Their quotient is the same in all rows, but for rounding.
    """
    quotients = []
    for line in body:
        size = cell_size(line.cells[gpus[0].at]) if gpus else None
        number = size.gpus if size else 1
        values = [_value(column, line, number) for column in (one, other)]
        first, second = values
        if first and second:
            quotients.append(first / second)
    return bool(quotients) and max(quotients) <= min(quotients) * (1 + 2 * TOLERANCE)


def _value(column: Chosen, line: TableLine, gpus: int) -> float:
    """Return the number in a line; 0 if there is none."""
    cell = line.cells[column.at]
    if column.name in ("gpus", "nodes"):
        size = cell_size(cell)
        return float(size.gpus) if size else 0.0
    value = read_cell(column, cell, gpus)
    return value.number if value else 0.0


def reading_note(layout: Layout, choice: TableColumns, data_sets: Sequence[str]) -> str:
    """Return which columns were read as what and which were not, in one line; "" for nothing."""
    renamed = []
    for column in choice.columns:
        if column.meaning is None:
            continue
        text = f"{column.header} as {column.name}"
        if column.per_gpu or column.name == "batch_per_gpu":
            text += " times the GPUs"
        if column.meaning.expected:
            text += ", not measured"
        renamed.append(text)
    renamed += [f"{header} as data set" for header in data_sets]
    unread = [layout.header[at] for at in choice.unread]
    unread = [header for header in (*layout.unread, *unread) if header not in ("", *data_sets)]
    parts = [layout.note] if layout.note else []
    if renamed:
        parts.append(f"read: {', '.join(renamed)}")
    if unread:
        parts.append(f"not read: {', '.join(unread)}")
    return "; ".join(parts)


def own_value(column: str, cell: str, place: str) -> Any:
    """Return the value of a cell of one of hpcrun's own columns, in its unit.

    Raises:
        UsageError: the column has no such values.
    """
    try:
        return _reader(column).validate_python(cell)
    except ValidationError as error:
        problem = error.errors()[0]["msg"].removeprefix("Value error, ")
        problem = problem.removeprefix(f"{cell!r} ")
        raise UsageError(f"{place}: column {column}: {cell[:40]!r}: {problem}") from None


def published_value(column: str, number: float) -> Any:
    """Return a number of a published column as the column's type, None if it cannot be one."""
    try:
        return _reader(_own_name(column)).validate_python(number)
    except ValidationError:
        return None


@cache
def _reader(column: str) -> TypeAdapter[Any]:
    return TypeAdapter(COLUMNS[column].type)
