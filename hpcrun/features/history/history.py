"""history: the jobs since a time, from the runs folder and, if wanted, from Slurm's accounting."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING

from hpcrun.actions.ports import Ports
from hpcrun.actions.status.status import get_status
from hpcrun.errors import HpcrunError, SchedulerError
from hpcrun.explain.first_line import explained_status, keep_lines
from hpcrun.features.history.groups import CauseCount, HistoryRow, counted_causes, grouped
from hpcrun.features.history.past_jobs import (
    DEFAULT_ACCOUNT,
    NOT_EXAMINED,
    JobTime,
    PastJob,
    cause_of,
    end_of,
    jobs_of_run,
    project_of,
)
from hpcrun.job.layout import RunFolder
from hpcrun.job.state import RUNNING, is_terminal
from hpcrun.runs.record import LastStatus
from hpcrun.runs.store import RunStore
from hpcrun.schedulers.queue import ACCOUNTS, Limit
from hpcrun.schedulers.slurm_text import array_id

if TYPE_CHECKING:
    from hpcrun.explain.diagnosis.rules import Rule
    from hpcrun.features.history.accounting import AccountedJob

EXAMINE_WITHIN_S = 3.0
"""How long one history examines failures whose cause is not recorded yet; the next one goes on with the others."""
OTHER = "(not hpcrun)"
"""The profile of jobs that hpcrun did not submit."""
REMOVED = "(removed)"
"""The profile of runs whose folder is gone."""
_FAILED = frozenset({"FAILED", "OUT_OF_MEMORY", "NODE_FAIL", "BOOT_FAIL"})
"""The states of a start that failed and was followed by another one."""
Rules = Callable[[], "Sequence[Rule]"]


@dataclass(frozen=True, slots=True)
class History:
    """What happened since a time."""

    by: str  # what the rows are: ``week``, or the name of a text attribute of ``PastJob``, such as ``project``
    since_s: float
    until_s: float
    rows: tuple[HistoryRow, ...]
    total: HistoryRow
    causes: tuple[CauseCount, ...]
    runs: int  # how many runs were counted
    jobs: int  # how many jobs were counted; each element of a sweep is one
    others: int  # how many of these jobs only Slurm's accounting knows
    running: int  # jobs that run, and count until now
    unknown: int  # jobs that may have ended; how they did is not known
    local: int  # runs on this machine, which are not counted
    qos: frozenset[str] = frozenset()  # the QOS that runs have named
    away: SchedulerError | None = None  # the scheduler's own words where it did not answer
    damaged: tuple[str, ...] = ()  # messages about runs that cannot be read


@dataclass(frozen=True, slots=True)
class Budget:
    """A limit of GPU-, CPU- or other minutes that an account or QOS may use, and what it has used."""

    holder: str  # such as ``account lab``
    resource: str  # Slurm's name, such as ``gres/gpu``
    whose: str  # whose jobs count: ``you``, or ``all its users``
    used_hours: float  # as Slurm counts; where usage decays (PriorityDecayHalfLife), less than the sum of all jobs
    allowed_hours: float

    @property
    def unit(self) -> str:
        """``GPU-hours``, ``CPU-hours``, or hours of another resource."""
        name, _, kind = self.resource.removeprefix("gres/").partition(":")
        return f"{name.upper() if name in ('gpu', 'cpu') else name}-hours{f' of {kind}' if kind else ''}"

    @property
    def share(self) -> float | None:
        """The part that is used, None of nothing."""
        return self.used_hours / self.allowed_hours if self.allowed_hours else None


def budgets_of(limits: Mapping[str, Sequence[Limit]], qos: Collection[str]) -> list[Budget]:
    """Return the budgets among limits: those of the user's accounts and of these QOS, GPUs first."""
    held = [limit for key in (ACCOUNTS, *sorted(qos)) for limit in limits.get(key, ())]
    found = [
        Budget(
            limit.holder,
            limit.what.removesuffix(" minutes"),
            limit.whose,
            int(limit.used) / 60,
            int(limit.allowed) / 60,
        )
        for limit in held
        if limit.what.endswith(" minutes")
    ]
    return sorted(found, key=lambda budget: not budget.resource.startswith("gres/gpu"))


def get_history(
    ports: Ports, *, by: str, since_s: float, rules: Rules, accounted: Sequence[AccountedJob] = ()
) -> History:
    """Return the numbers of all runs that were active since a time.

    Args:
        rules: of explain, loaded only if a failure is to be examined.
        accounted: jobs from Slurm's accounting; those of runs that have a folder are not counted twice.
    """
    store, now_s = ports.store, ports.now_s()
    result = get_status(runs_since(store, since_s), ports)
    on_cluster = [item for item in result.runs if item.run.scheduler != "local"]
    jobs = [job for item in on_cluster for job in jobs_of_run(item) if is_within(job, since_s)]
    jobs = with_accounts(examined(jobs, store, rules), accounted)
    known = {item.run.run_id for item in result.runs} | set(store.run_ids())
    unknown = first_waits([each for each in accounted if each.run_id not in known])
    others = [job for each in unknown if (job := accounted_job(each, now_s))]
    everything = [*jobs, *(job for job in others if is_within(job, since_s))]
    rows, total = grouped(everything, by, since_s, now_s)
    return History(
        by=by,
        since_s=since_s,
        until_s=now_s,
        rows=tuple(rows),
        total=total,
        causes=tuple(counted_causes(everything, since_s)),
        runs=len({job.item.run.run_id for job in jobs if job.item}),
        jobs=len(everything),
        others=len(everything) - len(jobs),
        running=sum(job.is_running for job in everything),
        unknown=sum(job.is_unknown for job in everything),
        local=len(result.runs) - len(on_cluster),
        qos=frozenset(job.qos for job in everything if job.qos),
        away=result.away,
        damaged=result.damaged,
    )


