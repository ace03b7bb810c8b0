"""How soon the first step of torch.compile is done in a job that starts warm (--warm), beside the
same job with a folder that stays as it is between the jobs.

`make cluster`, then `python benchmarks/warm.py`. Two nodes with two ranks each, gloo, on CPUs.
Timed from the start of the attempt to the first step of rank 0. It exits with 1 where a warm start
takes longer than 1.2 times the other, by the median of the rounds, or where a job that compiles
nothing takes 15 ms more.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import statistics
import subprocess
import sys
import sysconfig
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cluster import REPO, measure_on_cluster, wait_for
from measure import Place

HPCRUN = str(Path(sysconfig.get_path("scripts"), "hpcrun"))
AT_MOST = 1.2
MORE_AT_MOST_MS = 15.0
EMPTY_ROUNDS = 15
"""How often a job that compiles nothing is started."""
TRAIN = """
import json, os, sys, time
import torch, torch.distributed as dist
dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(0)
width = 64 + 16 * (rank // 2) * int(os.environ.get("STAGES", "0"))
layers = torch.nn.Linear(width, 4 * width), torch.nn.GELU(), torch.nn.Linear(4 * width, width)
model = torch.compile(torch.nn.Sequential(*layers, torch.nn.LayerNorm(width)))
model(torch.randn(8, width)).sum().backward()
dist.barrier()
if rank == 0:
    folder = os.environ["HPCRUN_ATTEMPT_DIR"]
    took = time.time() - json.load(open(folder + "/start"))["started"]
    json.dump(took, open(folder + "/first-step", "w"))
    print("step 1", flush=True)
fails = os.environ["HPCRUN_ATTEMPT"] == "0" and "FAIL" in os.environ
dist.barrier()
sys.exit(fails and rank == 0)
"""
JOB = (
    "-P a100 -p gpu --gpus 0 --cpus 2 --mem 3G --nodes 2 --nproc-per-node 2 --time 20m "
    "--env TORCHINDUCTOR_COMPILE_THREADS=1"
).split()
AGAIN = "--retry-on-failure --env FAIL=1"


@dataclass(frozen=True)
class Case:
    """A kind of job; the attempt that is timed is the second one if the first has to fail."""

    label: str
    options: str = "--launcher torchrun"
    attempt: int = 0


CASES = (
    Case("torchrun"),
    Case("srun", "--launcher srun"),
    Case("each node another model", "--launcher srun --env STAGES=1"),
    Case("in a container", "--launcher srun --container image"),
    Case("--requeue 1", f"--launcher srun --requeue 1 {AGAIN}", attempt=1),
    Case("--restarts 1", f"--launcher srun --restarts 1 {AGAIN}", attempt=1),
)


def main() -> int:
    return measure_on_cluster(__doc__, 3, measure)


def measure(place: Place, rounds: int) -> int:
    """Run every case, and print its ratio; returns the exit status."""
    (place.folder / "train.py").write_text(TRAIN, "ascii")
    make_container(place)
    print(f"from the start to the first step{'first':>13}{'unchanged':>12}{'warm':>8}  × unchanged")
    met = [report(case, place, rounds) for case in CASES]
    return 0 if all([*met, compiles_nothing(place)]) else 1


def report(case: Case, place: Place, rounds: int) -> bool:
    """Time one case, and print it; returns whether it meets the demand.

    The first job of a model compiles; later cases with the same model find what it has saved.
    """
    stages = "STAGES" in case.options
    unchanged = f"--env TORCHINDUCTOR_CACHE_DIR=/tmp/hpcrun-bench-{os.getpid()}-{stages}"
    options = case.options.split()
    first = first_step([*options, "--warm"], case, place)
    first_step([*options, *unchanged.split()], case, place)
    warm = []
    others = []
    for _ in range(rounds):
        others.append(first_step([*options, *unchanged.split()], case, place))
        warm.append(first_step([*options, "--warm"], case, place))
    other = statistics.median(others)
    ratio = statistics.median(warm) / other
    met = ratio <= AT_MOST
    times = f"{first:>11.1f} s{other:>10.1f} s{statistics.median(warm):>6.1f} s"
    print(f"  {case.label:<30}{times}  {ratio:.2f}{'' if met else '  NOT MET'}", flush=True)
    return met


def first_step(options: Sequence[str], case: Case, place: Place) -> float:
    """Run a job; returns the seconds from the start of its last attempt to the first step."""
    argv = [HPCRUN, "submit", "--json", *JOB, *options, "train.py"]
    folder = Path(json.loads(place.run(argv).stdout)["folder"])
    attempt = folder / f"elements/0/attempts/{case.attempt}"
    wait_for((attempt / "exit").exists, f"{folder.name} to end", 900)
    return float(json.loads((attempt / "first-step").read_text()))


def make_container(place: Place) -> None:
    """Make a stand-in for apptainer that isolates nothing, as the tests' own."""
    image = place.folder / "image/bin/python3"
    image.parent.mkdir(parents=True)
    image.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} "$@"\n')
    runtime = place.folder / "bin/apptainer"
    runtime.parent.mkdir()
    line = shlex.join([sys.executable, str(REPO / "tests/launch/runtime.py")])
    runtime.write_text(f'#!/bin/sh\nexec {line} "$@"\n')
    for path in (image, runtime):
        path.chmod(0o755)
    place.env["PATH"] = f"{runtime.parent}:{place.env['PATH']}"  # type: ignore[index]


def compiles_nothing(place: Place) -> bool:
    """Time jobs of one node whose program compiles nothing, with and without --warm."""
    shutil.copytree(REPO / "hpcrun/in_job/launch", place.folder / "programs/launch")
    seconds: dict[str, list[float]] = {"": [], "--warm=nothing": []}
    for number in range(EMPTY_ROUNDS):
        for option, times in seconds.items():
            times.append(empty_job(place.folder / f"empty-{number}{option}", option))
    least = {option: 1000 * min(times) for option, times in seconds.items()}
    more = least["--warm=nothing"] - least[""]
    met = more <= MORE_AT_MOST_MS
    print(
        f"a job that compiles nothing: {least['']:.0f} ms, with --warm {more:+.0f} ms (least of "
        f"{EMPTY_ROUNDS}){'' if met else '  NOT MET'}"
    )
    return met


def empty_job(folder: Path, option: str) -> float:
    """Return the seconds of a job of one node of this machine whose program does nothing."""
    attempt = folder / "elements/0/attempts/0"
    attempt.mkdir(parents=True)
    (folder / "programs").symlink_to(folder.parent / "programs")
    names = {"RUN_DIR": folder, "ATTEMPT_DIR": attempt, "JOB_ID": "L1", "ELEMENT": 0, "ATTEMPT": 0}
    env = {**os.environ, **{f"HPCRUN_{name}": str(value) for name, value in names.items()}}
    launch = [sys.executable, "-ISB", str(folder / "programs/launch/__main__.py")]
    ranks = [*launch, "node", "--", *launch, "rank", "--once", "--", "true"]
    options = ["--nodes", "1", *([option] if option else [])]
    began = time.monotonic()
    subprocess.run([*launch, "job", *options, "--", *ranks], env=env, check=True)
    return time.monotonic() - began


if __name__ == "__main__":
    sys.exit(main())
