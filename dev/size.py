"""How large the house is, against the limits in pyproject.toml: ``python -m dev.size``; ``-v`` names the places.

It counts what one person has to carry: files, lines, imports that hide in functions, circles, names that say nothing,
words of docs. It exits with 1 where a number is above its limit.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from dev.syntax import bound_names, code_lines

REPO = Path(__file__).resolve().parents[1]
FEATURES = ("hpcrun/explain/", "hpcrun/features/")
"""What the core is counted without."""
VAGUE = frozenset("found word said asked look told own hear stay".split())
"""Names that do not say what a value is."""


@dataclass(frozen=True, slots=True)
class Source:
    """A Python file: its path in the repository, its text and its syntax tree."""

    path: str
    text: str
    tree: ast.Module

    @property
    def lines(self) -> int:
        """How many lines it has."""
        return self.text.count("\n")

    @property
    def module(self) -> str:
        """Its name for an import, such as ``hpcrun.job.plan``."""
        return self.path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def main() -> int:
    """Print each number beside its limit; return the exit status."""
    section = (REPO / "pyproject.toml").read_text("utf-8").partition("[tool.size]\n")[2].partition("\n\n")[0]
    limits = {name: int(number) for name, number in re.findall(r"^(\S+) = (\d+)$", section, re.MULTILINE)}
    above = False
    for name, measure in MEASURES.items():
        places = measure()
        number = places if isinstance(places, int) else len(places)
        above |= number > limits[name]
        print(f"{name:<16} {number:>6}   at most {limits[name]}{'   ABOVE ITS LIMIT' if number > limits[name] else ''}")
        if "-v" in sys.argv and not isinstance(places, int):
            print(*(f"  {place}" for place in places), sep="\n")
    return above


def sources(folder: str) -> list[Source]:
    """Return the Python files below a folder of the repository, by path."""
    paths = sorted(path for path in (REPO / folder).rglob("*.py") if "data" not in path.relative_to(REPO).parts)
    texts = {path.relative_to(REPO).as_posix(): path.read_text("utf-8") for path in paths}
    return [Source(path, text, ast.parse(text)) for path, text in texts.items()]


def own_imports(source: Source, modules: Mapping[str, Source]) -> Iterator[tuple[str, ast.stmt]]:
    """Yield the modules of the house that a file imports, types included, with the statement that does it."""
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Import):
            names: Iterable[str] = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
            names = [name if name in modules else node.module for name in names]
        else:
            continue
        yield from ((name, node) for name in dict.fromkeys(names) if name in modules)


def circles(graph: Mapping[str, Iterable[str]]) -> list[list[str]]:
    """Return the groups of nodes that reach each other (Tarjan's strongly connected components of two and more)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    groups: list[list[str]] = []

    def visit(node: str) -> None:
        index[node] = low[node] = len(index)
        stack.append(node)
        for other in graph[node]:
            if other not in index:
                visit(other)
                low[node] = min(low[node], low[other])
            elif other in stack:
                low[node] = min(low[node], index[other])
        if low[node] == index[node]:
            place = stack.index(node)
            if len(stack) > place + 1:
                groups.append(sorted(stack[place:]))
            del stack[place:]

    for node in graph:
        if node not in index:
            visit(node)
    return groups


def _house() -> dict[str, Source]:
    return {source.module: source for source in sources("hpcrun")}


def _circles() -> list[str]:
    house = _house()
    graph = {name: {other for other, _ in own_imports(source, house)} - {name} for name, source in house.items()}
    return [" ".join(group) for group in circles(graph)]


def _lazy_imports() -> list[str]:
    house = _house()
    return [
        f"{source.path}:{statement.lineno} {name}"
        for source in house.values()
        for name, statement in own_imports(source, house)
        if statement.col_offset and not _for_types(source, statement)
    ]


def _for_types(source: Source, statement: ast.stmt) -> bool:
    blocks = (node for node in source.tree.body if isinstance(node, ast.If))
    return any(statement in block.body for block in blocks)


def _vague_names() -> list[str]:
    return [
        f"{source.path}:{line} {name}"
        for folder in ("hpcrun", "dev", "benchmarks", "examples")
        for source in sources(folder)
        for name, line in bound_names(source.tree)
        if name in VAGUE
    ]


def _words_of_docs() -> int:
    pages = [REPO / "README.md", REPO / "CONTRIBUTING.md", *(REPO / "docs").rglob("*.md")]
    return sum(len(re.findall(r"\S+", page.read_text("utf-8"))) for page in pages)


def _core() -> list[Source]:
    return [source for source in sources("hpcrun") if not source.path.startswith(FEATURES)]


MEASURES: dict[str, Callable[[], int | list[str]]] = {
    "files": lambda: len(sources("hpcrun")),
    "lines": lambda: sum(source.lines for source in sources("hpcrun")),
    "core-lines": lambda: sum(source.lines for source in _core()),
    "code-lines": lambda: sum(len(code_lines(source.text, source.tree)) for source in sources("hpcrun")),
    "test-lines": lambda: sum(source.lines for source in sources("tests")),
    "circles": _circles,
    "lazy-imports": _lazy_imports,
    "vague-names": _vague_names,
    "words-of-docs": _words_of_docs,
}
"""Each number, or the places that it counts; its limit has the same name in pyproject.toml."""


if __name__ == "__main__":
    sys.exit(main())
