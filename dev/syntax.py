"""What the lines of a Python file belong to, and the names that it binds: for
`dev/mutants/__main__.py` and
`dev/size.py`.
"""

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


def statement_lines(tree: ast.Module, line: int) -> range:
    """Return the lines of the innermost statement that a line belongs to; of one with a body, those
    before the body.
    """
    lines = range(line, line + 1)
    for node in ast.walk(tree):  # outer ones come first
        if isinstance(node, ast.stmt):
            body = getattr(node, "body", None)
            last = (
                body[0].lineno - 1
                if isinstance(body, list) and body
                else node.end_lineno or node.lineno
            )
            if node.lineno <= line <= last:
                lines = range(node.lineno, last + 1)
    return lines


def lines_that_use(tree: ast.Module, line: int) -> Iterator[int]:
    """Yield the lines that use what a line defines at import: a function's body, a constant's
    users, else all.
    """
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.FunctionDef)
            and node.lineno - len(node.decorator_list) <= line < node.body[0].lineno
        ):
            yield from range(node.body[0].lineno, (node.end_lineno or line) + 1)
            return
    defined = next(
        (node for node in _assignments(tree) if node.lineno <= line <= (node.end_lineno or line)),
        None,
    )
    if defined is not None:
        names = _targets(defined)
        while (
            more := {
                name for node in _assignments(tree) if _uses(node, names) for name in _targets(node)
            }
            - names
        ):
            names |= more  # a constant of which another is made
        yield from _uses(tree, names)
        return
    yield from range(1, (tree.body[-1].end_lineno or line) + 1)


def _assignments(tree: ast.Module) -> Iterator[ast.Assign | ast.AnnAssign]:
    return (node for node in tree.body if isinstance(node, ast.Assign | ast.AnnAssign))


def _targets(node: ast.Assign | ast.AnnAssign) -> set[str]:
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    return {
        name.id for target in targets for name in ast.walk(target) if isinstance(name, ast.Name)
    }


def _uses(tree: ast.AST, names: set[str]) -> list[int]:
    return [use.lineno for use in ast.walk(tree) if isinstance(use, ast.Name) and use.id in names]


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
