"""Starting programs as a shell would, waiting for them, and ending all that they have started."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from hpcrun.in_job.launch.processes import (
    COLONS,
    HEARD,
    TREE,
    Canary,
    catches,
    has_ended,
    hide_colons,
    ignores,
    is_fork_of_any,
    name_tree,
    reap,
    send,
    show_colons,
    start,
    sweep,
    try_start,
    variable,
    wait,
)
from tests.harness import wait_for

ENV = {"PATH": "/usr/bin:/bin"}


def test_what_cannot_be_started_is_said_and_stderr_stays_open(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert try_start(["no-such-program"], {}) == (0, 127)
    assert try_start([str(tmp_path)], {}, err=str(tmp_path / "err")) == (0, 126)
    print("and on", file=sys.stderr)
    assert (
        capfd.readouterr().err
        == "hpcrun: cannot start no-such-program: No such file or directory\nand on\n"
    )
    assert (tmp_path / "err").read_text() == f"hpcrun: cannot start {tmp_path}: Permission denied\n"


@pytest.fixture(autouse=True)
def _no_tree(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(TREE, "")


@pytest.fixture
def blocked() -> Iterator[None]:
    """Block the signals that a part receives, as block_signals does, for one test."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, HEARD | {signal.SIGCHLD})
    yield
    while signal.sigtimedwait(HEARD | {signal.SIGCHLD}, 0):
        pass
    signal.pthread_sigmask(signal.SIG_SETMASK, before)


def shell(text: str, **how: Any) -> int:
    """Start a shell with this text, and return its process id."""
    return start(["sh", "-c", text], how.pop("env", ENV), **how)


def status_of(pid: int) -> int | None:
    """Wait for the end of a child; return its status in a shell's form."""
    ended = wait([pid], lambda _: None)
    reap(pid)
    return ended[1] if ended else None


def is_there(pid: int) -> bool:
    return Path(f"/proc/{pid}/exe").exists()


@pytest.mark.usefixtures("blocked")
@pytest.mark.parametrize(
    ("text", "status"), [("exit 0", 0), ("exit 7", 7), ("kill -9 $$", 137), ("kill -TERM $$", 143)]
)
def test_the_status_is_that_of_a_shell(text: str, status: int) -> None:
    assert status_of(shell(text)) == status


@pytest.mark.usefixtures("blocked")
def test_output_is_added_to_files(tmp_path: Path) -> None:
    out, err = tmp_path / "out", tmp_path / "err"
    out.write_text("before ")
    assert status_of(shell("echo a; echo b >&2", out=str(out), err=str(err))) == 0
    assert (out.read_text(), err.read_text()) == ("before a\n", "b\n")
    assert err.stat().st_mode & 0o777 == 0o644 & ~umask()


def umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


@pytest.mark.usefixtures("blocked")
def test_a_program_gets_descriptors(tmp_path: Path) -> None:
    with (tmp_path / "out").open("w") as file:
        assert status_of(shell("echo x >&5", streams={5: file.fileno()})) == 0
    assert (tmp_path / "out").read_text() == "x\n"


@pytest.mark.usefixtures("blocked")
def test_a_program_leads_a_group_of_its_own() -> None:
    own = shell("exec sleep 60", own_group=True)
    other = shell("exec sleep 60")
    assert os.getpgid(own) == own
    assert os.getpgid(other) == os.getpgid(0)
    assert send(own, signal.SIGKILL, group=True)
    assert send(other, signal.SIGKILL)
    assert (status_of(own), status_of(other)) == (137, 137)
    assert not send(own, 0)
    assert not send(own, 0, group=True)


