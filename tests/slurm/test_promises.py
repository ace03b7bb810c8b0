"""What hpcrun promises of signals, statuses and processes, as far as only Slurm can show it."""

from __future__ import annotations

import os
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

pytestmark = pytest.mark.slurm

LAUNCHERS = ("torchrun", "srun")
PAIR = ("--cpus", "2", "--nproc-per-node", "2")
TWO_BY_TWO = (
    *without("v100-1", "v100-2", "l40s-1", "l40s-2", "h200-1", "a40-1"),
    "--nodes",
    "2",
    *PAIR,
)
ON_CPU = (*SMALL, "-p", "cpu", *PAIR)

SCRIPTS = {
    # one rank ends in its own way, the others wait
    "dies.py": """
import os, signal, sys, time
rank, how = sys.argv[1:]
if os.environ["RANK"] != rank:
    time.sleep(600)
time.sleep(1)
if how == "SEGV":
    os.kill(os.getpid(), signal.SIGSEGV)
sys.exit(int(how))
""",
    # saves whenever it hears SIGTERM, longer on the second node: a second SIGTERM would be seen
    "saves.py": """
import os, signal, sys, time
def save(*_):
    print("told", flush=True)
    end = time.monotonic() + float(sys.argv[1]) + 2 * float(os.environ["HPCRUN_NODE_RANK"])
    while time.monotonic() < end:
        time.sleep(0.05)
    print("saved", flush=True)
    sys.exit(0)
if os.environ["HPCRUN_ATTEMPT"] != "0":
    print("again", flush=True)
    time.sleep(3)
    sys.exit(0)
signal.signal(signal.SIGTERM, save)
print("ready", flush=True)
while True:
    time.sleep(0.05)
""",
    # rank 0 leaves at once, rank 1 asks whether it should stop
    "asks.py": """
import os, sys, time
from hpcrun_runtime import attempt, should_stop
print("ready", flush=True)
if os.environ["RANK"] == "0" or attempt():
    sys.exit(0)
while not should_stop():
    time.sleep(0.1)
print("stopped", flush=True)
""",
    "plain.py": """
import time
print("ready", flush=True)
time.sleep(600)
""",
}


# --- the processes of a job ----------------------------------------------------------------------


def tasks(folder: Path) -> list[int]:
    """Return the tasks of a run's step: those that Slurm signals where it tracks processes with
    cgroups.
    """
    found = []
    for pid in processes(folder, of="SLURM_STEP_ID=0"):
        if Path(f"/proc/{parent_of(pid)}/comm").read_text().strip() == "slurmstepd":
            found.append(pid)
    return found


# --- the scenarios: each runs in a thread of its own ---------------------------------------------


def gone(lab: Lab, folder: Path) -> Ended:
    """Wait for a job's end, and for that of its processes; ``said`` is what the accounting says."""
    ended = lab.ended(folder, 180)
    job = lab.job(folder)
    try:
        wait_for(lambda: not processes(folder), 10, f"the processes of {folder.name} to end")
    except AssertionError as error:
        raise AssertionError(
            f"{error}: {[(name, words_of(pid)) for pid, name in processes(folder).items()]}"
        ) from None
    said = lab.cluster.slurm("sacct", "-nPX", "-o", "State,ExitCode", "-j", job).strip()
    return Ended(ended.folder, ended.status, ended.table, said=said)


def dies(lab: Lab, launcher: str, rank: str, how: str, requeue: int) -> Ended:
    name = f"dies-{launcher}-{how}-{requeue}"
    return gone(
        lab,
        lab.submit(
            name, *TWO_BY_TWO, "--launcher", launcher, "dies.py", rank, how, requeue=requeue
        ),
    )


def saves(lab: Lab, launcher: str, by: str, requeue: int) -> Ended:
    """The grace is KillWait, 5 s, at scancel, and no shorter than what is asked for where only the
    tasks were told.
    """
    seconds = "4" if by == "scancel" else "6"
    name = f"saves-{launcher}-{by}-{requeue}"
    folder = lab.submit(name, *ON_CPU, "--launcher", launcher, "saves.py", seconds, requeue=requeue)
    begun(folder, ranks=2)
    if by == "scancel":
        lab.person.run("scancel", lab.job(folder))
    else:
        for pid in tasks(folder):
            os.kill(pid, signal.SIGTERM)
    return gone(lab, folder)


def preempted(lab: Lab) -> dict[str, Ended]:
    """Jobs on one node and two, with a grace time of 10 s."""
    place = (*SMALL, "-p", "preempt", *PAIR)
    two, one = ("--nodes", "2", "--nodelist", "h100-[1-2]"), ("--nodelist", "h100-1")
    folders = {
        launcher: lab.submit(launcher, *place, *two, "--launcher", launcher, "saves.py", "5")
        for launcher in LAUNCHERS
    }
    folders["once"] = lab.submit(
        "once", *place, *one, "--launcher", "srun", "saves.py", "6", requeue=0
    )
    folders["plain"] = lab.submit("plain", *SMALL, "-p", "preempt", *one, "plain.py", requeue=0)
    for name, folder in folders.items():
        begun(folder, ranks={"once": 2, "plain": 1}.get(name, 4))
    lab.preempt("h100-1")
    left = {}
    for launcher in LAUNCHERS:
        begun(folders[launcher], 1)
        left[launcher] = processes(folders[launcher], of="HPCRUN_ATTEMPT=0")
    assert not any(left.values()), left
    return {name: gone(lab, folder) for name, folder in folders.items()}


