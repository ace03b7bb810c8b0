"""What the probe prints of the ranks of a node: each answer in short lines."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
import zlib
from pathlib import Path
from typing import Any

import pytest

from hpcrun.in_job.probe import __main__ as probe
from hpcrun.in_job.probe.rank_processes import Process


def answers(output: str) -> dict[str, dict[str, Any]]:
    """Return the answers in an output, by "NODE NUMBER"."""
    parts: dict[str, list[str]] = {}
    for line in output.splitlines():
        mark, node, number, place, text = line.split(" ")
        assert mark == "hpcrun-stacks"
        part, _, count = place.partition("/")
        of_answer = parts.setdefault(f"{node} {number}", [""] * int(count))
        assert len(text) <= 700
        of_answer[int(part)] = text
    texts = {name: zlib.decompress(base64.b64decode("".join(of))) for name, of in parts.items()}
    return {name: json.loads(text) for name, text in texts.items()}


def random_stack(size: int) -> str:
    """Return a text that cannot be compressed."""
    return os.urandom(size // 2).hex()


@pytest.mark.parametrize("size", [2, 400, 20_000])
def test_an_answer_comes_in_short_lines(capsys: pytest.CaptureFixture[str], size: int) -> None:
    answer = {"rank": 3, "stack": random_stack(size)}
    length = probe.print_answer("n1", 2, answer, 1 << 20)
    output = capsys.readouterr().out
    assert answers(output) == {"n1 2": answer}
    assert sum(len(line.split()[4]) for line in output.splitlines()) == length


def test_a_stack_that_is_too_long_is_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    answer = {"rank": 3, "state": "S", "how": "py-spy", "stack": random_stack(2000), "workers": []}
    most = 1000
    assert probe.print_answer("n1", 0, answer, most) < most
    expected = {"rank": 3, "state": "S", "lacks": "its stack is too long"}
    assert answers(capsys.readouterr().out) == {"n1 0": expected}


def test_a_stack_of_a_huge_answer_is_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    probe.print_answer("n1", 0, {"rank": 3, "stack": "x" * ((8 << 20) + 1)}, 1 << 30)
    assert answers(capsys.readouterr().out)["n1 0"]["lacks"] == "its stack is too long"


def test_an_answer_without_a_stack_stays_whole(capsys: pytest.CaptureFixture[str]) -> None:
    answer = {"rank": 3, "wchan": random_stack(2000)}
    probe.print_answer("n1", 0, answer, 10)
    assert answers(capsys.readouterr().out) == {"n1 0": answer}


def test_without_rank_0_nothing_is_asked_of_nccl() -> None:
    assert probe.ras_reports({1: [Process(os.getpid())]}, 0) == []


def test_the_probe_describes_the_ranks_of_the_node(tmp_path: Path) -> None:
    rank = {"HPCRUN_ATTEMPT_DIR": str(tmp_path), "HPCRUN_NODE": "n1", "HPCRUN_RANK": "3"}
    argv = [sys.executable, "-ISB", probe.__file__, str(tmp_path)]
    idle = ["sleep", "60"]
    with (
        subprocess.Popen(idle, env={**os.environ, **rank}) as first,
        subprocess.Popen(idle, env={**os.environ, **rank, "HPCRUN_RANK": "12"}) as second,
    ):
        env = {**os.environ, "SLURMD_NODENAME": "n1"}
        done = subprocess.run(argv, env=env, stdout=subprocess.PIPE, text=True, check=True)
        first.kill()
        second.kill()
    said = answers(done.stdout)
    assert list(said) == ["n1 0", "n1 1", "n1 2"]
    assert said["n1 0"] == {"node": "n1", "ras": []}
    assert (said["n1 1"]["rank"], said["n1 1"]["pid"]) == (3, first.pid)
    assert (said["n1 2"]["rank"], said["n1 2"]["pid"]) == (12, second.pid)
    assert said["n1 1"]["lacks"] == "sleep is not Python"
    assert said["n1 2"]["busy"] < 0.2
