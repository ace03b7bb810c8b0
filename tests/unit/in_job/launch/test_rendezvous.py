"""What a node gives torchrun, and what of it an option or a variable takes the place of."""

from __future__ import annotations

import os
import socket

import pytest

from hpcrun.in_job.launch.environment import FOR_TORCHRUN
from hpcrun.in_job.launch.rendezvous import free_port, options_of_torchrun

JOB = {
    "HPCRUN_NODE": "b",
    "HPCRUN_NODE_ADDR": "b",
    "HPCRUN_HEAD": "a",
    "HPCRUN_HEAD_ADDR": "a",
    "HPCRUN_PORT": "20001",
    "HPCRUN_JOB_ID": "7",
    "HPCRUN_ATTEMPT": "0",
    "HPCRUN_NODE_RANK": "1",
}


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith("PET_"):
            monkeypatch.delenv(name)
    for name in (
        "PET_RDZV_ENDPOINT",
        "PET_RDZV_ID",
        "PET_RDZV_CONF",
        "PET_LOCAL_ADDR",
        "PET_NODE_RANK",
    ):
        monkeypatch.setenv(name, "")  # so that they are as before when the test is over
        monkeypatch.delenv(name)
    for name, value in JOB.items():
        monkeypatch.setenv(name, value)


@pytest.mark.parametrize(
    ("options", "endpoint", "rank", "conf"),
    [
        ([], "a:20001", None, "is_host=0"),
        (["--rdzv-backend=static"], "a:20001", "1", None),  # Slurm has numbered the nodes
        (["--rdzv-conf=timeout=900"], "a:20001", None, "is_host=0"),
        # torch finds out who the host is
        (["--rdzv-conf=timeout=900", "--rdzv-endpoint=c:29400"], None, None, None),
    ],
)
def test_a_node_meets_the_others_at_the_head(
    options: list[str], endpoint: str | None, rank: str | None, conf: str | None
) -> None:
    words = options_of_torchrun(["run", *options])
    names = ("PET_RDZV_ENDPOINT", "PET_NODE_RANK", "PET_RDZV_CONF", "PET_RDZV_ID")
    assert [os.environ.get(name) for name in names] == [endpoint, rank, conf, "7.0"]
    added = ",is_host=0" if conf and options else ""
    assert words == ["run", *(option + (added if "conf" in option else "") for option in options)]
    # the program may start a torchrun of its own
    assert set(os.environ[FOR_TORCHRUN].split()) == {
        name for name in os.environ if name.startswith("PET_")
    }


def test_an_endpoint_in_the_environment_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PET_RDZV_ENDPOINT", "c:29400")
    assert options_of_torchrun(["run", "--rdzv-conf=timeout=900"]) == [
        "run",
        "--rdzv-conf=timeout=900",
    ]
    assert (os.environ["PET_RDZV_ENDPOINT"], os.environ.get("PET_RDZV_CONF")) == ("c:29400", None)


def test_a_port_on_which_a_program_listens_is_not_chosen() -> None:
    with socket.create_server(("127.0.0.1", free_port(7))) as taken:
        assert free_port(7) != taken.getsockname()[1]
