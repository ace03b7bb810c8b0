"""How long the second of two roles takes to start, beside the same by hand: `srun SERVER &` and `srun TRAINER`.

`make cluster`, then `python benchmarks/roles.py`; `make bench` does it too. Timed from the script's first command to
the first line of the trainer on two nodes: at once, and after the server answers. It exits with 1 where hpcrun
takes more than a tenth longer, by the median of the pairs.
"""

from __future__ import annotations

import argparse
import os
import shlex
import sys
import tempfile
from pathlib import Path

from cluster import NoClusterError, cluster_env, cluster_to_oneself
from launch import HPCRUN, Script, report, run_all, timed
from measure import CommandFailedError, Place

AT_MOST = 1.1
SERVER = """import http.server, sys
http.server.ThreadingHTTPServer(("", int(sys.argv[1])), http.server.SimpleHTTPRequestHandler).serve_forever()
"""
TRAINER = """import os, time
open(f"rank-{os.environ['SLURM_JOB_ID']}", "w").write(str(time.time()))
"""
BY_HAND = """#!/bin/bash
#SBATCH --partition=gpu --nodes=2 --ntasks-per-node=1 --cpus-per-task=8 --mem=8G --gres=gpu:a100:1 --time=1:00:00
mapfile -t nodes < <(scontrol show hostnames "$SLURM_JOB_NODELIST")
srun --nodes=1 --ntasks=1 --cpus-per-task=8 --nodelist="${{nodes[0]}}" {python} -u {server} 29512 &
{wait}
srun --nodes=1 --ntasks=1 --cpus-per-task=8 --nodelist="${{nodes[1]}}" {python} -u {trainer}
"""
WAIT = 'until curl --silent --output /dev/null "http://${nodes[0]}:29512/"; do sleep 1; done'
OPTIONS = ("-P", "a100", "--cpus", "8", "--mem", "8G", "--gpus-per-node", "1", "-t", "1h")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=9, metavar="N", help="how often each is timed (default 9)")
    rounds = parser.parse_args().rounds
    try:
        slurm = cluster_env()
        with cluster_to_oneself(), tempfile.TemporaryDirectory(prefix="hpcrun-bench-") as folder:
            place = Place(Path(folder), {**os.environ, **slurm, "HOME": folder, "HPCRUN_RUNS": f"{folder}/runs"})
            pairs = {label: pair(place, label, waits=waits) for label, waits in (("at once", False), ("ready", True))}
            run_all([script for both in pairs.values() for script in both], place, rounds)
    except (NoClusterError, CommandFailedError) as error:
        print(f"benchmarks: {error}", file=sys.stderr)
        return 2
    print(f"{'from the script to the first line of the trainer':<50}{'median':>8}  × by hand, median of the pairs")
    met = [report([hpcrun], by_hand, AT_MOST) for hpcrun, by_hand in pairs.values()]
    print(f"  demanded: at most {AT_MOST}, {'met' if all(met) else 'NOT MET'}; 2 nodes, 2 roles, {rounds} rounds")
    return 0 if all(met) else 1


def pair(place: Place, label: str, *, waits: bool) -> tuple[Script, Script]:
    """Write hpcrun's script and the one by hand: the trainer starts with the server, or waits until it answers."""
    for name, text in (("server.py", SERVER), ("trainer.py", TRAINER)):
        (place.folder / name).write_text(text, "ascii")
    how = "server:1,ready=http:29512/" if waits else "server:1,on-exit=ignore"
    roles = ("--role", how, "server.py", "29512", "--role", "trainer:1", "trainer.py")
    done = place.run([HPCRUN, "submit", "--dry-run", *OPTIONS, "--launcher", "python", *roles])
    words = {name: shlex.quote(str(place.folder / f"{name}.py")) for name in ("server", "trainer")}
    by_hand = BY_HAND.format(python=shlex.quote(sys.executable), wait=WAIT if waits else "", **words)
    slug = label.replace(" ", "-")
    return (
        timed(Script(f"{label}: hpcrun", place.folder / f"{slug}-hpcrun.sh"), done.stdout, place),
        timed(Script(f"{label}: by hand", place.folder / f"{slug}-hand.sh"), by_hand, place),
    )


if __name__ == "__main__":
    sys.exit(main())
