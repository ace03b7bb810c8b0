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


def profiles_tables(
    rows: Sequence[ProfileRow], layers: Mapping[str, Path]
) -> tuple[Table, Table | None, list[str]]:
    """Return the lists of profiles for a terminal, and where their folders are.

    One list is of this machine's profiles, the other of other machines' profiles. The user's own
    and detected profiles come before the shipped ones. A folder is named by its layer.
    """
    headings = ("", "NAME", "GPU", "GPUS/NODE", "PARTITION", "MAX TIME", "SOURCE")
    here, elsewhere = (
        [
            (
                "*" if row.default else "",
                row.name,
                *_cells(row.profile),
                layer_of(row.path, layers) or str(row.path),
            )
            for row in sorted(rows, key=lambda row: row.shipped)
            if row.elsewhere is is_elsewhere
        ]
        for is_elsewhere in (False, True)
    )
    whole = ("", "NAME", "GPUS/NODE", "PARTITION", "MAX TIME")
    if elsewhere:
        others = text_table(headings, elsewhere, whole=whole)
    else:
        others = None
    return (
        text_table(headings, here, whole=whole),
        others,
        folder_lines((row.path for row in rows), layers),
    )


def _cells(profile: Profile | None) -> tuple[str, ...]:
    if profile is None:
        return "broken", "", "", ""
    counts = {entry.per_node for entry in profile.gpu.types.values() if entry.per_node}
    return (
        profile.gpu.type or ", ".join(profile.gpu.types) or "-",
        str(profile.gpu.per_node or ", ".join(map(str, sorted(counts))) or 0)
        if profile.scheduler == "slurm"
        else "-",
        profile.partition or "-",
        format_time(profile.time.max) if profile.time.max else "-",
    )


def profiles_json(rows: Sequence[ProfileRow]) -> dict[str, Any]:
    """Return the list of profiles as a JSON document."""
    return {
        "kind": "profiles",
        "profiles": [
            {
                **fields_of(row, "name path default problem"),
                "profile": row.profile.model_dump() if row.profile else None,
            }
            for row in rows
        ],
    }


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
    return {name: _form((name,), value) for name, value in values.items() if name != "name"}


# --- the values, with the file and line of each, and side by side


def origins_json(loaded: LoadedProfile) -> dict[str, Any]:
    """Return every value with its file and line, by its key."""
    return {
        dotted(key): {"value": value, "file": origin.path, "line": origin.line}
        for key, value, origin in _rows(loaded)
    }


def origins_table(loaded: LoadedProfile, layers: Mapping[str, Path]) -> tuple[Table, list[str]]:
    """Return a table of values with file and line, and where the named folders are.

    The table names the folders by their layer.
    """
    rows = [
        (dotted(key), _text(value), place_text(origin, layers))
        for key, value, origin in _rows(loaded)
    ]
    folders = folder_lines((origin.path for _, _, origin in _rows(loaded)), layers)
    return text_table(("KEY", "VALUE", "SOURCE"), rows, whole=("KEY",)), folders


def _rows(loaded: LoadedProfile) -> Iterator[tuple[Key, Any, Origin]]:
    """Yield each value that has no others inside, with its key and its place."""
    for key, value in values_in(loaded.data):
        if key and not (isinstance(value, dict | list) and value):
            yield key, value, loaded.origins[key]


def layer_of(path: Path, layers: Mapping[str, Path]) -> str | None:
    """Return the name of the layer whose folder holds a file."""
    return next((name for name, folder in layers.items() if path.is_relative_to(folder)), None)


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
    rows = (
        (dotted(item.key), *(_text(_form(item.key, value)) for value in (item.left, item.right)))
        for item in differences
    )
    return text_table(("KEY", one_line(left), one_line(right)), rows, whole=("KEY",))


def diff_json(differences: Sequence[Difference], left: str, right: str) -> dict[str, Any]:
    """Return the differences as a JSON document."""
    return {
        "kind": "profile-diff",
        "profiles": [left, right],
        "differences": [
            {
                "key": dotted(item.key),
                "values": [_form(item.key, item.left), _form(item.key, item.right)],
            }
            for item in differences
        ],
    }


