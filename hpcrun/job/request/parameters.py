"""The parameters of a sweep: their syntax, and the resulting elements. Pure text and arithmetic."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import product
from math import prod

# the most elements of a sweep: more are a mistake, or the task of one program with a loop
MOST = 10_000

Parameters = tuple[tuple[str, str], ...]
"""The parameters of one element: name and value, in the order in which the script gets them."""

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*")
# {{name}} becomes {name}; any other text in braces, such as JSON and ${name}, belongs to the script
_PLACE = re.compile(r"\{\{([A-Za-z_][A-Za-z0-9_.-]*)\}\}|(?<!\$)\{([A-Za-z_][A-Za-z0-9_.-]*)\}")
# what Slurm and other programs take for a range: 1e-3:1e-1, 0:10:2, 0..9, 0-9
_BOUND = r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?"
_RANGE = re.compile(rf"(?P<low>{_BOUND})(?::|\.\.|-)(?P<high>{_BOUND})(?::{_BOUND})?")
_INDICES = re.compile(r"(\d{1,7})(?:-(\d{1,7})(?::(\d{1,6}))?)?", re.ASCII)
_MOST_INDICES = 100_000
MOST_INDEX = 4_000_000  # slurm.conf(5), MaxArraySize


def parse_assignments(items: Sequence[str]) -> tuple[Parameters, ...]:
    """Return the product of ``NAME=VALUE,VALUE...``, one text per parameter.

    The last parameter varies fastest.

    Raises:
        ValueError: a text has no ``=``, an empty or repeated value, a range or brackets, or a name
            occurs twice.
    """
    columns: dict[str, list[str]] = {}
    for item in items:
        name, equals, text = item.partition("=")
        if not equals:
            raise ValueError(f"{item!r} has no '='; write NAME=VALUE,VALUE")
        if name in columns:
            raise ValueError(f"{name!r} is given twice; write all values together: {name}=A,B")
        values = text.split(",")
        if "" in values:
            raise ValueError(
                f"{item!r} has an empty value; write values that are empty or contain a comma in a "
                "--sweep-file"
            )
        _check_no_range(item)
        if any(map(_has_half_a_bracket, values)):
            way = "write it in a --sweep-file"
            if text[0] + text[-1] in ("[]", "()", "{}") and text[1:-1]:
                way = f"write the values without brackets: {name}={text[1:-1]}"
            raise ValueError(f"{item!r} is split at its commas; {way}")
        for index, value in enumerate(values):
            if value in values[:index]:
                raise ValueError(
                    f"{item!r} has the value {value!r} twice: both elements would be the same; "
                    "write it once, or write repeated elements in a --sweep-file"
                )
        columns[check_parameter(name)] = values
    return cross(columns)


def _check_no_range(item: str) -> None:
    """Check that the value of a parameter is no range of numbers.

    Raises:
        ValueError: the value is one, which hpcrun would take for a text.
    """
    name, _, text = item.partition("=")
    ends = _RANGE.fullmatch(text)
    if ends is None:
        return
    low = ends["low"]
    high = ends["high"]
    if low.isdecimal() and high.isdecimal():
        values = f"$(seq -s, {low} {high})"
    else:
        values = f"{low},{high}"
    raise ValueError(
        f"{item!r}: ranges are not supported; write every value, such as {name}={values}; "
        "or, if it is a text, write it in a --sweep-file"
    )


def _has_half_a_bracket(value: str) -> bool:
    opened = sum(map(value.count, "([{"))
    closed = sum(map(value.count, ")]}"))
    return opened != closed


def check_parameter(name: str) -> str:
    """Return ``name`` if ``name`` can be the name of a parameter.

    Raises:
        ValueError: the name has another form, or is the reserved name ``element``.
    """
    if _NAME.fullmatch(name) is None:
        raise ValueError(
            f"{name!r} cannot be a parameter's name: letters, digits and _ . -, a letter or _ first"
        )
    if name == "element":
        raise ValueError(
            "'element' is reserved: {element} is the number of the array element; choose another "
            "name"
        )
    return name


def cross(columns: Mapping[str, Sequence[str]]) -> tuple[Parameters, ...]:
    """Return every combination of the values of some parameters, the last varying fastest.

    Raises:
        ValueError: a parameter has no values, or there are too many combinations.
    """
    for name, values in columns.items():
        if not values:
            raise ValueError(f"{name!r} has no values")
    check_number(prod(map(len, columns.values())))
    return _rows(columns, product(*columns.values()))


def side_by_side(columns: Mapping[str, Sequence[str]]) -> tuple[Parameters, ...]:
    """Return the first values of some parameters together, then the second values, and so on.

    Raises:
        ValueError: the parameters have different numbers of values.
    """
    lengths = {name: len(values) for name, values in columns.items()}
    if len(set(lengths.values())) > 1:
        counts = ", ".join(f"{name} has {number}" for name, number in lengths.items())
        raise ValueError(f"parameters side by side (zip) need the same number of values: {counts}")
    return _rows(columns, zip(*columns.values(), strict=True))


def _rows(names: Iterable[str], values: Iterable[Iterable[str]]) -> tuple[Parameters, ...]:
    """Return rows of values with the names of their parameters."""
    columns = tuple(names)
    return tuple(tuple(zip(columns, row, strict=True)) for row in values)


def joined(rows: Sequence[Parameters], others: Sequence[Parameters]) -> tuple[Parameters, ...]:
    """Return every row of one list with every row of the other.

    Raises:
        ValueError: a parameter is in both lists, or there are too many rows.
    """
    twice = parameter_names(rows) & parameter_names(others)
    if twice:
        raise ValueError(f"{min(twice)!r} is given twice")
    check_number(len(rows) * len(others))
    return tuple((*row, *other) for row in rows for other in others)


def parameter_names(rows: Iterable[Parameters]) -> set[str]:
    """Return the names of the parameters in some rows."""
    return {name for row in rows for name, _ in row}


def check_number(number: int) -> None:
    """Check that a sweep has at most ``MOST`` elements.

    Raises:
        ValueError: there are more elements.
    """
    if number > MOST:
        raise ValueError(f"{number} elements are too many: a sweep has at most {MOST}")


def parse_indices(text: str) -> tuple[int, ...]:
    """Read ``3,7-9`` or ``0-8:2`` as numbers, in ascending order, each once.

    Raises:
        ValueError: the text has another form, a range ends before its start, or there are too many
            numbers.
    """
    numbers: set[int] = set()
    for part in text.split(","):
        match = _INDICES.fullmatch(part.strip())
        step = int(match[3] or 1) if match else 0
        if match is None or step == 0:
            raise ValueError(f"{text!r} is not a list of numbers; write 3,7-9")
        first = int(match[1])
        last = int(match[2] or first)
        more = range(first, last + 1, step)
        if not more:
            raise ValueError(f"{part!r} has its end before its start")
        if len(numbers) + len(more) > _MOST_INDICES:
            raise ValueError(f"{text!r} names more than {_MOST_INDICES} numbers")
        numbers.update(more)
    return tuple(sorted(numbers))


def parse_array(text: str) -> tuple[tuple[int, ...], int | None]:
    """Return the task ids of sbatch's ``--array``, and how many tasks may run at once.

    Raises:
        ValueError: the text has another form.
    """
    ranges, percent, most = text.partition("%")
    try:
        ids = parse_indices(ranges)
        at_once = int(most) if percent else None
    except ValueError:
        raise ValueError(
            f"{text!r} is no list of task ids; write 0-9, 1,3,7, 0-30:5 or 0-9%2"
        ) from None
    return ids, at_once


def check_array(text: str) -> str:
    """Return the text of an ``--array``.

    Raises:
        ValueError: the text has another form.
    """
    parse_array(text)
    return text


def tasks_of(indices: Iterable[int], first: int, pack: int | None) -> dict[int, int]:
    """Return element → the task of Slurm's array that runs the element.

    Args:
        indices: the indices of the elements, in their order.
        first: the element of task 0, where each element is a task of its own.
        pack: how many elements share a task, in their order; None if none do.
    """
    if pack:
        return {index: place // pack for place, index in enumerate(indices)}
    return {index: index - first for index in indices}


def parameters_text(row: Parameters) -> str:
    """Return the parameters of an element as text: ``lr=1e-3 model=small``."""
    return " ".join(f"{name}={value}" for name, value in row)


def has_place(argument: str) -> bool:
    """Return whether an argument has a ``{name}`` or a ``{{name}}``."""
    return _PLACE.search(argument) is not None


def fill_places(
    words: Sequence[str], values: Mapping[str, str], unknown: Callable[[str], Exception]
) -> tuple[tuple[str, ...], set[str]]:
    """Return arguments with values in place of ``{name}``, and the names that were used.

    ``{{name}}`` becomes ``{name}``. ``unknown`` makes the exception for a name without a value.
    """
    used: set[str] = set()

    def value(match: re.Match[str]) -> str:
        literal, name = match.groups()
        if literal:
            return f"{{{literal}}}"
        if name not in values:
            raise unknown(name)
        used.add(name)
        return values[name]

    return tuple(_PLACE.sub(value, argument) for argument in words), used


def with_parameters(
    words: Sequence[str], values: Mapping[str, str], index: int, unknown: Callable[[str], Exception]
) -> tuple[str, ...]:
    """Return the arguments of a script for element ``index`` of a sweep.

    The parameters are in their places, and the other parameters are appended. ``unknown`` makes the
    exception for a name without a value.
    """
    placed, used = fill_places(words, {**values, "element": str(index)}, unknown)
    added: list[str] = []
    for name, text in values.items():
        if name not in used:
            added += (f"--{name}", text)
    return (*placed, *added)
