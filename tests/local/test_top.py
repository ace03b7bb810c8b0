"""hpcrun top in a real terminal, without Slurm."""

from __future__ import annotations

from tests.harness import Hpcrun
from tests.screens import Screen


def test_the_terminal_s_own_size_counts_not_that_of_its_environment(hpcrun: Hpcrun) -> None:
    """A shell that exports COLUMNS keeps the size of the window in which it began."""
    name = "a-name-of-sixty-letters-that-leaves-little-room-for-the-rest-"
    hpcrun("submit", "-P", "local", "--gpus", "0", "--wait", "--name", name, "false")
    top = Screen(hpcrun, "top", env={"COLUMNS": "160", "LINES": "50"})
    top.until(lambda: "? all keys  q quit" in top.lines[23] and any("FAILED" in line for line in top.lines))
    top.child.send(b"\xff")  # a key that is not UTF-8
    top.child.send("/x")
    top.until(lambda: top.lines[22].startswith("/x"))
    headings = next(line for line in top.lines if "STATE" in line)
    assert "SIZE" not in headings  # there is room for it in 160 columns
    top.child.send("\r")
    top.child.send("q")
    top.until(lambda: top.is_over)
