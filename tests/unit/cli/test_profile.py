"""profile: the lines of validate and of the question about trust."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from hpcrun.actions.jobs.trust import FileToTrust, Question, look_into, remember
from hpcrun.actions.profiles.edit import Place
from hpcrun.actions.profiles.list_profiles import Verdict
from hpcrun.cli.context import Context
from hpcrun.cli.output import TextPart, render
from hpcrun.cli.profile import _verdicts_text
from hpcrun.cli.profile_edit import (
    _ask,
    _ask_again,
    _ask_trust,
    _content_lines,
    _power,
    _question_lines,
    _question_table,
    overruled,
)
from hpcrun.profiles.folders import TrustStore, shipped_folder
from hpcrun.profiles.yaml_edit import USUAL
from hpcrun.profiles.yaml_file import Mistake
from tests.unit.builders import drawn
from tests.unit.profiles.hostile import ordinary_user, put


def mistake(text: str) -> Mistake:
    """Return a mistake in the first line of a file."""
    return Mistake(Path("base.yaml"), 1, text)


def lines_of(parts: list[TextPart], kind: str) -> list[str]:
    """Return the lines for a stream."""
    return [line for part in parts if part.kind == kind for line in part.lines]


def test_a_mistake_in_a_base_that_two_profiles_extend_is_printed_once() -> None:
    wrong = (mistake("nodes: is not a number"),)
    verdicts = [
        Verdict("a100", Path("a100.yaml"), wrong, "hint of both"),
        Verdict("good", Path("good.yaml"), hint="not shown", remarks=(mistake("time is long"),)),
        Verdict("h100", Path("h100.yaml"), wrong, "hint of both"),
    ]
    parts = list(_verdicts_text(verdicts))
    assert lines_of(parts, "stdout") == ["error  a100", "ok     good", "error  h100"]
    assert lines_of(parts, "stderr") == [
        str(mistake("nodes: is not a number")),
        f"warning: {mistake('time is long')}",
        "hint: hint of both",
    ]


@pytest.mark.parametrize(
    ("keys", "text"),
    [
        ((), "runs code"),
        (("setup",), "runs code: setup"),
        (tuple("abcdefgh"), "runs code: a, b, c, d, e, f, g, h"),
        (tuple("abcdefghi"), "runs code: a, b, c, d, e, f, g, h, ..."),
    ],
    ids=["no key", "one key", "eight keys", "nine keys"],
)
def test_at_most_eight_keys_of_a_file_are_named(keys: tuple[str, ...], text: str) -> None:
    assert _power(FileToTrust("profiles/a.yaml", "new", 10, keys, "runs code")) == text


@pytest.fixture
def home() -> Iterator[Path]:
    with ordinary_user() as folder:
        put(folder / "clone/.hpcrun/profiles/a.yaml", "partition: x\nsetup: [echo]\n")
        put(folder / "clone/.hpcrun/profiles/b.yaml", "partition: \x1b[2J\n")
        yield folder


def question(home: Path, *, trusted: bool = False) -> Question:
    """The question about the project, whose files may have been trusted before."""
    store = TrustStore(home / "state/hpcrun/trust")
    folder = home / "clone/.hpcrun"
    if trusted:
        remember(folder, look_into(folder, store).contents, store)
    return look_into(folder, store)


def test_the_text_of_each_new_file_is_shown_without_control_characters(home: Path) -> None:
    lines = list(_content_lines(question(home)))
    assert lines[:4] == ["profiles/a.yaml:", "    partition: x", "    setup: [echo]", ""]
    assert lines[4] == "profiles/b.yaml:"
    assert "\x1b" not in lines[5]
    assert lines[6:] == [""]


def test_only_changed_files_are_shown_of_a_trusted_folder(home: Path) -> None:
    question(home, trusted=True)
    put(home / "clone/.hpcrun/profiles/b.yaml", "partition: y\n")
    (home / "clone/.hpcrun/profiles/a.yaml").unlink()
    asked = question(home)
    assert list(_content_lines(asked)) == ["profiles/b.yaml:", "    partition: y", ""]
    rows = [line.split()[:3] for line in drawn(_question_table(asked), 80)[1:]]
    assert ["profiles/a.yaml", "removed"] in [row[:2] for row in rows]
    assert ["profiles/b.yaml", "changed", "13"] in rows


def test_all_files_of_a_folder_that_is_trusted_as_it_is_are_shown(home: Path) -> None:
    shown = [line for line in _content_lines(question(home, trusted=True)) if line.endswith(":")]
    assert shown == ["profiles/a.yaml:", "profiles/b.yaml:"]


def test_a_folder_that_others_can_change_is_named(home: Path) -> None:
    last = "Trusted files run code as you, here and on the nodes of your jobs. Read them first."
    assert _question_lines(question(home)) == [last]
    (home / "clone/.hpcrun/profiles").chmod(0o777)
    danger, *_ = _question_lines(question(home))
    assert danger.endswith(": hpcrun ignores a later change until you trust it")


@pytest.mark.parametrize(
    ("variable", "remark"),
    [
        ("mine", ""),
        ("other", "hpcrun: HPCRUN_PROFILE sets the profile other here, and takes precedence\n"),
    ],
)
def test_a_variable_that_overrules_the_default_is_named(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    variable: str,
    remark: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HPCRUN_PROFILE", variable)
    render(overruled("mine"))
    assert capsys.readouterr().err == remark


def place(folder: Path) -> Place:
    return Place(folder / "profiles", (shipped_folder("cluster_profiles"),))


def test_only_answers_with_text_are_values(tmp_path: Path, answers: list[str]) -> None:
    others = len(USUAL) - 1
    answers += ["a100\n", " gpu \n", *["\n"] * others]
    base, values = _ask(place(tmp_path))
    assert base == "a100"
    first = ".".join(next(iter(USUAL)))
    assert values == [f"{first}=gpu"]


def test_a_machine_without_slurm_has_no_questions(tmp_path: Path, answers: list[str]) -> None:
    answers += ["\n"]
    assert _ask(place(tmp_path)) == ("local", [])


@pytest.mark.parametrize(("answer", "again"), [("\n", True), ("n\n", False)])
def test_after_a_mistake_a_person_is_asked(
    answers: list[str], capsys: pytest.CaptureFixture[str], answer: str, again: bool
) -> None:
    answers += [answer]
    assert _ask_again([mistake("nodes: is not a number")]) is again
    assert "nodes: is not a number" in capsys.readouterr().err


@pytest.mark.parametrize(("answer", "status"), [("y\n", 0), ("\n", 1)])
def test_a_folder_is_trusted_by_yes_alone(
    home: Path,
    monkeypatch: pytest.MonkeyPatch,
    answers: list[str],
    answer: str,
    status: int,
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(home / "state"))
    answers += [answer]
    context = Context({"HPCRUN_SITE": str(home / "none")}, home)
    path = home / "clone/.hpcrun"
    assert render(_ask_trust(path, context)) == status
    assert look_into(path, context.configuration.trust).trusted is (status == 0)
