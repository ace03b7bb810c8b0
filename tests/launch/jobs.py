"""A job of real processes without Slurm: hpcrun/in_job/launch as the script starts it, and ways to
signal it.
"""

from __future__ import annotations

import binascii
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from compileall import compile_dir
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from hpcrun.in_job.launch.node_folder import PLACES, PREFIX
from tests.harness import REPO, wait_for

T = TypeVar("T")
LAUNCH = [sys.executable, "-ISB", str(REPO / "hpcrun/in_job/launch")]
compile_dir(REPO / "hpcrun/in_job", quiet=2)  # -B: each process would compile its modules anew
PROBE = [sys.executable, "-ISB", str(REPO / "hpcrun/in_job/probe/__main__.py")]
ONCE = [*LAUNCH, "node", "--", *LAUNCH, "rank", "--once", "--"]
"""Each node runs the program once, as with --launcher python."""


@dataclass
class Running:
    """A job that was started: the process of ``launch job``, and its attempt's folder."""

    process: subprocess.Popen[str]
    attempt: Path

    def end(self, timeout: float = 30) -> int:
        """Wait for its end; returns its exit status."""
        return self.process.wait(timeout)

    def rank(self, number: int) -> dict[str, Any]:
        """The exit record of a rank."""
        return dict(json.loads((self.attempt / f"rank-{number}.exit").read_text()))

    @property
    def record(self) -> dict[str, Any]:
        """The exit record of the job."""
        return dict(json.loads((self.attempt / "exit").read_text()))

    def out(self, rank: int = 0) -> str:
        """What a rank has printed so far; empty where it has not begun."""
        path = self.attempt / f"rank-{rank}.out"
        return path.read_text() if path.exists() else ""

    def err(self, rank: int = 0) -> str:
        """What a rank has written to stderr."""
        return (self.attempt / f"rank-{rank}.err").read_text()

    def until(self, text: str, rank: int = 0) -> None:
        """Wait until a rank has printed something."""
        wait_for(lambda: text in self.out(rank), 20, f"rank {rank} to print {text!r}")

    def processes(self) -> list[int]:
        """All processes of the job, itself first."""
        return descendants(self.process.pid)

    def tasks(self) -> list[int]:
        """What would be the tasks of a Slurm step: the children of the job."""
        return [pid for pid in self.processes() if parent(pid) == self.process.pid]

    def signal_every(self, number: int) -> None:
        """Signal every process of the nodes, as Slurm does where it tracks processes by their
        parents.
        """
        for pid in self.processes()[1:]:
            send(pid, number)

    def signal_tasks(self, number: int) -> None:
        """Signal the tasks alone, as Slurm does with cgroups."""
        for pid in self.tasks():
            send(pid, number)


HOW = ["signal_every", "signal_tasks"]
"""The two ways in which Slurm signals a step."""


@contextmanager
def job(
    folder: Path,
    program: Sequence[str],
    *,
    nodes: int = 1,
    chain: Sequence[str] = ONCE,
    **more: Any,
) -> Iterator[Running]:
    """Start a job, and leave nothing of it.

    Args:
        nodes: how many nodes of this machine it has.
        chain: what starts the program on each node.
        more: ``options`` of launch job, and ``env`` to add.
    """
    attempt = folder / "run/elements/0/attempts/0"
    attempt.mkdir(parents=True)
    env = {**os.environ, "HPCRUN_RUN_DIR": str(folder / "run"), "HPCRUN_ATTEMPT_DIR": str(attempt)}
    env |= {
        "HPCRUN_JOB_ID": "L1",
        "HPCRUN_ELEMENT": "0",
        "HPCRUN_ATTEMPT": "0",
        **more.get("env", {}),
    }
    argv = [*LAUNCH, "job", "--nodes", str(nodes), *more.get("options", ()), "--", *chain, *program]
    process = subprocess.Popen(argv, env=env, cwd=folder, text=True, start_new_session=True)
    try:
        yield Running(process, attempt)
    finally:
        left = descendants(process.pid)
        for pid in left:
            send(pid, signal.SIGKILL)
        process.wait()
        remove_node_folders(attempt)


def remove_node_folders(attempt: Path) -> None:
    """Remove what killed processes of an attempt have left on the disk of their nodes."""
    checksum = binascii.crc32(os.fsencode(attempt))
    for place in PLACES:
        for folder in Path(place).glob(f"{PREFIX}*-{checksum:08x}"):
            shutil.rmtree(folder, ignore_errors=True)


def python(folder: Path, text: str) -> list[str]:
    """A program of Python that prints at once."""
    path = folder / "program.py"
    path.write_text(text)
    return [sys.executable, "-u", str(path)]


def parent(pid: int) -> int:
    """The process that started another; 0 where that is gone."""
    try:
        return int(Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[1])
    except OSError:
        return 0


def descendants(pid: int) -> list[int]:
    """A process and all below it."""
    below: dict[int, list[int]] = {}
    for name in filter(str.isdigit, os.listdir("/proc")):
        below.setdefault(parent(int(name)), []).append(int(name))
    found = [pid]
    for each in found:
        found += below.get(each, [])
    return found


def command(pid: int) -> str:
    """The words of a process, each with a null character after it; empty where it is gone or has
    ended.
    """
    try:
        return Path(f"/proc/{pid}/cmdline").read_text(errors="replace")
    except OSError:
        return ""


def environment(pid: int) -> bytes:
    """The variables that a process was started with, each with a null character after it; empty
    where it is gone.
    """
    try:
        return Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return b""


def wait_for_ends(pids: Sequence[int], timeout: float = 20) -> None:
    """Wait until all these processes have ended."""
    wait_for(lambda: not any(map(command, pids)), timeout, "every process to end")


def send(pid: int, number: int) -> None:
    """Signal a process that may be gone."""
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return
