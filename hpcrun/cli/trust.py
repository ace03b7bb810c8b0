"""hpcrun profile trust."""

from __future__ import annotations

from pathlib import Path

from hpcrun.actions.jobs import trust as action
from hpcrun.actions.jobs.trust import look_into, trust_folder
from hpcrun.cli.confirm import can_ask, confirm
from hpcrun.cli.context import Context, make_context
from hpcrun.cli.options import argument, flag
from hpcrun.cli.output import JsonOption, Outcome, Outcomes, printed, stdout, table
from hpcrun.errors import UsageError
from hpcrun.views import trust as view
from hpcrun.views.trust import content_lines, question_lines, question_table, trusted_line


def trust(
    folder: Path | None = argument("FOLDER", "Project, or its .hpcrun folder. Default: this project."),
    list_: bool = flag("--list -l", "List the trusted projects."),
    revoke: bool = flag("--revoke", "Stop trusting FOLDER."),
    never: bool = flag("--never", "Never use FOLDER, and do not mention it again."),
    as_json: JsonOption = False,
) -> Outcome | Outcomes:
    """Trust the profiles, templates, rules and configuration of a project.

    Shows the files and what they can do, then asks; this needs a terminal.
    hpcrun ignores a project's .hpcrun until you trust it, and asks again after
    any change of its files.
    """
    if list_ + revoke + never > 1:
        raise UsageError("--list, --revoke and --never cannot be combined", hint="hpcrun profile trust --help")
    context = make_context(announce=None)
    if list_:
        rows = action.list_trust(context.trust)
        none = stdout(["nothing is trusted"])
        return Outcome(lambda: [table(view.trust_table(rows)) if rows else none], lambda: view.trust_json(rows))
    if as_json:
        raise UsageError("--json goes with --list", hint="hpcrun profile trust --list --json")
    path = action.folder_to_trust(folder, [] if folder else list(context.judged_layers.values())).absolute()
    if not (revoke or never):
        return _ask(path, context)
    if revoke:
        action.revoke(path, context.trust)
        line = f"forgotten  {path}"
    else:
        action.never_use(path, context.trust)
        line = f"never used  {path}; to undo: hpcrun profile trust --revoke"
    return printed([line])


def _ask(path: Path, context: Context) -> Outcomes:
    question = look_into(path, context.trust)
    below = [f"{path} is already trusted"] if question.trusted else question_lines(question)
    head = stdout([str(path), "", *content_lines(question)])
    yield Outcome(lambda: [head, table(question_table(question)), stdout(["", *below])])
    if question.trusted:
        return
    if not can_ask():
        raise UsageError(
            "cannot ask without a terminal; nothing was trusted",
            hint=f"run `hpcrun profile trust {path}` in a terminal; in a job, use --profile FILE",
        )
    if not confirm("Trust these files as they are now?"):
        yield Outcome(status=1)
        return
    trust_folder(question, context.trust)
    yield printed([trusted_line(question)])
