"""What `hpcrun explain` takes: time of the CPU, the least of three, and the memory at its highest.

It works in one thread, so a machine without other work needs no longer.
The logs are made on the fly: ranks that write a line a step, now and then one with "error" in it,
and the last of them a CUDA out-of-memory traceback. It exits with 1 where a demand is not met.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

REPO = Path(__file__).resolve().parents[1]
GIGABYTE = 10**9
ROUNDS = 3
MOST_MB = 100
TRACEBACK = """\
[rank7]: Traceback (most recent call last):
[rank7]:   File "/home/me/train.py", line 71, in <module>
[rank7]:     loss.backward()
[rank7]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 7 has a total capacity of 79.10 GiB
"""  # noqa: E501


def steps(size: int) -> bytes:
    """Return lines of a training, at least so many bytes."""
    lines = [
        f"2026-11-21 10:{step // 60 % 60:02d}:{step % 60:02d} step {step} loss "
        f"{2.5 / (step + 1):.5f} lr 1e-4 "
        f"samples_per_s {900 + step % 97}"
        + (f" error {step % 7} failed 0" if step % 1000 == 0 else "")
        for step in range(size // 70)
    ]
    return ("\n".join(lines) + "\n").encode()


@dataclass(frozen=True)
class Case:
    """What is explained, and how long it may take."""

    name: str
    most_s: float
    arguments: list[str]


def make_run(folder: Path, run_id: str, ranks: int, size: int) -> str:
    """Write a run that failed, with logs of this size in all; return its id."""
    attempt = folder / run_id / "elements/0/attempts/0"
    attempt.mkdir(parents=True)
    run = {
        "schema": 1,
        "run_id": run_id,
        "name": "train",
        "scheduler": "slurm",
        "cluster": "alpha",
        "host": "login1",
        "created_s": 1000.0,
        "job_id": "4711",
        "profile": "a100",
        "nodes": ranks // 4,
        "gpus_per_node": 4,
        "world_size": ranks,
        "walltime_s": 3600,
    }
    (folder / run_id / "run.json").write_text(json.dumps(run))
    (folder / run_id / "status.json").write_text(
        json.dumps({"state": "FAILED", "asked_s": 2000.0, "final": True})
    )
    (attempt / "start").write_text(
        json.dumps({"job_id": "4711", "host": "node0", "started": 1500.0})
    )
    for rank in range(ranks):
        write_log(attempt / f"rank-{rank}.err", size // ranks, rank)
        if rank < ranks - 1:
            status = 143
        else:
            status = 1
            with (attempt / f"rank-{rank}.err").open("a") as file:
                file.write(TRACEBACK)
        ended = {"rank": rank, "node": f"node{rank // 4}", "status": status}
        (attempt / f"rank-{rank}.exit").write_text(json.dumps({**ended, "ended": 1600.0 + rank}))
    return run_id


def write_log(path: Path, size: int, rank: int) -> None:
    """Write the steps of a rank."""
    block = steps(min(size, 10**7))
    with path.open("wb") as file:
        while file.tell() < size:
            file.write(block)
        file.write(f"rank {rank} saves\n".encode())


def measure(case: Case, env: dict[str, str]) -> bool:
    """Print a row; return whether the time and the answer are as demanded."""
    times = []
    for _ in range(ROUNDS):
        before_s = cpu_of_children_s()
        argv = [sys.executable, "-m", "hpcrun", "explain", "--json", *case.arguments]
        done = subprocess.run(argv, env=env, capture_output=True, text=True, check=True)
        times.append(cpu_of_children_s() - before_s)
    document = json.loads(done.stdout)
    took_s = min(times)
    print(f"| {case.name} | {took_s:.2f} s | {case.most_s:g} s | {document['summary']} |")
    return took_s <= case.most_s and document["rule"] == "cuda-out-of-memory"


def cpu_of_children_s() -> float:
    use = resource.getrusage(resource.RUSAGE_CHILDREN)
    return use.ru_utime + use.ru_stime


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="hpcrun-explain-") as name:
        folder = Path(name)
        short = folder / "short.out"
        short.write_text(TRACEBACK)
        long = folder / "long.out"
        write_log(long, GIGABYTE, 0)
        with long.open("a") as file:
            file.write(TRACEBACK)
        many = make_run(folder / "runs", "20260102-030405-train-0a1b", 512, 512 * 4000)
        large = make_run(folder / "runs", "20260102-030405-train-0a1c", 8, GIGABYTE)
        cases = [
            Case("`--log` of four lines", 0.2, ["--log", str(short)]),
            Case("a run of 512 ranks, 2 MB", 1.5, [many]),
            Case("a run of 8 ranks, 1 GB", 3.0, [large]),
            Case("`--log` of 1 GB", 3.0, ["--log", str(long)]),
        ]
        env = {**os.environ, "HPCRUN_RUNS": str(folder / "runs"), "PYTHONPATH": str(REPO)}
        env["PYTHONPYCACHEPREFIX"] = str(folder / "bytecode")
        env.pop("PYTHONDONTWRITEBYTECODE", None)
        print("| logs | time | demanded | answer |\n|---|--:|--:|---|")
        results = [measure(case, env) for case in cases]
    peak_mb = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
    good = all(results) and peak_mb <= MOST_MB
    print(f"\n{'as' if good else 'NOT as'} demanded; {peak_mb:.0f} MB of at most {MOST_MB} MB")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
