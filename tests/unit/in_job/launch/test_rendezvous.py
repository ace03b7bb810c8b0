"""Where the ranks of a job meet."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from hpcrun.in_job.launch import rendezvous
from hpcrun.in_job.launch.rendezvous import FIRST, SPAN, choose, free_port
from tests.unit.in_job.launch.test_head_address import JOB


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in JOB.items():
        monkeypatch.setenv(name, value)


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
