"""Faults of nodes: a dead spare node, a killed wrapper, another user in /tmp, a full disk."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

from cluster import wait_for
from fault_site import HPCRUN, OVER, Site, Tally, cluster

# Shares a rank's process group with a child. It ends at a request to stop, or, if there is none,
# badly.
WAITS = """
import os, subprocess, sys, time
from hpcrun_runtime import attempt, should_stop
child = subprocess.Popen(["sleep", "300"])
until = time.monotonic() + (0 if attempt() else 60)
while time.monotonic() < until and not should_stop():
    time.sleep(0.1)
child.kill()
sys.exit(0 if attempt() or should_stop() else 1)
"""
# Another user, who makes folders, links and files, and does to those of others what the kernel
# allows.
SQUAT = """
import os, time
os.setgid(65534)
os.setuid(65534)
kinds = (os.mkdir, lambda path: os.symlink("/etc", path), lambda path: open(path, "w").close())
places = ("/tmp", "/dev/shm")
own = {f"{place}/hpcrun-node-{number}": kind
       for place in places for number, kind in enumerate(kinds)}
does = (os.rmdir, os.unlink, os.listdir,
        lambda path: os.rename(path, path + "x"), lambda path: os.open(path, 0))
while True:
    for path, kind in own.items():
        if not os.path.lexists(path):
            kind(path)
        os.utime(path, (0, 0), follow_symlinks=False)
    for path in (f"{place}/{name}" for place in places for name in os.listdir(place)):
        for do in does if "/hpcrun-node-" in path and path not in own else ():
            try:
                do(path)
            except OSError:
                continue
    time.sleep(0.01)
