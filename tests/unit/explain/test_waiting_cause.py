"""Ranks that waited for each other in different collectives: none is to blame for being the first to give up."""

from __future__ import annotations

from pathlib import Path

import pytest

from hpcrun.explain.any_job_or_log import explain_logs
from hpcrun.explain.diagnosis.rules import load_rules
from hpcrun.explain.ended import Explanation

TORCH = "/venv/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py"


def timed_out(rank: int, call: str, line: int) -> str:
    """Return the traceback of a rank that waited in a collective, as gloo ends it."""
    lines = [
        "Traceback (most recent call last):",
        f'  File "/home/b/ddp.py", line {line}, in <module>',
        f"    dist.{call}(t)",
        f'  File "{TORCH}", line 2810, in {call}',
        "    work.wait()",
        "RuntimeError: [gloo/unbound_buffer.cc:81] Timed out waiting 20000ms for recv operation to complete",
    ]
    return "".join(f"[rank{rank}]: {line}\n" for line in lines)


def explained(folder: Path, *logs: str) -> Explanation:
    (folder / "job.out").write_text("".join(logs))
    return explain_logs([str(folder / "job.out")], load_rules(()))


def test_different_collectives_are_the_cause_and_the_odd_rank_is_named(tmp_path: Path) -> None:
    said = explained(
        tmp_path, timed_out(0, "all_reduce", 95), timed_out(2, "all_reduce", 95), timed_out(1, "broadcast", 91)
    )
    assert said.summary == (
        "the ranks timed out in different collectives: ranks 0, 2 in all_reduce (ddp.py:95); rank 1 in broadcast "
        "(ddp.py:91)"
    )
    assert (said.rule, said.rank) == ("collective-mismatch", 1)


def test_of_two_ranks_neither_is_the_odd_one(tmp_path: Path) -> None:
    said = explained(tmp_path, timed_out(0, "all_reduce", 95), timed_out(1, "broadcast", 91))
    assert (said.rule, said.rank) == ("collective-mismatch", None)


@pytest.mark.parametrize("others", [[timed_out(1, "all_reduce", 95)], [timed_out(1, "all_reduce", 99)]])
def test_the_same_collective_is_no_mismatch(others: list[str], tmp_path: Path) -> None:
    said = explained(tmp_path, timed_out(0, "all_reduce", 95), *others)
    assert said.rule == "collective-timeout"
