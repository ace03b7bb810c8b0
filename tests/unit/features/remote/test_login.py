"""What hpcrun login knows of hosts: whether hpcrun there is this version, and rsync here."""

from __future__ import annotations

from pathlib import Path

import pytest

from hpcrun.errors import PlanError
from hpcrun.features.remote import login
from hpcrun.features.remote.connection import Connection, Remote
from hpcrun.features.remote.login import check_logins, remember
from hpcrun.machine.process import Completed
from hpcrun.version import __version__

PROGRAM = "/home/me/bin/hpcrun"
RSYNC = "rsync  version 3.2.7  protocol version 31\n"


@pytest.fixture(autouse=True)
def _hosts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No host is known, and each connection responds."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setattr(Connection, "is_alive", lambda _: True)
    with_rsync(monkeypatch, RSYNC)


def with_rsync(monkeypatch: pytest.MonkeyPatch, answer: str) -> None:
    """Let rsync of this machine print something."""
    shown = Completed("rsync --version", 0, answer, "")
    monkeypatch.setattr(login, "run_command", lambda *_, **__: shown)


@pytest.mark.parametrize(
    ("program", "version", "level", "finding"),
    [
        (PROGRAM, __version__, "green", f"connected; hpcrun {__version__} there"),
        (PROGRAM, "0.0.1", "yellow", f"connected; hpcrun 0.0.1 there, {__version__} here"),
        ("", "", "yellow", f"connected; no hpcrun there, {__version__} here"),
    ],
    ids=["the same", "older", "none"],
)
def test_the_version_on_a_host_is_compared(
    program: str, version: str, level: str, finding: str
) -> None:
    remember("far", Remote(program, version, "/usr/bin"))
    row = check_logins()[0]
    assert row[1:4] == ("far", level, finding)
    assert row[4] == (None if level == "green" else "hpcrun login far --install")


def test_a_host_without_a_connection_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Connection, "is_alive", lambda _: False)
    remember("far", Remote(PROGRAM, __version__, "/usr/bin"))
    assert check_logins()[0][1:] == ("far", "yellow", "no connection", "hpcrun login far")


@pytest.mark.parametrize(
    ("answer", "level", "seen", "hint"),
    [
        (RSYNC, "green", "rsync  version 3.2.7", None),
        (RSYNC.replace("3.2.7", "2.6.9"), "red", "rsync  version 2.6.9", "install rsync 3"),
        ("openrsync: protocol 29\n", "red", "no rsync of rsync.samba.org", "install rsync 3"),
    ],
    ids=["version 3", "version 2", "another program"],
)
def test_rsync_here_is_checked_where_a_host_is_known(
    monkeypatch: pytest.MonkeyPatch, answer: str, level: str, seen: str, hint: str | None
) -> None:
    with_rsync(monkeypatch, answer)
    remember("far", Remote(PROGRAM, __version__, "/usr/bin"))
    _, name, found, text, what_to_do = check_logins()[1]
    assert name == "rsync"
    assert found == level
    assert what_to_do == hint
    assert text.startswith(seen)


def test_without_a_known_host_nothing_is_checked() -> None:
    assert check_logins() == []


def test_a_machine_without_ssh_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(Connection, "is_alive", lambda _: False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(PlanError, match="this machine has none"):
        login.connect("far")
