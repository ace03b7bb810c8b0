"""What `hpcrun scale report` takes for a history of 10,000 runs: the whole command, figures and all
files included.

The runs are made on the fly: data sets × 10 sizes × repeats, with times by Amdahl's law and some
noise. One table has four data sets, the other ten, of which figures show six.
"""

from __future__ import annotations

import csv
import os
import random
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

REPO = Path(__file__).resolve().parents[1]
RUNS, SIZES = 10_000, 10
MOST_S = 5.0


def make_table(path: Path, datasets: int) -> None:
    """Write a table of so many runs."""
    noise = random.Random(datasets)
    repeats = RUNS // datasets // SIZES
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(
            """
                dataset gpus nodes repeat epoch_time_s samples_per_s accuracy batch_size samples
            """.split()
        )
        for dataset in range(datasets):
            for gpus in (2**power for power in range(SIZES)):
                for repeat in range(1, repeats + 1):
                    time_s = (1 + 100 / gpus) * noise.gauss(1, 0.03)
                    row = (
                        max(1, gpus // 8),
                        repeat,
                        time_s,
                        50_000 / time_s,
                        noise.gauss(0.9, 0.01),
                        4096,
                        50_000,
                    )
                    writer.writerow([f"set {dataset}", gpus, *row])


def seconds(datasets: int) -> float:
    """Return how long a report of such a table takes."""
    with tempfile.TemporaryDirectory(prefix="hpcrun-report-") as name:
        make_table(Path(name, "runs.csv"), datasets)
        env = {**os.environ, "PYTHONPATH": str(REPO)}
        argv = [sys.executable, "-m", "hpcrun", "report", "--from-csv", "runs.csv"]
        start = time.perf_counter()
        subprocess.run(argv, cwd=name, env=env, capture_output=True, check=True)
        took_s = time.perf_counter() - start
        figures = len(list(Path(name, "report-runs").glob("*.png")))
    if figures != 5:
        raise SystemExit(f"the report has {figures} figures, not 5: is matplotlib installed?")
    return took_s


def main() -> int:
    seconds(1)  # the first figure of a machine ever makes matplotlib look through its fonts
    print("| runs | data sets | time |\n|--:|--:|--:|")
    took = {datasets: seconds(datasets) for datasets in (4, 10)}
    for datasets, took_s in took.items():
        print(f"| {RUNS:,} | {datasets} | {took_s:.1f} s |")
    peak_mb = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
    good = max(took.values()) < MOST_S
    print(
        f"\nmemory at its highest: {peak_mb:.0f} MB; {'as' if good else 'NOT as'} demanded: less "
        f"than {MOST_S:.0f} s"
    )
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
