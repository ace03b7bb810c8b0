"""Published tables, as CSV or Markdown.

A table has a row for each run or epoch, in columns with their units. The header is read by
``table_words``, the cells by ``table_cells``; ``table_layout`` finds the table in its file.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from operator import itemgetter
from pathlib import Path
from typing import Any

from hpcrun.errors import UsageError
from hpcrun.features.scaling.points import Epoch, Point
from hpcrun.features.scaling.series import OF_BASELINE
from hpcrun.features.scaling.table_claims import Claim
from hpcrun.features.scaling.table_columns import (
    COLUMNS,
    MEASURED,
    TableColumns,
    choose_columns,
    reading_note,
)
from hpcrun.features.scaling.table_layout import read_layout
from hpcrun.features.scaling.table_rows import TableRow, name_data_sets, read_rows
from hpcrun.files.reading import read_named_text

_MAX_BYTES = 100_000_000
_COMPARED_BY = ("total_s", "speedup", "time_s", "samples_per_s")
"""Fields by which sizes are compared; a row without them has only its efficiency for it."""
_STEPS_ALONE = "times of steps are not compared without the batch: the work of a step may differ"
_SIZE = ("dataset", "gpus", "nodes", "batch_size")
_POINT = {field.name for field in fields(Point)}


@dataclass(frozen=True, slots=True)
class Table:
    """The contents of a table."""

    points: tuple[Point, ...]
    claims: tuple[Claim, ...]
    remarks: tuple[str, ...] = ()  # what was read and what was not


def load_table(path: Path, dataset: str = "", gpus_per_node: int | None = None) -> Table:
    """Read runs from a file.

    ``dataset`` is the data set of runs that name none.

    Raises:
        UsageError: the file cannot be read, is too large, or is not UTF-8 text.
    """
    try:
        text = read_named_text(path, _MAX_BYTES)
    except ValueError as error:
        raise UsageError(f"--from-csv: {error}") from None
    return parse_table(text, path.name, dataset, gpus_per_node)


def parse_table(text: str, name: str, dataset: str = "", gpus_per_node: int | None = None) -> Table:
    """Read runs from the text of a file.

    ``dataset`` is the data set of runs that name none, ``gpus_per_node`` the GPUs of a node where
    the table has only nodes. Lines that begin with # are comments.

    Raises:
        UsageError: the text is empty, or has no rows or no sizes.
    """
    layout = read_layout(text, name)
    if not layout.header:
        hint = f"it needs a header of columns: {', '.join(COLUMNS)}"
        raise UsageError(f"{name}: it is empty", hint=hint)
    choice = choose_columns(layout, name)
    _check_sizes(choice, gpus_per_node, name)
    if not layout.body:
        raise UsageError(f"{name}: it has a header and no rows")
    rows, left_out = read_rows(layout, choice, name, gpus_per_node)
    note = reading_note(layout, choice, name_data_sets(rows, layout, choice))
    _check_compared(rows, choice, note, name)
    remarks = [f"{name}: {note}"] if note else []
    remarks += left_out
    if _has_only_steps(rows):
        remarks.append(f"{name}: {_STEPS_ALONE}")
    cards = sorted({row.card for row in rows if row.card})
    if len(cards) > 1:
        listed = " and ".join(cards)
        remarks.append(f"{name}: {listed}: a speed-up from one to another also compares the cards")
    _add_speedups([row.values for row in rows], dataset)
    by_epoch = any(column.name == "epoch" for column in choice.columns)
    points, claims = _runs(rows, by_epoch=by_epoch)
    return Table(points, claims, tuple(remarks))


def _check_sizes(choice: TableColumns, gpus_per_node: int | None, name: str) -> None:
    """Check that a table has numbers of GPUs, or of nodes that make GPUs.

    Raises:
        UsageError: it has not.
    """
    columns = {column.name for column in choice.columns}
    if "gpus" in columns or ("nodes" in columns and gpus_per_node):
        return
    hint = f"columns: {', '.join(COLUMNS)}"
    if "nodes" in columns:
        hint = "if it has only nodes, add --gpus-per-node N"
    raise UsageError(f"{name}: there is no column gpus", hint=hint)


def _has_only_steps(rows: Sequence[TableRow]) -> bool:
    return any(row.step_s and "batch_size" not in row.values for row in rows)


def _check_compared(rows: Sequence[TableRow], choice: TableColumns, note: str, name: str) -> None:
    """Check that a published table has a number by which sizes are compared.

    Raises:
        UsageError: it has none.
    """
    is_published = all(column.meaning for column in choice.columns)
    is_compared = any(MEASURED & row.values.keys() for row in rows)
    if is_compared or not is_published or not (choice.unread or _has_only_steps(rows)):
        return
    reason = _STEPS_ALONE if _has_only_steps(rows) else note
    raise UsageError(
        f"{name}: no column is a time, samples per second, a speed-up or an efficiency",
        hint=f"{reason}; name the column to compare time_s, epoch_time_s or samples_per_s",
    )


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


def _runs(
    rows: Sequence[TableRow], *, by_epoch: bool
) -> tuple[tuple[Point, ...], tuple[Claim, ...]]:
    """Return a point for each run, and the claims of the table.

    A row is an epoch of a run, or the whole run. Claims of epochs are not checked.
    """
    if by_epoch:
        runs: dict[tuple[Any, ...], list[TableRow]] = defaultdict(list)
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


def _fields(row: TableRow, names: Iterable[str]) -> tuple[Any, ...]:
    """Return some fields of a row, None for those that it has not."""
    return tuple(row.values.get(name) for name in names)


def _joined(rows: Sequence[TableRow]) -> Point:
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
