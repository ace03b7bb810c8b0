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
    if not (header := next(lines, (0, []))[1]):
        raise UsageError(
            f"{name}: it is empty", hint=f"it needs a header of columns: {', '.join(COLUMNS)}"
        )
    columns, remarks = _columns(header, name)
    listed = list(lines)
    rows = [_row(columns, cells, f"{name}:{line}") for line, cells in listed]
    if not rows:
        raise UsageError(f"{name}: it has a header and no rows")
    cards = sorted(
        {match[2] for _, cells in listed for match in map(_CARDS.fullmatch, cells) if match}
    )
    if len(cards) > 1:
        remarks.append(
            f"{name}: {' and '.join(cards)}: a speed-up from one to another also compares the cards"
        )
    baselines: dict[str, int] = {}
    for values in sorted((row.values for row in rows), key=itemgetter("gpus")):
        gpus = values["gpus"]
        percent = values.get("efficiency_percent")
        # efficiencies refer to the smallest size of their data set, or to one GPU, if that size has
        # not 100 %
        if percent is None or abs(percent / 100 - 1) <= OF_BASELINE:
            least = gpus
        else:
            least = 1
        baseline = baselines.setdefault(values.setdefault("dataset", dataset), least)
        # a row that has nothing but an efficiency gets the speed-up that it means
        if percent and values.keys().isdisjoint(("total_s", "speedup", "time_s", "samples_per_s")):
            values["speedup"] = percent / 100 * gpus / baseline
    return Table(*_runs(rows, columns), tuple(remarks))


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
        lines = [
            line.strip().removeprefix("|").removesuffix("|") if line.strip(" |:-") else ""
            for line in lines
        ]
    reader = csv.reader(
        io.StringIO("\n".join(lines)), delimiter=max(",;\t|", key=header.count), strict=True
    )
    try:
        for cells in reader:
            if any(cell.strip() for cell in cells):
                yield reader.line_num, [cell.strip() for cell in cells]
    except csv.Error as error:
        raise UsageError(f"{name}:{reader.line_num}: {error}") from None


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
    names = [_column_name(cell) for cell in header]
    names = [*map(({} if "gpus" in names else {"configuration": "gpus"}).get, names, names)]
    long = next((column for column in names if len(column) > _LONGEST_NAME), None)
    if long:
        raise UsageError(
            f"{name}: the name of a column has {len(long)} characters: {long[:40]!r} ...",
            hint="is a quotation mark not closed?",
        )
    for column in names:
        if names.count(column) > 1:
            raise UsageError(f"{name}: column {column!r} appears twice in the header")
    unknown = [column for column in names if column not in COLUMNS]
    for column in {*unknown} - {"notes"}:
        hint = did_you_mean(column, COLUMNS)
        if hint:
            message = f"{name}: column {column!r} is not known"
            raise UsageError(message, hint=f"{hint} Known columns: {', '.join(COLUMNS)}")
    if "gpus" not in names:
        raise UsageError(f"{name}: there is no column gpus", hint=f"columns: {', '.join(COLUMNS)}")
    fields = [COLUMNS[column].field for column in names if column in COLUMNS]
    for column in names:
        if column in COLUMNS and fields.count(COLUMNS[column].field) > 1:
            raise UsageError(f"{name}: column {column} repeats another column in another unit")
    renamed = [
        f"{cell} as {column}"
        for cell, column in zip(header, names, strict=True)
        if cell.lower() != column
    ]
    notes = {"not read": unknown, "read": renamed}
    return names, [
        f"{name}: {what}: {', '.join(listed)}" for what, listed in notes.items() if listed
    ]


def _column_name(cell: str) -> str:
    """Return the name of a column as it is known.

    ``Time (min)`` is ``time_min``, and ``Speed-up`` is ``speedup``.
    """
    plain = re.sub(r"\s*[(\[]\s*([\w%]+)\s*[)\]]$", r"_\1", cell.lower())
    plain = re.sub(r"[\s\-]+", "_", plain).replace("%", "percent")
    return _ALIASES.get(plain, plain if plain in COLUMNS else cell.lower())


class _Row(NamedTuple):
    place: str
    values: dict[str, Any]  # by field
    claims: dict[str, str]  # by column, as they were written


