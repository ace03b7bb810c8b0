"""The hardware of a run: its use over all attempts, and its GPUs now, by rank.

The use also gives advice for the next request.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import chain, islice
from pathlib import Path

from hpcrun.actions.runs.allocation import allocation_of, check_running, nodes_of
from hpcrun.actions.status.run_status import RunStatus
from hpcrun.errors import PlanError, SchedulerError
from hpcrun.job.text.units import count, format_rate, format_size
from hpcrun.machine.process import Completed, run_command
from hpcrun.runs.attempt import attempts, last_attempt, node_ranks
from hpcrun.runs.use_samples import NodeUse, UseSummary, only_gpu, read_use, summarise
from hpcrun.schedulers.job_steps import (
    ANSWER_WITHIN_S,
    GpuReading,
    NodeReading,
    PortReading,
    parse_readings,
    query_command,
)

ENOUGH_S = 180.0
"""Advice needs as many seconds of samples."""
_MOST_ATTEMPTS = 20
_GB = 1 << 30
_MARGIN = 1.3
_WORTH_GB = 8
_WORTH_CPUS = 4
"""A request of at most so much would start no sooner if it were smaller."""
_FAR_OFF = 0.5
_MUCH = 0.8
"""The share of its memory from which a failed run's use of it is of interest."""
_NEARLY_ALL = 0.92
_OFTEN_IDLE = 0.25
_ALL_BUSY = 0.85
_ONE_BUSY = 0.7


def all_samples(folder: Path, element: int = 0) -> list[NodeUse]:
    """Return the samples of all attempts of a run, or of one element of the run.

    The samples of the oldest attempt come first.
    """
    return list(chain.from_iterable(_samples_of_attempts(folder, element)))


def _samples_of_attempts(folder: Path, element: int) -> list[tuple[NodeUse, ...]]:
    newest = list(islice(attempts(folder, element), _MOST_ATTEMPTS))
    return [read_use(attempt.folder) for attempt in reversed(newest)]


def run_use(folder: Path, element: int = 0) -> UseSummary | None:
    """Return the use by all attempts of a run; None if nothing is recorded.

    The nodes and GPUs are as many as the run had at a time: an attempt may have other nodes than
    the one before.
    """
    samples = _samples_of_attempts(folder, element)
    whole = summarise(chain.from_iterable(samples))
    if whole is None:
        return None
    nodes = 0
    gpus = 0
    used_gpus = 0
    for uses in samples:
        summary = summarise(uses)
        if summary is not None:
            nodes = max(nodes, summary.nodes)
            gpus = max(gpus, summary.gpus)
            used_gpus = max(used_gpus, summary.gpus - summary.gpus_unused)
    return replace(whole, nodes=nodes, gpus=gpus, gpus_unused=gpus - used_gpus)


def had_little_memory_left(use: UseSummary) -> bool:
    """Return whether a run used so much of its memory that a lack of it may have ended it."""
    return use.memory_peak > _MUCH * (use.memory_asked or math.inf)


def use_advice(use: UseSummary, *, completed: bool) -> list[str]:
    """Return advice for the next request, with the numbers that show why.

    Without enough samples, there is no advice.

    Args:
        use: the use of the run's nodes over all attempts.
        completed: the run completed; otherwise it may have ended before its peak.
    """
    if use.seconds < ENOUGH_S:
        return []
    gpu_advice = _unused_gpus(use) or _idle_gpus(use)
    advice = [*gpu_advice, *_memory(use, completed=completed)]
    if gpu_advice:
        return advice
    return [*advice, *_cpus(use, completed=completed)]


def _unused_gpus(use: UseSummary) -> list[str]:
    """Return advice on GPUs that were idle all the time."""
    if not use.gpus_unused:
        return []
    used = use.gpus - use.gpus_unused
    if not used:
        if use.gpus == 1:
            all_gpus = "the GPU was"
        elif use.gpus == 2:
            all_gpus = "both GPUs were"
        else:
            all_gpus = f"all {use.gpus} GPUs were"
        return [
            f"{all_gpus} idle throughout: does the script use CUDA? If it needs no GPU: --gpus 0"
        ]
    were = "was" if use.gpus_unused == 1 else "were"
    request = f"ask for --gpus {used}, or give each rank a GPU of its own"
    return [f"{use.gpus_unused} of {use.gpus} GPUs {were} idle throughout: {request}"]


