"""The other screens of ``hpcrun top``: the user's other jobs, and the partitions' queues.

The other jobs are those that are not hpcrun's. hpcrun asks Slurm only while one of these screens is
shown: one squeue for both.
"""

from __future__ import annotations

import random
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import ClassVar

from rich.text import Text
from textual.binding import Binding, BindingType

from hpcrun.errors import HpcrunError
from hpcrun.features.top.reader import Reader
from hpcrun.features.top.rows import fitted
from hpcrun.features.top.screen import error_text
from hpcrun.features.top.table import TableScreen, table_line
from hpcrun.job import job_states as state
from hpcrun.job.job_states import explain_reason
from hpcrun.machine.process import user_name
from hpcrun.schedulers.pending_and_usage import QueuedJob, SlurmQueue
from hpcrun.views.text import clock_text, count

ASK_EVERY_S = 30.0
_ASKING = "squeue"
Texts = Mapping[str, str]  # column → what is in it


def other_jobs(jobs: Iterable[QueuedJob], user: str, run_ids: Collection[str]) -> list[QueuedJob]:
    """Return the jobs of a user that are none of these runs, running ones first."""
    mine = (job for job in jobs if job.user == user and job.run_id not in run_ids)
    return sorted(mine, key=lambda job: (job.state == state.PENDING, job.order))


def job_cells(job: QueuedJob) -> Texts:
    """Return the cells of a job."""
    info = job.reason
    if job.state == state.PENDING and job.reason:
        known = explain_reason(job.reason)
        if known:
            info = f"{known.short} ({job.reason})"
    return {
        "job": job.job_id,
        "name": job.name,
        "partition": ",".join(job.partitions),
        "state": job.state,
        "nodes": str(job.nodes),
        "elapsed": clock_text(job.elapsed_s),
        "limit": clock_text(job.limit_s),
        "info": info,
    }


def partition_cells(jobs: Sequence[QueuedJob], user: str, now_s: float) -> list[Texts]:
    """Return the cells of each partition: running and pending jobs, and the user's first job.

    The cell for the user's first job says the place of the job in the queue.
    """
    members: dict[str, list[QueuedJob]] = {}
    for job in jobs:
        for name in job.partitions:
            members.setdefault(name, []).append(job)
    return [_partition_row(name, members[name], user, now_s) for name in sorted(members)]


def _partition_row(name: str, jobs: Sequence[QueuedJob], user: str, now_s: float) -> Texts:
    pending = [job for job in jobs if job.state == state.PENDING]
    running = [job for job in jobs if job.state != state.PENDING]
    my_pending = [job for job in pending if job.user == user]
    my_running = [job for job in running if job.user == user]
    line = [job for job in pending if job.in_line]
    line.sort(key=lambda job: job.order)
    return {
        "partition": name,
        "running": str(_tasks(running)),
        "nodes": str(sum(job.nodes for job in running)),
        "pending": str(_tasks(pending)),
        "yours": f"{_tasks(my_running)} running, {_tasks(my_pending)} pending",
        "your first": _place(line, my_pending, now_s),
    }


def _tasks(jobs: Iterable[QueuedJob]) -> int:
    return sum(job.tasks for job in jobs)


def _place(line: Sequence[QueuedJob], mine: Sequence[QueuedJob], now_s: float) -> str:
    """Return the place of the first of the user's pending jobs in the line of a partition."""
    first = next((job for job in line if job in mine), None)
    if first is None:
        held = _tasks(mine)
        return f"{count(held, 'job')} held or waiting for others" if held else "-"
    before = _tasks(line[: line.index(first)])
    total = _tasks(line)
    start = ""
    if first.start_s is not None:
        form = "%H:%M" if first.start_s - now_s < 86400 else "%d %b %H:%M"
        start = f", expected {time.strftime(form, time.localtime(first.start_s))}"
    return f"{before + 1} of {total} in the queue: job {first.job_id}{start}"


