"""Ids of very many jobs on command lines."""

from __future__ import annotations

from hpcrun.schedulers.slurm_text import in_parts, sacct_command


def test_ids_are_asked_for_in_parts_that_a_command_line_can_hold() -> None:
    ids = [str(10**9 + number) for number in range(20_000)]
    parts = in_parts(ids)
    assert [item for part in parts for item in part] == ids
    assert len(parts) == 3
    assert max(len(word) for part in parts for word in sacct_command(part)) < 128 * 1024
    assert in_parts([]) == []
