"""The stragglers of a run, from the files of its ranks."""

from __future__ import annotations

import json
from pathlib import Path

from hpcrun.actions.explain.step_times import stragglers_of
from hpcrun.diagnosis.stragglers import straggler_sentence
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


def test_what_the_ranks_print_names_the_slow_rank(tmp_path: Path) -> None:
    folder = begun(tmp_path)
    for rank in range(4):
        time = 1.5 if rank == 3 else 1.0
        (folder / f"rank-{rank}.out").write_text("".join(f"step {step} step_time={time}\n" for step in range(30)))
    assert said(tmp_path) == "rank 3 on node-1 takes 1.5 s a step, the others 1 s: 50 % more"


def test_a_progress_bar_on_stderr_counts_and_a_slow_node_is_named(tmp_path: Path) -> None:
    folder = begun(tmp_path)
    for rank in range(4):
        bar = "".join(f"\r {step}%|## | {step}/100 [00:10<01:00, {4 if rank < 2 else 2}.00it/s]" for step in range(100))
        (folder / f"rank-{rank}.err").write_text(bar)
    assert said(tmp_path) == "node-1 takes 0.5 s a step, the other nodes 0.25 s: 100 % more"


def test_metrics_come_before_logs_and_of_both_only_the_ends_are_read(tmp_path: Path) -> None:
    folder = begun(tmp_path)
    for rank in range(4):
        # at first rank 0 was slow; a step takes 2 s on rank 1, by the time of its rows
        rows = [{"time": 9 * step, "step": step, "step_time": 30.0} for step in range(99 if rank == 0 else 0)]
        rows += [{"time": 1000 + step * (2 if rank == 1 else 1), "step": step, "loss": 1.0} for step in range(99)]
        (folder / f"rank-{rank}.metrics").write_text("".join(f"{json.dumps(row)}\n" for row in rows) + '{"half a')
        (folder / f"rank-{rank}.out").write_text("step_time=1.0\n" * 9)
    assert said(tmp_path) == "rank 1 on node-0 takes 2 s a step, the others 1 s: 100 % more"


def test_logs_that_cannot_be_read_and_ranks_without_logs_say_nothing(tmp_path: Path) -> None:
    folder = begun(tmp_path / "run")
    assert said(tmp_path / "run") == ""
    (tmp_path / "slow").write_text("step_time=9.0\n" * 9)
    (folder / "rank-0.out").write_text("step_time=1.0\n" * 9)
    (folder / "rank-1.out").symlink_to(tmp_path / "slow")
    (folder / "rank-2.out").mkdir()
    (folder / "rank-3.out").write_bytes(b"\xff\x00" * 100_000)
    assert said(tmp_path / "run") == ""
