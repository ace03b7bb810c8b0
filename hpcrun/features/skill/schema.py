"""The JSON Schema of what a command prints with ``--json``.

The schemas are made from the documents' shapes, and these take types from the classes of the
program's records.
"""

from __future__ import annotations

import ast
import inspect
import json
import sys
import types
import typing
from collections import abc
from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass
from enum import Enum
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path, PurePath
from typing import Any, Literal

from pydantic import BaseModel

from hpcrun.cli.commands import COMMANDS, Command
from hpcrun.cli.output import JSON_SCHEMA
from hpcrun.views.shapes import (
    Attribute,
    Documents,
    OneOf,
    OrNull,
    SetFieldsOnly,
    Shape,
    SometimesThere,
)

Schema = dict[str, Any]

_DIALECT = "https://json-schema.org/draft/2020-12/schema"
_WIDTH = 100  # columns of a line of the text
_SCALARS: dict[Any, str] = {
    type(None): "null",
    bool: "boolean",
    int: "integer",
    float: "number",
    str: "string",
    bytes: "string",
}
_ARRAYS = (list, tuple, set, frozenset, abc.Sequence, abc.Collection, abc.Iterable)
_OBJECTS = (dict, abc.Mapping)


@dataclass(frozen=True, slots=True)
class DocumentError:
    """Why a command failed, in each of its documents."""

    message: str
    hint: str | None
    exit_code: int


class NoShapeError(Exception):
    """A type, or a part of a shape, has no JSON Schema."""


def documents_of(name: str, command: Command) -> tuple[Mapping[str, Shape], ...]:
    """Return the shapes of the documents of a command; none if it has no ``--json``."""
    package = command.module.removeprefix("hpcrun.")
    folder = ".".join(package.split(".")[:2]) if package.startswith("features.") else "cli"
    module = f"hpcrun.{folder}.documents"
    if find_spec(module) is None:
        return ()
    documents: Documents = import_module(module).DOCUMENTS
    return documents.get(name, ())


def commands_with_documents() -> list[str]:
    """Return the names of the commands that print a document, in the order of the help."""
    return [name for name, command in COMMANDS.items() if documents_of(name, command)]


def command_schema(name: str) -> Schema:
    """Return the JSON Schema of what a command prints with ``--json``.

    Later versions may add fields, which the schema allows.

    Raises:
        KeyError: there is no command of this name.
    """
    choices = []
    for shape in documents_of(name, COMMANDS[name]):
        choices.append({"schema": JSON_SCHEMA, "error": SometimesThere(DocumentError), **shape})
    choices.append({"schema": JSON_SCHEMA, "error": DocumentError})
    return {
        "$schema": _DIALECT,
        "title": f"hpcrun {name} --json",
        **shape_schema(OneOf(tuple(choices))),
    }


def shape_schema(shape: Shape) -> Schema:
    """Return the JSON Schema of a shape, with the definitions of its classes.

    Raises:
        NoShapeError: a part of it has no JSON Schema.
    """
    builder = _SchemaBuilder()
    schema = builder.of_shape(shape)
    return {**schema, "$defs": dict(sorted(builder.definitions.items()))}


def schema_text(name: str) -> str:
    """Return the schema of a command as JSON in which short parts have one line.

    Raises:
        KeyError: there is no command of this name.
    """
    return "\n".join([*_lines(command_schema(name)), ""])


def _lines(value: Any, depth: int = 0) -> list[str]:
    """Return the lines of a value in JSON, indented from its first line on."""
    short = json.dumps(value, ensure_ascii=False)
    has_parts = isinstance(value, dict)
    if isinstance(value, list) and value:
        has_parts = isinstance(value[0], dict)
    if depth + len(short) <= _WIDTH or not has_parts:
        return [short]
    parts = []
    if isinstance(value, dict):
        opening, closing = "{}"
        for key, inner in value.items():
            first, *rest = _lines(inner, depth + 1)
            parts.append([f"{json.dumps(key)}: {first}", *rest])
    else:
        opening, closing = "[]"
        parts = [_lines(inner, depth + 1) for inner in value]
    lines = [opening]
    for part in parts:
        lines += [f" {line}" for line in part]
        lines[-1] += ","
    lines[-1] = lines[-1].removesuffix(",")
    return [*lines, closing]


