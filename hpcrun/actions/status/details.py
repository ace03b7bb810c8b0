"""status --verbose: the expected start of pending runs, the last output of running ones, the use of ended ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hpcrun.actions.runs.gpu import GpuResult, read_gpus
from hpcrun.actions.status.run_status import RunStatus
from hpcrun.errors import PlanError, SchedulerError
from hpcrun.job import state
from hpcrun.reading import parse_object
from hpcrun.runs.attempt import last_attempt
from hpcrun.runs.logs import tail
from hpcrun.runs.silence import last_line_of
from hpcrun.schedulers.queue import Limit, SlurmQueue, Usage, Waiting

FAR_OFF = 0.25
"""Advice is given where less than this part was used of what was asked for ..."""
_WORTH_MB, _WORTH_S, _WORTH_CPU_S = 8 * 1024, 3600, 600
_SAMPLED_S = 120  # memory is looked at every 30 s (JobAcctGatherFrequency): a shorter job says little


@dataclass(frozen=True, slots=True)
class Insight:
    """Slurm's further information by job id; one query for each kind, for any number of runs."""

    waiting: Mapping[str, Waiting] = field(default_factory=dict)
    usage: Mapping[tuple[str, str], Usage] = field(default_factory=dict)
    # QOS → what it allows this user and all of its users, and what of that is in use; under ``ACCOUNTS`` the same of
    # the user's accounts
    limits: Mapping[str, Sequence[Limit]] = field(default_factory=dict)
    # run id → its GPUs; only of runs that were named, since each is a step on its nodes
    gpus: Mapping[str, GpuResult] = field(default_factory=dict)


def look_closer(items: Sequence[RunStatus], queue: SlurmQueue, env: Mapping[str, str], *, inside: bool) -> Insight:
    """Query Slurm about runs of this cluster; runs with an old status (``stale``) are left out.

    Args:
        inside: also ask the nodes for the load of their GPUs.
    """
    ours = [item for item in items if item.run.scheduler == "slurm" and item.run.job_id and not item.stale]
    waits = [str(item.run.job_id) for item in ours if item.status.state == state.PENDING]
    over = [str(item.run.job_id) for item in ours if item.status.final and item.status.ran_s]
    limited = any((item.status.reason or "").startswith(("QOS", "Assoc")) for item in ours if not item.status.final)
    gpus = _gpus(items, env) if inside else {}
    return Insight(queue.waiting(waits), queue.usage(over), queue.limits() if limited else {}, gpus)


def _gpus(items: Sequence[RunStatus], env: Mapping[str, str]) -> dict[str, GpuResult]:
    readings = {}
    for item in items:
        if item.status.state == state.RUNNING and item.run.gpus_per_node and not (item.stale or item.elements):
            with suppress(SchedulerError, PlanError):  # the status is useful without it
                readings[item.run.run_id] = read_gpus(item, env)
    return readings


def last_line(folder: Path, element: int = 0) -> str | None:
    """Return the last line of rank 0 of a run, None if there is none."""
    attempt = last_attempt(folder, element)
    return (last_line_of(attempt, 0) or None) if attempt else None


def last_metrics(folder: Path, element: int = 0) -> dict[str, Any]:
    """Return the last metrics that rank 0 of a run recorded with ``log_metrics()``; empty if it recorded none."""
    attempt = last_attempt(folder, element)
    try:
        lines = tail(attempt.folder.rank_metrics(0), 2).splitlines() if attempt else []
    except OSError:
        return {}
    for line in reversed(lines):  # the last line may be incomplete
        try:
            metrics = parse_object(line, finite=False)
        except ValueError:
            continue
        return {name: value for name, value in metrics.items() if isinstance(value, float | int | str)}
    return {}


def advice(usage: Usage, asked_s: int | None, *, completed: bool, sampled: bool = False) -> list[str]:
    """Return advice for the next request, if a run used far less than it had requested.

    Args:
        asked_s: the time limit in seconds, None without one.
        completed: it completed; a run that failed does not show how much time or memory it needs.
        sampled: the run's own samples tell more about its CPUs and its memory.
    """
    hints = []
    had_mb, used_mb = usage.memory_mb or 0.0, usage.used_mb or 0.0
    long_enough = completed and not sampled and usage.elapsed_s >= _SAMPLED_S
    if long_enough and used_mb and had_mb >= _WORTH_MB and used_mb < FAR_OFF * had_mb:
        enough = -(-int(used_mb * 1.3) // 1024)
        hints.append(f"--mem {enough}G would have been enough; smaller requests start sooner")
    busy = None if sampled else cpu_efficiency(usage)
    if busy is not None and busy < FAR_OFF and usage.cpus > 4 * usage.nodes and usage.elapsed_s >= _WORTH_CPU_S:
        each = usage.cpus // usage.nodes
        hints.append(f"{busy * each:.1f} of {each} CPUs per node were busy: ask for fewer, or add data-loader workers")
    if completed and asked_s and asked_s > _WORTH_S and usage.elapsed_s < FAR_OFF * asked_s:
        hints.append("it used a small part of its --time; a shorter time limit helps backfill start it sooner")
    return hints


def cpu_efficiency(usage: Usage) -> float | None:
    """Return the used share of the CPU time, None if it was not measured."""
    if usage.cpu_s is None or not usage.cpus or not usage.elapsed_s:
        return None
    return usage.cpu_s / (usage.cpus * usage.elapsed_s)