def verdicts_json(verdicts: Sequence[Verdict]) -> dict[str, Any]:
    """Return the mistakes and notes on profiles as a JSON document."""
    return {
        "kind": "profile-validation",
        "profiles": [
            {
                **fields_of(verdict, "name path"),
                "mistakes": [_mistake_json(item) for item in verdict.mistakes],
                "remarks": [_mistake_json(item) for item in verdict.remarks],
            }
            for verdict in verdicts
        ],
    }


def _mistake_json(item: Mistake) -> dict[str, Any]:
    return {"file": item.path, "line": item.line, "key": dotted(item.key), "message": item.text}


def _form(key: Key, value: Any) -> Any:
    """Return a value in the form that a user would write."""
    if isinstance(value, dict):
        return {name: _form((*key, name), inner) for name, inner in value.items()}
    if isinstance(value, tuple):
        return list(value)
    section = key[-2] if len(key) > 1 else ""  # time, or gpu.types.h100.time
    form = {"time": format_time, "memory": format_memory}.get(section)
    return form(value) if form and isinstance(value, int) else value


def _text(value: Any) -> str:
    if value is None:
        return "-"
    if value is True or value is False:
        return str(value).lower()
    if isinstance(value, list | tuple):
        return "[" + ", ".join(_text(item) for item in value) + "]"
    return one_line(str(value)) if value != {} else "{}"


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
        lines += ["", _HEADINGS[kind]] if lines else [_HEADINGS[kind]]
        for variable in variables:
            if variable.kind == kind:
                text = "; ".join(filter(None, (_now(variable), variable.meaning)))
                lines += _row(variable.name, text, column, width)
    return [*lines, "", "hpcrun profile env NAME explains a variable or a profile"]


def _now(variable: Variable) -> str:
    """Return since when a variable is deprecated, and what replaces the variable.

    The text is empty for a variable that is not deprecated.
    """
    replaced = f"{'replaced by' if variable.since else 'renamed to'} {variable.renamed_to}"
    since = f"since {variable.since}" if variable.since else ""
    return ", ".join(filter(None, (since, replaced if variable.renamed_to else "")))


def variable_lines(variable: Variable, width: int) -> list[str]:
    """Return the whole description of one variable."""
    rows = {
        "kind": _HEADINGS[variable.kind],
        "default": variable.default,
        "values": variable.values.in_words() or None,
        "set by hpcrun": variable.hpcrun,
        "deprecated": _now(variable),
        "use": variable.set_when,
        "warning": variable.trap,
        "harmful": "; ".join(
            f"on {', '.join(one.on)}: {one.why}" for one in variable.harmful if one.on
        ),
        "remark": "; ".join(one.why for one in variable.harmful if not one.on),
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
    lines = [
        f"Profile {variables.profile} sets"
        if variables.set_here
        else f"Profile {variables.profile} sets no variable"
    ]
    for row in variables.set_here:
        lines += ["", one_line(f"{row.name}={row.value}")]
        if row.origin is not None:
            lines += _row("", f"from {place_text(row.origin, layers)}", 2, width)
        if row.variable is not None:
            lines += _row("", _why(row.variable), 2, width)
        if row.problem:
            lines += _row("", f"warning: {row.problem}", 2, width)
    lines += ["", "Every job script sets"]
    column = max((len(variable.name) for variable in variables.by_script), default=0)
    for variable in variables.by_script:
        lines += _row(variable.name, f"{variable.hpcrun}: {variable.meaning}", column, width)
    return lines


def _why(variable: Variable) -> str:
    when = f". Use: {variable.set_when}" if variable.set_when else ""
    return f"{variable.meaning}{when} ({variable.source})"


def _row(label: str, text: str, column: int, width: int) -> list[str]:
    room = max(width, column + 30)  # a very narrow terminal folds by itself
    return labelled(label, one_line(text), column + 2, room, break_long_words=True)


def variables_json(variables: Sequence[Variable]) -> dict[str, Any]:
    """Return variables as a JSON document."""
    return {"kind": "variables", "variables": [variable.model_dump() for variable in variables]}


def profile_variables_json(variables: ProfileVariables) -> dict[str, Any]:
    """Return the variables that a profile sets as a JSON document."""
    return {
        "kind": "profile-variables",
        "profile": variables.profile,
        "set": [
            {
                **fields_of(row, "name value origin problem"),
                "variable": row.variable.model_dump() if row.variable else None,
            }
            for row in variables.set_here
        ],
        "set_by_script": [variable.model_dump() for variable in variables.by_script],
    }
