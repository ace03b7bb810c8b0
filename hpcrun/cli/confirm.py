"""Asking the user at a terminal, or in the user's editor."""

from __future__ import annotations

import os
import select
import shlex
import shutil
import signal
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from hpcrun.cli.interrupt import interrupted_as
from hpcrun.cli.output import can_ask, tell
from hpcrun.errors import InterruptedByUser, UsageError
from hpcrun.machine.on_terminal import run_on_terminal
from hpcrun.views.text import one_line

if TYPE_CHECKING:
    from hpcrun.actions.user_choice import Choice


def confirm(
    question: str, *, default: bool = False, interrupted: str = "interrupted; nothing was done"
) -> bool:
    """Ask, and return whether the answer was yes; Enter alone is ``default``."""
    answers = "[Y/n]" if default else "[y/N]"
    with interrupted_as(InterruptedByUser(interrupted)):
        line = _answer(f"{question} {answers} ")
    if line == "\n":
        return default
    return line.strip().lower() in ("y", "yes")


def ask(question: str, *, default: str, show_default: bool = True) -> str:
    """Ask, and return the answer; Enter alone is the default.

    Raises:
        KeyboardInterrupt: Ctrl-C, or the end of stdin.
    """
    line = _answer(f"{question} [{default}]: " if show_default else f"{question}: ")
    if not line:
        raise KeyboardInterrupt
    return line.rstrip("\n") or default


def choose(choice: Choice, interrupted: str = "interrupted; nothing was submitted") -> str:
    """Show the options of a choice, numbered, and return the value of the one that is answered."""
    values = [option.value for option in choice.options]
    width = max(len(value) for value in values)
    lines = [f"{choice.reason}:"]
    for number, option in enumerate(choice.options, 1):
        lines.append(f"  {number}  {option.value:<{width}}  {option.about}")
    tell(one_line(line).rstrip() for line in lines)
    by_number = dict(enumerate(values, 1))
    with interrupted_as(InterruptedByUser(interrupted)):
        while True:
            answer = ask(choice.what, default=str(choice.default + 1)).strip()
            if answer in values:
                return answer
            if answer.isascii() and answer.isdigit() and int(answer) in by_number:
                return by_number[int(answer)]
            tell([f"Type a number from 1 to {len(values)}, or a name."])


def _answer(question: str) -> str:
    """Print a question and read a line; Ctrl-C in the moment before the read is not lost, either.

    It would be lost in read(2), which begins behind the signal and waits: Python's handlers run
    only between two steps of the interpreter. The descriptor of signal.set_wakeup_fd wakes select.
    """
    sys.stdout.flush()
    sys.stderr.write(question)
    sys.stderr.flush()
    woken, wakes = os.pipe()
    os.set_blocking(wakes, False)
    before = signal.set_wakeup_fd(wakes)
    try:
        select.select([sys.stdin, woken], [], [])
        return os.fsdecode(sys.stdin.buffer.readline())  # bytes that are not UTF-8, as in sys.argv
    finally:
        signal.set_wakeup_fd(before)
        os.close(woken)
        os.close(wakes)


def find_editor(env: Mapping[str, str], otherwise: str) -> list[str]:
    """Return the command of $VISUAL or $EDITOR, or an editor on PATH.

    Args:
        env: the environment with these variables.
        otherwise: a command that needs no editor, for the hint where there is no terminal.

    Raises:
        UsageError: if the variable is not a valid command line, there is no terminal, or there is
            no editor.
    """
    for variable in ("VISUAL", "EDITOR"):
        if env.get(variable, "").strip():
            try:
                return shlex.split(env[variable])
            except ValueError as error:
                raise UsageError(f"{variable}={env[variable]}: {error}") from None
    if not can_ask():  # one of $EDITOR's may be a script
        raise UsageError(
            "there is no terminal for an editor", hint=f"without a terminal: {otherwise}"
        )
    for program in ("vi", "nano"):
        if shutil.which(program, path=env.get("PATH")):
            return [program]
    raise UsageError("there is no editor: neither vi nor nano is on PATH", hint="export EDITOR=...")


def run_editor(argv: Sequence[str], env: Mapping[str, str]) -> int:
    """Run an editor, and return its exit status.

    Raises:
        UsageError: if the editor cannot be started.
    """
    try:
        return run_on_terminal(argv, env)
    except OSError as error:
        raise UsageError(
            f"the editor {argv[0]!r} cannot be started: {error.strerror}", hint="export EDITOR=vi"
        ) from None
