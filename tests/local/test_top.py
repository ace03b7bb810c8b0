"""hpcrun top in a real terminal, without Slurm."""

from __future__ import annotations

import time
from contextlib import suppress
from typing import Any, cast

import pexpect
import pyte

from tests.harness import Hpcrun


def test_the_terminal_s_own_size_counts_not_that_of_its_environment(hpcrun: Hpcrun) -> None:
    """A shell that exports COLUMNS keeps the size of the window in which it began."""
    name = "a-name-of-sixty-letters-that-leaves-little-room-for-the-rest-"
    hpcrun("submit", "-P", "local", "--gpus", "0", "--wait", "--name", name, "false")
    screen = pyte.Screen(80, 24)
    stream = pyte.ByteStream(screen)
    program, *args = hpcrun.argv("top")
    env = {**hpcrun.environ, "TERM": "xterm-256color", "NO_COLOR": "1", "COLUMNS": "160", "LINES": "50"}
    child = pexpect.spawn(program, args, env=cast("Any", env), cwd=str(hpcrun.folder), dimensions=(24, 80))
    end = time.monotonic() + 30
    while not ("? all keys  q quit" in screen.display[23] and any("FAILED" in line for line in screen.display)):
        assert time.monotonic() < end, "\n".join(screen.display)
        try:
            stream.feed(child.read_nonblocking(65536, timeout=0.2))
        except pexpect.TIMEOUT:
            continue
    child.send(b"\xff")  # a key that is not UTF-8
    child.send("/x")
    while not screen.display[22].startswith("/x"):
        assert time.monotonic() < end, "\n".join(screen.display)
        with suppress(pexpect.TIMEOUT):
            stream.feed(child.read_nonblocking(65536, timeout=0.2))
    child.send("\r")
    child.send("q")
    child.expect(pexpect.EOF, timeout=20)
    child.close()
    headings = next(line for line in screen.display if "STATE" in line)
    assert "SIZE" not in headings  # there is room for it in 160 columns
