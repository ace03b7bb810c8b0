"""Published tables, as CSV or Markdown, and their contradictions.

A table has a row for each run or epoch, in columns with their units.
"""

from __future__ import annotations

import csv
import io
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields
from functools import cache
from operator import itemgetter
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from pydantic import AfterValidator, BeforeValidator, Field, TypeAdapter, ValidationError

from hpcrun.errors import UsageError, did_you_mean
from hpcrun.features.scaling.points import Epoch, Point
from hpcrun.features.scaling.series import OF_BASELINE, Row, Series
from hpcrun.files.reading import read_named_text
from hpcrun.job.text.units import parse_duration

_MAX_BYTES = 100_000_000
_MAX_COUNT = 10**15
_MOST_COLUMNS = 1000
_LONGEST_NAME = 200
_MOST_AS_SHARE = 2.0
_TOLERANCE = 0.01
"""Relative tolerance of a claim, in addition to its last digit, since the other numbers were
rounded, too.
"""
_SEPARATORS = ",;\t|"
_COMPARED_BY = ("total_s", "speedup", "time_s", "samples_per_s")
"""Fields by which sizes are compared; a row without them has only its efficiency for it."""


@dataclass(frozen=True, slots=True)
class Claim:
    """A number of a table that also follows from its other numbers."""

    place: str  # file and line
    point: Point  # the run of this line
    what: str  # the column
    text: str  # the number as written, for its precision


@dataclass(frozen=True, slots=True)
class Contradiction:
    """Two numbers of a table that cannot both be true."""

    place: str  # file and line
    gpus: int  # of this line
    what: str  # the column
    written: str  # the value in the table
    follows: float  # the value that follows from the others
    because: str  # the calculation


@dataclass(frozen=True, slots=True)
class Table:
    """The contents of a CSV file."""

    points: tuple[Point, ...]
    claims: tuple[Claim, ...]
    remarks: tuple[str, ...] = ()  # notes on unused parts


_Text = Annotated[str, Field(max_length=1000)]
_Count = Annotated[int, Field(ge=1, le=_MAX_COUNT)]
_Real = Annotated[float, Field(ge=-_MAX_COUNT, le=_MAX_COUNT, allow_inf_nan=False)]
_NotNegative = Annotated[_Real, Field(ge=0)]
_Positive = Annotated[_Real, Field(gt=0)]
_Duration = Annotated[float, BeforeValidator(lambda text: parse_duration(text.replace(" ", "")))]
# 87.3, or as a share, 0.873: nobody publishes an efficiency of 2 %
_Percent = Annotated[
    _Positive, AfterValidator(lambda value: value if value > _MOST_AS_SHARE else 100 * value)
]
_Counts = Annotated[tuple[_Count, ...], BeforeValidator(lambda text: text.split(";"))]


class _Column(NamedTuple):
    field: str  # of a point or an epoch, or a claim's name
    type: Any
    factor: float = 1.0


def _times(column: str, field: str) -> dict[str, _Column]:
    units = {"_s": 1.0, "_min": 60.0, "_h": 3600.0}
    return {
        **{column + unit: _Column(field, _Positive, factor) for unit, factor in units.items()},
        column: _Column(field, _Duration),
    }


