"""What a node gives torchrun, and what of it an option or a variable takes the place of."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from hpcrun.in_job.launch import rendezvous
from hpcrun.in_job.launch.rank_environment import FOR_TORCHRUN
from hpcrun.in_job.launch.rendezvous import (
    FIRST,
    SPAN,
    choose,
    find_head,
    free_port,
    options_of_torchrun,
)

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
    assert os.environ["PET_RDZV_ENDPOINT"] == "c:29400"
    assert os.environ.get("PET_RDZV_CONF") is None


def test_a_port_on_which_a_program_listens_is_not_chosen() -> None:
    with socket.create_server(("127.0.0.1", free_port(7))) as taken:
        assert free_port(7) != taken.getsockname()[1]


@pytest.fixture
def attempts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of an attempt in job 4711, on a machine where all ports are free."""
    monkeypatch.setattr(rendezvous, "_is_free", lambda port: True)
    monkeypatch.setenv("HPCRUN_ATTEMPT_DIR", str(tmp_path))
    monkeypatch.setenv("SLURM_JOB_ID", "4711")
    monkeypatch.setenv("SLURM_JOB_NODELIST", "n[1-2]")
    return tmp_path


def test_each_attempt_of_a_job_meets_at_another_port(
    attempts: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Processes of the attempt before may still hold its port."""
    ports = []
    for number in range(20):
        monkeypatch.setenv("HPCRUN_ATTEMPT", str(number))
        choose(["n1", "n2"], local=False)
        ports.append(int(os.environ["HPCRUN_PORT"]))
    assert len(set(ports)) == 20
    assert all(FIRST <= port < FIRST + SPAN for port in ports)


def test_each_job_meets_at_another_port(attempts: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ports = set()
    for job_id in ("4711", "4712"):
        monkeypatch.setenv("SLURM_JOB_ID", job_id)
        choose(["n1"], local=False)
        ports.add(os.environ["HPCRUN_PORT"])
    assert len(ports) == 2


def test_the_first_host_is_the_head(attempts: Path, capsys: pytest.CaptureFixture[str]) -> None:
    choose(["n2", "n1"], local=False)
    assert os.environ["HPCRUN_HEAD"] == os.environ["HPCRUN_HEAD_ADDR"] == "n2"
    assert (attempts / "hosts").read_text() == "n2\nn1\n"
    place = f"rendezvous n2:{os.environ['HPCRUN_PORT']}"
    assert f"job 4711 on n[1-2], {place}" in capsys.readouterr().out


def test_on_this_machine_the_ranks_meet_at_its_loopback_address(attempts: Path) -> None:
    choose(["here"], local=True)
    assert os.environ["HPCRUN_HEAD"] == "here"
    assert os.environ["HPCRUN_HEAD_ADDR"] == os.environ["HPCRUN_NODE_ADDR"] == "127.0.0.1"


def test_the_profiles_suffix_names_the_nodes_of_the_fast_network(
    attempts: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HPCRUN_HOST_SUFFIX", "-ib")
    choose(["n2", "n1"], local=False)
    assert os.environ["HPCRUN_HEAD"] == "n2"
    assert os.environ["HPCRUN_HEAD_ADDR"] == "n2-ib"
    assert "rendezvous n2-ib:" in capsys.readouterr().out


@pytest.fixture
def slurm_address(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A scontrol that shows the NodeAddr of a node."""
    scontrol = tmp_path / "scontrol"
    scontrol.write_text('#!/bin/sh\necho "NodeName=$4 Gres= NodeAddr=$4.fast NodeHostName=$4"\n')
    scontrol.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")


@pytest.mark.parametrize(
    ("known", "address"),
    [
        (["b-ib", "a-ib", "a"], "a-ib"),
        (["b", "a"], "a"),
        (["b", "a.fast"], "a.fast"),
    ],
)
def test_the_head_has_the_first_address_that_resolves(
    known: list[str], address: str, slurm_address: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HPCRUN_HEAD_ADDR", "a-ib")
    monkeypatch.setattr(rendezvous, "_resolves", lambda name: name in known)
    assert find_head()
    assert os.environ["HPCRUN_HEAD_ADDR"] == address


def test_this_node_has_an_address_that_resolves(
    slurm_address: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rendezvous, "_resolves", lambda name: name in ("a", "b.fast"))
    assert find_head()
    assert os.environ["HPCRUN_NODE_ADDR"] == "b.fast"


def test_what_was_tried_is_said(
    slurm_address: None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HPCRUN_HEAD_ADDR", "a-ib")
    monkeypatch.setattr(rendezvous, "_resolves", lambda name: False)
    assert not find_head()
    message = capsys.readouterr().err
    assert (
        "b cannot resolve a-ib, the host of rank 0, nor a, nor Slurm's NodeAddr (a.fast)" in message
    )
