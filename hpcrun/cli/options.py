"""Declaring options and arguments of commands.

Each is the default of the parameter that receives its value.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Collection, Mapping
from functools import wraps
from pathlib import Path
from typing import Any

import typer

from hpcrun.errors import PlanError, UsageError
from hpcrun.job.request.options import DeclaredOption, OptionPanel
from hpcrun.job.text.run_note import read_note
from hpcrun.job.text.units import parse_time

Command = Callable[..., Any]


class HelpPanel:
    """A panel of ``--help``, and how an option in it is declared."""

    def __init__(self, title: str | None) -> None:
        self._title = title

    def option(self, names: str, help: str, *, default: Any = None, complete: Any = None) -> Any:
        """Return the default of a parameter from which typer makes an option with a value.

        An option whose parameter is a list may be repeated.

        Args:
            names: its names and the placeholder of its value, as ``--help`` shows them:
                ``--nodes -N N``.
            help: its text in ``--help``.
            default: its value where it is not typed.
            complete: the beginning of a value → the values that the shell offers.
        """
        parts = names.split()
        forms = [part for part in parts if part.startswith("-")]
        placeholders = [part for part in parts if not part.startswith("-")]
        return typer.Option(
            default,
            *forms,
            metavar=placeholders[0] if placeholders else None,
            help=help,
            autocompletion=complete,
            rich_help_panel=self._title,
            show_default=default not in (None, False, ""),
        )

    def flag(self, names: str, help: str) -> Any:
        """Return the default of a parameter from which typer makes an option without a value."""
        return self.option(names, help, default=False)


_OUTSIDE_PANELS = HelpPanel(None)
option = _OUTSIDE_PANELS.option
flag = _OUTSIDE_PANELS.flag


def argument(metavar: str, help: str, *, default: Any = None, complete: Any = None) -> Any:
    """Return the default of a parameter that needs no option's name.

    ``default=...`` makes the argument required.
    """
    return typer.Argument(
        default, metavar=metavar, help=help, show_default=False, autocompletion=complete
    )


_KEYWORD_ONLY = inspect.Parameter.KEYWORD_ONLY


def parameter_of(name: str, option: DeclaredOption) -> inspect.Parameter:
    """Return the parameter of a command that receives the value of an option."""
    no_value = None
    annotation: Any = option.kind | None
    if option.kind is bool:
        no_value = False
        annotation = bool
    elif option.repeatable:
        annotation = list[str] | None
    if option.names:
        form = " ".join((*option.names, option.metavar or ""))
        panel = HelpPanel(option.panel.title)
        default = panel.option(form, option.help, default=no_value, complete=option.complete)
    else:
        default = argument(option.name, option.help)
    return inspect.Parameter(name, _KEYWORD_ONLY, default=default, annotation=annotation)


def takes_options(
    *tables: Mapping[str, DeclaredOption],
    panels: Collection[OptionPanel] | None = None,
    own_first: bool = False,
) -> Callable[[Command], Command]:
    """Give a command the options of these tables, whose values it receives as one dict.

    Args:
        *tables: name of a parameter → its option.
        panels: the panels whose options the command takes; None for all of the tables.
        own_first: the command's own parameters come first in its help.
    """
    declared = {}
    for table in tables:
        for name, option in table.items():
            if panels is None or option.panel in panels:
                declared[name] = parameter_of(name, option)

    def with_options(command: Command) -> Command:
        @wraps(command)
        def wrapped(**values: Any) -> Any:
            return command({name: values.pop(name) for name in declared}, **values)

        signature = inspect.signature(command, eval_str=True)
        _, *parameters = signature.parameters.values()
        others = [parameter.replace(kind=_KEYWORD_ONLY) for parameter in parameters]
        if own_first:
            joined = [*others, *declared.values()]
        else:
            joined = [*declared.values(), *others]
        # which typer reads
        wrapped.__signature__ = inspect.Signature(joined)  # type: ignore[attr-defined]
        wrapped.__annotations__ = {parameter.name: parameter.annotation for parameter in joined}
        return wrapped

    return with_options


def check_one_of(**options: object) -> None:
    """Refuse options that cannot be combined.

    Each keyword is the name of an option without ``--``, with the option's value.

    Raises:
        UsageError: if more than one of the options was given.
    """
    given = []
    for name, value in options.items():
        if value is not None and value is not False:
            given.append(f"--{name}")
    if len(given) > 1:
        first_ones = ", ".join(given[:-1])
        raise UsageError(f"{first_ones} and {given[-1]} cannot be combined", hint="choose one")


def check_least(option: str, number: int | None, least: int) -> None:
    """Refuse a number that is too small.

    Typer's own ``min`` would import pydantic's types, a fifth of the time of a command.

    Raises:
        UsageError: if the number is less than ``least``.
    """
    if number is not None and number < least:
        raise UsageError(f"{option} {number}: must be {least} or more")


def check_new_file(option: str, path: Path, *, force: bool) -> None:
    """Refuse a file that an option must not replace, before any work is done.

    A path that exists and is not a file is refused as well.

    Raises:
        PlanError: if the path is not a file, or exists and ``force`` is False.
    """
    if not os.path.lexists(path):
        return
    if not path.is_file():
        raise PlanError(f"{path} is not a file", hint=f"choose another name with {option} FILE")
    if not force:
        raise PlanError(
            f"{path} exists",
            hint=f"choose another name with {option} FILE, or replace it with --force",
        )


def check_note(option: str, text: str) -> str:
    """Return the note of a run, as it is kept.

    Raises:
        UsageError: it cannot be a note.
    """
    try:
        return read_note(text)
    except ValueError as error:
        raise UsageError(f"{option} {error}") from None


def read_duration(option: str, text: str) -> int:
    """Return a duration in seconds, as it was typed behind an option.

    Raises:
        UsageError: if the text is not a duration.
    """
    try:
        return parse_time(text)
    except ValueError as error:
        raise UsageError(
            f"{option}: {error}", hint=f"{option} 10m, {option} 2h, {option} 30d"
        ) from None
