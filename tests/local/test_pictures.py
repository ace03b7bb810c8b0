"""The terminal of the pictures: a real bash, what it prints as it looks, and Ctrl-C."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from dev.pictures.svg import svg_text
from dev.pictures.terminal import Terminal, TerminalError


@pytest.fixture
def terminal(tmp_path: Path) -> Terminal:
    return Terminal(
        (), cwd=tmp_path, env={"PATH": os.environ["PATH"], "LANG": "C.UTF-8"}, columns=40
    )


def test_a_screen_is_what_a_person_would_see(terminal: Terminal) -> None:
    with terminal:
        terminal.type(r"printf 'step 1\rstep 2\n\e[33mslow\e[0m\e[2K\rgone\e[1A\e[1C3\n\n\n'")
        lines = terminal.lines()
    assert [line.plain for line in lines[-2:]] == ["step 3", "gone"]
    assert lines[0].plain.startswith("$ printf")


def test_colours_become_the_picture_s(terminal: Terminal) -> None:
    with terminal:
        terminal.type(r"printf '\e[33mslow\e[0m <&>\n'")
        lines = terminal.lines()
    svg = svg_text(lines, name="colours", title="hpcrun", columns=40)
    assert svg == svg_text(lines, name="colours", title="hpcrun", columns=40)
    assert "#e5c07b" in svg
    assert ">slow</text>" in svg
    assert "&lt;&amp;&gt;" in svg
    assert "<image" not in svg


def test_ctrl_c_ends_what_runs_and_the_terminal_goes_on(terminal: Terminal) -> None:
    with terminal:
        terminal.type("echo ready; sleep 600", until="\nready")
        terminal.interrupt()
        terminal.type("echo $?")
        assert terminal.lines()[-1].plain == "130"


def test_a_command_that_does_not_end_is_named_with_its_screen(terminal: Terminal) -> None:
    with (
        terminal,
        pytest.raises(TerminalError, match=r"(?s)the end of echo said; sleep 600.*\nsaid"),
    ):
        terminal.type("echo said; sleep 600", within_s=0.5)
