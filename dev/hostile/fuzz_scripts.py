"""Random batch scripts by sbatch and by hpcrun: ``python -m dev.hostile.fuzz_scripts --count 500``.

Each script runs both ways on a machine of stubs. No difference may be silent. A script with one is
printed without the pieces that the difference does not need.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from dev.hostile.batch_scripts import RandomScript, random_script, smaller
from tests.batch_harness import Case, Machine, differences
from tests.harness import REPO, Hpcrun

_REAL_EVERY = 10
"""Each so many scripts, one is submitted by a new process of hpcrun."""


def main(arguments: Sequence[str]) -> int:
    """Run scripts, print what differs, and return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m dev.hostile.fuzz_scripts", description=__doc__)
    parser.add_argument("--count", type=int, default=500, help="how many scripts (500)")
    parser.add_argument("--seed", type=int, default=1, help="which ones (1)")
    parser.add_argument("--only", type=int, help="the script of this number")
    parser.add_argument("--workers", type=int, default=2, help="how many run side by side (2)")
    options = parser.parse_args(arguments)
    numbers = range(options.count) if options.only is None else [options.only]
    shares = [numbers[first :: options.workers] for first in range(options.workers)]
    started = time.monotonic()
    counts: Counter[str] = Counter()
    with ProcessPoolExecutor(len(shares)) as pool:
        for count, texts in pool.map(run_share, [options.seed] * len(shares), shares):
            counts += count
            for text in texts:
                print(text)
    kinds = ", ".join(f"{number} {kind}" for kind, number in sorted(counts.items()))
    print(f"seed {options.seed}, in {time.monotonic() - started:.0f} s: {kinds}")
    return int(counts["different"] > 0)


def run_share(seed: int, numbers: Sequence[int]) -> tuple[Counter[str], list[str]]:
    """Run the numbered scripts.

    Returns:
        How many were the same, different, or refused, and a text for each difference.
    """
    counts: Counter[str] = Counter()
    texts = []
    with tempfile.TemporaryDirectory(prefix="fuzz-scripts-") as folder:
        machine = Machine(Hpcrun(Path(folder), REPO, Path(sys.prefix)))
        for number in numbers:
            script = random_script(seed, number)
            by_server = number % _REAL_EVERY != 0
            lines = compare(machine, script, by_server=by_server)
            if lines is None:
                counts["refused"] += 1
                continue
            counts["different" if lines else "same"] += 1
            if lines:
                texts.append("\n".join(_report(machine, script, lines, f"{seed} --only {number}")))
    return counts, texts


def compare(machine: Machine, script: RandomScript, *, by_server: bool = True) -> list[str] | None:
    """Return what differs; None if one way refuses the script."""
    case = Case(script.text, script.arguments, dict(script.env))
    try:
        by_sbatch = machine.by_sbatch(case)
    except subprocess.TimeoutExpired:  # it waits for ever, by sbatch too
        return None
    by_hpcrun = machine.by_hpcrun(case, by_server=by_server)
    if by_sbatch.status is None or by_hpcrun.status is None:
        return None
    return differences(by_sbatch, by_hpcrun)


def _report(machine: Machine, script: RandomScript, lines: list[str], again: str) -> Iterator[str]:
    """Yield the smallest script that differs in the same thing, and the difference."""
    what = lines[0].partition(":")[0]
    least = script
    rest = smaller(least)
    while rest:
        fewer = rest.pop(0)
        shown = compare(machine, fewer) or []
        if any(line.partition(":")[0] == what for line in shown):
            least = fewer
            lines = shown
            rest = smaller(least)
    yield f"--seed {again}  {dict(least.env)} {least.arguments}"
    for text in least.text.splitlines():
        yield f"    {text}"
    for line in lines[:8]:
        yield f"  {line[:300]}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
