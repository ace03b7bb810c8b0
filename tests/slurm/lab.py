"""Runs on the cluster that are interrupted: what tests of being started again share."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.harness import Cluster, Hpcrun, account, wait_for

SMALL = ("-P", "a100", "--gpus", "0", "--cpus", "1", "--mem", "1G")
NODES = frozenset("a100-1 a100-2 h100-1 h100-2 v100-1 v100-2 l40s-1 l40s-2 h200-1 a40-1".split())


@dataclass(frozen=True)
class Lab:
    """A person on the cluster, whose runs are looked at in their folders: that costs nobody
    anything.
    """

    person: Hpcrun
    cluster: Cluster

    def submit(self, name: str, *args: str, requeue: int = 1) -> Path:
        """Submit a job; return its folder."""
        again = ("--requeue", str(requeue)) if requeue else ()
        return self.person.submit("-J", name, *again, *args, check=True)

    def job(self, folder: Path) -> str:
        return str(json.loads((folder / "run.json").read_text())["job_id"])

    def warn(self, folder: Path) -> None:
        """Send what Slurm sends before the time limit (--signal=B:USR1), without waiting for it."""
        self.person.run("scancel", "--batch", "--signal=USR1", self.job(folder))

    def preempt(self, node: str) -> None:
        """Submit a more important job that wants a node for a moment, alone."""
        wants = (
            "--partition=gpu",
            f"--nodelist={node}",
            "--exclusive",
            "--mem=0",
            "--time=1",
            "--output=/dev/null",
        )
        self.person.run("sbatch", *wants, "--wrap=sleep 1")

    def status(self, folder: Path) -> dict[str, Any]:
        return self.person.status(folder.name)

    def ended(self, folder: Path, timeout: float = 120) -> Ended:
        """Wait for its end.

        Where there is none, the test's failure says all that is known of the run.
        """
        try:
            status = self.person.ended(folder.name, timeout)
        except AssertionError as error:
            of_slurm = self.person.run(
                "scontrol", "show", "job", self.job(folder), check=False
            ).stdout
            raise AssertionError(f"{error}\n{of_slurm}") from None
        return Ended(folder, status, self.person("status", folder.name, check=True).stdout)


@dataclass(frozen=True)
class Ended:
    """A run that is over. ``while_running`` is the table of status from before its end."""

    folder: Path
    status: dict[str, Any]
    table: str
    while_running: str = ""
    said: str = ""

    @property
    def state(self) -> str:
        return str(self.status["state"])

    @property
    def account(self) -> str:
        """What is known of it, for a test that fails."""
        return f"{self.table}\n{account(self.folder)}"

    @property
    def starts(self) -> int:
        return len(list(self.folder.glob("elements/0/attempts/*/start")))

    def exit(self, number: int) -> dict[str, Any]:
        """How an attempt ended, in the script's words."""
        return dict(json.loads((attempt(self.folder, number) / "exit").read_text()))

    def rank_exit(self, number: int, rank: int = 0) -> dict[str, Any]:
        """How a rank of an attempt ended, in its wrapper's words."""
        return dict(json.loads((attempt(self.folder, number) / f"rank-{rank}.exit").read_text()))

    def log(self, number: int, rank: int = 0) -> str:
        return (attempt(self.folder, number) / f"rank-{rank}.out").read_text()


def attempt(folder: Path, number: int) -> Path:
    return folder / "elements/0/attempts" / str(number)


def begun(folder: Path, number: int = 0, *, ranks: int = 1, timeout: float = 120) -> Path:
    """Wait until every rank of an attempt has said something; return the attempt's folder."""
    logs = [attempt(folder, number) / f"rank-{rank}.out" for rank in range(ranks)]

    def all_spoke() -> bool:
        return all(log.exists() and log.stat().st_size for log in logs)

    wait_for(all_spoke, timeout, f"attempt {number} of {folder.name} to begin")
    return attempt(folder, number)


def processes(folder: Path, *, of: str = "") -> dict[int, str]:
    """Return the processes of a run on all nodes, which are this machine's: process id → name.

    Not by the job's id: on the cluster of another worker of the tests a job has the same.

    Args:
        of: only those with this in their environment.
    """
    found = {}
    for process in Path("/proc").glob("[0-9]*"):
        try:
            environ = (process / "environ").read_text(errors="replace").split("\0")
            name = (process / "comm").read_text().strip()
        except OSError:
            continue
        if (
            f"HPCRUN_RUN_DIR={folder}" in environ
            and name != "slurmstepd"
            and (not of or of in environ)
        ):
            found[int(process.name)] = name
    return found


def parent_of(pid: int) -> int:
    """The process id of a process's parent; 0 if the process has ended."""
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0


def words_of(pid: int) -> list[str]:
    """The command line of a process; empty if the process has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_text().split("\0")
    except OSError:
        return []


def let_end(lab: Lab, name: str) -> str:
    """The file that lets a script end."""
    path = lab.person.folder / name
    path.touch()
    return str(path)


def without(*nodes: str) -> tuple[str, ...]:
    """The options for a job in partition gpu that may only use these nodes."""
    return (*SMALL, "-p", "gpu", "--exclude", ",".join(sorted(NODES - set(nodes))))


def refusing_sbatch(person: Hpcrun, *, after: int) -> dict[str, str | None]:
    """An environment whose sbatch takes so many jobs, and refuses each later one."""
    calls = person.write("sbatch-calls", "")
    calls.chmod(0o666)
    refuse = f'[ $(wc -l <{calls}) -le {after} ] || exec /usr/bin/sbatch --partition=none "$@"'
    return person.shims("refusing", sbatch=f'echo x >>{calls}\n{refuse}\nexec /usr/bin/sbatch "$@"')


Scenarios = dict[str, "Future[Any]"]


@contextmanager
def run_all(
    lab: Lab, scenarios: Mapping[str, Callable[[Lab], Any]], threads: int | None = None
) -> Iterator[Scenarios]:
    """Run scenarios side by side to their ends, each in a thread: a test's own fixtures would
    cancel the others' jobs.

    Args:
        threads: so many scenarios at a time; all of them unless said.
    """
    jobs_of_others = lab.cluster.jobs()
    with ThreadPoolExecutor(threads or len(scenarios)) as pool:
        results = {name: pool.submit(scenario, lab) for name, scenario in scenarios.items()}
    yield results
    lab.cluster.restore(keep=jobs_of_others)
