"""The program: its commands, and what becomes of what they raise."""

from __future__ import annotations

import sys
from typing import Annotated, NoReturn

import typer

from hpcrun import __version__
from hpcrun.cli.cancel import cancel
from hpcrun.cli.command import Command
from hpcrun.cli.logs import logs
from hpcrun.cli.output import show, show_error
from hpcrun.cli.profile import app as profile_app
from hpcrun.cli.status import status
from hpcrun.cli.submit import render, submit
from hpcrun.errors import HpcrunError, InterruptedByUser, UsageError

app = typer.Typer(
    name="hpcrun",
    help="From a PyTorch training script to a multi-node Slurm job with one command.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)
# everything behind SCRIPT is the script's own, as with sbatch, srun and torchrun
_SCRIPT_LAST = {"allow_interspersed_args": False}
app.command("submit", cls=Command, context_settings=_SCRIPT_LAST)(submit)
app.command("render", cls=Command, context_settings=_SCRIPT_LAST)(render)
app.command("status", cls=Command)(status)
app.command("logs", cls=Command)(logs)
app.command("cancel", cls=Command)(cancel)
app.add_typer(profile_app, name="profile")


def _version(wanted: bool) -> None:
    if wanted:
        show([f"hpcrun {__version__}"])
        raise typer.Exit


@app.callback()
def _hpcrun(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=_version, is_eager=True)
    ] = False,
) -> None:
    pass


def main() -> NoReturn:
    """Run hpcrun: every failure is one clear message and an exit code, never a traceback."""
    try:
        status = app(standalone_mode=False) or 0
        if status == InterruptedByUser.exit_code:  # typer's word for Ctrl-C
            raise InterruptedByUser("interrupted")
        sys.exit(status)
    except typer.TyperException as error:
        _fail(UsageError(error.format_message(), hint="hpcrun --help, or hpcrun COMMAND --help"))
    except HpcrunError as error:
        _fail(error)


def _fail(error: HpcrunError) -> NoReturn:
    show_error(error)
    sys.exit(error.exit_code)
