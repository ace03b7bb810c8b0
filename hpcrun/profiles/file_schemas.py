"""The JSON Schemas of profile files and of ``config.yaml``: for editors, and for completion.

Every key has a description, the docstring of the attribute that holds its value.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hpcrun.job import profile_model
from hpcrun.profiles import config_model
from hpcrun.profiles.key_docs import attribute_docs
from hpcrun.profiles.yaml_file import EXTEND

Schema = dict[str, Any]
_DIALECT = "https://json-schema.org/draft/2020-12/schema"
_WRITTEN_DEFAULTS = {("RequeueSection", "warn"): "120s"}
"""The defaults that a file has in another form than the model."""
_SCALAR = ["string", "number", "boolean"]


def profile_schema() -> Schema:
    """Return the JSON Schema (2020-12) of a profile file.

    It is the schema of the model, with additions for files: ``extends``, ``null`` to remove,
    ``list+`` to extend, and unquoted numbers as text.
    """
    schema, sections = _described(profile_model.Profile, profile_model)
    for section in (schema, *sections.values()):
        section["properties"] = _inherited(section["properties"])
    schema["properties"].pop("name")
    # "card: gpu/a100" takes the card of a part
    for section in (schema, sections["GpuTypeSection"]):
        section["properties"]["card"]["anyOf"].insert(0, {"type": "string"})
    names = {"type": "array", "items": {"type": "string"}}
    extends = {
        "description": "The profiles and parts this one lies over.",
        "anyOf": [{"type": "string"}, names],
    }
    schema["properties"] = {"extends": extends, **schema["properties"]}
    return _document("hpcrun cluster profile", schema, sections)


def config_schema() -> Schema:
    """Return the JSON Schema (2020-12) of ``config.yaml``."""
    schema, sections = _described(config_model.ConfigFile, config_model)
    for section in (schema, *sections.values()):
        for name, value in section["properties"].items():
            section["properties"][name] = _as_written(value)
    return _document("hpcrun configuration", schema, sections)


def _document(title: str, schema: Schema, sections: Mapping[str, Schema]) -> Schema:
    return {"$schema": _DIALECT, **schema, "title": title, "$defs": sections}


def _described(model: Any, module: Any) -> tuple[Schema, dict[str, Schema]]:
    """Return the schema of a model of pydantic, and those of its sections by their classes.

    Every key and every section has a description. The titles, which only repeat the names, are
    left out, and so are defaults that mean that nothing is set.
    """
    schema: Schema = model.model_json_schema()
    sections: dict[str, Schema] = schema.pop("$defs", {})
    for section in (schema, *sections.values()):
        first = section["description"].partition("\n\n")[0]
        # a docstring's lines end where the code's layout wants it
        section["description"] = " ".join(first.split())
        section.pop("required", None)
        section.pop("title")
    for name, section in ((model.__name__, schema), *sections.items()):
        docs = attribute_docs(getattr(module, name))
        section["additionalProperties"] = False
        for key, value in section["properties"].items():
            of_section = sections.get(value.get("$ref", "").rpartition("/")[2], {})
            default = value.pop("default", None)
            default = _WRITTEN_DEFAULTS.get((name, key), default)
            value.pop("title", None)
            if isinstance(default, bool | int | str) and default != "":
                value["default"] = default
            description = docs.get(key) or of_section.get("description", "")
            section["properties"][key] = {"description": description, **value}
    return schema, sections


def _inherited(properties: Mapping[str, Schema]) -> dict[str, Schema]:
    """Return the properties of a section that lies over another one.

    Each may also be null, and a list may be extended.
    """
    written: dict[str, Schema] = {}
    for name, value in properties.items():
        of_key: Schema = {key: value.pop(key) for key in ("description", "default") if key in value}
        options = value.get("anyOf") or [value]
        forms = [_as_written(option) for option in options if option.get("type") != "null"]
        written[name] = {**of_key, "anyOf": [*forms, {"type": "null"}]}
        if _has_list(value):
            description = f"Added to the {name} that are there."
            written[name + EXTEND] = {"description": description, **_as_written(value)}
    return written


def _has_list(value: Schema) -> bool:
    if value.get("type") == "array":
        return True
    return any(_has_list(option) for option in value.get("anyOf", []))


def _as_written(value: Schema) -> Schema:
    """Return a value's schema in the form that the file has.

    In a file, ``account: 0042`` is text, and ``max: 1-00:00:00`` is a time.
    """
    if "enum" in value or "const" in value or "$ref" in value:
        return value
    if value.get("type") in ("string", "integer", "number"):
        rest = {key: item for key, item in value.items() if key != "type"}
        return {**rest, "type": ["string", "number"]}
    if value.get("type") == "array" and "items" in value:
        return {**value, "items": _as_written(value["items"])}
    if value.get("type") == "object" and "additionalProperties" in value:
        inner = value["additionalProperties"]
        if isinstance(inner, dict) and inner.get("type"):
            written = _as_written(inner)
        else:
            written = {"type": _SCALAR}
        return {**value, "additionalProperties": {"anyOf": [written, {"type": "null"}]}}
    return value
