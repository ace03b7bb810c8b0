"""Commands of typer that take typed text without pydantic, and whose outcomes are rendered."""

from __future__ import annotations

import re
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from hpcrun.cli.interrupt import SUBMITTED, exit_at_interrupt, interrupted_as, raise_at_interrupt
from hpcrun.cli.options import SELDOM
from hpcrun.cli.output import render
from hpcrun.errors import InterruptedByUser

_TEXT = (str, str | None, list[str], list[str] | None)
_NUMBER = (int, int | None)
_FEW = 5
"""So many may have their names in a command without the options of a job."""


class _AsTyped:
    """Replaces the pydantic adapter of a parameter; creates the real one only if it is needed.

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
    """What commands and groups have in common: they take typed text without pydantic."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the parameters, those that typer adds itself included."""
        return _take_as_typed(super().get_params(ctx))  # type: ignore[misc]


class CliCommand(_Cheap, TyperCommand):
    """A command whose text options cost nothing, whose outcomes are printed, and whose ``-h`` is short.

    ``-h`` of a command with the options of a job shows those that people use; ``--help`` shows all.
    """

    _short = False

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the arguments, and note how the help was asked for, if it was."""
        self._short = "--help" not in args
        return super().parse_args(ctx, args)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Print the help."""
        usual = [param for param in self.params if param.name not in SELDOM]
        if self._short and len(self.params) - len(usual) > _FEW:
            number = sum(param.param_type_name == "option" for param in self.params)
            self.params = usual
            for param in self.params:
                help_text = re.split(r"[.:;] ", getattr(param, "help", None) or "")[0].rstrip(".")
                vars(param).update(rich_help_panel=None, help=f"{help_text}.")  # few enough for one panel
            self.epilog = f"`{ctx.command_path} --help` shows all {number} options.\n\n{self.epilog or ''}"
        super().format_help(ctx, formatter)

    def invoke(self, ctx: Any) -> int:
        """Run the command and print its outcomes; return the exit status."""
        raise_at_interrupt()
        try:
            with interrupted_as(lambda: InterruptedByUser.after(SUBMITTED)):
                return render(super().invoke(ctx))
        finally:
            exit_at_interrupt()


class CliGroup(_Cheap, TyperGroup):
    """A group of commands whose own options cost nothing."""
