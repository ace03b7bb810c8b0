"""The program: its commands, and the handling of their exceptions."""

from __future__ import annotations

import errno
import os
import re
import sys
from collections.abc import Collection, Mapping, Sequence
from copy import copy
from importlib import import_module
from types import MappingProxyType
from typing import Annotated, Any, NoReturn

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

from hpcrun.actions.hooks import HOOKS
from hpcrun.cli.commands import COMMANDS, GROUPS, Command, commands_of_others, epilog
from hpcrun.cli.help_page import SELDOM, help_page
from hpcrun.cli.interrupt import SUBMITTED, exit_at_interrupt, interrupted_as, raise_at_interrupt
from hpcrun.cli.lean_imports import import_lean
from hpcrun.cli.output import (
    Outcome,
    finish,
    give_up_stdout,
    note,
    printed,
    render,
    show,
    want_json,
    write,
)
from hpcrun.errors import (
    HpcrunError,
    InterruptedByUser,
    NotFoundError,
    PlanError,
    SchedulerError,
    UsageError,
)
from hpcrun.machine.command_log import log_to_stderr
from hpcrun.machine.namesakes import namesakes
from hpcrun.version import __version__

_CANNOT_PRINT = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF)
_TEXT = (str, str | None, list[str], list[str] | None)
_NUMBER = (int, int | None)
_FEW = 5
"""So many may have their names in a command without the options of a job."""


# --- commands of typer: typed text without pydantic, and outcomes that are rendered ---


class _AsTyped:
    """Replaces the pydantic adapter of a parameter; creates the real one only if it is needed.

    typer 0.29 builds one for every option of a command, given or not: a third of the time of
    ``hpcrun status``.
    """

    def __init__(self, annotation: Any, *, bounded: bool) -> None:
        self._is_text = annotation in _TEXT
        self._is_number = annotation in _NUMBER and not bounded

    def coerce(self, value: Any, param: Any, ctx: typer.Context) -> Any:
        if value is None or isinstance(value, bool | int):
            return value
        if isinstance(value, str):
            if self._is_text:
                return value
            has_digits_alone = value.isascii() and value.isdigit() and len(value) < 400
            if self._is_number and has_digits_alone:
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
            least = getattr(param, "min", None)
            most = getattr(param, "max", None)
            bounded = least is not None or most is not None
            param._runtime_param = _AsTyped(descriptor.annotation, bounded=bounded)
    return params


class _WithPlainHelp:
    """What commands and groups have in common: typed text without pydantic, and a plain help."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the parameters, those that typer adds itself included."""
        return _take_as_typed(super().get_params(ctx))  # type: ignore[misc]

    def get_help(self, ctx: Any) -> str:
        """Return the page that ``--help`` prints."""
        return help_page(self, ctx)


class PlainCommand(_WithPlainHelp, TyperCommand):
    """A command of another package, which prints by itself."""

    def invoke(self, ctx: Any) -> int:
        """Run the command; return its exit status, 0 where it returns anything but a number."""
        result = super().invoke(ctx)
        return result if isinstance(result, int) else 0


