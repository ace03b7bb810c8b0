"""Which files of a host come to this machine, without a host."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from hpcrun.cli.commands import COMMANDS
from hpcrun.errors import InterruptedByUser, PlanError, SchedulerError, UsageError
from hpcrun.features.remote import WRITTEN, copy_home, written_files
from hpcrun.features.remote.connection import Connection, NotConnectedError
from hpcrun.features.remote.copy_home import Copied, Copy, check_rsync, rsync_problem
from hpcrun.features.remote.line_options import options_of, value_of, values_of
from hpcrun.features.remote.written_files import WrittenFiles
from hpcrun.machine.process import Completed


@pytest.mark.parametrize(
    "printed, is_fine",
    [
        ("rsync  version 3.2.5  protocol version 31", True),
        ("rsync  version v3.4.1dev  protocol version 32", True),
        ("rsync  version 4.0  protocol version 40", True),
        ("rsync  version 3.2.4  protocol version 31", False),
        ("rsync  version 2.6.9  protocol version 29", False),
        ("openrsync: protocol version 29", False),
        ("", False),
    ],
)
def test_an_rsync_that_checks_no_names_is_a_problem(
    printed: str, is_fine: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        copy_home, "run_command", lambda *_, **__: Completed("rsync", 0, printed, "")
    )
    assert (rsync_problem() == "") == is_fine


@pytest.mark.parametrize("verb", sorted(WRITTEN.keys() & COMMANDS.keys()))
def test_a_command_that_writes_files_has_the_option_that_names_them(verb: str) -> None:
    assert options_of(verb)[WRITTEN[verb]]


def test_the_value_of_an_option_is_read_wherever_it_stands() -> None:
    for words in (["last", "-o", "x"], ["--out=x", "last"], ["-ox", "--", "last"]):
        assert values_of("share", words)["out"] == "x"
    assert values_of("share", ["--no-such-option", "last"])["out"] is None


@pytest.mark.parametrize(
    ("line", "value"),
    [
        ("-J a --name b train.py --name c", None),
        ("--workdir a --workdir=b train.py", "b"),
        ("--workdir=a=b train.py", "a=b"),
        ("--workdir", None),
        ("--dry-run --workdir a", "a"),
        ("train.py --workdir a", None),
    ],
)
def test_the_last_value_before_the_script_counts(line: str, value: str | None) -> None:
    assert value_of("submit", line.split(), "--workdir") == value


@pytest.fixture
def arriving(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> WrittenFiles:
    """A report on its way, in whose place these files arrive."""

    def carry_out(copy: Copy, expected: int) -> None:
        folder = copy.target / "report-x-1234"
        folder.mkdir()
        (folder / "report.html").write_text("new")
        (copy.target / ".bashrc").write_text("hostile")

    monkeypatch.setattr(Copy, "carry_out", carry_out)
    monkeypatch.setattr(Connection, "run", lambda *_: None)
    return WrittenFiles(
        Connection("far", "/x"), [], "/home/me/.files-1", tmp_path, "", "scale report", False
    )


def test_a_report_arrives_beside_an_earlier_one_of_its_own(
    arriving: WrittenFiles, tmp_path: Path
) -> None:
    for _ in range(2):
        arriving.bring()
    assert [str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*")] == [
        "report-x-1234",
        "report-x-1234/report.html",
    ]


def test_a_folder_with_other_files_is_kept_as_it_is(arriving: WrittenFiles, tmp_path: Path) -> None:
    folder = tmp_path / "report-x-1234"
    folder.mkdir()
    (folder / "notes.txt").write_text("mine")
    with pytest.raises(PlanError, match="contains other files") as refused:
        arriving.bring()
    assert "the files are on far for a day: /home/me/.files-1" in refused.value.message
    assert [path.name for path in folder.iterdir()] == ["notes.txt"]


def test_a_path_that_names_no_file_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(written_files, "rsync_problem", lambda: "")
    with pytest.raises(UsageError, match="is not the name of a file"):
        written_files.written_files(Connection("far", "/x"), "share", ["share", "-o", "/"])


COPY = Copy(Connection("far", "/run/far"), "/scratch/run", Path("/here/out"), ["+ /*.out", "- *"])
NUMBERS = (
    "Number of files: 9 (reg: 7, dir: 2)\n"
    "Number of regular files transferred: 3\n"
    "Total file size: 999 bytes\n"
    "Total transferred file size: 2048 bytes\n"
)


def test_a_host_can_neither_make_links_nor_give_rights() -> None:
    argv = COPY._argv(most=1)
    for option in ("links", "devices", "specials", "perms", "owner", "group"):
        assert f"--no-{option}" in argv
    assert "--chmod=D700,F644" in argv


def test_the_first_rules_leave_out_names_that_control_a_terminal() -> None:
    argv = COPY._argv(most=1)
    rules = [word for word in argv if word.startswith("--filter=")]
    assert rules[0] == "--filter=- *[[:cntrl:]]*"
    assert len(rules) == 4
    assert rules[2:] == ["--filter=+ /*.out", "--filter=- *"]


def test_the_content_of_a_folder_comes_into_a_folder_here() -> None:
    assert COPY._argv(most=1)[-3:] == ["--", "far:/scratch/run/", "/here/out/"]


def test_files_that_exist_are_kept_on_request() -> None:
    assert "--ignore-existing" not in COPY._argv(most=1)
    keeping = Copy(COPY.connection, COPY.source, COPY.target, [], keeps_existing=True)
    assert "--ignore-existing" in keeping._argv(most=1)


@pytest.mark.parametrize("status", [0, 24])
def test_what_was_copied_counts_also_if_files_vanished_meanwhile(status: int) -> None:
    assert COPY._result(status, NUMBERS, "") == Copied(3, 2048)


@pytest.mark.usefixtures("here")
def test_an_answer_without_numbers_is_an_error() -> None:
    with pytest.raises(SchedulerError, match="cannot be copied from far: no message"):
        COPY._result(0, "hello", "")


@pytest.mark.usefixtures("here")
def test_a_lost_connection_comes_before_words_of_rsync() -> None:
    gone = Copy(Connection("gone", "/run/gone"), "/x", Path("/x"), [])
    with pytest.raises(NotConnectedError, match="there is no connection to gone"):
        gone._result(255, "", "rsync error: unexplained")


def test_ctrl_c_is_no_failure_of_the_host() -> None:
    with pytest.raises(InterruptedByUser):
        COPY._result(-signal.SIGINT, NUMBERS, "")


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize(
    ("stderr", "reason"),
    [
        ("file a: Permission denied\nrsync error: some (code 23)\n\n", "file a: Permission denied"),
        ("first\nlast\nrsync: [generator] write error\n", "last"),
        ("rsync: connection unexpectedly closed\nrsync error: x\n", "rsync error: x"),
        ("", "no message"),
        ("x" * 400, "x" * 300),
    ],
    ids=["before what follows", "the last", "only what follows", "nothing", "long"],
)
def test_lines_that_only_follow_are_not_the_cause(stderr: str, reason: str) -> None:
    with pytest.raises(SchedulerError) as caught:
        COPY._result(23, "", stderr)
    assert caught.value.message == f"the files cannot be copied from far: {reason}"


def test_fetching_needs_an_rsync_that_checks_names(monkeypatch: pytest.MonkeyPatch) -> None:
    old = Completed("rsync", 0, "rsync  version 3.1.3  protocol version 31", "")
    monkeypatch.setattr(copy_home, "run_command", lambda *_, **__: old)
    with pytest.raises(PlanError, match=r"rsync  version 3\.1\.3 does not check") as caught:
        check_rsync()
    assert caught.value.hint == "install rsync 3.2.5 or later on this machine"
