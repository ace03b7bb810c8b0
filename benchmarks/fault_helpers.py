"""Faults of what runs beside the ranks: each helper process is killed (SIGKILL); the disk is full
at the end of a role.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from cluster import wait_for
from fault_site import OVER, Site, Tally

SMALL = ("--cpus", "1", "--mem", "1G", "-t", "5m", "--gpus", "0")
# Child processes that leave the process group, the session and the parent of a rank.
LEAVES = """
import subprocess, time
subprocess.Popen(["sh", "-c", "sleep 600 & sleep 600"], start_new_session=True)
subprocess.Popen(["sleep", "600"])
print("ready", flush=True)
time.sleep(600)
"""
ON_CPU = ("-P", "cpu", *SMALL)
SPARE = ("-P", "a100", "-p", "gpu", "-N", "2", "--restarts", "1", "--spares", "1", *SMALL)
HELPERS = {
    "torchrun": ("rank", "node", "torch.distributed.run", "srun"),
    "srun": ("rank", "job"),
    "command": ("rank", "node"),
    "spare": ("guard", "srun of guard", "job"),
}
REPLACED = ("guard", "srun of guard")
"""Processes without which the job goes on: another one comes, and then the job is killed."""
FILLS = """
import sys
try:
    with open(sys.argv[1], "wb") as file:
        while True:
            file.write(bytes(4096))
            file.flush()
except OSError:
    pass
"""


@dataclass(frozen=True)
class Process:
    """A process of a run."""

    pid: int
    parent: int
    words: list[str]

    def is_helper(self, helper: str) -> bool:
        """Whether this is a part of launch, a launcher, or the srun of the job or its guard."""
        is_of_guard = "--job-name=guard" in self.words
        if helper.startswith("srun"):
            return self.words[0] == "srun" and is_of_guard is helper.endswith("guard")
        if "." in helper:
            return self.words[1:3] == ["-m", helper]
        return self.words[1:4:2] == ["-ISB", helper]


def processes(folder: Path) -> list[Process]:
    """Return the processes of a run."""
    every = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            if f"\0HPCRUN_RUN_DIR={folder}\0" in (path / "environ").read_text(errors="replace"):
                words = (path / "cmdline").read_text().split("\0")
                parent = int((path / "stat").read_text().rpartition(")")[2].split()[1])
                every.append(Process(int(path.name), parent, words))
        except OSError:
            continue
    return every


def find(folder: Path, helper: str, *, canary: bool = False) -> int:
    """Return a helper of a run, or its canary, which has the same command; 0 if there is none."""
    helpers = {each.pid: each for each in processes(folder) if each.is_helper(helper)}
    for each in helpers.values():
        if (each.parent in helpers) is canary:
            return each.pid
    return 0


def helpers_killed(site: Site) -> list[Tally]:
    """Kill each helper of a job, and each canary before its helper: nothing may survive."""
    program = site.folder / "leaves.py"
    program.write_text(LEAVES)
    left = []
    kills = []
    for launcher, helpers in HELPERS.items():
        for helper in helpers:
            has_canary = helper in ("rank", "node", "job")
            for first in (False, True) if has_canary else (False,):
                job, folder = _submit(site, launcher, program)
                kills.append(f"{launcher}: {'canary of ' if first else ''}{helper}")
                _kill(folder, helper, first=first)
                wait_for(lambda: site.state_of(job) in OVER, f"the end of {job}", 120)  # noqa: B023
                left += [f"{kills[-1]}: {each}" for each in _left(folder)]
    tally = site.tally("helper killed", lambda _: {"FAILED"})
    tally.orphaned += left
    tally.remark = ", ".join(kills)
    return [tally]


def _submit(site: Site, launcher: str, program: Path) -> tuple[str, Path]:
    where = SPARE if launcher == "spare" else ON_CPU
    of_launcher = "srun" if launcher == "spare" else launcher
    argv = (sys.executable, str(program)) if launcher == "command" else (str(program),)
    ranks = () if launcher == "command" else ("--nproc-per-node", "1")
    job = site.submit(*where, "--launcher", of_launcher, *ranks, *argv)
    (folder,) = [Path(run["folder"]) for run in site.all_runs() if run["job_id"] == job]
    out = folder / "elements/0/attempts/0/rank-0.out"
    wait_for(lambda: out.exists() and out.read_text() != "", f"the rank of {job}", 60)
    return job, folder


def _kill(folder: Path, helper: str, *, first: bool) -> None:
    """Kill a helper; its canary ``first``, which another one must replace."""
    if first:
        _replace(folder, helper, canary=True)
    if helper in REPLACED:
        _replace(folder, helper)
        helper = "job"
    os.kill(find(folder, helper), signal.SIGKILL)


def _replace(folder: Path, helper: str, *, canary: bool = False) -> None:
    wait_for(lambda: find(folder, helper, canary=canary) != 0, f"the {helper}", 30)
    before = find(folder, helper, canary=canary)
    os.kill(before, signal.SIGKILL)
    wait_for(
        lambda: find(folder, helper, canary=canary) not in (0, before), f"another {helper}", 60
    )


def _left(folder: Path) -> list[str]:
    """Return the processes that are left of a run after some seconds."""
    until = time.monotonic() + 15
    while processes(folder) and time.monotonic() < until:
        time.sleep(0.2)
    return [f"{each.pid} {each.words[:5]}" for each in processes(folder)]


def role_on_full_disk(site: Site) -> list[Tally]:
    """Fill the runs folder at the end of the role that decides, and make room soon, or never."""
    mount = site.folder / "full-at-end"
    mount.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", str(mount)], check=True)
    small = site.with_runs("full-at-end/runs")
    program = site.folder / "fills.py"
    program.write_text(FILLS)
    fill = small.runs / "fill"
    expected = {}
    try:
        small.runs.mkdir(mode=0o700)
        for soon in (True, False):
            job = small.submit(
                *("-P", "a100", "-p", "gpu", *SMALL, "--launcher", "python"),
                *("--role", "server:1", "sh", "-c", "sleep 600"),
                *("--role", "trainer:1", str(program), str(fill)),
            )
            expected[job] = {"COMPLETED"} if soon else {"FAILED"}
            wait_for(lambda: fill.exists() and not _free(mount), f"{job} to fill the disk", 90)
            if soon:
                time.sleep(3)
                fill.unlink()
            wait_for(lambda: not _is_listed(small, job), f"the end of {job}", 120)  # noqa: B023
            fill.unlink(missing_ok=True)
        small.settle()
        tally = small.tally("full disk at a role's end", lambda job: expected[job])
        tally.remark = "room is made after 3 s, or never"
    finally:
        subprocess.run(["umount", "--lazy", str(mount)], check=True)
    return [tally]


def _free(mount: Path) -> int:
    return os.statvfs(mount).f_bavail


def _is_listed(site: Site, job: str) -> bool:
    state = site.run("squeue", "--noheader", "--format=%T", f"--jobs={job}").stdout.strip()
    return state in ("PENDING", "CONFIGURING", "RUNNING", "COMPLETING")
