"""Which lines of a file `make mutants` takes for one, which places it leaves alone, and what it
notes.
"""

from __future__ import annotations

import ast
from pathlib import Path

from dev.mutants.results import (
    KILLED,
    OUT_OF_TIME,
    Mutant,
    Result,
    note,
    read_results,
    results_of,
    summary,
)
from dev.syntax import is_python, left_out_spans, lines_that_use, statement_lines

SOURCE = """\
WAIT_S = 60

@dataclass(frozen=True)
class Record:
    name: str | None = None

def wait(
    seconds: int = WAIT_S,
) -> int | None:
    if (
        seconds > 1
        and seconds < 9
    ):
        return start(
            seconds,
        )
    return None
"""
TREE = ast.parse(SOURCE)


def line_of(text: str) -> int:
    return next(number for number, line in enumerate(SOURCE.splitlines(), 1) if text in line)


def test_the_lines_of_a_statement() -> None:
    for line, first, last in (
        ("WAIT_S = 60", "WAIT_S = 60", "WAIT_S = 60"),
        ("and seconds < 9", "if (", "):"),
        ("            seconds,", "return start(", "        )"),
        ("return None", "return None", "return None"),
    ):
        lines = statement_lines(TREE, line_of(line))
        assert lines[0] == line_of(first)
        assert lines[-1] >= line_of(last) - 1  # the bracket that ends a condition may be left out
        assert line_of(line) in lines


LEAST = (
    "LEAST = 0\nKINDS = {'count': whole(LEAST)}\nALL = [KINDS]\ndef read(x):\n    return ALL[x]\n"
)


def test_a_constant_is_tested_where_it_is_used_and_a_default_by_the_function_s_own_lines() -> None:
    for text, line, used in (
        (SOURCE, 1, {1, line_of("seconds: int = WAIT_S")}),
        # two in a line
        ("MOST, LEAST = 300, 120\nOTHER = 1\ndef cut(text):\n    return text[:LEAST]\n", 1, {1, 4}),
        (LEAST, 1, {1, 2, 3, 5}),  # one that is made of another
    ):
        assert set(lines_that_use(ast.parse(text), line)) == used
    lines = set(lines_that_use(TREE, line_of("seconds: int = WAIT_S")))
    assert {line_of("return start("), line_of("return None")} <= lines
    assert 1 not in lines


def test_annotations_and_decorators_are_left_alone_and_a_star_made_an_operator_is_no_python() -> (
    None
):
    texts = [
        SOURCE.splitlines()[first[0] - 1][first[1] : last[1]]
        for first, last in left_out_spans(TREE)
    ]
    assert sorted(texts) == ["dataclass(frozen=True)", "int", "int | None", "str | None"]
    assert is_python("def f(*, a): return a")
    assert not is_python("def f(%, a): return a")


def test_what_is_noted_last_counts_and_a_stopped_run_leaves_the_rest_untried(
    tmp_path: Path,
) -> None:
    mutants = [Mutant("hpcrun/runs/log_files.py", line, "core/AddNot", 0) for line in (1, 2, 3)]
    noted = tmp_path / "noted"
    assert read_results(noted) == []
    note(Result(mutants[1], OUT_OF_TIME, "- a\n+ not a", 3), noted)
    note(Result(mutants[0], "survived", "- b\n+ not b", 2), noted)
    note(Result(mutants[1], KILLED, "- a\n+ not a", 3, "tests/unit/test_a.py::test_a"), noted)

    found = results_of(mutants, noted)

    assert [(result.mutant.line, result.outcome) for result in found] == [
        (1, "survived"),
        (2, "killed"),
    ]
    assert found[1].by == "tests/unit/test_a.py::test_a"
    said = summary(found, 7, 12.3)
    assert (
        said
        == "2 mutants (seed 7) in 12 s: 1 killed, 0 out of time, 1 survived, 0 untested; score "
        "50.0 %"
    )