class CliCommand(_WithPlainHelp, TyperCommand):
    """A command with printed outcomes and a short ``-h``.

    ``-h`` of a command with the options of a job shows those that people use; ``--help`` shows all.
    """

    _short = False

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the arguments, and note how the help was asked for, if it was."""
        self._short = "--help" not in args
        return super().parse_args(ctx, args)

    def get_help(self, ctx: Any) -> str:
        """Return the page that ``--help`` or ``-h`` prints."""
        usual = [param for param in self.params if param.name not in SELDOM]
        if not self._short or len(self.params) - len(usual) <= _FEW:
            return super().get_help(ctx)
        number = sum(param.param_type_name == "option" for param in self.params)
        page = copy(self)
        page.params = [_shortened(param) for param in usual]
        hint = f"`{ctx.command_path} --help` shows all {number} options."
        page.epilog = f"{hint}\n\n{self.epilog or ''}"
        return help_page(page, ctx)

    def invoke(self, ctx: Any) -> int:
        """Run the command and print its outcomes; return the exit status."""
        raise_at_interrupt()
        try:
            with interrupted_as(lambda: InterruptedByUser.after(SUBMITTED)):
                return render(super().invoke(ctx))
        finally:
            exit_at_interrupt()


def _shortened(param: Any) -> Any:
    """Return a parameter with the beginning of its help, outside of all panels: they are few."""
    beginning = re.split(r"[.:;] ", getattr(param, "help", None) or "")[0].rstrip(".")
    short = copy(param)
    vars(short).update(rich_help_panel=None, help=f"{beginning}.")
    return short


class CliGroup(_WithPlainHelp, TyperGroup):
    """A group of commands."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the arguments; without any, print the help.

        Raises:
            Exit: there are no arguments.
        """
        if not args and not ctx.resilient_parsing:
            write(f"{self.get_help(ctx)}\n")
            raise typer.Exit(UsageError.exit_code)
        return super().parse_args(ctx, args)


# --- the program ---


def build_app(
    names: Collection[str], others: Mapping[str, Command] = MappingProxyType({})
) -> typer.Typer:
    """Return the program with these commands.

    Only the named commands are built, since the options of submit alone take as long to build as
    all of status.
    """
    app = _empty_app(CliGroup)
    groups: dict[str, typer.Typer] = {}
    for name in names:
        command = others.get(name) or COMMANDS[name]
        group, _, name_in_group = name.rpartition(" ")
        function = getattr(import_module(command.module), command.function or name_in_group)
        if name in others:
            app.command(name, cls=PlainCommand)(function)
            continue
        parent = app
        if group:
            if group not in groups:
                groups[group] = _add_group(app, group, CliGroup)
            parent = groups[group]
        add = parent.command(
            name_in_group,
            cls=CliCommand,
            context_settings=dict(command.settings),
            epilog=epilog(name),
        )
        add(function)
    return app


def list_app() -> typer.Typer:
    """Return the program for its help and the completion of names.

    A command is built only when it is named.
    """
    app = _empty_app(_ListOfCommands)
    for name, command in {**COMMANDS, **commands_of_others()}.items():
        first = name.split()[0]
        if first not in GROUPS:
            app.command(name, help=command.help, rich_help_panel=command.panel)(_listed)
        elif first not in [group.name for group in app.registered_commands]:
            app.command(first, help=GROUPS[first], rich_help_panel=command.panel)(_listed)
    return app


class _ListOfCommands(CliGroup):
    """All commands, or those of a group, each with its name and help until it is resolved."""

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        """Return the command that the arguments name, with its options.

        The result has the name, the command, and the arguments behind the name.
        """
        name, command, rest = super().resolve_command(ctx, args)
        if name is not None:
            group = self.name if self.name in GROUPS else ""
            command = _built(group, name)
        return name, command, rest


def _built(group: str, name: str) -> Any:
    """Return a listed command with its options; a listed group with the list of its commands."""
    if name in GROUPS:
        app = _empty_app(CliGroup)
        listed = _add_group(app, name, _ListOfCommands)
        for full_name, command in COMMANDS.items():
            if full_name.startswith(f"{name} "):
                listed.command(full_name.partition(" ")[2], help=command.help)(_listed)
        return _commands(app)[name]
    if group:
        return _commands(build_app([f"{group} {name}"]))[group].commands[name]
    others = {} if name in COMMANDS else commands_of_others()
    return _commands(build_app([name], others))[name]


def _commands(app: typer.Typer) -> dict[str, Any]:
    group: Any = get_command(app)
    return dict(group.commands)


def _listed() -> None:
    """Stand for a command that is listed."""


def _add_group(app: typer.Typer, name: str, cls: type[CliGroup]) -> typer.Typer:
    group = typer.Typer(cls=cls)
    app.add_typer(group, name=name, help=GROUPS[name], epilog=epilog(name))
    return group


def _empty_app(cls: type[CliGroup]) -> typer.Typer:
    app = typer.Typer(
        name="hpcrun",
        cls=cls,
        help="Run PyTorch training scripts as Slurm jobs, on one node or many.",
        epilog="hpcrun COMMAND --help shows the options and examples of a command.",
        context_settings={"help_option_names": ["-h", "--help"]},
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
    )
    app.callback()(_hpcrun)
    return app


def _version(wanted: bool) -> None:
    if wanted:
        show(printed([f"hpcrun {__version__}"]))
        for other in namesakes(os.environ.get("PATH", "")):
            show(note([f"hpcrun: {other.seen}", f"hint: {other.fix}"]))
        raise typer.Exit


def _hpcrun(
    version: Annotated[  # noqa: ARG001 - its callback has done it
        bool,
        typer.Option(
            "--version", help="Print the version and exit.", callback=_version, is_eager=True
        ),
    ] = False,
    on: Annotated[  # noqa: ARG001 - for its help: the feature takes it from the command line
        str,
        typer.Option(
            "--on",
            metavar="HOST",
            help="Run on a cluster: hpcrun login.",
            hidden="remote" not in HOOKS,
        ),
    ] = "",
    verbose: Annotated[
        bool,
        typer.Option(
            "--verbose", "-v", help="Print each command that hpcrun runs and its time, on stderr."
        ),
    ] = False,
) -> None:
    if verbose or "HPCRUN_DEBUG" in os.environ:
        log_to_stderr()


def main() -> NoReturn:
    """Run hpcrun: every failure is one clear message and an exit code, never a traceback."""
    import_lean()
    app = _app_for(sys.argv[1:])
    exit_at_interrupt()
    try:
        status = app(standalone_mode=False) or 0
        finish(status)
        sys.exit(status)
    except typer.TyperException as error:
        want_json(_has_json_option(sys.argv))  # typer has not read that far
        from hpcrun.cli.usage_errors import usage_error

        fail(usage_error(error, sys.argv[1:], (*COMMANDS, *commands_of_others())))
    except HpcrunError as error:
        if isinstance(error, NotFoundError) and error.job_id:
            from hpcrun.explain.any_job_or_log import is_own_live_job

            if is_own_live_job(error.job_id, os.environ):
                error.hint = error.if_listed
        fail(error)
    except OSError as error:
        if error.filename is not None or error.errno not in _CANNOT_PRINT:
            _fail_for_a_bug(error)
        give_up_stdout()
        message = f"cannot print the result: {error.strerror}"
        if SUBMITTED:
            fail(SchedulerError(message, hint=f"hpcrun status {' '.join(SUBMITTED)}"))
        fail(PlanError(message, hint="`hpcrun status` shows what was submitted"))
    except Exception as error:
        # any other error: the user gets one message, and with HPCRUN_DEBUG the traceback
        _fail_for_a_bug(error)


def _app_for(args: Sequence[str]) -> typer.Typer:
    """Return the program with the command that is typed; with the list of all if there is none."""
    names = _typed_names(args)
    typed = [name for name in names if name in COMMANDS]
    if typed or names[0] == "--version":
        return build_app(typed)
    return list_app()


def _typed_names(args: Sequence[str]) -> tuple[str, str]:
    """Return the first word of a command line and its first two, which may name a command."""
    words = [token for token in args if token not in ("-v", "--verbose")]
    return " ".join(words[:1]), " ".join(words[:2])


def _has_json_option(words: list[str]) -> bool:
    if "--" in words:
        words = words[: words.index("--")]
    return "--json" in words


def _fail_for_a_bug(error: Exception) -> NoReturn:
    if "HPCRUN_DEBUG" in os.environ:
        raise error
    typed = _typed_names(sys.argv[1:])[0]
    other = None if typed in {*COMMANDS, *GROUPS} else commands_of_others().get(typed)
    reason = f"{type(error).__name__}: {error}"
    if other:
        words = f"the command {typed} of the package {other.package} has failed: {reason}"
        hint = (
            f"pip install --upgrade {other.package}, or uninstall it; "
            "HPCRUN_DEBUG=1 shows its author the traceback"
        )
        fail(HpcrunError(words, hint=hint))
    words = f"this is a bug in hpcrun: {reason}"
    fail(HpcrunError(words, hint="run it again with HPCRUN_DEBUG=1, and report the traceback"))


def fail(error: HpcrunError) -> NoReturn:
    """Print the message of an error and exit with its status."""
    status = show(Outcome(failure=error))
    finish(status)
    sys.exit(status)
