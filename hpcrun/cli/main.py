"""The program: its commands, and what becomes of what they raise."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Collection
from importlib import import_module
from importlib.util import find_spec
from typing import Annotated, Any, NoReturn, cast

import typer
from typer.main import get_command

from hpcrun.cli.examples import epilog
from hpcrun.cli.interrupt import exit_at_interrupt
from hpcrun.cli.outcome import Outcome, printed
from hpcrun.cli.output import finish, give_up_stdout, show, want_json
from hpcrun.cli.typer_command import CliCommand, CliGroup
from hpcrun.errors import HpcrunError, NotFoundError, PlanError, UsageError
from hpcrun.journal import tell_on_stderr
from hpcrun.version import __version__

# everything behind SCRIPT is the script's own, as with sbatch, srun and torchrun
_SCRIPT_LAST = {"allow_interspersed_args": False}
_COMMANDS: dict[str, tuple[str, dict[str, Any]]] = {
    "submit": ("hpcrun.cli.submit", _SCRIPT_LAST),
    "render": ("hpcrun.cli.submit", _SCRIPT_LAST),
    "scale": ("hpcrun.features.scaling.scale_command", _SCRIPT_LAST),
    "import": ("hpcrun.features.importing.command", {}),
    "where": ("hpcrun.features.where.command", {}),
    "plan": ("hpcrun.features.scaling.plan_command", {}),
    "status": ("hpcrun.cli.status", {}),
    "top": ("hpcrun.features.top.command", {}),
    "logs": ("hpcrun.cli.logs", {}),
    "explain": ("hpcrun.cli.explain", {}),
    "metrics": ("hpcrun.cli.metrics", {}),
    "sweep": ("hpcrun.features.sweep.command", {}),
    "report": ("hpcrun.features.scaling.report_command", {}),
    "history": ("hpcrun.features.history.command", {}),
    "share": ("hpcrun.features.share.command", {}),
    "open": ("hpcrun.features.trackers.open_command", {}),
    "tensorboard": ("hpcrun.features.trackers.tensorboard_command", {}),
    "sync": ("hpcrun.features.trackers.sync_command", {}),
    "gpu": ("hpcrun.cli.gpu", {}),
    "shell": ("hpcrun.cli.shell", {}),
    "cancel": ("hpcrun.cli.cancel", {}),
    "hold": ("hpcrun.cli.hold", {}),
    "release": ("hpcrun.cli.hold", {}),
    "resubmit": ("hpcrun.cli.resubmit", {}),
    "notify": ("hpcrun.features.notify.command", {}),
    "init": ("hpcrun.cli.init", {}),
    "doctor": ("hpcrun.features.doctor.command", {}),
    "preflight": ("hpcrun.features.preflight.command", {}),
    "nodes": ("hpcrun.features.preflight.nodes_command", {}),
    "clean": ("hpcrun.cli.clean", {}),
    "trust": ("hpcrun.cli.trust", {}),
}
_CANNOT_PRINT = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)
_FUNCTIONS = {"plan": "forecast", "import": "import_", "open": "open_"}
"""Of commands whose function has another name: a plan is what is decided about one job; import is a word of Python, and
open a function."""
_GROUPS = {"profile": ("hpcrun.cli.profile", "Show, write and check cluster profiles.")}
"""Groups of commands: the module, and the help."""


def command_names() -> tuple[str, ...]:
    """Return the names of all commands and groups of commands."""
    return (*_COMMANDS, *_GROUPS)


def build_app(names: Collection[str]) -> typer.Typer:
    """Return the program with these commands; the options of submit alone take as long to build as all of status."""
    app = _empty_app(CliGroup)
    for name, (module, settings) in _COMMANDS.items():
        if name in names:
            function = getattr(import_module(module), _FUNCTIONS.get(name, name))
            app.command(name, cls=CliCommand, context_settings=settings, epilog=epilog(name))(function)
    for name, (module, help_) in _GROUPS.items():
        if name in names:
            app.add_typer(import_module(module).app, name=name, help=help_, epilog=epilog(name))
    return app


def list_app() -> typer.Typer:
    """Return the program as its help and the completion of names show it: a command is built when a line names it."""
    app = _empty_app(_ListOfCommands)
    for name, (module, _) in _COMMANDS.items():
        app.command(name, help=_docstring(module, _FUNCTIONS.get(name, name)))(_listed)
    for name, (_, help_) in _GROUPS.items():
        app.command(name, help=help_)(_listed)
    return app


class _ListOfCommands(CliGroup):
    """All commands, each with its name and help alone until it is resolved."""

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        """Return the command that the arguments name, with its options, and the arguments behind it."""
        name, command, rest = super().resolve_command(ctx, args)
        if name is not None:
            command = cast(Any, get_command(build_app([name]))).commands[name]
        return name, command, rest


def _listed() -> None:
    """Stand for a command that is listed."""


def _docstring(module: str, function: str) -> str:
    """Return a function's docstring out of its module's bytecode: importing all commands takes longer than the help."""
    code = cast(Any, find_spec(module)).loader.get_code(module)
    of_function = next(const for const in code.co_consts if getattr(const, "co_name", None) == function)
    return str(of_function.co_consts[0] or "")


def _empty_app(cls: type[CliGroup]) -> typer.Typer:
    app = typer.Typer(
        name="hpcrun",
        cls=cls,
        help="Run PyTorch training scripts as Slurm jobs, on one node or many.",
        epilog="hpcrun COMMAND --help shows the options and examples of a command.",
        no_args_is_help=True,
        context_settings={"help_option_names": ["-h", "--help"]},
        pretty_exceptions_enable=False,
        rich_markup_mode="rich",
    )
    app.callback()(_hpcrun)
    return app


def _version(wanted: bool) -> None:
    if wanted:
        show(printed([f"hpcrun {__version__}"]))
        raise typer.Exit


def _hpcrun(
    version: Annotated[  # noqa: ARG001 - its callback has done it
        bool, typer.Option("--version", help="Print the version and exit.", callback=_version, is_eager=True)
    ] = False,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Print each command that hpcrun runs and its time, on stderr.")
    ] = False,
) -> None:
    if verbose or "HPCRUN_DEBUG" in os.environ:
        tell_on_stderr()


def main() -> NoReturn:
    """Run hpcrun: every failure is one clear message and an exit code, never a traceback."""
    asked = next((word for word in sys.argv[1:] if word not in ("-v", "--verbose")), None)
    app = build_app([asked]) if asked in (*command_names(), "--version") else list_app()
    exit_at_interrupt()
    try:
        status = app(standalone_mode=False) or 0
        finish(status)
        sys.exit(status)
    except typer.TyperException as error:
        if not error.format_message():  # no arguments at all: help was shown
            sys.exit(UsageError.exit_code)
        want_json("--json" in sys.argv[: sys.argv.index("--") if "--" in sys.argv else None])  # not read that far
        from hpcrun.cli.usage_errors import usage_error

        _fail(usage_error(error, sys.argv[1:], command_names()))
    except HpcrunError as error:
        if isinstance(error, NotFoundError) and error.job_id:
            from hpcrun.explain.any_job import is_own_live_job

            error.hint = error.if_listed if is_own_live_job(error.job_id, os.environ) else error.hint
        _fail(error)
    except OSError as error:
        if error.filename is not None or error.errno not in _CANNOT_PRINT:
            _fail_for_a_bug(error)
        give_up_stdout()
        _fail(PlanError(f"cannot print the result: {error.strerror}", hint="`hpcrun status` shows what was submitted"))
    except Exception as error:  # whatever else: a person gets one message, and we the traceback if they want to help
        _fail_for_a_bug(error)


def _fail_for_a_bug(error: Exception) -> NoReturn:
    if "HPCRUN_DEBUG" in os.environ:
        raise error
    words = f"this is a bug in hpcrun: {type(error).__name__}: {error}"
    _fail(HpcrunError(words, hint="run it again with HPCRUN_DEBUG=1, and report the traceback"))


def _fail(error: HpcrunError) -> NoReturn:
    status = show(Outcome(failure=error))
    finish(status)
    sys.exit(status)
