"""Profiles as a table, as YAML values and as JSON."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hpcrun.actions.profiles.profiles import ProfileRow
from hpcrun.job.units import format_memory, format_time
from hpcrun.views.profile_values import folder_lines, layer_of
from hpcrun.views.table import text_table
from hpcrun.views.text import visible

if TYPE_CHECKING:
    from rich.table import Table

    from hpcrun.actions.profiles.detect import Detected
    from hpcrun.job.profile import Profile


_BESIDE_PATHS = 60
"""The width of the other columns, with names of usual length."""


def profiles_tables(
    rows: Sequence[ProfileRow], layers: Mapping[str, Path], width: int
) -> tuple[Table, Table | None, list[str]]:
    """Return the list of profiles for a terminal, that of other machines' profiles, and the short names of folders.

    The user's own and detected profiles come before the shipped ones. If whole paths do not fit, a folder is named by
    its layer.
    """
    headings = ("", "NAME", "GPU", "GPUS/NODE", "PARTITION", "MAX TIME", "SOURCE")
    fits = all(_BESIDE_PATHS + len(str(row.path.parent)) <= width for row in rows)
    named = {} if fits else layers
    here, elsewhere = (
        [
            (
                "*" if row.default else "",
                row.name,
                *_cells(row.profile),
                layer_of(row.path, named) or str(row.path.parent),
            )
            for row in sorted(rows, key=lambda row: row.shipped)
            if row.elsewhere is is_elsewhere
        ]
        for is_elsewhere in (False, True)
    )
    used = {layer: layers[layer] for row in rows if (layer := layer_of(row.path, named))}
    others = text_table(headings, elsewhere, whole=headings[:-1]) if elsewhere else None
    return text_table(headings, here, whole=headings[:-1]), others, folder_lines(used)


def _cells(profile: Profile | None) -> tuple[str, ...]:
    if profile is None:
        return "broken", "", "", ""
    return (
        profile.gpu.type or ", ".join(profile.gpu.types) or "-",
        _per_node(profile),
        profile.partition or "-",
        format_time(profile.time.max) if profile.time.max else "-",
    )


def _per_node(profile: Profile) -> str:
    if profile.scheduler != "slurm":
        return "-"
    counts = {entry.per_node for entry in profile.gpu.types.values() if entry.per_node}
    return str(profile.gpu.per_node or ", ".join(str(count) for count in sorted(counts)) or 0)


def profiles_json(rows: Sequence[ProfileRow]) -> dict[str, Any]:
    """Return the list of profiles as a JSON document."""
    return {
        "kind": "profiles",
        "profiles": [
            {
                "name": row.name,
                "path": str(row.path),
                "default": row.default,
                "problem": row.problem,
                "profile": row.profile.model_dump() if row.profile else None,
            }
            for row in rows
        ],
    }


def detected_json(found: Detected) -> dict[str, Any]:
    """Return a detected profile as a JSON document: the file's text and its values."""
    return {
        "kind": "detected",
        "path": str(found.path) if found.path else None,
        "text": found.text,
        "profile": found.profile.model_dump(exclude_defaults=True, exclude={"name"}),
        "warnings": list(found.warnings),
    }


def profile_yaml(values: dict[str, Any]) -> str:
    """Return a profile's values as YAML; invisible characters are quoted and escaped."""
    from ruamel.yaml import YAML
    from ruamel.yaml.representer import SafeRepresenter

    class Representer(SafeRepresenter):
        def represent_str(self, data: str) -> Any:
            style = None if visible(data) == data else '"'
            return self.represent_scalar("tag:yaml.org,2002:str", data, style=style)

    Representer.add_representer(str, Representer.represent_str)
    yaml, text = YAML(typ="safe", pure=True), io.StringIO()
    yaml.Representer = Representer
    yaml.default_flow_style = False
    yaml.sort_base_mapping_type_on_output = False  # type: ignore[assignment]
    yaml.dump(profile_values(values), text)
    return "\n".join(visible(line) for line in text.getvalue().rstrip().split("\n"))


def profile_values(values: dict[str, Any]) -> dict[str, Any]:
    """Return a profile's values in the form that a user would write: times and sizes in Slurm's forms."""
    shown: dict[str, Any] = {
        name: list(value) if isinstance(value, tuple) else value for name, value in values.items() if name != "name"
    }
    for section, form in (("time", format_time), ("memory", format_memory)):
        if section in shown:
            shown[section] = {key: form(value) for key, value in shown[section].items()}
    if types := shown.get("gpu", {}).get("types"):
        shown["gpu"] = {**shown["gpu"], "types": {name: profile_values(entry) for name, entry in types.items()}}
    return shown
