"""What becomes of runs when things break: every fault is made on the development cluster, and the runs are counted.

`make cluster`, then `make faults`. Lost: a job that no run knows of. Orphaned: a job without a run's folder. Wrong: a
run whose state is not what became of its job. It exits with 1 where there is one of these.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cluster import NoClusterError, cluster_env, cluster_to_oneself, wait_for
from measure import CommandFailedError

REPO = Path(__file__).resolve().parents[1]
HPCRUN = str(Path(sysconfig.get_path("scripts"), "hpcrun"))
OVER = {"COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "PREEMPTED", "NOT_SUBMITTED", "OUT_OF_MEMORY"}

# Counts to a number in half seconds; all ranks agree when to stop, and the count goes on where it stopped.
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


@dataclass
class Tally:
    """What a fault did: how many runs met it, and what was wrong afterwards, in words."""

    fault: str
    runs: int
    lost: list[str] = field(default_factory=list)
    orphaned: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    remark: str = ""


@dataclass(frozen=True)
class Site:
    """The cluster, and a runs folder of one's own on it."""

    folder: Path
    env: dict[str, str]
    since: str

    @property
    def runs(self) -> Path:
        """The runs folder."""
        return Path(self.env["HPCRUN_RUNS"])

    def with_runs(self, name: str) -> Site:
        """Return the site with another runs folder."""
        return Site(self.folder, {**self.env, "HPCRUN_RUNS": str(self.folder / name)}, self.since)

    def run(self, *argv: str) -> subprocess.CompletedProcess[str]:
        """Run a command, whatever comes of it."""
        return subprocess.run(argv, cwd=self.folder, env=self.env, capture_output=True, text=True, timeout=120)

    def submit(self, *args: str) -> str:
        """Submit and return the job id.

        Raises:
            CommandFailedError: it was refused.
        """
        done = self.run(HPCRUN, "submit", "--json", *args)
        if done.returncode != 0:
            raise CommandFailedError(f"submit {args}: {done.stdout}{done.stderr}")
        return str(json.loads(done.stdout)["job_id"])

    def states(self) -> dict[str, str]:
        """Return run id → state of every run."""
        return {run["run_id"]: run["state"] for run in self.all_runs()}

    def all_runs(self) -> list[dict[str, Any]]:
        """Return every run as `hpcrun status` tells it; the last that was known where Slurm is away."""
        out = self.run(HPCRUN, "status", "--all", "--json").stdout
        # a controller that is away adds a second document, the error
        return list(json.JSONDecoder().raw_decode(out)[0].get("runs", [])) if out.strip() else []

    def state_of(self, job: str) -> str:
        """Return the state of the run of a job."""
        return next((str(run["state"]) for run in self.all_runs() if run["job_id"] == job), "no such run")

    def jobs(self) -> dict[str, tuple[str, str]]:
        """Return job id → (state, script) of every job that Slurm or its accounts know to be from this runs folder."""
        fields = "--format=JobIDRaw%20,State%40,SubmitLine%2000"
        out = self.run("sacct", "-X", "-P", "--noheader", f"--starttime={self.since}", fields).stdout
        found = {}
        for line in out.splitlines():
            job, state, command = line.split("|", 2)
            script = command.split()[-1] if command.split() else ""
            if script.startswith(f"{self.runs}/"):
                found[job] = (state.split()[0], script)
        return found

    def settle(self, within_s: float = 180.0) -> None:
        """Wait until every run is over."""
        wait_for(lambda: all(state in OVER for state in self.states().values()), f"{self.states()} to end", within_s)

    def tally(self, fault: str, expected: Callable[[str], set[str]] = lambda _: {"COMPLETED"}) -> Tally:
        """Compare what hpcrun says with what Slurm's accounts say.

        Args:
            expected: job id → the states that are right for it.
        """
        runs = {str(run["job_id"]): run for run in self.all_runs() if run["job_id"]}
        jobs = self.jobs()
        tally = Tally(fault, len(self.all_runs()))
        tally.lost = [job for job in jobs if job not in runs]
        tally.orphaned = [f"{job} {script}" for job, (_, script) in jobs.items() if not Path(script).parent.exists()]
        tally.wrong = [f"{job} is {run['state']}" for job, run in runs.items() if run["state"] not in expected(job)]
        without = [run for run in self.all_runs() if not run["job_id"]]
        tally.wrong += [f"{run['run_id']} is {run['state']}" for run in without if run["state"] != "NOT_SUBMITTED"]
        return tally


