"""Phrases that many messages have."""

from __future__ import annotations

import pytest

from hpcrun.job.phrases import host_list


@pytest.mark.parametrize(
    ("names", "text"),
    [
        ([], ""),
        (["login"], "login"),
        (["a100-1"], "a100-1"),
        (["a100-1", "a100-2"], "a100-[1-2]"),
        (["a100-2", "b7", "a100-4", "a100-3", "login"], "a100-[2-4],b7,login"),
        (["node09", "node10"], "node09,node10"),
    ],
)
def test_nodes_are_listed_as_squeue_does(names: list[str], text: str) -> None:
    assert host_list(names) == text
