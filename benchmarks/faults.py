"""What becomes of runs when things break: every fault is made on the development cluster, and the
runs are counted.

`make cluster`, then `make faults`. Lost: a job that no run knows of, a run that is not shown, a
file that is gone.
Orphaned: a job without a run's folder. Wrong: a run whose state, or culprit, is not what became of
its job. It exits with 1 where there is one of these.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from cluster import NoClusterError, cluster_env, cluster_to_oneself
from fault_dev import in_use
from fault_helpers import helpers_killed, role_on_full_disk
from fault_nodes import dead_spare, folder_full, folder_squatted, wrapper_killed
from fault_ranks import local_under_load, wrong_culprit
from fault_records import another_folder, records_damaged, runs_in_a_home
from fault_remote import asleep, cut_off, no_space
from fault_requeue import requeued
from fault_roles import role_killed
from fault_site import Site, Tally
from fault_slurm import COUNT, accounting, controller_hung, controller_killed, interruptions
from fault_submission import at_once, disk_full, killed
from measure import CommandFailedError

FAULTS: dict[str, Callable[[Site, int], list[Tally]]] = {
    "interruptions": lambda site, _: interruptions(site),
    "controller": lambda site, _: controller_killed(site),
    "hung": lambda site, _: controller_hung(site),
    "accounting": lambda site, _: accounting(site),
    "disk": lambda site, _: disk_full(site),
    "killed": killed,
    "at-once": lambda site, _: at_once(site),
    "culprit": lambda site, _: wrong_culprit(site),
    "local": lambda site, _: local_under_load(site),
    "records": lambda site, _: records_damaged(site),
    "home": lambda site, _: runs_in_a_home(site),
    "folder": lambda site, _: another_folder(site),
    "dead-spare": lambda site, _: dead_spare(site),
    "wrapper": lambda site, _: wrapper_killed(site),
    "squatted": lambda site, _: folder_squatted(site),
    "full": lambda site, _: folder_full(site),
    "cut-off": cut_off,
    "no-space": lambda site, _: no_space(site),
    "asleep": lambda site, _: asleep(site),
    "dev": in_use,
    "roles": role_killed,
    "helpers": lambda site, _: helpers_killed(site),
    "full-at-end": lambda site, _: role_on_full_disk(site),
    "requeued": lambda site, _: requeued(site),
}


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--kills",
        type=int,
        default=200,
        metavar="N",
        help="how often submit is killed (default 200)",
    )
    parser.add_argument("faults", nargs="*", choices=[*FAULTS, []], help="by default all")
    options = parser.parse_args()
    try:
        slurm = cluster_env()
        with cluster_to_oneself(), tempfile.TemporaryDirectory(prefix="hpcrun-faults-") as name:
            return run_faults(Path(name), slurm, options.faults or list(FAULTS), options.kills)
    except (NoClusterError, CommandFailedError) as error:
        print(f"faults: {error}", file=sys.stderr)
        return 2


def run_faults(folder: Path, slurm: dict[str, str], names: list[str], kills: int) -> int:
    """Make the faults one after the other, and print the table; returns the exit status."""
    (folder / "count.py").write_text(COUNT, "ascii")
    since = time.strftime("%Y-%m-%dT%H:%M:%S")
    print("| fault | runs | lost | orphaned | wrong | |\n|---|--:|--:|--:|--:|---|", flush=True)
    bad = 0
    for name in names:
        site = Site(
            folder, {**os.environ, **slurm, "HPCRUN_RUNS": str(folder / f"runs-{name}")}, since
        )
        for tally in FAULTS[name](site, kills):
            columns = (
                tally.fault,
                tally.runs,
                len(tally.lost),
                len(tally.orphaned),
                len(tally.wrong),
                tally.remark,
            )
            print(f"| {' | '.join(map(str, columns))} |", flush=True)
            for what in ("lost", "orphaned", "wrong"):
                for line in getattr(tally, what):
                    print(f"{tally.fault}: {what}: {line}", file=sys.stderr)
                    bad += 1
    print(f"\n{'nothing lost, orphaned or wrong' if not bad else f'{bad} NOT AS DEMANDED'}")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
