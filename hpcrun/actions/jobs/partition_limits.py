"""The limits of a configuration on one job in a partition: ``partition_limits``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from hpcrun.actions.ports import Surroundings
from hpcrun.errors import PlanError, SchedulerError
from hpcrun.job.plan.cost import Cost
from hpcrun.job.text.units import count, format_time
from hpcrun.profiles.limits import CostLimit
from hpcrun.profiles.site_locks import PARTITION_LIMITS, PartitionLimits


def partition_problems(
    costs: Sequence[Cost], limits: PartitionLimits, surroundings: Surroundings
) -> Iterator[str]:
    """Yield each limit of a partition that jobs are over, in words.

    What is not known is over any limit. A job that names several partitions must be within the
    limits of each: Slurm chooses.

    Args:
        costs: what each job can use at most.
        limits: the limits of each partition.
        surroundings: give Slurm's default partition.
    """
    if not limits:
        return
    problems: list[str] = []
    for cost in costs:
        partitions = cost.partitions or _default_partitions(surroundings)
        if not partitions:
            problems.append(f"the partition is unknown; there are {PARTITION_LIMITS}")
        for partition in partitions:
            problems += _problems_in(partition, cost, limits.get(partition, {}))
    yield from dict.fromkeys(problems)


def _problems_in(partition: str, cost: Cost, limits: Mapping[str, CostLimit]) -> Iterator[str]:
    most = {"time": cost.time_s, "nodes": cost.nodes, "gpus": cost.gpus}
    for name, limit in limits.items():
        value = most[name]
        if value is not None and value <= limit.most:
            continue
        allows = f"partition {partition} takes at most {_amount(name, limit.most)} in a job"
        where = f"{PARTITION_LIMITS} in {limit.path}"
        if value is None:
            yield f"{allows}, and this job's {name} is not known ({where})"
        else:
            yield f"{allows}, not {_amount(name, value)} ({where})"


def _amount(name: str, number: float) -> str:
    if name == "time":
        return format_time(int(number))
    return count(int(number), "node" if name == "nodes" else "GPU")


def _default_partitions(surroundings: Surroundings) -> tuple[str, ...]:
    """Return Slurm's default partition; empty if there is none, or if it is not known."""
    detected = surroundings.detected
    if detected is None:
        return ()
    try:
        partitions = detected.facts.partitions
    except (SchedulerError, PlanError):
        return ()
    return tuple(partition.name for partition in partitions if partition.default)