def cluster(*args: str) -> None:
    """Make a fault, or undo one: dev/cluster.sh ARGS."""
    subprocess.run([REPO / "dev" / "cluster.sh", *args], check=True, capture_output=True)


@contextlib.contextmanager
def without(what: str) -> Iterator[None]:
    """Take a daemon away, and bring it back."""
    cluster("stop", what)
    try:
        yield
    finally:
        cluster("start", what)


# --- faults that interrupt running jobs -------------------------------------------------------------------------


def interruptions(site: Site) -> list[Tally]:
    """Preempt, time limit, unplugged nodes and a dead slurmd, each on nodes of its own, all at once."""
    program = str(site.folder / "count.py")
    small = ("--time", "10m", "--requeue", "2")
    two = ("-N", "2", "-G", "4", *small, program, "60")
    jobs = {
        "preemption": site.submit("-P", "a100", "-p", "preempt", *two),
        "time limit": site.submit(
            "-P", "h200", "-G", "2", "-t", "2m", "--warn", "20s", "--requeue", "2", program, "250"
        ),
        "node unplugged": site.submit("-P", "l40s", *two),
        "first node unplugged": site.submit("-P", "v100", "-G", "2", *small, program, "60"),
        "slurmd killed": site.submit("-P", "h100", *two),
    }
    wait_for(lambda: all(site.state_of(job) == "RUNNING" for job in jobs.values()), "the jobs to start", 120)
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
    first = next(str(run["hosts"]) for run in site.all_runs() if run["job_id"] == jobs["first node unplugged"])
    cluster("unplug", "l40s-2")
    cluster("unplug", first)
    cluster("stop", "h100-2")
    time.sleep(30)  # Slurm misses them after 15 s here
    cluster("plug", "l40s-2")
    cluster("start", "h100-2")
    # as long as the job may still run there: a node that comes back with it is drained ("Duplicate jobid")
    time.sleep(60)
    cluster("plug", first)
    site.settle(400)
    whole = site.tally("")
    attempts = {str(run["job_id"]): run["attempt"] for run in site.all_runs()}
    tallies = []
    for fault, job in jobs.items():
        wrong = [word for word in whole.wrong if word.startswith(f"{job} ")]
        wrong += [] if attempts[job] else [f"{job} was not started again"]
        tallies.append(Tally(fault, 1, wrong=wrong, remark=f"ended at attempt {attempts[job] + 1}"))
    tallies[0].lost, tallies[0].orphaned = whole.lost, whole.orphaned
    return tallies


# --- faults of Slurm's daemons ----------------------------------------------------------------------------------


def controller_killed(site: Site) -> list[Tally]:
    """Stop the controller in the middle of submits, looks and cancels."""
    started = time.monotonic()
    answers = []

    def submit(number: int) -> subprocess.CompletedProcess[str]:
        time.sleep(number * 0.35)
        return site.run(HPCRUN, "submit", "-P", "cpu", "--cpus", "1", "-t", "5m", "sleep", "20")

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
    tally = site.tally("controller killed", lambda job: {"CANCELLED"} if job in cancelled else {"COMPLETED"})
    tally.wrong += [f"{state} while the controller was away" for state in lost_sight]
    tally.remark = f"{during_submit}, {len(cancelled)} cancelled, {time.monotonic() - started:.0f} s"
    return [tally]


def controller_hung(site: Site) -> list[Tally]:
    """Stop the controller's process for a while, as a busy one does: sbatch says that its socket timed out."""
    pid = int(Path(site.env["SLURM_CONF"]).parents[1].joinpath("run", "slurmctld.pid").read_text("ascii"))
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
        here = site.tally("accounting killed", lambda job: {"FAILED"} if job == bad else {"COMPLETED"})
    none = site.with_runs("runs-without-accounting")
    conf = site.folder / "none.conf"
    lines = Path(site.env["SLURM_CONF"]).read_text("utf-8").splitlines()
    kept = [line for line in lines if not line.startswith("AccountingStorage")]
    conf.write_text("\n".join([*kept, "AccountingStorageType=accounting_storage/none", ""]), "utf-8")
    none.env["SLURM_CONF"] = str(conf)
    bad_there = none.submit("-P", "cpu", "--cpus", "1", "-t", "5m", "sh", "-c", "exit 3")
    for _ in range(5):
        none.submit("-P", "cpu", "--cpus", "1", "-t", "5m", "sleep", "2")
    time.sleep(75)  # MinJobAge is 60 s: the controller has forgotten them
    none.settle()
    there = none.tally("no accounting, jobs forgotten", lambda job: {"FAILED"} if job == bad_there else {"COMPLETED"})
    here.lost = [job for job in here.lost if job not in good]  # the accounts may lag
    return [here, there]


