"""hpcrun trust."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from hpcrun.cli.confirm import can_ask, confirm
from hpcrun.cli.context import Context, make_context
from hpcrun.cli.outcome import Outcome, Outcomes, printed, stdout, table
from hpcrun.cli.output import JsonOption
from hpcrun.errors import UsageError


def trust(
    folder: Annotated[
        Path | None,
        typer.Argument(
            metavar="FOLDER", help="A project, or its .hpcrun. Default: the one of this folder.", show_default=False
        ),
    ] = None,
    list_: Annotated[bool, typer.Option("--list", "-l", help="List what you have trusted.")] = False,
    revoke: Annotated[bool, typer.Option("--revoke", help="Forget what you said of FOLDER.")] = False,
    never: Annotated[bool, typer.Option("--never", help="Never use FOLDER, and do not mention it again.")] = False,
    as_json: JsonOption = False,
) -> Outcome | Outcomes:
    """Trust what a project brings: its profiles, templates, rules and configuration.

    Shows the files and what they can do, then asks, at a terminal only. hpcrun uses them as they are now; after any
    change it asks again. Nothing in a project's .hpcrun is used before.

    Examples:
      hpcrun trust              the project of this folder
      hpcrun trust --list       what is trusted
      hpcrun trust --revoke     take it back
    """
    from hpcrun.actions import trust as action
    from hpcrun.views import trust as view

    if list_ + revoke + never > 1:
        raise UsageError("--list, --revoke and --never exclude each other", hint="hpcrun trust --help")
    context = make_context(announce=None)
    if list_:
        rows = action.list_trust(context.trust)
        none = stdout(["nothing is trusted"])
        return Outcome(lambda: [table(view.trust_table(rows)) if rows else none], lambda: view.trust_json(rows))
    if as_json:
        raise UsageError("--json goes with --list", hint="hpcrun trust --list --json")
    path = action.folder_to_trust(folder, [] if folder else list(context.judged_layers.values())).absolute()
    if not (revoke or never):
        return _ask(path, context)
    if revoke:
        action.revoke(path, context.trust)
        line = f"forgotten  {path}"
    else:
        action.never_use(path, context.trust)
        line = f"never used  {path}; hpcrun trust --revoke takes that back"
    return printed([line])


def _ask(path: Path, context: Context) -> Outcomes:
    from hpcrun.actions.trust import look_into, trust_folder
    from hpcrun.views.trust import question_lines, question_table, trusted_line

    question = look_into(path, context.trust)
    if question.trusted:
        yield printed([f"{path} is trusted already, as it is"])
        return
    yield Outcome(
        lambda: [stdout([str(path), ""]), table(question_table(question)), stdout(["", *question_lines(question)])]
    )
    if not can_ask():
        raise UsageError(
            "nothing is trusted: there is no terminal to ask at",
            hint=f"type `hpcrun trust {path}` at one; a job without one names files of its own: --profile FILE",
        )
    if not confirm("Trust these files as they are now?"):
        yield Outcome(status=1)
        return
    trust_folder(question, context.trust)
    yield printed([trusted_line(question)])
