"""The numbers of a history, by week, project, account ...: each counts where it happened. Pure.

GPU-hours count in the week in which they were used, an end in the week of the end, a wait in the week of the start.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from statistics import median

from hpcrun.features.history.past_jobs import JobTime, PastJob

_HOUR_S = 3600.0


@dataclass(slots=True)
class HistoryRow:
    """The numbers of one row."""

    key: str
    week: date | None = None  # its Monday, where the rows are weeks
    # gpu_s, lost_gpu_s: GPU-seconds, and those of attempts that failed
    gpu_s: float = 0.0
    lost_gpu_s: float = 0.0
    cpu_s: float = 0.0  # CPU-seconds of jobs without GPUs
    ends: Counter[str] = field(default_factory=Counter)  # how many jobs ended, by how they did
    waits_s: list[float] = field(default_factory=list)  # of the jobs that started

    def add_time(self, job: PastJob, time: JobTime) -> None:
        """Add a time in which a job had its allocation."""
        seconds = time.end_s - time.start_s
        self.gpu_s += seconds * job.gpus
        self.lost_gpu_s += seconds * job.gpus if time.lost else 0.0
        self.cpu_s += 0.0 if job.gpus else seconds * job.cpus

    @property
    def ended(self) -> int:
        """How many jobs ended."""
        return sum(self.ends.values())

    @property
    def success(self) -> float | None:
        """The part of the jobs that completed, of those that ended and were not cancelled; None if there are none."""
        counted = self.ends["completed"] + self.ends["failed"]
        return self.ends["completed"] / counted if counted else None

    @property
    def median_wait_s(self) -> float | None:
        """The median of the waiting times, None if no job started."""
        return median(self.waits_s) if self.waits_s else None

    @property
    def long_wait_s(self) -> float | None:
        """The time within which 90 % of the jobs started, None if no job started."""
        return sorted(self.waits_s)[math.ceil(0.9 * len(self.waits_s)) - 1] if self.waits_s else None

    @property
    def gpu_hours(self) -> float:
        """GPU-hours."""
        return self.gpu_s / _HOUR_S

    @property
    def lost_gpu_hours(self) -> float:
        """GPU-hours of attempts that failed."""
        return self.lost_gpu_s / _HOUR_S

    @property
    def cpu_hours(self) -> float:
        """CPU-hours of jobs without GPUs."""
        return self.cpu_s / _HOUR_S


@dataclass(frozen=True, slots=True)
class CauseCount:
    """A cause of failure: the number of failed jobs, and the GPU-hours of their failed attempts."""

    cause: str
    jobs: int
    gpu_hours: float


def grouped(jobs: Iterable[PastJob], by: str, since_s: float, now_s: float) -> tuple[list[HistoryRow], HistoryRow]:
    """Return the rows, and the total. Weeks are in the order of time, with those between; others by their GPU-hours."""
    groups: dict[str | date, HistoryRow] = {}
    total = HistoryRow("total")

    def of(job: PastJob, when_s: float) -> tuple[HistoryRow, HistoryRow]:
        key: str | date = monday(when_s) if by == "week" else getattr(job, by)
        if key not in groups:
            groups[key] = HistoryRow(week_name(key), key) if isinstance(key, date) else HistoryRow(key)
        return groups[key], total

    for job in jobs:
        _add(job, of, since_s, now_s)
    if by == "week":
        return list(_with_all_weeks(groups.values())), total
    return sorted(groups.values(), key=lambda group: (-group.gpu_s, -group.cpu_s, -group.ended, group.key)), total


def _add(job: PastJob, of: Callable[[PastJob, float], tuple[HistoryRow, ...]], since_s: float, now_s: float) -> None:
    """Add a job to the groups to which it belongs at a time."""
    for part in (part for time in job.times for part in _weeks(time, since_s, now_s)):
        for group in of(job, part.start_s):
            group.add_time(job, part)
    if job.end is not None and since_s <= job.ended_s <= now_s:
        for group in of(job, job.ended_s):
            group.ends[job.end] += 1
    if job.wait_s is not None and job.started_s is not None and since_s <= job.started_s <= now_s:
        for group in of(job, job.started_s):
            group.waits_s.append(job.wait_s)


def counted_causes(jobs: Iterable[PastJob], since_s: float) -> list[CauseCount]:
    """Return the causes of the failures, the most frequent first."""
    numbers: Counter[str] = Counter()
    lost_s: defaultdict[str, float] = defaultdict(float)
    for job in (job for job in jobs if job.end == "failed" and job.ended_s >= since_s):
        numbers[job.cause] += 1
        lost_s[job.cause] += sum(time.end_s - time.start_s for time in job.times if time.lost) * job.gpus
    found = [CauseCount(cause, number, lost_s[cause] / _HOUR_S) for cause, number in numbers.items()]
    return sorted(found, key=lambda each: (-each.jobs, -each.gpu_hours, each.cause))


def monday(time_s: float) -> date:
    """Return the first day of the ISO week of a time, by this machine's time zone."""
    day = datetime.fromtimestamp(time_s).date()
    return day - timedelta(days=day.weekday())


def week_name(first: date) -> str:
    """Return ``2026-W47`` for the week that begins on that day."""
    year, week, _ = first.isocalendar()
    return f"{year}-W{week:02}"


def _weeks(time: JobTime, since_s: float, now_s: float) -> Iterator[JobTime]:
    """Yield the parts of a time in each week; a week in which clocks change has an hour less, or more."""
    start_s, end_s = max(time.start_s, since_s), min(time.end_s, now_s)
    while start_s < end_s:
        following = monday(start_s) + timedelta(days=7)
        # of a datetime without a zone, timestamp() goes by this machine's zone at that time
        border_s = datetime(following.year, following.month, following.day).timestamp()
        part_end_s = min(end_s, border_s) if border_s > start_s else end_s
        yield JobTime(start_s, part_end_s, time.lost)
        start_s = part_end_s


def _with_all_weeks(groups: Iterable[HistoryRow]) -> Iterator[HistoryRow]:
    """Yield the weeks in the order of time, with those between the first and the last in which nothing happened."""
    known = {group.week: group for group in groups if group.week}
    if not known:
        return
    day, last = min(known), max(known)
    while day <= last:
        yield known.get(day) or HistoryRow(week_name(day), day)
        day += timedelta(days=7)
