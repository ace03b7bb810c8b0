"""The first steps of ``python -m hpcrun``: its path of modules and its standard streams."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import hpcrun.__main__ as program
from tests.harness import REPO


def left_path(monkeypatch: pytest.MonkeyPatch, folder: Path, *path: str) -> list[str]:
    """The path of modules in a folder, after the folder is left out."""
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "path", list(path))
    program._leave_out_current_folder()
    return sys.path


@pytest.mark.parametrize(
    ("path", "left"),
    [
        (["", "/lib"], ["/lib"]),
        (["{here}", "/lib"], ["/lib"]),
        (["/lib", "{here}"], ["/lib", "{here}"]),
        (["/lib", ""], ["/lib", ""]),
        ([], []),
    ],
    ids=["empty", "by its name", "later", "empty later", "no path"],
)
def test_nothing_is_imported_from_the_current_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: list[str], left: list[str]
) -> None:
    named = [each.format(here=tmp_path) for each in path]
    shown = [each.format(here=tmp_path) for each in left]
    assert left_path(monkeypatch, tmp_path, *named) == shown


def test_a_checkout_stays_on_the_path_as_the_last(monkeypatch: pytest.MonkeyPatch) -> None:
    assert left_path(monkeypatch, REPO, "", "/lib") == ["/lib", ""]


def test_a_folder_that_is_gone_is_no_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    assert program._current_folder() is None


STREAMS = """
import os, sys
from hpcrun.__main__ import _open_missing_streams
_open_missing_streams()
names = [os.readlink(f"/proc/self/fd/{number}") for number in range(3)]
try:
    print("hello", flush=True)
    end = "printed"
except OSError as error:
    end = error.strerror
streams = [stream.fileno() for stream in (sys.stdin, sys.stdout, sys.stderr)]
with open(sys.argv[1], "w") as file:
    file.write(f"{names.count(os.devnull)} {streams} {end} {sys.stdin.read()!r}")
"""


@pytest.mark.parametrize(
    ("closed", "found"),
    [
        ("<&-", "1 [0, 1, 2] printed ''"),
        (">&-", "1 [0, 1, 2] Bad file descriptor ''"),
        ("2>&-", "1 [0, 1, 2] printed ''"),
        ("<&- >&- 2>&-", "3 [0, 1, 2] Bad file descriptor ''"),
    ],
    ids=["stdin", "stdout", "stderr", "all"],
)
def test_a_closed_stream_is_the_null_device(tmp_path: Path, closed: str, found: str) -> None:
    argv = [sys.executable, "-S", "-c", STREAMS, str(tmp_path / "found")]
    subprocess.run(
        ["sh", "-c", f'exec "$@" {closed}', "sh", *argv],
        cwd=REPO,
        env={**os.environ, "PYTHONPATH": str(REPO)},
        stdin=subprocess.PIPE,
        capture_output=True,
        check=False,
        timeout=60,
    )
    assert (tmp_path / "found").read_text() == found
