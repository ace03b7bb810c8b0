"""Which places of a file `make mutants` leaves alone."""

from __future__ import annotations

import ast

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
