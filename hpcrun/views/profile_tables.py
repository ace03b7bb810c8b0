"""Profiles, the places of their values, and the catalogue of variables, for display.

The forms are tables, YAML, lines of text and JSON.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hpcrun.job.text.units import format_memory, format_time
from hpcrun.profiles.load import LoadedProfile
from hpcrun.profiles.variable_catalogue import KINDS, Kind, Variable
from hpcrun.profiles.yaml_edit import yaml_lines
from hpcrun.profiles.yaml_file import Key, Mistake, Origin, dotted, values_in
from hpcrun.views.text import fields_of, labelled, one_line, text_table

if TYPE_CHECKING:
    from rich.table import Table

    from hpcrun.actions.profiles.detect import Detected
    from hpcrun.actions.profiles.list_profiles import Difference, ProfileRow, Verdict
    from hpcrun.actions.profiles.variables import ProfileVariables
    from hpcrun.job.profile_model import Profile

_COLUMNS = ("", "NAME", "GPU", "GPUS/NODE", "PARTITION", "MAX TIME", "SOURCE")
_WHOLE = ("", "NAME", "GPUS/NODE", "PARTITION", "MAX TIME")
"""The columns of the list of profiles that are never folded."""


def profiles_tables(
    rows: Sequence[ProfileRow], layers: Mapping[str, Path]
) -> tuple[Table, Table | None, list[str]]:
    """Return the lists of profiles for a terminal, and where their folders are.

    One list is of this machine's profiles, the other of other machines' profiles. The user's own
    and detected profiles come before the shipped ones. A folder is named by its layer.
    """
    ordered = sorted(rows, key=lambda row: row.shipped)
    here = [_cells(row, layers) for row in ordered if not row.elsewhere]
    elsewhere = [_cells(row, layers) for row in ordered if row.elsewhere]
    table = text_table(_COLUMNS, here, whole=_WHOLE)
    others = None
    if elsewhere:
        others = text_table(_COLUMNS, elsewhere, whole=_WHOLE)
    return table, others, folder_lines((row.path for row in rows), layers)


def _cells(row: ProfileRow, layers: Mapping[str, Path]) -> list[str]:
    mark = "*" if row.default else ""
    place = layer_of(row.path, layers) or str(row.path)
    profile = row.profile
    if profile is None:
        return [mark, row.name, "broken", "", "", "", place]
    return [
        mark,
        row.name,
        profile.gpu.type or ", ".join(profile.gpu.types) or "-",
        _gpus_on_node(profile),
        profile.partition or "-",
        format_time(profile.time.max) if profile.time.max else "-",
        place,
    ]


def _gpus_on_node(profile: Profile) -> str:
    """Return the numbers of GPUs that a node can have; ``-`` for this machine, ``?`` if unknown."""
    if profile.scheduler != "slurm":
        return "-"
    if profile.gpu.per_node is not None:
        return str(profile.gpu.per_node)
    numbers = {entry.per_node for entry in profile.gpu.types.values() if entry.per_node}
    return ", ".join(map(str, sorted(numbers))) or "?"


def profiles_json(rows: Sequence[ProfileRow]) -> dict[str, Any]:
    """Return the list of profiles as a JSON document."""
    profiles = []
    for row in rows:
        profile = row.profile.model_dump() if row.profile else None
        profiles.append({**fields_of(row, "name path default problem"), "profile": profile})
    return {"kind": "profiles", "profiles": profiles}


def detected_json(detected: Detected) -> dict[str, Any]:
    """Return a detected profile as a JSON document: the file's text and its values."""
    return {
        "kind": "detected",
        **fields_of(detected, "path text warnings"),
        "profile": detected.profile.model_dump(exclude_defaults=True, exclude={"name"}),
    }


def profile_yaml(values: dict[str, Any]) -> str:
    """Return a profile's values as YAML."""
    return "\n".join(yaml_lines(profile_values(values)))


def profile_values(values: dict[str, Any]) -> dict[str, Any]:
    """Return a profile's values in the form that a user would write.

    Times and sizes are in Slurm's forms.
    """
    forms = {}
    for name, value in values.items():
        if name != "name":
            forms[name] = _form((name,), value)
    return forms


# --- the values, with the file and line of each, and side by side


