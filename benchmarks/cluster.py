"""The development cluster as the benchmarks use it: to themselves, with jobs that wait and never
start.
"""

from __future__ import annotations

import argparse
import fcntl
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from measure import CommandFailedError, Place

REPO = Path(__file__).resolve().parents[1]
# The tests' lock (SESSION_LOCK in tests/harness.py): they would cancel these jobs and pull cables.
LOCK = Path("/run/hpcrun-tests.lock")
A100_NODES = "a100-[1-2]"


class NoClusterError(Exception):
    """There is no cluster to measure on."""


def cluster_env() -> dict[str, str]:
    """Return the variables that point Slurm's commands at the cluster.

    Raises:
        NoClusterError: it is not up.
    """
    done = subprocess.run([REPO / "dev/cluster.sh", "env"], capture_output=True, text=True)
    if done.returncode != 0:
        raise NoClusterError(f"{done.stderr.strip()}\nhint: `make cluster` starts one, as root")
    words = shlex.split(done.stdout)
    return dict(pair.split("=", 1) for pair in words if "=" in pair)


def hold_jobs(folder: Path) -> None:
    """Put an sbatch into a folder that holds every job: torchx has no option for it, and one CPU
    must not run them all.

    It goes before the real one on the PATH of all that submit, so that it costs them the same.
    """
    real = shutil.which("sbatch")
    if real is None:
        raise NoClusterError(
            "there is no sbatch on PATH\nhint: `make cluster` installs Slurm and starts it, as root"
        )
    shim = folder / "sbatch"
    shim.write_text(f'#!/bin/sh\nexec {shlex.quote(real)} --hold "$@"\n', "ascii")
    shim.chmod(0o755)


@contextmanager
def cluster_to_oneself() -> Iterator[None]:
    """Wait for the tests that use the cluster, and keep them waiting."""
    if os.geteuid() != 0:  # the tests of other users do not touch one's jobs
        yield
        return
    with LOCK.open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print("waiting for the tests that use the cluster ...", flush=True)
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def measure_on_cluster(text: str | None, rounds: int, measure: Callable[[Place, int], int]) -> int:
    """Run a benchmark of one option on the cluster, alone there; return its exit status, 2 without
    a cluster.

    Args:
        text: what --help says.
        rounds: the default of --rounds.
        measure: the place and the rounds → the exit status.
    """
    parser = argparse.ArgumentParser(
        description=text, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--rounds",
        type=int,
        default=rounds,
        metavar="N",
        help=f"how often each is timed (default {rounds})",
    )
    chosen = parser.parse_args().rounds
    try:
        slurm = cluster_env()
        with cluster_to_oneself(), tempfile.TemporaryDirectory(prefix="hpcrun-bench-") as folder:
            env = {**os.environ, **slurm, "HOME": folder, "HPCRUN_RUNS": f"{folder}/runs"}
            return measure(Place(Path(folder), env), chosen)
    except (NoClusterError, CommandFailedError) as error:
        print(f"benchmarks: {error}", file=sys.stderr)
        return 2


def wait_for(done: Callable[[], bool], what: str, within_s: float = 30.0) -> None:
    """Wait until something is so.

    Raises:
        CommandFailedError: it is not in time.
    """
    deadline = time.monotonic() + within_s
    while not done():
        if time.monotonic() > deadline:
            raise CommandFailedError(f"waited in vain for {what}")
        time.sleep(0.2)


def occupy_a100_nodes(name: str, place: Place) -> None:
    """Take the nodes that the a100 profile asks for, so that its jobs wait as they do on a busy
    cluster.

    Held jobs would not do where jobs are looked at: sacct, which torchx asks, shows none that never
    was eligible.
    """
    occupy = [
        f"--nodelist={A100_NODES}",
        "--nodes=2",
        "--exclusive",
        "--time=30",
        "--wrap=exec sleep 1800",
    ]
    place.run(["sbatch", f"--job-name={name}", "--output=/dev/null", *occupy])

    def running() -> bool:
        return bool(
            place.run(["squeue", "--me", "--noheader", f"--name={name}", "--states=RUNNING"]).stdout
        )

    wait_for(running, f"a job on {A100_NODES}: `dev/cluster.sh status` shows the nodes")


def jobs_named(name: str, place: Place) -> list[str]:
    """Return the ids of the jobs whose name begins so.

    torchx's are heterogeneous jobs: one component per replica, ``12+0`` and ``12+1``, that can only
    be cancelled as 12. An array is ``12_[0-9%2]``, and one job here.
    """
    lines = place.run(["squeue", "--me", "--noheader", "--format=%i %j"]).stdout.splitlines()
    return sorted(
        {
            re.split(r"[+_]", job)[0]
            for job, _, its in (line.partition(" ") for line in lines)
            if its.startswith(name)
        }
    )


def cancel_jobs(name: str, place: Place) -> int:
    """Cancel the jobs whose name begins so, and return how many there were."""
    jobs = jobs_named(name, place)
    if jobs:
        place.run(["scancel", *jobs])
    return len(jobs)
