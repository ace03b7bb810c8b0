"""How long the second of two roles takes to start, beside the same by hand: `srun SERVER &` and
`srun TRAINER`.

`make cluster`, then `python benchmarks/roles.py`; `make bench` does it too. Timed from the script's
first command to the first line of the trainer, on two nodes; by hand a loop of curl waits for the
server, with a second between two tries. It exits with 1 where a trainer started by torchrun takes
more than a tenth longer, by the median of the pairs.
"""

from __future__ import annotations

import shlex
import sys

from cluster import measure_on_cluster
from launch import HPCRUN, Script, report, run_all, timed
from measure import Place

AT_MOST = 1.1
SERVER = """import http.server, sys
http.server.ThreadingHTTPServer(("", int(sys.argv[1])), http.server.SimpleHTTPRequestHandler).serve_forever()
"""  # noqa: E501
TRAINER = """import os, time
open(f"rank-{os.environ['SLURM_JOB_ID']}", "w").write(str(time.time()))
"""
BY_HAND = """#!/bin/bash
#SBATCH --partition=gpu --nodes=2 --ntasks-per-node=1 --cpus-per-task=8 --mem=8G --gres=gpu:a100:1 --time=1:00:00
mapfile -t nodes < <(scontrol show hostnames "$SLURM_JOB_NODELIST")
srun --nodes=1 --ntasks=1 --cpus-per-task=8 --nodelist="${{nodes[0]}}" {python} -u {server} 29512 &
{wait}
srun --nodes=1 --ntasks=1 --cpus-per-task=8 --nodelist="${{nodes[1]}}" {python} -u {torchrun} {trainer}
"""  # noqa: E501
TORCHRUN = "-m torch.distributed.run --standalone --nproc-per-node=1"
KINDS = {"at once": (False, False), "ready": (True, False), "torchrun, ready": (True, True)}
"""Whether the trainer waits for the server, and whether torchrun starts it."""
WAIT = 'until curl --silent --output /dev/null "http://${nodes[0]}:29512/"; do sleep 1; done'
OPTIONS = ("-P", "a100", "--cpus", "8", "--mem", "8G", "--gpus-per-node", "1", "-t", "1h")


def main() -> int:
    return measure_on_cluster(__doc__, 9, measure)


def measure(place: Place, rounds: int) -> int:
    """Run every pair once a round; print the medians; returns the exit status."""
    pairs = [
        pair(place, label, waits=waits, torchrun=torchrun)
        for label, (waits, torchrun) in KINDS.items()
    ]
    run_all([script for both in pairs for script in both], place, rounds)
    print(
        f"{'from the script to the first line of the trainer':<50}{'median':>8}  × by hand, median "
        "of the pairs"
    )
    met = [report([hpcrun], by_hand, AT_MOST) for hpcrun, by_hand in pairs][-1]
    print(
        f"  demanded of torchrun: at most {AT_MOST}, {'met' if met else 'NOT MET'}; 2 nodes, "
        f"{rounds} rounds"
    )
    return 0 if met else 1


def pair(place: Place, label: str, *, waits: bool, torchrun: bool) -> tuple[Script, Script]:
    """Write hpcrun's script and the one by hand.

    Args:
        waits: the trainer waits until the server answers.
        torchrun: torchrun starts the trainer.
    """
    for name, text in (("server.py", SERVER), ("trainer.py", TRAINER)):
        (place.folder / name).write_text(text, "ascii")
    how = "server:1,launcher=python," + ("ready=http:29512/" if waits else "on-exit=ignore")
    trainer = "trainer:1,launcher=" + ("torchrun" if torchrun else "python")
    roles = ("--role", how, "server.py", "29512", "--role", trainer, "trainer.py")
    done = place.run([HPCRUN, "submit", "--dry-run", *OPTIONS, *roles])
    words = {name: shlex.quote(str(place.folder / f"{name}.py")) for name in ("server", "trainer")}
    by_hand = BY_HAND.format(
        python=shlex.quote(sys.executable),
        wait=WAIT if waits else "",
        torchrun=TORCHRUN if torchrun else "",
        **words,
    )
    slug = label.replace(", ", "-").replace(" ", "-")
    return (
        timed(Script(f"{label}: hpcrun", place.folder / f"{slug}-hpcrun.sh"), done.stdout, place),
        timed(Script(f"{label}: by hand", place.folder / f"{slug}-hand.sh"), by_hand, place),
    )


if __name__ == "__main__":
    sys.exit(main())
