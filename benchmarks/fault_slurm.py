"""Faults of Slurm: preemption, time limits, nodes and daemons that go away."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from cluster import wait_for
from fault_site import HPCRUN, Site, Tally, cluster, without
from measure import CommandFailedError

# Counts to a number in half seconds; all ranks agree when to stop, and the count goes on where it
# stopped.
COUNT = """
import sys, time
import torch, torch.distributed as dist
from hpcrun_runtime import checkpoint_dir, should_stop
dist.init_process_group("gloo")
saved, step = checkpoint_dir() / "step", 0
if saved.exists():
    step = int(saved.read_text())
while step < int(sys.argv[1]):
    time.sleep(0.5)
    step += 1
    if dist.get_rank() == 0:
        (checkpoint_dir() / "new").write_text(str(step))
        (checkpoint_dir() / "new").rename(saved)
    stop = torch.tensor(float(should_stop()))
    dist.all_reduce(stop, op=dist.ReduceOp.MAX)
    if stop:
        break
dist.barrier()
dist.destroy_process_group()
"""


def wait_until_down(site: Site, nodes: list[str]) -> None:
    """Wait until Slurm has given nodes up: ``down`` or ``drained``, and not only ``*``, which does
    not answer yet.
    """
    states: list[str] = []

    def down() -> bool:
        states[:] = site.run(
            "sinfo", "--noheader", "--Node", f"--nodes={','.join(nodes)}", "--format=%N %T"
        ).stdout.splitlines()
        return all(line.split()[1].startswith(("down", "drained")) for line in states)

    try:
        wait_for(down, "Slurm to give up the nodes", 120)
    except CommandFailedError as error:
        raise CommandFailedError(f"{error}: {states}") from None


def interruptions(site: Site) -> list[Tally]:
    """Preempt, time limit, unplugged nodes and a dead slurmd, each on nodes of its own, all at
    once.
    """
    program = str(site.folder / "count.py")
    small = ("--time", "10m", "--requeue", "2")
    two = ("-N", "2", "-G", "4", *small, program, "100")
    jobs = {
        "preemption": site.submit("-P", "a100", "-p", "preempt", *two),
        "time limit": site.submit(
            "-P", "h200", "-G", "2", "-t", "2m", "--warn", "20s", "--requeue", "2", program, "250"
        ),
        "node unplugged": site.submit("-P", "l40s", *two),
        "first node unplugged": site.submit("-P", "v100", "-G", "2", *small, program, "100"),
        "slurmd killed": site.submit("-P", "h100", *two),
    }
    wait_for(
        lambda: all(site.state_of(job) == "RUNNING" for job in jobs.values()),
        "the jobs to start",
        120,
    )
    time.sleep(12)  # until the ranks count
    site.run(
        "sbatch",
        "-p",
        "gpu",
        "-w",
        "a100-[1-2]",
        "-N2",
        "--gres=gpu:4",
        "-t",
        "5",
        "-o",
        "/dev/null",
        "--wrap=sleep 15",
    )
    first = next(
        str(run["hosts"])
        for run in site.all_runs()
        if run["job_id"] == jobs["first node unplugged"]
    )
    cluster("unplug", "l40s-2")
    cluster("unplug", first)
    cluster("stop", "h100-2")
    wait_until_down(site, ["l40s-2", first, "h100-2"])
    cluster("plug", "l40s-2")
    cluster("start", "h100-2")
    # as long as the job may still run there: a node that comes back with it is drained ("Duplicate
    # jobid")
    time.sleep(60)
    cluster("plug", first)
    site.settle(400)
    whole = site.tally("")
    attempts = {str(run["job_id"]): run["attempt"] for run in site.all_runs()}
    tallies = []
    for fault, job in jobs.items():
        wrong = [line for line in whole.wrong if line.startswith(f"{job} ")]
        wrong += [] if attempts[job] else [f"{job} was not started again"]
        tallies.append(Tally(fault, 1, wrong=wrong, remark=f"ended at attempt {attempts[job] + 1}"))
    tallies[0].lost, tallies[0].orphaned = whole.lost, whole.orphaned
    return tallies


def controller_killed(site: Site) -> list[Tally]:
    """Stop the controller in the middle of submits, looks and cancels."""
    started = time.monotonic()
    answers = []

    def submit(number: int) -> subprocess.CompletedProcess[str]:
        time.sleep(number * 0.35)
        return site.run(HPCRUN, "submit", "-P", "cpu", "--cpus", "1", "-t", "5m", "sleep", "40")

    with ThreadPoolExecutor(12) as pool:
        waiting = [pool.submit(submit, number) for number in range(12)]
        time.sleep(1.5)
        with without("ctld"):
            time.sleep(3)
        answers = [item.result() for item in waiting]
    refused = sum(answer.returncode != 0 for answer in answers)
    wait_for(lambda: "SUBMITTING" not in site.states().values(), "every run to be known", 150)
    during_submit = f"12 submits, {refused} refused or unsure"
    with without("ctld"):
        shown = site.states()
    lost_sight = [state for state in shown.values() if state in ("UNKNOWN", "NOT_SUBMITTED")]
    live = [run for run in site.all_runs() if run["state"] in ("PENDING", "RUNNING")]
    cancelled = [str(run["job_id"]) for run in live[:4]]
    with without("ctld"):
        site.run(HPCRUN, "cancel", *cancelled)
    site.run(HPCRUN, "cancel", *cancelled)
    site.settle()
    tally = site.tally(
        "controller killed", lambda job: {"CANCELLED"} if job in cancelled else {"COMPLETED"}
    )
    tally.wrong += [f"{state} while the controller was away" for state in lost_sight]
    tally.remark = (
        f"{during_submit}, {len(cancelled)} cancelled, {time.monotonic() - started:.0f} s"
    )
    return [tally]


def controller_hung(site: Site) -> list[Tally]:
    """Stop the controller's process for a while, as a busy one does: sbatch says that its socket
    timed out.
    """
    pid = int(
        Path(site.env["SLURM_CONF"]).parents[1].joinpath("run", "slurmctld.pid").read_text("ascii")
    )
    os.kill(pid, signal.SIGSTOP)
    try:
        with ThreadPoolExecutor(6) as pool:
            argv = (HPCRUN, "submit", "-P", "cpu", "--cpus", "1", "-t", "5m", "true")
            answers = list(pool.map(lambda _: site.run(*argv), range(6)))
    finally:
        os.kill(pid, signal.SIGCONT)
    site.settle()
    tally = site.tally("controller hung")
    unsure = sum("may have been submitted" in answer.stderr for answer in answers)
    tally.remark = f"6 submits, {unsure} without an answer, {len(site.jobs())} jobs"
    return [tally]


def accounting(site: Site) -> list[Tally]:
    """Run jobs while the accounting daemon is away, and with clients that know of no accounting."""
    with without("dbd"):
        good = [site.submit("-P", "cpu", "--cpus", "1", "-t", "5m", "sleep", "2") for _ in range(5)]
        bad = site.submit("-P", "cpu", "--cpus", "1", "-t", "5m", "sh", "-c", "exit 3")
        site.settle()
        here = site.tally(
            "accounting killed", lambda job: {"FAILED"} if job == bad else {"COMPLETED"}
        )
    none = site.with_runs("runs-without-accounting")
    conf = site.folder / "none.conf"
    lines = Path(site.env["SLURM_CONF"]).read_text("utf-8").splitlines()
    kept = [line for line in lines if not line.startswith("AccountingStorage")]
    conf.write_text(
        "\n".join([*kept, "AccountingStorageType=accounting_storage/none", ""]), "utf-8"
    )
    none.env["SLURM_CONF"] = str(conf)
    bad_there = none.submit("-P", "cpu", "--cpus", "1", "-t", "5m", "sh", "-c", "exit 3")
    for _ in range(5):
        none.submit("-P", "cpu", "--cpus", "1", "-t", "5m", "sleep", "2")
    time.sleep(75)  # MinJobAge is 60 s: the controller has forgotten them
    none.settle()
    there = none.tally(
        "no accounting, jobs forgotten",
        lambda job: {"FAILED"} if job == bad_there else {"COMPLETED"},
    )
    here.lost = [job for job in here.lost if job not in good]  # the accounts may lag
    return [here, there]
