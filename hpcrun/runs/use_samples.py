"""What an attempt uses of its nodes' hardware: the samples of the job.

The job records the samples (``launch/sampler.py``).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
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
        return min(self.started or first, first)

    def spans(self) -> list[float]:
        """Return the seconds that each sample covers."""
        if not self.samples:
            return []
        spans = []
        earlier = self.started or self.samples[0].time
        for sample in self.samples:
            spans.append(max(0.0, sample.time - earlier))
            earlier = sample.time
        return spans


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
    nodes = parse_nodes({*names_in(folder.path), *joined_files(folder)}, "use")
    if not nodes:
        return ()
    order = {host: place for place, host in enumerate(hosts(folder))}
    uses = []
    for node in sorted(nodes, key=lambda node: (order.get(node, len(order)), node)):
        use = _read_node(folder, node)
        if use is not None:
            uses.append(use)
    return tuple(uses)


def _read_node(folder: AttemptFolder, node: str) -> NodeUse | None:
    """Return the samples of one node; None if it has none."""
    try:
        with open_regular(folder.node_file(node, "use"), links=False) as file:
            data = file.read(_MOST_BYTES)
    except OSError:
        joined = joined_files(folder).get(folder.node_file(node, "use").name, "")
        if not joined:
            return None
        data = joined.encode()
    head: dict[str, Any] = {}
    samples: list[UseSample] = []
    for line in data.split(b"\n"):
        fields = _fields(line)
        if "time" not in fields:
            head = head or fields
        elif not samples or fields["time"] > samples[-1].time:
            samples.append(UseSample(**fields))
    return NodeUse(
        node,
        cpus=head.get("cpus"),
        memory_limit=head.get("memory_limit"),
        samples=tuple(samples),
        started=head.get("started", 0.0),
    )


def _fields(line: bytes) -> dict[str, Any]:
    """Return the checked fields of one line; none of a damaged line."""
    try:
        data = parse_object(line.decode("utf-8", "replace"))
        if "time" in data:
            return read_fields(data, _SAMPLE, tuple(_SAMPLE))[0]
        return read_fields(data, _HEAD, ("started",))[0]
    except ValueError:
        return {}


@dataclass(frozen=True, slots=True)
class IdleWarning:
    """The warning of a job whose GPUs are all idle; times in seconds since the epoch."""

    since: float  # since when they are idle
    warned: float  # when the job was warned
    ends: float  # when it ends


def idle_warning(folder: AttemptFolder) -> IdleWarning | None:
    """Return the warning of an attempt whose GPUs are all idle now (``per_job/idle_watch.py``).

    Returns None without a warning.
    """
    try:
        kinds = kinds_of(IdleWarning, integer=reading.whole(), real=reading.time_s)
        known, _ = read_fields(read_object(folder.idle), kinds, needs_of(IdleWarning))
        return IdleWarning(**known)
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
    collected = _Collected()
    for use in nodes:
        collected.add(use)
    gpus = collected.busiest.values()
    return UseSummary(
        seconds=_sampled_s(nodes),
        nodes=len({use.node for use in nodes}),
        cpus=cast(float, mean_over_time(collected.cpus)),
        cpus_peak=max(cpus for _, cpus in collected.cpus),
        cpus_asked=_least(use.cpus for use in nodes),
        memory_peak=collected.memory_peak,
        memory_asked=_least(use.memory_limit for use in nodes),
        gpus=len(gpus),
        gpus_unused=sum(busy <= IDLE for busy in gpus),
        gpu_busy=mean_over_time(collected.gpu_busy),
        gpu_idle=mean_over_time(collected.gpu_idle),
        gpu_memory=collected.gpu_memory,
        idle_cpus=mean_over_time(collected.idle_cpus),
        watts=mean_over_time(collected.watts),
        network=cast(float, mean_over_time(collected.network)),
        rdma=mean_over_time(collected.rdma),
    )


_OverTime = list[tuple[float, float]]  # values with the seconds that each covers: (seconds, value)


@dataclass(slots=True)
class _Collected:
    """The values of all samples of nodes, and of their GPUs."""

    cpus: _OverTime = field(default_factory=list)
    idle_cpus: _OverTime = field(default_factory=list)  # of samples in which all GPUs were idle
    network: _OverTime = field(default_factory=list)
    rdma: _OverTime = field(default_factory=list)
    memory_peak: int = 0
    gpu_busy: _OverTime = field(default_factory=list)
    gpu_idle: _OverTime = field(default_factory=list)  # 1 for a GPU that was idle, else 0
    watts: _OverTime = field(default_factory=list)
    gpu_memory: float | None = None  # the highest share in use
    # node and index of a GPU → the highest share of a sample's time in which the GPU was busy
    busiest: dict[tuple[str, int], float] = field(default_factory=dict)

    def add(self, use: NodeUse) -> None:
        """Add the samples of one node."""
        for span_s, sample in zip(use.spans(), use.samples, strict=True):
            self.cpus.append((span_s, sample.cpus))
            self.network.append((span_s, sample.network))
            if sample.rdma is not None:
                self.rdma.append((span_s, sample.rdma))
            self.memory_peak = max(self.memory_peak, sample.memory)
            for gpu in sample.gpus:
                self._add_gpu(use.node, gpu, span_s)
            all_idle = all(gpu.busy <= IDLE for gpu in sample.gpus)
            if sample.gpus and all_idle:
                self.idle_cpus.append((span_s, sample.cpus))

    def _add_gpu(self, node: str, gpu: GpuUse, span_s: float) -> None:
        self.gpu_busy.append((span_s, gpu.busy))
        self.gpu_idle.append((span_s, float(gpu.busy <= IDLE)))
        if gpu.power is not None:
            self.watts.append((span_s, gpu.power))
        if gpu.memory_total:
            self.gpu_memory = max(self.gpu_memory or 0.0, gpu.memory / gpu.memory_total)
        key = (node, gpu.index)
        self.busiest[key] = max(self.busiest.get(key, 0.0), gpu.busy)


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
    samples = []
    for sample in use.samples:
        gpus = tuple(gpu for gpu in sample.gpus if gpu.index == index)
        if gpus:
            samples.append(replace(sample, gpus=gpus))
    return replace(use, samples=tuple(samples))


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
