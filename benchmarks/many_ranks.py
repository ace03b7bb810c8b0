"""528 ranks, 48 on each of 11 nodes, of a program of a few lines: how long they take, and what each
of them holds.

`make cluster`, then `python benchmarks/many_ranks.py`; `make bench` does it too. By `--launcher
srun`, and by the launcher that starts once on each node (`--launcher command`), whose program
starts 48 processes of its own. It exits with 1 where a log, a record or an exit status is missing
or wrong, where cancelling takes longer than 10 s, or where
`status`, `logs --merge` or `explain` takes longer than 3 s.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from cluster import NoClusterError, cluster_env, cluster_to_oneself
from measure import CommandFailedError, Place

HPCRUN = str(Path(sysconfig.get_path("scripts"), "hpcrun"))
NODES, PER_NODE = 11, 48
PARTITION = "many-ranks"
COMMANDS_S, CANCEL_S = 3.0, 10.0
RANK = """import os, sys, time
print("rank", os.environ["RANK"], "of", os.environ["WORLD_SIZE"], flush=True)
print("no error", file=sys.stderr)
while os.path.exists("go-on"):
    time.sleep(1)
sys.exit(3 if os.environ["RANK"] == os.environ.get("FAILS") else 0)
"""
ONCE = """import os, subprocess, sys
first, size = int(os.environ["NODE_RANK"]) * {per_node}, int(os.environ["NNODES"]) * {per_node}
def start(rank):
    env = {{**os.environ, "RANK": str(rank), "WORLD_SIZE": str(size)}}
    return subprocess.Popen([sys.executable, "-IS", "rank.py"], env=env)
