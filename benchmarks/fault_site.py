"""The cluster on which faults are made, the runs that meet them, and the count of what became of
these.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import sysconfig
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cluster import wait_for
from measure import CommandFailedError

REPO = Path(__file__).resolve().parents[1]
HPCRUN = str(Path(sysconfig.get_path("scripts"), "hpcrun"))
OVER = {
    "COMPLETED",
    "FAILED",
    "CANCELLED",
    "TIMEOUT",
    "NODE_FAIL",
    "PREEMPTED",
    "NOT_SUBMITTED",
    "OUT_OF_MEMORY",
}
SMALL = ("-P", "cpu", "--cpus", "1", "-t", "5m")


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
        return subprocess.run(
            argv, cwd=self.folder, env=self.env, capture_output=True, text=True, timeout=120
        )

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
        """Return every run as `hpcrun status` tells it; the last that was known where Slurm is
        away.
        """
        out = self.run(HPCRUN, "status", "--all", "--json").stdout
        # a controller that is away adds a second document, the error
        return list(json.JSONDecoder().raw_decode(out)[0].get("runs", [])) if out.strip() else []

    def state_of(self, job: str) -> str:
        """Return the state of the run of a job."""
        return next(
            (str(run["state"]) for run in self.all_runs() if run["job_id"] == job), "no such run"
        )

    def jobs(self) -> dict[str, tuple[str, str]]:
        """Return job id → (state, script) of every job that Slurm or its accounts know to be from
        this runs folder.
        """
        fields = "--format=JobIDRaw%20,State%40,SubmitLine%2000"
        out = self.run(
            "sacct", "-X", "-P", "--noheader", f"--starttime={self.since}", fields
        ).stdout
        states = {}
        for line in out.splitlines():
            job, state, command = line.split("|", 2)
            script = command.split()[-1] if command.split() else ""
            if script.startswith(f"{self.runs}/"):
                states[job] = (state.split()[0], script)
        return states

    def settle(self, within_s: float = 180.0) -> None:
        """Wait until every run is over."""
        wait_for(
            lambda: all(state in OVER for state in self.states().values()),
            f"{self.states()} to end",
            within_s,
        )

    def tally(
        self, fault: str, expected: Callable[[str], set[str]] = lambda _: {"COMPLETED"}
    ) -> Tally:
        """Compare what hpcrun says with what Slurm's accounts say.

        Args:
            expected: job id → the states that are right for it.
        """
        runs = {str(run["job_id"]): run for run in self.all_runs() if run["job_id"]}
        jobs = self.jobs()
        tally = Tally(fault, len(self.all_runs()))
        tally.lost = [job for job in jobs if job not in runs]
        tally.orphaned = [
            f"{job} {script}"
            for job, (_, script) in jobs.items()
            if not Path(script).parent.exists()
        ]
        tally.wrong = [
            f"{job} is {run['state']}"
            for job, run in runs.items()
            if run["state"] not in expected(job)
        ]
        without = [run for run in self.all_runs() if not run["job_id"]]
        tally.wrong += [
            f"{run['run_id']} is {run['state']}"
            for run in without
            if run["state"] != "NOT_SUBMITTED"
        ]
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
