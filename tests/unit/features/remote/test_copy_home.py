"""Which files of a host come to this machine, without a host."""

from __future__ import annotations

from pathlib import Path

import pytest

from hpcrun.cli.commands import COMMANDS
from hpcrun.errors import PlanError, UsageError
from hpcrun.features.remote import WRITTEN, copy_home, written_files
from hpcrun.features.remote.connection import Connection
from hpcrun.features.remote.copy_home import Copy, rsync_problem
from hpcrun.features.remote.line_options import options_of, values_of
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
