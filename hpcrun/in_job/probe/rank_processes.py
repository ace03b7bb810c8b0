"""The ranks on this node: their processes, and what each process is doing.

The processes are found by their environment in /proc.

The Python stack of a rank comes from py-spy, which reads the memory of the process and does not
pause it (``--nonblocking``); else from faulthandler, if the program has called
``hpcrun_runtime.register_stacks()``: its file in the node's folder names the process and the
signal. Without both, /proc tells the state. No other signal is sent, and no rank is stopped.
"""

from __future__ import annotations

import os
import re
import signal
import stat
import threading
import time
from concurrent.futures import ThreadPoolExecutor, wait
from functools import partial

from .nccl_ras import number_in
from .py_spy import dump, find_py_spy

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable

THREADS = 4
NONE = "no py-spy in the job's environment"
DUMP_S = 1.0
MOST_WORKERS = 8
NODE_FOLDER = b"HPCRUN_NODE_DIR"
"""The variable with the node's folder: in_job/launch/node_folder.py."""
_LOADER = "torch/utils/data/"
_WORKER = "_worker_loop"
_RUN_ID = re.compile(r"\d{8}-\d{6}-.+-[0-9a-f]{4}")


def in_threads(calls: list[Callable[[], None]], until: float) -> None:
    """Make some calls in a few threads, and wait for the calls until a time.

    A call that hangs, or fails, is left behind.
    """
    pool = ThreadPoolExecutor(THREADS)
    wait([pool.submit(call) for call in calls], until - time.monotonic())


def find_processes(folder: str, node: str, until: float) -> dict[int, list[Process]]:
    """Return rank → its processes on a node, by their environment.

    Args:
        folder: the attempt's.
        node: its name; empty for a job of this machine, whose nodes are all here.
        until: the time at which the search ends.
    """
    mine = os.path.normpath(folder)
    # with the id of a run, its last names are enough: a home may have other names on other nodes
    parts = mine.split(os.sep)[-5:]
    end = os.fsencode(os.sep.join(parts) if _RUN_ID.fullmatch(parts[0]) else mine)
    by_rank: dict[int, list[Process]] = {}
    lock = threading.Lock()
    me = os.getuid()

    def look_at(pid: int) -> None:
        if os.stat(f"/proc/{pid}").st_uid != me:
            return
        process = Process(pid)
        env = process.env
        if node and env.get(b"HPCRUN_NODE") != os.fsencode(node):
            return
        rank = number_in(env.get(b"HPCRUN_RANK", b""))
        if rank is not None and env.get(b"HPCRUN_ATTEMPT_DIR", b"").endswith(end):
            with lock:
                by_rank.setdefault(rank, []).append(process)

    pids = [int(name) for name in os.listdir("/proc") if name.isdigit()]
    in_threads([partial(look_at, pid) for pid in pids], until)
    with lock:
        return {rank: list(processes) for rank, processes in by_rank.items()}


class Process:
    """A process as /proc describes it.

    Raises:
        OSError: it does not exist any more.
    """

    def __init__(self, pid: int) -> None:
        self.pid = pid
        text = read_proc(pid, "stat")
        fields = text[text.rindex(b")") + 2 :].split()
        self.state = fields[0].decode()
        self.parent = int(fields[1])
        self.started = int(fields[19])
        entries = [entry.partition(b"=") for entry in read_proc(pid, "environ").split(b"\0")]
        self.env = {name: value for name, _, value in entries if name}
        arguments = read_proc(pid, "cmdline").split(b"\0")
        self.command = [os.fsdecode(argument) for argument in arguments]

    @property
    def is_python(self) -> bool:
        """Whether it runs Python."""
        names = [os.path.basename(path) for path in (self.command[0], self._exe())]
        return any(name.startswith(("python", "pypy")) for name in names)

    def _exe(self) -> str:
        try:
            return os.readlink(f"/proc/{self.pid}/exe")
        except OSError:
            return ""


def read_proc(pid: int, name: str) -> bytes:
    """Return a file of proc(5) about a process, at most 4 MB of it."""
    with open(f"/proc/{pid}/{name}", "rb") as file:
        return file.read(1 << 22)


def peek(pid: int, name: str) -> bytes:
    """Return what /proc has of a process; nothing if the process has ended, or may not be read."""
    try:
        return read_proc(pid, name)
    except OSError:
        return b""


def ranks_within(rank: int, processes: list[Process]) -> dict[int, list[Process]]:
    """Return rank → processes, also of the ranks that a launcher has started.

    The program of a node may be a launcher (accelerate, deepspeed) with ranks of its own.
    """
    inner: dict[int, list[Process]] = {}
    for process in processes:
        number = number_in(process.env.get(b"RANK", b""))
        if number is not None and process.is_python:
            inner.setdefault(number, []).append(process)
    is_rank = number_in(program_of(processes).env.get(b"RANK", b"")) is not None
    return {rank: processes} if is_rank or not inner else inner


