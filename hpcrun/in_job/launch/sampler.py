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
from .rank_environment import PACKED, PER_WRITE, SAMPLE, SAMPLE_S
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


class _Counters:
    """The counters of this node at one moment; ``rdma`` is None without such a device."""

    def __init__(self, at: float, cpu_s: float, moved: int, rdma: int | None) -> None:
        self.at = at
        self.cpu_s = cpu_s
        self.moved = moved
        self.rdma = rdma


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
        self._before: _Counters | None = None
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
            self._network = Traffic()
            self._gpus = Gpus(self._period_s)
            self._started = time.time()
        cpu_s, memory = used(self._cgroup, self._roots)
        moved, rdma = self._network.read()
        before = self._before
        self._before = _Counters(now, cpu_s, moved, rdma)
        if before is None:
            return
        span_s = now - before.at
        cpus = max(0.0, cpu_s - before.cpu_s) / span_s
        # the past of a process counts when it comes to the job, as from a daemon
        cpus = min(cpus, float(os.cpu_count() or 1))
        network = max(0, moved - before.moved) / span_s
        rdma_rate = None
        if rdma is not None and before.rdma is not None:
            rdma_rate = max(0, rdma - before.rdma) / span_s
        sample = line(time.time(), cpus, memory, network, rdma_rate, self._gpus.read())
        self._unwritten.append(sample)
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
            self._unwritten = []
            self._has_failed = False
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
            return
        cpus = None
        memory = None
        if not self._shares:
            cpus, memory = allocated(self._cgroup)
        numbers = f'"cpus": {cpus or "null"}, "memory_limit": {memory or "null"}'
        _append(self._path, f'{{"started": {self._started:.1f}, {numbers}}}\n')
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
    if fresh_line:
        text = f"\n{text}"
    data = text.encode()
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
    rows = ", ".join(_gpu_row(gpu) for gpu in gpus)
    numbers = (
        f'"cpus": {cpus:.2f}, "memory": {memory:.0f}, "network": {network:.0f}, '
        f'"rdma": {_rounded(rdma)}'
    )
    return f'{{"time": {at:.2f}, {numbers}, "gpus": [{rows}]}}\n'


def _gpu_row(gpu: Any) -> str:
    index, busy, used_bytes, total, watts = gpu
    return f"[{index:d}, {busy:.3f}, {used_bytes:d}, {total:d}, {_rounded(watts)}]"


def _rounded(number: float | None) -> str:
    return "null" if number is None else f"{number:.0f}"


def join(path: str) -> int:
    """Join old samples of a file, so that they are evenly far apart; return its number of lines."""
    import json  # about once an hour

    head, samples = _read_samples(path)
    last = float(head.get("started") or 0)
    for sample in samples:
        sample["span"] = max(0.0, sample["time"] - last)
        last = sample["time"]
    joined = [_one(group) for group in _groups(samples[:-RECENT_LINES])]
    joined += samples[-RECENT_LINES:]
    names = ("time", "cpus", "memory", "network", "rdma", "gpus")
    lines = [line(*(sample[name] for name in names)) for sample in joined]
    aside = f"{path}.{os.getpid()}"
    with open(aside, "w", encoding="utf-8") as file:
        file.write(json.dumps(head) + "\n" + "".join(lines))
    os.replace(aside, path)
    return 1 + len(lines)


def _read_samples(path: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return the first line of a file of samples, and its samples."""
    import json

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
    return head, samples


def _groups(samples: list[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    """Return the samples in at most about OLD_LINES groups, each as long as the others."""
    width_s = sum(sample["span"] for sample in samples) / OLD_LINES
    groups: list[list[dict[str, Any]]] = []
    for sample in samples:
        if not groups or sum(one["span"] for one in groups[-1]) >= width_s:
            groups.append([])
        groups[-1].append(sample)
    return groups


def _one(group: list[dict[str, Any]]) -> dict[str, Any]:
    """Return one sample for several: the mean over time, and the most memory."""
    spans = [sample["span"] or 1e-9 for sample in group]
    joined = {"time": group[-1]["time"], "memory": max(sample["memory"] for sample in group)}
    for name in ("cpus", "network", "rdma"):
        joined[name] = _mean([sample[name] for sample in group], spans)
    joined["gpus"] = _gpus_of(group, spans)
    return joined


def _gpus_of(group: list[dict[str, Any]], spans: list[float]) -> list[list[Any]]:
    """Return one row for each GPU of some samples."""
    by_index = [{gpu[0]: gpu for gpu in sample["gpus"]} for sample in group]
    indices: set[int] = set().union(*by_index)
    gpus = []
    for index in sorted(indices):
        rows = [gpus_of_sample.get(index) for gpus_of_sample in by_index]
        busy = _mean([row[1] if row else None for row in rows], spans)
        watts = _mean([row[4] if row else None for row in rows], spans)
        known = [row for row in rows if row]
        gpus.append([index, busy, max(row[2] for row in known), known[-1][3], watts])
    return gpus


def _mean(values: list[float | None], spans: list[float]) -> float | None:
    """Return the mean over time of the known values, None if none is known."""
    known = [(span_s, value) for span_s, value in zip(spans, values) if value is not None]
    if not known:
        return None
    return sum(span_s * value for span_s, value in known) / sum(span_s for span_s, _ in known)
