"""Runs of the last weeks, written down as if they had run: for the picture of a history."""

from __future__ import annotations

import json
import random
import time
from pathlib import Path
from typing import Any

WEEKS = 6
_HOUR_S = 3600.0
_JOBS = (
    ("pretrain", "h100", 2, 8, 9.0),
    ("finetune", "a100", 1, 4, 3.0),
    ("evaluate", "l40s", 1, 1, 0.5),
)
"""Name, profile, nodes, GPUs per node, and hours of a run that ends well."""
_MEMORY = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.50 GiB. GPU 0 has a "
    "total capacity of 39.4 GiB\n"
)
_KEY = (
    'Traceback (most recent call last):\n  File "train.py", line 88, in <module>\nKeyError: '
    "'recall'\n"
)
_ENDS: tuple[tuple[str, int, str], ...] = (
    *[("COMPLETED", 0, "")] * 12,
    ("FAILED", 1, _MEMORY),
    ("FAILED", 1, _KEY),
    ("TIMEOUT", 143, ""),
    ("CANCELLED", 143, ""),
)
"""State, exit status and last words of a run."""


def write_past_runs(runs: Path) -> None:
    """Write the folders of some runs of each week; the same ones each time, but for their days."""
    chance, now_s = random.Random(2), time.time()
    runs.mkdir(mode=0o700, parents=True, exist_ok=True)
    for number in range(WEEKS * 12):
        created_s = now_s - (number / 12 + chance.random() / 12) * 7 * 86400 - 12 * _HOUR_S
        _write(runs, number, created_s, chance)


def _write(runs: Path, number: int, created_s: float, chance: random.Random) -> None:
    name, profile, nodes, gpus, hours = chance.choice(_JOBS)
    state, status, words = chance.choice(_ENDS)
    start_s = created_s + chance.expovariate(1 / 1500)
    end_s = start_s + hours * _HOUR_S * chance.uniform(0.3 if words else 0.8, 1.1)
    run_id = f"{time.strftime('%Y%m%d-%H%M%S', time.localtime(created_s))}-{name}-{number:04x}"
    folder = runs / run_id
    attempt = folder / "elements/0/attempts/0"
    attempt.mkdir(parents=True)
    folder.chmod(0o700)
    record = {
        "schema": 1,
        "run_id": run_id,
        "name": name,
        "scheduler": "slurm",
        "cluster": "dev",
        "host": "login",
        "created_s": created_s,
        "job_id": str(4000 + number),
        "profile": profile,
        "nodes": nodes,
        "gpus_per_node": gpus,
        "world_size": nodes * gpus,
        "walltime_s": 86400,
        "request": {},
        "plan": {},
        "cwd": "/home/me/project",
    }
    rank = {"rank": 0, "node": f"{profile}-1", "status": status, "ended": end_s}
    files: dict[Path, Any] = {
        folder / "run.json": record,
        folder / "status.json": {
            "state": state,
            "asked_s": end_s,
            "final": True,
            "exit_status": status,
        },
        attempt / "start": {"job_id": record["job_id"], "host": f"{profile}-1", "started": start_s},
        attempt / "exit": {"status": status, "signal": "", "ended": end_s, "message": ""},
        attempt / "rank-0.exit": rank,
    }
    for path, content in files.items():
        path.write_text(json.dumps(content, indent=1) + "\n")
    (attempt / "rank-0.err").write_text(words)
