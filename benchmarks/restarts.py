"""How long a job stands still when a node's cable is pulled: ``--restarts`` beside ``--requeue``,
in one run.

`make cluster`, then `python benchmarks/restarts.py`; `make bench` does it too. Timed from the cable
to the first line of the next attempt's rank 0. Two jobs run side by side, each on nodes of its own,
and lose their second node at once.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import sysconfig
import time
from functools import partial
from pathlib import Path

from cluster import REPO, measure_on_cluster, wait_for
from measure import Place

HPCRUN = str(Path(sysconfig.get_path("scripts"), "hpcrun"))
RANK = """import os, time
print(os.environ["HPCRUN_ATTEMPT"], flush=True)
time.sleep(1 if os.environ["HPCRUN_ATTEMPT"] != "0" else 600)
"""
JOB = (
    "-P a100 -p gpu --gpus 0 --cpus 1 --mem 1G --nodes 2 --launcher torchrun --nproc-per-node 1 "
    "--time 10m"
).split()
HALVES = {
    "--restarts 1 --spares 1": ["a100-1", "a100-2", "h100-1"],
    "--requeue 1": ["l40s-1", "l40s-2", "h100-2"],
}
NODES = {f"{kind}-{number}" for kind in ("a100", "h100", "v100", "l40s") for number in (1, 2)} | {
    "h200-1",
    "a40-1",
}


def main() -> int:
    return measure_on_cluster(__doc__, 3, measure)


def measure(place: Place, rounds: int) -> int:
    """Pull cables, and print the seconds of every round; returns the exit status."""
    (place.folder / "rank.py").write_text(RANK, "ascii")
    seconds: dict[str, list[float]] = {options: [] for options in HALVES}
    for _ in range(rounds):
        runs = {options: submit(options, nodes, place) for options, nodes in HALVES.items()}
        for run in runs.values():
            wait_for((run / "0/rank-1.out").exists, "the ranks", 60)
        time.sleep(15)  # until each node has been heard twice
        lost = [(run / "0/hosts").read_text("ascii").split()[1] for run in runs.values()]
        for node in lost:
            cable("unplug", node)
        pulled = time.time()
        for options, run in runs.items():
            first = run / "1/rank-0.out"
            wait_for(partial(has_text, first), "the next attempt", 600)
            seconds[options].append(first.stat().st_mtime - pulled)
        for node in lost:
            cable("plug", node)
        settle(place, lost)
    limit = (
        place.run(["scontrol", "show", "config"]).stdout.partition("SlurmdTimeout")[2].split()[1]
    )
    print("from the cable to the first line of the next attempt")
    for options, times in seconds.items():
        each = ", ".join(f"{one:.1f}" for one in times)
        print(f"  {options:<26}{statistics.median(times):>6.1f} s  (rounds {each})")
    print(
        f"  the cluster's SlurmdTimeout {limit} s: what Slurm itself waits before it calls a node "
        "down"
    )
    return 0


def submit(options: str, nodes: list[str], place: Place) -> Path:
    """Submit a job that may use some nodes; returns the folder of its attempts."""
    others = ",".join(sorted(NODES - set(nodes)))
    done = place.run(
        [HPCRUN, "submit", "--json", *JOB, *options.split(), "--exclude", others, "rank.py"]
    )
    return Path(json.loads(done.stdout)["folder"]) / "elements/0/attempts"


def has_text(path: Path) -> bool:
    return path.exists() and path.stat().st_size > 0


def cable(what: str, node: str) -> None:
    subprocess.run([REPO / "dev/cluster.sh", what, node], check=True, capture_output=True)


def settle(place: Place, nodes: list[str]) -> None:
    """Wait until the jobs are over, and the nodes are there again."""
    wait_for(lambda: not place.run(["squeue", "--me", "--noheader"]).stdout, "the jobs to end", 120)

    def idle() -> bool:
        states = place.run(
            ["sinfo", "--noheader", "--nodes", ",".join(nodes), "--format=%T"]
        ).stdout.split()
        if any(state.startswith(("drain", "down")) for state in states):
            place.run(["scontrol", "update", f"nodename={','.join(nodes)}", "state=resume"])
        return set(states) == {"idle"}

    wait_for(idle, "the nodes to come back", 180)


if __name__ == "__main__":
    sys.exit(main())
