"""The program on the node: a folder that anybody has written replaces none of its modules."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from hpcrun.errors import SchedulerError
from hpcrun.features.dev import PROGRAM, command, hpcrun_dev
from hpcrun.features.dev.ssh_files import Address
from hpcrun.job.plan import job_plan


@pytest.mark.parametrize("search", ["", ":", "."])
def test_nothing_is_imported_from_the_current_folder(tmp_path: Path, search: str) -> None:
    for name in (
        "selectors",
        "secrets",
        "hpcrun_dev",
        "hpcrun_dev_watch",
        "json",
        "runpy",
        "importlib",
    ):
        (tmp_path / f"{name}.py").write_text("open('hacked', 'w')\n")
    path = f"{search}:{Path(hpcrun_dev.__file__).parent}"
    argv = [sys.executable, "-c", job_plan.RUN_MODULE, PROGRAM, "check", str(tmp_path)]
    done = subprocess.run(
        argv, cwd=tmp_path, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True
    )
    assert "the listener does not respond" in done.stderr
    assert PROGRAM in job_plan._NOT_FROM_HERE
    assert not (tmp_path / "hacked").exists()


def left_behind(place: Path, name: str, *more: str, mode: int = 0o700) -> Path:
    """A folder with a socket at which nobody listens."""
    folder = place / name
    folder.mkdir()
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(folder / "socket"))
    for file in ("environment", *more):
        (folder / file).touch()
    folder.chmod(mode)
    return folder


def test_only_what_a_killed_listener_left_is_removed(tmp_path: Path) -> None:
    ours = left_behind(tmp_path, "hpcrun-dev-ab_12xyz")
    others = [
        left_behind(tmp_path, "hpcrun-dev-thesis"),
        left_behind(tmp_path, "hpcrun-dev-ab_12xy0", "thesis.tex"),
        left_behind(tmp_path, "hpcrun-dev-ab_12xy1", mode=0o755),
    ]
    hpcrun_dev._sweep(str(tmp_path))
    assert not ours.exists()
    assert all(folder.exists() for folder in others)


@pytest.mark.parametrize(
    "line",
    [
        b"welcome\n",
        b"[1]\n",
        b"[" * 60_000,
        b"\xff\n",
        b'{"token": "\\u001b[2J"}\n',
        b'{"token": 7}\n',
        b"{}\n",
    ],
)
def test_an_impossible_token_is_refused(line: bytes) -> None:
    assert not command._TOKEN_LINE.fullmatch(line)
    assert command._TOKEN_LINE.fullmatch(b'{"token": "0123456789abcdef"}\n')


def test_a_run_has_its_port_unless_another_program_has_it() -> None:
    port = command._jupyter_port("20261126-120000-dev-ab12")
    assert port == command._jupyter_port("20261126-120000-dev-ab12")
    with socket.create_server(("127.0.0.1", port)):
        assert command._jupyter_port("20261126-120000-dev-ab12") != port


def test_the_listener_survives_a_request(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HPCRUN_ATTEMPT_DIR", str(tmp_path))
    monkeypatch.setattr(hpcrun_dev, "PLACES", ("/tmp",))
    listener = hpcrun_dev.Listener(str(tmp_path))
    monkeypatch.setattr(listener, "_start_jupyter", lambda: 1 / 0)
    try:
        for request, answer in ((b"j", b""), (b"c", b"0")):
            with socket.socket(socket.AF_UNIX) as peer:
                peer.connect(listener._socket.getsockname())
                peer.sendall(request)
                listener._accept()
                assert peer.recv(1) == answer
    finally:
        listener.close()


def test_a_job_that_needs_ssh_ends_at_once_without_sshd(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempt = tmp_path / "attempts/0"
    attempt.mkdir(parents=True)
    monkeypatch.setenv("HPCRUN_ATTEMPT_DIR", str(attempt))
    monkeypatch.setenv("SLURMD_NODENAME", "n1")
    monkeypatch.setattr(hpcrun_dev, "SSHD", ())
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(SystemExit, match="there is no sshd on n1: the job ends"):
        hpcrun_dev.serve(3600, needs_ssh=True)
    signal.signal(signal.SIGTERM, before)
    refused = json.loads((tmp_path / "dev/refused").read_text())
    assert refused == {"attempt": str(attempt), "message": "there is no sshd on n1"}
    assert (attempt / "dev-ended").exists()  # the other nodes end as well


DOOR = Address(
    run="20260102-030405-dev-0a1b",
    job="4711",
    user="me",
    node="n1",
    host_key="",
    folder="/f",
    local="/tmp/x",
    cwd="/w",
    program=("python3", "hpcrun_dev.py"),
    relay=(),
    ends_s=0.0,
    host="",
)


@pytest.mark.parametrize(
    ("ends_in_s", "states", "message"),
    [
        (10, ["COMPLETING", "TIMEOUT"], "job 4711 has reached its time limit"),
        (10, ["CANCELLED"], "the connection to job 4711 has ended"),
        (3600, [], "the connection to job 4711 has ended"),
    ],
    ids=["at its limit", "cancelled near its limit", "long before"],
)
def test_jupyter_says_why_its_connection_has_ended(
    ends_in_s: float,
    states: list[str],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    program = tmp_path / "ssh"
    program.write_text(f"""#!/bin/sh\necho '{{"token": "{"a" * 16}"}}'\nexit 255\n""")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr(time, "sleep", lambda _: None)
    answers = iter(states)
    door = replace(DOOR, ends_s=time.time() + ends_in_s)
    with pytest.raises(SchedulerError, match=message):
        command._forward_jupyter(door, tmp_path / "config", lambda: next(answers))


def test_the_environment_is_in_no_file_and_its_user_gets_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HPCRUN_ATTEMPT_DIR", str(tmp_path))
    monkeypatch.setenv("HF_TOKEN", "correct horse")
    monkeypatch.setattr(hpcrun_dev, "PLACES", (str(tmp_path),))
    listener = hpcrun_dev.Listener(str(tmp_path))
    try:
        files = [path for path in tmp_path.rglob("*") if path.is_file()]
        assert [path for path in files if b"correct horse" in path.read_bytes()] == []
        with socket.socket(socket.AF_UNIX) as peer:
            peer.connect(listener._socket.getsockname())
            peer.sendall(b"e")
            listener._accept()
            with peer.makefile("rb") as answer:
                assert json.load(answer)["HF_TOKEN"] == "correct horse"
    finally:
        listener.close()
