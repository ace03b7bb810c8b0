"""Change hpcrun in places drawn at random, and count the changes that no test notices.

``python -m dev.mutants --count 25 --seed 1``. The changes are cosmic-ray's: another comparison,
``and`` for ``or``, a ``not`` more or less, another number, a loop that does not run. Each is made
in a copy of the checkout, in which the tests of its folder run until one fails, then all. The copy
has a virtual environment of its own, so that the commands of tests run the copy, too.
"""

from __future__ import annotations

import argparse
import ast
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import unified_diff
from pathlib import Path

from cosmic_ray.ast import ast_nodes, get_ast
from cosmic_ray.mutating import mutate_code
from cosmic_ray.plugins import get_operator, operator_names

from dev.copies import make_environment
from dev.syntax import is_python, left_out_spans
from tests.harness import REPO

TESTS = ("tests/unit", "tests/golden")
MOST_S = 600  # how long the tests of one change may take: longer means that a loop does not end
NOTHING_RAN = 5  # pytest's exit status
# The first two need a name to be given. A missing decorator breaks a module at import, which every
# test notices.
_LEFT_OUT = {"core/VariableReplacer", "core/VariableInserter", "core/RemoveDecorator"}
_NOT_COPIED = shutil.ignore_patterns(".git", ".venv*", ".*_cache", ".hypothesis", "__pycache__")


@dataclass(frozen=True)
class Place:
    """A place in a file where operators can change something."""

    path: str  # below the checkout
    line: int
    changes: tuple[tuple[str, int], ...]  # an operator of cosmic-ray, and which of its places


def main(arguments: Sequence[str]) -> int:
    """Try changes and print what became of each."""
    parser = argparse.ArgumentParser(prog="python -m dev.mutants", description=__doc__)
    parser.add_argument("--count", type=int, default=25, help="how many changes (25)")
    parser.add_argument("--seed", type=int, default=1, help="which places (1)")
    parser.add_argument("--only", default="hpcrun/", help="only in files with this in their path")
    parser.add_argument("--tests", nargs="+", default=TESTS, help="which tests (unit and golden)")
    options = parser.parse_args(arguments)
    noticed = 0
    with tempfile.TemporaryDirectory(prefix="mutants-", dir="/var/tmp") as folder:
        tree = Path(folder, "tree")
        shutil.copytree(REPO, tree, ignore=_NOT_COPIED, symlinks=True)
        make_environment(tree)
        if failure := run_tests(tree, options.tests):
            sys.exit(f"without a change fails {failure}")
        chosen = changes(options.only, options.count, options.seed)
        for number, (place, changed) in enumerate(chosen, 1):
            test = first_failure(tree, place.path, changed, options.tests)
            noticed += test is not None
            print(f"{number}. {place.path}:{place.line}: {test or 'NOT NOTICED'}")
            if test is None:
                print(difference(REPO / place.path, changed))
            sys.stdout.flush()
    print(f"{noticed} of {options.count} changes noticed (seed {options.seed})")
    return 0


def changes(only: str, count: int, seed: int) -> Iterator[tuple[Place, str]]:
    """Yield places drawn at random, each with the changed text of its file.

    A change that is no Python any more (a star before arguments is an operator to cosmic-ray) is
    left out.
    """
    pick = random.Random(seed)
    drawn = list(places(only))
    pick.shuffle(drawn)
    for place in drawn:
        operator, occurrence = pick.choice(place.changes)
        source = (REPO / place.path).read_text()
        changed = str(mutate_code(source, get_operator(operator)(), occurrence))
        if not is_python(changed):
            continue
        yield place, changed
        count -= 1
        if count == 0:
            return


def places(only: str) -> Iterator[Place]:
    """Yield the places of all files whose path contains a text, in their order."""
    for path in sorted((REPO / "hpcrun").rglob("*.py")):
        name = str(path.relative_to(REPO))
        if only in name:
            yield from places_of(name, path.read_text())


def places_of(name: str, source: str) -> Iterator[Place]:
    """Yield the places of a file: those in annotations and decorators change nothing that runs."""
    nodes = list(ast_nodes(get_ast(source)))
    left_out = list(left_out_spans(ast.parse(source)))
    by_start: dict[tuple[int, int], list[tuple[str, int]]] = {}
    for operator in sorted(set(operator_names()) - _LEFT_OUT):
        find = get_operator(operator)().mutation_positions
        starts = [start for node in nodes for start, _ in find(node)]
        for occurrence, start in enumerate(starts):
            if not any(first <= start < last for first, last in left_out):
                by_start.setdefault(start, []).append((operator, occurrence))
    for start in sorted(by_start):
        yield Place(name, start[0], tuple(by_start[start]))


def first_failure(tree: Path, path: str, changed: str, tests: Sequence[str]) -> str | None:
    """Return a test that fails with a change, "a test does not end", or None if all pass."""
    target = tree / path
    source = target.read_text()
    nearest = Path("tests/unit", *Path(path).parent.parts[1:])
    target.write_text(changed)
    try:
        near = None
        if (tree / nearest).exists():
            near = run_tests(tree, [str(nearest)])
        return near or run_tests(tree, tests)
    finally:
        target.write_text(source)


def run_tests(tree: Path, tests: Sequence[str]) -> str | None:
    """Run tests in a copy of the checkout until one fails, and return its name; None if none does.

    Python must not keep what it compiled: it recognises an old file by its size and by its time in
    whole seconds.
    """
    python = str(tree / ".venv/bin/python")
    command = [python, "-m", "pytest", "-x", "-q", "-rfE", "--numprocesses=2", *tests]
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    with subprocess.Popen(
        command,
        cwd=tree,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            output, _ = process.communicate(timeout=MOST_S)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            return "a test does not end"
    if process.returncode in (0, NOTHING_RAN):
        return None
    failed = [line for line in output.splitlines() if line.startswith(("FAILED", "ERROR"))]
    return failed[0].split(" ")[1] if failed else "pytest does not start"


def difference(path: Path, changed: str) -> str:
    """Return the lines that a change removes and adds."""
    pairs = unified_diff(path.read_text().splitlines(), changed.splitlines(), n=0, lineterm="")
    lines = [line for line in pairs if not line.startswith(("---", "+++", "@@"))]
    return "\n".join(f"    {line}" for line in lines)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
