"""What a node gives torchrun, and what of it an option or a variable takes the place of."""

from __future__ import annotations

import os

import pytest

from hpcrun.launch.environment import FOR_TORCHRUN
from hpcrun.launch.rendezvous import options_of_torchrun

JOB = {"HPCRUN_NODE": "b", "HPCRUN_NODE_ADDR": "b", "HPCRUN_HEAD": "a", "HPCRUN_HEAD_ADDR": "a", "HPCRUN_PORT": "20001",
       "HPCRUN_JOB_ID": "7", "HPCRUN_ATTEMPT": "0", "HPCRUN_NODE_RANK": "1"}  # fmt: skip


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith("PET_"):
            monkeypatch.delenv(name)
    for name in ("PET_RDZV_ENDPOINT", "PET_RDZV_ID", "PET_RDZV_CONF", "PET_LOCAL_ADDR", "PET_NODE_RANK"):
        monkeypatch.setenv(name, "")  # so that they are as before when the test is over
        monkeypatch.delenv(name)
    for name, value in JOB.items():
        monkeypatch.setenv(name, value)


def test_a_node_that_slurm_has_numbered_keeps_its_number() -> None:
    words = ["run", "--nnodes=2", "--rdzv-backend=static"]
    assert options_of_torchrun(words) == words
    assert (os.environ["PET_RDZV_ENDPOINT"], os.environ["PET_NODE_RANK"]) == ("a:20001", "1")
    assert "PET_RDZV_CONF" not in os.environ
    assert "PET_NODE_RANK" in os.environ[FOR_TORCHRUN].split(), "the program may start a torchrun of its own"


def test_a_node_meets_the_others_at_the_head() -> None:
    assert options_of_torchrun(["run", "--nnodes=2"]) == ["run", "--nnodes=2"]
    found = {name: os.environ[name] for name in ("PET_RDZV_ENDPOINT", "PET_RDZV_ID", "PET_RDZV_CONF")}
    assert found == {"PET_RDZV_ENDPOINT": "a:20001", "PET_RDZV_ID": "7.0", "PET_RDZV_CONF": "is_host=0"}


def test_a_configuration_on_the_line_still_says_who_is_the_host() -> None:
    assert options_of_torchrun(["run", "--rdzv-conf=timeout=900"]) == ["run", "--rdzv-conf=timeout=900,is_host=0"]


@pytest.mark.parametrize("by_variable", [False, True])
def test_who_is_the_host_of_another_endpoint_is_torch_s_to_find_out(
    by_variable: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ["run", "--rdzv-conf=timeout=900"]
    if by_variable:
        monkeypatch.setenv("PET_RDZV_ENDPOINT", "c:29400")
    else:
        words.append("--rdzv-endpoint=c:29400")
    assert options_of_torchrun(words) == words
    assert "PET_RDZV_CONF" not in os.environ
    assert os.environ.get("PET_RDZV_ENDPOINT") == ("c:29400" if by_variable else None)
