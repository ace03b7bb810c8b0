"""Where a report is written, and where it is not."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from hpcrun.errors import PlanError
from hpcrun.features.scaling.command import MARK, check_folder, save_report

FILES = {"report.txt": b"new\n", "cost.png": b"\x89PNG"}


def content(folder: Path) -> dict[str, bytes]:
    return {entry.name: entry.read_bytes() for entry in folder.iterdir() if entry.name != MARK}


def test_a_report_with_fewer_files_leaves_none_of_the_old_one(tmp_path: Path) -> None:
    folder = tmp_path / "a" / "report"
    save_report(folder, FILES)
    assert content(folder) == FILES
    check_folder(folder, force=False)
    save_report(folder, {"report.txt": b"newer\n"})
    assert content(folder) == {"report.txt": b"newer\n"}
    assert [entry.name for entry in folder.parent.iterdir()] == ["report"]


def test_an_empty_folder_keeps_its_rights_and_a_link_to_one_stays_a_link(tmp_path: Path) -> None:
    folder, link = tmp_path / "shared", tmp_path / "link"
    folder.mkdir(mode=0o750)
    link.symlink_to("shared")
    check_folder(folder, force=False)
    os.utime(tmp_path, (1, 1))
    save_report(link, FILES)
    assert tmp_path.stat().st_mtime == 1  # its owner may not write there
    assert link.is_symlink()
    assert content(folder) == FILES
    assert folder.stat().st_mode & 0o777 == 0o750


def test_what_others_wrote_is_refused_or_stays(tmp_path: Path) -> None:
    for name in ("thesis.tex", "a", "b", "c"):
        (tmp_path / name).write_text("mine")
    with pytest.raises(PlanError, match=r"a, b, c \.\.\."):
        check_folder(tmp_path, force=False)
    check_folder(tmp_path, force=True)
    save_report(tmp_path, FILES)
    assert content(tmp_path).keys() == {"thesis.tex", "a", "b", "c", *FILES}
    # the mark names the report's own files only
    with pytest.raises(PlanError, match="other files"):
        check_folder(tmp_path, force=False)


def test_a_file_of_another_with_the_name_of_a_report_s_is_never_overwritten(tmp_path: Path) -> None:
    (tmp_path / "cost.png").write_text("mine")
    with pytest.raises(PlanError, match=r"no report wrote cost\.png"):
        save_report(tmp_path, FILES)
    assert content(tmp_path) == {"cost.png": b"mine"}


def test_a_folder_that_the_mark_names_is_no_report_s(tmp_path: Path) -> None:
    save_report(tmp_path, FILES)
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "thesis.tex").write_text("mine")
    with (tmp_path / MARK).open("a") as mark:
        mark.write("data\n")
    with pytest.raises(PlanError, match="other files: data"):
        check_folder(tmp_path, force=False)
    save_report(tmp_path, FILES)
    assert (tmp_path / "data" / "thesis.tex").exists()


def test_what_a_killed_report_left_is_removed(tmp_path: Path) -> None:
    write = (
        "import sys, pathlib; sys.path.insert(0, '.'); from hpcrun.features.scaling import "
        "command; "
        "command.replace_file = lambda *_, **__: os.kill(os.getpid(), 9); import os; "
        f"command.save_report(pathlib.Path({str(tmp_path)!r}), {{'report.txt': b'new'}})"
    )
    assert subprocess.run([sys.executable, "-c", write], check=False).returncode == -signal.SIGKILL
    assert len(list(tmp_path.iterdir())) == 1
    check_folder(tmp_path, force=False)
    save_report(tmp_path, FILES)
    assert content(tmp_path) == FILES


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(PlanError, match="is not a folder"):
        check_folder(tmp_path / "file", force=True)
    with pytest.raises(PlanError, match="cannot write"):
        save_report(tmp_path / "file" / "report", FILES)
    assert [entry.name for entry in tmp_path.iterdir()] == ["file"]
