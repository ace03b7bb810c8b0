"""Reading the file of ``--sweep-file``: YAML (product, zip, or a list of elements) or CSV.

Values are text as typed.
"""

from __future__ import annotations

import csv
import io
from collections import Counter
from pathlib import Path
from typing import Any

from hpcrun.errors import UsageError, did_you_mean
from hpcrun.files.reading import read_named_text
from hpcrun.job.request.parameters import (
    Parameters,
    check_number,
    check_parameter,
    cross,
    joined,
    side_by_side,
)
from hpcrun.job.text.spelling import spell
from hpcrun.profiles.yaml_file import parse_plain

_MAX_BYTES = 10_000_000
_KINDS = ("product", "zip")


def load_sweep_file(path: Path) -> tuple[Parameters, ...]:
    """Read the elements of a sweep from a file.

    Raises:
        UsageError: the file cannot be read, or holds no valid elements; the message names the file.
        ValueError: never to the caller; inside, a file without elements becomes a UsageError.
    """
    try:
        text = read_named_text(path, _MAX_BYTES)
    except ValueError as error:
        raise UsageError(f"{spell('sweep-file')}: {error}") from None
    try:
        if path.suffix.lower() in (".csv", ".tsv"):
            rows = parse_csv(text)
        else:
            rows = parse_yaml(text)
        if not rows:
            raise ValueError("it has no elements")
        check_number(len(rows))
    except ValueError as error:
        raise UsageError(
            f"{spell('sweep-file', path)}: {error}",
            hint="YAML: product: {lr: [1e-3, 1e-4], model: [small, large]}, zip: likewise, or a "
            "list of elements; "
            "or CSV with a header",
        ) from None
    return rows


def parse_csv(text: str) -> tuple[Parameters, ...]:
    """Read a header of names and a row for each element.

    Tabs are the separator if the header contains tabs and no commas.

    Raises:
        ValueError: a name is invalid or appears twice, a row has another number of values, there
            are too many rows, or the text is no CSV.
    """
    lines = text.splitlines()
    separator = ","
    if lines and "\t" in lines[0] and "," not in lines[0]:
        separator = "\t"
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=separator, strict=True)
    try:
        header = next(reader, [])
        names = [check_parameter(name.strip()) for name in header]
        for name, number in Counter(names).items():
            if number > 1:
                raise ValueError(f"{name!r} appears twice in the header")
        rows: list[Parameters] = []
        for row in reader:
            if not row:
                continue
            if len(row) != len(names):
                raise ValueError(
                    f"line {reader.line_num} has {len(row)} values, the header {len(names)}"
                )
            rows.append(tuple(zip(names, row, strict=True)))
            check_number(len(rows))
    except csv.Error as error:
        raise ValueError(f"line {reader.line_num}: {error}") from None
    return tuple(rows)


def parse_yaml(text: str) -> tuple[Parameters, ...]:
    """Read ``product:`` and ``zip:``, or a list of elements.

    Raises:
        ValueError: the text holds anything else.
    """
    data = parse_plain(text)
    if isinstance(data, list):
        return tuple(_element(number, item) for number, item in enumerate(data))
    if not isinstance(data, dict) or not data:
        raise ValueError("it has neither a list of elements nor product: or zip:")
    for key in data:
        if key not in _KINDS:
            problem = f"{key!r} is not known here; {did_you_mean(str(key), _KINDS)}"
            raise ValueError(problem.removesuffix("; "))
    rows: tuple[Parameters, ...] = ((),)
    for kind, combine in (("zip", side_by_side), ("product", cross)):
        if kind in data:
            rows = joined(rows, combine(_columns(kind, data[kind])))
    return rows


def _columns(kind: str, data: Any) -> dict[str, list[str]]:
    if not isinstance(data, dict) or not data:
        raise ValueError(f"{kind}: names parameters and their values, such as lr: [1e-3, 1e-4]")
    columns = {}
    for name, value in data.items():
        if isinstance(value, list):
            values = value
        elif value != "":
            values = [value]
        else:
            values = []
        if not values:
            raise ValueError(f"{name!r} has no values")
        columns[check_parameter(str(name))] = [_text(name, item) for item in values]
    return columns


def _element(number: int, data: Any) -> Parameters:
    if not isinstance(data, dict) or not data:
        raise ValueError(f"element {number} is not a mapping of names to values, such as lr: 1e-3")
    pairs = []
    for name, value in data.items():
        pairs.append((check_parameter(str(name)), _text(str(name), value)))
    return tuple(pairs)


def _text(name: str, value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(
            f"a value of {name!r} is a {type(value).__name__}; put it in quotes to pass it as text"
        )
    if "\0" in value:
        raise ValueError(f"a value of {name!r} holds a NUL character")
    return value
