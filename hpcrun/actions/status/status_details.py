"""status --verbose: the expected start of pending runs, and the last output of running ones.

For ended runs, it is the use of their nodes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from hpcrun.actions.runs.hardware_use import GpuResult, read_gpus
from hpcrun.actions.status.run_status import RunStatus
from hpcrun.errors import PlanError, SchedulerError
from hpcrun.files.reading import parse_object
from hpcrun.job import job_states as state
from hpcrun.runs.attempt import last_attempt
from hpcrun.runs.log_files import tail
from hpcrun.runs.record import LastStatus, pairs_of
from hpcrun.runs.silence import last_line_of
from hpcrun.schedulers.away_nodes import AwaitedNodes, ListedNode
from hpcrun.schedulers.pending_and_usage import Limit, SlurmQueue, Usage, Waiting

# Slurm's reasons of a pending job that can be due to the states of nodes
_ON_NODES = ("ReqNodeNotAvail", "Nodes required for job are DOWN", "Resources")
_PLAIN = (str, int, float)


@dataclass(frozen=True, slots=True)
class Insight:
    """Slurm's further information by job id; one query for each kind, for any number of runs."""

    waiting: Mapping[str, Waiting] = field(default_factory=dict)
    usage: Mapping[tuple[str, str], Usage] = field(default_factory=dict)
    # QOS → what it allows this user and all of its users, and what of that is in use; under
    # ``ACCOUNTS`` the same of the user's accounts
    limits: Mapping[str, Sequence[Limit]] = field(default_factory=dict)
    # run id → its GPUs; only of runs that were named, since each is a step on its nodes
    gpus: Mapping[str, GpuResult] = field(default_factory=dict)
    # job id → the nodes that keep a pending job from starting: drained, down or reserved
    awaited: Mapping[str, Sequence[ListedNode]] = field(default_factory=dict)


def look_closer(
    items: Sequence[RunStatus], queue: SlurmQueue, env: Mapping[str, str], *, inside: bool
) -> Insight:
    """Query Slurm about runs of this cluster; runs with an old status (``stale``) are left out.

    Args:
        items: the runs with their status.
        queue: the queries to Slurm.
        env: the environment of the user, for the queries of nodes.
        inside: also ask the nodes for the load of their GPUs.
    """
    waits = []
    over = []
    has_limit = False
    awaited = {}
    nodes = AwaitedNodes(queue)
    for item in items:
        job_id = item.run.job_id
        status = item.status
        if item.run.scheduler != "slurm" or not job_id or item.stale:
            continue
        if status.state == state.PENDING:
            waits.append(job_id)
            if (status.reason or "").startswith(_ON_NODES):
                directives = pairs_of(item.run.plan.get("directives"))
                awaited[job_id] = nodes.of_job(directives)
        if status.final and status.ran_s:
            over.append(job_id)
        if not status.final and (status.reason or "").startswith(("QOS", "Assoc")):
            has_limit = True
    gpus = _gpus(items, env) if inside else {}
    limits = queue.limits() if has_limit else {}
    return Insight(queue.waiting(waits), queue.usage(over), limits, gpus, awaited)


def _gpus(items: Sequence[RunStatus], env: Mapping[str, str]) -> dict[str, GpuResult]:
    """Return the load of the GPUs of each running run; a sweep has no nodes of its own."""
    readings = {}
    for item in items:
        if item.stale or item.elements:
            continue
        if item.status.state == state.RUNNING and item.run.gpus_per_node:
            with suppress(SchedulerError, PlanError):  # the status is useful without it
                readings[item.run.run_id] = read_gpus(item, env)
    return readings


def last_line(item: RunStatus) -> str | None:
    """Return the last line of rank 0 of a run, or of its deciding role; None if there is none."""
    attempt = last_attempt(item.folder, item.element or 0, item.run.deciding_role)
    if attempt is None:
        return None
    return last_line_of(attempt, 0) or None


def last_metrics(item: RunStatus) -> dict[str, Any]:
    """Return the last metrics that this rank recorded with ``log_metrics()``.

    The result is empty if the rank recorded none.
    """
    attempt = last_attempt(item.folder, item.element or 0, item.run.deciding_role)
    if attempt is None:
        return {}
    try:
        lines = tail(attempt.folder.rank_metrics(0), 2).splitlines()
    except OSError:
        return {}
    for line in reversed(lines):  # the last line may be incomplete
        try:
            metrics = parse_object(line, finite=False)
        except ValueError:
            continue
        return {key: value for key, value in metrics.items() if isinstance(value, _PLAIN)}
    return {}


def time_advice(status: LastStatus) -> list[str]:
    """Return the advice to request less time for a completed job.

    The job has used a small part of a time limit of more than an hour.
    """
    ran_s = status.elapsed_s
    limit_s = status.limit_s
    if status.state != state.COMPLETED or ran_s is None or limit_s is None:
        return []
    if limit_s <= 3600 or ran_s >= limit_s / 4:
        return []
    return [
        "it used a small part of its --time; a shorter time limit helps backfill start it sooner"
    ]
