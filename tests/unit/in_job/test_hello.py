"""The test job of init, as two processes; without torch, since Python is started without its
packages.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

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


@pytest.mark.parametrize(
    ("variables", "number"),
    [
        ({}, 0),
        ({"CUDA_VISIBLE_DEVICES": "0,1,2"}, 3),
        ({"CUDA_VISIBLE_DEVICES": "", "ROCR_VISIBLE_DEVICES": "0,1"}, 2),
        ({"CUDA_VISIBLE_DEVICES": "0, ,"}, 1),
    ],
)
def test_the_gpus_of_the_job_are_counted_by_its_variables(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], number: int
) -> None:
    for name in ("CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert hpcrun_hello._given_gpus() == number


@pytest.mark.parametrize(
    ("variables", "row", "total"),
    [
        pytest.param({}, "rank 0 ", "1 rank", id="alone"),
        pytest.param({"NODE_RANK": "0", "NNODES": "1"}, "rank 0 ", "1 rank", id="once a node"),
        pytest.param(
            {"NODE_RANK": "7", "RANK": "0", "NNODES": "9", "WORLD_SIZE": "1"},
            "rank 0 ",
            "1 rank",
            id="torchrun",
        ),
    ],
)
def test_a_rank_is_known_by_the_variables_of_its_launcher(
    variables: dict[str, str], row: str, total: str
) -> None:
    argv = [sys.executable, "-S", "-E", hpcrun_hello.__file__]
    done = subprocess.run(argv, env=variables, stdout=subprocess.PIPE, text=True, check=True)
    lines = done.stdout.splitlines()
    assert lines[0].startswith(row)
    assert lines[0].endswith(" 0 GPUs")
    assert lines[1].startswith(f"all-reduce of {total} on 1 node works (sockets, ")


def test_a_wrong_sum_is_a_failure() -> None:
    argv = [sys.executable, "-S", "-E", hpcrun_hello.__file__]
    env = {"RANK": "1", "WORLD_SIZE": "1"}
    assert subprocess.run(argv, env=env, stdout=subprocess.PIPE).returncode == 1


def test_a_node_with_a_problem_ends_at_once(tmp_path: Path) -> None:
    argv = [sys.executable, "-S", "-E", hpcrun_hello.__file__]
    env = {"RANK": "1", "WORLD_SIZE": "2", "HPCRUN_ATTEMPT_DIR": str(tmp_path / "missing")}
    done = subprocess.run(argv, env=env, capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stderr.startswith("hpcrun: ")
    assert done.stderr.endswith("; choose a runs folder that all nodes share\n")


def test_the_names_of_hosts_are_one_column() -> None:
    rows = [
        {"rank": 10, "host": "long-name", "gpus": 1},
        {"rank": 2, "host": "a", "gpus": 4},
    ]
    lines = hpcrun_hello._report(hpcrun_hello.Sum("gloo", 1, rows))
    assert lines == [
        "rank 2  a          4 GPUs",
        "rank 10  long-name  1 GPU",
        "all-reduce of 2 ranks on 2 nodes works (gloo)",
    ]


# --- with torch, of which a stub stands for the GPUs of a machine --------------------------------


@pytest.fixture
def torch(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """A torch of one rank, which notes the GPU of the rank."""
    stub = SimpleNamespace(__version__="2.9.0", int64=int, gpus=0, chosen="", backend="")
    number = SimpleNamespace(item=lambda: 0)

    def begin(backend: str, **_: object) -> None:
        stub.backend = backend

    def gather(rows: list[object], row: object) -> None:
        rows[:] = [row]

    def choose(device: str) -> None:
        stub.chosen = device

    stub.distributed = SimpleNamespace(
        init_process_group=begin,
        all_reduce=lambda _: None,
        all_gather_object=gather,
        barrier=lambda: None,
    )
    stub.cuda = SimpleNamespace(
        is_available=lambda: stub.gpus > 0,
        device_count=lambda: stub.gpus,
        set_device=choose,
    )
    stub.device = lambda kind, place=0: f"{kind}:{place}"
    stub.tensor = lambda values, **_: number
    monkeypatch.setitem(sys.modules, "torch", stub)
    monkeypatch.setitem(sys.modules, "torch.distributed", stub.distributed)
    for name in ("RANK", "WORLD_SIZE"):
        monkeypatch.setenv(name, "1")
    return stub


@pytest.mark.parametrize(
    ("gpus", "local_rank", "backend", "device"),
    [(4, "2", "nccl", "cuda:2"), (2, "3", "nccl", "cuda:1"), (0, "1", "gloo", "")],
)
def test_ranks_with_torch_use_their_gpus(
    monkeypatch: pytest.MonkeyPatch,
    torch: SimpleNamespace,
    gpus: int,
    local_rank: str,
    backend: str,
    device: str,
) -> None:
    torch.gpus = gpus
    monkeypatch.setenv("LOCAL_RANK", local_rank)
    row = {"rank": 0, "host": "a", "gpus": gpus}
    result = hpcrun_hello._add_by_torch(row, 1)
    assert (torch.backend, torch.chosen) == (backend, device)
    assert result.rows == [row]
    assert result.way.startswith(f"torch 2.9.0, {backend}, ")


@pytest.mark.parametrize(
    ("given", "seen", "rank", "is_said"),
    [(2, 0, 0, True), (2, 2, 0, False), (0, 0, 0, False), (2, 0, 1, False)],
)
def test_a_torch_that_sees_no_gpus_of_the_job_is_said_once(
    torch: SimpleNamespace,
    capsys: pytest.CaptureFixture[str],
    given: int,
    seen: int,
    rank: int,
    is_said: bool,
) -> None:
    torch.gpus = seen
    hpcrun_hello._add_by_torch({"rank": rank, "host": "a", "gpus": given}, 1)
    message = "torch does not see the GPUs of this job: the ranks use CPUs\n"
    assert capsys.readouterr().out == (message if is_said else "")
