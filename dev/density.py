"""How densely Python code is written: what a reader has to keep in mind for each statement.

Lines say little about size, since they change with the layout. Tokens and statements do not:
docs/decisions/0042-size-is-counted-in-tokens.md has the reasons.
"""

from __future__ import annotations

import ast
import io
import tokenize
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

LONG_LINE = 100
LONG_COMPREHENSION = 80
_LAYOUT = frozenset(
    {
        tokenize.COMMENT,
        tokenize.NL,
        tokenize.NEWLINE,
        tokenize.INDENT,
        tokenize.DEDENT,
        tokenize.ENDMARKER,
        tokenize.ENCODING,
    }
)
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_COMPREHENSIONS = (ast.GeneratorExp, ast.ListComp, ast.DictComp, ast.SetComp)
_BRANCHES = (ast.If, ast.For, ast.AsyncFor, ast.While, ast.ExceptHandler, ast.match_case)


@dataclass
class Density:
    """What was counted in some files: numbers by name, and the most paths of one function."""

    count: Counter[str] = field(default_factory=Counter)
    most_paths: int = 0

    def add(self, path: Path) -> None:
        """Count a file."""
        text = path.read_text("utf-8")
        lines = text.splitlines()
        self.count["lines"] += len(lines)
        self.count["long lines"] += sum(len(line) > LONG_LINE for line in lines)
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.type not in _LAYOUT:
                self.count["tokens"] += 1
        for node in ast.walk(ast.parse(text)):
            self._add_node(node, text)

    def _add_node(self, node: ast.AST, text: str) -> None:
        if isinstance(node, ast.stmt) and not _is_docstring(node):
            self.count["statements"] += 1
        if isinstance(node, ast.IfExp):
            self.count["conditional expressions"] += 1
            if isinstance(node.body, ast.IfExp) or isinstance(node.orelse, ast.IfExp):
                self.count["nested"] += 1
        elif isinstance(node, _COMPREHENSIONS) and _is_long(node, text):
            self.count["long comprehensions"] += 1
        elif isinstance(node, _FUNCTIONS):
            self.most_paths = max(self.most_paths, paths(node))

    def tokens_per_statement(self) -> float:
        """Return how much one statement says."""
        return self.count["tokens"] / max(1, self.count["statements"])

    def per_thousand_lines(self, name: str) -> float:
        """Return one of the numbers for each 1,000 lines."""
        return 1000 * self.count[name] / max(1, self.count["lines"])


def density_of(files: Iterable[Path]) -> Density:
    """Return what is counted in these files together."""
    density = Density()
    for path in files:
        density.add(path)
    return density


def paths(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Return the number of paths through a function, with those that expressions hide.

    Ruff's C901 counts statements alone; here ``and``, ``or``, ``x if y else z`` and the parts of a
    comprehension count as well.
    """
    number = 1
    for node in _own_nodes(function):
        if isinstance(node, (*_BRANCHES, ast.IfExp)):
            number += 1
        elif isinstance(node, ast.BoolOp):
            number += len(node.values) - 1
        elif isinstance(node, ast.comprehension):
            number += 1 + len(node.ifs)
    return number


def _own_nodes(function: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[ast.AST]:
    """Yield the nodes of a function without those of functions and classes inside it."""
    waiting: list[ast.AST] = list(function.body)
    while waiting:
        node = waiting.pop()
        yield node
        for child in ast.iter_child_nodes(node):
            if not isinstance(child, (*_FUNCTIONS, ast.ClassDef)):
                waiting.append(child)


def _is_docstring(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _is_long(node: ast.GeneratorExp | ast.ListComp | ast.DictComp | ast.SetComp, text: str) -> bool:
    if len(node.generators) > 1:
        return True
    is_on_one_line = node.lineno == node.end_lineno
    if is_on_one_line and (node.end_col_offset or 0) - node.col_offset <= LONG_COMPREHENSION:
        return False  # the segment would be slow to get
    segment = ast.get_source_segment(text, node) or ""
    return len(" ".join(segment.split())) > LONG_COMPREHENSION
