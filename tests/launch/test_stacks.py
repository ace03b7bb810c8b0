"""What a node says of its ranks for explain --stacks, and that no rank is disturbed: real
processes, real py-spy.
"""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from hpcrun.explain.diagnosis.stack_groups import RankStack
from hpcrun.explain.stacks import Answers, read_answers
from hpcrun.machine.process import Completed
from tests.harness import REPO, wait_for
from tests.launch.jobs import ONCE, PROBE, Running, environment, job, python
from tests.unit.builders import write

SPY = Path(sys.executable).with_name("py-spy")
WAITS = "import time\ndef wait_for_data():\n    time.sleep(60)\nprint('go')\nwait_for_data()\n"
SPINS = "def spin():\n    while True: number = 1\nprint('go')\nspin()\n"
REGISTERED = (
    f"import sys\nsys.path.append({str(REPO / 'hpcrun/in_job')!r})\nimport hpcrun_runtime as "
    "r\nr.register_stacks()\n"
)
HAS_HANDLER = "import signal\nfor number in range(signal.SIGRTMIN, signal.SIGRTMAX + 1):\n"
HAS_HANDLER += "    signal.signal(number, lambda *_: print('signalled'))\n"
WITHOUT_SPY = "/usr/bin/python3"


def answers(
    running: Running, py_spy: str = "", env: dict[str, str] | None = None, cwd: Path | None = None
) -> str:
    """What the program prints, in an environment in which it finds no py-spy but this one."""
    command = [WITHOUT_SPY, *PROBE[1:], str(running.attempt), py_spy]
    done = subprocess.run(
        command, env=env or ENV, cwd=cwd, capture_output=True, text=True, timeout=60, check=True
    )
    return done.stdout


def asked(running: Running, *, py_spy: str = "", **more: Any) -> Answers:
    return read_answers(Completed("stacks", 0, answers(running, py_spy, **more), ""))


def asked_rank(running: Running, **more: Any) -> RankStack:
    """What is said of the job's only rank; a busy node may not find its ranks in time."""
    (rank,) = wait_for(lambda: asked(running, **more).ranks, 60, "the rank to be found")
    return rank


def without_spy(folder: Path, text: str) -> list[str]:
    """A program in whose environment there is no py-spy."""
    return [WITHOUT_SPY, *python(folder, text)[1:]]


def script(path: Path, text: str) -> Path:
    write(path, f"#!/bin/sh\n{text}\n").chmod(0o755)
    return path


def is_program(pid: int) -> bool:
    return b"HPCRUN_RANK=" in environment(pid)


ENV = {"PATH": "/usr/bin:/bin"}


def test_py_spy_shows_the_line_of_each_rank_though_other_lines_stand_between(
    tmp_path: Path,
) -> None:
    with job(tmp_path, without_spy(tmp_path, WAITS), nodes=2, env=ENV) as running:
        running.until("go")
        running.until("go", rank=1)
        first, second = asked(running, py_spy=str(SPY)).ranks
        lines = answers(running, str(SPY), {"SLURMD_NODENAME": "local-0"}).splitlines()
    assert [(each.rank, each.node, each.how) for each in (first, second)] == [
        (0, "local-0", "py-spy"),
        (1, "local-1", "py-spy"),
    ]
    assert [(frame.function, frame.line) for frame in first.frames] == [
        ("<module>", 5),
        ("wait_for_data", 3),
    ]
    assert first.state == "S"
    assert first.busy is not None
    assert first.busy < 0.2
    assert max(map(len, lines)) < 1000
    others = ["hpcrun-stacks n1 0 0/2 eJyr", "hpcrun-stacks n2 0 0/1 !!", "hpcrun-stacks x"]
    mixed = read_answers(
        Completed("stacks", 0, "\n".join(["Welcome to the cluster", *reversed(lines), *others]), "")
    )
    assert mixed.nodes == {"local-0"}
    assert [each.rank for each in mixed.ranks] == [0]


