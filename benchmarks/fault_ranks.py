"""Faults of ranks: which one is named, and what becomes of local runs on a machine that is busy."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

from cluster import wait_for
from fault_site import HPCRUN, OVER, Site, Tally

# argv: the rank that fails, how it fails, how many barriers it passes before that
RANK_FAILS = """
import os, signal, sys
import torch.distributed as dist
rank, how, steps = int(sys.argv[1]), sys.argv[2], int(sys.argv[3])
if steps:
    dist.init_process_group("gloo")
    for _ in range(steps):
        dist.barrier()
if int(os.environ["RANK"]) == rank:
    if how == "raise":
        raise KeyError("recall")
    if how == "exit":
        sys.exit(3)
    os.kill(os.getpid(), signal.SIGSEGV)
if not steps:
    dist.init_process_group("gloo")
dist.barrier()
"""
CULPRITS = [
    (rank, how, steps)
    for steps in (0, 1, 20)
    for rank, how in ((0, "raise"), (3, "raise"), (1, "segv"), (2, "exit"))
]
STATUS_OF = {"raise": 1, "exit": 3, "segv": 139}


def wrong_culprit(site: Site) -> list[Tally]:
    """Let one rank of 2 × 2 fail in many ways and moments: status and explain must name that
    one.
    """
    (site.folder / "fails.py").write_text(RANK_FAILS)
    profiles = ("a100", "v100", "l40s", "h100")
    jobs = {}
    for number, culprit in enumerate(CULPRITS):
        argv = (
            "-P",
            profiles[number % len(profiles)],
            "-N",
            "2",
            "-G",
            "4",
            "-t",
            "5m",
            "fails.py",
            *map(str, culprit),
        )
        jobs[site.submit(*argv)] = culprit
        if number % 4 == 3:  # four ranks each, on a machine with a few cores
            site.settle(300)
    tally = site.tally("one rank fails", lambda _: {"FAILED"})
    for job, (rank, how, steps) in jobs.items():
        answer = json.loads(site.run(HPCRUN, "explain", "--json", job).stdout)
        summary = str(answer.get("summary"))
        named = (
            answer.get("rank") == rank
            and "rendezvous" not in summary
            and (how != "raise" or "recall" in summary)
        )
        if not named:
            tally.wrong.append(f"rank {rank} ({how} after {steps} steps): {summary}")
    tally.remark = f"{len(jobs)} jobs, each with a culprit of its own"
    return [tally]


def local_under_load(site: Site) -> list[Tally]:
    """Run local jobs while every core is busy several times over: each ends as its program did."""
    here = site.with_runs("runs-local")
    burn = [
        subprocess.Popen([sys.executable, "-c", "while True: pass"])
        for _ in range(4 * (os.cpu_count() or 1))
    ]
    try:
        with ThreadPoolExecutor(8) as pool:
            argv = ("-P", "local", "--cpus", "1", "-t", "5m", "sh", "-c")
            statuses = [number % 3 for number in range(30)]
            jobs = list(pool.map(lambda status: here.submit(*argv, f"exit {status}"), statuses))

            def is_seen(_: int) -> bool:
                return all(state in OVER for state in here.states().values())

            wait_for(lambda: all(pool.map(is_seen, range(4))), "the local runs to end", 300)
    finally:
        for process in burn:
            process.kill()
            process.wait()
    states = {str(run["job_id"]): str(run["state"]) for run in here.all_runs()}
    wrong = [
        f"{job} of exit status {status} is {states.get(job)}"
        for job, status in zip(jobs, statuses, strict=True)
        if states.get(job) != ("FAILED" if status else "COMPLETED")
    ]
    return [Tally("local runs under load", len(states), wrong=wrong)]
