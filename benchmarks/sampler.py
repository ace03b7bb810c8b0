"""What the sampler in a job costs: a training with and without it, and the CPU time that it takes
by itself.

`python benchmarks/sampler.py`, on a machine that does nothing else. The training is
examples/digits_ddp.py on two ranks with gloo, submitted twice a pair with `hpcrun submit -P`, by
two profiles of which one has `sample_use: false`; which of them comes first alternates. Each pair
gives one ratio of samples per second: within noise, they lie around 1. The sampler's own CPU time
is that of a node's process in a job that sleeps, with samples, less that of one without, by the
kernel's clock (clock_t, 10 ms): so the time has to be long.
"""

from __future__ import annotations

import argparse
import os
import re
import statistics
import subprocess
import sys
import sysconfig
import tempfile
import time
from pathlib import Path

from measure import CommandFailedError, Place

ROOT = Path(__file__).resolve().parents[1]
HPCRUN = str(Path(sysconfig.get_path("scripts"), "hpcrun"))
TRAINING = ROOT / "examples/digits_ddp.py"
PROFILES = {"with": "extends: local\n", "without": "extends: local\nsample_use: false\n"}
RATE = re.compile(r"([0-9.]+) samples/s")
LIMIT = 0.001
"""The share of a CPU that the sampler may take."""
NVIDIA_SMI = """#!/bin/bash
while :; do for gpu in 0 1 2 3; do echo "$gpu, 97, 40536, 81559, 401.20"; done; sleep 10; done
"""


def main() -> int:
    """Measure both, and print a table; 1 if the sampler takes more of a CPU than it may."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--pairs", type=int, default=9, help="of trainings (default 9)")
    parser.add_argument(
        "--epochs", type=int, default=400, help="of each training (default 400: about a minute)"
    )
    parser.add_argument(
        "--seconds", type=float, default=300, help="of the measurement of CPU time (default 300)"
    )
    options = parser.parse_args()
    try:
        with tempfile.TemporaryDirectory(prefix="hpcrun-bench-") as folder:
            if options.pairs:
                compare(Path(folder), options.pairs, options.epochs)
            share = own_share(Path(folder), options.seconds)
    except CommandFailedError as error:
        print(f"sampler.py: {error}", file=sys.stderr)
        return 1
    return 0 if share <= LIMIT else 1


def compare(folder: Path, pairs: int, epochs: int) -> None:
    """Print the samples per second of trainings with and without the sampler, and the ratio of each
    pair.
    """
    profiles = folder / ".config/hpcrun/profiles"
    profiles.mkdir(parents=True)
    for name, text in PROFILES.items():
        (profiles / f"{name}.yaml").write_text(text)
    place = Place(
        folder,
        {
            **os.environ,
            "HOME": str(folder),
            "HPCRUN_RUNS": str(folder / "runs"),
            "OMP_NUM_THREADS": "1",
        },
    )
    ratios = []
    print(f"{'pair':>4}  {'with':>10}  {'without':>10}  {'ratio':>7}   samples per second")
    for number in range(pairs):
        names = list(PROFILES) if number % 2 == 0 else list(PROFILES)[::-1]
        rate = {name: throughput(place, name, epochs) for name in names}
        ratios.append(rate["with"] / rate["without"])
        print(
            f"{number + 1:>4}  {rate['with']:>10.0f}  {rate['without']:>10.0f}  {ratios[-1]:>7.4f}",
            flush=True,
        )
    print(
        f"ratio: median {statistics.median(ratios):.4f}, from {min(ratios):.4f} to "
        f"{max(ratios):.4f}"
    )


def throughput(place: Place, profile: str, epochs: int) -> float:
    """Return the median of a training's samples per second, without its first epochs."""
    ranks = ("--gpus", "0", "--launcher", "torchrun", "--nproc-per-node", "2")
    place.run(
        [HPCRUN, "submit", "-P", profile, *ranks, "--wait", str(TRAINING), "--epochs", str(epochs)]
    )
    lines = place.run([HPCRUN, "logs", "last", "--rank", "0"]).stdout.splitlines()
    rates = [float(match[1]) for line in lines if (match := RATE.search(line))]
    return float(statistics.median(rates[len(rates) // 10 :]))


def own_share(folder: Path, seconds: float) -> float:
    """Print and return the share of a CPU that sampling takes, in the node's process of a job with
    four GPUs.
    """
    program = folder / "bin/nvidia-smi"
    program.parent.mkdir()
    program.write_text(NVIDIA_SMI)
    program.chmod(0o755)
    jobs = {
        name: start(folder / name, program.parent, period)
        for name, period in (("on", "10"), ("off", "0"))
    }
    time.sleep(5)  # the imports, and the first search of all processes, are over
    nodes = {name: node_of(job.pid) for name, job in jobs.items()}
    before = {name: ticks(pid) for name, pid in nodes.items()}
    time.sleep(seconds)
    used = {
        name: (ticks(pid) - before[name]) / os.sysconf("SC_CLK_TCK") for name, pid in nodes.items()
    }
    for job in jobs.values():
        job.terminate()
        job.wait()
    share = (used["on"] - used["off"]) / seconds
    print(
        f"the process of a node took {used['on']:.2f} s of CPU time in {seconds:.0f} s with "
        "samples and "
        f"{used['off']:.2f} s without: the samples {share:.4%} of a CPU (allowed: {LIMIT:.1%})"
    )
    return share


def start(folder: Path, path: Path, period: str) -> subprocess.Popen[bytes]:
    """Start a job that sleeps, without a scheduler, as its script does."""
    attempt = folder / "elements/0/attempts/0"
    attempt.mkdir(parents=True)
    env = {
        **os.environ,
        "PATH": f"{path}:{os.environ['PATH']}",
        "TMPDIR": str(folder),
        "HPCRUN_JOB_ID": "L1",
    }
    env |= {
        "HPCRUN_RUN_DIR": str(folder),
        "HPCRUN_ATTEMPT_DIR": str(attempt),
        "HPCRUN_ELEMENT": "0",
        "HPCRUN_ATTEMPT": "0",
    }
    launch = [sys.executable, "-ISB", str(ROOT / "hpcrun/in_job/launch/__main__.py")]
    chain = [*launch, "node", "--", *launch, "rank", "--once", "--", "sleep", "100000"]
    return subprocess.Popen(
        [*launch, "job", "--nodes", "1", "--gpus", "0,1,2,3", "--sample", period, "--", *chain],
        env=env,
    )


def node_of(job: int) -> int:
    """Return the process of a job's only node."""
    (pid,) = Path(f"/proc/{job}/task/{job}/children").read_text().split()
    return int(pid)


def ticks(pid: int) -> int:
    """Return the CPU time of a process in clock ticks, without its children."""
    words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(words[11]) + int(words[12])


if __name__ == "__main__":
    sys.exit(main())
