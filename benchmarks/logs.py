"""hpcrun logs beside tail on a log of some gigabytes: `python benchmarks/logs.py [--gigabytes N]`.

It exits with 1 where a demand is not met: the last 100 lines, once Python has started, within 1.2 ×
the time of
`tail -n 100`, and the whole command within 1.2 × its time for a log of one line; 60 MB of memory at
most, with 1,024 ranks merged as well.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import sysconfig
import tempfile
import time
from pathlib import Path

from measure import CommandFailedError, Contender, Place, race, ratio_range

from hpcrun.runs.log_files import texts

HPCRUN = str(Path(sysconfig.get_path("scripts"), "hpcrun"))
RATIO_AT_MOST = 1.2
MEMORY_AT_MOST_MB = 60
RANKS = 1024
LINES_EACH = 200
RUN = "20260101-000000-big-0001"
MERGED = "20260101-000001-ranks-0002"


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--rounds", type=int, default=10, metavar="N", help="how often each is timed (default 10)"
    )
    parser.add_argument(
        "--gigabytes", type=float, default=2.0, metavar="N", help="size of the log (default 2)"
    )
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="hpcrun-bench-logs-") as folder:
        root = Path(folder)
        env = {**os.environ, "HPCRUN_RUNS": str(root), "HOME": str(root)}
        log = make_big_run(root, int(options.gigabytes * 1e9))
        make_many_ranks(root)
        try:
            return measure_all(Place(root, env), log, options.rounds)
        except CommandFailedError as error:
            print(f"benchmarks: {error}", file=sys.stderr)
            return 2


def make_big_run(root: Path, size: int) -> Path:
    """Write a run whose rank 0 has said much; every byte of it is there (no holes).

    Return its log.
    """
    log = make_run(root, RUN, 1) / "rank-0.out"
    block = b"".join(
        b"2026-01-01 00:00:00,%03d INFO step %09d loss 0.123456 lr 1.0e-03\n" % (i % 1000, i)
        for i in range(16000)
    )
    with log.open("wb") as file:
        while file.tell() < size:
            file.write(block)
    return log


def make_many_ranks(root: Path) -> None:
    """Write a run of 1,024 ranks that speak in turn."""
    folder = make_run(root, MERGED, RANKS)
    for rank in range(RANKS):
        lines = (
            f"2026-01-01 00:{i // 60 % 60:02d}:{i % 60:02d}.{rank:04d} rank {rank} step {i}\n"
            for i in range(LINES_EACH)
        )
        (folder / f"rank-{rank}.out").write_text("".join(lines), "ascii")


def make_run(root: Path, run_id: str, ranks: int) -> Path:
    """Write the records of a run that is over; return the folder of its attempt."""
    folder = root / run_id
    attempt = folder / "elements/0/attempts/0"
    attempt.mkdir(parents=True)
    record = {
        "schema": 1,
        "run_id": run_id,
        "name": "big",
        "scheduler": "local",
        "cluster": None,
        "host": "here",
        "created_s": 0.0,
        "job_id": "L1",
        "profile": "local",
        "nodes": 1,
        "gpus_per_node": 0,
        "world_size": ranks,
        "walltime_s": None,
    }
    (folder / "run.json").write_text(json.dumps(record))
    (attempt / "start").write_text('{"job_id": "L1", "host": "here", "started": 1767225600}')
    (attempt / "exit").write_text('{"status": 0, "signal": "", "ended": 1767225601, "message": ""}')
    return attempt


def measure_all(place: Place, log: Path, rounds: int) -> int:
    tail = Contender("tail -n 100", ["tail", "-n", "100", str(log)])
    ours = Contender("hpcrun logs -n 100", [HPCRUN, "logs", "-n", "100", RUN])
    start = Contender("hpcrun --version", [HPCRUN, "--version"])
    empty = Contender("hpcrun logs of one line", [HPCRUN, "logs", "-n", "1", "--rank", "0", MERGED])
    race((tail, ours, start, empty), place=place, rounds=rounds)
    print(
        f"a log of {log.stat().st_size / 1e9:.1f} GB; median of {rounds} rounds after one to warm "
        "up\n"
    )
    for contender in (tail, start, empty, ours):
        print(f"{contender.label:<26} {contender.median * 1000:8.1f} ms")
    low, high = ratio_range(ours, empty)
    seconds = reading(log)
    ratio = ours.median / empty.median
    print(
        f"\nthe whole command takes {ours.median / tail.median:.0f} × tail's time: that is Python "
        "starting"
    )
    alone = (
        f"reading alone: {seconds * 1000:.2f} ms, {seconds / tail.median:.2f} × the whole of tail"
    )
    beside = f"the whole command beside a log of one line: {ratio:.2f} ×"
    met = [
        verdict(f"{alone} (at most {RATIO_AT_MOST})", seconds <= RATIO_AT_MOST * tail.median),
        verdict(
            f"{beside} (at most {RATIO_AT_MOST}; rounds {low:.2f} to {high:.2f})",
            ratio <= RATIO_AT_MOST,
        ),
    ]
    print()
    for label, args in (
        ("-n 100", ("-n", "100", RUN)),
        ("whole", (RUN,)),
        ("--grep", ("--grep", "step 000015999", "-n", "3", RUN)),
        ("--merge of 1,024 ranks", ("--merge", MERGED)),
    ):
        seconds, megabytes = cost([HPCRUN, "logs", *args], place)
        met.append(
            verdict(
                f"{label}: {seconds:.1f} s, {megabytes:.0f} MB of memory",
                megabytes <= MEMORY_AT_MOST_MB,
            )
        )
    return 0 if all(met) else 1


def reading(log: Path) -> float:
    """Return the seconds that the last 100 lines of a log take once hpcrun has started."""
    start = time.perf_counter()
    with open(os.devnull, "wb") as sink:
        for text in texts(log, 100):
            sink.write(text.encode("utf-8", "surrogateescape"))
    return time.perf_counter() - start


def cost(argv: list[str], place: Place) -> tuple[float, float]:
    """Return the seconds and the most memory in MB that a command took, measured by a process of
    its own.
    """
    done = subprocess.run(
        [sys.executable, __file__, "--cost", *argv],
        cwd=place.folder,
        env=dict(place.env),
        capture_output=True,
        text=True,
    )
    if done.returncode != 0:
        raise CommandFailedError(f"{' '.join(argv)}: {done.stderr}")
    seconds, megabytes = done.stdout.split()
    return float(seconds), float(megabytes)


def measure_one(argv: list[str]) -> int:
    start = time.perf_counter()
    status = subprocess.run(argv, stdout=subprocess.DEVNULL).returncode
    print(
        time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
    )
    return status


def verdict(text: str, met: bool) -> bool:
    print(f"{'ok  ' if met else 'MISS'} {text}")
    return met


if __name__ == "__main__":
    sys.exit(measure_one(sys.argv[2:]) if sys.argv[1:2] == ["--cost"] else main())
