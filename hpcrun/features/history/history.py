"""history: the jobs since a time, with their numbers by week, project and so on.

The jobs come from the runs folder and from Slurm's accounting.

Each number counts where it happened: GPU-hours in the week in which they were used, an end in the
week of the end, a wait in the week of the start.
"""

from __future__ import annotations

import math
import os
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date, datetime, timedelta
from functools import partial
from statistics import median

from hpcrun.actions.ports import Ports
from hpcrun.actions.status.run_status import RunStatus, StatusResult, failed_elements
from hpcrun.actions.status.status_query import get_status
from hpcrun.errors import SchedulerError
from hpcrun.explain.first_line import Rules, with_element_lines, with_first_lines
from hpcrun.features.history.past_jobs import DEFAULT_ACCOUNT, JobTime, PastJob, jobs_of_run
from hpcrun.job.run_paths import RunFolder
from hpcrun.runs.store import RunStore
from hpcrun.schedulers.pending_and_usage import ACCOUNTS, Limit

EXAMINE_WITHIN_S = 3.0
"""How long one history examines failures whose cause is not recorded yet; the next one goes on with
the others.
"""


@dataclass(slots=True)
class HistoryRow:
    """The numbers of one row."""

    key: str
    week: date | None = None  # its Monday, where the rows are weeks
    gpu_hours: float = 0.0
    lost_gpu_hours: float = 0.0  # of attempts that failed
    cpu_hours: float = 0.0  # of jobs without GPUs
    ends: Counter[str] = field(default_factory=Counter)  # how many jobs ended, by how they did
    waits_s: list[float] = field(default_factory=list)  # of the jobs that started

    def add_time(self, job: PastJob, time: JobTime) -> None:
        """Add a time in which a job had its allocation."""
        self.gpu_hours += time.hours * job.gpus
        self.lost_gpu_hours += time.hours * job.gpus if time.lost else 0.0
        self.cpu_hours += 0.0 if job.gpus else time.hours * job.cpus

    @property
    def ended(self) -> int:
        """How many jobs ended."""
        return sum(self.ends.values())

    @property
    def success(self) -> float | None:
        """The part of completed jobs among the jobs that ended and were not cancelled.

        None if there are no such jobs.
        """
        counted = self.ends["completed"] + self.ends["failed"]
        return self.ends["completed"] / counted if counted else None

    @property
    def wait_median_s(self) -> float | None:
        """The median of the waiting times, None if no job started."""
        return median(self.waits_s) if self.waits_s else None

    @property
    def wait_90_percent_s(self) -> float | None:
        """The time within which 90 % of the jobs started, None if no job started."""
        if self.waits_s:
            return sorted(self.waits_s)[math.ceil(0.9 * len(self.waits_s)) - 1]
        return None


CauseCount = tuple[str, int, float]
"""A cause of failure, the number of failed jobs, and the GPU-hours of their failed attempts."""


@dataclass(frozen=True, slots=True)
class History:
    """What happened since a time."""

    # what the rows are: ``week``, or the name of a text attribute of ``PastJob``, such as
    # ``project``
    by: str
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
    """A limit of minutes that an account or QOS may use, and the minutes already used.

    The minutes are those of GPUs, CPUs or other resources.
    """

    holder: str  # such as ``account lab``
    resource: str  # Slurm's name, such as ``gres/gpu``
    whose: str  # whose jobs count: ``you``, or ``all its users``
    # as Slurm counts; where usage decays (PriorityDecayHalfLife), less than the sum of all jobs
    used_hours: float
    allowed_hours: float

    @property
    def unit(self) -> str:
        """``GPU-hours``, ``CPU-hours``, or hours of another resource."""
        name, _, kind = self.resource.removeprefix("gres/").partition(":")
        label = name.upper() if name in ("gpu", "cpu") else name
        return f"{label}-hours of {kind}" if kind else f"{label}-hours"

    @property
    def share(self) -> float | None:
        """The part that is used, None of nothing."""
        if self.allowed_hours:
            return self.used_hours / self.allowed_hours
        return None


