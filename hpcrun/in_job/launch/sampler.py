"""What a job uses of one node, every ten seconds, in one file: ``node-NAME.use``.

``hpcrun/runs/use_samples.py`` reads it.

The process that exists once per node samples between two looks for requests to stop: there is no
thread, and the only other process is nvidia-smi. The first sample is written at once, later ones
six at a time, so that the shared file system sees one write a minute. Old samples are joined: a
file never has more than about 1500 lines. No error of it ever reaches the job, and a sample that
takes long makes the next one later, so that all of them together take less than 0.1 % of a CPU.
"""

from __future__ import annotations

import os
import time

from . import records
from .environment import PACKED, PER_WRITE, SAMPLE, SAMPLE_S
from .sample_gpus import Gpus
from .sample_node import PROC, Cgroup, Traffic, allocated, read, used

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any

MOST_UNWRITTEN = 360
MOST_LINES = 1440
RECENT_LINES = 360
OLD_LINES = 700
COST = 2000
"""The next sample waits 2000 times the CPU time that the last one took: 0.05 % of a CPU."""


class Sampler:
    """The samples of this node.

    Args:
        roots: returns the processes of the job on this node; those below them count, too.
    """

    def __init__(self, roots: Callable[[], Iterable[int]]) -> None:
        self._roots = roots
        self._period_s = float(os.environ.get(SAMPLE) or SAMPLE_S)
        self._at = 0.0 if self._period_s > 0 else float("inf")
        self._node = os.environ["HPCRUN_NODE"]
        self._path = os.path.join(records.attempt_dir(), f"node-{self._node}.use")
        self._unwritten: list[str] = []
        self._lines = 0
        self._has_failed = False
        self._write_at = 0.0
        self._before: tuple[float, float, int, int | None] | None = None
        # the cgroup and the numbers of the allocation are those of all together
        self._shares = PACKED in os.environ
        self._cgroup = Cgroup("" if self._shares else read(f"{PROC}/self/cgroup"))
        self._gpus: Gpus | None = None

    def tick(self) -> None:
        """Take a sample if it is time for one."""
        now = time.monotonic()
        if now < self._at:
            return
        began = time.process_time()
        try:
            self._take(now)
        except Exception as error:  # whatever it is, the training continues
            self._at = float("inf")
            records.say(
                f"the use of {self._node} is not recorded any more: {type(error).__name__}: {error}"
            )
            return
        self._at = now + self._period_s + max(0.0, COST * (time.process_time() - began) - SAMPLE_S)

    def end(self) -> None:
        """Write what is left."""
        try:
            if self._gpus:
                self._gpus.end()
            self._write()
        except Exception as error:
            records.say(
                f"the last samples of {self._node} are lost: {type(error).__name__}: {error}"
            )

    def _take(self, now: float) -> None:
        if self._gpus is None:
            self._network, self._gpus = Traffic(), Gpus(self._period_s)
            self._started = time.time()
        cpu_s, memory = used(self._cgroup, self._roots)
        moved, rdma = self._network.read()
        before, self._before = self._before, (now, cpu_s, moved, rdma)
        if before is None:
            return
        span = now - before[0]
        if rdma is None or before[3] is None:
            both = None
        else:
            both = max(0, rdma - before[3]) / span
        cpus = max(0.0, cpu_s - before[1]) / span
        # the past of a process counts when it comes to the job, as from a daemon
        most = float(os.cpu_count() or 1)
        self._unwritten.append(
            line(
                time.time(),
                min(cpus, most),
                memory,
                max(0, moved - before[2]) / span,
                both,
                self._gpus.read(),
            )
        )
        if now >= self._write_at:
            self._write()
            self._write_at = now + (PER_WRITE - 0.5) * self._period_s

    def _write(self) -> None:
        """Append the new samples.

        A full disk is reported once, and the samples are kept for the next time.
        """
        if not self._unwritten:
            return
        try:
            if self._lines == 0:
                self._begin()
            _append(self._path, "".join(self._unwritten), fresh_line=self._has_failed)
            self._lines += len(self._unwritten)
            self._unwritten, self._has_failed = [], False
            if self._lines > MOST_LINES:
                self._lines = join(self._path)
        except OSError as error:
            if not self._has_failed:
                records.say(f"cannot record the use of {self._node}: {error}")
            self._has_failed = True
            del self._unwritten[:-MOST_UNWRITTEN]

    def _begin(self) -> None:
        """Write the first line of the file of samples.

        After another process of this node, as the tasks of srun are, go on with its file.
        """
        if os.path.exists(self._path) and os.path.getsize(self._path):
            with open(self._path, "rb") as file:
                self._lines = file.read().count(b"\n")
        else:
            cpus, memory = (None, None) if self._shares else allocated(self._cgroup)
            words = [f'"cpus": {cpus or "null"}', f'"memory_limit": {memory or "null"}']
            _append(self._path, f'{{"started": {self._started:.1f}, {", ".join(words)}}}\n')
            self._lines = 1


