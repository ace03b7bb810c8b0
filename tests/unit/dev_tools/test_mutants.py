"""Which places of a file `make mutants` leaves alone, and what runs in its copies."""

from __future__ import annotations

import ast
import subprocess
from pathlib import Path

from dev.copies import make_environment
from dev.syntax import is_python, left_out_spans

SOURCE = """\
@dataclass(frozen=True)
class Record:
    name: str | None = None

def wait(seconds: int = 60) -> int | None:
    return start(seconds)
"""


def test_annotations_and_decorators_are_left_alone() -> None:
    spans = left_out_spans(ast.parse(SOURCE))
    lines = SOURCE.splitlines()
    texts = [lines[first[0] - 1][first[1] : last[1]] for first, last in spans]
    assert sorted(texts) == ["dataclass(frozen=True)", "int", "int | None", "str | None"]


def test_a_star_that_was_made_an_operator_is_no_python() -> None:
    assert is_python("def f(*, a): return a")
    assert not is_python("def f(%, a): return a")


def test_programs_of_a_copy_import_the_copy(tmp_path: Path) -> None:
    (tmp_path / "hpcrun").mkdir()
    (tmp_path / "hpcrun/__init__.py").touch()
    make_environment(tmp_path)
    python = [
        str(tmp_path / ".venv/bin/python"),
        "-c",
        "import hpcrun, pytest; print(hpcrun.__file__)",
    ]
    done = subprocess.run(python, cwd="/", capture_output=True, text=True, check=True)
    assert done.stdout == f"{tmp_path}/hpcrun/__init__.py\n"