def budgets_of(limits: Mapping[str, Sequence[Limit]], qos: Collection[str]) -> list[Budget]:
    """Return the budgets among limits: of the user's accounts and of these QOS.

    The budgets of GPUs come first.
    """
    held = [limit for key in (ACCOUNTS, *sorted(qos)) for limit in limits.get(key, ())]
    budgets = [
        Budget(
            limit.holder,
            limit.what[: -len(" minutes")],
            limit.whose,
            int(limit.used) / 60,
            int(limit.allowed) / 60,
        )
        for limit in held
        if limit.what.endswith(" minutes")
    ]
    return sorted(budgets, key=lambda budget: not budget.resource.startswith("gres/gpu"))


def get_history(
    ports: Ports, *, by: str, since_s: float, rules: Rules, accounted: Sequence[PastJob] = ()
) -> History:
    """Return the numbers of all runs that were active since a time.

    The accounting's jobs without a run count as well.
    """
    store, now_s = ports.store, ports.now_s()
    result = get_status(runs_since(store, since_s), ports)
    on_cluster = replace(
        result, runs=tuple(item for item in result.runs if item.run.scheduler != "local")
    )
    jobs = [
        job
        for item in examined(on_cluster, store, rules)
        for job in jobs_of_run(item)
        if is_within(job, since_s)
    ]
    jobs = with_accounts(jobs, accounted)
    known = {item.run.run_id for item in result.runs} | set(store.run_ids())
    others = [job for job in accounted if job.run_id not in known and job.times]
    everything = [*jobs, *(job for job in others if is_within(job, since_s))]
    rows, total = grouped(everything, by, since_s, now_s)
    return History(
        by=by,
        since_s=since_s,
        until_s=now_s,
        rows=tuple(rows),
        total=total,
        causes=tuple(counted_causes(everything, since_s)),
        runs=len({job.run_id for job in jobs}),
        jobs=len(everything),
        others=len(everything) - len(jobs),
        running=sum(job.is_running for job in everything),
        unknown=sum(job.is_unknown for job in everything),
        local=len(result.runs) - len(on_cluster.runs),
        qos=frozenset(job.qos for job in everything if job.qos),
        away=result.away,
        damaged=result.damaged,
    )


def runs_since(store: RunStore, since_s: float) -> list[str]:
    """Return the runs that may have been active since a time.

    The ids, marks and status files of the runs decide this. No run is read.
    """
    active = set(store.active_ids())
    day = f"{datetime.fromtimestamp(max(0.0, since_s)):%Y%m%d-%H%M%S}"

    def has_changed(run_id: str) -> bool:
        try:
            return os.stat(RunFolder(store.folder(run_id)).status).st_mtime >= since_s
        except OSError:
            return False

    return [
        run_id
        for run_id in store.run_ids()
        if run_id >= day or run_id in active or has_changed(run_id)
    ]


def is_within(job: PastJob, since_s: float) -> bool:
    """Whether a job has started or ended, and that not before a time."""
    is_over = job.end is not None or job.is_unknown
    return job.ended_s >= since_s if is_over else bool(job.times)


def examined(result: StatusResult, store: RunStore, rules: Rules) -> Sequence[RunStatus]:
    """Return the runs, and for failed runs also the cause.

    The function finds as many causes as the time allows, and keeps the causes that it finds.
    """
    before = None
    until = time.monotonic() + EXAMINE_WITHIN_S
    while result != before and time.monotonic() < until:
        before, result = result, with_first_lines(result, store, rules)
        runs = (
            with_element_lines(item, failed_elements(item.elements), store, rules)
            for item in result.runs
        )
        result = replace(result, runs=tuple(runs))
    return result.runs


def with_accounts(jobs: Sequence[PastJob], accounted: Sequence[PastJob]) -> list[PastJob]:
    """Return the jobs, with the account that Slurm has charged where a job named none.

    A job keeps its account where the charged account is not known.
    """
    charged = {each.run_id: each.account for each in accounted if each.run_id}

    return [
        replace(job, account=charged.get(job.run_id or "", job.account))
        if job.account == DEFAULT_ACCOUNT
        else job
        for job in jobs
    ]


