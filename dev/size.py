"""How large the house is, against the limits in pyproject.toml: ``python -m dev.size``.

With ``-v`` the places are named; names of measures choose some of them. It counts what one person
has to read (tokens and statements), how densely it is written, and where its structure fails:
circles, imports that go up or hide in functions, names that say nothing. It exits with 1 where a
number is above its limit.
"""

from __future__ import annotations

import argparse
import ast
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from importlinter import api

from dev.density import Density, density_of
from dev.syntax import bound_names

REPO = Path(__file__).resolve().parents[1]
JOB = "hpcrun.job"
"""The package whose rooms and arrows are counted."""
DIAGNOSIS = "hpcrun/explain/diagnosis/"
"""The folder of which the paths of functions are not counted."""
GENERATED = "<!-- Generated: "
"""The beginning of a page that a test writes: nobody reads it as a whole."""
VAGUE = frozenset("found word said asked look told own hear stay".split())
"""Names that do not say what a value is."""

Graph = Mapping[str, set[str]]
Places = list[str]
"""What ``-v`` prints: their number is the measure."""


@dataclass(frozen=True, slots=True)
class Source:
    """A Python file: its path in the repository, its module and its syntax tree."""

    path: str
    module: str
    is_package: bool
    tree: ast.Module


@dataclass(frozen=True, slots=True)
class Import:
    """A statement that imports a module of the house."""

    source: Source
    module: str
    line: int
    is_lazy: bool


