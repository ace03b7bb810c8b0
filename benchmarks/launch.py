"""How long ranks take to start in hpcrun's script, by torchrun and by --launcher srun, beside a
hand-written one with the same srun and torchrun.

`make cluster`, then `python benchmarks/launch.py`; `make bench` does it too. Timed from the
script's first command to the first line of rank 0; it exits with 1 where hpcrun takes longer, by
the median of the rounds.
"""

from __future__ import annotations

import shlex
import statistics
import sys
import sysconfig
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from cluster import measure_on_cluster
from measure import CommandFailedError, Place

HPCRUN = str(Path(sysconfig.get_path("scripts"), "hpcrun"))
AT_MOST = 1.0
RANK = """import os, time
now = time.time()
if os.environ["RANK"] == "0":
    open(f"rank-{os.environ['SLURM_JOB_ID']}", "w").write(str(now))
"""
BY_HAND = """#!/bin/bash
#SBATCH --partition=gpu --nodes=2 --ntasks-per-node=1 --cpus-per-task=32 --gres=gpu:a100:2 --mem=250G --time=1:00:00
head=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
export OMP_NUM_THREADS=16 NCCL_DEBUG=WARN
srun --cpus-per-task=32 --kill-on-bad-exit=1 {python} -m torch.distributed.run --nnodes=2 --nproc-per-node=2 \\
  --rdzv-backend=c10d --rdzv-endpoint="$head:29511" --rdzv-id="$SLURM_JOB_ID" {rank}
"""  # noqa: E501


@dataclass
class Script:
    """A batch script, and the seconds from its first command to its rank 0, in every round."""

    label: str
    path: Path
    seconds: list[float] = field(default_factory=list)


def main() -> int:
    return measure_on_cluster(__doc__, 9, measure)


def measure(place: Place, rounds: int) -> int:
    """Run every script once a round, in an order that turns; print the medians; returns the exit
    status.
    """
    scripts = make_scripts(place)
    run_all(scripts, place, rounds)
    print(
        f"{'from the script to the first line of rank 0':<50}{'median':>8}  × by hand, median of "
        "the pairs"
    )
    met = report(scripts[:-1], scripts[-1], AT_MOST)
    print(
        f"  demanded: at most {AT_MOST}, {'met' if met else 'NOT MET'}; 2 nodes × 2 ranks, "
        f"{rounds} rounds"
    )
    return 0 if met else 1


def run_all(scripts: Sequence[Script], place: Place, rounds: int) -> None:
    """Run every script once a round, in an order that turns; a first round warms the caches."""
    for number in range(rounds + 1):
        turn = number % len(scripts)
        for script in (*scripts[turn:], *scripts[:turn]):
            seconds = run(script, place)
            if number > 0:
                script.seconds.append(seconds)


def report(scripts: Sequence[Script], by_hand: Script, at_most: float) -> bool:
    """Print the medians, and the ratios to the script by hand; returns whether these are as
    demanded.
    """
    met = True
    for script in (*scripts, by_hand):
        ratios = [mine / its for mine, its in zip(script.seconds, by_hand.seconds, strict=True)]
        ratio = round(statistics.median(ratios), 2)
        met = met and ratio <= at_most
        median_ms = statistics.median(script.seconds) * 1000
        print(
            f"  {script.label:<48}{median_ms:>5.0f} ms  {ratio:.2f} ({min(ratios):.2f} to "
            f"{max(ratios):.2f})"
        )
    return met


def make_scripts(place: Place) -> list[Script]:
    """Write the scripts; the hand-written one is the last."""
    rank = place.folder / "rank.py"
    rank.write_text(RANK, "ascii")
    options = ["-P", "a100", "--gpus", "4", "--nodes", "2"]
    scripts = []
    for label, more in (
        ("hpcrun", []),
        ("hpcrun --requeue 3", ["--requeue", "3"]),
        ("hpcrun --launcher srun", ["--launcher", "srun"]),
    ):
        text = place.run([HPCRUN, "submit", "--dry-run", *options, *more, str(rank)]).stdout
        scripts.append(
            timed(Script(label, place.folder / f"{label.replace(' ', '')}.sh"), text, place)
        )
    text = BY_HAND.format(python=shlex.quote(sys.executable), rank=shlex.quote(str(rank)))
    return [
        *scripts,
        timed(Script("by hand: srun torchrun", place.folder / "hand.sh"), text, place),
    ]


def timed(script: Script, text: str, place: Place) -> Script:
    """Write a script so that its first command notes the time."""
    lines = text.splitlines()
    last = max(number for number, line in enumerate(lines) if line.startswith("#SBATCH"))
    lines.insert(last + 1, f'date +%s.%N >{shlex.quote(str(place.folder))}/start-"$SLURM_JOB_ID"')
    script.path.write_text("\n".join([*lines, ""]), "ascii")
    return script


def run(script: Script, place: Place) -> float:
    """Run one script as a job; returns the seconds to its rank 0."""
    log = place.folder / "job.log"
    log.unlink(missing_ok=True)
    try:
        answer = place.run(["sbatch", "--parsable", "--wait", f"--output={log}", str(script.path)])
    except CommandFailedError as error:
        raise CommandFailedError(f"{error}{log.read_text('utf-8', 'replace')}") from None
    job = answer.stdout.split()[0]
    for _ in range(50):  # the file of a job that has just ended
        if (place.folder / f"rank-{job}").exists():
            break
        time.sleep(0.1)
    started, reached = (
        float((place.folder / f"{name}-{job}").read_text("ascii")) for name in ("start", "rank")
    )
    return reached - started


if __name__ == "__main__":
    sys.exit(main())
