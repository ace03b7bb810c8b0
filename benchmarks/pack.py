"""Eight short runs on one GPU: ``--pack 8`` beside ``xargs -P 8`` in a batch script, at once on two
GPUs of a node.

`make cluster`, then `python benchmarks/pack.py`; `make bench` does it too. Timed inside the
allocation, from the start of the batch script to the end of the last run: the queue does not count.
It exits with 1 where the demand is not met.
"""

from __future__ import annotations

import json
import statistics
import sys
import sysconfig
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from cluster import measure_on_cluster
from measure import Place

HPCRUN = str(Path(sysconfig.get_path("scripts"), "hpcrun"))
RUNS, AT_LEAST = 8, 0.9
WORK = "import time\nwhile time.process_time() < 0.2: sum(range(10_000))\ntime.sleep(20)\n"
XARGS = f"""#!/bin/bash
begin=$(date +%s.%N)
seq {RUNS} | xargs -P {RUNS} -n 1 {sys.executable} -u work.py
echo "$begin $(date +%s.%N)" >xargs.times
"""
JOB = (
    "-p",
    "gpu",
    "--nodelist=a100-1",
    "--gres=gpu:a100:1",
    "--cpus-per-task=8",
    "--mem=4G",
    "--wait",
)
PACK = (
    "-P",
    "a100",
    "--gpus",
    "1",
    "--cpus",
    "8",
    "--mem",
    "4G",
    "--time",
    "10m",
    "--nodelist",
    "a100-1",
)


def main() -> int:
    """Measure and print; returns the exit status."""
    return measure_on_cluster(__doc__, 3, measure)


def measure(place: Place, rounds: int) -> int:
    """Run both side by side, after a first round to warm up; returns the exit status."""
    (place.folder / "work.py").write_text(WORK, "ascii")
    (place.folder / "xargs.sh").write_text(XARGS, "ascii")
    pairs = []
    with ThreadPoolExecutor() as pool:  # a busy machine is busy for both
        for _ in range(rounds + 1):
            one, other = pool.submit(by_xargs, place), pool.submit(by_pack, place)
            pairs.append((one.result(), other.result()))
    pairs = pairs[1:]
    ratios = [xargs_s / pack_s for xargs_s, pack_s in pairs]
    ratio = statistics.median(ratios)
    print(
        f"{RUNS} runs of 20 s on one GPU's node: throughput of --pack {RUNS} over that of xargs -P "
        f"{RUNS}"
    )
    print(
        "  seconds (xargs, pack): "
        + ", ".join(f"{xargs_s:.1f} {pack_s:.1f}" for xargs_s, pack_s in pairs)
    )
    print(f"  ratio {ratio:.2f}, single rounds from {min(ratios):.2f} to {max(ratios):.2f}")
    print(f"  demanded: at least {AT_LEAST}, {'met' if ratio >= AT_LEAST else 'NOT MET'}")
    return 0 if ratio >= AT_LEAST else 1


def by_xargs(place: Place) -> float:
    place.run(["sbatch", *JOB, f"--output={place.folder}/xargs.log", "xargs.sh"])
    begin, end = map(float, (place.folder / "xargs.times").read_text("ascii").split())
    return end - begin


def by_pack(place: Place) -> float:
    values = f"n={','.join(map(str, range(RUNS)))}"
    done = place.run(
        [
            HPCRUN,
            "submit",
            *PACK,
            "--sweep",
            values,
            "--pack",
            str(RUNS),
            "--wait",
            "--json",
            "work.py",
        ]
    )
    folder = Path(json.JSONDecoder().raw_decode(done.stdout)[0]["folder"])
    attempts = folder.glob("elements/*/attempts/0")
    records = [
        [json.loads((path / name).read_text("utf-8")) for name in ("start", "exit")]
        for path in attempts
    ]
    return max(float(end["ended"]) for _, end in records) - min(
        float(start["started"]) for start, _ in records
    )


if __name__ == "__main__":
    sys.exit(main())
