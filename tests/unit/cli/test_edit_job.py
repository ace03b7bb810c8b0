"""resubmit --edit: what is read of the text that a person leaves in the editor."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest

from hpcrun.actions.jobs.new_run import request_record
from hpcrun.actions.jobs.prepare import Prepared
from hpcrun.cli.context import Context
from hpcrun.cli.edit_job import EditAbortedError, _edit, _parse_submit, edited_job
from hpcrun.errors import HpcrunError, PlanError, UsageError
from tests.unit import builders

RUN = builders.run()


def editor(folder: Path, program: str) -> dict[str, str]:
    """The environment of a person with this editor."""
    path = builders.write(folder / "editor", f"#!/bin/sh\n{program}\n")
    path.chmod(0o755)
    path_of_programs = f"{folder}:/usr/bin:/bin"
    runs = str(folder / "runs")
    return {"EDITOR": str(path), "PATH": path_of_programs, "HPCRUN_RUNS": runs}


def edited(folder: Path, program: str, **asked: Any) -> Prepared:
    """The job of a request that such an editor has changed."""
    request = request_record(builders.request(str(builders.write(folder / "a.py", "")), **asked))
    there = Context(editor(folder, program), folder)
    options = {"gpus": "2", "profile": "a100", **asked, "script": request["script"]}
    with edited_job(RUN, options, there, fresh=False) as prepared:
        return prepared


def test_the_changed_options_count(tmp_path: Path) -> None:
    prepared = edited(tmp_path, "sed -i 's/--gpus 2/--gpus 4/' \"$1\"")
    assert prepared.plan.shape.gpus_per_node == 4


@pytest.mark.parametrize(
    ("program", "message"),
    [
        ("true", "nothing was changed, and nothing was submitted"),
        ('echo "# only this" >"$1"', "the command is empty, and nothing was submitted"),
        ("exit 3", "the editor ended with exit status 3; nothing was done"),
    ],
    ids=["unchanged", "empty", "failed"],
)
def test_without_a_changed_command_nothing_is_submitted(
    tmp_path: Path, program: str, message: str
) -> None:
    with pytest.raises(EditAbortedError, match=message):
        edited(tmp_path, program)


def test_a_secret_that_is_not_shown_keeps_its_value(tmp_path: Path) -> None:
    copy = f'cp "$1" {tmp_path}/seen; sed -i "s/--gpus 2/--gpus 4/" "$1"'
    prepared = edited(tmp_path, copy, env=["HF_TOKEN=abc"])
    seen = (tmp_path / "seen").read_text()
    assert "abc" not in seen
    assert "The values of secrets are not shown: leave *** as it is." in seen
    assert ("HF_TOKEN", "abc") in prepared.request.env


def test_the_text_of_a_wrong_command_is_kept(tmp_path: Path) -> None:
    with pytest.raises(HpcrunError, match="'x' is not a number of GPUs") as refused:
        edited(tmp_path, "sed -i 's/--gpus 2/--gpus x/' \"$1\"")
    assert refused.value.hint is not None
    path = Path(refused.value.hint.rpartition("your text is kept in ")[2])
    assert "--gpus x" in path.read_text()
    path.unlink()


def test_the_editor_begins_with_the_command_and_what_it_does(tmp_path: Path) -> None:
    copy = f'cp "$1" {tmp_path}/seen; sed -i "s/--gpus 2/--gpus 4/" "$1"'
    edited(tmp_path, copy)
    seen = (tmp_path / "seen").read_text()
    assert f"It runs in {tmp_path}, without checkpoints." in seen
    assert "--gpus 2" in seen


STAY = "The parameters of its 2 elements stay as they are."


@pytest.mark.parametrize(
    ("rows", "stay"),
    [
        pytest.param([{"lr": "1"}, {"lr": "2"}], False, id="an option says them"),
        pytest.param([{"lr": "1", "wd": "2"}, {"lr": "2", "wd": "1"}], True, id="a file says them"),
    ],
)
def test_parameters_that_no_option_can_say_stay(
    tmp_path: Path, rows: list[dict[str, str]], stay: bool
) -> None:
    copy = f'cp "$1" {tmp_path}/seen; sed -i "s/--gpus 2/--gpus 4/" "$1"'
    sweep = tuple(tuple(row.items()) for row in rows)
    prepared = edited(tmp_path, copy, sweep=sweep)
    assert prepared.request.sweep == sweep
    seen = (tmp_path / "seen").read_text()
    assert (STAY in seen) == stay
    assert ("--sweep lr=1,2" in seen) != stay


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--nonsense", "a.py"], "No such option: --nonsense"),
        (["--help"], "--help has no effect here"),
        (["--dry-run", "a.py"], "--dry-run is no part of the job"),
        (["--wait", "a.py"], "--wait is no part of the job"),
    ],
)
def test_only_options_of_the_job_are_read(words: list[str], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        _parse_submit(words)


def test_the_words_of_a_command_are_its_options() -> None:
    options = _parse_submit(["--gpus", "4", "--env", "A=b", "a.py", "--lr", "1"])
    assert options["gpus"] == "4"
    assert options["env"] == ["A=b"]
    assert options["args"] == ["--lr", "1"]


def test_without_a_terminal_a_mistake_is_raised(tmp_path: Path) -> None:
    def read(_: str) -> Prepared:
        raise PlanError("too many GPUs")

    with pytest.raises(PlanError, match="too many GPUs"):
        _edit(tmp_path / "text", "a", read, lambda: 0)


def test_bytes_that_are_no_text_come_back_as_they_were(tmp_path: Path) -> None:
    texts = []

    def read(text: str) -> Prepared:
        texts.append(text)
        return cast("Prepared", None)

    _edit(tmp_path / "text", "a\udcff", read, lambda: 0)
    assert texts == ["a\udcff"]


def test_a_text_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"cannot edit .*: Is a directory"):
        _edit(tmp_path, "a", lambda _: cast("Prepared", None), lambda: 0)
