"""What runs inside a job runs with Python 3.9, which a job's own Python may be."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import hpcrun

FOLDER = Path(hpcrun.__file__).parent
PROGRAMS = [*FOLDER.glob("in_job/**/*.py"), *FOLDER.glob("features/*/hpcrun_*.py")]
EACH_PROGRAM = pytest.mark.parametrize(
    "path", sorted(PROGRAMS), ids=lambda path: str(path.relative_to(FOLDER))
)


def calls_of(name: str, path: Path) -> list[ast.Call]:
    tree = ast.parse(path.read_text("utf-8"), feature_version=(3, 9))
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    return [call for call in calls if isinstance(call.func, ast.Name) and call.func.id == name]


@EACH_PROGRAM
def test_zip_is_called_without_strict_which_is_new_in_python_3_10(path: Path) -> None:
    assert [call.lineno for call in calls_of("zip", path) if call.keywords] == []


@EACH_PROGRAM
def test_isinstance_is_called_without_a_union_which_is_new_in_python_3_10(path: Path) -> None:
    calls = calls_of("isinstance", path)
    assert [call.lineno for call in calls if isinstance(call.args[1], ast.BinOp)] == []
