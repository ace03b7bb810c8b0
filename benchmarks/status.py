"""What runs cost ``hpcrun status``: 100 live and 10,000 finished ones, and ten finished sweeps of
1,000 elements, each beside ten plain runs.

`make cluster`, then `python benchmarks/status.py`. It exits with 1 where a demand is not met.
"""

from __future__ import annotations

import argparse
import os
import sys
import sysconfig
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from cluster import NoClusterError, cancel_jobs, cluster_env, cluster_to_oneself
from measure import CommandFailedError, Contender, Place, race, ratio_range

from hpcrun.actions.status.run_status import combine
from hpcrun.runs.elements import save_statuses
from hpcrun.runs.record import LastStatus, Run, run_to_json, status_to_json
from hpcrun.runs.store import RunStore
from hpcrun.schedulers.slurm_text import SEPARATOR, parse_cluster_name, parse_squeue

FEW, LIVE, FINISHED = 10, 100, 10_000
AT_MOST = 1.5
SWEEPS, ELEMENTS, SWEEPS_AT_MOST = 10, 1000, 1.3
LINES, PARSED_WITHIN_S = 100_000, 1.0
NAME = f"hpcrun-bench-{os.getpid()}"
HPCRUN = str(Path(sysconfig.get_path("scripts"), "hpcrun"))


