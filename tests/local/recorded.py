"""Runs that are over, written down without running anything: what a reader of run folders needs."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from tests.harness import Hpcrun

STARTED_S = 1_700_000_000


def replace_fields(path: Path, **fields: object) -> None:
    """Replace fields of a record."""
    path.write_text(json.dumps({**json.loads(path.read_text()), **fields}))


@dataclass(frozen=True)
class Recorded:
    """The folder of a run, and the files of its attempts."""

    folder: Path

    def attempt(self, number: int = 0, *, over: bool = True) -> Path:
        """The folder of an attempt, which has started."""
        folder = self.folder / f"elements/0/attempts/{number}"
        if not folder.exists():
            folder.mkdir(parents=True)
            start = {"job_id": "L1", "host": "here", "started": STARTED_S + 100 * number}
            (folder / "start").write_text(json.dumps(start))
        if over:
            end = {"status": 0, "signal": "", "ended": STARTED_S + 100 * number + 50, "message": ""}
            (folder / "exit").write_text(json.dumps(end))
        return folder

    def log(self, text: str | bytes, rank: int = 0, stream: str = "out", attempt: int = 0) -> Path:
        """What a rank said."""
        path = self.attempt(attempt) / f"rank-{rank}.{stream}"
        path.write_bytes(text.encode() if isinstance(text, str) else text)
        return path

    def ended(self, ended_s: float, status: int = 0) -> Path:
        """Let it have ended at another time, and perhaps not well; return its folder."""
        attempt = self.attempt()
        replace_fields(attempt / "start", started=ended_s - 1)
        replace_fields(attempt / "exit", ended=ended_s, status=status)
        state = "FAILED" if status else "COMPLETED"
        replace_fields(
            self.folder / "status.json", state=state, asked_s=ended_s, exit_status=status
        )
        return self.folder


def record(
    hpcrun: Hpcrun, name: str = "train", *, ranks: int = 4, scheduler: str = "local"
) -> Recorded:
    """Write a run of this name."""
    run_id = f"20260102-030405-{name}-0a1b"
    folder, second = hpcrun.runs / run_id, STARTED_S + len(list(hpcrun.runs.iterdir()))
    folder.mkdir()
    fields = {
        "schema": 1,
        "run_id": run_id,
        "name": name,
        "scheduler": scheduler,
        "cluster": None,
        "host": "here",
        "created_s": second,
        "job_id": "L1",
        "profile": "local",
        "nodes": 1,
        "gpus_per_node": 0,
        "world_size": ranks,
        "walltime_s": None,
        "request": {},
        "plan": {},
    }
    (folder / "run.json").write_text(json.dumps(fields, indent=1) + "\n")
    (folder / "status.json").write_text(
        json.dumps({"state": "COMPLETED", "asked_s": STARTED_S, "final": True})
    )
    return Recorded(folder)
