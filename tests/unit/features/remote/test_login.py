"""What hpcrun login knows of hosts: whether hpcrun there is this version, and rsync here."""

from __future__ import annotations

from base64 import b64encode
from pathlib import Path

import pytest

from hpcrun.errors import HpcrunError, PlanError, SchedulerError
from hpcrun.features.remote import login
from hpcrun.features.remote.connection import Connection, Remote, known, own_control, record_path
from hpcrun.features.remote.login import _fields_of, check_logins, find_hpcrun, remember
from hpcrun.machine.process import Completed
from hpcrun.version import __version__
from tests.unit.features.remote.hosts import program

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


def said(name: str, value: str | bytes) -> str:
    """A line of a host's answer."""
    data = value if isinstance(value, bytes) else value.encode()
    return f"{name} {b64encode(data).decode()}\n"


def test_the_fields_of_an_answer_are_those_that_are_known() -> None:
    text = said("path", "/bin:/usr/bin") + said("host", "far") + said("version", "hpcrun 0.2")
    assert _fields_of(text) == {"path": "/bin:/usr/bin", "version": "hpcrun 0.2"}


@pytest.mark.parametrize(
    "line",
    [
        "path",
        "path not-base64!\n",
        said("path", b"\xff"),
        said("path", "/a\x1b[2J"),
        said("path", "x" * 20_000),
    ],
    ids=["empty", "no base64", "no UTF-8", "a control character", "too long"],
)
def test_a_field_that_no_login_shell_has_is_left_out(line: str) -> None:
    assert not _fields_of(line).get("path")


@pytest.fixture
def host(here: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A host on this machine, without hpcrun; returns its folder of programs."""
    folder = here / "there"
    folder.mkdir()
    monkeypatch.setenv("HOME", str(here))
    monkeypatch.setenv("SHELL", "/bin/sh")
    monkeypatch.setenv("SLURM_CONF", "/etc/slurm.conf")
    monkeypatch.setenv("PATH", f"{folder}:{here}:/usr/bin:/bin")
    (here / ".profile").write_text(f"PATH={folder}:/usr/bin:/bin\necho welcome\n")
    return folder


def test_a_login_shell_tells_what_commands_there_need(host: Path) -> None:
    remote, warning = find_hpcrun(Connection("far", own_control("far")))
    assert remote == Remote("", "", f"{host}:/usr/bin:/bin", "/etc/slurm.conf")
    assert warning is None
    assert known("far") == remote


@pytest.mark.parametrize(
    ("printed", "version"),
    [("hpcrun 0.0.1", "0.0.1"), ("hpcrun 1.0.dev1+x", "1.0.dev1+x"), ("other 1", ""), ("", "")],
)
def test_a_program_there_is_hpcrun_if_it_says_its_version(
    host: Path, printed: str, version: str
) -> None:
    there = program(host / "hpcrun", f"echo '{printed}'")
    remote, warning = find_hpcrun(Connection("far", own_control("far")))
    assert remote.version == version
    assert remote.hpcrun == (str(there) if version else "")
    if version:
        assert warning == (
            f"hpcrun {version} is installed there, and {__version__} here; the same on both: "
            "hpcrun login far --install"
        )


def test_the_version_that_login_installed_comes_first(host: Path) -> None:
    program(host / "hpcrun", "echo hpcrun 0.0.1")
    folder = host.parent / f".local/share/hpcrun/remote/{__version__}/bin"
    folder.mkdir(parents=True)
    own = program(folder / "hpcrun", f"echo hpcrun {__version__}")
    remote, warning = find_hpcrun(Connection("far", own_control("far")))
    assert remote.hpcrun == str(own)
    assert warning is None


def test_a_connection_of_the_users_own_ssh_is_remembered(host: Path) -> None:
    remote, _ = find_hpcrun(Connection("far", "/run/own"))
    assert remote.control == "/run/own"


def test_a_host_that_answers_something_else_is_refused(host: Path) -> None:
    program(host.parent / "ssh", "echo This account is not available")
    with pytest.raises(SchedulerError, match="the login shell of far did not answer") as caught:
        find_hpcrun(Connection("far", own_control("far")))
    assert caught.value.hint == "see what it prints: ssh far true"
    assert known("far") is None


def test_a_host_that_cannot_be_remembered_is_one_message() -> None:
    own_control("far", make=True)
    Path(record_path("far")).mkdir()
    with pytest.raises(HpcrunError, match=r"\.far\.json cannot be written: "):
        remember("far", Remote(PROGRAM, __version__, "/usr/bin"))


@pytest.mark.parametrize(
    ("printed", "control"),
    [
        ("hostname far.org\ncontrolpath /run/own\n", "/run/own"),
        ("controlpath none\n", None),
        ("controlpath relative\n", None),
        ("hostname far.org\n", None),
        ("", None),
    ],
)
def test_a_connection_is_shared_where_the_users_ssh_says_so(
    here: Path, printed: str, control: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(login, "run_command", lambda *_, **__: Completed("ssh -G", 0, printed, ""))
    found = login._shared_by_user("far")
    assert found == (None if control is None else Connection("far", control))


def told(host: str, *, close: bool = False) -> tuple[tuple[str, ...], dict[str, object]]:
    """What hpcrun login prints for a person, and as a document."""
    *_, outcome = login.login(host, install=False, close=close, _json=False)
    assert outcome.text
    assert outcome.document
    (part,) = outcome.text()
    return part.lines, outcome.document()


def test_login_says_what_to_type_next(host: Path) -> None:
    there = program(host / "hpcrun", f"echo hpcrun {__version__}")
    lines, document = told("far")
    assert lines == (
        "connected  far",
        f"there      hpcrun {__version__}: {there}",
        "next       hpcrun --on far status",
    )
    assert document["hpcrun"] == str(there)
    assert (document["version"], document["warning"]) == (__version__, None)


def test_a_host_without_hpcrun_is_told_how_to_get_it(host: Path) -> None:
    lines, document = told("far")
    assert lines[1:] == ("there      no hpcrun there", "next       hpcrun login far --install")
    assert (document["connected"], document["hpcrun"]) == (True, None)


def test_a_connection_is_closed(here: Path) -> None:
    assert told("far", close=True) == (
        ("closed the connection to far",),
        {"kind": "login", "host": "far", "connected": False},
    )
    assert told("gone", close=True)[0] == ("there was no connection to gone",)


def test_a_connection_that_the_user_shares_is_left_open(here: Path) -> None:
    remember("far", Remote(PROGRAM, __version__, "/usr/bin", control="/run/own"))
    (line,), document = told("far", close=True)
    assert line.startswith("left open: your own ssh configuration shares this connection")
    assert line.endswith("ssh -O exit far closes it")
    assert document["connected"] is True


def test_an_ssh_that_cannot_log_in_is_tried_alone(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Connection, "is_alive", lambda _: False)
    with pytest.raises(SchedulerError, match="ssh could not log in to gone") as caught:
        login.connect("gone")
    assert caught.value.hint == "try it alone: ssh gone"
