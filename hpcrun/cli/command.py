"""Commands that take text as it was typed, without importing pydantic to look at it."""

from __future__ import annotations

from typing import Any

import typer
from typer.core import TyperCommand

_TEXT = (str, str | None, list[str], list[str] | None)


class _AsTyped:
    """Stands where typer keeps a parameter's pydantic adapter; asks for the real one only where it is needed.

    typer 0.29 builds one for every option of a command, given or not: a third of the time of ``hpcrun status``.
    """

    def __init__(self, *, is_text: bool) -> None:
        self._is_text = is_text

    def coerce(self, value: Any, param: Any, ctx: typer.Context) -> Any:
        if value is None or isinstance(value, bool | int):
            return value
        if isinstance(value, str) and self._is_text:
            return value
        if isinstance(value, list | tuple) and (self._is_text or not value):
            return list(value)
        param._runtime_param = None
        return param.get_runtime_param().coerce(value, param=param, ctx=ctx)


class Command(TyperCommand):
    """A typer command whose text options cost nothing. Where another typer keeps adapters elsewhere, it is slower."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for param in self.params:
            descriptor = getattr(param, "type_descriptor", None)
            if hasattr(param, "_runtime_param") and descriptor is not None:
                as_typed: Any = _AsTyped(is_text=descriptor.annotation in _TEXT)
                param._runtime_param = as_typed
