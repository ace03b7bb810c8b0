"""The processes of ranks on this node, by what /proc says of real ones."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from hpcrun.in_job.probe import rank_processes
from hpcrun.in_job.probe.rank_processes import (
    NONE,
    Process,
    RankReading,
    catches,
    find_processes,
    in_threads,
    peek,
    program_of,
    ranks_within,
    read_proc,
    registered,
)
from tests.harness import wait_for

RUN = "20260102-030405-train-0a1b"
WAITS = "import sys; print('up', flush=True); sys.stdin.read()"


@contextmanager
def process(code: str = WAITS, command: tuple[str, ...] = (), /, **env: str) -> Iterator[int]:
    """Start a program that has begun, and yield its process id."""
    argv = [*command, *([] if command else [sys.executable, "-c", code])]
    pipe = subprocess.PIPE
    with subprocess.Popen(argv, env={"PATH": "/bin", **env}, stdin=pipe, stdout=pipe) as started:
        assert started.stdout
        if not command:
            assert started.stdout.readline() == b"up\n"
        # the kernel shows the variables a moment after the program's start
        wait_for(lambda: peek(started.pid, "environ"), 20, "the program's environment")
        try:
            yield started.pid
        finally:
            started.kill()


def soon() -> float:
    return time.monotonic() + 20


def test_processes_of_an_attempt_are_found_by_rank(tmp_path: Path) -> None:
    here = {"HPCRUN_ATTEMPT_DIR": str(tmp_path), "HPCRUN_NODE": "n1"}
    with (
        process(**here, HPCRUN_RANK="3") as pid,
        process(**here, HPCRUN_RANK="x"),
        process(**{**here, "HPCRUN_NODE": "n2"}, HPCRUN_RANK="4") as other_node,
        process(**{**here, "HPCRUN_ATTEMPT_DIR": "/elsewhere"}, HPCRUN_RANK="5"),
    ):
        by_rank = find_processes(str(tmp_path), "n1", soon())
        assert {rank: [one.pid for one in found] for rank, found in by_rank.items()} == {3: [pid]}
        assert find_processes(str(tmp_path), "", soon())[4][0].pid == other_node


def test_a_home_may_have_another_name_on_another_node(tmp_path: Path) -> None:
    attempt = f"/home/a/runs/{RUN}/elements/0/attempts/0"
    with process(HPCRUN_ATTEMPT_DIR=attempt, HPCRUN_RANK="0") as pid:
        found = find_processes(f"/mnt/home/a/runs/{RUN}/elements/0/attempts/0/", "", soon())
        assert [one.pid for one in found[0]] == [pid]
        assert not find_processes(f"/mnt/home/a/runs/{RUN}/elements/0/attempts/1", "", soon())


def test_a_process_is_described(tmp_path: Path) -> None:
    with process(A="b=c", EMPTY="") as pid:
        described = Process(pid)
        assert described.parent == os.getpid()
        assert described.command[:2] == [sys.executable, "-c"]
        assert described.env[b"A"] == b"b=c"
        assert described.env[b"EMPTY"] == b""
        assert described.state in "SR"
        assert described.is_python
    with pytest.raises(OSError, match="No such"):
        Process(pid)


def test_a_program_that_is_not_python() -> None:
    with process(WAITS, ("/bin/cat",)) as pid:
        assert not Process(pid).is_python


def test_an_ended_process_has_nothing_to_peek_at() -> None:
    assert peek(2**22 + 1, "stat") == b""
    with pytest.raises(OSError, match="No such file"):
        read_proc(2**22 + 1, "stat")


def test_the_oldest_python_trains() -> None:
    with (
        process(WAITS, ("/bin/cat",)) as cat,
        process() as older,
        process() as younger,
    ):
        found = [Process(pid) for pid in (younger, cat, older)]
        assert program_of(found).pid == older
        assert program_of([found[1]]).pid == cat


def test_ranks_of_a_launcher_are_ranks_of_their_own() -> None:
    with process() as launcher, process(RANK="6") as six, process(RANK="7") as seven:
        whole = [Process(pid) for pid in (launcher, six, seven)]
        by_rank = ranks_within(0, whole)
        assert {rank: found[0].pid for rank, found in by_rank.items()} == {6: six, 7: seven}
        assert ranks_within(6, whole[1:]) == {6: whole[1:]}
        assert ranks_within(0, whole[:1]) == {0: whole[:1]}


HANDLER = """
import signal, sys, os
def write(*_):
    open(sys.argv[1], "a").write("the stack")
signal.signal(signal.SIGUSR2, write)
print("up", flush=True)
while True:
    signal.pause()