# --- faults of the submission -----------------------------------------------------------------------------------


def disk_full(site: Site) -> list[Tally]:
    """Submit into a runs folder on a full disk, at each of its last free pages."""
    small = site.with_runs("small/runs")
    mount = site.folder / "small"
    mount.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=400k", "tmpfs", str(mount)], check=True)
    try:
        small.runs.mkdir(mode=0o700)
        refused = 0
        for free in range(0, 96, 8):
            size = shutil.disk_usage(mount).free - free * 1024
            (mount / "filler").write_bytes(b"x" * max(0, size))
            done = small.run(HPCRUN, "submit", "-P", "cpu", "--cpus", "1", "-t", "5m", "true")
            refused += done.returncode != 0
            (mount / "filler").unlink()
        small.settle()
        # a job whose own records found no room has nothing but Slurm's word
        tally = small.tally("disk full", lambda _: {"COMPLETED", "FAILED"})
        tally.remark = f"12 submits, {refused} refused"
    finally:
        subprocess.run(["umount", "--lazy", str(mount)], check=True)
    return [tally]


def killed(site: Site, kills: int) -> list[Tally]:
    """SIGKILL hpcrun submit, alone or with its sbatch, at every moment of its life."""
    took_s = 1.0

    def once(number: int) -> None:
        argv = [HPCRUN, "submit", "-P", "cpu", "--cpus", "1", "-t", "5m", "--name", f"kill{number}", "true"]
        process = subprocess.Popen(
            argv,
            cwd=site.folder,
            env=site.env,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        time.sleep(took_s * number / kills + random.uniform(0, took_s / kills))
        with contextlib.suppress(ProcessLookupError):
            (os.killpg if number % 2 else os.kill)(process.pid, signal.SIGKILL)
        process.wait()

    began = time.monotonic()
    for _ in range(3):
        site.run(HPCRUN, "submit", "-P", "cpu", "--cpus", "1", "-t", "5m", "--dry-run", "true")
    took_s = (time.monotonic() - began) / 3 * 2.5  # some are killed after the end
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(once, range(kills)))
    site.settle(300)
    tally = site.tally(f"SIGKILL of submit, {kills} times")
    states = site.states()
    tally.remark = f"{len(states)} runs, of which {list(states.values()).count('NOT_SUBMITTED')} without a job"
    return [tally]


def at_once(site: Site) -> list[Tally]:
    """Fifty submits at once."""
    with ThreadPoolExecutor(50) as pool:
        jobs = list(pool.map(lambda _: site.submit("-P", "cpu", "--cpus", "1", "-t", "5m", "true"), range(50)))
    site.settle(300)
    tally = site.tally("50 submits at once")
    tally.lost += [] if len(set(jobs)) == 50 else [f"{50 - len(set(jobs))} submits gave no job of their own"]
    return [tally]


FAULTS: dict[str, Callable[[Site, int], list[Tally]]] = {
    "interruptions": lambda site, _: interruptions(site),
    "controller": lambda site, _: controller_killed(site),
    "hung": lambda site, _: controller_hung(site),
    "accounting": lambda site, _: accounting(site),
    "disk": lambda site, _: disk_full(site),
    "killed": killed,
    "at-once": lambda site, _: at_once(site),
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=200, metavar="N", help="how often submit is killed (default 200)")
    parser.add_argument("faults", nargs="*", choices=[*FAULTS, []], help="by default all")
    asked = parser.parse_args()
    try:
        slurm = cluster_env()
        with cluster_to_oneself(), tempfile.TemporaryDirectory(prefix="hpcrun-faults-") as name:
            return run_faults(Path(name), slurm, asked.faults or list(FAULTS), asked.kills)
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
        site = Site(folder, {**os.environ, **slurm, "HPCRUN_RUNS": str(folder / f"runs-{name}")}, since)
        for tally in FAULTS[name](site, kills):
            columns = (tally.fault, tally.runs, len(tally.lost), len(tally.orphaned), len(tally.wrong), tally.remark)
            print(f"| {' | '.join(map(str, columns))} |", flush=True)
            for what in ("lost", "orphaned", "wrong"):
                for word in getattr(tally, what):
                    print(f"{tally.fault}: {what}: {word}", file=sys.stderr)
                    bad += 1
    print(f"\n{'nothing lost, orphaned or wrong' if not bad else f'{bad} NOT AS DEMANDED'}")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
