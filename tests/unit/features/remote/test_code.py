"""The code of a project that is copied to a host: which files travel, and to which folder."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from hpcrun.errors import HpcrunError, PlanError, SchedulerError, UsageError
from hpcrun.features.remote import code
from hpcrun.features.remote.code import send_code
from hpcrun.features.remote.connection import Connection
from hpcrun.machine.process import Completed
from tests.unit.builders import write

HOME = "/home/me/.hpcrun/code"


def ended(status: int | None, stderr: str = "") -> Completed:
    """The result of a command without output."""
    return Completed("rsync", status, "", stderr)


class Rsync:
    """rsync and the host: what was copied, and what the host ran.

    Attributes:
        result: how rsync ends.
    """

    def __init__(self) -> None:
        self.files: list[str] = []
        self.argv: list[str] = []
        self.scripts: list[str] = []
        self.result = ended(0)

    def run_command(self, argv: Sequence[str], **_: Any) -> Completed:
        (names,) = [word for word in argv if word.startswith("--files-from=")]
        text = Path(names.removeprefix("--files-from=")).read_text("utf-8")
        self.files = sorted(name.removeprefix("./") for name in text.split("\0"))
        self.argv = list(argv)
        return self.result

    def run(self, _: Connection, script: str, **__: Any) -> Completed:
        self.scripts.append(script)
        return ended(0)


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project in which somebody stands."""
    folder = write(tmp_path / "project/train.py", "").parent
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture
def rsync(project: Path, monkeypatch: pytest.MonkeyPatch) -> Rsync:
    rsync = Rsync()
    monkeypatch.setattr(code, "run_command", rsync.run_command)
    monkeypatch.setattr(Connection, "run", lambda *args, **more: rsync.run(*args, **more))
    monkeypatch.setattr(Connection, "make_folder", lambda *_: HOME)
    monkeypatch.setattr(Connection, "is_alive", lambda _: True)
    return rsync


def send(verb: str = "submit", *words: str) -> str:
    return send_code(Connection("far", "/socket"), verb, words)


def test_files_that_look_like_secrets_are_not_copied_and_are_named(
    project: Path, rsync: Rsync, capsys: pytest.CaptureFixture[str]
) -> None:
    write(project / ".env", "TOKEN=abcdefgh\n")
    write(project / "keys/id_rsa", "")
    send()
    assert rsync.files == ["train.py"]
    note = "hpcrun: not copied, since they look like secrets: .env, keys/id_rsa\n"
    assert capsys.readouterr().err == note


def test_without_secrets_nothing_is_said(
    project: Path, rsync: Rsync, capsys: pytest.CaptureFixture[str]
) -> None:
    write(project / "model/net.py", "")
    send()
    assert rsync.files == ["model/net.py", "train.py"]
    assert capsys.readouterr().err == ""


def test_the_copy_gets_its_name_when_it_is_complete(project: Path, rsync: Rsync) -> None:
    there = send()
    name = Path(there).name
    assert there.startswith(f"{HOME}/project-")
    assert rsync.argv[-1] == f"far:{there}.part/"
    assert f"mv {name}.part {name} && ln -sfn {name} " in rsync.scripts[0]


def test_a_job_shares_files_with_the_last_copy(rsync: Rsync) -> None:
    send()
    assert "--link-dest=../latest/" in rsync.argv


def test_people_work_in_a_copy_that_shares_no_file(rsync: Rsync) -> None:
    there = send("dev")
    assert Path(there).name.startswith("dev-")
    assert "--copy-dest=../latest/" in rsync.argv
    assert "latest" not in rsync.scripts[0]


def test_dev_in_a_run_takes_no_code(rsync: Rsync) -> None:
    assert send("dev", "20260102-030405-train-0a1b") == ""
    assert rsync.argv == []


def test_a_host_without_copies_of_jobs_prints_no_error(rsync: Rsync, tmp_path: Path) -> None:
    there = Path(send("dev"))
    project = tmp_path / "far"
    (project / f"{there.name}.part").mkdir(parents=True)
    script = rsync.scripts[0].replace(str(there.parent), str(project))
    done = subprocess.run(["sh", "-c", script], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert (project / there.name).is_dir()


@pytest.mark.parametrize("verb", ["submit", "scale run"])
def test_the_limit_of_a_snapshot_counts_for_the_copy(
    project: Path, rsync: Rsync, verb: str
) -> None:
    with open(project / "data.bin", "wb") as file:
        file.truncate(2 * 1024 * 1024)
    with pytest.raises(PlanError, match=r"over the limit of a snapshot \(1 MB\)"):
        send(verb, "--gpus", "2", "--snapshot-limit", "1M", "train.py")
    with pytest.raises(PlanError, match=r"over the limit of a snapshot \(1 MB\)"):
        send(verb, "--snapshot-limit=1M", "train.py")
    assert rsync.argv == []
    send(verb, "--snapshot-limit=1M", "--snapshot-limit", "3M", "train.py")
    assert rsync.files == ["data.bin", "train.py"]


def test_the_limit_of_a_snapshot_is_a_size(rsync: Rsync) -> None:
    with pytest.raises(UsageError, match=r"^--snapshot-limit: .large. .*200M or 1G"):
        send("submit", "--snapshot-limit", "large", "train.py")
    assert rsync.argv == []


@pytest.mark.parametrize(("verb", "is_refused"), [("submit", True), ("dev", False)])
def test_a_home_is_no_project(
    project: Path, rsync: Rsync, monkeypatch: pytest.MonkeyPatch, verb: str, is_refused: bool
) -> None:
    monkeypatch.setenv("HOME", str(project))
    if is_refused:
        with pytest.raises(UsageError, match="is no project to copy"):
            send(verb)
    else:
        assert send(verb) == ""
    assert rsync.argv == []


def test_without_a_name_the_copy_is_an_error(rsync: Rsync, monkeypatch: pytest.MonkeyPatch) -> None:
    failed = ended(1, "bash: warning\nmv: Disk quota exceeded\n")
    monkeypatch.setattr(Connection, "run", lambda *_, **__: failed)
    with pytest.raises(SchedulerError, match="on far has no name: mv: Disk quota exceeded"):
        send()


@pytest.mark.parametrize(
    ("result", "error", "message"),
    [
        (ended(None, "No such file or directory"), PlanError, "rsync is not installed"),
        (
            ended(11, "rsync: [sender] broken pipe\nrsync: [receiver] no space\nerror\n"),
            SchedulerError,
            r"cannot be copied to far: rsync: \[receiver\] no space$",
        ),
        (ended(12, "first\nlast\n"), SchedulerError, "cannot be copied to far: last$"),
    ],
    ids=["no rsync", "an error there", "an error here"],
)
def test_an_error_of_rsync_has_its_reason(
    rsync: Rsync, result: Completed, error: type[HpcrunError], message: str
) -> None:
    rsync.result = result
    with pytest.raises(error) as refused:
        send()
    assert re.search(message, refused.value.message)
    assert rsync.scripts == []