COLUMNS: dict[str, _Column] = {
    "dataset": _Column("dataset", _Text),
    "gpus": _Column("gpus", _Count),
    "nodes": _Column("nodes", _Count),
    "repeat": _Column("repeat", _Count),
    "run": _Column("run", _Text),
    "state": _Column("state", _Text),
    "problem": _Column("problem", _Text),
    **_times("time", "total_s"),
    "startup_s": _Column("startup_s", _NotNegative),
    "batch_size": _Column("batch_size", _Count),
    "samples": _Column("samples", _Count),
    "rank_samples": _Column("rank_samples", _Counts),
    "parameters": _Column("parameters", _Count),
    "speedup": _Column("speedup", _Positive),
    "epoch": _Column("number", _Count),
    **_times("epoch_time", "time_s"),
    "samples_per_s": _Column("samples_per_s", _Positive),
    "accuracy": _Column("accuracy", _Real),
    "loss": _Column("loss", _Real),
    "data_s": _Column("data_s", _NotNegative),
    "sync_s": _Column("sync_s", _NotNegative),
    "efficiency_percent": _Column("efficiency_percent", _Percent),
    "gpu_hours": _Column("gpu_hours", _Positive),
    "steps": _Column("steps", _Count),
}
"""Every column that is read, the field for its value, and the factor to seconds."""
_ALIASES = {
    **dict.fromkeys(("gpu", "n_gpus", "num_gpus", "#gpus", "number_of_gpus", "gpu_count"), "gpus"),
    **dict.fromkeys(
        ("runtime", "run_time", "wall_time", "total_time", "training_time", "duration"), "time"
    ),
    **dict.fromkeys(("time_per_epoch", "time/epoch"), "epoch_time"),
    **dict.fromkeys(("speed_up", "scaling", "relative_speedup"), "speedup"),
    **dict.fromkeys(
        ("efficiency", "scaling_efficiency", "parallel_efficiency", "eff"), "efficiency_percent"
    ),
    **dict.fromkeys(
        ("throughput", "samples/s", "samples/sec", "images/s", "images/sec", "img/s"),
        "samples_per_s",
    ),
    **dict.fromkeys(("batch", "global_batch", "global_batch_size"), "batch_size"),
    **dict.fromkeys(("node", "n_nodes", "num_nodes"), "nodes"),
}
"""What people call a column."""
_MARKS = re.compile(r"[~≈]\s*(?=[\d.])|(?<=[\d.])\s*[x×%](?=$)")
"""What stands around a number: ``~1.8x``, ``87.3%``."""
_COMMENT = re.compile(r"#(?!gpus\s*[,;\t|])", re.IGNORECASE)
"""The beginning of a line that is not read; a header may begin with ``#gpus``."""
_CARDS = re.compile(r"(\d+)\s*[x×]\s*([^\W\d].*)")
"""GPUs of a type, as people name a configuration: ``4x V100``."""
CLAIMS = ("speedup", "efficiency_percent", "gpu_hours", "samples_per_s", "steps")
"""Columns that can contradict the others."""
_SIZE = ("dataset", "gpus", "nodes", "batch_size")
_POINT = {field.name for field in fields(Point)}


def load_table(path: Path, dataset: str = "") -> Table:
    """Read runs from a file.

    ``dataset`` is the data set of runs that name none.

    Raises:
        UsageError: the file cannot be read, is too large, or is not UTF-8 text.
    """
    try:
        text = read_named_text(path, _MAX_BYTES)
    except ValueError as error:
        raise UsageError(f"--from-csv: {error}") from None
    return parse_table(text, path.name, dataset)


def parse_table(text: str, name: str, dataset: str = "") -> Table:
    """Read runs from the text of a file.

    ``dataset`` is the data set of runs that name none. Lines that begin with # are comments.

    Raises:
        UsageError: the text is empty, or has a header and no rows.
    """
    lines = _lines(text, name)
    _, header = next(lines, (0, []))
    if not header:
        hint = f"it needs a header of columns: {', '.join(COLUMNS)}"
        raise UsageError(f"{name}: it is empty", hint=hint)
    columns, remarks = _columns(header, name)
    rows = []
    cards = set()
    for line, cells in list(lines):
        rows.append(_row(columns, cells, f"{name}:{line}"))
        for match in map(_CARDS.fullmatch, cells):
            if match:
                cards.add(match[2])
    if not rows:
        raise UsageError(f"{name}: it has a header and no rows")
    if len(cards) > 1:
        listed = " and ".join(sorted(cards))
        remarks.append(f"{name}: {listed}: a speed-up from one to another also compares the cards")
    _add_speedups([row.values for row in rows], dataset)
    points, claims = _runs(rows, columns)
    return Table(points, claims, tuple(remarks))


def _add_speedups(rows: Iterable[dict[str, Any]], dataset: str) -> None:
    """Give a row that has nothing but an efficiency the speed-up that it means.

    A row that names no data set gets this one.
    """
    baselines: dict[str, int] = {}
    for values in sorted(rows, key=itemgetter("gpus")):
        gpus = values["gpus"]
        percent = values.get("efficiency_percent")
        # efficiencies refer to the smallest size of their data set, or to one GPU, if that size has
        # not 100 %
        least = 1
        if percent is None or abs(percent / 100 - 1) <= OF_BASELINE:
            least = gpus
        baseline = baselines.setdefault(values.setdefault("dataset", dataset), least)
        if percent and values.keys().isdisjoint(_COMPARED_BY):
            values["speedup"] = percent / 100 * gpus / baseline


