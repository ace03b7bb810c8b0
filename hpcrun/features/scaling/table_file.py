"""Published tables, as CSV or Markdown: a row for each run or epoch, in columns with their units; contradictions."""

from __future__ import annotations

import csv
import io
import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from hpcrun.errors import UsageError, did_you_mean
from hpcrun.features.scaling.points import Epoch, Point
from hpcrun.features.scaling.series import Row, Series
from hpcrun.job.units import parse_duration
from hpcrun.reading import read_named_text

_MAX_BYTES, _MAX_COUNT = 100_000_000, 10**15
_MOST_COLUMNS, _LONGEST_NAME, _LONGEST_TEXT = 1000, 200, 1000
_MOST_AS_SHARE = 2.0
_TOLERANCE = 0.01
"""Relative tolerance of a claim, in addition to its last digit, since the other numbers were rounded, too."""


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


def _text(text: str) -> str:
    if len(text) <= _LONGEST_TEXT:
        return text
    raise ValueError(f"is longer than {_LONGEST_TEXT} characters")


def _whole(text: str) -> int:
    if not (text.isascii() and text.isdigit()) or not 1 <= int(text[:20]) <= _MAX_COUNT:
        raise ValueError("is not a whole number from 1 on")
    return int(text)


def _number(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        raise ValueError("is not a number") from None
    if not math.isfinite(value) or abs(value) > _MAX_COUNT:
        raise ValueError("is not a usable number")
    return value


def _not_negative(text: str) -> float:
    if (value := _number(text)) < 0:
        raise ValueError("is less than 0")
    return value


def _positive(text: str) -> float:
    if (value := _number(text)) <= 0:
        raise ValueError("is not more than 0")
    return value


def _percent(text: str) -> float:
    """Read an efficiency: ``87.3``, or as a share, ``0.873``; nobody publishes one of 2 %."""
    value = _positive(text)
    return value if value > _MOST_AS_SHARE else 100 * value


def _duration(text: str) -> float:
    """Read ``1h 30m`` or ``1:30:00``, in seconds."""
    try:
        return parse_duration(text.replace(" ", ""))
    except ValueError:
        raise ValueError("is not a time with its unit; write 36m or 1h30m, or name the unit: time_min") from None


@dataclass(frozen=True, slots=True)
class _Column:
    part: Literal["point", "epoch", "claim"]
    field: str
    read: Callable[[str], Any]
    factor: float = 1.0


COLUMNS: dict[str, _Column] = {
    "dataset": _Column("point", "dataset", _text),
    "gpus": _Column("point", "gpus", _whole),
    "nodes": _Column("point", "nodes", _whole),
    "repeat": _Column("point", "repeat", _whole),
    "run": _Column("point", "run", _text),
    "state": _Column("point", "state", _text),
    "problem": _Column("point", "problem", _text),
    "time_s": _Column("point", "total_s", _positive),
    "time_min": _Column("point", "total_s", _positive, 60),
    "time_h": _Column("point", "total_s", _positive, 3600),
    "time": _Column("point", "total_s", _duration),
    "startup_s": _Column("point", "startup_s", _not_negative),
    "batch_size": _Column("point", "batch_size", _whole),
    "samples": _Column("point", "samples", _whole),
    "rank_samples": _Column(
        "point", "rank_samples", lambda text: tuple(_whole(part.strip()) for part in text.split(";"))
    ),
    "parameters": _Column("point", "parameters", _whole),
    "speedup": _Column("point", "speedup", _positive),
    "epoch": _Column("epoch", "number", _whole),
    "epoch_time_s": _Column("epoch", "time_s", _positive),
    "epoch_time_min": _Column("epoch", "time_s", _positive, 60),
    "epoch_time_h": _Column("epoch", "time_s", _positive, 3600),
    "epoch_time": _Column("epoch", "time_s", _duration),
    "samples_per_s": _Column("epoch", "samples_per_s", _positive),
    "accuracy": _Column("epoch", "accuracy", _number),
    "loss": _Column("epoch", "loss", _number),
    "data_s": _Column("epoch", "data_s", _not_negative),
    "sync_s": _Column("epoch", "sync_s", _not_negative),
    "efficiency_percent": _Column("claim", "efficiency_percent", _percent),
    "gpu_hours": _Column("claim", "gpu_hours", _positive),
    "steps": _Column("claim", "steps", _whole),
}
"""Every column that is read, the field for its value, and the factor to seconds."""
_ALIASES = {
    **dict.fromkeys(("gpu", "n_gpus", "num_gpus", "#gpus", "number_of_gpus", "gpu_count"), "gpus"),
    **dict.fromkeys(("runtime", "run_time", "wall_time", "total_time", "training_time", "duration"), "time"),
    **dict.fromkeys(("time_per_epoch", "time/epoch"), "epoch_time"),
    **dict.fromkeys(("speed_up", "scaling", "relative_speedup"), "speedup"),
    **dict.fromkeys(("efficiency", "scaling_efficiency", "parallel_efficiency", "eff"), "efficiency_percent"),
    **dict.fromkeys(("throughput", "samples/s", "samples/sec", "images/s", "images/sec", "img/s"), "samples_per_s"),
    **dict.fromkeys(("batch", "global_batch", "global_batch_size"), "batch_size"),
    **dict.fromkeys(("node", "n_nodes", "num_nodes"), "nodes"),
}
"""What people call a column."""
_MARKS = re.compile(r"[~≈]\s*(?=[\d.])|(?<=[\d.])\s*[x×%](?=$)")
"""What stands around a number: ``~1.8x``, ``87.3%``."""
_CARDS = re.compile(r"(\d+)\s*[x×]\s*([^\W\d].*)")
"""GPUs of a type, as people name a configuration: ``4x V100``."""
CLAIMS = ("speedup", "efficiency_percent", "gpu_hours", "samples_per_s", "steps")
"""Columns that can contradict the others."""


def load_table(path: Path, dataset: str = "") -> Table:
    """Read runs, of ``dataset`` unless they name one, from a file."""
    try:
        text = read_named_text(path, _MAX_BYTES)
    except ValueError as error:
        raise UsageError(f"--from-csv: {error}") from None
    return parse_table(text, path.name, dataset)


def parse_table(text: str, name: str, dataset: str = "") -> Table:
    """Read runs, of ``dataset`` unless they name one, from the text of a file; lines that begin with # are comments."""
    lines = _lines(text, name)
    if not (header := next(lines, (0, []))[1]):
        raise UsageError(f"{name}: it is empty", hint=f"it needs a header of columns: {', '.join(COLUMNS)}")
    columns, remarks = _columns(header, name)
    listed = list(lines)
    rows = [_row(columns, cells, f"{name}:{line}") for line, cells in listed]
    if not rows:
        raise UsageError(f"{name}: it has a header and no rows")
    cards = sorted({match[2] for _, cells in listed for match in map(_CARDS.fullmatch, cells) if match})
    if len(cards) > 1:
        remarks.append(f"{name}: {' and '.join(cards)}: a speed-up from one to another also compares the cards")
    smallest = min(row.point["gpus"] for row in rows)
    for row in rows:
        if dataset:
            row.point.setdefault("dataset", dataset)
        # a row that has nothing but an efficiency gets the speed-up that it means
        known = {"total_s", "speedup"} & row.point.keys() or {"time_s", "samples_per_s"} & row.epoch.keys()
        if not known and (percent := row.claims.get("efficiency_percent")):
            row.point["speedup"] = float(percent) / 100 * row.point["gpus"] / smallest
    return Table(*_runs(rows, columns), tuple(remarks))


def _lines(text: str, name: str) -> Iterator[tuple[int, list[str]]]:
    """Yield the number of a line and its cells, without comments and empty lines; of Markdown's tables as well."""
    if text.lstrip().startswith("|"):
        text = "\n".join("" if not line.strip(" |:-") else line.strip().strip("|") for line in text.splitlines())
    header = next((line for line in text.splitlines() if line.strip() and not line.startswith("#")), "")
    delimiter = max(",;\t|", key=header.count)
    # a comment may have quotes that csv would interpret
    uncommented = "\n".join("" if line.startswith("#") else line for line in text.splitlines())
    reader = csv.reader(io.StringIO(uncommented), delimiter=delimiter, strict=True)
    try:
        for cells in reader:
            if any(cell.strip() for cell in cells):
                yield reader.line_num, [cell.strip() for cell in cells]
    except csv.Error as error:
        raise UsageError(f"{name}:{reader.line_num}: {error}") from None


def _columns(header: Sequence[str], name: str) -> tuple[list[str], list[str]]:
    """Return the names of the columns, and notes on those that are not read."""
    if len(header) > _MOST_COLUMNS:
        raise UsageError(f"{name}: the header has {len(header)} columns; at most {_MOST_COLUMNS} are read")
    names = [_column_name(cell) for cell in header]
    names = [*map(({} if "gpus" in names else {"configuration": "gpus"}).get, names, names)]
    if long := next((column for column in names if len(column) > _LONGEST_NAME), None):
        raise UsageError(f"{name}: the name of a column has {len(long)} characters: {long[:40]!r} ...",
                         hint="is a quotation mark not closed?")  # fmt: skip
    for column in names:
        if names.count(column) > 1:
            raise UsageError(f"{name}: column {column!r} appears twice in the header")
    unknown = [column for column in names if column not in COLUMNS]
    for column in {*unknown} - {"notes"}:
        if hint := did_you_mean(column, COLUMNS):
            message = f"{name}: column {column!r} is not known"
            raise UsageError(message, hint=f"{hint} Known columns: {', '.join(COLUMNS)}")
    if "gpus" not in names:
        raise UsageError(f"{name}: there is no column gpus", hint=f"columns: {', '.join(COLUMNS)}")
    fields = [COLUMNS[column].field for column in names if column in COLUMNS]
    for column in names:
        if column in COLUMNS and fields.count(COLUMNS[column].field) > 1:
            raise UsageError(f"{name}: column {column} repeats another column in another unit")
    renamed = [f"{cell} as {column}" for cell, column in zip(header, names, strict=True) if cell.lower() != column]
    notes = {"not read": unknown, "read": renamed}
    return names, [f"{name}: {what}: {', '.join(listed)}" for what, listed in notes.items() if listed]


def _column_name(cell: str) -> str:
    """Return the name of a column as it is known: ``Time (min)`` is time_min, ``Speed-up`` speedup."""
    plain = re.sub(r"\s*[(\[]\s*([\w%]+)\s*[)\]]$", r"_\1", cell.lower())
    plain = re.sub(r"[\s\-]+", "_", plain).replace("%", "percent")
    return _ALIASES.get(plain, plain if plain in COLUMNS else cell.lower())


@dataclass(frozen=True, slots=True)
class _Row:
    place: str
    point: dict[str, Any]
    epoch: dict[str, Any]
    claims: dict[str, str]


def _row(columns: Sequence[str], cells: Sequence[str], place: str) -> _Row:
    if len(cells) != len(columns):
        raise UsageError(f"{place}: the line has {len(cells)} values, the header {len(columns)}")
    parts: dict[str, dict[str, Any]] = {"point": {"source": "csv"}, "epoch": {}, "claim": {}}
    claims: dict[str, str] = {}
    for name, cell in zip(columns, cells, strict=True):
        column = COLUMNS.get(name)
        if column is None or not cell:
            continue
        cell = cell if column.read is _text else _MARKS.sub("", _CARDS.sub(r"\1", cell))
        try:
            value = column.read(cell)
        except ValueError as error:
            raise UsageError(f"{place}: column {name}: {cell[:40]!r} {error}") from None
        parts[column.part][column.field] = value if column.factor == 1 else value * column.factor
        if name in CLAIMS:
            claims[name] = f"{value:g}" if column.read is _percent else cell
    if "gpus" not in parts["point"]:
        raise UsageError(f"{place}: column gpus is empty")
    point, steps = parts["point"], parts["claim"].get("steps")
    if steps and "batch_size" in point:
        point.setdefault("samples", steps * point["batch_size"])
    return _Row(place, point, parts["epoch"], claims)


def _runs(rows: Sequence[_Row], columns: Sequence[str]) -> tuple[tuple[Point, ...], tuple[Claim, ...]]:
    """Return a point for each run, of which a row is an epoch or all; claims of epochs are not checked."""
    runs: dict[tuple[Any, ...], list[_Row]] = {}
    numbers: Counter[tuple[Any, ...]] = Counter()
    for row in rows:
        size = tuple(row.point.get(name) for name in ("dataset", "gpus", "nodes", "batch_size"))
        if "epoch" in columns:
            key = (*size, row.point.get("repeat"), row.point.get("run"))
        else:
            key = (row.place,)
            numbers[size] += 1
            row.point.setdefault("repeat", numbers[size])
        runs.setdefault(key, []).append(row)
    points = {key: _joined(group) for key, group in runs.items()}
    of_runs = rows if "epoch" not in columns else ()
    claims = (Claim(row.place, points[row.place,], what, text) for row in of_runs for what, text in row.claims.items())
    return tuple(points.values()), tuple(claims)


def _joined(rows: Sequence[_Row]) -> Point:
    given: dict[str, Any] = {}
    epochs: dict[int, tuple[Epoch, str]] = {}
    for row in rows:
        for field, value in row.point.items():
            if given.setdefault(field, value) != value:
                column = next(name for name, each in COLUMNS.items() if each.field == field)
                raise UsageError(
                    f"{row.place}: column {column}: it differs from an earlier line of the same run",
                    hint="a value of a whole run must be the same in all its lines, or be in only one of them",
                )
        epoch = Epoch(**{"number": len(epochs) + 1, **row.epoch})
        if row.epoch and epoch.number in epochs:
            raise UsageError(
                f"{row.place}: epoch {epoch.number} of this run stands in {epochs[epoch.number][1]} too",
                hint="add a column repeat or run to distinguish runs of the same size",
            )
        if row.epoch:
            epochs[epoch.number] = epoch, row.place
    return Point(epochs=tuple(epochs[number][0] for number in sorted(epochs)), **given)


def contradictions(claims: Iterable[Claim], series: Sequence[Series]) -> tuple[Contradiction, ...]:
    """Return the claims of tables that their own times, batches and speed-ups contradict."""
    places = {point: (row, each) for each in series for row in each.rows for point in row.points}
    contradicted = []
    for claim in claims:
        follows = _follows(claim, *places[claim.point]) if claim.point in places else []
        if follows and not any(_agree(claim.text, value) for value, _ in follows):
            value, because = follows[0]
            contradicted.append(Contradiction(claim.place, claim.point.gpus, claim.what, claim.text, value, because))
    return tuple(contradicted)


def _follows(claim: Claim, row: Row, series: Series) -> list[tuple[float, str]]:
    """Return the possible values of a claim, each with its calculation."""
    point, base = claim.point, series.rows[0]
    if claim.what == "gpu_hours":
        times = [point.total_s, *(epoch.time_s for epoch in point.epochs)]
        return [(point.gpus * time / 3600, f"{point.gpus} × {time / 3600:.4g} h") for time in times if time]
    if claim.what == "efficiency_percent":
        speedup = point.speedup or row.speedup.mean
        return [(100 * speedup * base.gpus / point.gpus, f"a speed-up of {speedup:.4g} on {point.gpus} GPUs")]
    if claim.what == "steps" and point.samples and point.batch_size:
        return [(point.samples / point.batch_size, f"{point.samples} samples by {point.batch_size}")]
    if row.speedup.n > 1 or base.speedup.n > 1 or series.weak:
        return []  # the value of one of several runs need not be that of their mean
    if claim.what == "speedup" and series.basis != "published":
        basis = "samples per second" if series.basis == "throughput" else "time"
        return [(row.speedup.mean, f"the {basis} beside that of {base.gpus}")]
    if claim.what == "samples_per_s" and series.basis in ("epoch", "run") and base.samples_per_s:
        return [(base.samples_per_s.mean * row.speedup.mean, f"{row.speedup.mean:.3g} × those of {base.gpus} by time")]
    return []


def _agree(text: str, value: float) -> bool:
    digits = text.lower().partition("e")[0].partition(".")[2]
    last = 0.5 * 10.0 ** -len(digits)
    return abs(float(text) - value) <= last + _TOLERANCE * abs(value)
