"""What an attempt uses of its nodes' hardware: the samples of the job.

The job records the samples (``launch/sampler.py``).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

from hpcrun.files import reading
from hpcrun.files.reading import (
    kinds_of,
    needs_of,
    open_regular,
    parse_object,
    read_fields,
    read_object,
)
from hpcrun.job.run_paths import AttemptFolder, parse_nodes
from hpcrun.runs.attempt import hosts, joined_files, names_in

IDLE = 0.01  # a GPU that is busy for at most this share of the time is idle
_MOST_BYTES = 8 << 20  # of one file: in_job/launch/sampler.py joins old samples before it has 1 MB
_MOST_GPUS = 256


@dataclass(frozen=True, slots=True)
class GpuUse:
    """The use of one GPU."""

    index: int  # in nvidia-smi's order
    busy: float  # the share of the time in which anything ran on it, 0 to 1
    memory: int  # bytes in use
    memory_total: int  # bytes; 0 if unknown
    power: float | None  # watts; None if unknown


@dataclass(frozen=True, slots=True)
class UseSample:
    """The use of one node since the sample before."""

    time: float  # seconds since the epoch by the node's clock
    cpus: float  # CPUs that the job kept busy: 2.5 for two and a half
    memory: int  # bytes that its processes hold, without the page cache
    # bytes per second, both directions, all interfaces but ``lo``, also of other jobs
    network: float
    rdma: float | None  # the same of the RDMA devices; None without such a device
    gpus: tuple[GpuUse, ...]  # of the job; empty if there is none, or nvidia-smi did not respond


@dataclass(frozen=True, slots=True)
class NodeUse:
    """The samples of one node, the oldest first."""

    node: str
    cpus: int | None  # allocated on this node; None if unknown
    memory_limit: int | None  # bytes allocated on this node; None if unknown
    samples: tuple[UseSample, ...]
    # when sampling began, in seconds since the epoch: the first sample covers the time since then
    started: float = 0.0

    def began(self) -> float:
        """Return when the time began that the samples cover, in seconds since the epoch."""
        first = self.samples[0].time
        return min(self.started, first) if self.started else first

    def spans(self) -> list[float]:
        """Return the seconds that each sample covers."""
        times = [each.time for each in self.samples]
        if self.started:
            before = [self.started, *times]
        else:
            before = times[:1] + times
        return [max(0.0, time - earlier) for earlier, time in zip(before, times, strict=False)]


_BYTES = reading.whole(0, 1 << 60)


def _amount(value: Any) -> float:
    if not 0 <= reading.number(value) < 1e15:
        raise ValueError("is not an amount")
    return float(value)


def _gpu(value: Any) -> GpuUse:
    if not isinstance(value, list) or len(value) != 5:
        raise ValueError("is not the use of a GPU")
    index, busy, memory, total, power = value
    watts = reading.optional(_amount)(power)
    return GpuUse(
        reading.whole(0, 10**6)(index),
        min(1.0, _amount(busy)),
        _BYTES(memory),
        _BYTES(total),
        watts,
    )


def _gpus(value: Any) -> tuple[GpuUse, ...]:
    if not isinstance(value, list) or len(value) > _MOST_GPUS:
        raise ValueError("is not a list of GPUs")
    return tuple(_gpu(each) for each in value)


_HEAD: dict[str, reading.Kind] = {
    "started": reading.time_s,
    "cpus": reading.optional(reading.whole(1, 10**6)),
    "memory_limit": reading.optional(_BYTES),
}
_SAMPLE = kinds_of(UseSample, integer=_BYTES, real=_amount, time=reading.time_s, gpus=_gpus)


def read_use(folder: AttemptFolder) -> tuple[NodeUse, ...]:
    """Return the samples of each node of an attempt, in the order of its nodes.

    A damaged line is left out.
    """
    names = parse_nodes({*names_in(folder.path), *joined_files(folder)}, "use")
    if not names:
        return ()
    order = {host: place for place, host in enumerate(hosts(folder))}
    ordered = sorted(names, key=lambda name: (order.get(name, len(order)), name))
    return tuple(use for name in ordered if (use := _read_node(folder, name)) is not None)


def _read_node(folder: AttemptFolder, node: str) -> NodeUse | None:
    """Return the samples of one node; None if it has none."""
    try:
        with open_regular(folder.node_file(node, "use"), links=False) as file:
            data = file.read(_MOST_BYTES)
    except OSError:
        data = joined_files(folder).get(folder.node_file(node, "use").name, "").encode()
        if not data:
            return None
    head: dict[str, Any] = {}
    samples: list[UseSample] = []
    for line in data.split(b"\n"):
        fields = _fields(line)
        if "time" not in fields:
            head = head or fields
        elif not samples or fields["time"] > samples[-1].time:
            samples.append(UseSample(**fields))
    return NodeUse(
        node, head.get("cpus"), head.get("memory_limit"), tuple(samples), head.get("started", 0.0)
    )


def _fields(line: bytes) -> dict[str, Any]:
    """Return the checked fields of one line; none of a damaged line."""
    try:
        data = parse_object(line.decode("utf-8", "replace"))
        kinds, needed = (_SAMPLE, tuple(_SAMPLE)) if "time" in data else (_HEAD, ("started",))
        return read_fields(data, kinds, needed)[0]
    except ValueError:
        return {}


@dataclass(frozen=True, slots=True)
class IdleWarning:
    """The warning of a job whose GPUs are all idle; times in seconds since the epoch."""

    since: float  # since when they are idle
    warned: float  # when the job was warned
    ends: float  # when it ends


def idle_warning(folder: AttemptFolder) -> IdleWarning | None:
    """Return the warning of an attempt whose GPUs are all idle now (``launch/idle_watch.py``).

    Returns None without a warning.
    """
    try:
        kinds = kinds_of(IdleWarning, integer=reading.whole(), real=reading.time_s)
        return IdleWarning(**read_fields(read_object(folder.idle), kinds, needs_of(IdleWarning))[0])
    except (OSError, ValueError):
        return None


def idle_unknown(folder: AttemptFolder) -> str | None:
    """Return the node without whose samples the limit on idle GPUs has no effect.

    Returns None if the limit has an effect.
    """
    try:
        node = read_object(folder.idle_unknown).get("node")
    except (OSError, ValueError):
        return None
    return node if isinstance(node, str) else None


@dataclass(frozen=True, slots=True)
class UseSummary:
    """The use of the hardware by a run in a few numbers.

    The numbers are of one node on average, unless they say otherwise.
    """

    # how long any node was sampled, over all attempts; without the time between two attempts
    seconds: float
    nodes: int  # how many nodes were sampled
    cpus: float  # CPUs that were busy on average
    cpus_peak: float  # the most CPUs that were busy on a node in one sample
    cpus_asked: int | None  # CPUs of a node; None if unknown
    memory_peak: int  # the most bytes that a node held in one sample
    memory_asked: int | None  # bytes of a node; None if unknown
    gpus: int = 0  # how many GPUs were sampled, of all nodes
    gpus_unused: int = 0  # how many of them were idle all the time
    gpu_busy: float | None = None  # the busy share of the GPUs; None without a GPU
    # the share of the time in which a GPU was idle; None without a GPU
    gpu_idle: float | None = None
    gpu_memory: float | None = None  # the highest share of a GPU's memory in use; None if unknown
    # CPUs that were busy on a node while all of its GPUs were idle; None if they never were
    idle_cpus: float | None = None
    watts: float | None = None  # of one GPU; None if unknown
    network: float = 0.0  # bytes per second of a node
    rdma: float | None = None  # the same over RDMA; None without such a device


def summarise(uses: Iterable[NodeUse]) -> UseSummary | None:
    """Return the summary of the samples of nodes, of one attempt or of several.

    Returns None without a sample.
    """
    nodes = [use for use in uses if use.samples]
    if not nodes:
        return None
    weighted = [
        (span, sample)
        for use in nodes
        for span, sample in zip(use.spans(), use.samples, strict=True)
    ]
    by_gpu = [(span, gpu) for span, sample in weighted for gpu in sample.gpus]
    idle = [
        (span, one.cpus)
        for span, one in weighted
        if one.gpus and all(gpu.busy <= IDLE for gpu in one.gpus)
    ]
    highest: dict[tuple[str, int], float] = {}
    for use in nodes:
        for gpu in (gpu for sample in use.samples for gpu in sample.gpus):
            highest[use.node, gpu.index] = max(gpu.busy, highest.get((use.node, gpu.index), 0.0))
    fullest = (gpu.memory / gpu.memory_total for _, gpu in by_gpu if gpu.memory_total)
    return UseSummary(
        _sampled_s(nodes),
        len({use.node for use in nodes}),
        cast(float, mean_over_time([(span, one.cpus) for span, one in weighted])),
        max(one.cpus for _, one in weighted),
        _least(use.cpus for use in nodes),
        max(one.memory for _, one in weighted),
        _least(use.memory_limit for use in nodes),
        gpus=len(highest),
        gpus_unused=sum(busy <= IDLE for busy in highest.values()),
        gpu_busy=mean_over_time([(span, gpu.busy) for span, gpu in by_gpu]),
        gpu_idle=mean_over_time([(span, float(gpu.busy <= IDLE)) for span, gpu in by_gpu]),
        gpu_memory=max(fullest, default=None),
        idle_cpus=mean_over_time(idle),
        watts=mean_over_time([(span, gpu.power) for span, gpu in by_gpu if gpu.power is not None]),
        network=cast(float, mean_over_time([(span, one.network) for span, one in weighted])),
        rdma=mean_over_time([(span, one.rdma) for span, one in weighted if one.rdma is not None]),
    )


def _sampled_s(uses: Sequence[NodeUse]) -> float:
    """Return the seconds in which at least one node was sampled; each second counts once."""
    sampled_s = 0.0
    counted_until = 0.0
    for begin, end in sorted((use.began(), use.samples[-1].time) for use in uses):
        sampled_s += max(0.0, end - max(begin, counted_until))
        counted_until = max(end, counted_until)
    return sampled_s


def only_gpu(use: NodeUse, index: int) -> NodeUse:
    """Return the samples of a node with one of its GPUs alone, and only those that have it."""
    kept = (
        replace(sample, gpus=tuple(gpu for gpu in sample.gpus if gpu.index == index))
        for sample in use.samples
        if any(gpu.index == index for gpu in sample.gpus)
    )
    return replace(use, samples=tuple(kept))


def mean_over_time(pairs: Sequence[tuple[float, float]]) -> float | None:
    """Return the mean over time of values with their seconds; None of no values."""
    if not pairs:
        return None
    whole_s = sum(span for span, _ in pairs)
    if not whole_s:
        return sum(value for _, value in pairs) / len(pairs)
    return sum(span * value for span, value in pairs) / whole_s


def _least(values: Iterable[int | None]) -> int | None:
    return min((value for value in values if value is not None), default=None)