def _lines(text: str, name: str) -> Iterator[tuple[int, list[str]]]:
    """Yield the number of a line and its cells, without comments and empty lines.

    Markdown's tables are read as well.

    Raises:
        UsageError: the text is not valid CSV.
    """
    # a comment may have quotes that csv would interpret
    lines = ["" if _COMMENT.match(line) else line for line in text.splitlines()]
    header = next(filter(str.strip, lines), "")
    if header.lstrip().startswith("|"):
        lines = [_without_frame(line) for line in lines]
    separator = max(_SEPARATORS, key=header.count)
    reader = csv.reader(io.StringIO("\n".join(lines)), delimiter=separator, strict=True)
    try:
        for written in reader:
            cells = [cell.strip() for cell in written]
            if any(cells):
                yield reader.line_num, cells
    except csv.Error as error:
        raise UsageError(f"{name}:{reader.line_num}: {error}") from None


def _without_frame(line: str) -> str:
    """Return a line of a Markdown table without its outer bars; "" for a line of dashes."""
    if not line.strip(" |:-"):
        return ""
    return line.strip().removeprefix("|").removesuffix("|")


def _columns(header: Sequence[str], name: str) -> tuple[list[str], list[str]]:
    """Return the names of the columns, and notes on columns that are not read.

    Raises:
        UsageError: the column of GPUs is missing, a column is repeated or misspelt, a name is too
            long, or there are too many columns.
    """
    if len(header) > _MOST_COLUMNS:
        raise UsageError(
            f"{name}: the header has {len(header)} columns; at most {_MOST_COLUMNS} are read"
        )
    columns = [_column_name(cell) for cell in header]
    if "gpus" not in columns:
        columns = ["gpus" if column == "configuration" else column for column in columns]
    _check_names(columns, name)
    _check_fields(columns, name)
    notes = []
    unread = [column for column in columns if column not in COLUMNS]
    if unread:
        notes.append(f"{name}: not read: {', '.join(unread)}")
    renamed = []
    for cell, column in zip(header, columns, strict=True):
        if cell.lower() != column:
            renamed.append(f"{cell} as {column}")
    if renamed:
        notes.append(f"{name}: read: {', '.join(renamed)}")
    return columns, notes


def _check_names(columns: Sequence[str], name: str) -> None:
    """Check the names of the columns of a file.

    Raises:
        UsageError: a column is repeated or misspelt, or its name is too long.
    """
    for column in columns:
        if len(column) > _LONGEST_NAME:
            start = f"{column[:40]!r} ..."
            raise UsageError(
                f"{name}: the name of a column has {len(column)} characters: {start}",
                hint="is a quotation mark not closed?",
            )
    for column in columns:
        if columns.count(column) > 1:
            raise UsageError(f"{name}: column {column!r} appears twice in the header")
    for column in {*columns} - {*COLUMNS, "notes"}:
        hint = did_you_mean(column, COLUMNS)
        if hint:
            message = f"{name}: column {column!r} is not known"
            raise UsageError(message, hint=f"{hint} Known columns: {', '.join(COLUMNS)}")


def _check_fields(columns: Sequence[str], name: str) -> None:
    """Check what the columns of a file tell.

    Raises:
        UsageError: the column of GPUs is missing, or two columns tell the same.
    """
    if "gpus" not in columns:
        raise UsageError(f"{name}: there is no column gpus", hint=f"columns: {', '.join(COLUMNS)}")
    read = [column for column in columns if column in COLUMNS]
    fields = [COLUMNS[column].field for column in read]
    for column in read:
        if fields.count(COLUMNS[column].field) > 1:
            raise UsageError(f"{name}: column {column} repeats another column in another unit")


