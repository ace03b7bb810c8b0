"""Command lines for several clusters at once."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from hpcrun.errors import PlanError, UsageError
from hpcrun.features.remote import TypedHost, clusters
from hpcrun.features.remote.clusters import _first_to_start, _job_words, _row, run_on_several
from hpcrun.features.remote.front import split_hosts
from tests.unit.features.remote.hosts import host_that_prints


def test_v_before_submit_is_not_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    lines: list[tuple[str, list[str]]] = []

    def run_on_one(host: str, words: list[str]) -> int:
        lines.append((host, words))
        return 0

    def first_to_start(hosts: Sequence[str], words: Sequence[str]) -> str:
        assert list(words) == ["-v", "--gpus", "2", "train.py"]
        return hosts[1]

    monkeypatch.setattr(clusters, "run_on_one", run_on_one)
    monkeypatch.setattr(clusters, "_first_to_start", first_to_start)
    monkeypatch.setattr(TypedHost, "name", "")
    line = ["--on", "a", "--on", "b", "-v", "submit", "--gpus", "2", "train.py"]
    hosts, words = split_hosts(line)
    assert run_on_several(hosts, words) == 0
    assert lines == [("b", ["-v", "submit", "--gpus", "2", "train.py"])]


def test_v_before_status_is_refused_as_behind_it() -> None:
    for words in (["-v", "status"], ["status", "-v"]):
        with pytest.raises(UsageError, match=r"^status -v takes one --on HOST"):
            run_on_several(["a", "b"], words)


def test_other_commands_take_one_host() -> None:
    with pytest.raises(UsageError, match=r"^logs takes one --on HOST"):
        run_on_several(["a", "b"], ["-v", "logs"])
    with pytest.raises(UsageError, match=r"^hpcrun takes one --on HOST"):
        run_on_several(["a", "b"], ["-v"])


RUN = {
    "name": "train",
    "job_id": "4711",
    "profile": "a100",
    "state": "RUNNING",
    "nodes": 2,
    "gpus_per_node": 4,
    "elapsed_s": 65.9,
    "hosts": "n[1-2]",
    "created_s": 20,
}
CELLS = ["far", "train", "4711", "a100", "RUNNING", "2×4", "1:05", "n[1-2]"]


@pytest.mark.parametrize(
    ("changed", "place", "cell"),
    [
        ({}, 0, "far"),
        ({"job_id": None}, 2, "-"),
        ({"gpus_per_node": 0}, 5, "2 nodes"),
        ({"nodes": 1, "gpus_per_node": None}, 5, "1 node"),
        ({"elapsed_s": None}, 6, "0:00"),
        ({"elapsed_s": -5}, 6, "0:00"),
        ({"elapsed_s": 1e11}, 6, "0:00"),
        ({"elapsed_s": "soon"}, 6, "0:00"),
        ({"hosts": None}, 7, ""),
        ({"hosts": None, "reason": "Priority"}, 7, "(Priority)"),
        ({"reason": "Priority", "cause": "KeyError"}, 7, "n[1-2] (KeyError)"),
    ],
)
def test_whatever_a_host_says_a_run_is_a_row(
    changed: dict[str, Any], place: int, cell: str
) -> None:
    expected = [*CELLS]
    expected[place] = cell
    assert _row({**RUN, "on": "far", **changed}) == expected


def test_the_runs_of_all_hosts_are_one_table_by_age(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    older = {**RUN, "name": "older", "created_s": 10}
    host_that_prints(here, "alpha", json.dumps({"runs": [RUN, "no run"]}))
    host_that_prints(here, "beta", json.dumps({"runs": [older]}))
    host_that_prints(here, "gamma", json.dumps({"runs": None}))
    assert run_on_several(["alpha", "beta", "gamma", "gone"], ["status"]) == 5
    printed = capsys.readouterr()
    lines = [line.split()[:2] for line in printed.out.splitlines()]
    assert lines == [["CLUSTER", "NAME"], ["beta", "older"], ["alpha", "train"]]
    assert "hpcrun: there is no connection to gone\nhint: " in printed.err


def test_json_names_hosts_of_runs_and_those_that_failed(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    host_that_prints(here, "alpha", json.dumps({"runs": [{"name": "train"}]}))
    assert run_on_several(["alpha", "gone"], ["status", "--json"]) == 5
    document = json.loads(capsys.readouterr().out)
    assert document["kind"] == "status"
    assert document["runs"] == [{"name": "train", "on": "alpha"}]
    assert document["failed"] == {"gone": "there is no connection to gone"}


def offers(*starts_s: float) -> str:
    """What ``where`` prints of a cluster on which jobs start then."""
    return json.dumps({"offers": [{"start_s": start_s} for start_s in starts_s]})


def test_a_job_goes_to_the_cluster_where_it_starts_first(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    host_that_prints(here, "alpha", offers(2_000_000_200.0))
    host_that_prints(here, "beta", offers(2_000_000_300.0, 2_000_000_100.0))
    host_that_prints(here, "gamma", offers(0))
    hosts = ["alpha", "beta", "gamma"]
    assert _first_to_start(hosts, ["--gpus", "2", "train.py"]) == "beta"
    told = capsys.readouterr().err
    assert told.startswith("cluster    beta: ")
    assert "(alpha: " in told
    assert "; gamma: " in told


def test_clusters_that_cannot_start_a_job_say_why(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    host_that_prints(here, "alpha", json.dumps({"offers": [], "misfits": [{"waits": False}]}))
    host_that_prints(here, "beta", json.dumps({"misfits": [{}, {"waits": True}]}))
    with pytest.raises(PlanError, match="no cluster of these can start the job"):
        _first_to_start(["alpha", "beta", "gone"], ["train.py"])
    assert capsys.readouterr().err.splitlines()[:2] == [
        "hpcrun: the job fits no profile of alpha",
        "hpcrun: on beta the job waits for nodes: hpcrun --on beta where",
    ]


def test_only_what_decides_the_start_is_asked_of_a_cluster() -> None:
    line = "--gpus 2 --time=4h --name x --json --follow -P a100 --env A=b train.py --nodes 3"
    assert _job_words(line.split()) == ["--gpus", "2", "--time=4h", "-P", "a100"]