sys.exit(max([child.wait() for child in [start(first + number) for number in range({per_node})]]))
"""


class Failed(Exception):
    """Something is not as it has to be."""


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--nodes", type=int, default=NODES, help=f"how many (default {NODES})")
    parser.add_argument(
        "--per-node", type=int, default=PER_NODE, help=f"ranks on each (default {PER_NODE})"
    )
    options = parser.parse_args()
    try:
        slurm = cluster_env()
        with (
            cluster_to_oneself(),
            all_nodes(slurm),
            tempfile.TemporaryDirectory(prefix="hpcrun-bench-") as folder,
        ):
            place = Place(
                Path(folder),
                {**os.environ, **slurm, "HOME": folder, "HPCRUN_RUNS": f"{folder}/runs"},
            )
            for launcher in ("srun", "command"):
                Many(place, launcher, options.nodes, options.per_node).measure()
    except Failed as error:
        print(f"  NOT MET: {error}")
        return 1
    except (NoClusterError, CommandFailedError) as error:
        print(f"benchmarks: {error}", file=sys.stderr)
        return 2
    return 0


@contextmanager
def all_nodes(slurm: dict[str, str]) -> Iterator[None]:
    """A partition of every node."""
    env = {**os.environ, **slurm}
    subprocess.run(
        ["scontrol", "create", f"PartitionName={PARTITION}", "Nodes=ALL"], env=env, check=True
    )
    try:
        yield
    finally:
        subprocess.run(["scontrol", "delete", f"PartitionName={PARTITION}"], env=env, check=True)


class Many:
    """The runs of one launcher."""

    def __init__(self, place: Place, launcher: str, nodes: int, per_node: int) -> None:
        self._place, self._launcher, self._nodes, self._per_node = place, launcher, nodes, per_node
        self._ranks = nodes * per_node
        self._logs = self._ranks if launcher == "srun" else nodes
        (place.folder / "rank.py").write_text(RANK)
        (place.folder / "once.py").write_text(ONCE.format(per_node=per_node))

    def measure(self) -> None:
        """Run one to its end, let a rank of one fail, and cancel one."""
        print(
            f"{self._ranks} ranks on {self._nodes} nodes by --launcher {self._launcher}", flush=True
        )
        (self._place.folder / "go-on").touch()
        folder = self._submit()
        attempt = folder / "elements/0/attempts/0"
        self._until(lambda: self._spoken(attempt) == self._ranks, "every rank to speak")
        started_s = float(json.loads((attempt / "start").read_text())["started"])
        print(
            f"  {'from the script to the last rank’s first line':<46} "
            f"{time.time() - started_s:>8.1f} s"
        )
        self._print_memory()
        (self._place.folder / "go-on").unlink()
        self._until(lambda: self._status(folder)["final"], "the end")
        self._check(folder, {})
        for words in (["status"], ["logs", "--merge"], ["explain"]):
            self._time(words, COMMANDS_S, folder)
        failed = self._submit("--env", f"FAILS={self._ranks // 2}")
        self._until(lambda: self._status(failed)["final"], "the end of one that fails")
        self._check(failed, {self._ranks // 2: 3})
        self._time(["explain"], COMMANDS_S, failed)
        (self._place.folder / "go-on").touch()
        cancelled = self._submit()
        self._until(
            lambda: self._spoken(cancelled / "elements/0/attempts/0") == self._ranks,
            "every rank to speak",
        )
        began = time.monotonic()
        self._hpcrun("cancel", "--yes", cancelled.name)
        self._until(lambda: not self._processes("rank.py"), "every process to be gone")
        self._demand("cancelled, until no process is left", time.monotonic() - began, CANCEL_S)
        self._until(lambda: self._status(cancelled)["final"], "the end of one that was cancelled")
        print(f"  {'cancelled, until Slurm says so':<46} {time.monotonic() - began:>8.1f} s")
        (self._place.folder / "go-on").unlink()

    def _submit(self, *more: str) -> Path:
        program = ["rank.py"] if self._launcher == "srun" else ["python", "once.py"]
        shape = ["--nproc-per-node", str(self._per_node)] if self._launcher == "srun" else []
        sizes = [
            "--gpus",
            "0",
            "--nodes",
            str(self._nodes),
            "--cpus",
            str(self._per_node),
            "--mem",
            "40G",
            *shape,
        ]
        where = ["-P", "a100", "-p", PARTITION, "-t", "20m", "--launcher", self._launcher]
        done = self._hpcrun("submit", "--json", *where, *sizes, *more, *program)
        return Path(json.loads(done)["folder"])

    def _hpcrun(self, *words: str) -> str:
        done = subprocess.run(
            [HPCRUN, *words],
            env=self._place.env,
            cwd=self._place.folder,
            capture_output=True,
            text=True,
        )
        if done.returncode != 0 and words[0] not in ("explain", "logs"):
            raise CommandFailedError(f"hpcrun {' '.join(words)}: {done.stdout}{done.stderr}")
        return done.stdout

    def _status(self, folder: Path) -> dict[str, Any]:
        time.sleep(0.5)
        return dict(json.loads(self._hpcrun("status", "--json", folder.name))["runs"][0])

    def _spoken(self, attempt: Path) -> int:
        time.sleep(0.2)
        texts = [path.read_text() for path in attempt.glob("rank-*.out")]
        return sum(len(re.findall(r"^rank \d+ of", text, re.MULTILINE)) for text in texts)

    def _check(self, folder: Path, failing: dict[int, int]) -> None:
        attempt = folder / "elements/0/attempts/0"
        exits = [json.loads(path.read_text()) for path in attempt.glob("rank-*.exit")]
        statuses = {record["rank"]: record["status"] for record in exits}
        if self._launcher == "command":  # a rank to hpcrun is a node here
            failing = {rank // self._per_node: status for rank, status in failing.items()}
        wrong = {
            rank: status for rank, status in statuses.items() if status != failing.get(rank, 0)
        }
        if failing:
            wrong = {
                rank: status for rank, status in wrong.items() if rank in failing or status != 143
            }
        if len(statuses) != self._logs or wrong:
            raise Failed(f"{len(statuses)} exit records of {self._logs}; wrong: {wrong}")
        (job_exit,) = failing.values() or [0]
        status = json.loads((attempt / "exit").read_text())["status"]
        if status != job_exit:
            raise Failed(f"the job's exit status is {status}, not {job_exit}")
        if not failing and self._spoken(attempt) != self._ranks:
            raise Failed("not every rank has spoken")
        print(f"  every log, record and exit status is right; the job's is {status}", flush=True)

    def _print_memory(self) -> None:
        """Print what a rank's wrapper and its canary hold for themselves, which no other process
        shares.
        """
        kinds: dict[str, list[int]] = {}
        for pid in self._processes("launch/__main__.py"):
            try:
                words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
                rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
                parent = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
                is_canary = Path(f"/proc/{parent}/cmdline").read_bytes().split(b"\0") == words
            except (OSError, IndexError, ValueError):
                continue
            if not words[2].endswith(b"launch/__main__.py"):
                continue  # srun
            part = words[3].decode()
            kib = sum(
                int(number)
                for number in re.findall(r"^Private_\w+: +(\d+) kB", rollup, re.MULTILINE)
            )
            kinds.setdefault(f"{part}{', its canary' if is_canary else ''}", []).append(kib)
        for kind, kibs in sorted(kinds.items()):
            label = f"{len(kibs)} × {kind}"
            print(f"  {label:<46} {sum(kibs) / len(kibs) / 1024:>8.1f} MiB each, its own alone")

    @staticmethod
    def _processes(name: str) -> list[int]:
        missing = []
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                if name in path.read_bytes().decode("utf-8", "replace"):
                    missing.append(int(path.parent.name))
            except OSError:
                continue
        return [pid for pid in missing if pid != os.getpid()]

    def _time(self, words: list[str], most_s: float, folder: Path) -> None:
        began = time.monotonic()
        self._hpcrun(*words, folder.name)
        self._demand(f"hpcrun {' '.join(words)}", time.monotonic() - began, most_s)

    @staticmethod
    def _demand(what: str, took_s: float, most_s: float) -> None:
        print(f"  {what:<46} {took_s:>8.1f} s, demanded: at most {most_s:g}", flush=True)
        if took_s > most_s:
            raise Failed(f"{what} took {took_s:.1f} s")

    @staticmethod
    def _until(is_so: Any, what: str, within_s: float = 180) -> None:
        deadline = time.monotonic() + within_s
        while not is_so():
            if time.monotonic() > deadline:
                raise Failed(f"waited {within_s:g} s for {what}")
            time.sleep(0.1)


if __name__ == "__main__":
    sys.exit(main())
