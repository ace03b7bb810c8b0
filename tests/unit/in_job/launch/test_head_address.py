"""What a node gives torchrun, and what of it an option or a variable takes the place of; and the
addresses by which it reaches the head node.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from hpcrun.in_job.launch import head_address
from hpcrun.in_job.launch.head_address import find_head, options_of_torchrun
from hpcrun.in_job.launch.rank_environment import FOR_TORCHRUN

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
    monkeypatch.setattr(head_address, "_resolves", lambda name: name in known)
    assert find_head()
    assert os.environ["HPCRUN_HEAD_ADDR"] == address


def test_this_node_has_an_address_that_resolves(
    slurm_address: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(head_address, "_resolves", lambda name: name in ("a", "b.fast"))
    assert find_head()
    assert os.environ["HPCRUN_NODE_ADDR"] == "b.fast"


def test_what_was_tried_is_said(
    slurm_address: None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HPCRUN_HEAD_ADDR", "a-ib")
    monkeypatch.setattr(head_address, "_resolves", lambda name: False)
    assert not find_head()
    message = capsys.readouterr().err
    assert (
        "b cannot resolve a-ib, the host of rank 0, nor a, nor Slurm's NodeAddr (a.fast)" in message
    )


@pytest.mark.parametrize("name", ["no such host", "x" * 70 + ".invalid", "", "nöwhere.invalid"])
def test_what_is_no_name_of_a_host_does_not_resolve(name: str) -> None:
    assert not head_address.first_resolved(name, name).address


def test_a_node_and_a_rank_import_nothing_that_takes_long() -> None:
    program = "import sys; sys.path.append(sys.argv[1]); import launch.rank, launch.start_ranks; "
    program += "print(*sys.modules)"
    folder = str(Path(head_address.__file__).parents[1])
    done = subprocess.run(
        [sys.executable, "-ISBc", program, folder], capture_output=True, text=True, check=True
    )
    slow = {"re", "socket", "subprocess", "dataclasses", "typing", "functools"}
    assert not slow & {*done.stdout.split()}