def runs_since(store: RunStore, since_s: float) -> list[str]:
    """Return the runs that may have been active since a time, without reading the others.

    Those are the runs that were submitted since then, that have not ended, or whose status has changed since then.
    """
    active, day = set(store.active_ids()), f"{datetime.fromtimestamp(max(0.0, since_s)):%Y%m%d-%H%M%S}"
    return [
        run_id
        for run_id in store.run_ids()
        if run_id >= day or run_id in active or _changed_s(RunFolder(store.folder(run_id))) >= since_s
    ]


def _changed_s(folder: RunFolder) -> float:
    try:
        return os.stat(folder.status).st_mtime
    except OSError:
        return 0.0


def is_within(job: PastJob, since_s: float) -> bool:
    """Whether a job has started or ended, and that not before a time."""
    is_over = job.end is not None or job.is_unknown
    return job.ended_s >= since_s if is_over else bool(job.times)


def examined(jobs: Sequence[PastJob], store: RunStore, rules: Rules) -> list[PastJob]:
    """Return the jobs, the failed ones with their cause, the newest examined first; what is found is kept.

    A failure takes explain some milliseconds or, with many ranks, some tenths of a second: so there is a limit.
    """
    found = list(jobs)
    places = [place for place, job in enumerate(jobs) if job.end == "failed" and job.cause == NOT_EXAMINED]
    if not places:
        return found
    try:
        known = rules()
    except HpcrunError:  # a broken file of rules: explain says so
        return found
    new: dict[str, dict[int | None, LastStatus]] = {}
    until = time.monotonic() + EXAMINE_WITHIN_S
    for place in sorted(places, key=lambda place: -jobs[place].ended_s):
        if time.monotonic() > until:
            break
        if item := jobs[place].item:
            status = explained_status(item, known)
            found[place] = replace(jobs[place], cause=cause_of(status))
            new.setdefault(item.run.run_id, {})[item.element] = status
    for run_id, statuses in new.items():
        keep_lines(run_id, statuses, store)
    return found


def with_accounts(jobs: Sequence[PastJob], accounted: Sequence[AccountedJob]) -> list[PastJob]:
    """Return the jobs, those that named no account with the account that Slurm has charged, as far as it is known."""
    charged = {each.run_id: each.account for each in accounted if each.run_id}

    def account(job: PastJob) -> str:
        run_id = job.item.run.run_id if job.item else ""
        return charged.get(run_id, job.account) if job.account == DEFAULT_ACCOUNT else job.account

    return [replace(job, account=account(job)) for job in jobs]


def first_waits(jobs: Sequence[AccountedJob]) -> list[AccountedJob]:
    """Return the jobs; of an array, only the element that started first has a wait."""
    first: dict[tuple[str, str], AccountedJob] = {}
    for job in jobs:
        key = (job.cluster, array_id(job.job_id))
        if job.times and (key not in first or job.times[0].start_s < first[key].times[0].start_s):
            first[key] = job
    return [
        job if first.get((job.cluster, array_id(job.job_id))) is job else replace(job, eligible_s=None) for job in jobs
    ]


def accounted_job(job: AccountedJob, now_s: float) -> PastJob | None:
    """Return a job from the accounting as history counts it; None if it never got an allocation.

    One that has not ended there has perhaps been lost by the controller: it counts until now only if it is said to run.
    """
    if not job.times:
        return None
    end = end_of(job.state) if is_terminal(job.state) else None
    times = tuple(
        JobTime(
            each.start_s,
            max(each.start_s, each.end_s or (now_s if each.state == RUNNING else each.start_s)),
            is_terminal(each.state) and end_of(each.state) == "failed" and (last or each.state in _FAILED),
        )
        for each, last in zip(job.times, [*[False] * (len(job.times) - 1), True], strict=True)
    )
    status = LastStatus(job.state, times[-1].end_s, final=end is not None, exit_status=job.exit_status, rule="")
    wait_s = None if job.eligible_s is None else max(0.0, times[0].start_s - job.eligible_s)
    return PastJob(
        name=job.name,
        project=project_of(job.workdir or None),
        account=job.account,
        profile=OTHER if job.run_id is None else REMOVED,
        cluster=job.cluster,
        gpus=job.gpus,
        cpus=job.cpus,
        times=times,
        end=end,
        ended_s=times[-1].end_s,
        is_running=job.state == RUNNING,
        wait_s=wait_s,
        cause=cause_of(status) if end == "failed" else "",
    )
