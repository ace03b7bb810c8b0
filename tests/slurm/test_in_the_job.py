"""On a real Slurm: spare nodes that are dead, killed parts, the node's folder, and a launcher that
fails first.
"""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.harness import wait_for
from tests.slurm.lab import (
    SMALL,
    Ended,
    Lab,
    Scenarios,
    attempt,
    begun,
    parent_of,
    processes,
    without,
    words_of,
)
from tests.slurm.test_promises import gone

pytestmark = [pytest.mark.slurm, pytest.mark.versions]

SCRIPTS = {
    # fails on its last rank once the cable of another node has been pulled
    "restarts.py": """
import os, sys, time
print("attempt", os.environ["HPCRUN_ATTEMPT"], flush=True)
while os.environ["HPCRUN_ATTEMPT"] == "0":
    time.sleep(0.2)
    if os.environ["RANK"] == "1" and os.path.exists(sys.argv[1]):
        sys.exit(3)
""",
    # its own child is to be ended, too
    "sleeps.py": """
import os, subprocess, time
child = subprocess.Popen(["sleep", "600"])
print(os.environ["HPCRUN_NODE_DIR"], flush=True)
child.wait()
""",
}
# on the second node, torchrun's Python cannot import what it needs; the first waits for it
SITE = """
import os, sys
if os.environ.get("SLURM_NODEID") == "1" and "torch.distributed.run" in sys.orig_argv:
    os._exit(1)
"""
TWO = (
    "--nodes",
    "2",
    "--launcher",
    "srun",
    "--retry-on-failure",
    "--exclude-bad-nodes",
    "--restarts",
    "1",
)


# --- the scenarios -------------------------------------------------------------------------------


def dead_spare(lab: Lab) -> Ended:
    """Pull the cable of the first of two spare nodes, and let the second node of the step fail soon
    after.
    """
    nodes = ("a100-1", "a100-2", "h100-1", "h100-2")
    pulled = lab.person.folder / "pulled"
    folder = lab.submit(
        "dead", *without(*nodes), *TWO, "--spares", "2", "restarts.py", str(pulled), requeue=0
    )
    used = (begun(folder, ranks=2) / "hosts").read_text().split()
    lab.cluster.unplug(next(node for node in nodes if node not in used))
    pulled.touch()
    return lab.ended(folder, 120)


def no_spare(lab: Lab) -> Ended:
    """Pull the cables of the only spare node and of the second node of the step; ``said`` is what
    explain says.
    """
    nodes = ("h200-1", "l40s-1", "l40s-2")
    folder = lab.submit(
        "none", *without(*nodes), *TWO, "--spares", "1", "restarts.py", "/no/such", requeue=0
    )
    head = (begun(folder, ranks=2) / "hosts").read_text().split()[0]
    for node in {*nodes} - {head}:
        lab.cluster.unplug(node)
    ended = lab.ended(folder, 240)
    return Ended(folder, ended.status, ended.table, said=lab.person("explain", folder.name).stdout)


def killed(lab: Lab, launcher: str, part: str) -> Ended:
    """Kill a part of launch on one node; ``said`` is what explain says."""
    ranks = ("--nproc-per-node", "2") if launcher != "command" else ()
    program = ("sleeps.py",) if launcher != "command" else ("python", "sleeps.py")
    folder = lab.submit(
        f"killed-{launcher}-{part}",
        *SMALL,
        "-p",
        "cpu",
        "--cpus",
        "2",
        *ranks,
        "--launcher",
        launcher,
        *program,
        requeue=0,
    )
    begun(folder, ranks=2 if ranks else 1)
    own = [
        pid
        for pid in processes(folder)
        if words_of(pid)[2:4] and words_of(pid)[2].endswith("/launch/__main__.py")
    ]
    parts = [
        pid for pid in own if words_of(pid)[3] == part and words_of(parent_of(pid)) != words_of(pid)
    ]
    os.kill(parts[0], signal.SIGKILL)
    ended = gone(lab, folder)
    shared = Path((attempt(folder, 0) / "rank-0.out").read_text().split()[0])
    wait_for(lambda: not shared.exists(), 10, "the node's folder to go")
    explain = lab.person("explain", folder.name).stdout
    return Ended(folder, ended.status, ended.table, said=f"{ended.said}\n{explain}")


def fails_before_ranks(lab: Lab) -> Ended:
    site = lab.person.folder / "site-of-node"
    site.mkdir()
    (site / "sitecustomize.py").write_text(SITE)
    where = (
        *without("v100-1", "v100-2"),
        "--nodes",
        "2",
        "--nproc-per-node",
        "1",
        "--launcher",
        "torchrun",
    )
    paths = ":".join(filter(None, (str(site), lab.person.environ.get("PYTHONPATH"))))
    return gone(
        lab, lab.submit("agent", *where, "--env", f"PYTHONPATH={paths}", "sleeps.py", requeue=0)
    )


KILLED = [("torchrun", "node"), ("srun", "rank")]


def killing(launcher: str, part: str) -> Callable[[Lab], Any]:
    return lambda lab: killed(lab, launcher, part)


SCENARIOS: dict[str, Callable[[Lab], Any]] = {
    "no spare": no_spare,
    "dead spare": dead_spare,
    "agent": fails_before_ranks,
    **{f"killed {launcher} {part}": killing(launcher, part) for launcher, part in KILLED},
}
THREADS = 5


def test_a_dead_spare_is_left_out(scenarios: Scenarios) -> None:
    run: Ended = scenarios["dead spare"].result()
    assert (run.state, run.starts) == ("COMPLETED", 2), run.account
    before, after = (
        (attempt(run.folder, number) / "hosts").read_text().split() for number in (0, 1)
    )
    assert len(before) == len(after) == 2
    assert before[1] not in after


def test_if_too_few_nodes_are_left_the_job_and_explain_say_so(scenarios: Scenarios) -> None:
    run: Ended = scenarios["no spare"].result()
    assert run.starts == 1, run.account
    assert "too few nodes are left" in run.exit(0)["message"]
    assert "too few nodes are left" in run.said
    assert "srun's options" not in run.said


@pytest.mark.parametrize("part", KILLED, ids=str)
def test_nothing_survives_a_part_that_is_killed(
    scenarios: Scenarios, part: tuple[str, str]
) -> None:
    run: Ended = scenarios[f"killed {' '.join(part)}"].result()
    assert (run.state, run.exit(0)["status"]) == ("FAILED", 137), run.account
    assert re.search(
        r"the (wrapper|launcher) of (the|this) rank was killed", " ".join(run.said.split())
    ), run.said


def test_the_job_has_the_status_of_the_launcher_that_failed_first(scenarios: Scenarios) -> None:
    run: Ended = scenarios["agent"].result()
    assert (run.said, run.exit(0)["status"]) == ("FAILED|1:0", 1), run.account
