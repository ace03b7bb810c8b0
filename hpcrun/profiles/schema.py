"""The JSON Schema of a profile file, with which an editor completes and checks the file."""

from __future__ import annotations

from typing import Any

from hpcrun.profiles.load import EXTEND

_SCALAR = ["string", "number", "boolean"]


def profile_schema() -> dict[str, Any]:
    """Return the JSON Schema (2020-12) of a profile file.

    It is the schema of the model, with additions for files: ``extends``, ``null`` to remove, ``list+`` to extend, and
    unquoted numbers as text.
    """
    from hpcrun.job.profile import Profile

    model = Profile.model_json_schema()
    sections = {name: _section(section) for name, section in model.pop("$defs", {}).items()}
    schema = _section(model)
    schema["properties"].pop("name", None)
    for section in (schema, sections["GpuTypeSection"]):  # "card: gpu/a100" takes the card of a part
        section["properties"]["card"]["anyOf"].insert(0, {"type": "string"})
    names = {"type": "array", "items": {"type": "string"}}
    extends = {"description": "The profiles and parts this one lies over.", "anyOf": [{"type": "string"}, names]}
    schema["properties"] = {"extends": extends, **schema["properties"]}
    schema.pop("required", None)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **schema,
        "title": "hpcrun cluster profile",
        "$defs": sections,
    }


def _section(section: dict[str, Any]) -> dict[str, Any]:
    if "properties" not in section:
        return section
    properties: dict[str, Any] = {}
    for name, value in section["properties"].items():
        properties[name] = _value(value)
        if _has_list(value):
            properties[name + EXTEND] = {**_as_written(value), "description": f"Added to the {name} that are there."}
    return {**section, "properties": properties, "additionalProperties": False}


def _has_list(value: dict[str, Any]) -> bool:
    return value.get("type") == "array" or any(_has_list(option) for option in value.get("anyOf", []))


def _value(value: dict[str, Any]) -> dict[str, Any]:
    """Return a property that may also be null."""
    kept: dict[str, Any] = {key: value[key] for key in ("title", "description", "default") if key in value}
    options = value.get("anyOf") or [{key: item for key, item in value.items() if key not in kept}]
    written = [_as_written(option) for option in options if option.get("type") != "null"]
    return {**kept, "anyOf": [*written, {"type": "null"}]}


def _as_written(value: dict[str, Any]) -> dict[str, Any]:
    """Return a value's schema in the form of the file: ``account: 0042`` is text, ``max: 1-00:00:00`` is a time."""
    if "enum" in value or "const" in value or "$ref" in value:
        return value
    if value.get("type") in ("string", "integer", "number"):
        return {key: item for key, item in value.items() if key != "type"} | {"type": ["string", "number"]}
    if value.get("type") == "array" and "items" in value:
        return {**value, "items": _as_written(value["items"])}
    if value.get("type") == "object" and "additionalProperties" in value:
        inner = value["additionalProperties"]
        written = _as_written(inner) if isinstance(inner, dict) and inner.get("type") else {"type": _SCALAR}
        return {**value, "additionalProperties": {"anyOf": [written, {"type": "null"}]}}
    return value
