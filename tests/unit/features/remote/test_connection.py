"""The one connection to a host: what ssh is asked for, and what is made of its answers."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from hpcrun.errors import PlanError, SchedulerError, UsageError
from hpcrun.features.remote import connection as connections
from hpcrun.features.remote.connection import (
    Connection,
    NotConnectedError,
    Remote,
    check_host,
    connection_to,
    known,
    known_hosts,
    own_control,
    record_path,
    remote_command,
    rsh_option,
    shell_setup,
)
from hpcrun.features.remote.login import remember
from tests.unit.features.remote.hosts import program

FAR = Connection("far", "/run/far")
GONE = Connection("gone", "/run/gone")
REMOTE = Remote("/opt/hpcrun", "0.1.0", "/usr/bin")


@pytest.mark.parametrize("name", ["far", "me@login1.site.org", "_a", "7", "a" * 50])
def test_a_host_is_named_as_for_ssh(name: str) -> None:
    assert check_host(name) == name


@pytest.mark.parametrize("name", ["", "-oProxyCommand=x", "a b", "@far", "a/b", "a" * 51, "fär"])
def test_what_ssh_could_take_for_something_else_is_no_host(name: str) -> None:
    with pytest.raises(UsageError, match="is not the name of a host"):
        check_host(name)


def test_a_command_never_logs_in() -> None:
    argv = Connection("far", "/run/50%").argv("-T")
    assert argv[0] == "ssh"
    assert argv[-3:] == ["-T", "--", "far"]
    assert argv[argv.index("-S") + 1] == "/run/50%%"
    options = [value for word, value in pairwise(argv) if word == "-o"]
    assert options == [
        "LogLevel=QUIET",
        "ControlMaster=no",
        "ProxyCommand=false",
        "BatchMode=yes",
        "ClearAllForwardings=yes",
        "ForwardAgent=no",
        "ForwardX11=no",
        "PermitLocalCommand=no",
        "RemoteCommand=none",
    ]


def test_a_script_runs_on_the_host_to_its_end(here: Path) -> None:
    done = FAR.run("echo out; echo wrong >&2; exit 3")
    assert (done.status, done.stdout, done.stderr) == (3, "out\n", "wrong\n")


def test_a_host_without_a_connection_needs_a_login(here: Path) -> None:
    with pytest.raises(NotConnectedError, match="there is no connection to gone") as caught:
        GONE.run("true")
    assert caught.value.hint == "hpcrun login gone"


def test_a_connection_that_takes_no_further_session_says_so(here: Path) -> None:
    with pytest.raises(NotConnectedError, match="far takes no further session") as caught:
        FAR.run("exit 255")
    assert caught.value.hint
    assert "logs -f" in caught.value.hint


def test_a_machine_without_ssh_is_no_lost_connection(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SchedulerError, match=r"^far: ") as caught:
        FAR.run("true")
    assert not isinstance(caught.value, NotConnectedError)
    assert caught.value.hint == "see: ssh far true"


@pytest.fixture
def home(here: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The home on the host, whose start-up files print."""
    folder = here / "home"
    folder.mkdir()
    monkeypatch.setenv("HOME", str(folder))
    return folder


def test_a_folder_there_is_for_its_user_alone(home: Path) -> None:
    assert FAR.make_folder("code/x y", "inner") == str(home / "code/x y")
    assert (home / "code/x y/inner").is_dir()
    assert (home / "code/x y").stat().st_mode & 0o777 == 0o700


def test_a_folder_that_cannot_be_made_says_why(home: Path) -> None:
    (home / "code").write_text("a file")
    with pytest.raises(SchedulerError, match=r"no folder code/x on far: .*code"):
        FAR.make_folder("code/x")


@pytest.mark.parametrize(
    ("printed", "reason"),
    [("a//b", "a//b"), ("\\n//relative", "//relative"), ("\\n///a\\001b", "///a"), ("", "no me")],
    ids=["no mark", "no absolute path", "a control character", "nothing"],
)
def test_a_host_may_answer_anything_when_a_folder_is_made(
    here: Path, printed: str, reason: str
) -> None:
    program(here / "ssh", f"printf '{printed}'")
    with pytest.raises(SchedulerError, match=f"no folder code on far: {reason}"):
        FAR.make_folder("code")


def test_what_start_up_files_print_is_left_out(here: Path) -> None:
    program(here / "ssh", 'echo welcome\nfor last; do :; done\neval "$last"')
    chunks: list[bytes] = []
    assert FAR.session("echo answer; exit 4", take=chunks.append) == 4
    assert b"".join(chunks) == b"answer\n"


@pytest.mark.parametrize("script", ["echo 'a b' \"$((1+1))\"", "printf '%s' \"$0\" é\nexit 2"])
def test_every_shell_reads_a_script_as_one_command(script: str) -> None:
    direct = subprocess.run(["/bin/sh", "-c", script], capture_output=True, check=False)
    passed = ["/bin/sh", "-c", remote_command(script)]
    there = subprocess.run(passed, capture_output=True, check=False)
    assert there.returncode == direct.returncode
    assert there.stdout == direct.stdout


