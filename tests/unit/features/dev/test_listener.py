"""The listener on the node: what it tells, the sshd that it starts, and what it leaves behind."""

from __future__ import annotations

import json
import os
import socket
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from hpcrun.features.dev import hpcrun_dev
from hpcrun.features.dev.hpcrun_dev import Listener


class Node:
    """A node whose disk and run folder are below one folder."""

    def __init__(self, folder: Path) -> None:
        self.run = folder / "dev"
        self.attempt = folder / "attempts/0"
        self.disk = folder / "disk"
        for path in (self.run, self.attempt, self.disk):
            path.mkdir(parents=True)

    @property
    def door(self) -> dict[str, str]:
        """What the commands on the login node are told."""
        return dict(json.loads((self.run / "door").read_text()))


@pytest.fixture(autouse=True)
def _own_umask() -> Iterator[None]:
    """The program on the node changes the umask of its process."""
    before = os.umask(0o022)
    yield
    os.umask(before)


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Node:
    found = Node(tmp_path)
    monkeypatch.setenv("HPCRUN_ATTEMPT_DIR", str(found.attempt))
    monkeypatch.setenv("SLURMD_NODENAME", "n7")
    monkeypatch.setattr(hpcrun_dev, "PLACES", (str(found.disk),))
    monkeypatch.setattr(hpcrun_dev, "SSHD", ("/bin/true",))
    monkeypatch.setattr(hpcrun_dev, "SFTP", ("/nowhere/sftp", "/bin/false"))
    monkeypatch.setattr(hpcrun_dev, "can_have_terminals", lambda: True)
    monkeypatch.chdir(tmp_path)
    return found


@pytest.fixture
def listener(node: Node) -> Iterator[Listener]:
    """A listener that has begun."""
    begun = Listener(str(node.run))
    yield begun
    if node.disk.exists() and any(node.disk.iterdir()):
        begun.close()


def settings(listener: Listener) -> list[str]:
    """The lines of the configuration of sshd."""
    return Path(listener._local, "sshd_config").read_text().splitlines()


def test_a_listener_says_where_it_is(
    node: Node, listener: Listener, capsys: pytest.CaptureFixture[str]
) -> None:
    listener.announce()
    assert node.door == {
        "node": "n7",
        "local": listener._local,
        "python": sys.executable,
        "sshd": "/bin/true",
        "attempt": str(node.attempt),
        "cwd": str(node.run.parent),
    }
    printed = capsys.readouterr()
    assert (printed.out + printed.err).rstrip().endswith("ready on n7")


