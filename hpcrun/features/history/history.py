"""history: the jobs since a time, with their numbers by week, project and so on.

The jobs come from the runs folder and from Slurm's accounting.

Each number counts where it happened: GPU-hours in the week in which they were used, an end in the
week of the end, a wait in the week of the start.
"""

from __future__ import annotations

import math
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date, datetime, timedelta
from functools import partial
from statistics import median

from hpcrun.actions.ports import Ports
from hpcrun.actions.status.past_jobs import (
    DEFAULT_ACCOUNT,
    JobTime,
    PastJob,
    RemovedRun,
    jobs_of_run,
    removed_runs,
    runs_since,
)
from hpcrun.actions.status.run_filter import has_words, matching_runs
from hpcrun.actions.status.run_status import RunStatus, StatusResult, failed_elements
from hpcrun.actions.status.status_query import get_status
from hpcrun.errors import SchedulerError
from hpcrun.explain.first_line import Rules, with_element_lines, with_first_lines
from hpcrun.runs.store import RunStore
from hpcrun.schedulers.pending_and_usage import ACCOUNTS, Limit

EXAMINE_WITHIN_S = 3.0
"""How long one history examines failures whose cause is not recorded yet; the next one goes on with
the others.
"""
"""How the name of a limit ends that is a budget."""


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
        gpu_hours = time.hours * job.gpus
        self.gpu_hours += gpu_hours
        if time.lost:
            self.lost_gpu_hours += gpu_hours
        if not job.gpus:
            self.cpu_hours += time.hours * job.cpus

    @property
    def ended(self) -> int:
        """How many jobs ended."""
        return sum(self.ends.values())

    @property
    def success(self) -> float | None:
        """The part of completed jobs among the jobs that ended and were not cancelled.

        None if there are no such jobs.
        """
        completed = self.ends["completed"]
        counted = completed + self.ends["failed"]
        return completed / counted if counted else None

    @property
    def wait_median_s(self) -> float | None:
        """The median of the waiting times, None if no job started."""
        return median(self.waits_s) if self.waits_s else None

    @property
    def wait_90_percent_s(self) -> float | None:
        """The time within which 90 % of the jobs started, None if no job started."""
        if not self.waits_s:
            return None
        within = math.ceil(0.9 * len(self.waits_s))
        return sorted(self.waits_s)[within - 1]


@dataclass(frozen=True, slots=True)
class CauseCount:
    """How many jobs failed by a cause."""

    cause: str
    failed: int
    gpu_hours: float  # of the failed attempts of these jobs


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
    removed: int = 0  # how many of the runs were removed by clean
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
        unit = f"{label}-hours"
        return f"{unit} of {kind}" if kind else unit

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
    budgets = []
    for key in (ACCOUNTS, *sorted(qos)):
        for limit in limits.get(key, ()):
            if not limit.budget:
                continue
            budget = Budget(
                holder=limit.holder,
                resource=limit.budget,
                whose=limit.whose,
                used_hours=int(limit.used) / 60,
                allowed_hours=int(limit.allowed) / 60,
            )
            budgets.append(budget)
    return sorted(budgets, key=lambda budget: not budget.resource.startswith("gres/gpu"))


def get_history(
    ports: Ports,
    *,
    by: str,
    since_s: float,
    rules: Rules,
    accounted: Sequence[PastJob] = (),
    words: Sequence[str] = (),
) -> History:
    """Return the numbers of the runs that were active since a time.

    Args:
        ports: the store, the scheduler and the clock.
        by: what the rows are.
        since_s: the time, in seconds since the epoch.
        rules: the rules that find the causes of failures.
        accounted: the jobs of Slurm's accounting; those without a run count as well.
        words: the filter of the runs.
    """
    store = ports.store
    now_s = ports.now_s()
    result = get_status(runs_since(store, since_s), ports)
    result = replace(result, runs=matching_runs(result.runs, words))
    cluster_runs = tuple(item for item in result.runs if item.run.scheduler != "local")
    on_cluster = replace(result, runs=cluster_runs)
    jobs = _jobs_within(examined(on_cluster, store, rules), since_s)
    jobs = with_accounts(jobs, accounted)
    removed = removed_runs(store)
    jobs += _jobs_of_removed(removed, words, since_s)
    counted = {job.run_id for job in jobs}
    removed_ids = {run.run_id for run in removed}
    known = {item.run.run_id for item in result.runs}
    known.update(store.run_ids(), removed_ids)
    unknown = [job for job in accounted if job.run_id not in known and job.times]
    others = [job for job in unknown if is_within(job, since_s)]
    everything = jobs + others
    rows, total = grouped(everything, by, since_s, now_s)
    return History(
        by=by,
        since_s=since_s,
        until_s=now_s,
        rows=tuple(rows),
        total=total,
        causes=tuple(counted_causes(everything, since_s)),
        runs=len(counted),
        jobs=len(everything),
        others=len(others),
        running=sum(job.is_running for job in everything),
        unknown=sum(job.is_unknown for job in everything),
        local=len(result.runs) - len(cluster_runs),
        removed=len(counted & removed_ids),
        qos=frozenset(job.qos for job in everything if job.qos),
        away=result.away,
        damaged=result.damaged,
    )


