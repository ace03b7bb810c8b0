"""Change hpcrun in 200 places, and count the changes that no test notices: ``python -m
dev.mutants.__main__ --seed 1``.

The changes are cosmic-ray's: another comparison, `and` for `or`, a `not` more or less, another
number, a loop that does not run. Places are drawn at random from hpcrun/actions and hpcrun/runs,
one change for each; a change is tried against the tests of tests/unit and tests/local that run its
line, in a copy of the checkout, until one fails, and fails again.

What became of each is noted at once, in .mutants: the same call goes on where the last one was
stopped, and
``--survivors-of`` tries those that survived there against new tests.
"""

from __future__ import annotations

import argparse
import ast
import hashlib
import os
import random
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from itertools import islice
from pathlib import Path
from queue import Queue

from cosmic_ray.ast import ast_nodes, get_ast
from cosmic_ray.mutating import mutate_code
from cosmic_ray.plugins import get_operator, operator_names

from dev.mutants.covering import ROOMS, Covering, copy_checkout, first_failure, load, measure, save
from dev.mutants.results import (
    KILLED,
    OUT_OF_TIME,
    UNNOTICED,
    Mutant,
    Result,
    note,
    read_results,
    results_of,
    summary,
)
from dev.syntax import is_python, left_out_spans
from tests.harness import REPO

TESTS = ("tests/unit", "tests/local")
# These two need a name to be given; a missing decorator breaks a module at import, which every test
# notices.
_LEFT_OUT = {"core/VariableReplacer", "core/VariableInserter", "core/RemoveDecorator"}
# of tests for one mutant, by what they took unchanged: a line of the store is run by a thousand
# tests
_BUDGET_S = 60
_LEAST_LIMIT_S = 20  # for one test
_LIMIT = 10  # times what it took unchanged


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m dev.mutants.__main__", description=__doc__)
    parser.add_argument("--count", type=int, default=200, help="how many mutants (200)")
    parser.add_argument("--seed", type=int, default=1, help="which ones (1)")
    parser.add_argument(
        "--workers", type=int, default=2, help="how many tests run side by side (2)"
    )
    parser.add_argument(
        "--only", default="", metavar="TEXT", help="only in files with this in their path"
    )
    parser.add_argument(
        "--tests", nargs="+", default=TESTS, help="the tests to try (tests/unit tests/local)"
    )
    parser.add_argument(
        "--survivors-of",
        type=Path,
        metavar="RECORD",
        help="only what survived, or had no test, in a record of .mutants",
    )
    options = parser.parse_args(arguments)
    started = time.monotonic()
    record = record_of_checkout(options.tests)
    covering = covering_of_checkout(record, options.tests, options.workers)
    print(
        f"{len(covering.durations)} tests measured after {time.monotonic() - started:.0f} s",
        flush=True,
    )
    if options.survivors_of:
        mutants = [
            result.mutant
            for result in read_results(options.survivors_of)
            if result.outcome in UNNOTICED
        ]
    else:
        mutants = sample(all_mutants(options.only), options.count, options.seed)
    noted = record.with_suffix(".results")
    tried = {result.mutant for result in results_of(mutants, noted)}
    try_all([mutant for mutant in mutants if mutant not in tried], covering, options.workers, noted)
    late = [result.mutant for result in results_of(mutants, noted) if result.outcome == OUT_OF_TIME]
    try_all(late, covering, 1, noted)  # alone, so that no load is taken for an endless loop
    results = results_of(mutants, noted)
    for result in results:
        if result.outcome in UNNOTICED:
            print(
                f"{result.outcome}: {result.mutant.path}:{result.mutant.line} ({result.tests} "
                f"tests)\n{result.change}"
            )
    print(summary(results, options.seed, time.monotonic() - started))
    print(f"noted in {noted}")
    return 0