def _idle_gpus(use: UseSummary) -> list[str]:
    """Return what the CPUs did while the GPUs were idle.

    This shows whether the data loader is the cause.
    """
    if use.gpu_idle is None or use.gpu_idle < _OFTEN_IDLE:
        return []
    fact = f"the GPUs were idle for {use.gpu_idle:.0%} of the time"
    each = max(1, math.ceil(use.gpus / use.nodes))
    if use.idle_cpus is None:
        return [f"{fact}, but never all of a node at once: compare the ranks' shares of the work"]
    cpus = use.cpus_asked or 0
    did = f"while {use.idle_cpus:.1f} of {cpus or 'the'} CPUs per node were busy"
    if cpus and use.idle_cpus >= _ALL_BUSY * cpus:
        more = 2 * math.ceil(cpus / each)
        return [
            f"{fact} {did}, most likely in the data loader: ask for --cpus-per-gpu {more}, and use "
            "as many workers"
        ]
    if use.idle_cpus >= _ONE_BUSY * each:
        workers = max(2, cpus // each - 1)
        return [
            f"{fact} {did}, most likely in the data loader: use more of its workers "
            f"(num_workers={workers})"
        ]
    return [
        f"{fact} {did}: the CPUs were not the limit: they waited, for example for the storage or "
        "the network"
    ]


def _memory(use: UseSummary, *, completed: bool) -> list[str]:
    requested = use.memory_asked
    if not requested:
        return []
    peak = use.memory_peak
    enough = math.ceil(peak * _MARGIN / _GB)
    fact = f"memory: at most {peak / _GB:.1f} of {requested / _GB:.0f} GB per node in use"
    if peak > _NEARLY_ALL * requested:
        return [f"{fact}: ask for --mem {enough}G"]
    if not completed or requested < _WORTH_GB * _GB:
        return []
    if peak < _FAR_OFF * requested and enough * _GB < requested:
        return [f"{fact}: --mem {enough}G is enough, and smaller requests start sooner"]
    return []


def _cpus(use: UseSummary, *, completed: bool) -> list[str]:
    requested = use.cpus_asked
    if not completed or not requested or requested <= _WORTH_CPUS:
        return []
    if use.cpus_peak >= _FAR_OFF * requested:
        return []
    fact = f"CPUs: at most {use.cpus_peak:.1f} of {requested} per node busy"
    if use.gpus:
        each = max(1, math.ceil(use.gpus / use.nodes))
        wanted = math.ceil(use.cpus_peak * _MARGIN / each)
        if wanted * each < requested:
            return [f"{fact}: --cpus-per-gpu {wanted} is enough"]
        return []
    return [f"{fact}: --cpus {math.ceil(use.cpus_peak * _MARGIN)} is enough"]


def use_rows(use: UseSummary) -> list[tuple[str, str]]:
    """Return the use of the hardware as short rows: label and text."""
    nodes = " per node" if use.nodes > 1 else ""
    rows = []
    if use.gpus and use.gpu_busy is not None:
        gpus = f"{count(use.gpus, 'GPU')}, {use.gpu_busy:.0%} busy"
        if use.gpu_idle:
            gpus += f", idle {use.gpu_idle:.0%} of the time"
        if use.gpu_memory is not None:
            gpus += f", memory {use.gpu_memory:.0%} full at most"
        if use.watts is not None:
            gpus += f", {use.watts:.0f} W"
        rows.append(("GPUs", gpus))
    requested = f" of {use.cpus_asked}" if use.cpus_asked else ""
    rows.append(("CPUs", f"{use.cpus:.1f}{requested} busy{nodes}, {use.cpus_peak:.1f} at most"))
    memory = format_size(use.memory_peak)
    if use.memory_asked:
        part = use.memory_peak / use.memory_asked
        memory += f" of {format_size(use.memory_asked)} ({part:.0%})"
    rows.append(("memory", f"{memory}{nodes} at most"))
    network = format_rate(use.network)
    if use.rdma is not None:
        network += f", RDMA {format_rate(use.rdma)}"
    if use.network >= 1e3 or use.rdma is not None:
        rows.append(("network", f"{network}{nodes}"))
    return rows


# --- its GPUs ------------------------------------------------------------------------------------

_GIVEN_UP = 124  # by timeout(1)


@dataclass(frozen=True, slots=True)
class GpuRow:
    """One GPU, and the rank that uses it; None if ranks and GPUs of the node are not one to one."""

    node: str
    rank: int | None
    gpu: GpuReading


@dataclass(frozen=True, slots=True)
class GpuResult:
    """The GPUs of a run in the order of its nodes."""

    run_id: str
    rows: tuple[GpuRow, ...]
    without: Mapping[str, str]  # node → why it shows no GPU
    ports: Mapping[str, tuple[PortReading, ...]]  # node → the traffic of its network


@dataclass(frozen=True, slots=True)
class RecordedUse:
    """What a run, or an element of a sweep, recorded of its hardware, over all of its attempts."""

    run_id: str
    nodes: Mapping[str, UseSummary]  # node → the summary of its samples
    # node and index → the summary of the samples with this GPU alone
    gpus: Mapping[tuple[str, int], UseSummary]
    element: int | None = None  # of a sweep; None for a run that is none


def recorded_uses(item: RunStatus) -> Iterator[RecordedUse]:
    """Yield the recorded use of a run, or of each element of a sweep.

    ``status --gpus`` shows this use after the end of the run.

    Raises:
        PlanError: the run recorded no use of its nodes.
    """
    indices: list[int | None] = [element.index for element in item.elements]
    records = (_recorded_use(item, index) for index in indices or [item.element])
    uses = (record for record in records if record is not None)
    first = next(uses, None)
    if first is None:
        raise PlanError(
            f"{item.run.run_id} is {item.status.state}: its allocation has ended, and it recorded "
            "no use of its nodes",
            hint="a run of less than about ten seconds records none; sample_use: false in its "
            "profile switches it off",
        )
    yield first
    yield from uses


def record_instead(item: RunStatus, result: GpuResult) -> RecordedUse | None:
    """Return the recorded GPUs of a running job on whose nodes nvidia-smi shows no GPUs.

    nvidia-smi runs in a step beside the job. The program may be on the PATH of the job's own
    environment only.
    """
    if result.rows or item.elements:
        return None
    use = _recorded_use(item, item.element)
    if use is None or not use.gpus:
        return None
    return use


def _recorded_use(item: RunStatus, element: int | None) -> RecordedUse | None:
    by_node: dict[str, list[NodeUse]] = {}
    gpus: set[tuple[str, int]] = set()
    for use in all_samples(item.folder, element or 0):
        by_node.setdefault(use.node, []).append(use)
        for sample in use.samples:
            gpus.update((use.node, gpu.index) for gpu in sample.gpus)
    nodes: dict[str, UseSummary] = {}
    for node, uses in by_node.items():
        of_node = summarise(uses)
        if of_node is not None:
            nodes[node] = of_node
    if not nodes:
        return None
    alone: dict[tuple[str, int], UseSummary] = {}
    for node, index in sorted(gpus):
        of_gpu = summarise(only_gpu(use, index) for use in by_node[node])
        if of_gpu is not None:
            alone[node, index] = of_gpu
    return RecordedUse(item.run.run_id, nodes, alone, element)


def read_gpus(item: RunStatus, env: Mapping[str, str]) -> GpuResult:
    """Ask nvidia-smi on every node of a run.

    Raises:
        SchedulerError: no node answers, or the nodes cannot be queried.
    """
    check_running(item, "hpcrun status --gpus")
    if item.run.scheduler == "local":
        answer = run_command(query_command(), timeout_s=ANSWER_WITHIN_S, env=env)
    else:
        answer = allocation_of(item, env).on_every_node(query_command())
    readings = parse_readings(answer.stdout)
    if not readings:
        raise SchedulerError(
            _why_no_reading(answer), hint="hpcrun status shows whether it is running"
        )
    attempt = last_attempt(item.folder, item.element or 0)
    ranks = node_ranks(attempt.folder) if attempt else {}
    nodes = nodes_of(item) or list(readings)
    if item.run.scheduler == "local":  # its "nodes" are all this machine
        nodes = list(readings)
        ranks = dict.fromkeys(nodes, range(sum(map(len, ranks.values()))))
    without: dict[str, str] = {}
    rows: list[GpuRow] = []
    ports: dict[str, tuple[PortReading, ...]] = {}
    for node in dict.fromkeys(nodes):
        reading = readings.get(node)
        if reading is None:
            without[node] = "no response"
            continue
        if not reading.gpus:
            without[node] = reading.words or "nvidia-smi shows no GPU"
        rows += _rows(reading, ranks.get(node))
        if reading.ports:
            ports[node] = reading.ports
    return GpuResult(item.run.run_id, tuple(rows), without, ports)


def _why_no_reading(answer: Completed) -> str:
    """Return why no node has answered."""
    if answer.status in (_GIVEN_UP, None):
        return f"no node answered within {ANSWER_WITHIN_S} s"
    lines = [line.strip() for line in answer.stderr.splitlines()]
    different = [line for line in dict.fromkeys(lines) if line]
    if different:
        return f"cannot query the nodes: {'; '.join(different)}"
    return f"cannot query the nodes: srun ended with {answer.status}"


def _rows(reading: NodeReading, ranks: range | None) -> list[GpuRow]:
    if ranks is None or len(ranks) != len(reading.gpus):
        return [GpuRow(reading.node, None, gpu) for gpu in reading.gpus]
    pairs = zip(ranks, reading.gpus, strict=True)
    return [GpuRow(reading.node, rank, gpu) for rank, gpu in pairs]