def _jobs_within(runs: Iterable[RunStatus], since_s: float) -> list[PastJob]:
    """Return the jobs of runs that have started or ended, and that not before a time."""
    jobs = []
    for item in runs:
        jobs += [job for job in jobs_of_run(item) if is_within(job, since_s)]
    return jobs


def _jobs_of_removed(
    runs: Iterable[RemovedRun], words: Sequence[str], since_s: float
) -> list[PastJob]:
    """Return the jobs within a time of runs that were removed, and that match a filter."""
    jobs = []
    for run in runs:
        if run.scheduler != "local" and has_words(run.text, words):
            jobs += [job for job in run.jobs if is_within(job, since_s)]
    return jobs


def is_within(job: PastJob, since_s: float) -> bool:
    """Whether a job has started or ended, and that not before a time."""
    is_over = job.end is not None or job.is_unknown
    if is_over:
        return job.ended_s >= since_s
    return bool(job.times)


def examined(result: StatusResult, store: RunStore, rules: Rules) -> Sequence[RunStatus]:
    """Return the runs, and for failed runs also the cause.

    The function finds as many causes as the time allows, and keeps the causes that it finds.
    """
    before = None
    until = time.monotonic() + EXAMINE_WITHIN_S
    while result != before and time.monotonic() < until:
        before = result
        result = with_first_lines(result, store, rules)
        runs = []
        for item in result.runs:
            failed = failed_elements(item.elements)
            runs.append(with_element_lines(item, failed, store, rules))
        result = replace(result, runs=tuple(runs))
    return result.runs


def with_accounts(jobs: Sequence[PastJob], accounted: Sequence[PastJob]) -> list[PastJob]:
    """Return the jobs, with the account that Slurm has charged where a job named none.

    A job keeps its account where the charged account is not known.
    """
    charged = {job.run_id: job.account for job in accounted if job.run_id}
    with_account = []
    for job in jobs:
        account = job.account
        if account == DEFAULT_ACCOUNT:
            account = charged.get(job.run_id or "", account)
        with_account.append(replace(job, account=account))
    return with_account


def grouped(
    jobs: Iterable[PastJob], by: str, since_s: float, now_s: float
) -> tuple[list[HistoryRow], HistoryRow]:
    """Return the rows, and the total.

    Weeks are in the order of time, with those between; others by their GPU-hours.
    """
    groups: dict[str, HistoryRow] = {}
    total = HistoryRow("total")
    for job in jobs:
        for when_s, add in _events(job, since_s, now_s):
            if not since_s <= when_s <= now_s:
                continue
            new_row = _empty_row(job, by, when_s)
            row = groups.setdefault(new_row.key, new_row)
            add(row)
            add(total)
    rows = list(groups.values())
    if by == "week":
        return _with_all_weeks(rows), total
    rows.sort(key=lambda row: (-row.gpu_hours, -row.cpu_hours, -row.ended, row.key))
    return rows, total


def _empty_row(job: PastJob, by: str, when_s: float) -> HistoryRow:
    """Return a row without numbers, to which a job belongs at a time."""
    if by == "week":
        week = monday(when_s)
        return HistoryRow(week_name(week), week)
    return HistoryRow(getattr(job, by))


def _events(
    job: PastJob, since_s: float, now_s: float
) -> Iterator[tuple[float, Callable[[HistoryRow], None]]]:
    """Yield what counts of a job: when, and what adds it to a row."""
    for span in job.times:
        for part in _weeks(span, since_s, now_s):
            yield part.start_s, partial(HistoryRow.add_time, job=job, time=part)
    end = job.end
    if end is not None:
        yield job.ended_s, lambda row: row.ends.update([end])
    wait_s = job.wait_s
    if wait_s is not None:
        yield job.times[0].start_s, lambda row: row.waits_s.append(wait_s)


def _with_all_weeks(rows: Iterable[HistoryRow]) -> list[HistoryRow]:
    """Return the weeks in the order of time, with those between in which nothing happened."""
    known = {row.week: row for row in rows if row.week}
    if not known:
        return []
    last = max(known)
    week = min(known)
    weeks = []
    while week <= last:
        weeks.append(known.get(week) or HistoryRow(week_name(week), week))
        week += timedelta(days=7)
    return weeks


def counted_causes(jobs: Iterable[PastJob], since_s: float) -> list[CauseCount]:
    """Return the causes of the failures, the most frequent first."""
    counts: Counter[str] = Counter()
    lost_hours: defaultdict[str, float] = defaultdict(float)
    for job in jobs:
        if job.end != "failed" or job.ended_s < since_s:
            continue
        counts[job.cause] += 1
        lost_hours[job.cause] += sum(time.hours for time in job.times if time.lost) * job.gpus
    causes = [CauseCount(cause, counts[cause], lost_hours[cause]) for cause in counts]
    return sorted(causes, key=lambda cause: (-cause.failed, -cause.gpu_hours, cause.cause))


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
    start_s = max(time.start_s, since_s)
    end_s = min(time.end_s, now_s)
    while start_s < end_s:
        following = monday(start_s) + timedelta(days=7)
        # of a datetime without a zone, timestamp() goes by this machine's zone at that time
        border_s = datetime(following.year, following.month, following.day).timestamp()
        part_end_s = min(end_s, border_s) if border_s > start_s else end_s
        yield JobTime(start_s, part_end_s, time.lost)
        start_s = part_end_s
