"""The load of a run's GPUs by node and rank, and of its network: now, or as recorded."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from hpcrun.actions.runs.allocation import allocation_of, check_running, nodes_of
from hpcrun.actions.runs.use import all_samples
from hpcrun.actions.status.run_status import RunStatus
from hpcrun.errors import PlanError, SchedulerError
from hpcrun.runs.attempt import last_attempt, node_ranks
from hpcrun.runs.use import UseSummary, only_gpu, summarise
from hpcrun.schedulers.job_steps import (
    ANSWER_WITHIN_S,
    GpuReading,
    NodeReading,
    PortReading,
    parse_readings,
    query_command,
)
from hpcrun.schedulers.process import run_command

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
    gpus: Mapping[tuple[str, int], UseSummary]  # node and index → the summary of the samples with this GPU alone
    element: int | None = None  # of a sweep; None for a run that is none


def recorded_uses(item: RunStatus) -> Iterator[RecordedUse]:
    """Yield the recorded use of a run, or of each element of a sweep, which ``status --gpus`` shows after its end."""
    indices: list[int | None] = [one.index for one in item.elements]
    uses = (use for index in indices or [item.element] if (use := _recorded_use(item, index)) is not None)
    first = next(uses, None)
    if first is None:
        raise PlanError(
            f"{item.run.run_id} is {item.status.state}: its allocation has ended, and it recorded no use of its nodes",
            hint="a run of less than about ten seconds records none; sample_use: false in its profile switches it off",
        )
    yield first
    yield from uses


def record_instead(item: RunStatus, result: GpuResult) -> RecordedUse | None:
    """Return the recorded GPUs of a running job for nodes on which nvidia-smi shows none in a step beside it.

    The program may be on the PATH of the job's own environment only.
    """
    use = None if result.rows or item.elements else _recorded_use(item, item.element)
    return use if use and use.gpus else None


def _recorded_use(item: RunStatus, element: int | None) -> RecordedUse | None:
    samples = all_samples(item.folder, element or 0)
    if not any(use.samples for use in samples):
        return None
    nodes = {node: [use for use in samples if use.node == node] for node in dict.fromkeys(use.node for use in samples)}
    indices = {(use.node, gpu.index): None for use in samples for sample in use.samples for gpu in sample.gpus}
    alone = {key: summarise(only_gpu(use, key[1]) for use in nodes[key[0]]) for key in sorted(indices)}
    return RecordedUse(
        item.run.run_id,
        {node: use for node, uses in nodes.items() if (use := summarise(uses)) is not None},
        {key: use for key, use in alone.items() if use is not None},
        element,
    )


def read_gpus(item: RunStatus, env: Mapping[str, str]) -> GpuResult:
    """Ask nvidia-smi on every node of a run."""
    check_running(item, "hpcrun status --gpus")
    if item.run.scheduler == "local":
        answer = run_command(query_command(), timeout_s=ANSWER_WITHIN_S, env=env)
    else:
        answer = allocation_of(item, env).on_every_node(query_command())
    readings = parse_readings(answer.stdout)
    if not readings:
        if answer.status in (_GIVEN_UP, None):
            problem = f"no node answered within {ANSWER_WITHIN_S} s"
        else:
            lines = dict.fromkeys(line.strip() for line in answer.stderr.splitlines() if line.strip())
            problem = f"cannot query the nodes: {'; '.join(lines) or f'srun ended with {answer.status}'}"
        raise SchedulerError(problem, hint="hpcrun status shows whether it is running")
    attempt = last_attempt(item.folder, item.element or 0)
    ranks = node_ranks(attempt.folder) if attempt else {}
    nodes = nodes_of(item) or list(readings)
    if item.run.scheduler == "local":  # its "nodes" are all this machine
        nodes = list(readings)
        ranks = dict.fromkeys(nodes, range(sum(map(len, ranks.values()))))
    answered = {node: readings.get(node) for node in nodes}
    without = {
        node: reading.words or "nvidia-smi shows no GPU" if reading else "no response"
        for node, reading in answered.items()
        if not (reading and reading.gpus)
    }
    rows = tuple(row for node, reading in answered.items() if reading for row in _rows(reading, ranks.get(node)))
    ports = {node: reading.ports for node, reading in answered.items() if reading and reading.ports}
    return GpuResult(item.run.run_id, rows, without, ports)


def _rows(reading: NodeReading, ranks: range | None) -> list[GpuRow]:
    one_each = ranks is not None and len(ranks) == len(reading.gpus)
    return [
        GpuRow(reading.node, ranks[number] if ranks is not None and one_each else None, gpu)
        for number, gpu in enumerate(reading.gpus)
    ]
