"""Command lines for several clusters at once."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from hpcrun.errors import UsageError
from hpcrun.features.remote import TypedHost, clusters
from hpcrun.features.remote.clusters import run_on_several
from hpcrun.features.remote.front import split_hosts


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
