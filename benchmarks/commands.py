"""hpcrun beside another checkout of it: the CPU time and the file requests of its commands.

`python benchmarks/commands.py OTHER_CHECKOUT`, such as a worktree of commit 4ebd6b5, which the
demands compare with. Both run with this Python and its libraries; no cluster is needed. strace
counts the requests. It exits with 1 where a demand is not met.
"""

from __future__ import annotations

import argparse
import compileall
import os
import re
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from measure import Contender, Place, race
from status import make_runs

from hpcrun.runs.store import RunStore

REPO = Path(__file__).resolve().parents[1]
RUNS = 10
ELEMENTS = 1000
RANK_AT_MOST = 42
_REQUEST = re.compile(r"^\d+ +(?!execve)\w+\(.*", re.MULTILINE)


@dataclass(frozen=True)
class Row:
    """A command, its runs folder, and what is demanded of it."""

    words: str
    runs: str = "plain"
    # at most so many times what the other checkout takes; None if nothing is demanded
    cpu: float | None = None
    requests: float | None = None  # file system calls; each installed package is one of --help

    @property
    def label(self) -> str:
        return f"{self.words}, {self.runs}" if self.words == "status" else self.words


ROWS = (
    Row("--help", cpu=0.7, requests=0.85),
    Row("submit --help"),
    Row("profile --help"),
    Row("status", cpu=1.06, requests=1.0),
    Row("status", "sweeps"),
    Row("submit -P a100 --gpus 1 --dry-run train.py", cpu=1.15),
    Row("submit -P local --gpus 0 train.py", "local", cpu=1.15),
)


def main() -> int:
    """Measure and print; returns the exit status."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("other", type=Path, help="the other checkout")
    parser.add_argument(
        "--rounds", type=int, default=11, metavar="N", help="how often each is timed (default 11)"
    )
    options = parser.parse_args()
    checkouts = (REPO, options.other.resolve())
    for checkout in checkouts:
        compileall.compile_dir(checkout / "hpcrun", quiet=1)
    with tempfile.TemporaryDirectory(prefix="hpcrun-bench-", ignore_cleanup_errors=True) as name:
        place = make_place(Path(name))
        print(f"CPU time in ms, the least and the median of {options.rounds} rounds; requests")
        met = [compare(row, checkouts, place, options.rounds) for row in ROWS]
        requests = [rank_requests(checkout, place) for checkout in checkouts]
    met.append(requests[0] <= RANK_AT_MOST)
    print(
        f"  {'files of launch that a rank asks for':<46}{requests[0]:>5} beside {requests[1]}"
        f"{demanded(RANK_AT_MOST, met[-1])}"
    )
    return 0 if all(met) else 1


def make_place(folder: Path) -> Place:
    """Return a folder with a script and runs that are over, and an environment of its own."""
    (folder / "train.py").write_text("pass\n", "ascii")
    for name, elements in (("plain", 0), ("sweeps", ELEMENTS), ("local", 0)):
        store = RunStore(folder / name)
        store.root.mkdir(mode=0o700)
        if name != "local":
            make_runs(store, [], finished=RUNS, cluster=None, elements=elements)
    kept = {name: os.environ[name] for name in ("LANG", "PATH", "TMPDIR") if name in os.environ}
    return Place(folder, {**kept, "HOME": str(folder)})


def compare(row: Row, checkouts: Sequence[Path], place: Place, rounds: int) -> bool:
    """Time a command of both checkouts; returns whether the demands are met."""
    contenders = [Contender(row.label, command(checkout, row, place)) for checkout in checkouts]
    race(contenders, place=place, rounds=rounds)
    this, other = contenders
    least = min(this.cpu_seconds) / min(other.cpu_seconds)
    median = this.cpu_median / other.cpu_median
    requests = [count_requests(contender.argv, place) for contender in contenders]
    cpu_met = row.cpu is None or max(least, median) <= row.cpu
    requests_met = row.requests is None or requests[0] <= row.requests * requests[1]
    cells = [f"{_ms(min(one.cpu_seconds))}/{_ms(one.cpu_median)}" for one in contenders]
    print(
        f"  {row.label:<46}{cells[0]:>9} beside {cells[1]:<9}{least:.2f} {median:.2f}"
        f"{demanded(row.cpu, cpu_met)}"
        f"; {requests[0]} beside {requests[1]}{demanded(row.requests, requests_met)}",
        flush=True,
    )
    return cpu_met and requests_met


def command(checkout: Path, row: Row, place: Place) -> list[str]:
    """Return the command line that runs a command of a checkout."""
    env = ["env", f"PYTHONPATH={checkout}", f"HPCRUN_RUNS={place.folder / row.runs}"]
    return [*env, sys.executable, "-m", "hpcrun", *row.words.split()]


def count_requests(argv: Sequence[str], place: Place, folder: Path | None = None) -> int:
    """Return how many file system calls a command makes, or those about the files of a folder."""
    log = place.folder / "strace"
    place.run(["strace", "-f", "-e", "trace=file", "-o", str(log), *argv])
    requests = _REQUEST.findall(log.read_text("utf-8", "replace"))
    return sum(folder is None or f'"{folder}' in request for request in requests)


def rank_requests(checkout: Path, place: Place) -> int:
    """Return how many requests for files of launch one rank makes."""
    folders = [checkout / "hpcrun/in_job/launch", checkout / "hpcrun/launch"]
    folder = next(folder for folder in folders if folder.is_dir())
    attempt = place.folder / "attempt"
    attempt.mkdir(exist_ok=True)
    env = {
        "HPCRUN_ATTEMPT_DIR": attempt,
        "HPCRUN_ATTEMPT": 0,
        "HPCRUN_JOB_ID": 1,
        "HPCRUN_NODE": "n",
        "HPCRUN_NODE_RANK": 0,
        **dict.fromkeys(("RANK", "LOCAL_RANK"), 0),
        "WORLD_SIZE": 1,
    }
    python = [sys.executable, "-I", "-S", "-B", str(folder / "__main__.py"), "rank", "--", "true"]
    settings = [f"{name}={value}" for name, value in env.items()]
    return count_requests(["env", *settings, *python], place, folder)


def demanded(most: float | None, met: bool) -> str:
    return "" if most is None else f" (at most {most:g}, {'met' if met else 'NOT MET'})"


def _ms(seconds: float) -> str:
    return f"{seconds * 1000:.0f}"


if __name__ == "__main__":
    sys.exit(main())