def origins_json(loaded: LoadedProfile) -> dict[str, Any]:
    """Return every value with its file and line, by its key."""
    values = {}
    for key, value in _single_values(loaded):
        origin = loaded.origins[key]
        values[dotted(key)] = {"value": value, "file": origin.path, "line": origin.line}
    return values


def origins_table(loaded: LoadedProfile, layers: Mapping[str, Path]) -> tuple[Table, list[str]]:
    """Return a table of values with file and line, and where the named folders are.

    The table names the folders by their layer.
    """
    rows = []
    paths = []
    for key, value in _single_values(loaded):
        origin = loaded.origins[key]
        rows.append([dotted(key), _text(value), place_text(origin, layers)])
        paths.append(origin.path)
    table = text_table(("KEY", "VALUE", "SOURCE"), rows, whole=("KEY",))
    return table, folder_lines(paths, layers)


def _single_values(loaded: LoadedProfile) -> Iterator[tuple[Key, Any]]:
    """Yield each value that has no others inside, with its key."""
    for key, value in values_in(loaded.data):
        has_values = isinstance(value, dict | list) and value
        if key and not has_values:
            yield key, value


def layer_of(path: Path, layers: Mapping[str, Path]) -> str | None:
    """Return the name of the layer whose folder holds a file."""
    for name, folder in layers.items():
        if path.is_relative_to(folder):
            return name
    return None


def place_text(origin: Origin, layers: Mapping[str, Path]) -> str:
    """Return a place with its folder named by its layer, such as ``shipped: base/slurm.yaml:8``."""
    layer = layer_of(origin.path, layers)
    if layer:
        return f"{layer}: {origin.path.relative_to(layers[layer])}:{origin.line}"
    return str(origin)


def folder_lines(paths: Iterable[Path], layers: Mapping[str, Path]) -> list[str]:
    """Return the folders of the layers in which the files are."""
    used = dict.fromkeys(layer_of(path, layers) for path in paths)
    return [one_line(f"{layer + ':':<9} {layers[layer]}") for layer in used if layer]


def diff_table(differences: Sequence[Difference], left: str, right: str) -> Table:
    """Return the values of two profiles side by side."""
    rows = []
    for item in differences:
        values = [_form(item.key, item.left), _form(item.key, item.right)]
        rows.append([dotted(item.key), *map(_text, values)])
    return text_table(("KEY", one_line(left), one_line(right)), rows, whole=("KEY",))


def diff_json(differences: Sequence[Difference], left: str, right: str) -> dict[str, Any]:
    """Return the differences as a JSON document."""
    rows = []
    for item in differences:
        values = [_form(item.key, item.left), _form(item.key, item.right)]
        rows.append({"key": dotted(item.key), "values": values})
    return {"kind": "profile-diff", "profiles": [left, right], "differences": rows}


def verdicts_json(verdicts: Sequence[Verdict]) -> dict[str, Any]:
    """Return the mistakes and notes on profiles as a JSON document."""
    profiles = []
    for verdict in verdicts:
        profile = {
            **fields_of(verdict, "name path"),
            "mistakes": [_mistake_json(item) for item in verdict.mistakes],
            "remarks": [_mistake_json(item) for item in verdict.remarks],
        }
        profiles.append(profile)
    return {"kind": "profile-validation", "profiles": profiles}


def _mistake_json(item: Mistake) -> dict[str, Any]:
    return {"file": item.path, "line": item.line, "key": dotted(item.key), "message": item.text}


def _form(key: Key, value: Any) -> Any:
    """Return a value in the form that a user would write."""
    if isinstance(value, dict):
        return {name: _form((*key, name), inner) for name, inner in value.items()}
    if isinstance(value, tuple):
        return list(value)
    section = key[-2] if len(key) > 1 else ""  # time, or gpu.types.h100.time
    if section == "time" and isinstance(value, int):
        return format_time(value)
    if section == "memory" and isinstance(value, int):
        return format_memory(value)
    return value


def _text(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list | tuple):
        return "[" + ", ".join(_text(item) for item in value) + "]"
    return one_line(str(value))


# --- the catalogue of variables