def test_a_shell_is_not_the_program_and_py_spy_of_the_job_s_own_environment_is_used(
    tmp_path: Path,
) -> None:
    program = python(tmp_path, SPINS)
    with job(tmp_path, ["sh", "-c", f"{shlex.join(program)}; true"], env=ENV) as running:
        running.until("go")
        rank = asked_rank(running)
    assert rank.how == "py-spy"
    assert rank.frames[-1].function == "spin"
    assert rank.busy is not None
    assert rank.busy > 0.8


LAUNCHER = """
import os, subprocess, sys
def start(rank):
    env = {**os.environ, "RANK": str(rank)}
    return subprocess.Popen([sys.executable, "-uc", PROGRAM], env=env)
for rank in [start(2), start(3)]:
    rank.wait()
"""


def test_a_launcher_is_no_rank_but_what_it_starts_is(tmp_path: Path) -> None:
    program = python(tmp_path, LAUNCHER.replace("PROGRAM", repr(WAITS)))
    with job(tmp_path, program, env={**ENV, "RANK": ""}) as running:
        wait_for(lambda: running.out().count("go") == 2, 20, "both ranks")  # their lines may mix
        found = asked(running).ranks
    assert [(each.rank, each.frames[-1].function) for each in found] == [
        (2, "wait_for_data"),
        (3, "wait_for_data"),
    ]


def test_without_py_spy_a_program_that_has_registered_writes_its_stacks_and_goes_on(
    tmp_path: Path,
) -> None:
    over = tmp_path / "over"
    os.mkfifo(over)
    ends = REGISTERED + WAITS.replace("time.sleep(60)", f"open({str(over)!r}).read()")
    ends += "print('end')\n"
    with job(tmp_path, without_spy(tmp_path, ends), env=ENV) as running:
        running.until("go")
        for _ in range(2):
            rank = asked_rank(running)
            assert rank.how == "faulthandler"
            assert rank.lacks == ""
            assert [(frame.function, frame.line) for frame in rank.frames][-1] == (
                "wait_for_data",
                7,
            )
        over.write_text("")
        assert running.end() == 0
    assert running.out().split() == ["go", "end"]
    assert running.err() == ""


@pytest.mark.parametrize("beginning", ["", HAS_HANDLER])
def test_a_program_that_has_not_registered_gets_no_signal(tmp_path: Path, beginning: str) -> None:
    with job(tmp_path, without_spy(tmp_path, beginning + WAITS), env=ENV) as running:
        running.until("go")
        rank = asked_rank(running)
        time.sleep(0.2)
        assert running.out() == "go\n"
    assert rank.frames == ()
    assert rank.how == ""
    assert rank.state == "S"
    assert rank.lacks == "no py-spy in the job's environment"
    assert rank.waits_in


def test_a_program_that_another_one_replaced_gets_no_signal(tmp_path: Path) -> None:
    replaced = (
        f"{REGISTERED}import os\nprint('go')\nos.execv('/usr/bin/python3', ['python3', "
        f"'-uc', {WAITS!r}])\n"
    )
    with job(tmp_path, without_spy(tmp_path, replaced), env=ENV) as running:
        wait_for(lambda: running.out() == "go\ngo\n", 20, "the other program")
        rank = asked_rank(running)
        assert rank.frames == ()
        assert rank.state == "S"
        assert running.process.poll() is None


def test_a_stopped_rank_is_named_and_gets_no_signal(tmp_path: Path) -> None:
    with job(tmp_path, without_spy(tmp_path, REGISTERED + WAITS), env=ENV) as running:
        running.until("go")
        (pid,) = [pid for pid in running.processes() if is_program(pid)]
        os.kill(pid, signal.SIGSTOP)
        for py_spy in (str(SPY), ""):
            rank = asked_rank(running, py_spy=py_spy)
            assert rank.is_stopped
            assert bool(rank.frames) == bool(py_spy)
            assert "ShdPnd:\t0000000000000000" in Path(f"/proc/{pid}/status").read_text()
        os.kill(pid, signal.SIGCONT)