"""


def test_a_handler_is_seen() -> None:
    code = "import signal; signal.signal(signal.SIGUSR2, print); " + WAITS
    with process(code) as pid:
        assert catches(pid, signal.SIGUSR2)
        assert not catches(pid, signal.SIGUSR1)
        assert not catches(pid, signal.SIGALRM)
    assert not catches(pid, signal.SIGUSR2)


@pytest.mark.parametrize(
    ("name", "number"),
    [
        (f"stacks-{os.getpid()}.12", 12),
        (f"stacks-{os.getpid()}.x", 0),
        (f"stacks-{os.getpid()}.999", 0),
        (f"stacks-{os.getpid()}1.12", 0),
        ("stacks-1.12", 0),
    ],
    ids="own no-number no-signal longer other".split(),
)
def test_a_program_registers_its_signal(tmp_path: Path, name: str, number: int) -> None:
    (tmp_path / name).touch()
    path = str(tmp_path / name) if number else ""
    assert registered(str(tmp_path), os.getpid()) == (number, path)


def test_no_folder_has_no_registered_signal(tmp_path: Path) -> None:
    assert registered("", os.getpid()) == (0, "")
    assert registered(str(tmp_path / "none"), os.getpid()) == (0, "")


def reading(pid: int) -> dict[str, object]:
    rank = RankReading(5, [Process(pid)], "", soon())
    rank.observe()
    return rank.answer


def test_a_rank_that_is_not_python_lacks_a_stack() -> None:
    with process(WAITS, ("/bin/cat",), HPCRUN_NODE="n1") as pid:
        answer = reading(pid)
        assert (answer["rank"], answer["node"], answer["pid"]) == (5, "n1", pid)
        assert answer["lacks"] == "cat is not Python"
        assert answer["gpu"] is False
        assert "stack" not in answer


def test_a_python_of_its_own_without_py_spy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    (tmp_path / "python3").symlink_to(os.path.realpath(sys.executable))
    with process(WAITS, (str(tmp_path / "python3"), "-c", "input()"), PATH=str(tmp_path)) as pid:
        assert reading(pid)["lacks"] == NONE


def test_a_registered_program_writes_its_stack(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    node = tmp_path / "node"
    node.mkdir()
    (tmp_path / "python3").symlink_to(os.path.realpath(sys.executable))
    code = HANDLER.replace("sys.argv[1]", f"f'{node}/stacks-{{os.getpid()}}.12'")
    command = (str(tmp_path / "python3"), "-uc", code)
    pipe = subprocess.PIPE
    env = {"PATH": str(tmp_path), "HPCRUN_NODE_DIR": str(node)}
    with subprocess.Popen(command, env=env, stdout=pipe) as started:
        assert started.stdout
        started.stdout.readline()
        (node / f"stacks-{started.pid}.12").write_text("older ")
        answer = reading(started.pid)
        started.kill()
    assert (answer["how"], answer["stack"]) == ("faulthandler", "the stack")


def test_the_time_of_a_rank_is_that_of_its_main_thread() -> None:
    code = "import time\nwhile time.process_time() < 0.2: pass\n" + WAITS
    with process(code) as pid:
        busy_s = RankReading(0, [Process(pid)], "", soon()).busy_s()
        assert 0.15 < busy_s < 60


def test_a_call_that_fails_stops_no_other() -> None:
    called = list[int]()

    def fail() -> None:
        raise OSError

    in_threads([fail, lambda: called.append(1)], soon())
    assert called == [1]


SPY = """#!/bin/sh
test -e {folder}/$5 && exec cat {folder}/$5
echo "Error: no such process" >&2
exit 1
"""
FORKS = """
import os, sys, time
workers = []
for _ in range(2):
    pid = os.fork()
    if pid == 0:
        time.sleep(60)
    workers.append(pid)
print(*workers, flush=True)
time.sleep(60)
"""


@contextmanager
def forking(tmp_path: Path) -> Iterator[list[Process]]:
    """A rank with two workers, and a py-spy that prints a file for each process."""
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "py-spy").write_text(SPY.format(folder=tmp_path))
    (folder / "py-spy").chmod(0o755)
    env = {"PATH": f"{folder}:/usr/bin:/bin"}
    argv = [sys.executable, "-c", FORKS]
    with subprocess.Popen(argv, env=env, stdout=subprocess.PIPE) as started:
        assert started.stdout
        pids = [started.pid, *map(int, started.stdout.readline().split())]
        yield [Process(pid) for pid in pids]
        for pid in pids:
            os.kill(pid, signal.SIGKILL)


@pytest.mark.parametrize(
    ("stack", "number"), [("in torch/utils/data/dataloader.py", 1), ("in train.py", 0)]
)
def test_the_workers_are_shown_for_which_a_rank_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stack: str, number: int
) -> None:
    with forking(tmp_path) as processes:
        program, worker, other = processes
        (tmp_path / str(program.pid)).write_text(stack)
        (tmp_path / str(worker.pid)).write_text("in _worker_loop")
        (tmp_path / str(other.pid)).write_text("in another process")
        monkeypatch.setattr(rank_processes, "find_py_spy", lambda *_: f"{tmp_path}/bin/py-spy")
        rank = RankReading(5, processes, "", soon())
        rank.observe()
    assert (rank.answer["how"], rank.answer["stack"]) == ("py-spy", stack)
    assert rank.answer["workers"] == ["in _worker_loop"] * number


def test_a_rank_that_py_spy_cannot_read_lacks_a_stack(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with forking(tmp_path) as processes:
        monkeypatch.setattr(rank_processes, "find_py_spy", lambda *_: f"{tmp_path}/bin/py-spy")
        rank = RankReading(5, processes, "", soon())
        rank.observe()
    assert rank.answer["lacks"] == "py-spy: no such process"
    assert "stack" not in rank.answer