def grouped(
    jobs: Iterable[PastJob], by: str, since_s: float, now_s: float
) -> tuple[list[HistoryRow], HistoryRow]:
    """Return the rows, and the total.

    Weeks are in the order of time, with those between; others by their GPU-hours.
    """
    groups: dict[str | date, HistoryRow] = {}
    total = HistoryRow("total")
    for job in jobs:
        for when_s, add in _events(job, since_s, now_s):
            if since_s <= when_s <= now_s:
                key: str | date = monday(when_s) if by == "week" else getattr(job, by)
                if key not in groups:
                    groups[key] = (
                        HistoryRow(week_name(key), key)
                        if isinstance(key, date)
                        else HistoryRow(key)
                    )
                add(groups[key])
                add(total)
    if by != "week":
        order = sorted(
            groups.values(), key=lambda row: (-row.gpu_hours, -row.cpu_hours, -row.ended, row.key)
        )
        return order, total
    return _with_all_weeks({row.week: row for row in groups.values() if row.week}), total


def _events(
    job: PastJob, since_s: float, now_s: float
) -> Iterator[tuple[float, Callable[[HistoryRow], None]]]:
    """Yield what counts of a job: when, and what adds it to a row."""
    for part in (part for span in job.times for part in _weeks(span, since_s, now_s)):
        yield part.start_s, partial(HistoryRow.add_time, job=job, time=part)
    end = job.end
    if end is not None:
        yield job.ended_s, lambda row: row.ends.update([end])
    wait_s = job.wait_s
    if wait_s is not None:
        yield job.times[0].start_s, lambda row: row.waits_s.append(wait_s)


def _with_all_weeks(known: Mapping[date, HistoryRow]) -> list[HistoryRow]:
    """Return the weeks in the order of time, with those between in which nothing happened."""
    if known:
        after_days: Sequence[int] = range(0, (max(known) - min(known)).days + 1, 7)
    else:
        after_days = ()
    days = (min(known) + timedelta(days=after) for after in after_days)
    return [known.get(day) or HistoryRow(week_name(day), day) for day in days]


def counted_causes(jobs: Iterable[PastJob], since_s: float) -> list[CauseCount]:
    """Return the causes of the failures, the most frequent first."""
    counts: Counter[str] = Counter()
    lost_hours: defaultdict[str, float] = defaultdict(float)
    for job in (job for job in jobs if job.end == "failed" and job.ended_s >= since_s):
        counts[job.cause] += 1
        lost_hours[job.cause] += sum(time.hours for time in job.times if time.lost) * job.gpus
    causes = [(cause, number, lost_hours[cause]) for cause, number in counts.items()]
    return sorted(causes, key=lambda each: (-each[1], -each[2], each[0]))


def monday(time_s: float) -> date:
    """Return the first day of the ISO week of a time, by this machine's time zone."""
    day = datetime.fromtimestamp(time_s).date()
    return day - timedelta(days=day.weekday())


def week_name(first: date) -> str:
    """Return ``2026-W47`` for the week that begins on that day."""
    year, week, _ = first.isocalendar()
    return f"{year}-W{week:02}"


def _weeks(time: JobTime, since_s: float, now_s: float) -> Iterator[JobTime]:
    """Yield the parts of a time in each week.

    A week in which clocks change has an hour less, or more.
    """
    start_s, end_s = max(time.start_s, since_s), min(time.end_s, now_s)
    while start_s < end_s:
        following = monday(start_s) + timedelta(days=7)
        # of a datetime without a zone, timestamp() goes by this machine's zone at that time
        border_s = datetime(following.year, following.month, following.day).timestamp()
        part_end_s = min(end_s, border_s) if border_s > start_s else end_s
        yield JobTime(start_s, part_end_s, time.lost)
        start_s = part_end_s
