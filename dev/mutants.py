"""Change hpcrun in 200 places, and count the changes that no test notices: ``python -m dev.mutants --seed 1``.

The changes are cosmic-ray's: another comparison, `and` for `or`, a `not` more or less, another number, a loop that does
not run. Places are drawn at random from hpcrun/actions and hpcrun/runs, one change for each; a change is tried against
the tests of tests/unit and tests/local that run its line, in a copy of the checkout, until one fails.
"""

from __future__ import annotations

import argparse
import ast
import hashlib
import os
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from queue import Queue

from cosmic_ray.ast import ast_nodes, get_ast
from cosmic_ray.mutating import mutate_code
from cosmic_ray.plugins import get_operator, operator_names

from dev.covering import ROOMS, Covering, copy_checkout, load, measure, run_tests, save
from dev.syntax import is_python, left_out_spans
from tests.harness import REPO

TESTS = ("tests/unit", "tests/local")
# These two need a name to be given; a missing decorator breaks a module at import, which every test notices.
_LEFT_OUT = {"core/VariableReplacer", "core/VariableInserter", "core/RemoveDecorator"}
_BUDGET_S = 60  # of tests for one mutant, by what they took unchanged: a line of the store is run by a thousand tests
_LEAST_LIMIT_S = 60


@dataclass(frozen=True)
class Mutant:
    """One change of one place: the operator, which of its places in the file, and the line."""

    path: str
    line: int
    operator: str
    occurrence: int


@dataclass(frozen=True)
class Result:
    """What became of a mutant: killed, survived, out of time (an endless loop: noticed) or untested."""

    mutant: Mutant
    outcome: str
    change: str
    tests: int


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m dev.mutants", description=__doc__)
    parser.add_argument("--count", type=int, default=200, help="how many mutants (200)")
    parser.add_argument("--seed", type=int, default=1, help="which ones (1)")
    parser.add_argument("--workers", type=int, default=2, help="how many tests run side by side (2)")
    parser.add_argument("--only", default="", metavar="TEXT", help="only in files with this in their path")
    parser.add_argument("--tests", nargs="+", default=TESTS, help="the tests to try (tests/unit tests/local)")
    options = parser.parse_args(arguments)
    started = time.monotonic()
    covering = covering_of_checkout(options.tests, options.workers)
    print(f"{len(covering.durations)} tests measured after {time.monotonic() - started:.0f} s", flush=True)
    mutants = sample(all_mutants(options.only), options.count, options.seed)
    results = list(try_all(mutants, covering, options.workers))
    for result in results:
        if result.outcome in ("survived", "untested"):
            print(
                f"{result.outcome}: {result.mutant.path}:{result.mutant.line} ({result.tests} tests)\n{result.change}"
            )
    print(summary(results, options.seed, time.monotonic() - started))
    return 0


def summary(results: Sequence[Result], seed: int, seconds: float) -> str:
    counts = Counter(result.outcome for result in results)
    noticed = counts["killed"] + counts["out of time"]
    named = ", ".join(f"{counts[outcome]} {outcome}" for outcome in ("killed", "out of time", "survived", "untested"))
    score = 100 * noticed / len(results) if results else 0
    return f"{len(results)} mutants (seed {seed}) in {seconds:.0f} s: {named}; score {score:.0f} %"


# --- the mutants --------------------------------------------------------------------------------------------------


def all_mutants(only: str) -> dict[tuple[str, int, int], list[Mutant]]:
    """Return all changes, by the file, line and column of their places."""
    places: dict[tuple[str, int, int], list[Mutant]] = {}
    for path in sorted(path for room in ROOMS for path in (REPO / room).rglob("*.py")):
        name = str(path.relative_to(REPO))
        if only in name:
            for column, mutant in _mutants_of(name, path.read_text()):
                places.setdefault((name, mutant.line, column), []).append(mutant)
    return places


def _mutants_of(path: str, source: str) -> Iterator[tuple[int, Mutant]]:
    nodes = list(ast_nodes(get_ast(source)))
    left_out = list(left_out_spans(ast.parse(source)))
    for name in sorted(set(operator_names()) - _LEFT_OUT):
        operator = get_operator(name)()
        positions = [start for node in nodes for start, _ in operator.mutation_positions(node)]
        for occurrence, start in enumerate(positions):
            if not any(first <= start < last for first, last in left_out):
                yield start[1], Mutant(path, start[0], name, occurrence)


