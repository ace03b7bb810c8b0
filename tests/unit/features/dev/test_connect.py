"""What hpcrun dev does on the machine of the person, with a program in place of ssh."""

from __future__ import annotations

import os
import secrets
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from hpcrun.actions.hooks import Elsewhere
from hpcrun.errors import HpcrunError, SchedulerError
from hpcrun.features.dev import command
from hpcrun.features.dev.command import (
    DevHooks,
    _connect,
    _forward_jupyter,
    _has_timed_out,
    _idle_seconds,
    _jupyter_port,
    _way,
)
from hpcrun.features.dev.ssh_files import Address
from tests.unit.builders import write

CONFIG = Path("/home/me/.ssh/hpcrun.config")
# of chance: its port is that of no other session of tests
RUN_ID = f"20260102-030405-dev-{secrets.token_hex(2)}"
TOKEN = "0123456789abcdef"
END_S = 1_800_000_000.0
DOOR = Address(
    run=RUN_ID,
    job="4711",
    user="me",
    node="n7",
    host_key="ssh-ed25519 AAAA",
    folder=f"/runs/{RUN_ID}/dev",
    local="/tmp/hpcrun-dev-x",
    cwd="/home/me/work",
    program=("/opt/python", "dev.py"),
    relay=("/opt/python", "relay.py"),
    ends_s=END_S,
    host="",
)


@pytest.mark.parametrize(
    ("asked", "way"),
    [
        ({}, "shell"),
        ({"ssh": True}, "ssh"),
        ({"code": True}, "code"),
        ({"jupyter": True}, "jupyter"),
    ],
)
def test_without_a_way_it_is_a_shell(asked: dict[str, bool], way: str) -> None:
    assert _way(**{"jupyter": False, "code": False, "ssh": False, **asked}) == way


@pytest.mark.parametrize(
    ("typed", "seconds"), [(None, None), ("0", 0), ("30m", 1800), ("3h", 10800)]
)
def test_a_limit_of_idleness_may_be_none(typed: str | None, seconds: int | None) -> None:
    assert _idle_seconds(typed) == seconds


def test_the_port_of_a_run_is_below_those_of_connections() -> None:
    port = _jupyter_port(RUN_ID)
    assert port != _jupyter_port(f"{RUN_ID}-other")
    assert 20_000 <= port < 30_000


def test_a_port_that_another_program_has_is_not_taken(capsys: pytest.CaptureFixture[str]) -> None:
    usual = _jupyter_port(RUN_ID)
    with socket.create_server(("127.0.0.1", usual)):
        other = _jupyter_port(RUN_ID)
    assert other != usual
    assert other >= 1024
    assert f"another program has port {usual}" in capsys.readouterr().err


class Clock:
    """The time of this machine, which only pauses move on."""

    def __init__(self, now_s: float) -> None:
        self.now_s = now_s

    def time(self) -> float:
        return self.now_s

    def sleep(self, pause_s: float) -> None:
        self.now_s += pause_s


@pytest.mark.parametrize(
    ("before_end_s", "states", "has_timed_out"),
    [
        (91.0, ["TIMEOUT"], False),
        (90.0, ["TIMEOUT"], True),
        (0.0, ["RUNNING", "COMPLETING", "TIMEOUT"], True),
        (-60.0, ["CANCELLED"], False),
        (0.0, ["RUNNING"] * 15, False),
        (0.0, ["RUNNING"] * 14 + ["TIMEOUT"], True),
        (0.0, ["away"], False),
    ],
)
def test_a_connection_may_end_with_the_time_limit(
    monkeypatch: pytest.MonkeyPatch, before_end_s: float, states: list[str], has_timed_out: bool
) -> None:
    monkeypatch.setattr(command, "time", Clock(END_S - before_end_s))
    left = iter(states)

    def state() -> str:
        now = next(left)
        if now == "away":
            raise HpcrunError("Slurm does not respond")
        return now

    assert _has_timed_out(DOOR, state) == has_timed_out


