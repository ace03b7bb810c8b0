"""A program under hpcrun behaves as without it: its signals, its children, its output, its
status.
"""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.harness import wait_for
from tests.launch.jobs import HOW, job, python, send

MANAGED = ("--grace", "60", "--requeue", "1")


@pytest.mark.parametrize("options", [(), MANAGED], ids=["plain", "requeue"])
def test_signals_are_as_a_shell_gives_them(tmp_path: Path, options: tuple[str, ...]) -> None:
    masks = (
        "grep -E '^Sig(Blk|Ign|Cgt)' /proc/self/status; python3 -c 'import os; "
        "print(os.getpgrp() == os.getppid())'"
    )
    shell = ["env", "--default-signal", "sh", "-c", masks]
    plain = subprocess.run(shell, capture_output=True, text=True, check=True).stdout
    with job(tmp_path, ["sh", "-c", masks], options=options) as running:
        assert running.end() == 0
        assert signal_masks(running.out()) == signal_masks(plain)
        assert running.out().splitlines()[3] == "True"  # it leads a process group


def signal_masks(status: str) -> dict[str, int]:
    """The masks in /proc/self/status, without 32 and 33, which glibc keeps for itself and ignores
    in posix_spawn.
    """
    pairs = (line.split(":") for line in status.splitlines() if line.startswith("Sig"))
    return {name: int(mask, 16) & ~(0b11 << 31) for name, mask in pairs}


POOL = """
import multiprocessing
if __name__ == "__main__":
    with multiprocessing.get_context("{}").Pool(2) as pool:
        print(pool.map(abs, [-1, -2]))
    print("closed")
"""
TERMINATE = (
    "import subprocess\nchild = subprocess.Popen(['sleep', "
    "'900'])\nchild.terminate()\nprint(child.wait(5))\n"
)
SHELL = """
import subprocess
command = ["sh", "-c", "sleep 900 & kill $!; wait $!; echo $?"]
print(subprocess.run(command, stdout=-1, text=True, timeout=5).stdout)
"""


@pytest.mark.parametrize(
    ("text", "options"),
    [
        (TERMINATE, ()),
        (TERMINATE, MANAGED),
        (SHELL, ()),
        *((POOL.format(way), MANAGED) for way in ("fork", "forkserver")),
    ],
)
def test_what_it_starts_can_be_terminated(
    tmp_path: Path, text: str, options: tuple[str, ...]
) -> None:
    program = python(tmp_path, text)
    alone = subprocess.run(program, capture_output=True, text=True, check=True).stdout
    with job(tmp_path, program, options=options) as running:
        assert running.end() == 0
        assert running.out() == alone


COUNTS = """
import os, signal, sys, time
number = getattr(signal, sys.argv[1])
def told(*_):
    print("told", flush=True)
    time.sleep(float(sys.argv[2]))
    print("saved", flush=True)
    os._exit(0)
heard = []
def noted(*_):
    print("told", flush=True)
    heard.append(time.monotonic())
signal.signal(number, noted if len(sys.argv) > 3 else told)
print("up", flush=True)
deadline = time.monotonic() + 60
# a second signal would come soon after the first
while time.monotonic() < (heard[0] + 1.5 if heard else deadline):
    time.sleep(0.05)
"""


# every pair of a signal, a way to send it, and a kind of job
@pytest.mark.parametrize(
    ("name", "how", "options"),
    [
        ("SIGTERM", "signal_every", ()),
        ("SIGTERM", "signal_tasks", MANAGED),
        ("SIGUSR1", "signal_every", MANAGED),
        ("SIGUSR1", "signal_tasks", ()),
        ("SIGUSR2", "signal_every", ()),
        ("SIGUSR2", "signal_tasks", MANAGED),
    ],
)
def test_a_handler_runs_once_however_slurm_signals(
    tmp_path: Path, how: str, name: str, options: tuple[str, ...]
) -> None:
    program = [*python(tmp_path, COUNTS), name, "0", "go on"]
    with job(tmp_path, program, nodes=2, options=options) as running:
        for rank in (0, 1):
            running.until("up", rank)
        getattr(running, how)(getattr(signal, name))
        running.end()
        assert [running.out(rank).split() for rank in (0, 1)] == [["up", "told"]] * 2


