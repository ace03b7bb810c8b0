"""Giving a command the options of a job, with its script or without."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection
from functools import wraps
from typing import Annotated, Any

import typer

from hpcrun.cli.help_panel import Declared
from hpcrun.cli.job_options import JobOptions

_Command = Callable[..., Any]
_Fields = dict[str, tuple[Any, Any]]  # name → annotation and default


_SCRIPT: _Fields = {
    "script": (
        Annotated[
            str,
            typer.Argument(metavar="SCRIPT", help="A .py file, a module with -m, or any program.", show_default=False),
        ],
        inspect.Parameter.empty,
    ),
    "args": (
        Annotated[
            list[str] | None,
            typer.Argument(metavar="ARGS", help="Arguments of the script, passed on unchanged.", show_default=False),
        ],
        None,
    ),
}


def takes_job(command: _Command) -> _Command:
    """Give a command all of ``JobOptions``; it receives them as one dict ``asked``, with ``script`` and ``args``.

    The command's own parameters come last; typer reads the joined signature.
    """
    return _taking({**_SCRIPT, **_options(JobOptions)}, command)


def takes_job_options(*, without: Collection[str] = (), own_first: bool = False) -> Callable[[_Command], _Command]:
    """Give a command ``JobOptions`` and no SCRIPT, as ``takes_job`` does.

    Args:
        without: fields that mean nothing to the command, and that it does not take.
        own_first: the command's own options come first in its help.
    """
    return lambda command: _taking(_options(JobOptions, without), command, own_first=own_first)


def job_fields() -> tuple[str, ...]:
    """Return the names that a command with ``takes_job`` receives in ``asked``."""
    return (*_SCRIPT, *_options(JobOptions))


def takes_options(declared: type) -> Callable[[_Command], _Command]:
    """Give a command the options that a class declares as ``JobOptions`` does."""
    return lambda command: _taking(_options(declared), command)


def _options(declared: type, without: Collection[str] = ()) -> _Fields:
    return {
        name: tuple(each) for name, each in vars(declared).items() if isinstance(each, Declared) and name not in without
    }


def _taking(fields: _Fields, command: _Command, *, own_first: bool = False) -> _Command:
    own = list(inspect.signature(command, eval_str=True).parameters.values())[1:]

    @wraps(command)
    def wrapped(**given: Any) -> Any:
        asked = {name: given.pop(name) for name in fields}
        return command(asked, **given)

    keyword = inspect.Parameter.KEYWORD_ONLY
    joined = [
        inspect.Parameter(name, keyword, annotation=hint, default=default) for name, (hint, default) in fields.items()
    ]
    others = [parameter.replace(kind=keyword) for parameter in own]
    joined = others + joined if own_first else joined + others
    wrapped.__signature__ = inspect.Signature(joined)  # type: ignore[attr-defined]
    wrapped.__annotations__ = {parameter.name: parameter.annotation for parameter in joined}
    return wrapped
