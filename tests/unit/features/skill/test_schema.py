"""The JSON Schema of a shape, and that the check of documents can fail."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import pytest
from jsonschema import Draft202012Validator
from pydantic import BaseModel

from hpcrun.features.skill.schema import NoShapeError, annotation_of, shape_schema
from hpcrun.views.shapes import OrNull, SetFieldsOnly, Shape, SometimesThere, all_of, of
from tests.documents import errors_in

if TYPE_CHECKING:
    from fractions import Fraction


class Colour(Enum):
    RED = "red"


class Section(BaseModel):
    size: int = 1


@dataclass
class Tree:
    name: str
    inner: Tree | None = None


@dataclass
class Record:
    name: str
    number: int | None
    checked: Fraction | None = None

    @property
    def twice(self) -> float:
        return 2.0


@pytest.mark.parametrize(
    ("shape", "good", "bad"),
    [
        ("plan", ["plan"], ["submitted", None]),
        (True, [True], [False]),
        (str, ["x"], [1, None]),
        (int, [1], [1.5, "1"]),
        (float, [1, 1.5], ["1"]),
        (bool, [True], [0]),
        (Path, ["/x"], [1]),
        (int | None, [1, None], ["1"]),
        (Literal["a", "b"], ["a"], ["c"]),
        (Colour, ["red"], ["RED"]),
        (Any, [1, None, "x", {}], []),
        ([int], [[], [1]], [["1"], 1]),
        (tuple[int, ...], [[1, 2]], [["1"]]),
        (tuple[str, int], [["a", 1]], [["a"], [1, "a"], ["a", 1, 1]]),
        (Sequence[str], [["a"]], [[1]]),
        (Mapping[str, int], [{"a": 1}], [{"a": "1"}]),
        ({str: int}, [{"a": 1}], [{"a": "1"}]),
        ({"a": int}, [{"a": 1}, {"a": 1, "new": 2}], [{}, {"a": "1"}]),
        ({"a": SometimesThere(int)}, [{}, {"a": 1}], [{"a": None}]),
        (OrNull({"a": int}), [None, {"a": 1}], [{}]),
        (of(Record, "name twice"), [{"name": "x", "twice": 2}], [{"name": "x"}]),
        (all_of(Record, without="checked"), [{"name": "x", "number": None}], [{"name": "x"}]),
        (Section, [{"size": 2}], [{}, {"size": "2"}]),
        (SetFieldsOnly(Section), [{}, {"size": 2}], [{"size": "2"}]),
    ],
    ids=str,
)
def test_a_schema_takes_what_the_shape_means(
    shape: Shape, good: list[object], bad: list[object]
) -> None:
    validator = Draft202012Validator(shape_schema(shape))
    assert [value for value in good if not validator.is_valid(value)] == []
    assert [value for value in bad if validator.is_valid(value)] == []


def test_a_record_may_contain_itself() -> None:
    validator = Draft202012Validator(shape_schema({"tree": Tree}))
    assert validator.is_valid({"tree": {"name": "a", "inner": {"name": "b", "inner": None}}})
    assert not validator.is_valid({"tree": {"name": "a", "inner": {"name": 1, "inner": None}}})


def test_a_type_that_only_type_checkers_import_is_found() -> None:
    from fractions import Fraction

    assert annotation_of(Record, "checked") == Fraction | None


@pytest.mark.parametrize("shape", [of(Record, "checked"), of(Record, "none"), {"a": object()}])
def test_what_json_cannot_say_is_an_error(shape: Shape) -> None:
    with pytest.raises(NoShapeError):
        shape_schema(shape)


FOLDER = {"path": "/home/a/p", "state": "trusted", "files": 2}


@pytest.mark.parametrize(
    ("document", "error"),
    [
        ({"schema": 1, "kind": "trust", "folders": [FOLDER]}, ""),
        ({"schema": 1, "error": {"message": "x", "hint": None, "exit_code": 2}}, ""),
        ({"schema": 1, "kind": "trust", "folders": [{**FOLDER, "new": 1}]}, "was unexpected"),
        ({"schema": 1, "kind": "trust", "folders": [{**FOLDER, "path": 1}]}, "1 is not of type"),
        ({"schema": 1, "kind": "trust", "folders": [{**FOLDER, "state": "x"}]}, "'x' is not one"),
        ({"schema": 1, "kind": "trust"}, "'folders' is a required property"),
        ({"schema": 1, "kind": "trusted"}, "no document of kind 'trusted'"),
        ({"schema": 1, "error": {"message": "x"}}, "'hint' is a required property"),
    ],
)
def test_the_check_of_documents_finds_what_the_schema_does_not_say(
    document: dict[str, Any], error: str
) -> None:
    errors = errors_in("profile trust", document)
    assert bool(errors) == bool(error)
    assert error in "\n".join(errors)