def test_a_command_line_that_linux_could_not_take_is_refused() -> None:
    fits = 72 * 1024  # four characters of base64 stand for three
    remote_command("x" * fits)
    with pytest.raises(UsageError, match=f"too long for ssh: {fits + 1} bytes"):
        remote_command("x" * (fits + 1))


def test_a_socket_lies_where_its_path_is_short_enough(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", "/run/user/7")
    monkeypatch.setenv("HOME", "/home/me")
    assert own_control("far") == "/run/user/7/hpcrun/far"
    monkeypatch.setenv("XDG_RUNTIME_DIR", f"/{'x' * 78}")
    assert own_control("far") == f"/{'x' * 78}/hpcrun/far"  # 90 characters
    assert own_control("afar") == "/home/me/.ssh/hpcrun/afar"
    monkeypatch.delenv("XDG_RUNTIME_DIR")
    monkeypatch.setenv("HOME", f"/{'x' * 90}")
    assert own_control("far") == f"/tmp/hpcrun-{os.getuid()}/far"


def test_a_folder_of_sockets_is_made_for_its_user_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    folder = tmp_path / "hpcrun"
    assert own_control("far") == f"{folder}/far"
    assert not folder.exists()
    assert own_control("far", make=True) == f"{folder}/far"
    assert folder.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("mode", [0o710, 0o701, 0o770, 0o755])
def test_a_folder_of_sockets_that_others_can_enter_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: int
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    folder = tmp_path / "hpcrun"
    folder.mkdir()
    folder.chmod(mode)
    with pytest.raises(PlanError, match="must be a folder that only you can enter") as caught:
        own_control("far")
    assert caught.value.hint == f"chmod 700 {folder}"


def test_a_file_is_no_folder_of_sockets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    (tmp_path / "hpcrun").write_text("")
    (tmp_path / "hpcrun").chmod(0o600)
    with pytest.raises(PlanError, match="must be a folder"):
        own_control("far", make=True)


def test_an_impossible_folder_of_sockets_is_one_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "file"))
    with pytest.raises(PlanError, match="hpcrun cannot be made: Not a directory"):
        own_control("far", make=True)


def test_a_record_of_a_host_is_read_as_saved(here: Path) -> None:
    remote = Remote("/opt/hpcrun", "0.2", "/bin", "/etc/slurm.conf", "/run/own")
    remember("far", remote)
    remember("alpha", REMOTE)
    assert known("far") == remote
    assert known("other") is None
    assert known_hosts() == ["alpha", "far"]
    assert record_path("far") == f"{here}/hpcrun/.far.json"


@pytest.mark.parametrize(
    "text",
    ["", "[1]", '{"hpcrun": 1}', '{"hpcrun": "/x"}', '{"host": "x"}', "\xff"],
    ids=["empty", "a list", "a number", "too few", "another name", "no UTF-8"],
)
def test_a_damaged_record_of_a_host_is_none(here: Path, text: str) -> None:
    remember("far", REMOTE)
    Path(record_path("far")).write_text(text, "latin-1")
    assert known("far") is None


def test_a_connection_that_the_user_shares_is_used(here: Path) -> None:
    shared = REMOTE._replace(control="/run/own")
    assert connection_to("far", shared) == Connection("far", "/run/own")
    for remote in (REMOTE, None):
        assert connection_to("far", remote) == Connection("far", f"{here}/hpcrun/far")


def test_a_command_there_has_what_a_login_shell_has() -> None:
    assert shell_setup(REMOTE) == "PATH=/usr/bin\nexport PATH"
    with_slurm = REMOTE._replace(path="/a b", slurm_conf="/etc/my slurm.conf")
    assert shlex.split(shell_setup(with_slurm)) == [
        "PATH=/a b",
        "export",
        "PATH",
        "SLURM_CONF=/etc/my slurm.conf",
        "export",
        "SLURM_CONF",
    ]


def test_rsync_runs_this_module_with_quotes_of_its_own() -> None:
    option = rsh_option(Connection("far", "/run/it's"), 100)
    assert option.startswith("--rsh='")
    assert option.endswith(" '-m' 'hpcrun.features.remote.connection' '/run/it''s' '100'")
    assert rsh_option(FAR).endswith(" '/run/far' '0'")


@pytest.fixture
def _own_signals() -> Iterator[None]:
    before = signal.getsignal(signal.SIGUSR1)
    yield
    signal.signal(signal.SIGUSR1, before)


@pytest.mark.usefixtures("here", "_own_signals")
def test_a_user_is_named_to_ssh_as_rsync_names_it(capfd: pytest.CaptureFixture[str]) -> None:
    assert connections.main("/run/far", "0", "-l", "me", "far", "echo", "'a b'") == 0
    assert capfd.readouterr().out == "a b\n"


@pytest.mark.usefixtures("here", "_own_signals")
def test_a_host_sends_no_more_bytes_than_were_expected(capfd: pytest.CaptureFixture[str]) -> None:
    assert connections.main("/run/far", "3", "far", "printf", "abc") == 0
    assert capfd.readouterr() == ("abc", "")
    assert connections.main("/run/far", "3", "far", "printf", "abcd") == 1
    assert capfd.readouterr() == ("", "far sends more than was expected: 3 bytes\n")
