"""How the values of some options of a job are read and written."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import prod
from typing import TYPE_CHECKING, Any, Literal

from hpcrun.job.request.notify_options import check_events
from hpcrun.job.request.options import WrongTypeError, each, one_of, text_reader, whole_number
from hpcrun.job.request.parameters import (
    MOST_INDEX,
    Parameters,
    cross,
    parse_assignments,
    parse_indices,
)
from hpcrun.job.text.quoting import check_env_name
from hpcrun.job.text.spelling import spell
from hpcrun.job.text.units import parse_memory, parse_time

if TYPE_CHECKING:
    from hpcrun.job.request.role_options import RoleRequest

_read_texts = each(text_reader(str))
_read_indices = each(whole_number(0, MOST_INDEX))
_read_preflight = one_of(("first", "only"))


def parse_idle_limit(text: str) -> int:
    """Return the time in seconds for which GPUs may be idle; 0 for no limit."""
    return 0 if text == "0" else parse_time(text)


def seconds_text(seconds: int) -> str:
    """Return a time as options take it."""
    return f"{seconds}s" if seconds else "0"


def parse_copy_size(text: str) -> int:
    """Return the size of a copy of the code in MB."""
    return parse_memory(text, "200M or 1G")


def check_secret_name(name: str) -> str:
    """Return the name of a variable.

    Raises:
        ValueError: the text has a value, too, or is no name.
    """
    if "=" in name:
        raise ValueError(
            f"takes a name, not {name.partition('=')[0]!r} and a value, which comes from your "
            "environment"
        )
    return check_env_name(name)


def read_variable(item: Any) -> tuple[str, str]:
    """Return the name and value of a variable, from ``NAME=VALUE`` or from a record.

    Raises:
        ValueError: the text has another form.
        WrongTypeError: the item is no pair.
    """
    if not isinstance(item, str):
        if not isinstance(item, Sequence) or len(item) != 2:
            raise WrongTypeError("must be a valid list")
        return str(item[0]), str(item[1])
    name, equals, content = item.partition("=")
    if not equals:  # do not repeat the text after a name: it may be a secret
        subject = f"{name!r} has" if name.isidentifier() else "one variable has"
        raise ValueError(
            f"{subject} no '='; write NAME=VALUE. What your shell exports reaches the job without "
            f"{spell('env')}"
        )
    return check_env_name(name), content


def variable_texts(env: Iterable[tuple[str, str]]) -> list[str]:
    """Return variables as ``--env`` takes them."""
    return [f"{name}={text}" for name, text in env]


def read_events(value: Any) -> tuple[str, ...]:
    """Return the events of ``--notify-on``, from ``failed,finished`` or from a record."""
    words = value.split(",") if isinstance(value, str) else _read_texts(value)
    return check_events(words)


def read_elements(value: Any) -> tuple[int, ...]:
    """Return elements of a sweep, from ``3,7-9`` or from a record, each once."""
    indices = parse_indices(value) if isinstance(value, str) else _read_indices(value)
    return tuple(sorted({*indices}))


def read_parameters(value: Any) -> tuple[Parameters, ...]:
    """Return the elements of a sweep, from ``NAME=VALUE,VALUE`` texts or from a record."""
    rows = tuple(value)
    if rows and isinstance(rows[0], str):
        return parse_assignments(rows)
    return tuple(map(_pairs, rows))


def _pairs(row: Any) -> Parameters:
    """Return the parameters of an element, which a record has as lists of pairs."""
    return tuple((name, text) for name, text in row)


def sweep_texts(rows: Sequence[Parameters]) -> list[str]:
    """Return the values of ``--sweep`` as far as options can say the rows."""
    return sweep_product(rows) or []


def sweep_product(rows: Sequence[Parameters]) -> list[str] | None:
    """Return the values of ``--sweep`` whose product is these rows.

    The result is None if only a file can say the rows.
    """
    columns: dict[str, list[str]] = {}
    for row in rows:
        for name, value in row:
            columns.setdefault(name, [])
            if value not in columns[name]:
                columns[name].append(value)
    for values in columns.values():
        if any(not value or "," in value for value in values):
            return None
    if prod(map(len, columns.values())) != len(rows):
        return None
    if cross(columns) != tuple(map(_pairs, rows)):
        return None
    return [f"{name}={','.join(values)}" for name, values in columns.items()]


def read_preflight(value: object) -> Literal["first", "only"] | None:
    """Return when nodes are checked, from the flag or from a record; None for not at all."""
    if isinstance(value, bool):
        return "first" if value else None
    kind: Literal["first", "only"] = _read_preflight(value)
    return kind


def roles_record(roles: Iterable[RoleRequest]) -> tuple[dict[str, Any], ...]:
    """Return roles as a run's record has them."""
    return tuple(role.model_dump(exclude_defaults=True) for role in roles)
