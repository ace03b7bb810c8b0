"""gpu: what the GPUs of a run are doing, by host and rank, and the network of its nodes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from hpcrun.actions.runs.allocation import allocation_of, check_running, nodes_of
from hpcrun.actions.status.status import RunStatus
from hpcrun.errors import SchedulerError
from hpcrun.runs.attempt import last_attempt, node_ranks
from hpcrun.schedulers.fabric import PortReading
from hpcrun.schedulers.nvidia_smi import GpuReading, NodeReading, parse_readings, query_command
from hpcrun.schedulers.process import Completed, run_command
from hpcrun.schedulers.step import ANSWER_WITHIN_S

_GIVEN_UP = 124  # by timeout(1)


@dataclass(frozen=True, slots=True)
class GpuRow:
    """One GPU, and the rank that uses it; None where ranks and GPUs of its node are not one to one."""

    node: str
    rank: int | None
    gpu: GpuReading


@dataclass(frozen=True, slots=True)
class GpuResult:
    """The GPUs of a run in the order of its nodes.

    Attributes:
        without: node → why it shows no GPU.
        ports: node → what its network moves.
    """

    run_id: str
    rows: tuple[GpuRow, ...]
    without: Mapping[str, str]
    ports: Mapping[str, tuple[PortReading, ...]]


def read_gpus(item: RunStatus, env: Mapping[str, str]) -> GpuResult:
    """Ask nvidia-smi on every node of a run.

    Raises:
        PlanError: it does not run.
        SchedulerError: srun could not start the question, or nobody answered in time.
    """
    check_running(item)
    if item.run.scheduler == "local":
        answer = run_command(query_command(), timeout_s=ANSWER_WITHIN_S, env=env)
    else:
        answer = allocation_of(item, env).on_every_node(query_command())
    readings = parse_readings(answer.stdout)
    if not readings:
        raise SchedulerError(_words(answer), hint="hpcrun status shows whether it is running")
    attempt = last_attempt(item.folder, item.element or 0)
    ranks = node_ranks(attempt.folder) if attempt else {}
    nodes = nodes_of(item) or list(readings)
    if item.run.scheduler == "local":  # its "nodes" are all this machine
        nodes = list(readings)
        ranks = dict.fromkeys(nodes, range(sum(map(len, ranks.values()))))
    rows = [row for node in nodes if node in readings for row in _rows(readings[node], ranks.get(node))]
    without = {node: _why_none(readings.get(node)) for node in nodes if not (node in readings and readings[node].gpus)}
    ports = {node: readings[node].ports for node in nodes if node in readings and readings[node].ports}
    return GpuResult(item.run.run_id, tuple(rows), without, ports)


def _rows(reading: NodeReading, ranks: range | None) -> list[GpuRow]:
    one_each = ranks is not None and len(ranks) == len(reading.gpus)
    return [
        GpuRow(reading.node, ranks[number] if ranks is not None and one_each else None, gpu)
        for number, gpu in enumerate(reading.gpus)
    ]


def _why_none(reading: NodeReading | None) -> str:
    return "no answer" if reading is None else reading.words or "nvidia-smi shows no GPU"


def _words(answer: Completed) -> str:
    if answer.status in (_GIVEN_UP, None):
        return f"no node answered within {ANSWER_WITHIN_S} s"
    said = "; ".join(dict.fromkeys(line.strip() for line in answer.stderr.splitlines() if line.strip()))
    return f"cannot query the nodes: {said or f'srun ended with {answer.status}'}"
