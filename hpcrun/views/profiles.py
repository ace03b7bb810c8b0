"""Profiles as a table, as YAML values and as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from hpcrun.actions.profiles import ProfileRow
from hpcrun.job.units import format_memory, format_time

if TYPE_CHECKING:
    from rich.table import Table

    from hpcrun.actions.detect import Detected
    from hpcrun.job.profile import Profile


def profiles_table(rows: Sequence[ProfileRow]) -> Table:
    """Return the list of profiles for a terminal."""
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for heading in ("", "NAME", "GPU", "PER NODE", "PARTITION", "MAX TIME"):
        table.add_column(heading, no_wrap=True)
    table.add_column("FROM", overflow="fold")
    for row in rows:
        profile = row.profile
        mark = "*" if row.default else ""
        if profile is None:
            table.add_row(mark, row.name, "broken", "", "", "", Text(str(row.path.parent)))
            continue
        cells = (
            profile.gpu.type or ", ".join(profile.gpu.types) or "-",
            _per_node(profile),
            profile.partition or "-",
            format_time(profile.time.max) if profile.time.max else "-",
            str(row.path.parent),
        )
        table.add_row(mark, row.name, *(Text(cell) for cell in cells))
    return table


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
    """Return a detected profile as a JSON document: the file's text, and the values it has once read."""
    return {
        "kind": "detected",
        "path": str(found.path) if found.path else None,
        "text": found.text,
        "profile": found.profile.model_dump(exclude_defaults=True, exclude={"name"}),
        "warnings": list(found.warnings),
    }


def profile_values(values: dict[str, Any]) -> dict[str, Any]:
    """Return a profile's values as a person would write them: times and sizes in Slurm's forms."""
    shown: dict[str, Any] = {
        name: list(value) if isinstance(value, tuple) else value for name, value in values.items() if name != "name"
    }
    for section, form in (("time", format_time), ("memory", format_memory)):
        if section in shown:
            shown[section] = {key: form(value) for key, value in shown[section].items()}
    if types := shown.get("gpu", {}).get("types"):
        shown["gpu"] = {**shown["gpu"], "types": {name: profile_values(entry) for name, entry in types.items()}}
    return shown