def _column_name(cell: str) -> str:
    """Return the name of a column as it is known.

    ``Time (min)`` is ``time_min``, and ``Speed-up`` is ``speedup``.
    """
    plain = re.sub(r"\s*[(\[]\s*([\w%]+)\s*[)\]]$", r"_\1", cell.lower())
    plain = re.sub(r"[\s\-]+", "_", plain).replace("%", "percent")
    if plain in _ALIASES:
        return _ALIASES[plain]
    return plain if plain in COLUMNS else cell.lower()


class _Row(NamedTuple):
    place: str
    values: dict[str, Any]  # by field
    claims: dict[str, str]  # by column, as they were written


def _row(columns: Sequence[str], cells: Sequence[str], place: str) -> _Row:
    """Return a row with the values of its cells.

    Raises:
        UsageError: a value is missing, too many, or cannot be read.
    """
    if len(cells) != len(columns):
        raise UsageError(f"{place}: the line has {len(cells)} values, the header {len(columns)}")
    values: dict[str, Any] = {}
    claims: dict[str, str] = {}
    for name, written in zip(columns, cells, strict=True):
        column = COLUMNS.get(name)
        if column is None or not written:
            continue
        cell = written
        if column.type is not _Text:
            cell = _MARKS.sub("", _CARDS.sub(r"\1", written))
        value = _value(name, cell, place)
        if column.factor != 1:
            value *= column.factor
        values[column.field] = value
        if name in CLAIMS:
            claims[name] = f"{value:g}" if column.type is _Percent else cell
    if "gpus" not in values:
        raise UsageError(f"{place}: column gpus is empty")
    if {"steps", "batch_size"} <= values.keys():
        values.setdefault("samples", values["steps"] * values["batch_size"])
    return _Row(place, values, claims)


def _value(name: str, cell: str, place: str) -> Any:
    """Return the value of a cell, in the unit of its column.

    Raises:
        UsageError: the column has no such values.
    """
    try:
        return _reader(name).validate_python(cell)
    except ValidationError as error:
        problem = error.errors()[0]["msg"].removeprefix("Value error, ")
        problem = problem.removeprefix(f"{cell!r} ")
        raise UsageError(f"{place}: column {name}: {cell[:40]!r}: {problem}") from None


@cache
def _reader(column: str) -> TypeAdapter[Any]:
    return TypeAdapter(COLUMNS[column].type)


def _runs(
    rows: Sequence[_Row], columns: Sequence[str]
) -> tuple[tuple[Point, ...], tuple[Claim, ...]]:
    """Return a point for each run, and the claims of the table.

    A row is an epoch of a run, or the whole run. Claims of epochs are not checked.
    """
    if "epoch" in columns:
        runs: dict[tuple[Any, ...], list[_Row]] = defaultdict(list)
        for row in rows:
            runs[_fields(row, (*_SIZE, "repeat", "run"))].append(row)
        return tuple(map(_joined, runs.values())), ()
    repeats: Counter[tuple[Any, ...]] = Counter()
    points = []
    claims = []
    for row in rows:
        size = _fields(row, _SIZE)
        repeats[size] += 1
        row.values.setdefault("repeat", repeats[size])
        point = _joined([row])
        points.append(point)
        for column, text in row.claims.items():
            claims.append(Claim(row.place, point, column, text))
    return tuple(points), tuple(claims)


def _fields(row: _Row, names: Iterable[str]) -> tuple[Any, ...]:
    """Return some fields of a row, None for those that it has not."""
    return tuple(row.values.get(name) for name in names)


def _joined(rows: Sequence[_Row]) -> Point:
    """Return a run by its rows.

    Raises:
        UsageError: the rows contradict each other, or one epoch stands in two of them.
    """
    given: dict[str, Any] = {}
    epochs: dict[int, Epoch] = {}
    places: dict[int, str] = {}
    for row in rows:
        for field, value in row.values.items():
            if field in _POINT and given.setdefault(field, value) != value:
                column = next(name for name, each in COLUMNS.items() if each.field == field)
                raise UsageError(
                    f"{row.place}: column {column}: it differs from an earlier line of the same "
                    "run",
                    hint="a value of a whole run must be the same in all its lines, or be in only "
                    "one of them",
                )
        measured = {name: row.values[name] for name in Epoch._fields if name in row.values}
        if not measured:
            continue
        measured.setdefault("number", len(epochs) + 1)
        epoch = Epoch(**measured)
        if epoch.number in epochs:
            earlier = places[epoch.number]
            raise UsageError(
                f"{row.place}: epoch {epoch.number} of this run stands in {earlier} too",
                hint="add a column repeat or run to distinguish runs of the same size",
            )
        epochs[epoch.number] = epoch
        places[epoch.number] = row.place
    in_order = tuple(epochs[number] for number in sorted(epochs))
    return Point(source="csv", epochs=in_order, **given)