def main() -> int:
    """Measure and print; returns the exit status."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--rounds", type=int, default=10, metavar="N", help="how often each is timed (default 10)"
    )
    options = parser.parse_args()
    try:
        slurm = cluster_env()
        with cluster_to_oneself(), tempfile.TemporaryDirectory(prefix="hpcrun-bench-") as name:
            place = Place(Path(name), {**os.environ, **slurm})
            try:
                met = [
                    measure_runs(place, options.rounds),
                    measure_sweeps(place, options.rounds),
                    measure_parsing(),
                ]
            finally:
                cancel_jobs(NAME, place)
    except (NoClusterError, CommandFailedError) as error:
        print(error, file=sys.stderr)
        return 2
    return 0 if all(met) else 1


def measure_runs(place: Place, rounds: int) -> bool:
    """Time a look at few and at many runs; returns whether the demand is met."""
    job_ids = [held_job(place) for _ in range(LIVE)]
    cluster = parse_cluster_name(Path(place.env["SLURM_CONF"]).read_text("utf-8"))
    few, many = RunStore(place.folder / "few"), RunStore(place.folder / "many")
    make_runs(few, job_ids[:FEW], finished=0, cluster=cluster)
    make_runs(many, job_ids, finished=FINISHED, cluster=cluster)
    looks = [
        Contender(f"{FEW} live runs", ["env", f"HPCRUN_RUNS={few.root}", HPCRUN, "status"]),
        Contender(
            f"{LIVE} live and {FINISHED:,} finished runs",
            ["env", f"HPCRUN_RUNS={many.root}", HPCRUN, "status"],
        ),
    ]
    for contender, live in zip(looks, (FEW, LIVE), strict=True):
        if (shown := place.run(contender.argv).stdout.count(" PENDING")) != live:
            raise CommandFailedError(f"{contender.label}: {shown} runs are shown as waiting")
    return compare(looks[0], looks[1], place, rounds, AT_MOST)


def measure_sweeps(place: Place, rounds: int) -> bool:
    """Time a look at plain runs and at sweeps that are over; returns whether the demand is met."""
    looks = []
    for name, elements in (("plain", 0), ("sweeps", ELEMENTS)):
        store = RunStore(place.folder / name)
        store.root.mkdir(mode=0o700)
        make_runs(store, [], finished=SWEEPS, cluster=None, elements=elements)
        label = f"{SWEEPS} finished sweeps of {ELEMENTS:,}" if elements else f"{SWEEPS} plain runs"
        looks.append(Contender(label, ["env", f"HPCRUN_RUNS={store.root}", HPCRUN, "status"]))
    return compare(looks[0], looks[1], place, rounds, SWEEPS_AT_MOST)


def compare(small: Contender, large: Contender, place: Place, rounds: int, at_most: float) -> bool:
    """Time two looks side by side and print them; returns whether the demand is met."""
    race([small, large], place=place, rounds=rounds)
    ratio = large.median / small.median
    least, most = ratio_range(large, small)
    print(f"hpcrun status, median of {rounds} rounds after one to warm up")
    for contender in (small, large):
        print(f"  {contender.label:<44}{contender.median * 1000:>5.0f} ms")
    print(f"  ratio {ratio:.2f}, single rounds from {least:.2f} to {most:.2f}")
    print(f"  demanded: at most {at_most:.1f}, {verdict(ratio <= at_most)}")
    return ratio <= at_most


def measure_parsing() -> bool:
    """Time the reading of a very long answer of squeue; returns whether the demand is met."""
    script = "/home/me/runs/20261121-093012-train-3f2a/script.sh"
    fields = ("RUNNING", "None", "1-02:03:04", "2-00:00:00", "a100-[1-2]", script)
    text = "\n".join(SEPARATOR.join((str(number), *fields)) for number in range(LINES))
    began = time.perf_counter()
    parsed = len(parse_squeue(text))
    took_s = time.perf_counter() - began
    met = parsed == LINES and took_s < PARSED_WITHIN_S
    print(f"{parsed:,} lines of squeue parsed in {took_s * 1000:.0f} ms")
    print(f"  demanded: less than {PARSED_WITHIN_S:g} s, {verdict(met)}")
    return met


def held_job(place: Place) -> str:
    """Submit a job that never starts; returns its id."""
    answer = place.run(
        [
            "sbatch",
            "--hold",
            "--parsable",
            f"--job-name={NAME}",
            "--output=/dev/null",
            "--wrap=true",
        ]
    )
    return answer.stdout.strip().partition(";")[0]


def make_runs(
    store: RunStore,
    job_ids: Sequence[str],
    *,
    finished: int,
    cluster: str | None,
    elements: int = 0,
) -> None:
    """Write the folders of runs: finished ones, half of them older and half newer than the live
    ones. The finished ones are sweeps of so many elements, if any.
    """
    one = Run(
        run_id="",
        name="train",
        scheduler="slurm",
        cluster=cluster,
        host=os.uname().nodename,
        created_s=time.time(),
        job_id=None,
        profile="a100",
        nodes=2,
        gpus_per_node=2,
        world_size=4,
        walltime_s=3600,
    )
    over = LastStatus("COMPLETED", time.time(), final=True, elapsed_s=61, exit_status=0)
    for number, job_id in enumerate(job_ids):
        store.create(replace(one, run_id=run_id(12, number), job_id=job_id), "")
    for number in range(finished):
        run = replace(
            one, run_id=run_id(11 if number % 2 else 13, number), job_id=str(10**8 + number)
        )
        if elements:
            rows = [[["lr", f"{place}e-6"], ["seed", f"{place}"]] for place in range(elements)]
            sweep = {"indices": f"0-{elements - 1}", "first": 0}
            run = replace(run, request={"sweep": rows}, plan={"sweep": sweep})
        folder = store.folder(run.run_id)
        folder.mkdir(mode=0o700)
        # not by the store: its files wait for the disk
        (folder / "run.json").write_text(run_to_json(run), "utf-8")
        ends = {place: replace(over, elapsed_s=60 + place) for place in range(elements)}
        if elements:
            save_statuses(folder, ends)
        whole = combine(list(ends.values()), one.walltime_s) if elements else over
        (folder / "status.json").write_text(status_to_json(whole), "utf-8")


def run_id(hour: int, number: int) -> str:
    """Return an id of a run of one hour."""
    return f"20261121-{hour}{number // 60 % 60:02}{number % 60:02}-train-{number:04x}"


def verdict(met: bool) -> str:
    return "met" if met else "NOT MET"


if __name__ == "__main__":
    sys.exit(main())
