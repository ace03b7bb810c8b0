"""The help of every command: known panels, a sentence for each option, examples that the command
takes.
"""

from __future__ import annotations

import re
import shlex
from typing import Any

import pytest
from typer.main import get_command

from hpcrun.cli.commands import COMMANDS as TABLE
from hpcrun.cli.commands import EXAMPLES, GROUPS, epilog
from hpcrun.cli.main import build_app, list_app

FIRST_WORDS = list(dict.fromkeys(name.split()[0] for name in TABLE))
PANELS = {"Resources", "Placement", "Launch", "Sweeps", "Requeue", "Snapshot", "Submission"}
OWN_PANELS = {
    "dev": {"On the node"},
    "scale run": {"Study"},
    "scale plan": {"Measurement", "Forecast", "Training"},
}
_APP: Any = get_command(build_app(TABLE))


_IN_GROUPS = {
    f"{group} {name}": command
    for group in GROUPS
    for name, command in _APP.commands[group].commands.items()
}
COMMANDS: dict[str, Any] = {**_APP.commands, **_IN_GROUPS}


def test_the_list_of_commands_is_what_the_commands_say_of_themselves() -> None:
    listed: Any = get_command(list_app())
    lines = {name: command.help.partition("\n")[0] for name, command in _APP.commands.items()}
    assert list(listed.commands) == FIRST_WORDS
    assert set(lines) == set(FIRST_WORDS)
    assert {
        name: command.help.partition("\n")[0] for name, command in listed.commands.items()
    } == lines
    assert all(lines.values())


@pytest.mark.parametrize("name", TABLE)
def test_the_line_of_a_command_is_the_first_line_of_its_docstring(name: str) -> None:
    first_line = COMMANDS[name].help.partition("\n")[0]
    assert TABLE[name].help == first_line


def test_every_command_has_examples() -> None:
    assert set(EXAMPLES) == set(COMMANDS)
    assert all(command.epilog == epilog(name) for name, command in COMMANDS.items())


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_examples_are_two_or_three_lines_that_the_command_takes(name: str) -> None:
    assert 2 <= len(EXAMPLES[name]) <= 3
    for line, purpose in EXAMPLES[name]:
        assert not purpose[0].islower()
        assert not purpose.endswith(".")
        words = shlex.split(line)
        words = words[words.index("hpcrun") + 1 :]
        words = words[: next((i for i, word in enumerate(words) if word in ("|", ">")), len(words))]
        assert words[: len(name.split())] == name.split()
        parse(words)
    assert all(len(line) <= 78 for line in epilog(name).splitlines())


def parse(words: list[str]) -> None:
    """Read a command line as typer does, without running it: an unknown option is an error."""
    command = _APP
    while words and words[0] in getattr(command, "commands", {}):
        command, words = command.commands[words[0]], words[1:]
    known = {option for param in command.params for option in (*param.opts, *param.secondary_opts)}
    before_script = words[: words.index("train.py")] if "train.py" in words else words
    before_script = (
        before_script[: before_script.index("--")] if "--" in before_script else before_script
    )
    assert [
        word
        for word in before_script
        if re.match("--?[a-z]", word, re.IGNORECASE) and word not in known
    ] == []
    command.make_context("hpcrun", list(words), resilient_parsing=True)


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_options_stand_in_known_panels_and_say_what_they_are(name: str) -> None:
    for param in COMMANDS[name].params:
        panel = getattr(param, "rich_help_panel", None)
        assert panel is None or panel in PANELS | OWN_PANELS.get(name, set()), param.name
        text = param.help or ""
        assert text, f"{param.name} has no help"
        assert text[0].isupper() or text.startswith("SCRIPT"), text
        assert text.endswith((".", "...")), text
        assert "by default" not in text.lower(), f"write 'Default: X.' in {text!r}"


@pytest.mark.parametrize(
    ("name", "first"),
    [("submit", ["--gpus", "--nodes", "--time"]), ("scale run", ["--gpus", "--ranks", "--nodes"])],
)
def test_the_most_used_options_come_first(name: str, first: list[str]) -> None:
    in_panels = [
        param.opts[0] for param in COMMANDS[name].params if getattr(param, "rich_help_panel", None)
    ]
    assert in_panels[:3] == first
