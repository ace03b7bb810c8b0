"""What `python -m dev.size` counts."""

from __future__ import annotations

import ast

from dev.size import circles
from dev.syntax import bound_names, code_lines

TEXT = '''"""A module."""

import os  # not counted

# neither is this


def first(word, *, size=1):
    """Say so."""
    text = """two
    lines"""
    for found in word:
        text += found
    return text
'''


def test_a_circle_is_found_whatever_leads_into_it() -> None:
    graph = {"start": ["a"], "a": ["b"], "b": ["c", "leaf"], "c": ["a"], "leaf": [], "other": ["start"]}
    assert circles(graph) == [["a", "b", "c"]]


def test_lines_of_code_have_no_imports_comments_or_docstrings() -> None:
    assert sorted(code_lines(TEXT, ast.parse(TEXT))) == [8, 10, 11, 12, 13, 14]


def test_parameters_and_targets_are_names_that_a_file_binds() -> None:
    names = [name for name, _ in bound_names(ast.parse(TEXT))]
    assert sorted(set(names)) == ["first", "found", "size", "text", "word"]