def asks(lab: Lab, launcher: str) -> Ended:
    """The warning comes when the first rank of the node is gone."""
    folder = lab.submit(
        f"asks-{launcher}", *ON_CPU, "--launcher", launcher, "--warn", "20s", "asks.py"
    )
    wait_for((begun(folder, ranks=2) / "rank-0.exit").exists, 10, "the end of rank 0")
    lab.warn(folder)
    return gone(lab, folder)


# Each torchrun imports torch, on every node: every value with srun, and one of each kind with
# torchrun.
DEATHS = [("torchrun", "3", "7", 1), ("srun", "1", "SEGV", 1), ("srun", "3", "7", 0)]
SAVERS = [("torchrun", "scancel", 0), ("srun", "tasks", 1)]


def one_of(scenario: Callable[..., Any], *arguments: object) -> Callable[[Lab], Any]:
    return lambda lab: scenario(lab, *arguments)


SCENARIOS: dict[str, Callable[[Lab], Any]] = {
    "preempted": preempted,
    **{f"saves {saver}": one_of(saves, *saver) for saver in SAVERS},
    **{f"asks {launcher}": one_of(asks, launcher) for launcher in LAUNCHERS},
    **{f"dies {death}": one_of(dies, *death) for death in DEATHS},
}
THREADS = 6


@pytest.mark.parametrize("death", DEATHS, ids=str)
def test_the_accounting_has_the_status_of_the_rank_that_failed_first(
    scenarios: Scenarios, death: Any
) -> None:
    run: Ended = scenarios[f"dies {death}"].result()
    _, rank, how, _ = death
    status = 139 if how == "SEGV" else int(how)
    # before 26.05 sacct takes 128 off, for plain sbatch too
    assert run.said in (f"FAILED|{status}:0", f"FAILED|{status % 128}:0")
    assert (run.exit(0)["status"], run.starts, run.status["exit_status"]) == (status, 1, status)
    assert (run.rank_exit(0, int(rank))["status"], run.rank_exit(0, int(rank))["told"]) == (
        status,
        "",
    )
    # srun may kill a wrapper of another node before it can say anything
    for other in {0, 1, 2, 3} - {int(rank)}:
        if (attempt(run.folder, 0) / f"rank-{other}.exit").exists():
            # Slurm signals one process after another, so that the program may be gone before its
            # wrapper hears
            assert run.rank_exit(0, other)["told"] or run.rank_exit(0, other)["status"] == 143


@pytest.mark.parametrize("saver", SAVERS, ids=str)
def test_a_handler_runs_once_and_has_the_whole_grace(scenarios: Scenarios, saver: Any) -> None:
    run: Ended = scenarios[f"saves {saver}"].result()
    for rank in (0, 1):
        assert run.log(0, rank) == "ready\ntold\nsaved\n"
        record = run.rank_exit(0, rank)
        assert record["status"] == 0
        assert record["told"] == "TERM"
        assert record["heard"] is True
    assert run.starts == 1
    if saver[1] == "scancel":
        assert run.state == "CANCELLED"
        assert (run.exit(0)["status"], run.exit(0)["signal"]) == (143, "TERM")
        assert run.exit(0)["reason"] == "cancelled"
    else:  # nobody else knows of that signal
        assert (run.said, run.exit(0)["status"]) == ("COMPLETED|0:0", 0)
        assert run.exit(0)["reason"] == "terminated"


@pytest.mark.versions
@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_at_preemption_the_ranks_of_all_nodes_save_however_long_each_takes(
    scenarios: Scenarios, launcher: str
) -> None:
    run: Ended = scenarios["preempted"].result()[launcher]
    assert [run.log(0, rank) for rank in range(4)] == ["ready\ntold\nsaved\n"] * 4
    assert [run.rank_exit(0, rank)["status"] for rank in range(4)] == [0] * 4
    assert run.exit(0)["reason"] == "preemption"
    assert run.exit(0)["again"] is True
    assert (run.state, run.starts) == ("COMPLETED", 2), run.account
    assert [run.log(1, rank) for rank in range(4)] == ["again\n"] * 4


def test_a_preempted_job_that_may_not_come_back_saves_too(scenarios: Scenarios) -> None:
    run: Ended = scenarios["preempted"].result()["once"]
    assert [run.log(0, rank) for rank in (0, 1)] == ["ready\ntold\nsaved\n"] * 2
    assert run.state == "PREEMPTED"
    assert run.starts == 1
    assert run.exit(0)["again"] is False
    assert [run.rank_exit(0, rank)["told"] for rank in (0, 1)] == ["TERM"] * 2


def test_a_preempted_job_that_hears_nothing_and_may_not_come_back_says_so(
    scenarios: Scenarios,
) -> None:
    run: Ended = scenarios["preempted"].result()["plain"]
    assert (run.state, run.starts) == ("PREEMPTED", 1), run.account
    assert (run.rank_exit(0)["status"], run.rank_exit(0)["told"]) == (143, "TERM")
    assert (run.exit(0)["status"], run.exit(0)["reason"], run.exit(0)["again"]) == (
        143,
        "preemption",
        False,
    )


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_the_ranks_of_a_node_whose_first_has_left_hear_the_warning(
    scenarios: Scenarios, launcher: str
) -> None:
    run: Ended = scenarios[f"asks {launcher}"].result()
    assert run.log(0, 1) == "ready\nstopped\n"
    # 143 where it was given up
    assert (run.exit(0)["reason"], run.exit(0)["status"]) == ("time_limit", 124)
    assert (run.state, run.starts) == ("COMPLETED", 2), run.account
