"""hpcrun skill: what is installed, and what it leaves as it is."""

from __future__ import annotations

import os
import re
import shlex
from pathlib import Path

import pytest

from hpcrun.cli.commands import COMMANDS
from hpcrun.errors import PlanError, UsageError
from hpcrun.features.skill.command import permission_lines
from hpcrun.features.skill.install import PLACES, install_skill, skill_text
from tests.unit.builders import write
from tests.unit.cli.test_help import parse


def contents(project: Path) -> list[str]:
    return [(project / place).read_text("utf-8") for place in PLACES]


def commands_in_skill() -> list[str]:
    lines = re.findall(r"^hpcrun .*", skill_text(), re.MULTILINE)
    return [*lines, *re.findall(r"`(hpcrun [^`]+)`", skill_text())]


def test_the_skill_has_at_most_110_lines() -> None:
    assert len(skill_text().splitlines()) <= 110


@pytest.mark.parametrize("line", commands_in_skill())
def test_the_skill_names_only_commands_and_options_that_there_are(line: str) -> None:
    words = shlex.split(line.partition("  # ")[0].partition(" | ")[0])[1:]
    help_or_redirection = re.compile(r"-h$|--help$|\d?>")
    parse([word for word in words if not help_or_redirection.match(word)])


def test_the_skill_is_written_for_every_kind_of_agent(tmp_path: Path) -> None:
    assert list(install_skill(tmp_path).values()) == [True, True]
    assert all(content.startswith(skill_text()) for content in contents(tmp_path))


def test_what_is_there_already_is_not_written_again(tmp_path: Path) -> None:
    install_skill(tmp_path)
    before = [(tmp_path / place).stat().st_ino for place in PLACES]
    assert list(install_skill(tmp_path).values()) == [False, False]
    assert [(tmp_path / place).stat().st_ino for place in PLACES] == before


def test_a_file_of_an_older_version_is_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hpcrun.features.skill.install.skill_text", lambda: "# older\n")
    monkeypatch.setattr("hpcrun.features.skill.install.__version__", "0.0.1")
    install_skill(tmp_path)
    older = contents(tmp_path)
    monkeypatch.undo()
    install_skill(tmp_path)
    assert older[0].startswith("# older\n<!-- written by hpcrun 0.0.1")
    assert all(content.startswith(skill_text()) for content in contents(tmp_path))


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("change", ["appended", "in the text", "without the last line"])
def test_a_changed_file_stays_and_nothing_is_written(
    tmp_path: Path, place: str, change: str
) -> None:
    install_skill(tmp_path)
    path = tmp_path / place
    text = path.read_text("utf-8")
    changed = {
        "appended": f"{text}Use QOS short.\n",
        "in the text": text.replace("Cost first", "Speed first"),
        "without the last line": text.rpartition("<!--")[0],
    }[change]
    path.write_text(changed, "utf-8")
    others = [tmp_path / other for other in PLACES if other != place]
    for other in others:
        other.unlink()
    with pytest.raises(PlanError, match=re.escape(str(path))) as error:
        install_skill(tmp_path)
    assert path.read_text("utf-8") == changed
    assert not any(other.exists() for other in others)
    assert "diff" in str(error.value.hint)


def test_a_skill_that_hpcrun_did_not_write_stays(tmp_path: Path) -> None:
    path = write(tmp_path / PLACES[0], "my own\n")
    with pytest.raises(PlanError):
        install_skill(tmp_path)
    assert path.read_text("utf-8") == "my own\n"


def test_one_folder_may_be_a_link_to_the_other(tmp_path: Path) -> None:
    (tmp_path / ".claude").mkdir()
    (tmp_path / ".agents").symlink_to(".claude")
    install_skill(tmp_path)
    assert list(install_skill(tmp_path).values()) == [False, False]


@pytest.mark.parametrize(
    "linked",
    [".agents", ".agents/skills", ".agents/skills/hpcrun", ".agents/skills/hpcrun/SKILL.md"],
)
def test_a_link_out_of_the_project_is_not_followed(tmp_path: Path, linked: str) -> None:
    project = tmp_path / "project"
    place = project / linked
    place.parent.mkdir(parents=True)
    elsewhere = tmp_path / "elsewhere"
    if place.suffix == "":
        elsewhere.mkdir()
    place.symlink_to(elsewhere)
    with pytest.raises(PlanError, match=f"{elsewhere}.*, outside the project") as error:
        install_skill(project)
    assert f"hpcrun skill >{elsewhere}" in str(error.value.hint)
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_a_project_may_be_named_by_a_link(tmp_path: Path) -> None:
    (tmp_path / "project").mkdir()
    (tmp_path / "link").symlink_to("project")
    assert list(install_skill(tmp_path / "link").values()) == [True, True]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give folders away")
@pytest.mark.parametrize("theirs", [".claude", ".claude/skills/hpcrun"])
def test_a_folder_of_another_user_is_not_written_to(tmp_path: Path, theirs: str) -> None:
    (tmp_path / theirs).mkdir(parents=True)
    os.chown(tmp_path / theirs, 1234, -1)
    with pytest.raises(PlanError, match=f"{theirs} belongs to another user"):
        install_skill(tmp_path)
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]
    os.chown(tmp_path, 1234, -1)  # it is that user's project
    assert list(install_skill(tmp_path).values()) == [True, True]


def test_a_folder_in_the_place_of_the_file_is_an_error(tmp_path: Path) -> None:
    (tmp_path / PLACES[1]).mkdir(parents=True)
    with pytest.raises(PlanError, match=r"SKILL\.md"):
        install_skill(tmp_path)


def test_a_file_in_the_place_of_a_folder_is_an_error(tmp_path: Path) -> None:
    write(tmp_path / ".claude", "")
    with pytest.raises(PlanError, match="cannot be written"):
        install_skill(tmp_path)


def test_a_project_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no folder"):
        install_skill(tmp_path / "none")


def test_a_command_is_allowed_or_asked_about_or_denied() -> None:
    rules = [line.split(maxsplit=1) for line in permission_lines()]
    patterns = [pattern for _, pattern in rules]
    assert {word for word, _ in rules} == {"allow", "ask", "deny"}
    assert len(patterns) == len(set(patterns))
    assert ["ask", "hpcrun submit *"] in rules
    assert ["deny", "hpcrun clean *"] in rules


def test_permissions_name_commands_that_there_are() -> None:
    named = re.findall(r"hpcrun ([a-z][a-z ]*) \*$", "\n".join(permission_lines()), re.MULTILINE)
    assert named
    assert set(named) <= set(COMMANDS)
