"""What becomes of a command line that may be for another machine."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from hpcrun.errors import UsageError
from hpcrun.features.remote import ATTACHED, WRITTEN_TO, TypedHost
from hpcrun.features.remote.connection import NotConnectedError
from hpcrun.features.remote.front import RemoteHooks, _is_configured, _verb, split_hosts
from tests.unit.builders import write

HOOKS = RemoteHooks()


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A person without a configuration, who types on this machine; returns the current folder."""
    folder = tmp_path / "home/work/sub"
    folder.mkdir(parents=True)
    monkeypatch.chdir(folder)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.delenv(ATTACHED, raising=False)
    monkeypatch.delenv(WRITTEN_TO, raising=False)
    monkeypatch.setattr(TypedHost, "name", "")
    monkeypatch.setattr(TypedHost, "source", "")
    monkeypatch.setattr(sys, "argv", ["hpcrun", "as", "typed"])
    return folder


@pytest.mark.parametrize(
    ("line", "hosts", "rest"),
    [
        ("status", [], "status"),
        ("--on far status -v", ["far"], "status -v"),
        ("--on=far status", ["far"], "status"),
        ("status --on far 4711", ["far"], "status 4711"),
        ("-v --on a --on=b status", ["a", "b"], "-v status"),
        ("status 4711 --on far", [], "status 4711 --on far"),
        ("submit -G 2 --on far", [], "submit -G 2 --on far"),
        ("--on= status", [""], "status"),
        ("-v", [], "-v"),
    ],
)
def test_hosts_stand_before_a_command_or_right_behind_it(
    line: str, hosts: list[str], rest: str
) -> None:
    assert split_hosts(line.split()) == (hosts, rest.split())


@pytest.mark.parametrize("line", ["--on", "status --on", "--on a --on"])
def test_a_host_that_is_missing_is_said(line: str) -> None:
    with pytest.raises(UsageError, match="--on needs a host and a command") as caught:
        split_hosts(line.split())
    assert caught.value.hint == "hpcrun --on HOST status"


def test_the_command_is_the_first_word_that_is_no_option() -> None:
    assert _verb(["-v", "status", "x"]) == "status"
    assert _verb(["--version"]) == ""


def test_a_line_without_a_host_runs_here() -> None:
    assert HOOKS.run_elsewhere(["status"]) is None
    assert sys.argv == ["hpcrun", "as", "typed"]


def test_a_line_for_this_machine_runs_here_without_its_option() -> None:
    assert HOOKS.run_elsewhere(["--on", "local", "status", "-v"]) is None
    assert sys.argv == ["hpcrun", "status", "-v"]
    assert TypedHost.name == "local"


def test_this_machine_cannot_stand_beside_a_host() -> None:
    with pytest.raises(UsageError, match="--on local is for this machine alone"):
        HOOKS.run_elsewhere(["--on", "far", "--on", "local", "status"])


def test_fetch_runs_here_and_copies_from_the_host() -> None:
    assert HOOKS.run_elsewhere(["--on", "far", "--on", "far", "fetch", "4711"]) is None
    assert TypedHost.source == "far"
    assert sys.argv[1:] == ["fetch", "4711"]


def test_a_command_for_a_host_needs_a_connection(tmp_path: Path, here: Path) -> None:
    with pytest.raises(NotConnectedError, match="gone"):
        HOOKS.run_elsewhere(["--on", "gone", "status"])
    assert TypedHost.name == "gone"


def test_fetch_of_two_hosts_is_refused(here: Path) -> None:
    with pytest.raises(UsageError, match="fetch takes one --on HOST"):
        HOOKS.run_elsewhere(["--on", "a", "--on", "b", "fetch", "4711"])
    assert TypedHost.name == ""


@pytest.mark.parametrize("place", ["../.hpcrun/config.yaml", ".hpcrun/config.yaml", "user"])
def test_a_person_or_a_project_may_configure_a_host(home: Path, here: Path, place: str) -> None:
    assert not _is_configured()
    path = here / "config/hpcrun/config.yaml" if place == "user" else home / place
    write(path, "keep: 3\non: gone\n")
    assert _is_configured()


@pytest.mark.parametrize("text", ["", "keep: 3\n", "# on: far\n", "notify_on: far\n"])
def test_a_configuration_without_a_host_is_not_read(home: Path, text: str) -> None:
    write(home / ".hpcrun/config.yaml", text)
    assert not _is_configured()


def test_a_configuration_may_be_no_file(home: Path) -> None:
    (home / ".hpcrun").mkdir()
    os.mkfifo(home / ".hpcrun/config.yaml")
    write(home.parent / ".hpcrun/config.yaml", "on: far\n")
    assert _is_configured()


def test_a_configured_host_is_not_for_commands_that_run_here(home: Path, here: Path) -> None:
    write(here / "config/hpcrun/config.yaml", "on: gone\n")
    assert HOOKS.run_elsewhere(["login", "far"]) is None
    assert HOOKS.run_elsewhere(["--version"]) is None
    with pytest.raises(NotConnectedError, match="gone"):
        HOOKS.run_elsewhere(["status"])


def test_a_file_is_named_by_its_path_here(monkeypatch: pytest.MonkeyPatch, home: Path) -> None:
    assert HOOKS.file_place("loss.png") == "loss.png"
    monkeypatch.setenv(ATTACHED, "far")
    assert HOOKS.file_place("loss.png") == f"{os.uname().nodename}:{home}/loss.png"
    monkeypatch.setattr(TypedHost, "name", "far")
    assert HOOKS.file_place("loss.png") == f"far:{home}/loss.png"
    monkeypatch.setenv(WRITTEN_TO, "/my/files")
    assert HOOKS.file_place("some/loss.png") == "/my/files/loss.png"


def test_a_command_that_a_host_started_knows_its_name(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(ATTACHED, "far")
    with open(os.devnull, "wb") as nowhere:
        stdout = os.dup(1)
        os.dup2(nowhere.fileno(), 1)
        try:
            assert HOOKS.run_elsewhere(["--on", "x", "status"]) is None
        finally:
            os.dup2(stdout, 1)
            os.close(stdout)
    assert TypedHost.name == "far"
    assert HOOKS.as_typed("hpcrun status") == "hpcrun --on far status"
