"""hpcrun import."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hpcrun.cli import complete
from hpcrun.cli.context import make_context
from hpcrun.cli.lean_imports import import_pydantic
from hpcrun.cli.outcome import Outcome, TextPart, stdout
from hpcrun.cli.output import JsonOption
from hpcrun.errors import PlanError, UsageError
from hpcrun.job.quoting import quote_bash

if TYPE_CHECKING:
    from hpcrun.actions.jobs.import_script import ImportResult


def import_(
    script: Annotated[
        Path, typer.Argument(metavar="SCRIPT", help="A batch script with #SBATCH lines.", show_default=False)
    ],
    args: Annotated[
        list[str] | None,
        typer.Argument(metavar="ARGS", help="The script's own arguments, $1 and so on.", show_default=False),
    ] = None,
    profile: Annotated[
        str | None,
        typer.Option(
            "--profile",
            "-P",
            metavar="NAME",
            help="Profile for the command. Default: as for `hpcrun submit`.",
            show_default=False,
            autocompletion=complete.profile_name,
        ),
    ] = None,
    write: Annotated[
        str | None,
        typer.Option(
            "--write",
            metavar="NAME",
            help="Save partition, account, modules and the like as a profile. Default: options of the command.",
            show_default=False,
        ),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace an existing profile; needs --write.")] = False,
    lines: Annotated[bool, typer.Option("--lines", help="Show what becomes of every line of SCRIPT.")] = False,
    diff: Annotated[
        bool, typer.Option("--diff", help="Show the difference between SCRIPT and hpcrun's script.")
    ] = False,
    _json: JsonOption = False,
) -> Outcome:
    """Convert an sbatch script to a command of hpcrun.

    Shows the command that does the same, and each line that was not
    understood. The script is only read, never run. Exit status 0 if all of
    it is converted, else 4.
    """
    import_pydantic()
    import platformdirs

    from hpcrun.actions.jobs.import_script import import_script, write_profile
    from hpcrun.actions.jobs.prepare import choose_profile
    from hpcrun.actions.profiles.detect import new_profile_path
    from hpcrun.views.import_ import import_json, summary_line

    if force and write is None:
        raise UsageError("--force has no effect without --write", hint="add --write NAME")
    context = make_context()
    target = None
    if write is not None:
        target = new_profile_path(write, platformdirs.user_config_path("hpcrun") / "profiles", force=force)
    surroundings = context.surroundings
    chosen = choose_profile(profile, surroundings, lambda: context.scheduler("slurm").unavailable())
    path = context.cwd / script
    result = import_script(path, args or (), surroundings, profile=chosen, extend=profile, write=write)
    if target is not None:
        result = write_profile(result, target)
    failure = None
    if result.verdict != "whole":
        why = summary_line(result, whole=lines)
        by_hand = "write what is not understood as options by hand"
        each = f"`hpcrun import {quote_bash(str(script))} --lines` shows each line; {by_hand}"
        failure = PlanError(why, hint=result.refusal.hint if result.refusal else by_hand if lines else each)
    return Outcome(lambda: _text(result, lines=lines, diff=diff), lambda: import_json(result), failure=failure)


def _text(result: ImportResult, *, lines: bool, diff: bool) -> Iterator[TextPart]:
    from hpcrun.views import import_ as view

    if diff:
        yield stdout([*view.diff_lines(result), ""])
    if result.verdict == "whole":
        yield stdout([view.summary_line(result, whole=lines), ""])
    yield stdout(view.command_lines(result))
    if result.refusal:
        yield stdout(["", f"hpcrun refuses it: {result.refusal.message}"])
    yield stdout(view.judged_lines(result, whole=lines))
    yield stdout(view.note_lines(result))
    yield stdout(view.profile_lines(result))
    if not diff:
        yield stdout(view.directive_lines(result))
