"""The words with which ``documents.py`` beside the commands describes their JSON documents.

A shape looks like the document: a dict for an object, a list with one shape for an array, a text
for itself, and a type for a value. ``{str: SHAPE}`` is an object with any names. A record's class
stands for an object with all of its fields, as ``asdict`` makes it. ``hpcrun skill --schema``
makes a JSON Schema of a shape.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

Shape = Any
Documents = Mapping[str, tuple[Mapping[str, Shape], ...]]
"""Name of a command → the documents that it prints."""


@dataclass(frozen=True, slots=True)
class Attribute:
    """The type that a record's class gives to one of its attributes."""

    record: type
    name: str


@dataclass(frozen=True, slots=True)
class SometimesThere:
    """A field that a document may lack."""

    shape: Shape


@dataclass(frozen=True, slots=True)
class OneOf:
    """One of several shapes."""

    shapes: tuple[Shape, ...]


@dataclass(frozen=True, slots=True)
class OrNull:
    """A shape, or null."""

    shape: Shape


@dataclass(frozen=True, slots=True)
class SetFieldsOnly:
    """A model of pydantic of which the document has only the fields that are set."""

    model: type


def of(record: type, names: str) -> dict[str, Shape]:
    """Return the shape of what ``views.text.fields_of`` returns for a record."""
    return {name: Attribute(record, name) for name in names.split()}


def all_of(record: Any, without: str = "") -> dict[str, Shape]:
    """Return the shape of all fields of a dataclass except those that are named."""
    names = [each.name for each in fields(record) if each.name not in without.split()]
    return of(record, " ".join(names))
