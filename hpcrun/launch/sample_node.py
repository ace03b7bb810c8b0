"""What a job uses of one node: CPU time, memory, and the traffic of the network.

CPU time and memory come from the job's cgroup if Slurm has made one, else from the processes below the node's own
(proc(5)). Every value may be missing: then its reading is 0 or None, and never an error.
"""

from __future__ import annotations

import os
import re
import time

from .records import names_in

TYPE_CHECKING = False  # as typing's, which takes four milliseconds to import
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

CGROUPS, PROC, SYS = "/sys/fs/cgroup", "/proc", "/sys"
COST = 2000
"""The next search of all processes waits 2000 times the CPU time that the last one took: 0.05 % of a CPU."""
SEARCHES = 6
"""Without the kernel's list of children, the first 6 readings search: a job starts its processes early."""
_JOB = re.compile(r"(?:/[^/]+)*?/job_\d+(?=/|$)")
_HELD_V2 = ("anon", "shmem", "kernel_stack", "pagetables", "percpu", "sock", "slab_unreclaimable")
_HELD_V1 = ("total_rss", "total_shmem")
"""The memory that the kernel cannot take back. The page cache is left out: it fills whatever is free."""


def read(path: str) -> str:
    """Return the beginning of a small file of the kernel in three system calls; the empty string if it has none."""
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
    split = (line.split() for line in text.splitlines())
    return {words[0].rstrip(":"): int(words[1]) for words in split if len(words) > 1 and words[1].isdigit()}


class Cgroup:
    """The counters of this job's cgroup on this node: ``job_N``, with all of its steps. Empty if there is none.

    Args:
        text: of ``/proc/self/cgroup``.
    """

    def __init__(self, text: str, root: str = CGROUPS) -> None:
        self.cpu = self.memory = ""
        self.is_v2 = False
        for line in text.splitlines():
            _, _, rest = line.partition(":")
            controllers, _, path = rest.partition(":")
            match = _JOB.match(path)
            if match is None:
                continue
            names = controllers.split(",")
            if not controllers:
                counters = [place + match[0] for place in (root, os.path.join(root, "unified"))]
                folder = next((each for each in counters if os.path.exists(os.path.join(each, "cpu.stat"))), "")
                self.is_v2 = bool(folder)
                self.cpu = self.cpu or folder
                self.memory = self.memory or (folder if read(os.path.join(folder, "memory.stat")) else "")
            if "cpuacct" in names:
                self.cpu = self._v1(root, (*names, controllers), match[0], "cpuacct.usage")
            if "memory" in names:
                self.memory = self._v1(root, ("memory",), match[0], "memory.stat")

    @staticmethod
    def _v1(root: str, names: Iterable[str], path: str, file: str) -> str:
        counters = [os.path.join(root, name) + path for name in names]
        return next((each for each in counters if os.path.exists(os.path.join(each, file))), "")

    def cpu_s(self) -> float | None:
        """Return the CPU seconds of the job so far, None if they are not known."""
        used = read(os.path.join(self.cpu, "cpuacct.usage")).strip() if self.cpu else ""
        if used.isdigit():
            return int(used) / 1e9
        micro = fields(read(os.path.join(self.cpu, "cpu.stat"))).get("usage_usec") if self.cpu else None
        return None if micro is None else micro / 1e6

    def memory_used(self) -> int | None:
        """Return the bytes that the job holds, without the page cache; None if they are not known."""
        memory = fields(read(os.path.join(self.memory, "memory.stat"))) if self.memory else {}
        names = _HELD_V1 if "total_rss" in memory else _HELD_V2
        return sum(memory.get(name, 0) for name in names) if memory else None

    def memory_limit(self) -> int | None:
        """Return the job's memory limit in bytes, None if it has none."""
        for name in ("memory.max", "memory.limit_in_bytes") if self.memory else ():
            text = read(os.path.join(self.memory, name)).strip()
            if text.isdigit() and int(text) < 1 << 60:  # v1 writes "no limit" as a large number
                return int(text)
        return None