def test_a_program_of_another_language_has_a_state(tmp_path: Path) -> None:
    with job(tmp_path, ["sleep", "60"], chain=ONCE, env=ENV) as running:
        wait_for(lambda: any(map(is_program, running.processes())), 20, "the program")
        rank = asked_rank(running)
    assert rank.state == "S"
    assert rank.lacks == "sleep is not Python"


def test_a_py_spy_that_hangs_or_fails_costs_seconds_and_sees_nothing_of_the_asking_user(
    tmp_path: Path, subtests: pytest.Subtests
) -> None:
    env = {**ENV, "THEIRS": "1"}
    with job(tmp_path / "job", without_spy(tmp_path, WAITS), env=env) as running:
        running.until("go")
        for text, lacks in (
            ("sleep 600", "py-spy did not respond for 3 s"),
            ("echo Error: no right >&2; exit 1", "py-spy: no right"),
            (
                "echo 'Permission Denied: Try running again' >&2; exit 1",
                "py-spy may not read this process",
            ),
            ("yes", "py-spy printed more than 4 MB"),
            ("yes >&2", "py-spy did not respond for 3 s"),
            ("head -c 2600000 /dev/urandom | base64", "its stack is too long"),
        ):
            with subtests.test(text=text):
                rank = asked_rank(running, py_spy=str(script(tmp_path / "py-spy", text)))
                assert rank.lacks == lacks
                assert rank.frames == ()
                assert rank.state == "S"
        spy = script(
            tmp_path / "py-spy", f"env > {tmp_path}/env; pwd > {tmp_path}/folder; echo '[]'"
        )
        answers(running, str(spy), {**ENV, "MINE": "1"})
    names = {line.partition("=")[0] for line in (tmp_path / "env").read_text().splitlines()}
    assert names <= {"PATH", "LC_ALL", "PWD", "OLDPWD", "SHLVL", "_"}
    assert (tmp_path / "folder").read_text() == "/\n"


def test_no_py_spy_of_the_current_folder_is_run(tmp_path: Path) -> None:
    here, ran = tmp_path / "clone", tmp_path / "ran"
    for name in ("py-spy", "bin/py-spy", ".v/bin/py-spy"):
        script(here / name, f"touch {ran}")
    mine = tmp_path / "job/.v/bin"
    mine.mkdir(parents=True)
    (mine / "python").symlink_to(WITHOUT_SPY)
    (tmp_path / "program.py").write_text(WAITS)
    program = [".v/bin/python", "-u", str(tmp_path / "program.py")]
    path = ":.:bin:.v/bin:/usr/bin:/bin"
    with job(tmp_path / "job", program, env={"PATH": path}) as running:
        running.until("go")

        rank = asked_rank(running, py_spy="py-spy", env={"PATH": path}, cwd=here)
        assert rank.lacks == "no py-spy in the job's environment"
    assert not ran.exists()


def test_a_number_without_an_end_hides_no_rank(tmp_path: Path) -> None:
    env = {**ENV, "RANK": "9" * 5000, "NCCL_RAS_ADDR": "localhost:" + "9" * 5000}
    with job(tmp_path, without_spy(tmp_path, WAITS), env=env) as running:
        running.until("go")
        rank = asked_rank(running, py_spy=str(SPY))
    assert rank.rank == 0
    assert rank.how == "py-spy"


def test_what_is_no_file_of_stacks_is_not_read_and_its_program_gets_no_signal(
    tmp_path: Path,
) -> None:
    fifo = (
        "import os\n"
        "(name,) = [each for each in os.listdir(os.environ['HPCRUN_NODE_DIR']) if "
        "each.startswith('stacks-')]\n"
        "path = os.path.join(os.environ['HPCRUN_NODE_DIR'], name)\n"
        "os.remove(path)\nos.mkfifo(path)\n"
    )
    with job(tmp_path, without_spy(tmp_path, REGISTERED + fifo + WAITS), env=ENV) as running:
        running.until("go")
        rank = asked_rank(running)
    assert rank.how == ""
    assert rank.lacks == "no py-spy in the job's environment"