def _append(path: str, text: str, *, fresh_line: bool = False) -> None:
    """Append text in one write.

    Args:
        path: the file, which is made if there is none.
        text: what is appended.
        fresh_line: the last write has failed, perhaps within a line.

    Raises:
        OSError: it was not written as a whole.
    """
    data = (("\n" if fresh_line else "") + text).encode()
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        if os.write(descriptor, data) < len(data):
            raise OSError("the disk is full")
    finally:
        os.close(descriptor)


def line(
    at: float, cpus: float, memory: float, network: float, rdma: float | None, gpus: Iterable[Any]
) -> str:
    """Return one sample as JSON; written by hand, since every node would import json for it."""
    rows = ", ".join(
        f"[{index:d}, {busy:.3f}, {used:d}, {total:d}, "
        f"{'null' if watts is None else format(watts, '.0f')}]"
        for index, busy, used, total, watts in gpus
    )
    both = "null" if rdma is None else format(rdma, ".0f")
    numbers = (
        f'"cpus": {cpus:.2f}, "memory": {memory:.0f}, "network": {network:.0f}, "rdma": {both}'
    )
    return f'{{"time": {at:.2f}, {numbers}, "gpus": [{rows}]}}\n'


def join(path: str) -> int:
    """Join old samples of a file, so that they are evenly far apart; return its number of lines."""
    import json  # about once an hour

    head: dict[str, Any] = {}
    samples: list[dict[str, Any]] = []
    with open(path, encoding="utf-8", errors="replace") as file:
        for text in file:
            try:
                record = json.loads(text)
                if "time" in record:
                    samples.append(record)
                else:
                    head = record
            except (TypeError, ValueError):  # cut off when a disk was full
                continue
    last = float(head.get("started") or 0)
    for each in samples:
        each["span"], last = max(0.0, each["time"] - last), each["time"]
    old = samples[:-RECENT_LINES]
    recent = samples[-RECENT_LINES:]
    width_s = sum(each["span"] for each in old) / OLD_LINES
    groups: list[list[dict[str, Any]]] = [[]]
    for each in old:
        if sum(one["span"] for one in groups[-1]) >= width_s:
            groups.append([])
        groups[-1].append(each)
    joined = map(_one, filter(None, groups))
    lines = [
        line(
            each["time"], each["cpus"], each["memory"], each["network"], each["rdma"], each["gpus"]
        )
        for each in (*joined, *recent)
    ]
    aside = f"{path}.{os.getpid()}"
    with open(aside, "w", encoding="utf-8") as file:
        file.write(json.dumps(head) + "\n" + "".join(lines))
    os.replace(aside, path)
    return 1 + len(lines)


def _one(group: list[dict[str, Any]]) -> dict[str, Any]:
    """Return one sample for several: the mean over time, and the most memory."""

    def mean(values: list[float | None]) -> float | None:
        known = [
            (each["span"] or 1e-9, value) for each, value in zip(group, values) if value is not None
        ]
        if known:
            return sum(span * value for span, value in known) / sum(span for span, _ in known)
        return None

    means = {name: mean([each[name] for each in group]) for name in ("cpus", "network", "rdma")}
    by_index = [{gpu[0]: gpu for gpu in each["gpus"]} for each in group]
    gpus = []
    for index in sorted({index for each in by_index for index in each}):
        rows = [each.get(index) for each in by_index]
        known = [row for row in rows if row]
        busy, watts = (mean([row and row[place] for row in rows]) for place in (1, 4))
        gpus.append([index, busy, max(row[2] for row in known), known[-1][3], watts])
    memory = max(each["memory"] for each in group)
    return {**means, "time": group[-1]["time"], "memory": memory, "gpus": gpus}
