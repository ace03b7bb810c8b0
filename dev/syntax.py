"""What a Python file binds and annotates: for `dev/mutants.py` and `dev/size.py`."""

from __future__ import annotations

import ast
from collections.abc import Iterator

_NAMED = (
    ast.FunctionDef
    | ast.AsyncFunctionDef
    | ast.ClassDef
    | ast.MatchAs
    | ast.MatchStar
    | ast.ExceptHandler
)


def left_out_spans(tree: ast.Module) -> Iterator[tuple[tuple[int, int], tuple[int, int]]]:
    """Yield where each annotation and decorator begins and ends, by line and column.

    Nothing reads an annotation when the program runs; a dataclass that is no longer frozen does the
    same.
    """
    for node in ast.walk(tree):
        annotations = [getattr(node, "annotation", None), getattr(node, "returns", None)]
        for expression in (*annotations, *getattr(node, "decorator_list", [])):
            if (
                isinstance(expression, ast.expr)
                and expression.end_lineno is not None
                and expression.end_col_offset is not None
            ):
                yield (
                    (expression.lineno, expression.col_offset),
                    (expression.end_lineno, expression.end_col_offset),
                )


def is_python(source: str) -> bool:
    """Return whether Python can read a text as a program."""
    try:
        ast.parse(source)
    except SyntaxError:
        return False
    return True


def bound_names(tree: ast.Module) -> Iterator[tuple[str, int]]:
    """Yield each name that a file gives to a value, a parameter, an attribute, a function or a
    class, and its line.
    """
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id, node.lineno
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.attr, node.lineno
        elif isinstance(node, ast.arg):
            yield node.arg, node.lineno
        elif isinstance(node, _NAMED) and node.name:
            yield node.name, node.lineno
