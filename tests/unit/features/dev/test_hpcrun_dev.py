"""The program on the node: a folder that anybody has written replaces none of its modules."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from hpcrun.features.dev import PROGRAM, command, hpcrun_dev
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
