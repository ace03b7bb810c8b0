"""Declaring options and arguments of commands: each is the default of the parameter that receives it."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection
from functools import wraps
from typing import Any, get_type_hints

import typer
from typer.models import ParameterInfo

from hpcrun.errors import UsageError
from hpcrun.job.units import parse_time

Command = Callable[..., Any]


class HelpPanel:
    """A panel of ``--help``, and how an option in it is declared."""

    def __init__(self, title: str | None) -> None:
        self._title = title

    def option(self, names: str, help: str, *, default: Any = None, complete: Any = None) -> Any:
        """Return the default of a parameter from which typer makes an option with a value; a list may be repeated.

        Args:
            names: its names and the placeholder of its value, as ``--help`` shows them: ``--nodes -N N``.
            complete: the beginning of a value → those that the shell offers.
        """
        parts = names.split()
        return typer.Option(
            default,
            *(part for part in parts if part.startswith("-")),
            metavar=next((part for part in parts if not part.startswith("-")), None),
            help=help,
            autocompletion=complete,
            rich_help_panel=self._title,
            show_default=default not in (None, False, ""),
        )

    def flag(self, names: str, help: str) -> Any:
        """Return the default of a parameter from which typer makes an option without a value."""
        return self.option(names, help, default=False)


option, flag = HelpPanel(None).option, HelpPanel(None).flag
"""Options outside of all panels."""


def argument(metavar: str, help: str, *, default: Any = None, complete: Any = None) -> Any:
    """Return the default of a parameter that needs no option's name; ``default=...`` makes it required."""
    return typer.Argument(default, metavar=metavar, help=help, show_default=False, autocompletion=complete)


def declared_in(*tables: type) -> dict[str, inspect.Parameter]:
    """Return the parameters that classes declare, one for each of their attributes, in their order."""
    keyword = inspect.Parameter.KEYWORD_ONLY
    return {
        name: inspect.Parameter(name, keyword, annotation=annotations[name], default=default)
        for table in tables
        for annotations in (get_type_hints(table),)
        for name, default in vars(table).items()
        if isinstance(default, ParameterInfo)
    }


def takes_options(
    *tables: type, without: Collection[str] = (), own_first: bool = False
) -> Callable[[Command], Command]:
    """Give a command the options that classes declare, whose values it receives as one dict.

    Args:
        without: those that mean nothing to it.
        own_first: the command's own parameters come first in its help.
    """
    declared = {name: parameter for name, parameter in declared_in(*tables).items() if name not in without}

    def with_options(command: Command) -> Command:
        @wraps(command)
        def wrapped(**values: Any) -> Any:
            return command({name: values.pop(name) for name in declared}, **values)

        parameters = list(inspect.signature(command, eval_str=True).parameters.values())[1:]
        others = [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in parameters]
        joined = [*others, *declared.values()] if own_first else [*declared.values(), *others]
        wrapped.__signature__ = inspect.Signature(joined)  # type: ignore[attr-defined]  # which typer reads
        wrapped.__annotations__ = {parameter.name: parameter.annotation for parameter in joined}
        return wrapped

    return with_options


def check_one_of(**options: object) -> None:
    """Refuse options that cannot be combined; each is named as its option without ``--``, and has its value."""
    given = [f"--{name}" for name, value in options.items() if value is not None and value is not False]
    if len(given) > 1:
        raise UsageError(f"{', '.join(given[:-1])} and {given[-1]} cannot be combined", hint="choose one")


def check_least(option: str, number: int | None, least: int) -> None:
    """Refuse a number that is too small; typer's own ``min`` would import pydantic's types, a fifth of a command."""
    if number is not None and number < least:
        raise UsageError(f"{option} {number}: must be {least} or more")


def read_duration(option: str, text: str) -> int:
    """Return a duration in seconds, as it was typed behind an option."""
    try:
        return parse_time(text)
    except ValueError as error:
        raise UsageError(f"{option}: {error}", hint=f"{option} 10m, {option} 2h, {option} 30d") from None
