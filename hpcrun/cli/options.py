"""Declaring options and arguments of commands: each is the default of the parameter that receives it."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Mapping
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


def declared_in(table: type, without: Collection[str] = ()) -> dict[str, inspect.Parameter]:
    """Return the parameters that a class declares, one for each of its attributes, in their order."""
    annotations = get_type_hints(table)
    keyword = inspect.Parameter.KEYWORD_ONLY
    return {
        name: inspect.Parameter(name, keyword, annotation=annotations[name], default=default)
        for name, default in vars(table).items()
        if isinstance(default, ParameterInfo) and name not in without
    }


def takes_options(table: type) -> Callable[[Command], Command]:
    """Give a command the options that a class declares; it receives their values as one dict."""
    return lambda command: with_parameters(declared_in(table), command)


def with_parameters(
    parameters: Mapping[str, inspect.Parameter], command: Command, *, own_first: bool = False
) -> Command:
    """Give a command more parameters, whose values it receives as one dict; typer reads the joined signature.

    With ``own_first``, the command's own parameters come first in its help.
    """
    keyword = inspect.Parameter.KEYWORD_ONLY
    parameters_of_command = list(inspect.signature(command, eval_str=True).parameters.values())[1:]

    @wraps(command)
    def wrapped(**values: Any) -> Any:
        return command({name: values.pop(name) for name in parameters}, **values)

    others = [parameter.replace(kind=keyword) for parameter in parameters_of_command]
    joined = [*others, *parameters.values()] if own_first else [*parameters.values(), *others]
    wrapped.__signature__ = inspect.Signature(joined)  # type: ignore[attr-defined]
    wrapped.__annotations__ = {parameter.name: parameter.annotation for parameter in joined}
    return wrapped


def read_duration(option: str, text: str) -> int:
    """Return a duration in seconds, as it was typed behind an option."""
    try:
        return parse_time(text)
    except ValueError as error:
        raise UsageError(f"{option}: {error}", hint=f"{option} 10m, {option} 2h, {option} 30d") from None
