"""A bash on a terminal of its own, and what stands on its screen."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import groupby
from pathlib import Path
from types import TracebackType

import pexpect
import pyte
from pyte.screens import Char
from rich.style import Style
from rich.text import Text

COLUMNS, ROWS = 100, 30
_SCROLLED = 300  # lines: what has scrolled away stands in the picture too
# the mark with which shells tell a terminal where a prompt begins
_PROMPT_IS_HERE = b"\x1b]133;A\x07"
_BASH = ("bash", "--norc", "--noprofile", "--noediting", "-i")
_PYTE_NAMES = {"brown": "yellow", "default": None}


class TerminalError(Exception):
    """A command did not come to its end, or did not say what was waited for; with the screen as it
    was.
    """


class Terminal:
    """A terminal at which lines are typed.

    It is closed, and what runs in it hung up, at the end of a ``with``.
    """

    def __init__(
        self, become: Sequence[str], *, cwd: Path, env: Mapping[str, str], columns: int = COLUMNS
    ) -> None:
        variables = {
            "PS1": r"\[\e[1;32m\]$\[\e[0m\] ",
            "PROMPT_COMMAND": r"printf '\e]133;A\a'",
            "TERM": "xterm-256color",
        }
        program, *args = (*become, *_BASH)
        self._screen = pyte.Screen(columns, _SCROLLED)
        self._stream = pyte.ByteStream(self._screen)
        self._prompts = 0
        self._kept: list[Text] = []
        self._bash = pexpect.spawn(
            program, args, cwd=str(cwd), env={**env, **variables}, dimensions=(ROWS, columns)
        )
        self._until(lambda: self._prompts == 1, 10, "a prompt")

    def __enter__(self) -> Terminal:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self._bash.close(force=True)

    def type(self, line: str, *, until: str | None = None, within_s: float = 90) -> None:
        """Type a line, and wait for the next prompt, or until the screen shows some words.

        Raises:
            TerminalError: that does not happen in time.
        """
        before = self._prompts
        self._bash.send(f"{line}\n")
        if until is None:
            self._until(lambda: self._prompts > before, within_s, f"the end of {line}")
        else:
            self._until(
                lambda: until in "\n".join(self._screen.display), within_s, f"{until!r} of {line}"
            )

    def interrupt(self) -> None:
        """Press Ctrl-C, and wait for the prompt."""
        before = self._prompts
        self._bash.sendintr()
        self._until(lambda: self._prompts > before, 10, "a prompt after Ctrl-C")

    def look_on(self, seconds: float) -> None:
        """Let what runs go on for a while."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self._read()

    def full_screen(self, line: str, *keys: tuple[str, str], rows: int, leave: str = "q") -> None:
        """Type the command of a program that draws on the whole screen, keep what it shows, and
        leave it.

        Args:
            keys: what is pressed, and words on the screen for which to wait before.
            rows: how high the terminal is meanwhile.

        Raises:
            TerminalError: the words do not come.
        """
        self._screen.erase_in_display(2)
        self._bash.setwinsize(rows, self._screen.columns)
        before = self._prompts
        self._bash.send(f"{line}\n")
        for press, until in keys:
            self._until(
                partial(self._shows, until),
                60,
                f"{until!r} of {line}",
            )
            self.look_on(0.5)
            self._bash.send(press)
        self.look_on(2)
        self._kept = [
            Text.assemble(("$ ", "bold green"), line),
            *(self._line(number) for number in range(rows)),
        ]
        self._bash.send(leave)
        self._until(lambda: self._prompts > before, 10, f"a prompt after {leave} in {line}")

    def lines(self) -> list[Text]:
        """Return the screen from its first line to the last that says something, a last empty
        prompt left out.

        After a program on the whole screen: what that showed.
        """
        if self._kept:
            return self._kept
        rows = [self._line(number) for number in range(_SCROLLED)]
        while rows and rows[-1].plain in ("", "$"):
            rows.pop()
        return rows

    def _until(self, done: Callable[[], bool], within_s: float, what: str) -> None:
        deadline = time.monotonic() + within_s
        while not done():
            if time.monotonic() > deadline:
                shown = "\n".join(line.plain for line in self.lines())
                raise TerminalError(
                    f"waited {within_s:g} s in vain for {what}; the screen says\n{shown}"
                )
            self._read()

    def _shows(self, text: str) -> bool:
        return text in "\n".join(self._screen.display)

    def _read(self) -> None:
        with suppress(pexpect.TIMEOUT):
            data = self._bash.read_nonblocking(65536, timeout=0.2)
            self._prompts += data.count(_PROMPT_IS_HERE)
            self._stream.feed(data)

    def _line(self, number: int) -> Text:
        row = self._screen.buffer[number]
        text = Text()
        for style, chars in groupby(
            (row[column] for column in range(self._screen.columns)), _style
        ):
            text.append("".join(char.data for char in chars), style)
        text.rstrip()
        return text


def _style(char: Char) -> Style:
    return Style(
        color=_colour(char.fg),
        bgcolor=_colour(char.bg),
        bold=char.bold,
        italic=char.italics,
        underline=char.underscore,
        reverse=char.reverse,
    )


def _colour(name: str) -> str | None:
    """Return rich's name of a colour of pyte, which calls yellow brown and writes those of 256 in
    hexadecimal.
    """
    if len(name) == 6 and set(name) <= set("0123456789abcdef"):
        return f"#{name}"
    name = name.replace("bright", "bright_") if name.startswith("bright") else name
    return _PYTE_NAMES.get(name, name)
