"""Nodes without a heartbeat: by the ages of their records, and by what Slurm says."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from hpcrun.in_job.launch.per_job.dead_nodes import (
    FRESH_S,
    LATE_S,
    Heartbeats,
    answers,
    next_nodes,
    note_dead_before,
    silent_nodes,
)


@pytest.mark.parametrize(
    ("ages", "silent"),
    [
        ({}, []),
        ({"a": LATE_S + 1}, []),
        ({"a": LATE_S + 1, "b": FRESH_S}, ["a"]),
        ({"a": LATE_S, "b": FRESH_S}, []),
        ({"a": LATE_S + 1, "b": FRESH_S + 1}, []),
        ({"a": LATE_S + 1, "b": 0.0, "c": LATE_S + 9}, ["a", "c"]),
    ],
)
def test_a_late_node_is_silent_beside_a_fresh_one(
    ages: dict[str, float], silent: list[str]
) -> None:
    assert silent_nodes(ages) == silent


@pytest.fixture
def attempt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder of attempt 1, whose Slurm is a program that says what a file has."""
    folder = tmp_path / "attempts/1"
    folder.mkdir(parents=True)
    monkeypatch.setenv("HPCRUN_ATTEMPT_DIR", str(folder))
    monkeypatch.setenv("HPCRUN_ATTEMPT", "1")
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    return folder


def slurm(attempt: Path, monkeypatch: pytest.MonkeyPatch, **states: str) -> None:
    """Let sinfo and scontrol tell these states of nodes, and srun start a step on each but n9."""
    folder = attempt.parents[1] / "bin"
    folder.mkdir()
    lines = "\n".join(f"{node} {state}" for node, state in states.items())
    for name, text in {
        "sinfo": f"cat <<'X'\n{lines}\nX",
        "srun": 'case "$*" in *n9*) exit 1 ;; esac',
        "scontrol": "exit 1",
    }.items():
        path = folder / name
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")


def test_one_node_has_no_other_to_miss(attempt: Path) -> None:
    beats = Heartbeats(["n1"])
    assert beats.check() == []
    assert beats.dead == []


def test_a_host_of_this_machine_answers() -> None:
    assert answers("127.0.0.1")


def test_no_host_of_that_name_answers() -> None:
    assert not answers("no-such-host.invalid")


def test_fresh_nodes_are_alive(attempt: Path) -> None:
    for node in ("127.0.0.1", "localhost"):
        (attempt / f"node-{node}.start").touch()
    beats = Heartbeats(["127.0.0.1", "localhost", "never-started"])
    assert beats.check() == []
    assert set(beats._seen) == {"127.0.0.1", "localhost"}
    assert beats._answered == {"127.0.0.1", "localhost"}


def test_the_dead_of_an_attempt_without_an_end_are_noted(
    attempt: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = attempt.with_name("0")
    before.mkdir()
    (before / "hosts").write_text("n1\nn2\n")
    slurm(attempt, monkeypatch, n1="down*", n2="idle")
    note_dead_before()
    noted = json.loads((before / "dead-nodes").read_text())
    assert noted["nodes"] == ["n1"]
    assert noted["asked"] > 1_700_000_000


def test_an_attempt_with_an_end_is_not_looked_at(
    attempt: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = attempt.with_name("0")
    before.mkdir()
    (before / "hosts").write_text("n1\n")
    (before / "exit").write_text("{}")
    slurm(attempt, monkeypatch, n1="down*")
    note_dead_before()
    assert not (before / "dead-nodes").exists()


def test_without_an_attempt_before_nothing_is_noted(attempt: Path) -> None:
    note_dead_before()
    assert os.listdir(attempt.parent) == ["1"]


def test_dead_nodes_are_replaced_by_spare_ones(
    attempt: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slurm(attempt, monkeypatch, n1="idle", n2="down*", n3="idle", n4="idle", n9="idle")
    left_out: list[str] = []
    nodes = ["n1", "n2", "n9", "n3", "n4"]
    assert next_nodes(nodes, ["n1", "n2"], left_out) == ["n1", "n3"]
    assert left_out == ["n9"]


def test_a_restart_has_as_many_nodes_as_there_are(
    attempt: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slurm(attempt, monkeypatch, n1="idle", n2="idle")
    assert next_nodes(["n1", "n2"], ["n1", "n3"], ["n2"]) == ["n1"]
    assert next_nodes([], ["n1"], []) == []
