"""What `hpcrun explain` takes for a gigabyte of logs: the time, and the memory at its highest.

The logs are made on the fly: eight ranks that write a line a step, now and then one with "error" in
it, and the last of them a CUDA out-of-memory traceback.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

REPO = Path(__file__).resolve().parents[1]
RANKS = 8
GIGABYTE = 10**9
MOST_S, MOST_MB = 10.0, 100
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


def make_run(folder: Path) -> str:
    """Write a run that failed, with a gigabyte of logs; return its id."""
    run_id = "20260102-030405-train-0a1b"
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
        "nodes": 2,
        "gpus_per_node": 4,
        "world_size": RANKS,
        "walltime_s": 3600,
    }
    (folder / run_id / "run.json").write_text(json.dumps(run))
    (folder / run_id / "status.json").write_text(
        json.dumps({"state": "FAILED", "asked_s": 2000.0, "final": True})
    )
    (attempt / "start").write_text(
        json.dumps({"job_id": "4711", "host": "node1", "started": 1500.0})
    )
    block = steps(10**7)
    for rank in range(RANKS):
        with (attempt / f"rank-{rank}.err").open("wb") as file:
            while file.tell() < GIGABYTE // RANKS:
                file.write(block)
            if rank == RANKS - 1:
                file.write(TRACEBACK.encode())
        status = 1 if rank == RANKS - 1 else 143
        ended = {"rank": rank, "node": "node1", "status": status, "ended": 1600.0 + rank}
        (attempt / f"rank-{rank}.exit").write_text(json.dumps(ended))
    return run_id


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="hpcrun-explain-") as name:
        folder = Path(name)
        run_id = make_run(folder)
        env = {**os.environ, "HPCRUN_RUNS": str(folder), "PYTHONPATH": str(REPO)}
        start = time.perf_counter()
        argv = [sys.executable, "-m", "hpcrun", "explain", "--json", run_id]
        done = subprocess.run(argv, env=env, capture_output=True, text=True, check=True)
        took_s = time.perf_counter() - start
    peak_mb = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
    document = json.loads(done.stdout)
    print("| logs | time | memory | answer |\n|--:|--:|--:|---|")
    print(f"| 1 GB | {took_s:.1f} s | {peak_mb:.0f} MB | {document['summary']} |")
    good = took_s <= MOST_S and peak_mb <= MOST_MB and document["rule"] == "cuda-out-of-memory"
    print(f"\n{'as' if good else 'NOT as'} demanded: at most {MOST_S:.0f} s and {MOST_MB} MB")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
