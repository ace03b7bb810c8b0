"""hpcrun trust."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from hpcrun.cli.confirm import can_ask, confirm
from hpcrun.cli.context import Context, make_context
from hpcrun.cli.output import JsonOption, show, show_json, show_rich
from hpcrun.errors import UsageError


def trust(
    folder: Annotated[
        Path | None,
        typer.Argument(
            metavar="FOLDER", help="Project, or its .hpcrun folder. Default: this project.", show_default=False
        ),
    ] = None,
    list_: Annotated[bool, typer.Option("--list", "-l", help="List the trusted projects.")] = False,
    revoke: Annotated[bool, typer.Option("--revoke", help="Stop trusting FOLDER.")] = False,
    never: Annotated[bool, typer.Option("--never", help="Never use FOLDER, and do not mention it again.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Trust the profiles, templates, rules and configuration of a project.

    Shows the files and what they can do, then asks; this needs a terminal.
    hpcrun ignores a project's .hpcrun until you trust it, and asks again after
    any change of its files.
    """
    from hpcrun.actions import trust as action
    from hpcrun.views import trust as view

    if list_ + revoke + never > 1:
        raise UsageError("--list, --revoke and --never cannot be combined", hint="hpcrun trust --help")
    context = make_context(announce=None)
    if list_:
        rows = action.list_trust(context.trust)
        if as_json:
            show_json(view.trust_json(rows))
        elif rows:
            show_rich(view.trust_table(rows))
        else:
            show(["nothing is trusted"])
        return
    if as_json:
        raise UsageError("--json goes with --list", hint="hpcrun trust --list --json")
    path = action.folder_to_trust(folder, [] if folder else list(context.judged_layers.values())).absolute()
    if revoke:
        action.revoke(path, context.trust)
        show([f"forgotten  {path}"])
    elif never:
        action.never_use(path, context.trust)
        show([f"never used  {path}; to undo: hpcrun trust --revoke"])
    else:
        _ask(path, context)


def _ask(path: Path, context: Context) -> None:
    from hpcrun.actions.trust import look_into, trust_folder
    from hpcrun.views.trust import question_lines, question_table, trusted_line

    question = look_into(path, context.trust)
    if question.trusted:
        show([f"{path} is already trusted"])
        return
    show([str(path), ""])
    show_rich(question_table(question))
    show(["", *question_lines(question)])
    if not can_ask():
        raise UsageError(
            "cannot ask without a terminal; nothing was trusted",
            hint=f"run `hpcrun trust {path}` in a terminal; in a job, use --profile FILE",
        )
    if not confirm("Trust these files as they are now?"):
        raise typer.Exit(1)
    trust_folder(question, context.trust)
    show([trusted_line(question)])
