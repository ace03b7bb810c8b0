"""Questions to a person, and the editor that a person uses."""

from __future__ import annotations

from pathlib import Path

import pytest

from hpcrun.actions.user_choice import Choice, Option
from hpcrun.cli import confirm as questions
from hpcrun.cli.confirm import ask, choose, confirm, find_editor, run_editor
from hpcrun.errors import InterruptedByUser, UsageError

GPU_TYPE = Choice(
    "GPU type",
    "gpu.type",
    "the partition has several",
    (Option("a100", "--gpus a100:4", "40 GB"), Option("h100", "--gpus h100:4", "80 GB")),
    default=1,
)


@pytest.mark.parametrize(
    ("line", "default", "is_agreed"),
    [
        ("y\n", False, True),
        (" YES \n", False, True),
        ("n\n", True, False),
        ("yess\n", True, False),
        ("\n", True, True),
        ("\n", False, False),
        ("", True, False),
        ("", False, False),
    ],
)
def test_only_yes_or_enter_on_a_default_agrees(
    answers: list[str], line: str, default: bool, is_agreed: bool
) -> None:
    answers.append(line)
    assert confirm("Remove it?", default=default) is is_agreed


def test_enter_is_the_default(answers: list[str]) -> None:
    answers += ["\n", "big\n"]
    assert ask("profile", default="small") == "small"
    assert ask("profile", default="small") == "big"


def test_the_end_of_stdin_is_no_answer(answers: list[str]) -> None:
    answers.append("")
    with pytest.raises(KeyboardInterrupt):
        ask("profile", default="small")


@pytest.mark.parametrize(
    ("lines", "value"),
    [
        (["1\n"], "a100"),
        (["2\n"], "h100"),
        (["\n"], "h100"),
        (["a100\n"], "a100"),
        (["0\n", "3\n", "²\n", "h200\n", " 1 \n"], "a100"),
    ],
    ids=["a number", "the last number", "the default", "a name", "after other answers"],
)
def test_a_number_or_a_name_chooses(answers: list[str], lines: list[str], value: str) -> None:
    answers += lines
    assert choose(GPU_TYPE) == value


def test_each_option_stands_behind_the_number_that_chooses_it(
    answers: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    answers.append("1\n")
    assert choose(GPU_TYPE) == "a100"
    lines = capsys.readouterr().err.splitlines()
    assert [line.split()[:2] for line in lines[1:]] == [["1", "a100"], ["2", "h100"]]


def test_without_an_answer_nothing_is_chosen(answers: list[str]) -> None:
    answers.append("")
    with pytest.raises(InterruptedByUser, match="nothing was submitted"):
        choose(GPU_TYPE)


# --- the editor ----------------------------------------------------------------------------------


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only folder on PATH, and a terminal."""
    monkeypatch.setattr(questions, "can_ask", lambda: True)
    return tmp_path


def install(folder: Path, *names: str) -> dict[str, str]:
    """Make programs of these names; returns the environment."""
    for name in names:
        (folder / name).touch(0o755)
    return {"PATH": str(folder)}


@pytest.mark.parametrize(
    ("env", "argv"),
    [
        ({"VISUAL": "code --wait", "EDITOR": "ed"}, ["code", "--wait"]),
        ({"EDITOR": "'my editor' -n"}, ["my editor", "-n"]),
        ({"VISUAL": "", "EDITOR": "ed"}, ["ed"]),
        ({"VISUAL": "  ", "EDITOR": "ed"}, ["ed"]),
    ],
    ids=["VISUAL first", "EDITOR", "an empty VISUAL", "a blank VISUAL"],
)
def test_the_editor_is_that_of_the_environment(
    programs: Path, env: dict[str, str], argv: list[str]
) -> None:
    assert find_editor({**install(programs, "vi"), **env}, "") == argv


@pytest.mark.parametrize(("names", "editor"), [(("vi", "nano"), "vi"), (("nano",), "nano")])
def test_without_variables_an_editor_on_path_is_used(
    programs: Path, names: tuple[str, ...], editor: str
) -> None:
    assert find_editor({**install(programs, *names), "EDITOR": " "}, "") == [editor]


def test_no_editor_is_an_error(programs: Path) -> None:
    with pytest.raises(UsageError, match="neither vi nor nano is on PATH"):
        find_editor(install(programs), "")


def test_an_editor_with_an_open_quote_is_refused(programs: Path) -> None:
    with pytest.raises(UsageError, match="VISUAL='vi: No closing quotation"):
        find_editor({**install(programs, "vi"), "VISUAL": "'vi"}, "")


def test_without_a_terminal_the_other_command_is_named(
    programs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(questions, "can_ask", lambda: False)
    env = install(programs, "vi")
    with pytest.raises(UsageError) as refused:
        find_editor(env, "hpcrun resubmit")
    assert refused.value.hint == "without a terminal: hpcrun resubmit"
    assert find_editor({**env, "EDITOR": "script"}, "") == ["script"]


def test_an_editor_that_does_not_exist_is_an_error(programs: Path) -> None:
    with pytest.raises(UsageError, match="the editor 'no-such' cannot be started: No such file"):
        run_editor(["no-such"], install(programs))