@pytest.mark.usefixtures("blocked")
def test_no_signal_is_blocked_in_a_program(tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert status_of(start(["grep", "SigBlk", "/proc/self/status"], ENV, out=str(out))) == 0
    assert int(out.read_text().split()[1], 16) == 0


@pytest.mark.usefixtures("blocked")
def test_signals_can_be_blocked_in_a_program(tmp_path: Path) -> None:
    out = tmp_path / "out"
    pid = start(["grep", "SigBlk", "/proc/self/status"], ENV, out=str(out), blocked=HEARD)
    assert status_of(pid) == 0
    mask = int(out.read_text().split()[1], 16)
    assert {number for number in range(1, 65) if mask >> (number - 1) & 1} == set(HEARD)


@pytest.mark.usefixtures("blocked")
def test_a_signal_is_heard_while_waiting() -> None:
    heard = list[int]()

    def on_signal(info: Any) -> None:
        heard.append(info.si_signo)
        send(pid, signal.SIGKILL)

    pid = shell("exec sleep 60")
    # to this thread: the threads of a worker of xdist do not block signals
    signal.pthread_kill(threading.get_ident(), signal.SIGUSR1)
    assert wait([pid], on_signal) == (pid, 137)
    reap(pid)
    assert heard == [signal.SIGUSR1]


@pytest.mark.usefixtures("blocked")
def test_a_tick_ends_the_waiting() -> None:
    ticks = list[float]()

    def tick() -> bool:
        ticks.append(time.monotonic())
        return len(ticks) == 3

    pid = shell("exec sleep 60")
    begun = time.monotonic()
    assert wait([pid], lambda _: None, tick, 0.05) is None
    assert len(ticks) == 3
    assert ticks[-1] - begun >= 0.15
    assert not has_ended(pid)
    send(pid, signal.SIGKILL)
    assert status_of(pid) == 137


@pytest.mark.usefixtures("blocked")
def test_an_ended_child_stays_until_it_is_reaped() -> None:
    pid = shell("exit 0")
    assert wait([pid], lambda _: None) == (pid, 0)
    assert has_ended(pid)
    reap(pid)
    reap(pid)
    with pytest.raises(ChildProcessError):
        has_ended(pid)


@contextmanager
def python(code: str, **env: str) -> Iterator[int]:
    """Start a Python program that has begun, and yield its process id."""
    text = f"{code}\nprint('up', flush=True)\nimport time; time.sleep(60)"
    command = [sys.executable, "-c", text]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env={**ENV, **env}) as process:
        assert process.stdout
        process.stdout.readline()
        try:
            yield process.pid
        finally:
            process.kill()


def test_handlers_and_ignored_signals_are_seen() -> None:
    code = "import signal as s; s.signal(s.SIGUSR2, print); s.signal(s.SIGALRM, s.SIG_IGN)"
    with python(code) as pid:
        assert catches(pid, signal.SIGUSR2)
        assert not catches(pid, signal.SIGUSR1)
        assert not catches(pid, signal.SIGALRM)
        assert ignores(pid, signal.SIGALRM)
        assert not ignores(pid, signal.SIGUSR2)
    assert not catches(pid, signal.SIGUSR2)
    assert not ignores(pid, signal.SIGALRM)


def test_a_fork_runs_the_same_program() -> None:
    code = "import os, sys; pid = os.fork(); pid or __import__('time').sleep(60); print(pid)"
    command = [sys.executable, "-uc", f"{code}\nimport time; time.sleep(60)"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=ENV) as process:
        assert process.stdout
        child = int(process.stdout.readline())
        assert is_fork_of_any(child, [process.pid])
        assert not is_fork_of_any(child, [child])
        assert not is_fork_of_any(process.pid, [os.getpid()])
        os.kill(child, signal.SIGKILL)
        process.kill()


def test_a_sweep_ends_a_tree() -> None:
    tree = name_tree()
    assert os.environ[TREE] == tree
    with (
        python("", **{TREE: tree}) as own,
        python("", **{TREE: f"{tree}.inner"}) as inner,
        python("", **{TREE: f"{tree}x"}) as other,
        python("", **{TREE: tree, "SLURM_JOB_ID": "77"}) as of_job,
    ):
        sweep(tree)
        wait_for(lambda: not is_there(own) and not is_there(inner), 10, "the end of the tree")
        assert is_there(other)
        assert is_there(of_job)


def test_a_sweep_of_a_job_ends_other_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_JOB_ID", "77")
    monkeypatch.setenv("SLURM_STEP_ID", "1")
    tree = name_tree(of_job=True)
    with python("", **{TREE: tree, "SLURM_JOB_ID": "77", "SLURM_STEP_ID": "2"}) as step:
        sweep(tree)
        assert is_there(step)
        sweep(tree, every_step=True)
        wait_for(lambda: not is_there(step), 10, "the end of the step")