def program_of(processes: list[Process]) -> Process:
    """Return the process that trains.

    It is the oldest Python among the processes of a rank, else the oldest process.
    """
    return min(processes, key=lambda one: (not one.is_python, one.started, one.pid))


def has_gpu(pid: int) -> bool:
    """Return whether a process has loaded a GPU's driver.

    Waiting for the GPU keeps a thread of the process as busy as computing.
    """
    maps = peek(pid, "maps")
    return b"/libcuda.so" in maps or b"/libamdhip64.so" in maps


class RankReading:
    """One rank on this node.

    Attributes:
        answer: what is known of it so far.
    """

    def __init__(self, number: int, processes: list[Process], py_spy: str, until: float) -> None:
        self._processes = processes
        self._given = py_spy
        self._until = until
        self._program = program_of(processes)
        self._path = os.fsdecode(self._program.env.get(b"PATH", b""))
        node = os.fsdecode(self._program.env.get(b"HPCRUN_NODE", b""))
        self.answer: dict[str, Any] = {"rank": number, "node": node, "pid": self._program.pid}
        self.answer["state"] = self._program.state

    def busy_s(self) -> float:
        """Return the seconds in which the main thread ran, or waited for a CPU.

        So a loop is busy on a full node, too.
        """
        pid = self._program.pid
        return sum(map(int, peek(pid, f"task/{pid}/schedstat").split()[:2])) / 1e9

    def observe(self) -> None:
        """Read its state and its stack."""
        pid = self._program.pid
        self.answer["wchan"] = peek(pid, "wchan").decode("ascii", "replace")
        self.answer["gpu"] = has_gpu(pid)
        if not self._program.is_python:
            self.answer["lacks"] = f"{os.path.basename(self._program.command[0])} is not Python"
            return
        py_spy = find_py_spy(self._program.command[0], self._path, self._given)
        lacks = NONE
        if py_spy:
            text, lacks = dump(py_spy, pid, self._path, self._until)
            if text:
                self.answer.update({"how": "py-spy", "stack": text})
                self.answer["workers"] = self._workers(py_spy, text)
                return
        text = self._dump()
        if text:
            self.answer.update({"how": "faulthandler", "stack": text})
        else:
            self.answer["lacks"] = lacks

    def _workers(self, py_spy: str, text: str) -> list[str]:
        """Return the stacks of the workers that a rank waits for.

        There are such stacks only if the rank is inside of its DataLoader.
        """
        if _LOADER not in text:
            return []
        # since Python 3.14 multiprocessing's forkserver stands between them
        program = self._program.pid
        near = {program}
        near.update(one.pid for one in self._processes if one.parent == program)
        workers = [one for one in self._processes if one.parent in near and one.is_python]
        stacks = []
        for worker in workers[:MOST_WORKERS]:
            stack, _ = dump(py_spy, worker.pid, self._path, self._until)
            if _WORKER in stack:
                stacks.append(stack)
        return stacks

    def _dump(self) -> str:
        """Let the program write its stacks, if it has asked for this, and return the stacks.

        The result is the empty string if the program has not asked for this.
        """
        program = self._program
        place = os.fsdecode(program.env.get(NODE_FOLDER, b""))
        number, path = registered(place, program.pid)
        # a stopped process would get the signal when it continues; without the handler the signal
        # would end it
        if not number or program.state in "Tt" or not catches(program.pid, number):
            return ""
        try:
            # a FIFO would block, and a link may lead anywhere
            descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError:
            return ""
        with open(descriptor, "rb") as file:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode) or status.st_uid != os.getuid():
                return ""
            start = status.st_size
            os.kill(program.pid, number)
            until = time.monotonic() + DUMP_S
            size = -1
            while time.monotonic() < until:
                time.sleep(0.05)
                before = size
                size = os.fstat(descriptor).st_size
                if before == size > start:  # nothing more has come
                    break
            file.seek(start)
            return file.read(1 << 20).decode("utf-8", "replace")


def registered(folder: str, pid: int) -> tuple[int, str]:
    """Return the signal at which a process writes its stacks, and the path of their file.

    hpcrun_runtime.py names the file ``stacks-ID.SIGNAL``. Without such a file: 0 and the empty
    text.
    """
    try:
        names = os.listdir(folder) if folder else []
    except OSError:
        return 0, ""
    ids = _status(pid, b"NSpid:")
    # in a container a process has another id
    beginning = f"stacks-{ids[-1].decode() if ids else pid}."
    for name in names:
        if not name.startswith(beginning):
            continue
        number = number_in(os.fsencode(name[len(beginning) :]))
        if number is not None and number in signal.valid_signals():
            return number, os.path.join(folder, name)
    return 0, ""


def catches(pid: int, number: int) -> bool:
    """Whether a process has a handler for a signal, by proc(5)."""
    caught = _status(pid, b"SigCgt:")
    if not caught:
        return False
    return bool(int(caught[0], 16) >> (number - 1) & 1)


def _status(pid: int, field: bytes) -> list[bytes]:
    for line in peek(pid, "status").splitlines():
        if line.startswith(field):
            return line.split()[1:]
    return []