@pytest.fixture
def ssh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file of the program that stands for ssh."""
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    path = write(tmp_path / "ssh", "")
    path.chmod(0o755)
    return path


def forward(ssh: Path, lines: str) -> int:
    """The exit status with a program of these lines in place of ssh."""
    ssh.write_text(f"#!/bin/sh\n{lines}\n")
    return _forward_jupyter(DOOR, CONFIG, lambda: "RUNNING")


def test_jupyter_is_at_a_port_here_with_its_token(
    ssh: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "time", Clock(0.0))
    lines = f"""printf '%s\\n' "$@" >{ssh}.args; echo '{{"token": "{TOKEN}"}}'"""
    with pytest.raises(SchedulerError, match="the connection to job 4711 has ended") as caught:
        forward(ssh, lines)
    assert caught.value.hint
    assert caught.value.hint.startswith("hpcrun dev 4711 --jupyter connects again")
    port = _jupyter_port(RUN_ID)
    printed = capsys.readouterr()
    assert printed.out == f"jupyter    http://127.0.0.1:{port}/?token={TOKEN}\n"
    assert printed.err.startswith("On n7, job 4711. ")
    assert Path(f"{ssh}.args").read_text().splitlines() == [
        "-F",
        str(CONFIG),
        "-T",
        "-o",
        "ExitOnForwardFailure=yes",
        "-L",
        f"127.0.0.1:{port}:/tmp/hpcrun-dev-x/jupyter/socket",
        "hpcrun-4711",
        f"/opt/python dev.py jupyter {DOOR.folder}",
    ]


@pytest.mark.parametrize(("ends", "status"), [(0, 1), (1, 1), (255, 255)])
def test_a_jupyter_that_does_not_start_is_a_failure(
    ssh: Path, capsys: pytest.CaptureFixture[str], ends: int, status: int
) -> None:
    assert forward(ssh, f"exit {ends}") == status
    assert capsys.readouterr().err.startswith("hint: hpcrun dev 4711 --jupyter connects again")


def test_an_ssh_that_is_killed_was_not_interrupted(
    ssh: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert forward(ssh, "kill -9 $$") != 0
    assert "connects again" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("included", "line"),
    [(True, "ssh hpcrun-4711"), (False, f"ssh -F {CONFIG} hpcrun-4711")],
    ids=["included", "not included"],
)
def test_ssh_needs_no_file_where_it_is_included(
    monkeypatch: pytest.MonkeyPatch, included: bool, line: str
) -> None:
    monkeypatch.setattr(command, "is_included", lambda *_, **__: included)
    outcome = _connect(DOOR, CONFIG, "ssh", {"run": RUN_ID}, lambda: "RUNNING", yes=False)
    assert outcome.text
    (part,) = outcome.text()
    assert part.lines == ("node       n7, job 4711", f"ssh        {line}")
    assert outcome.document
    assert outcome.document() == {"run": RUN_ID, "name": "hpcrun-4711", "ssh": line.split()}


def test_an_editor_opens_the_folder_of_the_job(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "is_included", lambda *_, **__: False)
    outcome = _connect(DOOR, CONFIG, "code", {}, lambda: "RUNNING", yes=False)
    assert outcome.text
    (part,) = outcome.text()
    assert part.lines[2] == ("editor     code --remote ssh-remote+hpcrun-4711 /home/me/work")
    assert [line.split()[0] for line in part.lines[3:]] == ["setting", "setting"]


HOST_KEY = f"ssh-ed25519 {'A' * 44}"
DOCUMENT = {
    **{name: getattr(DOOR, name) for name in ("run", "job", "user", "node", "local", "cwd")},
    "folder": DOOR.folder,
    "host_key": HOST_KEY,
    "program": list(DOOR.program),
    "relay": list(DOOR.relay),
    "ends_s": END_S,
}


class Host:
    """Another machine on which a job of hpcrun dev runs."""

    def __init__(self) -> None:
        self.lines: list[list[str]] = []

    def document(self, line: Sequence[str]) -> dict[str, Any]:
        self.lines.append(list(line))
        return dict(DOCUMENT)

    def partly_here(self, line: str) -> int | None:
        """The exit status of a command line."""
        there = Elsewhere("far", self.document, lambda argv: ["ssh", "far", *argv])
        return DevHooks().run_partly_here(line.split(), there)


@pytest.mark.needs("ssh-keygen")
def test_a_run_there_is_reached_with_a_new_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    host = Host()
    assert host.partly_here("dev 4711 --ssh --yes") == 0
    (line,) = host.lines
    assert line[:5] == ["dev", "4711", "--ssh", "--json", "--key"]
    assert line[5].startswith("ssh-ed25519 ")
    config = (tmp_path / ".ssh/hpcrun.d/hpcrun-far-4711.conf").read_text()
    assert f"Host hpcrun-far-4711 hpcrun-far-{RUN_ID}\n" in config
    assert "ssh far /opt/python relay.py 2>/dev/null" in config
    assert "hpcrun --on far status 4711" in config
    assert (tmp_path / ".ssh/hpcrun.d/hpcrun-far-4711.known").read_text() == (
        f"hpcrun-far-{RUN_ID} {HOST_KEY}\n"
    )
    assert capsys.readouterr().out.splitlines() == [
        "node       n7, job 4711",
        "ssh        ssh hpcrun-far-4711",
    ]
    assert not list((tmp_path / ".ssh/hpcrun.d").glob(".new-*"))
