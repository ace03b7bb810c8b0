"""The jobs of a history: each run, or each element of a sweep, with its attempts, its end and its wait."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, Literal

from hpcrun.actions.status.resolve import attempt_times
from hpcrun.actions.status.run_status import RunStatus, element_row
from hpcrun.job import state
from hpcrun.job.layout import RunFolder
from hpcrun.runs.attempt import NODE_FAILURE, Attempt, attempts, names_in
from hpcrun.runs.record import LastStatus, pairs_of

End = Literal["completed", "failed", "cancelled"]
DEFAULT_ACCOUNT = "(default)"
NOT_EXAMINED = "not examined"
UNKNOWN_CAUSE = "unknown"
_BY_STATE = {
    state.TIMEOUT: "time limit",
    "DEADLINE": "deadline",
    state.NODE_FAIL: "node failure",
    "BOOT_FAIL": "node failure",
    state.PREEMPTED: "preempted",
    "REVOKED": "revoked",
}
"""The causes that the state alone tells."""
_EXCEPTION = re.compile(r"\b([A-Za-z_]\w*(?:Error|Exception|Exit|Interrupt|Iteration|Warning|Failure))\b(?=:| at |$)")


@dataclass(frozen=True, slots=True)
class JobTime:
    """A time in which a job had its allocation."""

    start_s: float
    end_s: float
    lost: bool = False  # this attempt failed


@dataclass(frozen=True, slots=True)
class PastJob:
    """A run, an element of a sweep, or a job that only Slurm's accounting knows."""

    name: str
    project: str  # the git repository it was submitted from; the folder, where that is in none
    account: str
    profile: str
    cluster: str
    # gpus, cpus: of its allocation, on all nodes
    gpus: int
    cpus: int
    times: tuple[JobTime, ...]  # of its attempts, the oldest first
    end: End | None  # None for a job that has not ended, or whose end is not known
    ended_s: float  # in seconds since the epoch
    is_running: bool = False  # it counts until now
    # from its submission to its first start; None if it has not started, or waited for other jobs. Of a sweep only the
    # first element to start has one.
    wait_s: float | None = None
    cause: str = ""  # of a failed job
    qos: str = ""  # empty if it named none
    # the run, or the element as a run of its own; None of a job that only the accounting knows
    item: RunStatus | None = None

    @property
    def is_unknown(self) -> bool:
        """Whether it is not known how it ended."""
        return self.item is not None and (self.item.lost or self.item.status.state == state.UNKNOWN)

    @property
    def started_s(self) -> float | None:
        """When it first started, None if it never did."""
        return self.times[0].start_s if self.times else None


def jobs_of_run(item: RunStatus) -> list[PastJob]:
    """Return a run as one job, a sweep as a job for each element; none of what was never submitted."""
    rows = [element_row(item, element) for element in item.elements] if item.elements else [item]
    started = set(names_in(RunFolder(item.folder).elements))
    jobs = [
        _job(row, list(attempts(row.folder, row.element or 0)) if str(row.element or 0) in started else [])
        for row in rows
        if row.status.state not in (state.NOT_SUBMITTED, state.SUBMITTING)
    ]
    starts = [job.started_s for job in jobs if job.started_s is not None]
    if not starts or item.run.after:
        return jobs
    first = next(place for place, job in enumerate(jobs) if job.started_s == min(starts))
    jobs[first] = replace(jobs[first], wait_s=max(0.0, min(starts) - item.run.created_s))
    return jobs


def _job(row: RunStatus, newest: list[Attempt]) -> PastJob:
    run, status = row.run, row.status
    end = end_of(status.state) if status.final else None
    times = tuple(_times(row, newest, end))
    nodes = run.nodes + _spares(run.plan)
    directives = dict(pairs_of(run.plan.get("directives")))
    return PastJob(
        name=run.name.partition("/")[0],
        project=project_of(run.cwd),
        account=str(directives.get("account") or DEFAULT_ACCOUNT),
        profile=run.profile,
        cluster=run.cluster or run.host,
        gpus=nodes * run.gpus_per_node,
        cpus=nodes * (run.plan.get("cpus_per_node") or 0),
        times=times,
        end=end,
        ended_s=times[-1].end_s if times else status.asked_s,
        is_running=status.state == state.RUNNING and not status.final,
        cause=cause_of(status) if end == "failed" else "",
        qos=str(directives.get("qos") or ""),
        item=row,
    )


def end_of(word: str) -> End:
    """Return how a job ended that is in a final state."""
    return "completed" if word == state.COMPLETED else "cancelled" if word == state.CANCELLED else "failed"


def _times(row: RunStatus, newest: list[Attempt], end: End | None) -> Iterator[JobTime]:
    """Yield the times of attempts, which are given the newest first."""
    status = row.status
    if not newest and status.final and status.elapsed_s:  # its records are gone; Slurm has told how long it ran
        yield JobTime(row.run.created_s, row.run.created_s + status.elapsed_s, end == "failed")
    for attempt, (start_s, end_s) in zip(reversed(newest), attempt_times(newest, status), strict=True):
        yield JobTime(start_s, end_s, end == "failed" if attempt is newest[0] else _has_failed(attempt))


def _has_failed(attempt: Attempt) -> bool:
    """Whether an attempt that was followed by another one has failed; one that was warned of its end has not."""
    return attempt.exit is None or attempt.exit.reason in ("failure", NODE_FAILURE)


def cause_of(status: LastStatus) -> str:
    """Return the name of a failed job's cause, as far as it is recorded."""
    if status.state in _BY_STATE:
        return _BY_STATE[status.state]
    if status.rule:
        return status.rule
    if status.cause and (match := _EXCEPTION.search(status.cause)):
        return match[1]
    if status.rule is None:
        return NOT_EXAMINED
    return f"exit status {status.exit_status}" if status.exit_status else UNKNOWN_CAUSE


@cache
def project_of(cwd: str | None) -> str:
    """Return the git repository that contains a folder, else the folder; the home folder is no project's repository."""
    if not cwd:
        return "-"
    folder = Path(cwd)
    for each in (folder, *folder.parents):
        if each == Path.home():
            break
        if os.path.lexists(each / ".git"):
            return str(each)
    return str(folder)


def _spares(plan: Mapping[str, Any]) -> int:
    """Return the spare nodes of an allocation."""
    spares = (plan.get("requeue") or {}).get("spares")
    return spares if isinstance(spares, int) and 0 < spares < 10_000 else 0
