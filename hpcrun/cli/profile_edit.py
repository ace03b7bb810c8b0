"""hpcrun profile new, set, unset, edit, use and trust."""

from __future__ import annotations

import os.path
import re
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hpcrun.actions.jobs import trust as trust_action
from hpcrun.actions.profiles.edit import (
    Changed,
    Place,
    edit_profile,
    new_profile,
    set_values,
    unset_values,
    use_profile,
)
from hpcrun.cli import complete
from hpcrun.cli.confirm import ask, confirm, find_editor, run_editor
from hpcrun.cli.context import PROJECT_FOLDER, Context, make_context
from hpcrun.cli.options import argument, check_one_of, flag, option
from hpcrun.cli.output import (
    JsonOption,
    Outcome,
    Outcomes,
    can_ask,
    note,
    printed,
    stdout,
    table,
    tell,
)
from hpcrun.errors import UsageError
from hpcrun.profiles.config import FILE_NAME
from hpcrun.profiles.folders import TrustStore
from hpcrun.profiles.load import load_profile, profile_names
from hpcrun.profiles.yaml_edit import USUAL
from hpcrun.profiles.yaml_file import Mistake
from hpcrun.views.text import count, fields_of, one_line, text_table, visible

if TYPE_CHECKING:
    from rich.table import Table

_MOST_KEYS = 8
_HELP = "Name or path of a profile. Default: the one `profile list` marks."
NAME = argument("NAME", "Name or path of a profile.", default=..., complete=complete.profile_name)
NAME_OR_DEFAULT = argument("NAME", _HELP, complete=complete.profile_name)
_VALUES = "gpu.per_node=8, modules=[a, b]"
_ASSIGNMENT = re.compile(r"[\w.]+\+?=")


def new(
    name: str = argument("NAME", "Name of the new profile.", default=...),
    values: list[str] | None = argument(
        "KEY=VALUE...", f"Values to set: {_VALUES}.", complete=complete.assignment
    ),
    base: str | None = option(
        "--from PROFILE",
        "Profile to extend. Required without a terminal.",
        complete=complete.profile_name,
    ),
) -> Outcome:
    """Write a profile of your own that extends another.

    Without --from and values it asks for them, if there is a terminal.
    """
    place = own_place(make_context())
    if base is None:
        if values or not can_ask():
            raise UsageError(
                "the profile to extend is missing",
                hint="--from detected, or --from local; hpcrun init asks what is needed",
            )
        base, values = _ask(place)
    result = new_profile(name, base, values or (), place)
    lines = [
        f"written  {result.path}",
        f"see      hpcrun profile show {shlex.quote(name)} --origin",
    ]
    return printed(lines)


def _ask(place: Place) -> tuple[str, list[str]]:
    """Ask what most sites differ in; return the profile to extend and the values.

    Enter keeps an inherited value.
    """
    names = sorted(profile_names(place.folders))
    tell([f"profiles: {', '.join(names)}"])
    likely = "detected" if "detected" in names else "local"
    base = ask("Which profile is closest to your cluster?", default=likely)
    profile = load_profile(base, place.folders).profile
    if profile.scheduler == "local":
        return base, []
    tell(["Press Enter to keep a value."])
    answers: list[str] = []
    for key, why in USUAL.items():
        value: Any = profile
        for step in key:
            value = getattr(value, step, None)
        name = ".".join(key)
        question = f"{name}, {why}"
        # a time is shown as it was written by profile show; here the question is only whether to
        # change it
        if isinstance(value, str | int) and value and key[0] != "time":
            question += f" [{value}]"
        answer = ask(question, default="", show_default=False).strip()
        if answer:
            answers.append(f"{name}={answer}")
    return base, answers


def set_(
    name: str | None = argument("NAME", _HELP, default=..., complete=complete.profile_name),
    values: list[str] | None = argument(
        "KEY=VALUE...",
        f"Values to set: {_VALUES}; modules+=c adds to a list; null removes a value.",
        complete=complete.assignment,
    ),
) -> Outcomes:
    """Set values in your copy of a profile.

    Without a copy, one is made that extends the profile.
    """
    context = make_context()
    assignments = list(values or ())
    if name and _ASSIGNMENT.match(name):  # the name is left out
        assignments.insert(0, name)
        name = None
    if not assignments:
        shown = shlex.quote(name or "NAME")
        raise UsageError("KEY=VALUE is missing", hint=f"hpcrun profile set {shown} KEY=VALUE")
    changed = set_values(context.profile_name(name), assignments, own_place(context))
    return _report(changed, context)


def unset(
    name: str = NAME,
    keys: list[str] = argument(
        "KEY...", "Keys to remove, such as gpu.type.", default=..., complete=complete.key
    ),
) -> Outcomes:
    """Remove keys from your copy of a profile; inherited values apply again."""
    context = make_context()
    changed = unset_values(name, keys, own_place(context))
    return _report(changed, context)


def edit(name: str | None = NAME_OR_DEFAULT) -> Outcomes:
    """Edit your copy of a profile in $VISUAL or $EDITOR.

    Without a copy, one is made that extends the profile.
    The file is saved only when it is valid.
    """
    context = make_context()
    argv = find_editor(context.env, "hpcrun profile set NAME KEY=VALUE")
    changed = edit_profile(
        context.profile_name(name),
        own_place(context),
        lambda path: run_editor([*argv, str(path)], context.env),
        _ask_again,
    )
    return _report(changed, context)


def use(name: str = NAME) -> Outcomes:
    """Make a profile your default, for commands without --profile.

    It is set in your config.yaml, whose other lines stay.
    """
    context = make_context()
    changed = use_profile(name, own_place(context), context.user_folder / FILE_NAME)
    yield from _report(changed, context)
    yield printed([f"default  {name}"])
    yield overruled(name)


