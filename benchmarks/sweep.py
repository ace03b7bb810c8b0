"""hpcrun beside submitit on the same Slurm: how long a sweep of 1,000 elements takes to submit, and
a look at it.

`make cluster`, then `python benchmarks/sweep.py`. It exits with 1 where the demand is not met.
"""

from __future__ import annotations

import argparse
import os
import sys
import sysconfig
import tempfile
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

from cluster import NoClusterError, cancel_jobs, cluster_env, cluster_to_oneself, hold_jobs
from measure import CommandFailedError, Contender, Place, race, ratio_range

ELEMENTS = 1000
AT_MOST = 1.0
STATUS_AT_MOST = 1.5
RUNS = 10
NAME = f"hpcrun-bench-{os.getpid()}"
HPCRUN = str(Path(sysconfig.get_path("scripts"), "hpcrun"))
# the same work as a person writes it with submitit: one function, a thousand arguments, one array
SUBMITIT = f"""
import submitit

def train(seed):
    return seed

executor = submitit.AutoExecutor(folder="submitit")
executor.update_parameters(name="{NAME}", timeout_min=60, nodes=1, cpus_per_task=1, slurm_partition="cpu",
                           slurm_array_parallelism={ELEMENTS})
executor.map_array(train, range({ELEMENTS}))
"""  # noqa: E501


def main() -> int:
    """Measure and print; returns the exit status."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--rounds", type=int, default=5, metavar="N", help="how often each is timed (default 5)"
    )
    options = parser.parse_args()
    try:
        slurm = cluster_env()
        with cluster_to_oneself(), tempfile.TemporaryDirectory(prefix="hpcrun-bench-") as name:
            folder = Path(name)
            hold_jobs(folder)
            (folder / "train.py").write_text("", "ascii")
            (folder / "map_array.py").write_text(SUBMITIT, "ascii")
            env = {
                **os.environ,
                **slurm,
                "PATH": f"{folder}:{os.environ['PATH']}",
                "HPCRUN_RUNS": str(folder / "runs"),
            }
            try:
                return 0 if measure(Place(folder, env), options.rounds) else 1
            finally:
                cancel_jobs(NAME, Place(folder, env))
    except (NoClusterError, CommandFailedError) as error:
        print(error, file=sys.stderr)
        return 1


def measure(place: Place, rounds: int) -> bool:
    """Time both submissions side by side; returns whether the demand is met."""
    values = f"seed={','.join(map(str, range(ELEMENTS)))}"
    cpus = ["-P", "a100", "--gpus", "0", "-p", "cpu", "--cpus", "1"]
    ours = Contender(
        f"hpcrun submit --sweep, {ELEMENTS} elements",
        [HPCRUN, "submit", "-J", NAME, *cpus, "--sweep", values, "train.py"],
    )
    theirs = Contender(f"submitit map_array, {ELEMENTS} elements", [sys.executable, "map_array.py"])
    arrays = 0

    def cancel() -> None:
        nonlocal arrays
        arrays += cancel_jobs(NAME, place)

    race([ours, theirs], place=place, rounds=rounds, between=cancel)
    if arrays != 2 * (rounds + 1):
        raise CommandFailedError(f"{arrays} arrays came of {2 * (rounds + 1)} submissions")
    print(
        f"hpcrun beside submitit {version('submitit')}, median of {rounds} rounds after one to "
        "warm up"
    )
    return all(
        [
            show(ours, theirs, AT_MOST),
            measure_status(place, [*ours.argv[:2], "-J", NAME, *cpus], ours, rounds),
        ]
    )


def measure_status(place: Place, submit: Sequence[str], sweep: Contender, rounds: int) -> bool:
    """Time a look at one such sweep beside one at ten plain runs; returns whether the demand is
    met.
    """
    looks = []
    for name, jobs in (("one-sweep", [sweep.argv]), ("plain-runs", [[*submit, "train.py"]] * RUNS)):
        runs = f"HPCRUN_RUNS={place.folder / name}"
        for argv in jobs:
            place.run(["env", runs, *argv])
        looks.append(
            Contender(
                f"hpcrun status, {name.replace('-', ' ')}, pending", ["env", runs, HPCRUN, "status"]
            )
        )
    race(looks, place=place, rounds=rounds)
    return show(looks[0], looks[1], STATUS_AT_MOST)


def show(ours: Contender, theirs: Contender, at_most: float) -> bool:
    """Print one comparison; returns whether the demand is met, which is one of CPU time."""
    for one in (ours, theirs):
        print(f"  {one.label:<44}{one.median * 1000:>5.0f} ms{one.cpu_median * 1000:>8.0f} ms CPU")
    ratio = ours.cpu_median / theirs.cpu_median
    least, most = ratio_range(ours, theirs)
    met = ratio <= at_most
    print(
        f"  ratio {ours.median / theirs.median:.2f}, single rounds from {least:.2f} to {most:.2f}; "
        f"CPU {ratio:.2f}"
    )
    print(f"  demanded: at most {at_most:.1f} in CPU time, {'met' if met else 'NOT MET'}")
    return met


if __name__ == "__main__":
    sys.exit(main())
