"""hpcrun beside submitit on the same Slurm: how long the submission of a sweep of 1,000 elements takes.

`make cluster`, then `python benchmarks/sweep.py`. It exits with 1 where the demand is not met.
"""

from __future__ import annotations

import argparse
import os
import sys
import sysconfig
import tempfile
from importlib.metadata import version
from pathlib import Path

from cluster import NoClusterError, cancel_jobs, cluster_env, cluster_to_oneself, hold_jobs
from measure import CommandFailedError, Contender, Place, race, ratio_range

ELEMENTS = 1000
AT_MOST = 2.0
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
"""


def main() -> int:
    """Measure and print; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5, metavar="N", help="how often each is timed (default 5)")
    asked = parser.parse_args()
    try:
        slurm = cluster_env()
        with cluster_to_oneself(), tempfile.TemporaryDirectory(prefix="hpcrun-bench-") as name:
            folder = Path(name)
            hold_jobs(folder)
            (folder / "train.py").write_text("", "ascii")
            (folder / "map_array.py").write_text(SUBMITIT, "ascii")
            env = {**os.environ, **slurm, "PATH": f"{folder}:{os.environ['PATH']}", "HPCRUN_RUNS": str(folder / "runs")}
            try:
                return 0 if measure(Place(folder, env), asked.rounds) else 1
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
    look = Contender("hpcrun status of one such sweep, waiting", [HPCRUN, "status"])
    arrays = 0

    def cancel() -> None:
        nonlocal arrays
        arrays += cancel_jobs(NAME, place)

    race([ours, theirs], place=place, rounds=rounds, between=cancel)
    if arrays != 2 * (rounds + 1):
        raise CommandFailedError(f"{arrays} arrays came of {2 * (rounds + 1)} submissions")
    place.run(ours.argv)
    place.run(look.argv)  # learns that the sweeps of the timed submissions are over
    race([look], place=place, rounds=rounds)
    ratio = ours.median / theirs.median
    least, most = ratio_range(ours, theirs)
    print(f"hpcrun beside submitit {version('submitit')}, median of {rounds} rounds after one to warm up")
    for contender in (ours, theirs, look):
        print(f"  {contender.label:<44}{contender.median * 1000:>5.0f} ms")
    met = ratio <= AT_MOST
    print(f"  ratio {ratio:.2f}, single rounds from {least:.2f} to {most:.2f}")
    print(f"  demanded: at most {AT_MOST:.1f}, {'met' if met else 'NOT MET'}")
    return met


if __name__ == "__main__":
    sys.exit(main())
