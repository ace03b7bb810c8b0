"""A command of hpcrun that draws on the whole screen of a terminal, as a person sees it."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

import pexpect
import pyte

from tests.harness import Hpcrun


class Screen:
    """A command on a terminal of 80×24, without colours."""

    def __init__(self, person: Hpcrun, *args: str, env: Mapping[str, str] | None = None) -> None:
        self._screen = pyte.Screen(80, 24)
        self._stream = pyte.ByteStream(self._screen)
        colours = {"TERM": "xterm-256color", "NO_COLOR": "1"}
        self.child = person.terminal(
            *args, env={**colours, **(env or {})}, size=(24, 80), encoding=None
        )
        self.bytes, self.is_over = b"", False

    @property
    def lines(self) -> list[str]:
        return [line.rstrip() for line in self._screen.display]

    def row(self, name: str) -> str:
        """The line of a run; empty where it is not shown."""
        return next((line for line in self.lines if line.strip(" *").startswith(f"{name} ")), "")

    def until(self, shown: Callable[[], bool], within_s: float = 60) -> None:
        end = time.monotonic() + within_s
        while not shown():
            assert time.monotonic() < end, "\n".join(self.lines)
            try:
                data = self.child.read_nonblocking(65536, timeout=0.2)
            except pexpect.TIMEOUT:
                continue
            except pexpect.EOF:
                self.is_over = True
                continue
            self.bytes += data
            self._stream.feed(data)