def main() -> int:
    """Print each number beside its limit; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0], allow_abbrev=False)
    parser.add_argument("names", nargs="*", metavar="MEASURE", help="as they are printed")
    parser.add_argument("-v", dest="places", action="store_true", help="name the places")
    given = parser.parse_args()
    for name in given.names:
        if name not in MEASURES:
            parser.error(f"{name} is none of {', '.join(MEASURES)}")
    limits = read_limits((REPO / "pyproject.toml").read_text("utf-8"))
    above = False
    for name in given.names or MEASURES:
        result = MEASURES[name]()
        number = result if isinstance(result, int | float) else len(result)
        mark = ""
        if number > limits[name]:
            above = True
            mark = "   ABOVE ITS LIMIT"
        print(f"{name:<24} {number:>8.6g}   at most {limits[name]:g}{mark}")
        if given.places and isinstance(result, list):
            for place in result:
                print(f"  {place}")
    return int(above)


def read_limits(pyproject: str) -> dict[str, float]:
    """Return the limits of ``[tool.size]`` by name."""
    section = pyproject.partition("[tool.size]\n")[2].partition("\n\n")[0]
    rows = re.findall(r"^(\S+) = ([\d.]+)", section, re.MULTILINE)
    return {name: float(number) for name, number in rows}


def python_files(folder: str) -> list[Path]:
    """Return the Python files below a folder of the repository, by path, without recorded data."""
    files = sorted((REPO / folder).rglob("*.py"))
    return [path for path in files if "data" not in path.relative_to(REPO).parts]


def read_sources(folder: str) -> list[Source]:
    """Return the Python files below a folder, read."""
    sources = []
    for path in python_files(folder):
        name = path.relative_to(REPO).as_posix()
        module = name.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
        is_package = path.name == "__init__.py"
        sources.append(Source(name, module, is_package, ast.parse(path.read_text("utf-8"))))
    return sources


def imports_of(source: Source, modules: Mapping[str, Source]) -> Iterator[Import]:
    """Yield what a file imports from the house, relative imports and those for types included."""
    for node in ast.walk(source.tree):
        if not isinstance(node, ast.Import | ast.ImportFrom):
            continue
        names = dict.fromkeys(_imported_names(node, source, modules))
        is_lazy = node.col_offset > 0 and not _is_for_types(node, source)
        for name in names:
            if name in modules and name != source.module:
                yield Import(source, name, node.lineno, is_lazy)


def _imported_names(
    node: ast.Import | ast.ImportFrom, source: Source, modules: Mapping[str, Source]
) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    base = node.module or ""
    if node.level:
        parts = source.module.split(".")
        if not source.is_package:
            parts = parts[:-1]
        parts = parts[: len(parts) - node.level + 1]
        base = ".".join([*parts, base] if base else parts)
    names = []
    for alias in node.names:
        inner = f"{base}.{alias.name}"
        names.append(inner if inner in modules else base)
    return names


def _is_for_types(statement: ast.stmt, source: Source) -> bool:
    """Return whether an import stands in an ``if TYPE_CHECKING:`` of its file."""
    blocks = [node for node in source.tree.body if isinstance(node, ast.If)]
    return any(statement in block.body for block in blocks)


def circles(graph: Graph) -> list[list[str]]:
    """Return the groups of nodes that reach each other, two and more (Tarjan's algorithm)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    groups: list[list[str]] = []

    def visit(node: str) -> None:
        index[node] = low[node] = len(index)
        stack.append(node)
        for other in sorted(graph.get(node, ())):
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


def upward(graph: Graph, layers: list[str], ignored: list[str]) -> Places:
    """Return the imports that go from a lower layer to a higher one, or between equals.

    Args:
        graph: module → modules that it imports.
        layers: packages, the highest first; ``a | b`` are equals that do not know each other.
        ignored: ``importer -> imported``, where ``.*`` at the end stands for all modules below.
    """
    floors: dict[str, tuple[int, str]] = {}
    for floor, layer in enumerate(layers):
        for package in layer.split(" | "):
            floors[package.strip("()")] = (floor, package)
    places = []
    for module in sorted(graph):
        for other in sorted(graph[module]):
            here = _floor(module, floors)
            there = _floor(other, floors)
            if here is None or there is None or here[1] == there[1] or here[0] < there[0]:
                continue
            if not _is_ignored(module, other, ignored):
                places.append(f"{module} -> {other}")
    return places


def _floor(module: str, floors: Mapping[str, tuple[int, str]]) -> tuple[int, str] | None:
    while module:
        if module in floors:
            return floors[module]
        module = module.rpartition(".")[0]
    return None


def _is_ignored(module: str, other: str, ignored: list[str]) -> bool:
    for pair in ignored:
        importer, _, imported = pair.partition(" -> ")
        if _matches(module, importer) and _matches(other, imported):
            return True
    return False


def _matches(module: str, pattern: str) -> bool:
    if pattern.endswith(".*"):
        return module.startswith(pattern.removesuffix("*"))
    return module == pattern


def arrows(graph: Graph, package: str) -> Places:
    """Return which rooms of a package (folders, and files on its top) import which others."""
    pairs = set()
    for module, others in graph.items():
        for other in others:
            if not (module.startswith(f"{package}.") and other.startswith(f"{package}.")):
                continue
            here = _room(module, package)
            there = _room(other, package)
            if here != there:
                pairs.add(f"{here} -> {there}")
    return sorted(pairs)


def rooms(graph: Graph, package: str) -> Places:
    """Return the rooms of a package: its folders, the files on its top, and itself."""
    inside = {_room(module, package) for module in graph if module.startswith(f"{package}.")}
    return [package, *sorted(inside)]


def _room(module: str, package: str) -> str:
    return module.removeprefix(f"{package}.").partition(".")[0]


@cache
def _house() -> dict[str, Source]:
    return {source.module: source for source in read_sources("hpcrun")}


@cache
def _imports() -> list[Import]:
    house = _house()
    return [statement for source in house.values() for statement in imports_of(source, house)]


@cache
def _graph() -> Graph:
    graph: dict[str, set[str]] = {module: set() for module in _house()}
    for statement in _imports():
        graph[statement.source.module].add(statement.module)
    return graph


@cache
def _density() -> Density:
    return density_of(python_files("hpcrun"))


def _hidden_paths() -> int:
    """Return the most paths of one function; a diagnosis of logs weighs many facts at once."""
    files = [path for path in python_files("hpcrun") if DIAGNOSIS not in path.as_posix()]
    return density_of(files).most_paths


def _formatter_skips() -> int:
    folders = ("hpcrun", "tests", "dev", "benchmarks", "examples")
    files = [path for folder in folders for path in python_files(folder)]
    return sum(len(re.findall(r"# fmt:\s*skip", path.read_text("utf-8"))) for path in files)


def _circles() -> Places:
    return [" ".join(group) for group in circles(_graph())]


def _upward_imports() -> Places:
    contracts: list[dict[str, Any]] = api.read_configuration(str(REPO / "pyproject.toml"))[
        "contracts_options"
    ]
    places: Places = []
    for contract in contracts:
        if contract["type"] != "layers":
            continue
        ignored = contract.get("ignore_imports", [])
        for container in contract.get("containers", [""]):
            layers = [_within(container, layer) for layer in contract["layers"]]
            places += upward(_graph(), layers, ignored)
    return places


def _within(container: str, layer: str) -> str:
    """Return a layer with the full names of its modules; ``a | b`` are two."""
    if not container:
        return layer
    return " | ".join(f"{container}.{module}" for module in layer.split(" | "))


def _lazy_imports() -> Places:
    lazy = [statement for statement in _imports() if statement.is_lazy]
    return [f"{statement.source.path}:{statement.line} {statement.module}" for statement in lazy]


def _vague_names() -> Places:
    sources = list(_house().values())
    for folder in ("dev", "benchmarks", "examples"):
        sources += read_sources(folder)
    places = []
    for source in sources:
        for name, line in bound_names(source.tree):
            if name in VAGUE:
                places.append(f"{source.path}:{line} {name}")
    return places


def _words_of_docs() -> int:
    pages = [REPO / "README.md", REPO / "CONTRIBUTING.md", *(REPO / "docs").rglob("*.md")]
    texts = [page.read_text("utf-8") for page in pages]
    return sum(len(text.split()) for text in texts if not text.startswith(GENERATED))


MEASURES: dict[str, Callable[[], float | Places]] = {
    "tokens": lambda: _density().count["tokens"],
    "statements": lambda: _density().count["statements"],
    "tokens-per-statement": lambda: round(_density().tokens_per_statement(), 2),
    "conditional-expressions": lambda: round(
        _density().per_thousand_lines("conditional expressions"), 1
    ),
    "nested-conditions": lambda: _density().count["nested"],
    "long-comprehensions": lambda: round(_density().per_thousand_lines("long comprehensions"), 1),
    "long-lines": lambda: _density().count["long lines"],
    "formatter-skips": _formatter_skips,
    "hidden-paths": _hidden_paths,
    "circles": _circles,
    "upward-imports": _upward_imports,
    "rooms-of-job": lambda: rooms(_graph(), JOB),
    "arrows-of-job": lambda: arrows(_graph(), JOB),
    "lazy-imports": _lazy_imports,
    "vague-names": _vague_names,
    "words-of-docs": _words_of_docs,
}
"""Each number, or the places that it counts; its limit has the same name in pyproject.toml.

Conditional expressions and long comprehensions are counted for each 1,000 lines.
"""


if __name__ == "__main__":
    sys.exit(main())
