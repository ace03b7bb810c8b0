"""A command line on one host: the script that runs it there, and what its answer means."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from hpcrun.errors import HpcrunError, InterruptedByUser, SchedulerError
from hpcrun.features.remote import TypedHost
from hpcrun.features.remote.connection import Connection, NotConnectedError, Remote
from hpcrun.features.remote.login import remember
from hpcrun.features.remote.run_on_host import (
    _asks_for_help,
    _checked,
    _verb_of,
    _writes_files,
    document_of,
    error_in,
    opened,
    parse_document,
    run_on_one,
    script_of,
)
from tests.unit.features.remote.hosts import host_that_prints, program

REMOTE = Remote("/opt/my hpcrun", "0.1.0", "/usr/bin")
FAR = Connection("far", "/run/far")
GONE = Connection("gone", "/run/gone")


@pytest.fixture(autouse=True)
def _nothing_set(monkeypatch: pytest.MonkeyPatch) -> None:
    """No coding agent types, and the host was typed."""
    for name in ("HPCRUN_AGENT", "AI_AGENT", "AGENT", "CLAUDECODE", "CODEX_THREAD_ID"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(TypedHost, "name", "far")


def test_a_line_runs_in_the_home_as_it_was_typed() -> None:
    lines = script_of(REMOTE, ["logs", "a b", "$x"]).splitlines()
    assert lines[:3] == ["PATH=/usr/bin", "export PATH", "cd"]
    assert lines[3].startswith("HPCRUN_ATTACHED=far")
    assert lines[3].endswith(" exec '/opt/my hpcrun' logs 'a b' '$x'")


def test_git_looks_for_no_repository_above_copied_code() -> None:
    lines = script_of(REMOTE, ["submit"], "/home/me/hpcrun-code/x-1/sub dir").splitlines()
    assert lines[2:4] == [
        "cd -- '/home/me/hpcrun-code/x-1/sub dir' || exit 97",
        "export GIT_CEILING_DIRECTORIES=/home/me/hpcrun-code",
    ]


def test_a_line_that_writes_files_knows_where_they_will_lie() -> None:
    assert " HPCRUN_WRITTEN_TO='/my files' " in script_of(REMOTE, ["share"], "/x", "/my files")
    assert "HPCRUN_WRITTEN_TO" not in script_of(REMOTE, ["share"], "/x")


def test_a_host_knows_the_coding_agent_that_types(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CLAUDECODE", "1")
    assert " HPCRUN_AGENT=claude-code " in script_of(REMOTE, ["submit"])


def test_a_known_host_with_a_similar_name_is_proposed(here: Path) -> None:
    remember("gone1", REMOTE)
    with pytest.raises(NotConnectedError, match="no connection to gone2") as caught:
        opened("gone2")
    assert caught.value.hint == "did you mean 'gone1'?"
    with pytest.raises(NotConnectedError) as caught:
        opened("gone1")
    assert caught.value.hint == "hpcrun login gone1"


def test_a_host_without_hpcrun_is_to_get_it(here: Path) -> None:
    remember("far", Remote("", "", "/usr/bin"))
    with pytest.raises(SchedulerError, match="far has no hpcrun") as caught:
        opened("far")
    assert caught.value.hint == "hpcrun login far --install"
    with pytest.raises(SchedulerError, match="near has no hpcrun"):
        opened("near")


def test_a_document_is_read_behind_what_start_up_files_print() -> None:
    assert parse_document("far", 'welcome\n{"runs": []}\n') == {"runs": []}


@pytest.mark.parametrize(
    ("stdout", "stderr", "text"),
    [
        ("", "", "far: hpcrun printed no JSON document$"),
        ("", "no such\n", "far: hpcrun printed no JSON document: no such$"),
        ("oops", "", "far: hpcrun printed no JSON document: oops$"),
        ("{oops", "", "document: {oops$"),
        ("[" * 9, "x" * 300, f"document: {'x' * 200}$"),
    ],
    ids=["nothing", "stderr", "stdout", "half", "long"],
)
def test_an_answer_without_a_document_is_shown(stdout: str, stderr: str, text: str) -> None:
    with pytest.raises(SchedulerError, match=text):
        parse_document("far", stdout, stderr)


def test_an_error_there_names_the_host_and_its_commands_there() -> None:
    error = {"message": "no run 'x'", "hint": "hpcrun status lists them", "exit_code": 6}
    found = error_in("far", {"error": error})
    assert found
    assert found.message == "far: no run 'x'"
    assert found.hint == "hpcrun --on far status lists them"
    assert found.exit_code == 6


@pytest.mark.parametrize(
    ("code", "status"), [(1, 1), (255, 255), (0, 1), (256, 1), (-1, 1), ("6", 1), (None, 1)]
)
def test_an_impossible_exit_code_there_counts_as_1(code: object, status: int) -> None:
    found = error_in("far", {"error": {"message": "x", "exit_code": code}})
    assert found
    assert found.exit_code == status
    assert found.hint is None


@pytest.mark.parametrize("document", [{}, {"error": None}, {"error": "text"}])
def test_a_document_without_an_error_has_none(document: dict[str, object]) -> None:
    assert error_in("far", document) is None


def test_a_document_with_an_error_is_that_error() -> None:
    with pytest.raises(HpcrunError, match="far: away"):
        document_of("far", '{"error": {"message": "away"}}')


@pytest.mark.parametrize("status", [0, 1, 7, 96, 98, 254])
def test_a_command_ends_here_as_it_ended_there(here: Path, status: int) -> None:
    assert _checked(FAR, status, "") == status


def test_a_session_that_ssh_ends_is_a_lost_connection(here: Path) -> None:
    with pytest.raises(NotConnectedError, match="the connection to gone is lost; jobs there"):
        _checked(GONE, 255, "")
    with pytest.raises(NotConnectedError, match="is lost"):
        _checked(GONE, -signal.SIGKILL, "")
    with pytest.raises(NotConnectedError, match="far takes no further session"):
        _checked(FAR, 255, "")
    with pytest.raises(InterruptedByUser):
        _checked(GONE, -signal.SIGINT, "")


def test_a_folder_of_code_that_is_gone_is_an_error() -> None:
    with pytest.raises(SchedulerError, match="the folder of the code is gone on far: /x"):
        _checked(FAR, 97, "/x")


@pytest.mark.parametrize(
    ("line", "verb"),
    [
        ("status 4711", "status"),
        ("-v status", "status"),
        ("scale run train.py", "scale run"),
        ("scale --verbose report x", "scale report"),
        ("scale plan x", "scale"),
        ("profile list", "profile"),
        ("-v", ""),
    ],
)
def test_a_command_is_found_in_its_line(line: str, verb: str) -> None:
    assert _verb_of(line.split()) == verb


@pytest.mark.parametrize(
    ("line", "writes"),
    [
        ("share last", True),
        ("scale report study", True),
        ("metrics last --png loss.png", True),
        ("metrics last --png=loss.png", True),
        ("metrics last", False),
        ("history --plot=x.pdf", True),
        ("history --png x", False),
        ("status --png", False),
    ],
)
def test_commands_that_write_files_are_known(line: str, writes: bool) -> None:
    words = line.split()
    assert _writes_files(_verb_of(words), words) == writes


@pytest.mark.parametrize(
    ("line", "asks"),
    [
        ("submit --help", True),
        ("-v submit -h", True),
        ("scale run -h", True),
        ("submit train.py -G -h", False),
        ("status", False),
    ],
)
def test_help_is_asked_for_in_the_first_words(line: str, asks: bool) -> None:
    assert _asks_for_help(line.split()) == asks


def test_output_and_status_of_a_command_come_here(
    far: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    program(far / "there", 'echo "$@"; echo wrong >&2; exit 7')
    assert run_on_one("far", ["logs", "a b"]) == 7
    assert capfd.readouterr() == ("logs a b\n", "wrong\n")


def test_the_answer_of_a_host_is_its_document(here: Path) -> None:
    host_that_prints(here, "far", "hi {}")
    connection, remote = opened("far")
    done = connection.run(script_of(remote, ["status", "--json"]))
    assert document_of("far", done.stdout) == {}