def _row(columns: Sequence[str], cells: Sequence[str], place: str) -> _Row:
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
        try:
            value = _reader(name).validate_python(cell)
        except ValidationError as error:
            problem = (
                error.errors()[0]["msg"].removeprefix("Value error, ").removeprefix(f"{cell!r} ")
            )
            raise UsageError(f"{place}: column {name}: {cell[:40]!r}: {problem}") from None
        values[column.field] = value if column.factor == 1 else value * column.factor
        if name in CLAIMS:
            claims[name] = f"{value:g}" if column.type is _Percent else cell
    if "gpus" not in values:
        raise UsageError(f"{place}: column gpus is empty")
    if {"steps", "batch_size"} <= values.keys():
        values.setdefault("samples", values["steps"] * values["batch_size"])
    return _Row(place, values, claims)


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
            runs[tuple(map(row.values.get, (*_SIZE, "repeat", "run")))].append(row)
        return tuple(map(_joined, runs.values())), ()
    repeats: Counter[tuple[Any, ...]] = Counter()
    for row in rows:
        size = tuple(map(row.values.get, _SIZE))
        repeats[size] += 1
        row.values.setdefault("repeat", repeats[size])
    points = tuple(_joined([row]) for row in rows)
    of_rows = zip(rows, points, strict=True)
    return points, tuple(
        Claim(row.place, point, *each) for row, point in of_rows for each in row.claims.items()
    )


def _joined(rows: Sequence[_Row]) -> Point:
    given: dict[str, Any] = {}
    epochs: dict[int, tuple[Epoch, str]] = {}
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
        if not (
            measured := {field: row.values[field] for field in Epoch._fields if field in row.values}
        ):
            continue
        epoch = Epoch(**{"number": len(epochs) + 1, **measured})
        if epoch.number in epochs:
            raise UsageError(
                f"{row.place}: epoch {epoch.number} of this run stands in "
                f"{epochs[epoch.number][1]} too",
                hint="add a column repeat or run to distinguish runs of the same size",
            )
        epochs[epoch.number] = epoch, row.place
    return Point(
        source="csv", epochs=tuple(epochs[number][0] for number in sorted(epochs)), **given
    )


def contradictions(claims: Iterable[Claim], series: Sequence[Series]) -> tuple[Contradiction, ...]:
    """Return the claims of tables that their own times, batches and speed-ups contradict."""
    places = {point: (row, each) for each in series for row in each.rows for point in row.points}
    contradicted = []
    for claim in claims:
        if claim.point in places:
            follows = _follows(claim, *places[claim.point])
        else:
            follows = []
        if follows and not any(_agree(claim.text, value) for value, _ in follows):
            value, because = follows[0]
            contradicted.append(
                Contradiction(claim.place, claim.point.gpus, claim.what, claim.text, value, because)
            )
    return tuple(contradicted)


def _follows(claim: Claim, row: Row, series: Series) -> list[tuple[float, str]]:
    """Return the possible values of a claim, each with its calculation."""
    point, base = claim.point, series.rows[0]
    if claim.what == "gpu_hours":
        times = [point.total_s, *(epoch.time_s for epoch in point.epochs)]
        return [
            (point.gpus * time / 3600, f"{point.gpus} × {time / 3600:.4g} h")
            for time in times
            if time
        ]
    if claim.what == "efficiency_percent":
        speedup = point.speedup or row.speedup.mean
        return [
            (
                100 * speedup * base.gpus / point.gpus,
                f"a speed-up of {speedup:.4g} on {point.gpus} GPUs",
            )
        ]
    if claim.what == "steps" and point.samples and point.batch_size:
        return [
            (point.samples / point.batch_size, f"{point.samples} samples by {point.batch_size}")
        ]
    if row.speedup.n > 1 or base.speedup.n > 1 or series.weak:
        return []  # the value of one of several runs need not be that of their mean
    if claim.what == "speedup" and series.basis != "published":
        if series.basis == "throughput":
            basis = "samples per second"
        else:
            basis = "time"
        return [(row.speedup.mean, f"the {basis} beside that of {base.gpus}")]
    if claim.what == "samples_per_s" and series.basis in ("epoch", "run") and base.samples_per_s:
        return [
            (
                base.samples_per_s.mean * row.speedup.mean,
                f"{row.speedup.mean:.3g} × those of {base.gpus} by time",
            )
        ]
    return []


def _agree(text: str, value: float) -> bool:
    digits = text.lower().partition("e")[0].partition(".")[2]
    last = 0.5 * 10.0 ** -len(digits)
    return abs(float(text) - value) <= last + _TOLERANCE * abs(value)
