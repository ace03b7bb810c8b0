"""Commands that take text as it was typed, without importing pydantic to look at it; what they return is rendered."""

from __future__ import annotations

from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from hpcrun.cli.interrupt import exit_at_interrupt, interrupted_as, raise_at_interrupt
from hpcrun.cli.lean_imports import import_help
from hpcrun.cli.output import render
from hpcrun.errors import InterruptedByUser

_TEXT = (str, str | None, list[str], list[str] | None)
_NUMBER = (int, int | None)


class _AsTyped:
    """Stands where typer keeps a parameter's pydantic adapter; asks for the real one only where it is needed.

    typer 0.29 builds one for every option of a command, given or not: a third of the time of ``hpcrun status``.
    """

    def __init__(self, annotation: Any, *, bounded: bool) -> None:
        self._is_text = annotation in _TEXT
        self._is_number = annotation in _NUMBER and not bounded

    def coerce(self, value: Any, param: Any, ctx: typer.Context) -> Any:
        if value is None or isinstance(value, bool | int):
            return value
        if isinstance(value, str) and self._is_text:
            return value
        if isinstance(value, str) and self._is_number and value.isascii() and value.isdigit() and len(value) < 400:
            return int(value)
        if isinstance(value, list | tuple) and (self._is_text or not value):
            return list(value)
        param._runtime_param = None
        return param.get_runtime_param().coerce(value, param=param, ctx=ctx)


def _take_as_typed(params: list[Any]) -> list[Any]:
    for param in params:
        descriptor = getattr(param, "type_descriptor", None)
        # Where another typer keeps its adapters elsewhere, nothing is changed, and it is slower.
        if getattr(param, "_runtime_param", param) is None and descriptor is not None:
            bounded = getattr(param, "min", None) is not None or getattr(param, "max", None) is not None
            param._runtime_param = _AsTyped(descriptor.annotation, bounded=bounded)
            if descriptor.annotation is bool and param.metavar is None:
                param.metavar = ""  # --help would say <bool> of a flag that takes no value
    return params


class _Cheap:
    """What typer's commands and groups do in the same way: take text as typed, and import for the help only then."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the parameters, those that typer adds itself included."""
        return _take_as_typed(super().get_params(ctx))  # type: ignore[misc]

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Print the help."""
        import_help()
        super().format_help(ctx, formatter)  # type: ignore[misc]


class CliCommand(_Cheap, TyperCommand):
    """A command whose text options cost nothing, and whose outcomes are printed."""

    def invoke(self, ctx: Any) -> int:
        """Run the command and print what it comes to; returns the exit status."""
        raise_at_interrupt()
        try:
            with interrupted_as(InterruptedByUser("interrupted")):
                return render(super().invoke(ctx))
        finally:
            exit_at_interrupt()


class CliGroup(_Cheap, TyperGroup):
    """A group of commands whose own options cost nothing."""
