"""hpcrun nodes: the nodes on which runs failed of late."""

from __future__ import annotations

import json
import time

from hpcrun.runs.failed_nodes import FailedNode, FailedNodes
from tests.harness import Hpcrun

NONE = "no node failed in the last 24 hours\n"


def test_nodes_that_failed_are_listed_and_forgotten(hpcrun: Hpcrun) -> None:
    assert hpcrun("nodes", check=True).stdout == NONE
    now_s = time.time()
    failures = [
        FailedNode(
            "h100-12", "big", now_s - 7300, "stopped responding", "20270101-000000-train-0001"
        ),
        FailedNode(
            "a100-1", "big", now_s - 100, "down or not responding", "20270101-000000-train-0002"
        ),
    ]
    FailedNodes(hpcrun.home / ".local/state/hpcrun/failed-nodes.json").note(failures, now_s)
    assert hpcrun("nodes", check=True).stdout.splitlines() == [
        "NODE     LAST FAILURE  REASON                  RUN",
        "a100-1   1 min ago     down or not responding  20270101-000000-train-0002",
        "h100-12  2 h ago       stopped responding      20270101-000000-train-0001",
    ]
    assert hpcrun("nodes", "forget", "a100-1", check=True).stdout == "forgotten  a100-1\n"
    left = json.loads(hpcrun("nodes", "--json", check=True).stdout)["nodes"]
    assert [node["node"] for node in left] == ["h100-12"]
    hpcrun("nodes", "forget", check=True)
    assert hpcrun("nodes", check=True).stdout == NONE
