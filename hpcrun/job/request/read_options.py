"""Reading the values of options, as they were typed, recorded or given in Python."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hpcrun.job.request.options import DeclaredOption, WrongItemsError


@dataclass(frozen=True, slots=True)
class WrongOption:
    """A value that an option cannot take."""

    field: str
    value: object
    error: ValueError


def read_values(
    options: Mapping[str, DeclaredOption], given: Mapping[str, object]
) -> tuple[dict[str, Any], list[WrongOption]]:
    """Return the values of the given options, read, and the mistakes in them.

    An option whose value is None is not given.
    """
    values: dict[str, Any] = {}
    mistakes = []
    for name, option in options.items():
        value = given.get(name)
        if value is None:
            if option.required:
                mistakes.append(WrongOption(name, None, ValueError("is missing")))
            continue
        try:
            values[name] = option.read(value)
        except WrongItemsError as error:
            mistakes += [WrongOption(name, item, reason) for item, reason in error.items]
        except ValueError as error:
            mistakes.append(WrongOption(name, value, error))
    for name in given:
        if name not in options:
            mistakes.append(WrongOption(name, None, ValueError("is not a known option")))
    return values, mistakes
