"""Faults of ``hpcrun dev``, from a laptop: a node unplugged, the time limit, two minutes asleep, a
full disk.
"""

from __future__ import annotations

import re
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from cluster import wait_for
from fault_remote import ASLEEP_S, reach, signal_laptop
from fault_site import Site, Tally, cluster
from measure import CommandFailedError

from tests.harness import Hpcrun

_NODE = "l40s-1"
# Prints a number a second, and what it reads at once: what is lost or comes twice shows
_SESSION = """
import sys, threading, time
def count():
    for number in range(10_000):
        print(number, flush=True)
        time.sleep(1)
threading.Thread(target=count, daemon=True).start()
for line in sys.stdin:
    print("read", line, end="", flush=True)
"""


@dataclass
class Session:
    """A job to work in, and an ssh to its node with a program that counts."""

    here: Hpcrun
    site: Site
    job: str
    process: subprocess.Popen[str]
    out: Path
    bad: list[str] = field(default_factory=list)

    @property
    def host(self) -> str:
        """The job's name for ssh."""
        return f"hpcrun-far-{self.job}"

    def lines(self) -> list[str]:
        """Return what has arrived at the laptop."""
        return self.out.read_text().splitlines()

    def check(self, text: str) -> None:
        """Note if the program does not read and answer any more, or if a number is missing."""
        assert self.process.stdin
        try:
            self.process.stdin.write(f"{text}\n")
            self.process.stdin.flush()
            wait_for(lambda: f"read {text}" in self.lines(), f"the answer to {text}", 60)
        except (OSError, CommandFailedError) as error:
            self.bad.append(f"{error}; last: {self.lines()[-3:]}")
        numbers = [int(line) for line in self.lines() if line.isdigit()]
        if numbers != list(range(len(numbers))):
            self.bad.append(f"numbers are missing: {numbers}")

    def expect(self, truth: bool, what: str) -> None:
        """Note what is not so."""
        self.bad += [] if truth else [what]


@contextmanager
def session(site: Site, name: str, *options: str) -> Iterator[Session]:
    """Submit a job from a laptop, open a session, and cancel the job at the end if it runs."""
    with reach(site, name) as (_, here):
        argv = (
            f"--on far dev -p gpu -w {_NODE} --gpus l40s:1 --cpus 1 --mem 1G --name {name} "
            "--ssh --yes"
        ).split()
        done = here.run(*here.argv(*argv, *options))
        (job,) = re.findall(r"ssh +ssh hpcrun-far-(\d+)\n", done.stdout)
        program = here.write("count.py", _SESSION)
        with here.write("out", "").open("w") as sink:
            process = subprocess.Popen(
                [here.folder / "bin/ssh", f"hpcrun-far-{job}", "python3", str(program)],
                env=here.environ,
                stdin=subprocess.PIPE,
                stdout=sink,
                stderr=sink,
                text=True,
            )
        it = Session(here, site, job, process, here.folder / "out")
        try:
            wait_for(lambda: "2" in it.lines(), "the session", 60)
            yield it
        finally:
            site.run("scancel", job)
            process.kill()
            process.wait()
            site.settle()


def in_use(site: Site, kills: int) -> list[Tally]:
    """Four faults while somebody works on a node."""
    del kills
    return [unplugged(site), time_limit(site), asleep(site), disk_full(site)]


def unplugged(site: Site) -> Tally:
    """Pull the node's cable for twenty seconds: the job runs on, and one can connect again."""
    site = site.with_runs("runs-dev-unplugged")
    with session(site, "dev-unplugged", "-t", "20m") as it:
        cluster("unplug", _NODE)
        time.sleep(5)
        away = it.here.run("ssh", "-o", "ConnectTimeout=10", it.host, "true", check=False)
        it.expect(away.returncode != 0, "ssh to a node without network succeeded")
        time.sleep(10)
        cluster("plug", _NODE)
        again = it.here.run("ssh", it.host, "echo $SLURM_JOB_ID", check=False)
        it.expect(
            again.stdout == f"{it.job}\n", f"not reachable again: {again.stdout}{again.stderr}"
        )
        it.expect(site.state_of(it.job) == "RUNNING", f"the job is {site.state_of(it.job)}")
    return _tally(site, "dev: node unplugged for 20 s", {"CANCELLED"}, it)


def time_limit(site: Site) -> Tally:
    """Let the time limit end a job in which somebody works: the session ends, and no process is
    left.
    """
    site = site.with_runs("runs-dev-limit")
    with session(site, "dev-limit", "-t", "1m") as it:
        wait_for(lambda: it.process.poll() is not None, "the end of the session", 180)
        wait_for(lambda: site.state_of(it.job) == "TIMEOUT", "the end of the job", 60)
        wait_for(lambda: not _of_job(it.job), f"the processes of job {it.job} to end", 20)
        gone = it.here.run("ssh", it.host, "true", check=False)
        it.expect(
            gone.stderr.count(f"job {it.job} cannot be reached") == 1,
            f"after the end: {gone.stderr}",
        )
    return _tally(site, "dev: time limit in a session", {"TIMEOUT"}, it)


def asleep(site: Site) -> Tally:
    """Stop ssh and all else of the laptop for two minutes: the session goes on, and no line is
    lost.
    """
    site = site.with_runs("runs-dev-asleep")
    with session(site, "dev-asleep", "-t", "20m") as it:
        signal_laptop(it.here, stop=True)
        time.sleep(ASLEEP_S)
        signal_laptop(it.here, stop=False)
        it.check("awake")
    return _tally(site, f"dev: ssh stopped for {ASLEEP_S:g} s", {"CANCELLED"}, it)


def disk_full(site: Site) -> Tally:
    """Leave no room in /tmp and /dev/shm of the node, in a session and before a second one."""
    site = site.with_runs("runs-dev-full")
    with session(site, "dev-full", "-t", "20m") as it:
        cluster("full", _NODE)
        try:
            it.check("full")
            more = it.here.run("ssh", it.host, "echo $SLURM_JOB_ID", check=False)
            it.expect(more.stdout == f"{it.job}\n", f"a second session: {more.stdout}{more.stderr}")
        finally:
            cluster("stop", _NODE)
            cluster("start", _NODE)
    return _tally(site, "dev: disk full on the node", {"CANCELLED", "NODE_FAIL", "FAILED"}, it)


def _tally(site: Site, fault: str, states: set[str], it: Session) -> Tally:
    tally = site.tally(fault, lambda _: states)
    tally.wrong += it.bad
    tally.orphaned += [f"process {pid} is left" for pid in _of_job(it.job)]
    return tally


def _of_job(job: str) -> list[str]:
    """Return the processes of a job that are left on the nodes, without Slurm's own."""
    mine = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            if f"SLURM_JOB_ID={job}" in (path / "environ").read_text(errors="replace").split("\0"):
                mine.append(
                    f"{path.name} {(path / 'cmdline').read_text().replace(chr(0), ' ')[:100]}"
                )
        except OSError:
            continue
    return mine
