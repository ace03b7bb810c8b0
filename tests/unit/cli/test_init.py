"""init at a terminal: what is asked, and what the answers make."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from hpcrun.actions.profiles.edit import FileChange
from hpcrun.actions.profiles.init_choices import Setup
from hpcrun.cli.init import _agreed, init
from hpcrun.cli.output import render
from hpcrun.errors import ProfileError
from tests.harness import REPO
from tests.unit.builders import write

RECORDED = REPO / "tests/data/22.05"
ANSWERS = {
    "sbatch": "exit 1",
    "sacct": "exit 0",
    "sinfo": f"cat {RECORDED}/sinfo-version.txt",
    "sacctmgr": f"cat {RECORDED}/sacctmgr-assoc.txt",
    "scontrol": f"for last; do :; done; cat {RECORDED}/scontrol-$last.txt",
}


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A person on the cluster whose answers are recorded."""
    for name, program in ANSWERS.items():
        write(tmp_path / "bin" / name, f"#!/bin/sh\n{program}\n").chmod(0o755)
    for name in list(os.environ):
        if name.startswith(("XDG_", "HPCRUN_", "SLURM_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("HPCRUN_SITE", str(tmp_path / "site"))
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:/usr/bin:/bin")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def set_up(*, yes: bool = False, gpu_type: str | None = None, dry_run: bool = True) -> int:
    """Run ``hpcrun init`` with these options; returns its exit status."""
    outcomes = init(None, gpu_type, None, None, None, None, yes, False, dry_run, False)
    return render(outcomes)


def test_the_answers_are_in_the_files(
    cluster: Path, answers: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    answers += ["a100\n", "srun\n", "\n"]
    assert set_up() == 0
    text = capsys.readouterr().out
    assert "  type: a100 " in text
    assert "launcher: srun" in text
    assert not (cluster / ".config").exists()


def test_what_is_typed_is_not_asked(
    cluster: Path, answers: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    answers += ["\n", f"{cluster}/data\n"]
    assert set_up(gpu_type="h100") == 0
    text = capsys.readouterr().out
    assert "  type: h100 " in text
    assert f"runs: {cluster}/data" in text


def test_a_folder_that_cannot_be_used_is_asked_for_again(
    cluster: Path, answers: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    answers += ["\n", "/dev/null/runs\n", "\n"]
    assert set_up(gpu_type="h100") == 0
    assert "/dev/null is not a folder" in capsys.readouterr().err


@pytest.mark.usefixtures("cluster", "answers")
def test_with_yes_nothing_is_asked() -> None:
    assert set_up(yes=True) == 0


def changed(before: str | None, after: str) -> Setup:
    """A setup that makes this of a profile."""
    change = FileChange(Path("dev.yaml"), before, after)
    return Setup("dev", change, FileChange(Path("config.yaml"), None, ""), None, None)


@pytest.mark.parametrize(("line", "agreed"), [("y\n", True), ("\n", False)])
def test_a_changed_profile_needs_a_yes(
    answers: list[str], capsys: pytest.CaptureFixture[str], line: str, agreed: bool
) -> None:
    answers += [line]
    setup = changed("qos: a\n", "qos: b\n")
    assert _agreed(setup, asks=True, agreed=False) is agreed
    assert "-qos: a\n+qos: b\n" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("before", "agreed"),
    [(None, False), ("qos: b\n", False), ("qos: a\n", True)],
    ids=["new", "the same", "agreed"],
)
def test_other_profiles_are_written_without_a_question(before: str | None, agreed: bool) -> None:
    assert _agreed(changed(before, "qos: b\n"), asks=False, agreed=agreed)


def test_without_a_terminal_a_changed_profile_is_refused() -> None:
    with pytest.raises(ProfileError, match=r"dev.yaml exists, and would be changed as shown"):
        _agreed(changed("qos: a\n", "qos: b\n"), asks=False, agreed=False)
