"""hpcrun top in a real terminal, without Slurm."""

from __future__ import annotations

import re

from tests.harness import Hpcrun
from tests.screens import Screen


def test_the_terminal_s_own_size_counts_a_run_is_cancelled_and_the_terminal_is_restored(
    hpcrun: Hpcrun,
) -> None:
    """A shell that exports COLUMNS keeps the size of the window in which it began."""
    name = "a-name-of-sixty-letters-that-leaves-little-room-for-the-rest-"
    hpcrun("submit", "-P", "local", "--gpus", "0", "--wait", "--name", name, "false")
    hpcrun("submit", "-P", "local", "--gpus", "0", "-J", "stays", "sleep", "600", check=True)
    top = Screen(hpcrun, "top", env={"COLUMNS": "160", "LINES": "50"})
    top.until(lambda: "? all keys  q quit" in top.lines[23] and "RUNNING" in top.row("stays"))
    top.child.send(b"\xff")  # a key that is not UTF-8
    top.child.send("c")  # the cursor stands on the newest
    top.until(lambda: any("Cancel 1 run?" in line for line in top.lines))
    top.child.send("y")
    top.until(lambda: "CANCELLED" in top.row("stays"))
    top.until(lambda: "cancelled job " in top.lines[-2])
    top.child.send("/x")
    top.until(lambda: top.lines[22].startswith("/x"))
    headings = next(line for line in top.lines if "STATE" in line)
    assert "SIZE" not in headings  # there is room for it in 160 columns
    top.child.send("\r")
    top.child.send("q")
    top.until(lambda: top.is_over)
    assert top.child.wait() == 0
    assert b"\x1b[?1049l" in top.bytes  # the screen from before is back
    assert re.search(rb"\x1b\[(?:[0-9;]*;)?[349][0-7](?:;[0-9;]*)?m", top.bytes) is None  # NO_COLOR