_HEADINGS: dict[Kind, str] = {
    "system": "Site settings, safe to keep",
    "debugging": "Debugging only: slows down training; in no shipped profile",
    "torch": "torch",
    "process": "CUDA and threads",
    "efa": "EFA (AWS)",
    "renamed": "Renamed",
    "deprecated": "Deprecated, still read",
    "unread": "Not read by any program",
}


def variables_lines(variables: Sequence[Variable], width: int) -> list[str]:
    """Return all variables by kind, each with its meaning."""
    column = max(len(variable.name) for variable in variables)
    lines: list[str] = []
    for kind in KINDS:
        if lines:
            lines.append("")
        lines.append(_HEADINGS[kind])
        for variable in variables:
            if variable.kind == kind:
                parts = [_deprecation(variable), variable.meaning]
                text = "; ".join(part for part in parts if part)
                lines += _row(variable.name, text, column, width)
    return [*lines, "", "hpcrun profile env NAME explains a variable or a profile"]


def _deprecation(variable: Variable) -> str:
    """Return since when a variable is deprecated, and what replaces the variable.

    The text is empty for a variable that is not deprecated.
    """
    parts = []
    if variable.since:
        parts.append(f"since {variable.since}")
    if variable.renamed_to:
        verb = "replaced by" if variable.since else "renamed to"
        parts.append(f"{verb} {variable.renamed_to}")
    return ", ".join(parts)


def variable_lines(variable: Variable, width: int) -> list[str]:
    """Return the whole description of one variable."""
    harmful = []
    doubtful = []
    for case in variable.harmful:
        if case.on:
            harmful.append(f"on {', '.join(case.on)}: {case.why}")
        else:
            doubtful.append(case.why)
    rows = {
        "kind": _HEADINGS[variable.kind],
        "default": variable.default,
        "values": variable.values.in_words(),
        "set by hpcrun": variable.hpcrun,
        "deprecated": _deprecation(variable),
        "use": variable.set_when,
        "warning": variable.trap,
        "harmful": "; ".join(harmful),
        "remark": "; ".join(doubtful),
        "instead": variable.instead,
        "source": variable.source,
    }
    column = max(map(len, rows))
    lines = textwrap.wrap(f"{variable.name}: {variable.meaning}", width)
    for label, text in rows.items():
        if text:
            lines += _row(label, text, column, width)
    return lines


def profile_variables_lines(
    variables: ProfileVariables, layers: Mapping[str, Path], width: int
) -> list[str]:
    """Return the variables that a profile sets, with file, line and reason.

    A folder is named by its layer.
    """
    sets = "sets" if variables.set_here else "sets no variable"
    lines = [f"Profile {variables.profile} {sets}"]
    for row in variables.set_here:
        facts = []
        if row.origin is not None:
            facts.append(f"from {place_text(row.origin, layers)}")
        if row.variable is not None:
            facts.append(_why(row.variable))
        if row.problem:
            facts.append(f"warning: {row.problem}")
        lines += ["", one_line(f"{row.name}={row.value}")]
        for fact in facts:
            lines += _row("", fact, 2, width)
    lines += ["", "Every job script sets"]
    column = max((len(variable.name) for variable in variables.by_script), default=0)
    for variable in variables.by_script:
        lines += _row(variable.name, f"{variable.hpcrun}: {variable.meaning}", column, width)
    return lines


def _why(variable: Variable) -> str:
    text = variable.meaning
    if variable.set_when:
        text += f". Use: {variable.set_when}"
    return f"{text} ({variable.source})"


def _row(label: str, text: str, column: int, width: int) -> list[str]:
    room = max(width, column + 30)  # a very narrow terminal folds by itself
    return labelled(label, one_line(text), column + 2, room, break_long_words=True)


def variables_json(variables: Sequence[Variable]) -> dict[str, Any]:
    """Return variables as a JSON document."""
    return {"kind": "variables", "variables": [variable.model_dump() for variable in variables]}


def profile_variables_json(variables: ProfileVariables) -> dict[str, Any]:
    """Return the variables that a profile sets as a JSON document."""
    rows = []
    for row in variables.set_here:
        known = row.variable.model_dump() if row.variable else None
        rows.append({**fields_of(row, "name value origin problem"), "variable": known})
    return {
        "kind": "profile-variables",
        "profile": variables.profile,
        "set": rows,
        "set_by_script": [variable.model_dump() for variable in variables.by_script],
    }