def test_a_sweep_gives_time_to_end(tmp_path: Path) -> None:
    tree = name_tree(of_job=True)
    file = tmp_path / "done"
    end = f"open('{file}', 'w'), os._exit(0)"
    with python(
        f"import threading, os; threading.Timer(0.3, lambda: ({end})).start()", **{TREE: tree}
    ):
        sweep(tree, grace_s=20.0)
        assert file.exists()


def test_trees_are_named_within_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(TREE, ".a")
    inner = name_tree()
    assert inner.startswith(".a.")
    assert len(inner) == len(".a.") + 12
    assert name_tree(of_job=True).count(".") == 1


@pytest.mark.parametrize(
    ("name", "value"), [("A", "b=c"), ("LAST", "x"), ("B", ""), ("LA", ""), ("AST", "")]
)
def test_a_variable_of_a_process(name: str, value: str) -> None:
    assert variable(b"\0XA=no\0A=b=c\0LAST=x\0", name) == value


@pytest.mark.parametrize(
    ("command", "hidden"),
    [
        (["x/__main__.py", ":", "a"], ["x/__main__.py", "::", "a"]),
        (["x/__main__.py", "::", ""], ["x/__main__.py", ":::", ""]),
        (["x/__main__.py", "a:"], ["x/__main__.py", "a:"]),
        (["python", ":"], ["python", ":"]),
    ],
    ids="one two other not-ours".split(),
)
def test_colons_are_hidden_from_srun(
    command: list[str], hidden: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    made, env = hide_colons(command)
    assert made == hidden
    assert env == ({COLONS: "1"} if hidden != command else {})
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    assert show_colons(made) == command
    assert COLONS not in os.environ


CANARY = """
import os, sys
sys.path.insert(0, sys.argv[1])
from hpcrun.in_job.launch.processes import Canary
def note(pid):
    with open(sys.argv[2], "a") as file:
        file.write(f"{pid} ")
canary = Canary(note)
for pid in sys.argv[3].split():
    canary.guard(int(pid))
print("up", flush=True)
sys.stdin.read()
canary.end()
"""


@pytest.mark.parametrize(("guarded", "noted"), [("", "0 "), ("4 5", "5 ")])
def test_a_canary_acts_when_its_process_is_killed(tmp_path: Path, guarded: str, noted: str) -> None:
    file = tmp_path / "noted"
    command = [sys.executable, "-c", CANARY, str(Path.cwd()), str(file), guarded]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe) as process:
        assert process.stdout
        process.stdout.readline()
        process.kill()
    wait_for(lambda: file.exists() and file.read_text() == noted, 20, "the canary")


def test_a_canary_that_is_ended_does_nothing(tmp_path: Path) -> None:
    file = tmp_path / "noted"
    command = [sys.executable, "-c", CANARY, str(Path.cwd()), str(file), "4"]
    subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, check=True)
    assert not file.exists()


@pytest.mark.usefixtures("blocked")
def test_a_canary_shows_a_signal_to_everybody() -> None:
    canary = Canary(lambda _: None)
    assert not canary.is_orphan()
    assert not canary.heard(signal.SIGUSR1)
    first = canary._pid
    os.kill(first, signal.SIGUSR1)
    assert canary.heard(signal.SIGUSR1)
    assert not canary.heard(signal.SIGUSR2)
    canary.renew()
    assert canary._pid != first
    assert not canary.heard(signal.SIGUSR1)
    second = canary._pid
    canary.renew()
    assert canary._pid == second
    os.kill(second, signal.SIGKILL)
    wait_for(lambda: has_ended(second), 10, "the canary's end")
    canary.renew()
    assert canary._pid != second
    canary.end()


def test_a_canary_holds_no_lock_of_its_process(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    for _ in range(20):
        held = os.open(path, os.O_RDWR | os.O_CREAT)
        fcntl.flock(held, fcntl.LOCK_SH)
        canary = Canary(lambda _: None, closes=True)
        os.close(held)
        again = os.open(path, os.O_RDWR)
        fcntl.flock(again, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.close(again)
        canary.end()