class ProcessTree:
    """The processes below some others.

    The kernel lists the children of a thread. That of a process's first thread is read each time. Only a search of all
    processes finds the children of other threads; it takes milliseconds on a large node, so after the beginning it is
    repeated only at a rate that its own cost allows.

    Args:
        roots: returns the processes at the top, which count, too.
    """

    def __init__(self, roots: Callable[[], Iterable[int]], proc: str = PROC) -> None:
        self._roots, self._proc = roots, proc
        self._pids: set[int] = set()
        self._search_at = 0.0
        self._searches = 1 if os.path.exists(f"{proc}/self/task/{os.getpid()}/children") else SEARCHES
        self._ticks = os.sysconf("SC_CLK_TCK")

    def read(self) -> tuple[float, int]:
        """Return the CPU seconds of the processes, with those of ended children, and the bytes that they hold."""
        roots = set(self._roots())
        now, began = time.monotonic(), time.process_time()
        if now >= self._search_at or self._searches > 0:
            self._searches -= 1
            self._pids = self._below(roots)
            self._search_at = now + COST * (time.process_time() - began)
        else:
            self._pids = self._known(roots)
        ticks = memory = 0
        for pid in self._pids:
            words = self._stat(str(pid))
            ticks += sum(map(int, words[11:15]))
            held = fields(read(f"{self._proc}/{pid}/status"))  # in kB
            memory += held["RssAnon"] + held.get("RssShmem", 0) if "RssAnon" in held else held.get("VmRSS", 0)
        return ticks / self._ticks, memory << 10

    def _known(self, roots: set[int]) -> set[int]:
        """Return the known processes that still exist, and the children of their first threads."""
        pids: set[int] = set()
        left = list(self._pids | roots)
        while left:
            pid = left.pop()
            if pid not in pids and (pid in roots or os.path.exists(f"{self._proc}/{pid}/stat")):
                pids.add(pid)
                left += map(int, read(f"{self._proc}/{pid}/task/{pid}/children").split())
        return pids

    def _below(self, roots: set[int]) -> set[int]:
        children: dict[int, list[int]] = {}
        for name in os.listdir(self._proc):
            if name.isdigit() and (words := self._stat(name)):
                children.setdefault(int(words[1]), []).append(int(name))
        pids, left = set(roots), list(roots)
        while left:
            for pid in children.get(left.pop(), ()):
                if pid not in pids:
                    pids.add(pid)
                    left.append(pid)
        return pids

    def _stat(self, pid: str) -> list[str]:
        """Return the fields of proc(5) from the state on; none of a process that is gone."""
        words = read(f"{self._proc}/{pid}/stat").rpartition(")")[2].split()
        return words if len(words) > 14 else []


class Traffic:
    """The counters of the network: of the interfaces without ``lo``, and of RDMA, which they do not count.

    An interface that stands for others (a bond, a bridge) would count their bytes twice: so only devices count, if
    there are any.
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
        """Return the bytes so far, of both directions: of the interfaces, and of RDMA (None without such a device)."""
        moved = sum(moved for name, moved in self._interfaces() if name in self._counted)
        counts = [text for text in (read(path).strip() for path in self._rdma) if text.isdigit()]
        return moved, 4 * sum(map(int, counts)) if counts else None  # they count words of 4 bytes

    def _interfaces(self) -> list[tuple[str, int]]:
        counters = []
        for line in read(self._path).splitlines():
            name, colon, rest = line.partition(":")
            words = rest.split()
            if colon and len(words) > 8 and words[0].isdigit() and words[8].isdigit():
                counters.append((name.strip(), int(words[0]) + int(words[8])))
        return counters


def allocated(cgroup: Cgroup) -> tuple[int | None, int | None]:
    """Return how many CPUs and how many bytes of memory this job has on this node; None for what is not known."""
    env = os.environ
    number = env.get("SLURM_CPUS_ON_NODE", "")
    cpus = int(number) if number.isdigit() else len(os.sched_getaffinity(0))
    per_node, per_cpu = env.get("SLURM_MEM_PER_NODE", ""), env.get("SLURM_MEM_PER_CPU", "")
    megabytes = int(per_node) if per_node.isdigit() else int(per_cpu) * cpus if per_cpu.isdigit() else 0
    return cpus, megabytes << 20 or cgroup.memory_limit()


class Meter:
    """CPU time and memory of the job on this node, from the best source that there is."""

    def __init__(self, roots: Callable[[], Iterable[int]]) -> None:
        self.cgroup = Cgroup(read(f"{PROC}/self/cgroup"))
        self._tree = ProcessTree(roots)

    def read(self) -> tuple[float, int]:
        """Return the CPU seconds so far, and the bytes in use."""
        cpu_s, memory = self.cgroup.cpu_s(), self.cgroup.memory_used()
        if cpu_s is None or memory is None:
            of_tree = self._tree.read()
            cpu_s = of_tree[0] if cpu_s is None else cpu_s
            memory = of_tree[1] if memory is None else memory
        return cpu_s, memory
