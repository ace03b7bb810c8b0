"""Which command lines with --on write files that come to this machine."""

from __future__ import annotations

from pathlib import Path

import pytest

from hpcrun.errors import PlanError
from hpcrun.features.remote import written_files
from hpcrun.features.remote.connection import Connection
from hpcrun.features.remote.written_files import _brings_files


@pytest.mark.parametrize(
    ("verb", "typed", "values", "brings"),
    [
        pytest.param("share", "", {}, True, id="a name of the command's own"),
        pytest.param("share", "page.html", {}, True, id="a name that was typed"),
        pytest.param("metrics", "curve.png", {}, True, id="typed, and no name of its own"),
        pytest.param("metrics", "", {}, False, id="nothing is written"),
        pytest.param("share", "-", {}, False, id="stdout, typed"),
        pytest.param("scale report", "", {"from_csv": ["a.csv"]}, False, id="a table there"),
    ],
)
def test_what_comes_to_this_machine(
    verb: str, typed: str, values: dict[str, object], brings: bool
) -> None:
    assert _brings_files(verb, typed, values) is brings


@pytest.fixture
def here_and_there(
    here: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> tuple[Path, Path]:
    """The current folder here, and the home on the host."""
    work = tmp_path / "work"
    home = tmp_path / "home"
    work.mkdir()
    home.mkdir()
    monkeypatch.chdir(work)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setattr(written_files, "rsync_problem", lambda: "")
    return work, home


def written(verb: str, line: str) -> written_files.WrittenFiles | None:
    """The files that a command line writes."""
    return written_files.written_files(Connection("far", "/run/far"), verb, line.split())


@pytest.mark.parametrize(
    ("verb", "line", "name", "words"),
    [
        ("share", "share last", "", "share last"),
        ("share", "share last -o a/x.html", "x.html", "share last -o a/x.html --out=x.html"),
        (
            "metrics",
            "-v metrics --png a/x.png -- last",
            "x.png",
            "-v metrics --png a/x.png --png=x.png -- last",
        ),
    ],
)
def test_a_command_there_writes_into_a_folder_of_its_own(
    here_and_there: tuple[Path, Path], verb: str, line: str, name: str, words: str
) -> None:
    work, home = here_and_there
    (work / "a").mkdir()
    found = written(verb, line)
    assert found
    assert found.words == words.split()
    assert found.name == name
    assert found.target == (work / "a" if name else work)
    assert Path(found.source).is_dir()
    assert Path(found.source).parent == home / "hpcrun-code"


@pytest.mark.parametrize(
    ("line", "replaces"), [("share last", False), ("share last --force", True)]
)
def test_a_file_is_replaced_where_that_was_typed(
    here_and_there: tuple[Path, Path], line: str, replaces: bool
) -> None:
    found = written("share", line)
    assert found
    assert found.replaces is replaces


def test_a_page_that_exists_is_not_replaced(here_and_there: tuple[Path, Path]) -> None:
    (here_and_there[0] / "x.html").write_text("mine")
    assert written("share", "share last -o x.html --force")
    with pytest.raises(PlanError, match=r"x\.html"):
        written("share", "share last -o x.html")


def test_a_picture_replaces_an_older_one(here_and_there: tuple[Path, Path]) -> None:
    (here_and_there[0] / "x.png").write_text("old")
    found = written("metrics", "metrics --png x.png")
    assert found
    assert found.replaces


def test_a_folder_here_that_does_not_exist_is_refused(here_and_there: tuple[Path, Path]) -> None:
    with pytest.raises(PlanError, match="none is not a folder") as caught:
        written("share", "share -o none/x.html")
    assert caught.value.hint == "choose another path with --out"


def test_without_an_rsync_for_it_files_stay_on_the_host(
    here_and_there: tuple[Path, Path],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(written_files, "rsync_problem", lambda: "no rsync on PATH")
    assert written("share", "share last") is None
    assert capsys.readouterr().err == "hpcrun: no rsync on PATH: files stay on far\n"


@pytest.mark.parametrize("line", ["metrics last", "share -o -"])
def test_what_is_printed_comes_as_it_is(here_and_there: tuple[Path, Path], line: str) -> None:
    assert written(line.split()[0], line) is None
    assert list(here_and_there[1].iterdir()) == []
