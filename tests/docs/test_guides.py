"""Every command of docs/guides is run, and shows what the page says: `tests.docs.page` says how a
page is read.
"""

from __future__ import annotations

import re
import shlex
import time
from typing import Any, cast

import pytest
import typer

from hpcrun.cli.commands import COMMANDS
from hpcrun.cli.main import build_app
from tests.docs.page import Command, File, is_shown, steps
from tests.harness import NO_GPUS, REPO, Hpcrun, torch_is_for_gpus

GUIDES = REPO / "docs/guides"
PAGES = {
    path.name: path.read_text() for path in (*sorted(GUIDES.glob("*.md")), REPO / "docs/roles.md")
}
LOOKS = re.compile(r"hpcrun (status|logs|metrics|gpu|explain) ?(?!.*-f)")
PATIENCE_S = 60
"""A command that only looks is typed again until it shows what the page shows: its job may not be
as far.
"""
ABORTED = "terminate called without an active exception"
"""gloo's threads abort a rank at Python's end now and then on a busy machine (pytorch#179291): one
that does is run again.
"""


def commands_of(name: str) -> list[Command]:
    return [step for step in steps(PAGES[name]) if isinstance(step, Command)]


def follow(person: Hpcrun, name: str, *, slurm: bool) -> None:
    """Do what a page says, as its reader would: the files, and the commands for Slurm or those
    without.
    """
    (person.folder / "examples").symlink_to(person.checkout / "examples")
    todo = list(steps(PAGES[name]))
    status = 0
    for number, step in enumerate(todo):
        if isinstance(step, File):
            path = person.folder / step.name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(step.text)
        elif step.slurm == slurm:
            following = todo[number + 1 : number + 2]
            may_fail = any(
                isinstance(after, Command) and after.line == "echo $?" for after in following
            )
            status = type_command(person, step, status, may_fail=may_fail)


def type_command(person: Hpcrun, command: Command, status_before: int, *, may_fail: bool) -> int:
    """Run a command and compare what it prints with what is shown; return its exit status."""
    line = f"exec 2>&1; (exit {status_before}); {command.line}"
    until = time.monotonic() + (PATIENCE_S if LOOKS.match(command.line) else 0)
    while True:
        done = person.shell(line)
        if ABORTED in done.stdout:
            done = person.shell(line)
        as_said = not command.shown or is_shown(command.shown, done.stdout)
        if (as_said and (may_fail or done.returncode == 0)) or time.monotonic() > until:
            break
        time.sleep(1)
    if NO_GPUS in done.stdout and torch_is_for_gpus():
        return done.returncode
    assert may_fail or done.returncode == 0, (
        f"$ {command.line}\nended with {done.returncode}:\n{done.stdout}"
    )
    shown = "\n".join(command.shown)
    assert as_said, f"$ {command.line}\nprinted:\n{done.stdout}\nand the page shows:\n{shown}"
    return done.returncode


@pytest.mark.parametrize(
    "name", [name for name in PAGES if any(not one.slurm for one in commands_of(name))]
)
def test_a_page(hpcrun: Hpcrun, name: str) -> None:
    follow(hpcrun, name, slurm=False)


@pytest.mark.parametrize("name", PAGES)
def test_every_file_of_a_page_is_used_by_a_command(name: str) -> None:
    typed = " ".join(command.line for command in commands_of(name))
    files = {step.name for step in steps(PAGES[name]) if isinstance(step, File)}
    # configuration is found by itself
    assert {
        file for file in files if file not in typed and not file.startswith(".hpcrun/")
    } == set()


@pytest.mark.parametrize("name", PAGES)
def test_a_command_in_a_sentence_is_one_with_these_options(name: str) -> None:
    app = typer.main.get_command(build_app(COMMANDS))
    for typed in re.findall(r"`hpcrun ([^`]+)`", PAGES[name]):
        words, command = shlex.split(re.sub(r"--on \S+ ?", "", typed)), cast(Any, app)
        while hasattr(command, "commands"):
            command = command.commands[words.pop(0)]
        known = {
            option
            for parameter in command.params
            for option in (*parameter.opts, *parameter.secondary_opts)
        }
        assert {word for word in words if word.startswith("-")} <= known, typed


def test_the_index_leads_to_every_page() -> None:
    linked = set(re.findall(r"\]\(([\w-]+\.md)\)", PAGES["README.md"]))
    assert linked == PAGES.keys() - {"README.md", "roles.md"}