def overruled(name: str) -> Outcome:
    """Return what has priority here over the user's default profile, if anything does."""
    after = make_context(announce=None)
    of_environment = after.env.get("HPCRUN_PROFILE")
    chosen = of_environment or after.config.profile
    if chosen in (name, os.path.abspath(name)):
        return note([])
    source = f"{PROJECT_FOLDER}/{FILE_NAME} of this project"
    if of_environment:
        source = "HPCRUN_PROFILE"
    return note([f"hpcrun: {source} sets the profile {chosen} here, and takes precedence"])


def own_place(context: Context) -> Place:
    """Return where the user's own profiles are, and the folders that are used."""
    used = tuple(folder for folder in context.profile_layers.values() if not folder.withheld)
    return Place(context.profile_paths["user"], used)


def _report(result: Changed, context: Context) -> Outcomes:
    """Report the change of a file; in a trusted folder the new file is trusted, too."""
    configuration = context.configuration
    layers = list(configuration.judged_layers.values())
    trust_action.keep_trust(result.path, layers, configuration.trust)
    if result.made:
        label = "written"
    elif result.changed:
        label = "changed"
    else:
        label = "unchanged"
    yield printed([f"{label}  {result.path}"])
    for key, types in result.replaced.items():
        listed = ", ".join(types)
        yield note([f"hpcrun: {key} now applies to GPU types {listed} too, which had their own"])
    if result.hidden_by:
        yield note([f"hpcrun: {result.hidden_by} takes precedence here"])


def _ask_again(mistakes: Sequence[Mistake]) -> bool:
    """Show mistakes and ask whether to go back to the editor; without a terminal do not ask."""
    if not can_ask():
        return False
    tell(str(mistake) for mistake in mistakes)
    return confirm("Edit it again?", default=True, interrupted="interrupted; nothing was saved")


def trust(
    folder: Path | None = argument(
        "FOLDER", "Project, or its .hpcrun folder. Default: this project."
    ),
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
    check_one_of(list=list_, revoke=revoke, never=never)
    context = make_context(announce=None)
    store = context.configuration.trust
    if list_:
        return _trusted_projects(store)
    if as_json:
        raise UsageError("--json goes with --list", hint="hpcrun profile trust --list --json")
    layers = [] if folder else list(context.configuration.judged_layers.values())
    path = trust_action.folder_to_trust(folder, layers).absolute()
    if revoke:
        trust_action.revoke(path, store)
        return printed([f"forgotten  {path}"])
    if never:
        trust_action.remember(path, None, store)
        return printed([f"never used  {path}; to undo: hpcrun profile trust --revoke"])
    return _ask_trust(path, context)


def _trusted_projects(store: TrustStore) -> Outcome:
    rows = trust_action.list_trust(store)
    part = stdout(["nothing is trusted"])
    if rows:
        cells = [(str(row.path), row.state, str(row.files)) for row in rows]
        part = table(text_table(("FOLDER", "STATE", "FILES"), cells, right=("FILES",)))
    folders = [fields_of(row, "path state files") for row in rows]
    return Outcome(lambda: [part], lambda: {"kind": "trust", "folders": folders})


def _ask_trust(path: Path, context: Context) -> Outcomes:
    question = trust_action.look_into(path, context.configuration.trust)
    if question.trusted:
        below = [f"{path} is already trusted"]
    else:
        below = _question_lines(question)
    head = stdout([str(path), "", *_content_lines(question)])
    yield Outcome(lambda: [head, table(_question_table(question)), stdout(["", *below])])
    if question.trusted:
        return
    if not can_ask():
        command = f"hpcrun profile trust {shlex.quote(str(path))}"
        raise UsageError(
            "cannot ask without a terminal; nothing was trusted",
            hint=f"run `{command}` in a terminal; in a job, use --profile FILE",
        )
    if not confirm("Trust these files as they are now?"):
        yield Outcome(status=1)
        return
    trust_action.remember(question.path, question.contents, context.configuration.trust)
    yield printed([one_line(f"trusted  {path}, {count(len(question.contents.files), 'file')}")])


def _question_table(question: trust_action.Question) -> Table:
    """Return the files of a folder, what is new of them, and what each can do."""
    rows = []
    for file in question.files:
        size = "" if file.state == "removed" else str(file.size_bytes)
        rows.append((file.name, file.state, size, _power(file)))
    return text_table(("FILE", "STATE", "BYTES", "EFFECT"), rows, right=("BYTES",))


def _power(file: trust_action.FileToTrust) -> str:
    if not file.keys:
        return file.power
    keys = list(file.keys[:_MOST_KEYS])
    if len(file.keys) > _MOST_KEYS:
        keys.append("...")
    return f"{file.power}: {', '.join(keys)}"


def _content_lines(question: trust_action.Question) -> Iterator[str]:
    """Yield the text of the files that are new or changed.

    Of a folder that is trusted as it is, yield the text of all files.
    """
    for file in question.files:
        if file.state == "removed" or (file.state == "trusted" and not question.trusted):
            continue
        yield f"{one_line(file.name)}:"
        text = question.contents.files[file.name].decode(errors="surrogateescape")
        for line in text.removesuffix("\n").split("\n"):
            yield f"    {visible(line.expandtabs())}".rstrip()
        yield ""


def _question_lines(question: trust_action.Question) -> list[str]:
    """Return the lines below the files."""
    lines = [f"not read: {one_line(name)}" for name in question.contents.skipped]
    if question.dangers:
        danger = one_line(question.dangers[0])
        lines.append(f"{danger}: hpcrun ignores a later change until you trust it")
    lines.append(
        "Trusted files run code as you, here and on the nodes of your jobs. Read them first."
    )
    return lines