def test_a_signal_to_every_process_of_a_script_reaches_its_program_once(tmp_path: Path) -> None:
    words = shlex.join([*python(tmp_path, COUNTS), "SIGUSR1", "0", "go on"])
    script = tmp_path / "script"
    script.write_text(f'#!/bin/bash\ntrap : USR1\n"$HPCRUN_LAUNCH" :: {words}\n')
    command = ["/bin/bash", str(script)]
    with job(tmp_path, command, chain=(), options=("--script",)) as running:
        running.until("up")
        for pid in running.processes():
            send(pid, signal.SIGUSR1)
        running.end()
        assert running.out().split() == ["up", "told"]


def test_a_node_passes_on_a_signal_after_one_to_every_process(tmp_path: Path) -> None:
    program = ["sh", "-c", "trap 'echo told' USR1; echo up; while :; do sleep 0.05; done"]
    with job(tmp_path, program) as running:
        running.until("up")
        running.signal_every(signal.SIGUSR1)
        running.until("told")
        time.sleep(1.5)  # once a second a node prepares for the next signal
        running.signal_tasks(signal.SIGUSR1)
        running.until("told\ntold")


@pytest.mark.parametrize("how", HOW)
def test_a_handler_that_saves_has_the_time_and_a_program_without_one_dies_of_sigterm_as_it_would(
    tmp_path: Path, how: str
) -> None:
    saves, none = (
        [*python(tmp_path, COUNTS), "SIGTERM", "3"],
        ["sh", "-c", "echo up; exec sleep 900"],
    )
    with job(tmp_path / "a", saves, options=MANAGED) as saving, job(tmp_path / "b", none) as dying:
        for running in (saving, dying):
            running.until("up")
            getattr(running, how)(signal.SIGTERM)
        assert saving.end() == 0
        assert saving.out().split() == ["up", "told", "saved"]
        assert dying.end() == 143
        assert dying.rank(0)["told"] == "TERM"


def test_faulthandler_shows_where_it_is_when_warned(tmp_path: Path) -> None:
    text = "import faulthandler, signal, time\nfaulthandler.register(signal.SIGUSR1)\n"
    text += "print('up')\ntime.sleep(4)\nprint('on')\n"
    with job(tmp_path, python(tmp_path, text), options=MANAGED) as running:
        running.until("up")
        os.kill(running.process.pid, signal.SIGUSR1)
        running.end()
        assert "most recent call first" in running.err()
        assert running.out() == "up\non\n"


def test_a_program_that_was_still_starting_is_warned_when_it_listens(tmp_path: Path) -> None:
    text = "import signal, sys, time\nprint('imports', flush=True)\ntime.sleep(3)\n"
    text += "signal.signal(signal.SIGUSR1, lambda *_: print('told', flush=True))\ntime.sleep(4)\n"
    with job(tmp_path, python(tmp_path, text), options=MANAGED) as running:
        running.until("imports")
        os.kill(running.process.pid, signal.SIGUSR1)
        running.end()
        assert running.out() == "imports\ntold\n"
        assert running.record["reason"] == "time_limit"


def test_a_warning_kills_nobody(tmp_path: Path) -> None:
    ignores = ["sh", "-c", "trap '' USR1 TERM; sleep 3"]
    with (
        job(tmp_path / "a", ["sleep", "3"], options=MANAGED) as one,
        job(tmp_path / "b", ignores, options=MANAGED) as other,
    ):
        for running in (one, other):
            wait_for((running.attempt / "rank-0.out").exists, 20, "the program")
            os.kill(running.process.pid, signal.SIGUSR1)
        for running in (one, other):
            assert running.end() == 0
            assert running.record["reason"] == ""
            assert running.rank(0)["heard"] is False


def test_output_goes_where_it_went(tmp_path: Path) -> None:
    # the node that fails first ends the other one: each waits until both have written
    wrote = [f'[ -s "$HPCRUN_ATTEMPT_DIR/rank-{rank}.err" ]' for rank in (0, 1)]
    both = f"until {' && '.join(wrote)}; do sleep 0.01; done"
    with job(tmp_path, ["sh", "-c", f"echo out; echo err >&2; {both}; exit 5"], nodes=2) as running:
        assert running.end() == 5
        assert [(running.out(rank), running.err(rank)) for rank in (0, 1)] == [
            ("out\n", "err\n")
        ] * 2


@pytest.mark.parametrize(("program", "status"), [("/no/such/program", 127), ("/etc/passwd", 126)])
def test_what_cannot_be_started_is_said(tmp_path: Path, program: str, status: int) -> None:
    with job(tmp_path, [program]) as running:
        assert running.end() == status
        assert running.err().startswith(f"hpcrun: cannot start {program}: ")
        assert running.rank(0)["status"] == status