class QueueScreen(TableScreen[Texts]):
    """A table of what squeue lists.

    The columns have least widths; the last column takes the rest of the screen.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("1,escape", "app.view('runs')", "runs"),
        Binding("2", "app.view('jobs')", "other jobs"),
        Binding("3", "app.view('queue')", "queue"),
        Binding("R,ctrl+r", "refresh", "refresh"),
    ]
    heading: ClassVar[str]  # what is shown
    columns: ClassVar[Mapping[str, int]]  # column → its least width; the first has the key of a row
    dropped: ClassVar[Sequence[str]]  # what a narrow terminal leaves out first

    def __init__(self, reader: Reader) -> None:
        key = next(iter(self.columns))
        super().__init__(reader, lambda row: table_line(self.widths, row), lambda row: row[key])
        self._state = "asking Slurm ..."
        self._as_of = ""

    def rows_of(self, jobs: Sequence[QueuedJob]) -> list[Texts]:
        """Return the rows; each screen has its own."""
        raise NotImplementedError

    def on_mount(self) -> None:
        """Ask, now and again and again."""
        # not all users of a cluster at the same second
        self._timer = self.set_interval(ASK_EVERY_S * random.uniform(0.9, 1.1), self.action_refresh)
        self.action_refresh()

    def action_refresh(self) -> None:
        """Ask Slurm now."""
        if _ASKING in self.calls:
            return
        why = self.reader.ports.schedulers("slurm").unavailable()
        if why:
            self._state = why
        else:
            self.call(_ASKING, SlurmQueue(self.reader.env).jobs, self._take, self._failed)
        self.draw_rows()

    def _take(self, jobs: list[QueuedJob]) -> None:
        self._as_of = f"as of {time.strftime('%H:%M:%S')}"
        self._state = self._as_of
        self._timer.reset()
        self._show_rows(self.rows_of(jobs))

    def _failed(self, error: HpcrunError | OSError) -> None:
        problem = " ".join(error_text(error).split())
        self._state = "; ".join(part for part in (problem, self._as_of) if part)
        self._timer.reset()
        self.draw_rows()

    def _show_rows(self, rows: Sequence[Texts]) -> None:
        *others, last = self.columns
        needed = {name: len(name) for name in others}
        if rows:
            for name in others:
                widest = max(len(row[name]) for row in rows)
                needed[name] = max(len(name), self.columns[name], widest)
        needed[last] = self.columns[last]
        self.show_rows(rows, fitted(needed, self.size.width, self.dropped))

    def on_resize(self) -> None:
        """Fit the columns to the new size."""
        self._show_rows(self.lines.lines)

    def title_line(self) -> Text:
        """Return what is shown, and when Slurm answered."""
        return Text.assemble((f"{self.heading}  ", "bold"), self._state)


class JobsScreen(QueueScreen):
    """The jobs of the user that are not hpcrun's."""

    heading = "your jobs that hpcrun did not submit"
    columns: ClassVar[Mapping[str, int]] = {
        "job": 3,
        "name": 4,
        "partition": 4,
        "state": 5,
        "nodes": 1,
        "elapsed": 7,
        "limit": 5,
        "info": 16,
    }
    dropped = ("partition", "limit", "nodes")

    def rows_of(self, jobs: Sequence[QueuedJob]) -> list[Texts]:
        """Return a row for each job."""
        run_ids = {item.run.run_id for item in self.reader.reading.runs}
        return [job_cells(job) for job in other_jobs(jobs, user_name(), run_ids)]


class PartitionsScreen(QueueScreen):
    """The queue by partition."""

    heading = "queue by partition"
    columns: ClassVar[Mapping[str, int]] = {
        "partition": 4,
        "running": 1,
        "nodes": 1,
        "pending": 1,
        "yours": 5,
        "your first": 24,
    }
    dropped = ("nodes",)

    def rows_of(self, jobs: Sequence[QueuedJob]) -> list[Texts]:
        """Return a row for each partition."""
        return partition_cells(jobs, user_name(), self.reader.now_s())


SCREENS: Mapping[str, type[QueueScreen]] = {"jobs": JobsScreen, "queue": PartitionsScreen}
"""Name of a screen in ``app.view(...)`` → its class."""
