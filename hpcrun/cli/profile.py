"""hpcrun profile: its commands; those that edit a profile are in profile_edit.py."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hpcrun.cli import complete
from hpcrun.cli.context import make_context
from hpcrun.cli.options import argument, flag, option
from hpcrun.cli.output import (
    JsonOption,
    Outcome,
    TextPart,
    printed,
    stderr,
    stdout,
    table,
    verbatim,
    width,
)
from hpcrun.cli.profile_edit import NAME, NAME_OR_DEFAULT
from hpcrun.errors import ProfileError, UsageError
from hpcrun.machine.process import SlurmSite
from hpcrun.profiles.folders import Folder, folders_of
from hpcrun.views import profile_tables
from hpcrun.views.text import one_line

if TYPE_CHECKING:
    from hpcrun.actions.profiles.list_profiles import ProfileRow, Verdict


def list_(_json: JsonOption = False) -> Outcome:
    """List the profiles; * marks the default profile."""
    from hpcrun.actions.profiles.list_profiles import list_profiles

    context = make_context()
    rows = list_profiles(context.surroundings)
    paths = context.profile_paths
    return Outcome(lambda: _list_text(rows, paths), lambda: profile_tables.profiles_json(rows))


def _list_text(rows: Sequence[ProfileRow], paths: Mapping[str, Path]) -> Iterator[TextPart]:
    drawn, others, folders = profile_tables.profiles_tables(rows, paths)
    yield table(drawn)
    if others is not None:
        yield stdout(["", "Shipped profiles of other machines:"])
        yield table(others)
    if folders:
        yield stdout(["", *folders])
    yield stderr(f"hpcrun: {row.problem}" for row in rows if row.problem)


def show(
    name: str | None = NAME_OR_DEFAULT,
    origin: bool = flag("--origin", "Show the file and line of each value."),
    _json: JsonOption = False,
) -> Outcome:
    """Show the values of a profile, with those it inherits."""
    from hpcrun.profiles.load import load_profile

    context = make_context()
    loaded = load_profile(context.profile_name(name), context.surroundings.profile_folders)
    values = loaded.profile.model_dump(exclude_defaults=True)

    def document() -> dict[str, Any]:
        shown: dict[str, Any] = {"kind": "profile", "path": str(loaded.path), "profile": values}
        if origin:
            shown["origins"] = profile_tables.origins_json(loaded)
        return shown

    def text() -> Iterator[TextPart]:
        if not origin:
            yield stdout([one_line(f"# {loaded.path}"), profile_tables.profile_yaml(values)])
            return
        drawn, folders = profile_tables.origins_table(loaded, context.profile_paths)
        yield table(drawn)
        if folders:
            yield stdout(["", *folders])

    return Outcome(text, document)


def path() -> Outcome:
    """List the folders of profiles and templates, in order of precedence."""
    surroundings = make_context().surroundings
    lines = _folder_lines("profiles", folders_of(surroundings.profile_folders))
    lines += _folder_lines("templates", folders_of(surroundings.template_folders))
    return printed(lines)


def _folder_lines(kind: str, folders: Sequence[Folder]) -> list[str]:
    lines = []
    for folder in folders:
        line = f"{kind:<10} {folder.path}"
        if not folder.path.is_dir():
            line += "  (not there)"
        elif folder.withheld:
            line += "  (not used)"
        lines.append(one_line(line))
    return lines


def env(
    name: str | None = argument("[NAME|VARIABLE]", "Profile or variable. Default: all variables."),
    _json: JsonOption = False,
) -> Outcome:
    """Explain the environment variables of NCCL, torch and CUDA."""
    from hpcrun.actions.profiles.variables import ProfileVariables, find_variables
    from hpcrun.profiles.variable_catalogue import load_catalogue

    if name is None:
        variables = list(load_catalogue().values())
        lines = profile_tables.variables_lines(variables, width())
        return printed(lines, lambda: profile_tables.variables_json(variables))
    context = make_context()
    explained = find_variables(name, context.surroundings)
    if isinstance(explained, ProfileVariables):
        lines = profile_tables.profile_variables_lines(explained, context.profile_paths, width())
        return printed(lines, lambda: profile_tables.profile_variables_json(explained))
    lines = profile_tables.variable_lines(explained, width())
    return printed(lines, lambda: profile_tables.variables_json([explained]))


def detect(
    write: str | None = option("--write NAME", "Save the profile under this name."),
    force: bool = flag("--force", "Replace an existing profile; needs --write."),
    _json: JsonOption = False,
) -> Outcome:
    """Write a profile of this cluster from its Slurm configuration.

    A comment at each value names its source.
    Without --write, the profile is printed to stdout.
    """
    from hpcrun.actions.profiles.detect import detect as detect_profile
    from hpcrun.actions.profiles.edit import new_profile_path

    if force and write is None:
        raise UsageError("--force has no effect without --write", hint="add --write NAME")
    context = make_context()
    path = None
    if write is not None:
        # a name that cannot be is refused before a cluster is asked
        path = new_profile_path(write, context.user_folder / "profiles", force=force)
    site = SlurmSite(context.env)
    layers = tuple(context.profile_layers.values())
    detected = detect_profile(site, context.host, layers, path)
    if detected.path is None:
        lines = [detected.text.rstrip("\n")]
    else:
        lines = [
            f"written  {detected.path}",
            f"look     hpcrun profile show {write}",
            f"use      hpcrun submit -P {write}",
        ]
    warnings = [f"hpcrun: {warning}" for warning in detected.warnings]
    return Outcome(
        lambda: [stderr(warnings), stdout(lines)],
        lambda: profile_tables.detected_json(detected),
    )


def validate(
    names: list[str] | None = argument(
        "[NAME|FILE]...", "Profiles to check. Default: all.", complete=complete.profile_name
    ),
    _json: JsonOption = False,
) -> Outcome:
    """Check profiles and list all errors, each with its file, line and key.

    Exit status 3 if there is an error.
    """
    from hpcrun.actions.profiles.list_profiles import validate_profiles

    context = make_context()
    verdicts = validate_profiles(names or [], context.surroundings)
    is_wrong = any(verdict.mistakes for verdict in verdicts)
    return Outcome(
        lambda: _verdicts_text(verdicts),
        lambda: profile_tables.verdicts_json(verdicts),
        status=ProfileError.exit_code if is_wrong else 0,
    )


def _verdicts_text(verdicts: Sequence[Verdict]) -> Iterator[TextPart]:
    """Yield the level of each profile, then all mistakes, all remarks and all hints."""
    levels = []
    mistakes = []
    remarks = []
    hints = []
    for verdict in verdicts:
        level = "error" if verdict.mistakes else "ok"
        levels.append(f"{level:<6} {verdict.name}")
        mistakes += [one_line(str(mistake)) for mistake in verdict.mistakes]
        remarks += [one_line(f"warning: {remark}") for remark in verdict.remarks]
        if verdict.mistakes and verdict.hint:
            hints.append(f"hint: {verdict.hint}")
    yield stdout(levels)
    # several profiles may extend the one with the mistake
    yield stderr(dict.fromkeys(mistakes))
    yield stderr(dict.fromkeys(remarks))
    yield stderr(dict.fromkeys(hints))


def diff(left: str = NAME, right: str = NAME, _json: JsonOption = False) -> Outcome:
    """Show the values that differ between two profiles."""
    from hpcrun.actions.profiles.list_profiles import diff_profiles

    differences = diff_profiles(left, right, make_context().surroundings)

    def text() -> Iterator[TextPart]:
        if differences:
            yield table(profile_tables.diff_table(differences, left, right))
        else:
            yield stderr([f"{left} and {right} have the same values"])

    return Outcome(text, lambda: profile_tables.diff_json(differences, left, right))


def schema(
    config: bool = flag("--config", "Print the schema of config.yaml instead."),
) -> Outcome:
    """Print the JSON Schema of a profile file, for completion in editors."""
    from hpcrun.profiles.file_schemas import config_schema, profile_schema

    document = config_schema() if config else profile_schema()
    return Outcome(lambda: [verbatim(json.dumps(document, indent=2) + "\n")])
