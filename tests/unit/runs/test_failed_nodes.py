"""The nodes that failed, remembered for a day."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hpcrun.runs.failed_nodes import FailedNode, FailedNodes

NOW = 1_800_000_000.0


def failure(node: str, ago_s: float = 60.0, run: str = "20270101-000000-train-0001") -> FailedNode:
    return FailedNode(node, "big", NOW - ago_s, "down or not responding", run)


@pytest.fixture
def failed(tmp_path: Path) -> FailedNodes:
    return FailedNodes(tmp_path / "state" / "failed-nodes.json")


def names(failed: FailedNodes, now_s: float = NOW) -> list[str]:
    return [one.node for one in failed.known(now_s)]


def test_what_is_noted_is_known_the_newest_first_for_a_day(failed: FailedNodes) -> None:
    assert names(failed) == []
    failed.note([failure("a-1", 100), failure("a-2", 50)], NOW)
    failed.note([failure("a-3", 70)], NOW)
    assert names(failed) == ["a-2", "a-3", "a-1"]
    assert failed.of_cluster("big", NOW) == ("a-2", "a-3", "a-1")
    assert failed.of_cluster("other", NOW) == ()
    assert failed.of_cluster(None, NOW) == ()
    failed.note([failure("a-4", 86401)], NOW)
    assert names(failed) == ["a-2", "a-3", "a-1"]
    assert names(failed, NOW + 86400) == []


def test_the_same_failure_is_noted_once_and_the_file_is_bounded(failed: FailedNodes) -> None:
    for _ in range(3):
        failed.note([failure("a-1")], NOW)
    assert len(json.loads(failed.path.read_text())["nodes"]) == 1
    failed.note([failure("a-1", 10)], NOW)
    assert [one.failed_s for one in failed.known(NOW)] == [NOW - 10]
    failed.note([failure(f"b-{number}", number + 1) for number in range(250)], NOW)
    assert len(json.loads(failed.path.read_text())["nodes"]) == 200
    assert names(failed)[0] == "b-0"


def test_what_was_forgotten_is_not_noted_again_until_it_fails_again(failed: FailedNodes) -> None:
    failed.note([failure("a-1"), failure("a-2")], NOW)
    assert failed.forget(["a-1", "a-9"], NOW) == ("a-1",)
    failed.note([failure("a-1")], NOW)
    assert names(failed) == ["a-2"]
    failed.note([failure("a-1", 5)], NOW)
    assert names(failed) == ["a-1", "a-2"]
    assert failed.forget(["a-1"], NOW) == ("a-1",)
    assert failed.forget([], NOW) == ("a-2",)
    assert names(failed) == []


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        '{"nodes": 3}',
        '{"nodes": [3, {}, {"node": 1}]}',
        "\xff",
        '{"nodes": [' * 9999,
    ],
)
def test_a_file_that_cannot_be_read_is_no_error_and_is_replaced(
    failed: FailedNodes, text: str
) -> None:
    failed.path.parent.mkdir()
    failed.path.write_text(text, "latin-1")
    assert names(failed) == []
    failed.note([failure("a-1")], NOW)
    assert names(failed) == ["a-1"]
    unwritable = FailedNodes(failed.path / "below.json")
    unwritable.note([failure("a-1")], NOW)
    assert names(unwritable) == []