@dataclass(frozen=True, slots=True)
class _Derived:
    """A value that follows from other numbers of a table."""

    value: float
    because: str  # the calculation


def contradictions(claims: Iterable[Claim], series: Sequence[Series]) -> tuple[Contradiction, ...]:
    """Return the claims of tables that their own times, batches and speed-ups contradict."""
    places = {}
    for each in series:
        for row in each.rows:
            for point in row.points:
                places[point] = (row, each)
    contradicted = []
    for claim in claims:
        if claim.point not in places:
            continue
        derived = _follows(claim, *places[claim.point])
        if not derived or any(_agree(claim.text, possible.value) for possible in derived):
            continue
        contradicted.append(
            Contradiction(
                claim.place,
                claim.point.gpus,
                claim.what,
                claim.text,
                follows=derived[0].value,
                because=derived[0].because,
            )
        )
    return tuple(contradicted)


def _follows(claim: Claim, row: Row, series: Series) -> list[_Derived]:
    """Return the possible values of a claim, each with its calculation."""
    if claim.what == "gpu_hours":
        return _gpu_hours(claim.point)
    derived = None
    if claim.what == "efficiency_percent":
        derived = _efficiency(claim.point, row, series)
    elif claim.what == "steps":
        derived = _steps(claim.point)
    elif claim.what == "speedup":
        derived = _speedup(row, series)
    elif claim.what == "samples_per_s":
        derived = _rate(row, series)
    return [derived] if derived else []


def _gpu_hours(point: Point) -> list[_Derived]:
    """Return the GPU-hours of the run, and those of each epoch."""
    derived = []
    for time_s in (point.total_s, *(epoch.time_s for epoch in point.epochs)):
        if time_s:
            calculation = f"{point.gpus} × {time_s / 3600:.4g} h"
            derived.append(_Derived(point.gpus * time_s / 3600, calculation))
    return derived


def _efficiency(point: Point, row: Row, series: Series) -> _Derived:
    speedup = point.speedup or row.speedup.mean
    percent = 100 * speedup * series.rows[0].gpus / point.gpus
    return _Derived(percent, f"a speed-up of {speedup:.4g} on {point.gpus} GPUs")


def _steps(point: Point) -> _Derived | None:
    if not point.samples or not point.batch_size:
        return None
    steps = point.samples / point.batch_size
    return _Derived(steps, f"{point.samples} samples by {point.batch_size}")


def _speedup(row: Row, series: Series) -> _Derived | None:
    if not _is_comparable(row, series) or series.basis == "published":
        return None
    basis = "samples per second" if series.basis == "throughput" else "time"
    return _Derived(row.speedup.mean, f"the {basis} beside that of {series.rows[0].gpus}")


def _rate(row: Row, series: Series) -> _Derived | None:
    base = series.rows[0]
    if not _is_comparable(row, series) or series.basis not in ("epoch", "run"):
        return None
    if base.samples_per_s is None:
        return None
    rate = base.samples_per_s.mean * row.speedup.mean
    return _Derived(rate, f"{row.speedup.mean:.3g} × those of {base.gpus} by time")


def _is_comparable(row: Row, series: Series) -> bool:
    """Whether the value of a run is that of its size: of several, it need not be their mean."""
    return row.speedup.n == 1 and series.rows[0].speedup.n == 1 and not series.weak


def _agree(text: str, value: float) -> bool:
    """Whether a number as written is a value, within its last digit and the tolerance."""
    mantissa, _, _ = text.lower().partition("e")
    _, _, digits = mantissa.partition(".")
    last = 0.5 * 10.0 ** -len(digits)
    return abs(float(text) - value) <= last + _TOLERANCE * abs(value)
