"""The test job of init, as two processes; without torch, since Python is started without its
packages.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from hpcrun.in_job import hpcrun_hello
from tests.remote import free_port


def start(rank: int, world: int, port: int) -> subprocess.Popen[str]:
    env = {
        "RANK": str(rank),
        "WORLD_SIZE": str(world),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
    }
    argv = [sys.executable, "-S", "-E", hpcrun_hello.__file__]
    return subprocess.Popen(
        argv, env={**env, "CUDA_VISIBLE_DEVICES": "0,1"}, stdout=subprocess.PIPE, text=True
    )


def test_without_torch_the_ranks_add_up_over_sockets() -> None:
    port = free_port()
    ranks = [start(rank, 3, port) for rank in range(3)]
    said = [rank.communicate(timeout=60)[0] for rank in ranks]
    host = os.uname().nodename.split(".")[0]
    assert [rank.returncode for rank in ranks] == [0, 0, 0]
    lines = [f"rank {rank}  {host}  2 GPUs\n" for rank in range(3)]
    lines.append(
        "all-reduce of 3 ranks on 1 node works (sockets, since the job's Python has no torch)\n"
    )
    assert said == ["".join(lines), "", ""]


def test_one_rank_is_a_sum() -> None:
    alone = start(0, 1, free_port())
    assert "all-reduce of 1 rank on 1 node works" in alone.communicate(timeout=60)[0]


def test_a_node_that_cannot_write_in_the_runs_folder_says_so_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HPCRUN_ATTEMPT_DIR", str(tmp_path / "not-here"))
    problem = hpcrun_hello._problem("b", 1)
    assert problem.startswith("b cannot write in the run's folder ")
    monkeypatch.setenv("HPCRUN_ATTEMPT_DIR", str(tmp_path))
    assert hpcrun_hello._problem("b", 1) == ""
    assert list(tmp_path.iterdir()) == []


def test_a_node_that_cannot_resolve_the_head_node_says_so_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("MASTER_ADDR", "no-such-host.invalid")
    problem = hpcrun_hello._problem("b", 1)
    assert problem.startswith("b cannot resolve no-such-host.invalid, the host of rank 0")


def test_a_wrong_sum_is_said() -> None:
    everyone = [{"rank": rank, "host": "a", "gpus": 0} for rank in (1, 0)]
    lines = hpcrun_hello._report(hpcrun_hello.Sum("torch", 5, everyone))
    assert lines == [
        "rank 0  a  0 GPUs",
        "rank 1  a  0 GPUs",
        "all-reduce of 2 ranks on 1 node is wrong: the sum is 5, not 1 (torch)",
    ]