"""
SMALL = ("--cpus", "2", "--mem", "1G", "-t", "10m", "--gpus", "0")
LAUNCHERS = ("torchrun", "srun", "command")


def submit(site: Site, launcher: str, *more: str) -> tuple[str, Path, int]:
    """Submit a job of one node; return its id, its folder, and its number of ranks."""
    program = site.folder / "waits.py"
    program.write_text(WAITS)
    ranks = ("--nproc-per-node", "2") if launcher != "command" else ()
    argv = (sys.executable, str(program)) if launcher == "command" else (str(program),)
    job = site.submit("-P", "cpu", *more, *SMALL[:6], "--launcher", launcher, *ranks, *argv)
    (folder,) = [Path(run["folder"]) for run in site.all_runs() if run["job_id"] == job]
    count = 2 if ranks else 1
    wait_for(lambda: len(processes(folder, "sleep")) == count, f"the ranks of {job}", 60)
    return job, folder, count


def processes(folder: Path, part: str) -> list[int]:
    """Return the processes of a run that are a part of launch, or the program ``sleep``; without
    the canaries.
    """
    states = {}
    for path in Path("/proc").glob("[0-9]*"):
        try:
            if f"HPCRUN_RUN_DIR={folder}" in (path / "environ").read_text(errors="replace").split(
                "\0"
            ):
                argv = (path / "cmdline").read_text().split("\0")
                parent = int((path / "stat").read_text().rpartition(")")[2].split()[1])
                states[int(path.name)] = (argv, parent)
        except OSError:
            continue
    mine = {
        pid: each
        for pid, each in states.items()
        if part == (each[0][0] if part == "sleep" else "".join(each[0][3:4]))
    }
    return [pid for pid, (argv, parent) in mine.items() if states.get(parent, ("", 0))[0] != argv]


def dead_spare(site: Site) -> list[Tally]:
    """Pull the cables of a node of the step and of a spare node: another one is used, or there is
    none.
    """
    program = site.folder / "waits.py"
    program.write_text(WAITS)
    places = {"2": ("a100-1", "a100-2", "h100-1", "h100-2"), "1": ("v100-1", "v100-2", "l40s-1")}
    jobs, pulled = {}, []
    for spares, nodes in places.items():
        where = ("-P", "a100", "-p", "gpu", "-w", ",".join(nodes), "-N", "2", "--launcher", "srun")
        jobs[site.submit(*where, *SMALL, "--restarts", "1", "--spares", spares, str(program))] = (
            nodes
        )
    folders = {str(run["job_id"]): Path(run["folder"]) for run in site.all_runs()}
    for job, nodes in jobs.items():
        attempt = folders[job] / "elements/0/attempts/0"
        wait_for(partial(has_logs, attempt), f"the ranks of {job}", 120)
        used = (attempt / "hosts").read_text().split()
        pulled += [used[1], next(node for node in nodes if node not in used)]
    time.sleep(8)  # each node has had a heartbeat
    for node in pulled:
        cluster("unplug", node)
    enough, few = jobs
    try:
        wait_for(lambda: all(site.state_of(job) in OVER for job in jobs), "the jobs to end", 240)
    finally:
        for node in pulled:
            cluster("plug", node)
    tally = site.tally(
        "dead spare node", lambda job: {"COMPLETED"} if job == enough else OVER - {"COMPLETED"}
    )
    answer = site.run(HPCRUN, "explain", few).stdout
    tally.wrong += [] if "too few nodes are left" in answer else [f"explain {few}: {answer}"]
    tally.remark = "one job with another spare node, one without"
    return [tally]


def has_logs(attempt: Path) -> bool:
    """Whether both ranks of an attempt have begun."""
    return len(list(attempt.glob("rank-*.out"))) == 2


def wrapper_killed(site: Site) -> list[Tally]:
    """Kill (SIGKILL) the wrapper of a rank, or the program of a node, with each launcher: nothing
    may survive.
    """
    parts = [
        (launcher, part)
        for launcher in LAUNCHERS
        for part in ("rank", "node")
        if (launcher, part) != ("srun", "node")
    ]
    left, unexplained = [], []
    for launcher, part in parts:
        job, folder, _ = submit(site, launcher)
        os.kill(processes(folder, part)[0], signal.SIGKILL)
        site.settle(60)
        time.sleep(2)
        left += [f"{launcher}, {part}: process {pid} is left" for pid in processes(folder, "sleep")]
        answer = site.run(HPCRUN, "explain", job).stdout
        unexplained += (
            []
            if "was killed (SIGKILL)" in " ".join(answer.split())
            else [f"{launcher}, {part}: {answer}"]
        )
    tally = site.tally("wrapper killed", lambda _: {"FAILED"})
    tally.orphaned += left
    tally.wrong += unexplained
    tally.remark = ", ".join(f"{part} of {launcher}" for launcher, part in parts)
    return [tally]


def folder_squatted(site: Site) -> list[Tally]:
    """Let another user make folders, links and files in /tmp and /dev/shm, and try to use and
    remove the jobs'.
    """
    other = subprocess.Popen([sys.executable, "-c", SQUAT])
    try:
        return [stopped(site, "node folder of another user")]
    finally:
        other.kill()
        other.wait()
        for place in ("/tmp", "/dev/shm"):
            subprocess.run(
                ["rm", "-rf", *(f"{place}/hpcrun-node-{number}" for number in range(3))], check=True
            )


def folder_full(site: Site) -> list[Tally]:
    """Run jobs on a node on which no file can be made in /tmp and /dev/shm."""
    nodes = site.run("sinfo", "-hN", "-p", "cpu", "-o", "%N").stdout.split()
    for node in nodes:
        cluster("full", node)
    try:
        wait_for(
            lambda: site.run("sinfo", "-h", "-p", "cpu", "-o", "%t").stdout.split() == ["idle"],
            "the nodes",
            60,
        )
        return [stopped(site, "node folder on a full disk")]
    finally:
        for node in nodes:
            cluster("stop", node)
            cluster("start", node)


def stopped(site: Site, fault: str) -> Tally:
    """Warn a job with each launcher: its ranks must learn of it, and its next attempt complete."""
    before = node_folders()
    for launcher in LAUNCHERS:
        job, _, _ = submit(site, launcher, "--requeue", "1", "--warn", "30s")
        time.sleep(2)
        site.run("scancel", "--batch", "--signal=USR1", job)
        site.settle(120)
    tally = site.tally(fault)
    tally.wrong += [
        f"{run['job_id']} ended at attempt {run['attempt'] + 1}"
        for run in site.all_runs()
        if run["attempt"] != 1
    ]
    tally.orphaned += [f"{path} is left" for path in node_folders() - before]
    tally.remark = "warned, requeued; " + ", ".join(LAUNCHERS)
    return tally


def node_folders() -> set[Path]:
    """Return the folders of nodes on this machine, those of the other user left out."""
    left_over = [
        path for place in ("/tmp", "/dev/shm") for path in Path(place).glob("hpcrun-node-*")
    ]
    return {path for path in left_over if len(path.name) > len("hpcrun-node-0")}
