"""What a job uses of one node: CPU time, memory, and the traffic of the network.

CPU time and memory come from the job's cgroup if Slurm has made one, else from the processes below
the node's own (proc(5)). Every value may be missing: then its reading is 0 or None, and never an
error.
"""

from __future__ import annotations

import os
import re
from contextlib import suppress

from .records import names_in

TYPE_CHECKING = False  # as typing's, which takes four milliseconds to import
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

CGROUPS = "/sys/fs/cgroup"
PROC = "/proc"
SYS = "/sys"
_JOB = re.compile(r"(?:/[^/]+)*?/job_\d+(?=/|$)")
_HELD_V2 = ("anon", "shmem", "kernel_stack", "pagetables", "percpu", "sock", "slab_unreclaimable")
_HELD_V1 = ("total_rss", "total_shmem")
"""The memory that the kernel cannot take back.

The page cache is left out: it fills whatever is free.
"""


def read(path: str) -> str:
    """Return the beginning of a small file of the kernel, in three system calls.

    The result is the empty string if the kernel has no such file.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            return os.read(descriptor, 1 << 16).decode("utf-8", "replace")
        finally:
            os.close(descriptor)
    except OSError:
        return ""


def fields(text: str) -> dict[str, int]:
    """Return the numbers of lines such as ``usage_usec 12`` and ``RssAnon:  12 kB``."""
    numbers = {}
    for line in text.splitlines():
        words = line.split()
        if len(words) > 1 and words[1].isdigit():
            numbers[words[0].rstrip(":")] = int(words[1])
    return numbers


class Cgroup:
    """The counters of this job's cgroup on this node: ``job_N``, with all of its steps.

    Empty if there is none.

    Args:
        text: of ``/proc/self/cgroup``.
    """

    def __init__(self, text: str, root: str = CGROUPS) -> None:
        self._folders: list[str] = []
        for line in text.splitlines():
            controllers, _, path = line.partition(":")[2].partition(":")
            match = _JOB.match(path)
            if match is None:
                continue
            if controllers:  # version 1
                names = [*controllers.split(","), controllers]
            else:
                names = ["", "unified"]
            self._folders += [os.path.join(root, name) + match[0] for name in names]
        self._v1_cpu = self._path("cpuacct.usage")
        self._cpu = self._path("cpu.stat")
        self._memory = self._path("memory.stat")
        self._limit = self._path("memory.max", "memory.limit_in_bytes")

    def _path(self, *names: str) -> str:
        """Return the first of some files that exists, the empty string if none does."""
        for name in names:
            for folder in self._folders:
                path = os.path.join(folder, name)
                if os.path.exists(path):
                    return path
        return ""

    def cpu_s(self) -> float | None:
        """Return the CPU seconds of the job so far, None if they are not known."""
        used = read(self._v1_cpu).strip()
        if used.isdigit():
            return int(used) / 1e9
        micro = fields(read(self._cpu)).get("usage_usec")
        return None if micro is None else micro / 1e6

    def memory_used(self) -> int | None:
        """Return the bytes that the job holds, without the page cache.

        The result is None if the bytes are not known.
        """
        memory = fields(read(self._memory))
        if not memory:
            return None
        names = _HELD_V1 if "total_rss" in memory else _HELD_V2
        return sum(memory.get(name, 0) for name in names)

    def memory_limit(self) -> int | None:
        """Return the job's memory limit in bytes, None if it has none."""
        text = read(self._limit).strip()
        # v1 writes "no limit" as a large number
        if text.isdigit() and int(text) < 1 << 60:
            return int(text)
        return None