def test_a_node_without_sshd_has_a_shell(
    node: Node, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(hpcrun_dev, "SSHD", ("/nowhere/sshd",))
    listener = Listener(str(node.run))
    listener.announce()
    listener.close()
    printed = capsys.readouterr()
    assert "ready on n7: a shell, but no ssh" in printed.out + printed.err


def test_only_a_key_of_this_run_opens_sshd(node: Node, listener: Listener) -> None:
    lines = settings(listener)
    assert f'HostKey "{node.run}/host_key"' in lines
    assert f'AuthorizedKeysFile "{node.run}/authorized_keys"' in lines
    assert "AuthenticationMethods publickey" in lines
    for name in ("PasswordAuthentication", "KbdInteractiveAuthentication", "UsePAM"):
        assert f"{name} no" in lines
    (forced,) = [line for line in lines if line.startswith("ForceCommand ")]
    assert forced.endswith(f"hpcrun_dev.py session {node.run}")
    assert "Subsystem sftp /bin/false" in lines


def test_a_node_that_cannot_have_terminals_permits_none(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hpcrun_dev, "can_have_terminals", lambda: False)
    monkeypatch.setattr(hpcrun_dev, "SFTP", ())
    listener = Listener(str(node.run))
    lines = settings(listener)
    listener.close()
    assert lines[-1] == "PermitTTY no"
    assert not any(line.startswith("Subsystem") for line in lines)


def test_the_variables_of_the_job_come_after_those_of_bashrc(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", "/my code")
    monkeypatch.delenv("CONDA_PREFIX", raising=False)
    listener = Listener(str(node.run))
    lines = Path(listener._local, "rc").read_text().splitlines()
    listener.close()
    assert lines[0] == "[ ! -r ~/.bashrc ] || . ~/.bashrc"
    assert "export PYTHONPATH='/my code'" in lines
    assert not any("CONDA_PREFIX" in line for line in lines)


def test_only_its_user_can_enter_the_folder_of_a_listener(node: Node, listener: Listener) -> None:
    (folder,) = node.disk.iterdir()
    assert str(folder) == listener._local
    assert folder.stat().st_mode & 0o777 == 0o700
    assert folder.name.startswith("hpcrun-dev-")


def test_a_listener_that_ends_leaves_nothing_but_its_end(node: Node, listener: Listener) -> None:
    listener.announce()
    listener.close()
    assert list(node.disk.iterdir()) == []
    assert list(node.run.iterdir()) == []
    assert (node.attempt / "dev-ended").exists()


def test_the_door_of_a_later_listener_stays(node: Node, listener: Listener) -> None:
    listener.announce()
    (node.run / "door").write_text(json.dumps({"local": "/tmp/other"}))
    listener.close()
    assert node.door == {"local": "/tmp/other"}


def test_a_node_without_room_for_sockets_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hpcrun_dev, "_sweep", lambda _: None)
    monkeypatch.setattr(hpcrun_dev, "PLACES", (str(tmp_path / "gone"),))
    with pytest.raises(SystemExit, match="has no room for sockets in "):
        hpcrun_dev.local_folder()


def accepting(listener: Listener) -> threading.Thread:
    """A thread that answers one request."""
    thread = threading.Thread(target=listener._accept)
    thread.start()
    return thread


def test_a_listener_responds_to_its_user(node: Node, listener: Listener) -> None:
    listener.announce()
    thread = accepting(listener)
    assert hpcrun_dev.main("check", str(node.run)) == 0
    thread.join()


def test_ssh_is_given_the_streams_of_its_relay(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    """The program in place of sshd writes its arguments to its stdout: the stream of the relay."""
    sshd = node.disk.parent / "sshd"
    sshd.write_text('#!/bin/sh\necho "$@"\n')
    sshd.chmod(0o755)
    monkeypatch.setattr(hpcrun_dev, "SSHD", (str(sshd),))
    listener = Listener(str(node.run))
    source, sink = os.pipe()
    with socket.socket(socket.AF_UNIX) as peer:
        peer.connect(listener._socket.getsockname())
        socket.send_fds(peer, [b"s"], [source, sink])
        listener._accept()
        ((child, _),) = listener._children
        assert child.wait(10) == 0
        listener._reap()
        assert listener._children == []
        assert peer.recv(1) == b""
    local = listener._local
    assert os.read(source, 1000).decode() == f"-i -f {local}/sshd_config -E {local}/sshd.log\n"
    listener.close()
    os.close(source)
    os.close(sink)


def test_jupyter_that_is_not_installed_is_not_started(
    listener: Listener, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hpcrun_dev, "JUPYTER", ("no_such_jupyter",))
    with socket.socket(socket.AF_UNIX) as peer:
        peer.connect(listener._socket.getsockname())
        peer.sendall(b"j")
        listener._accept()
        assert peer.recv(10) == b"0"
    assert not Path(listener._local, "jupyter").exists()


def test_a_node_without_sshd_gives_ssh_nothing(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hpcrun_dev, "SSHD", ())
    monkeypatch.setattr(hpcrun_dev, "JUPYTER", ("json",))  # a module that every Python has
    listener = Listener(str(node.run))
    with socket.socket(socket.AF_UNIX) as peer:
        peer.connect(listener._socket.getsockname())
        socket.send_fds(peer, [b"s"], [0, 1])
        listener._accept()
        assert peer.recv(10) == b"0"
    assert listener._children == []
    assert not Path(listener._local, "jupyter").exists()
    listener.close()


def test_a_folder_of_a_modules_name_is_no_module(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "no_such_jupyter").mkdir()
    monkeypatch.syspath_prepend(str(tmp_path))
    assert not hpcrun_dev.is_installed("no_such_jupyter")
    assert not hpcrun_dev.is_installed("no_such_module")
    assert hpcrun_dev.is_installed("json")


def test_the_other_nodes_wait_for_the_end_of_the_first(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NODE_RANK", "1")
    (node.attempt / "dev-ended").write_text("0")
    assert hpcrun_dev.main("serve", "3600") == 0
    assert list(node.disk.iterdir()) == []
