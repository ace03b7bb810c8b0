"""Every key of a profile and of config.yaml, from their JSON Schemas."""

from __future__ import annotations

from typing import Any

from dev.reference import markdown
from hpcrun.profiles.file_schemas import config_schema, profile_schema
from hpcrun.profiles.yaml_file import EXTEND

Schema = dict[str, Any]
_INTRODUCTION = """\
An editor completes and explains them with the JSON Schemas of `hpcrun profile schema` and
`hpcrun profile schema --config`."""


def page() -> str:
    """Return the page of all keys."""
    lines = [*markdown.head("All keys of profiles and config.yaml"), _INTRODUCTION, ""]
    lines += ["## Profiles", "", "[Profiles](profiles.md) says how files lie over each other.", ""]
    lines += _tables(profile_schema())
    lines += ["## config.yaml", "", "[Where it lies](profiles.md#layers).", ""]
    lines += _tables(config_schema())
    return "\n".join(lines)


def _tables(schema: Schema) -> list[str]:
    """Return a table of the keys of a schema, then one for each of its sections."""
    lines = _table(schema["properties"], "")
    places: dict[str, list[str]] = {}
    for place, name in _sections(schema["properties"], schema["$defs"], ""):
        places.setdefault(name, []).append(place)
    for name, unsorted in places.items():
        names = sorted(unsorted, key=lambda place: place.count("."))
        section = schema["$defs"][name]
        lines += ["### " + ", ".join(f"`{place}`" for place in names), ""]
        lines += [markdown.plain(section["description"]), ""]
        lines += _table(section["properties"], f"{names[0]}.")
    return lines


def _table(properties: Schema, before: str) -> list[str]:
    rows = []
    for name, key in properties.items():
        if name.endswith(EXTEND) or _section_of(key):
            continue
        default = key.get("default", "")
        shown = "" if default == "" else f"`{default}`".lower()
        rows.append((f"`{before}{name}`", _values(key), shown, markdown.plain(key["description"])))
    return markdown.table(["key", "value", "default", "meaning"], rows)


def _sections(properties: Schema, sections: Schema, before: str) -> list[tuple[str, str]]:
    """Return the places of sections, and the name of the schema of each."""
    places = []
    for key, value in properties.items():
        for name, place in ((_section_of(value), key), (_inner_section_of(value), f"{key}.NAME")):
            if name:
                places.append((before + place, name))
                places += _sections(sections[name]["properties"], sections, f"{before}{place}.")
    return places


def _forms(key: Schema) -> list[Schema]:
    return [form for form in key.get("anyOf", [key]) if form.get("type") != "null"]


def _section_of(key: Schema) -> str:
    """Return the name of the schema of a key that is a section, else nothing."""
    for form in _forms(key):
        if "$ref" in form:
            return str(form["$ref"].rpartition("/")[2])
    return ""


def _inner_section_of(key: Schema) -> str:
    """Return the name of the schema of the sections below a key under any names, else nothing."""
    for form in _forms(key):
        for pattern in form.get("patternProperties", {}).values():
            return _section_of(pattern)
    return ""


def _values(key: Schema) -> str:
    words = []
    for form in _forms(key):
        if "enum" in form:
            words += [f"`{value}`" for value in form["enum"]]
        elif form.get("type") == "boolean":
            words.append("`true`, `false`")
        elif form.get("type") == "array":
            words.append("list")
        elif form.get("type") == "object":
            words.append("mapping")
    return ", ".join(words)
