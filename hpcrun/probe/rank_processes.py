"""The processes of the ranks on this node, found by their environment in /proc."""

from __future__ import annotations

import os
import queue
import re
import threading
import time
from contextlib import suppress
from functools import partial

from .nccl_ras import number_in

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable

THREADS = 4
_RUN_ID = re.compile(r"\d{8}-\d{6}-.+-[0-9a-f]{4}")


def in_threads(calls: list[Callable[[], None]], until: float) -> None:
    """Make some calls in a few daemon threads, and wait for them until a time: a call that hangs is left behind."""
    todo: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
    for call in calls:
        todo.put(call)

    def work() -> None:
        while True:
            try:
                call = todo.get_nowait()
            except queue.Empty:
                return
            with suppress(OSError, ValueError, IndexError):  # the process has just ended
                call()

    threads = [threading.Thread(target=work, daemon=True) for _ in range(min(THREADS, len(calls)))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(max(0.0, until - time.monotonic()))


def find_processes(folder: str, node: str, until: float) -> dict[int, list[Process]]:
    """Return rank → its processes on a node, by their environment.

    Args:
        folder: the attempt's.
        node: its name; empty for a job of this machine, whose nodes are all here.
    """
    mine = os.path.normpath(folder)
    # with the id of a run, its last names are enough: a home may have other names on other nodes
    parts = mine.split(os.sep)[-5:]
    end = os.fsencode(os.sep.join(parts)) if _RUN_ID.fullmatch(parts[0]) else os.fsencode(mine)
    found: dict[int, list[Process]] = {}
    lock, me = threading.Lock(), os.getuid()

    def look_at(pid: int) -> None:
        if os.stat(f"/proc/{pid}").st_uid != me:
            return
        process = Process(pid)
        env = process.env
        is_here = not node or env.get(b"HPCRUN_NODE") == os.fsencode(node)
        rank = number_in(env.get(b"HPCRUN_RANK", b""))
        if is_here and env.get(b"HPCRUN_ATTEMPT_DIR", b"").endswith(end) and rank is not None:
            with lock:
                found.setdefault(rank, []).append(process)

    in_threads([partial(look_at, int(name)) for name in os.listdir("/proc") if name.isdigit()], until)
    with lock:
        return {rank: list(processes) for rank, processes in found.items()}


class Process:
    """A process as /proc describes it.

    Raises:
        OSError: it does not exist any more.
    """

    def __init__(self, pid: int) -> None:
        self.pid = pid
        text = read_proc(pid, "stat")
        fields = text[text.rindex(b")") + 2 :].split()
        self.state, self.parent, self.started = fields[0].decode(), int(fields[1]), int(fields[19])
        entries = (entry.partition(b"=") for entry in read_proc(pid, "environ").split(b"\0"))
        self.env = {name: value for name, _, value in entries if name}
        self.command = [os.fsdecode(word) for word in read_proc(pid, "cmdline").split(b"\0")]

    @property
    def is_python(self) -> bool:
        """Whether it runs Python."""
        return any(os.path.basename(name).startswith(("python", "pypy")) for name in (self.command[0], self._exe()))

    def _exe(self) -> str:
        try:
            return os.readlink(f"/proc/{self.pid}/exe")
        except OSError:
            return ""


def read_proc(pid: int, name: str) -> bytes:
    with open(f"/proc/{pid}/{name}", "rb") as file:
        return file.read(1 << 22)


def ranks_within(rank: int, processes: list[Process]) -> dict[int, list[Process]]:
    """Return rank → processes: a node's program may be a launcher (accelerate, deepspeed) with ranks of its own."""
    inner: dict[int, list[Process]] = {}
    for process in processes:
        number = number_in(process.env.get(b"RANK", b""))
        if number is not None and process.is_python:
            inner.setdefault(number, []).append(process)
    is_rank = number_in(program_of(processes).env.get(b"RANK", b"")) is not None
    return {rank: processes} if is_rank or not inner else inner


def program_of(processes: list[Process]) -> Process:
    """Return the process that trains: the first Python among those of a rank, from the oldest down, else the oldest."""
    mine = {process.pid for process in processes}
    level = sorted((one for one in processes if one.parent not in mine), key=lambda one: (one.started, one.pid))
    first = level[0] if level else processes[0]
    level = [first]
    while level:
        for process in level:
            if process.is_python:
                return process
        above = {process.pid for process in level}
        level = sorted((one for one in processes if one.parent in above), key=lambda one: (one.started, one.pid))
    return first


def has_gpu(pid: int) -> bool:
    """Whether a process has loaded a GPU's driver: waiting for the GPU keeps its thread as busy as computing."""
    try:
        return any(name in read_proc(pid, "maps") for name in (b"/libcuda.so", b"/libamdhip64.so"))
    except OSError:
        return False