def use_of_processes(roots: Iterable[int], proc: str = PROC) -> tuple[float, int]:
    """Return the CPU seconds of some processes, and the bytes that the processes hold.

    The processes below them count, too, and the ended children.

    It reads all processes of this user, which takes milliseconds: the sampler makes room for that.
    """
    stats: dict[int, list[str]] = {}  # the fields of proc(5) from the state on
    children: dict[int, list[int]] = {}
    me = os.getuid()
    for entry in os.scandir(proc):
        with suppress(OSError):  # it is gone
            if entry.name.isdigit() and entry.stat().st_uid == me:
                words = read(entry.path + "/stat").rpartition(")")[2].split()
                if len(words) > 14:
                    stats[int(entry.name)] = words
                    children.setdefault(int(words[1]), []).append(int(entry.name))
    tops = {*roots}
    pids = [pid for pid in tops if pid in stats]
    ticks = 0
    memory_kb = 0
    for pid in pids:
        pids += (child for child in children.get(pid, ()) if child not in tops)
        ticks += sum(map(int, stats[pid][11:15]))
        memory_kb += _held_kb(fields(read(f"{proc}/{pid}/status")))
    return ticks / os.sysconf("SC_CLK_TCK"), memory_kb << 10


def _held_kb(status: dict[str, int]) -> int:
    """Return the memory of a process, without files where the kernel tells them apart."""
    if "RssAnon" in status:
        return status["RssAnon"] + status.get("RssShmem", 0)
    return status.get("VmRSS", 0)


class Traffic:
    """The counters of the network: of the interfaces without ``lo``, and of RDMA.

    The interfaces do not count the bytes of RDMA.

    An interface that stands for others (a bond, a bridge) would count their bytes twice: so only
    devices count, if there are any.
    """

    def __init__(self, proc: str = PROC, sys_: str = SYS) -> None:
        self._path = f"{proc}/self/net/dev"
        names = [name for name, _ in self._interfaces()]
        devices = {name for name in names if os.path.exists(f"{sys_}/class/net/{name}/device")}
        self._counted = devices or {*names} - {"lo"}
        self._rdma: list[str] = []
        top = f"{sys_}/class/infiniband"
        for device in names_in(top):
            for port in names_in(f"{top}/{device}/ports"):
                folder = f"{top}/{device}/ports/{port}/counters"
                self._rdma += [f"{folder}/{name}" for name in ("port_rcv_data", "port_xmit_data")]

    def read(self) -> tuple[int, int | None]:
        """Return the bytes so far, in both directions, of the interfaces and of RDMA.

        The bytes of RDMA are None without such a device.
        """
        moved = sum(count for name, count in self._interfaces() if name in self._counted)
        counts = []
        for path in self._rdma:
            text = read(path).strip()
            if text.isdigit():
                counts.append(int(text))
        rdma = 4 * sum(counts) if counts else None  # RDMA's counters count words of 4 bytes
        return moved, rdma

    def _interfaces(self) -> list[tuple[str, int]]:
        counters = []
        for line in read(self._path).splitlines():
            name, colon, rest = line.partition(":")
            words = rest.split()
            if colon and len(words) > 8 and words[0].isdigit() and words[8].isdigit():
                counters.append((name.strip(), int(words[0]) + int(words[8])))
        return counters


def allocated(cgroup: Cgroup) -> tuple[int | None, int | None]:
    """Return how many CPUs and how many bytes of memory this job has on this node.

    A number that is not known is None.
    """
    env = os.environ
    number = env.get("SLURM_CPUS_ON_NODE", "")
    cpus = int(number) if number.isdigit() else len(os.sched_getaffinity(0))
    per_node = env.get("SLURM_MEM_PER_NODE", "")
    per_cpu = env.get("SLURM_MEM_PER_CPU", "")
    if per_node.isdigit():
        megabytes = int(per_node)
    elif per_cpu.isdigit():
        megabytes = int(per_cpu) * cpus
    else:
        megabytes = 0
    return cpus, megabytes << 20 or cgroup.memory_limit()


def used(cgroup: Cgroup, roots: Callable[[], Iterable[int]]) -> tuple[float, int]:
    """Return the CPU seconds of the job so far on this node, and the bytes in use.

    The values are those of the cgroup, or of the processes where the cgroup does not tell them.
    """
    cpu_s = cgroup.cpu_s()
    memory = cgroup.memory_used()
    if cpu_s is not None and memory is not None:
        return cpu_s, memory
    cpu_s_of_processes, memory_of_processes = use_of_processes(roots())
    if cpu_s is None:
        cpu_s = cpu_s_of_processes
    if memory is None:
        memory = memory_of_processes
    return cpu_s, memory