class _SchemaBuilder:
    """The schemas of shapes, with one definition for each class."""

    def __init__(self) -> None:
        self.definitions: dict[str, Schema] = {}

    def of_shape(self, shape: Shape) -> Schema:
        if isinstance(shape, Mapping):
            return self._object(shape)
        if isinstance(shape, list):
            return {"type": "array", "items": self.of_shape(shape[0])}
        if isinstance(shape, str | int):
            return {"const": shape}
        if isinstance(shape, OneOf):
            return {"anyOf": [self.of_shape(choice) for choice in shape.shapes]}
        if isinstance(shape, OrNull):
            return _any_of([self.of_shape(shape.shape), {"type": "null"}])
        if isinstance(shape, Attribute):
            return self.of_type(annotation_of(shape.record, shape.name))
        if isinstance(shape, SetFieldsOnly):
            return self._model(shape.model, needed=False)
        return self.of_type(shape)

    def of_type(self, annotation: Any) -> Schema:
        if annotation in (Any, object):
            return {}
        if annotation in _SCALARS:
            return {"type": _SCALARS[annotation]}
        origin = typing.get_origin(annotation)
        if origin is None:
            return self._class(annotation)
        arguments = typing.get_args(annotation)
        if origin is typing.Annotated:
            return self.of_type(arguments[0])
        if origin is Literal:
            return {"enum": list(arguments)}
        if origin in (typing.Union, types.UnionType):
            return _any_of([self.of_type(argument) for argument in arguments])
        if origin in _OBJECTS:
            return {"type": "object", "additionalProperties": self.of_type(arguments[1])}
        if origin is tuple and arguments[-1] is not Ellipsis:
            return _fixed_array([self.of_type(argument) for argument in arguments])
        if origin in _ARRAYS:
            return {"type": "array", "items": self.of_type(arguments[0])}
        raise NoShapeError(f"{annotation} has no JSON Schema")

    def _object(self, shape: Mapping[Any, Shape]) -> Schema:
        if str in shape:
            return {"type": "object", "additionalProperties": self.of_shape(shape[str])}
        properties = {}
        required = []
        for name, field in shape.items():
            if isinstance(field, SometimesThere):
                properties[name] = self.of_shape(field.shape)
            else:
                properties[name] = self.of_shape(field)
                required.append(name)
        return {"type": "object", "properties": properties, "required": required}

    def _class(self, cls: Any) -> Schema:
        if not isinstance(cls, type):
            raise NoShapeError(f"{cls} has no JSON Schema")
        if issubclass(cls, PurePath):
            return {"type": "string"}
        if issubclass(cls, Enum):
            return {"enum": [member.value for member in cls]}
        if issubclass(cls, BaseModel):
            return self._model(cls, needed=True)
        if is_dataclass(cls):
            return self._record(cls)
        if hasattr(cls, "_fields"):  # a NamedTuple
            return _fixed_array([self.of_shape(Attribute(cls, name)) for name in cls._fields])
        if cls in _OBJECTS:
            return {"type": "object"}
        raise NoShapeError(f"{cls} has no JSON Schema")

    def _record(self, cls: Any) -> Schema:
        name = cls.__name__
        if name not in self.definitions:
            self.definitions[name] = {}  # it may contain itself
            shape = {each.name: Attribute(cls, each.name) for each in fields(cls)}
            self.definitions[name] = self._object(shape)
        return {"$ref": f"#/$defs/{name}"}

    def _model(self, model: type, *, needed: bool) -> Schema:
        """Return the schema of a model; ``needed``: the document has all of its fields."""
        assert issubclass(model, BaseModel)
        schema = model.model_json_schema(mode="serialization", ref_template="#/$defs/{model}")
        definitions = schema.pop("$defs", {})
        definitions[model.__name__] = schema
        for name, definition in definitions.items():
            definition["required"] = list(definition.get("properties", ())) if needed else []
            self.definitions[name] = definition
        return {"$ref": f"#/$defs/{model.__name__}"}


def _any_of(choices: list[Schema]) -> Schema:
    """Return the schema of one of several types; ``type`` alone where that says it."""
    names: list[str] = []
    for choice in choices:
        if set(choice) != {"type"}:
            return {"anyOf": choices}
        one_or_several = choice["type"]
        names += [one_or_several] if isinstance(one_or_several, str) else one_or_several
    return {"type": list(dict.fromkeys(names))}


def _fixed_array(items: list[Schema]) -> Schema:
    return {
        "type": "array",
        "prefixItems": items,
        "minItems": len(items),
        "maxItems": len(items),
    }


# --- the types of attributes ---------------------------------------------------------------------


def annotation_of(record: type, name: str) -> Any:
    """Return the type of a record's field or property.

    Raises:
        NoShapeError: the class says no type.
    """
    for cls in record.__mro__:
        member = vars(cls).get(name)
        function = member.fget if isinstance(member, property) else None
        annotation = vars(cls).get("__annotations__", {}).get(name)
        if function is not None:
            annotation = inspect.get_annotations(function).get("return")
        if annotation is not None:
            return _read(annotation, cls)
    raise NoShapeError(f"{record.__name__}.{name} has no type")


def _read(annotation: Any, cls: type) -> Any:
    if not isinstance(annotation, str):
        return annotation
    module = sys.modules[cls.__module__]
    try:
        return eval(annotation, vars(module))
    except NameError:  # a name that only type checkers import
        return eval(annotation, {**_names_for_checkers(module), **vars(module)})


def _names_for_checkers(module: types.ModuleType) -> dict[str, Any]:
    """Import what a module imports under ``if TYPE_CHECKING``."""
    assert module.__file__ is not None
    names: dict[str, Any] = {}
    for statement in ast.parse(Path(module.__file__).read_text("utf-8")).body:
        if isinstance(statement, ast.If) and ast.unparse(statement.test) == "TYPE_CHECKING":
            imports = ast.Module(body=statement.body, type_ignores=[])
            exec(compile(imports, module.__file__, "exec"), names)
    return names
