"""The stragglers of a run, from the files of its ranks."""

from __future__ import annotations

import json
from pathlib import Path

from hpcrun.explain.diagnosis.stragglers import straggler_sentence, stragglers_of
from hpcrun.runs.attempt import last_attempt


def said(folder: Path) -> str:
    """Return what is said of the run in a folder; empty if no rank is slow."""
    attempt = last_attempt(folder)
    assert attempt is not None
    found = stragglers_of(attempt)
    return straggler_sentence(*found) if found else ""


def begun(run: Path, ranks: int = 4) -> Path:
    """Begin an attempt of a run: two ranks on each node; return its folder."""
    folder = run / "elements/0/attempts/0"
    folder.mkdir(parents=True)
    (folder / "start").write_text(json.dumps({"job_id": "L1", "host": "here", "started": 1_700_000_000}))
    for first in range(0, ranks, 2):
        node = {"node": f"node-{first // 2}", "first_rank": first, "ranks": 2}
        (folder / f"node-node-{first // 2}.start").write_text(json.dumps(node))
    return folder


def test_the_ends_of_the_metrics_name_the_slow_rank(tmp_path: Path) -> None:
    folder = begun(tmp_path)
    for rank in range(4):
        # at first rank 0 was slow; a step takes 2 s on rank 1, by the time of its rows
        rows = [{"time": 9 * step, "step": step, "step_time": 30.0} for step in range(99 if rank == 0 else 0)]
        rows += [{"time": 1000 + step * (2 if rank == 1 else 1), "step": step, "loss": 1.0} for step in range(99)]
        (folder / f"rank-{rank}.metrics").write_text("".join(f"{json.dumps(row)}\n" for row in rows) + '{"half a')
    assert said(tmp_path) == "rank 1 on node-0 takes 2 s a step, the others 1 s: 100 % more"


def test_ranks_without_metrics_say_nothing(tmp_path: Path) -> None:
    begun(tmp_path / "run")
    assert said(tmp_path / "run") == ""
