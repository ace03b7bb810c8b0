"""A command of the tests' server (tests/preloaded.py) does what one that was started anew does."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.harness import Hpcrun, without_stdin


@pytest.mark.parametrize(
    ("args", "status"),
    [
        (("--version",), 0),
        (("profile", "show", "local"), 0),
        (("submit", "--gpu", "4", "train.py"), 2),
        (("status", "no-such-run"), 6),
    ],
    ids=["version", "text", "usage", "not found"],
)
def test_it_prints_and_ends_as_one_that_was_started_anew(
    hpcrun: Hpcrun, args: tuple[str, ...], status: int
) -> None:
    anew, preloaded = hpcrun.run(*hpcrun.argv(*args), check=False), hpcrun(*args)
    assert (preloaded.returncode, preloaded.stdout, preloaded.stderr) == (
        anew.returncode,
        anew.stdout,
        anew.stderr,
    )
    assert preloaded.returncode == status


def test_a_command_with_a_closed_stdin_ends_as_one_that_was_started_anew(hpcrun: Hpcrun) -> None:
    words = "submit -P local --gpus 0 -"  # a script from stdin
    line = f"{hpcrun.python_word} -m hpcrun {words} <&-"
    anew = hpcrun.run("bash", "-c", line, check=False)
    preloaded = without_stdin(hpcrun, f"hpcrun {words}")
    assert (preloaded.returncode, preloaded.stderr) == (anew.returncode, anew.stderr)
    assert anew.returncode == 2


def test_a_command_knows_the_name_of_the_python_that_it_was_started_by(
    hpcrun: Hpcrun, tmp_path: Path
) -> None:
    venv = tmp_path / "it's my venv"
    venv.symlink_to(hpcrun.venv)
    (tmp_path / "laptop").mkdir()
    laptop = Hpcrun(tmp_path / "laptop", hpcrun.checkout, venv)
    words = ("submit", "-P", "local", "--gpus", "0", "--dry-run", "true")
    anew, preloaded = laptop.run(*laptop.argv(*words)), laptop(*words, check=True)
    assert preloaded.stdout == anew.stdout
    assert "s my venv/bin/python" in anew.stdout
