"""What runs inside a job runs with Python 3.9, which a job's own Python may be."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from hpcrun import in_job

FOLDER = Path(in_job.__file__).parent
PROGRAMS = sorted(FOLDER.rglob("*.py"))


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: str(path.relative_to(FOLDER)))
def test_zip_is_called_without_strict_which_is_new_in_python_3_10(path: Path) -> None:
    tree = ast.parse(path.read_text("utf-8"), feature_version=(3, 9))
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    of_zip = [call for call in calls if isinstance(call.func, ast.Name) and call.func.id == "zip"]
    assert [call.lineno for call in of_zip if call.keywords] == []