def sample(places: dict[tuple[str, int, int], list[Mutant]], count: int, seed: int) -> list[Mutant]:
    """Return one change for each of so many places, the same ones for the same seed and the same code.

    A change that is no Python any more (a star before arguments is an operator to cosmic-ray) is none.
    """
    pick = random.Random(seed)
    order = pick.sample(sorted(places), len(places))
    drawn = (pick.choice(places[place]) for place in order)
    return list(islice((mutant for mutant in drawn if is_python(changed_source(mutant))), count))


def changed_source(mutant: Mutant) -> str:
    """Return the text of a mutant's file, with its change."""
    source = (REPO / mutant.path).read_text()
    return str(mutate_code(source, get_operator(mutant.operator)(), mutant.occurrence))


# --- trying them --------------------------------------------------------------------------------------------------


def covering_of_checkout(tests: Sequence[str], workers: int) -> Covering:
    """Return which tests run which lines: as measured before, if nothing has changed since."""
    digest = hashlib.sha256(" ".join(tests).encode())
    for path in sorted(path for room in ("hpcrun", "tests", "templates") for path in (REPO / room).rglob("*")):
        if path.suffix in (".py", ".j2", ".yaml"):
            digest.update(str(path.relative_to(REPO)).encode() + b"\0" + path.read_bytes())
    record = REPO / ".mutants" / f"{digest.hexdigest()[:16]}.json"
    if not record.exists():
        record.parent.mkdir(exist_ok=True)
        with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
            save(measure(Path(folder), list(tests), workers), record)
    return load(record)


def try_all(mutants: Sequence[Mutant], covering: Covering, workers: int) -> Iterator[Result]:
    """Yield what became of each mutant, in their order; each worker has a copy of the checkout."""
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder, ThreadPoolExecutor(workers) as pool:
        trees: Queue[Path] = Queue()
        for number in range(workers):
            copy_checkout(Path(folder) / str(number))
            trees.put(Path(folder) / str(number))

        def run(numbered: tuple[int, Mutant]) -> Result:
            tree = trees.get()
            try:
                return try_one(numbered[1], numbered[0], covering, tree)
            finally:
                trees.put(tree)

        for number, result in enumerate(pool.map(run, enumerate(mutants)), 1):
            print(f"{number}/{len(mutants)} {result.outcome} {result.mutant.path}:{result.mutant.line}", flush=True)
            yield result


def try_one(mutant: Mutant, number: int, covering: Covering, tree: Path) -> Result:
    """Run the tests of a mutant's line with the change in place."""
    path = tree / mutant.path
    source = path.read_text()
    changed = changed_source(mutant)
    change = _difference(source, changed)
    tests = list(_within_budget(covering, mutant, source))
    if not tests:
        return Result(mutant, "untested", change, 0)
    names = tree / "tests-of-mutant"
    names.write_text("\n".join(tests))
    limit_s = _LEAST_LIMIT_S + 5 * sum(covering.durations[test] for test in tests)
    _write(path, changed, 2 * number)
    try:
        status, _ = run_tests(tree, ["-x", f"@{names}"], limit_s)
    except subprocess.TimeoutExpired:
        return Result(mutant, "out of time", change, len(tests))
    finally:
        _write(path, source, 2 * number + 1)
    return Result(mutant, "survived" if status == 0 else "killed", change, len(tests))


def _within_budget(covering: Covering, mutant: Mutant, source: str) -> Iterator[str]:
    spent_s = 0.0
    for test in covering.tests_of(mutant.path, mutant.line, source):
        if spent_s > _BUDGET_S:
            return
        spent_s += covering.durations[test]
        yield test


def _write(path: Path, source: str, version: int) -> None:
    """Write a file with a time of its own: Python keeps what it compiled by time, in whole seconds, and size."""
    path.write_text(source)
    os.utime(path, (0, 1_000_000_000 + version))


def _difference(source: str, changed: str) -> str:
    pairs = zip(source.splitlines(), changed.splitlines(), strict=False)
    return "\n".join(f"    - {old.strip()}\n    + {new.strip()}" for old, new in pairs if old != new)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
