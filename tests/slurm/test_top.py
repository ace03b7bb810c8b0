"""hpcrun top in a real terminal on a real Slurm: a run from pending to failed, one that is cancelled, and the end."""

from __future__ import annotations

import re

import pytest

from tests.harness import Cluster, Hpcrun
from tests.screens import Screen

pytestmark = pytest.mark.slurm
JOB = ("submit", "-P", "cpu", "-G", "0", "-c", "1", "--launcher", "python")


def test_a_run_goes_from_pending_to_failed_another_is_cancelled_and_the_terminal_is_restored(
    as_researcher: Hpcrun, cluster: Cluster
) -> None:
    person = as_researcher
    person(*JOB, "-J", "stays", "sleep", "600", check=True)
    person(*JOB, "--sbatch", "hold", "-J", "fails", "sh", "-c", "sleep 1; exit 3", check=True)
    top = Screen(person, "top")
    top.until(lambda: "RUNNING" in top.row("stays") and "held by you" in top.row("fails"))
    assert "PENDING" in top.row("fails")
    top.child.send("U")  # the cursor stands on the newest
    top.until(lambda: any("Release 1 run?" in line for line in top.lines))
    top.child.send("y")
    top.until(lambda: "RUNNING" in top.row("fails"))
    top.until(lambda: "FAILED" in top.row("fails"))
    top.until(lambda: "rank 0 on cpu-1 failed" in top.row("fails"))
    top.child.send("jc")
    top.until(lambda: any("Cancel 1 run?" in line for line in top.lines))
    top.child.send("y")
    top.until(lambda: "CANCELLED" in top.row("stays"))
    top.until(lambda: top.lines[-2].startswith("cancelled job "))
    top.child.send("3")
    top.until(lambda: top.lines[0].startswith("queue by partition  as of"))
    top.child.send("q")
    top.until(lambda: top.is_over)
    assert top.child.wait() == 0
    assert b"\x1b[?1049l" in top.bytes  # the screen from before is back
    assert re.search(rb"\x1b\[(?:[0-9;]*;)?[349][0-7](?:;[0-9;]*)?m", top.bytes) is None  # NO_COLOR