def record_of_checkout(tests: Sequence[str]) -> Path:
    """Return where the coverage of the checkout as it is now is kept; what becomes of its mutants
    lies beside.
    """
    digest = hashlib.sha256(" ".join(tests).encode())
    for path in sorted(
        path for room in ("hpcrun", "tests", "templates") for path in (REPO / room).rglob("*")
    ):
        if path.suffix in (".py", ".j2", ".yaml"):
            digest.update(str(path.relative_to(REPO)).encode() + b"\0" + path.read_bytes())
    return REPO / ".mutants" / f"{digest.hexdigest()[:16]}.json"


# --- the mutants ---------------------------------------------------------------------------------


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
    """Return one change for each of so many places, the same ones for the same seed and the same
    code.

    A change that is no Python any more (a star before arguments is an operator to cosmic-ray) is
    none.
    """
    pick = random.Random(seed)
    order = pick.sample(sorted(places), len(places))
    drawn = (pick.choice(places[place]) for place in order)
    return list(islice((mutant for mutant in drawn if is_python(changed_source(mutant))), count))


def changed_source(mutant: Mutant) -> str:
    """Return the text of a mutant's file, with its change."""
    source = (REPO / mutant.path).read_text()
    return str(mutate_code(source, get_operator(mutant.operator)(), mutant.occurrence))


# --- trying them ---------------------------------------------------------------------------------


def covering_of_checkout(record: Path, tests: Sequence[str], workers: int) -> Covering:
    """Return which tests run which lines: as measured before, if nothing has changed since."""
    if not record.exists():
        record.parent.mkdir(exist_ok=True)
        with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
            save(measure(Path(folder), list(tests), workers), record)
    return load(record)


def try_all(mutants: Sequence[Mutant], covering: Covering, workers: int, noted: Path) -> None:
    """Try mutants and note what becomes of each; each worker has a copy of the checkout."""
    with (
        tempfile.TemporaryDirectory(prefix="mutants-") as folder,
        ThreadPoolExecutor(workers) as pool,
    ):
        trees: Queue[Path] = Queue()
        for worker in range(workers):
            copy_checkout(Path(folder) / str(worker))
            trees.put(Path(folder) / str(worker))

        def run(numbered: tuple[int, Mutant]) -> Result:
            tree = trees.get()
            try:
                return try_one(numbered[1], numbered[0], covering, tree)
            finally:
                trees.put(tree)

        trials = [pool.submit(run, numbered) for numbered in enumerate(mutants)]
        for number, trial in enumerate(as_completed(trials), 1):
            result = trial.result()
            note(result, noted)
            what = f"{result.mutant.path}:{result.mutant.line} {result.by}"
            print(f"{number}/{len(mutants)} {result.outcome} {what}", flush=True)


def try_one(mutant: Mutant, number: int, covering: Covering, tree: Path) -> Result:
    """Run the tests of a mutant's line with the change in place."""
    path = tree / mutant.path
    source = path.read_text()
    changed = changed_source(mutant)
    change = _difference(source, changed)
    tests = list(_within_budget(covering, mutant, source))
    if not tests:
        return Result(mutant, "untested", change, 0)
    limits = {test: _LEAST_LIMIT_S + _LIMIT * covering.durations[test] for test in tests}
    _write(path, changed, 2 * number)
    try:
        failed = first_failure(tree, tests, limits)
    finally:
        _write(path, source, 2 * number + 1)
    if failed is None or failed == OUT_OF_TIME:
        return Result(mutant, failed or "survived", change, len(tests))
    return Result(mutant, KILLED, change, len(tests), failed)


def _within_budget(covering: Covering, mutant: Mutant, source: str) -> Iterator[str]:
    spent_s = 0.0
    for test in covering.tests_of(mutant.path, mutant.line, source):
        if spent_s > _BUDGET_S:
            return
        spent_s += covering.durations[test]
        yield test


def _write(path: Path, source: str, version: int) -> None:
    """Write a file with a time of its own: Python keeps what it compiled by time, in whole seconds,
    and size.
    """
    path.write_text(source)
    os.utime(path, (0, 1_000_000_000 + version))


def _difference(source: str, changed: str) -> str:
    pairs = zip(source.splitlines(), changed.splitlines(), strict=False)
    return "\n".join(
        f"    - {old.strip()}\n    + {new.strip()}" for old, new in pairs if old != new
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
