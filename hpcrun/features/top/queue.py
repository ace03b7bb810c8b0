"""The other screens of ``hpcrun top``: the user's jobs that are not hpcrun's, and the partitions' queues.

Slurm is asked only while one of them is shown: one squeue for both.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import ClassVar

from rich.style import Style
from textual.app import ComposeResult
from textual.binding import Binding, BindingType

from hpcrun.errors import HpcrunError
from hpcrun.features.top.reader import Reader
from hpcrun.features.top.screen import BOLD, PLAIN, Piece, TopScreen, cut, error_text
from hpcrun.features.top.table import VirtualTable
from hpcrun.job import state
from hpcrun.job.state import explain_reason
from hpcrun.schedulers.process import user_name
from hpcrun.schedulers.queue import QueuedJob, SlurmQueue
from hpcrun.views.text import GAP, clock_text, count, fitting

ASK_EVERY_S = 30.0
Cells = Mapping[str, str]


def other_jobs(jobs: Iterable[QueuedJob], user: str, run_ids: Collection[str]) -> list[QueuedJob]:
    """Return the jobs of a user that are none of these runs, running ones first."""
    mine = (job for job in jobs if job.user == user and job.run_id not in run_ids)
    return sorted(mine, key=lambda job: (job.state == state.PENDING, job.order))


def job_cells(job: QueuedJob) -> Cells:
    """Return the cells of a job."""
    known = explain_reason(job.reason) if job.state == state.PENDING and job.reason else None
    return {
        "job": job.job_id,
        "name": job.name,
        "partition": ",".join(job.partitions),
        "state": job.state,
        "nodes": str(job.nodes),
        "elapsed": clock_text(job.elapsed_s),
        "limit": clock_text(job.limit_s),
        "info": f"{known.short} ({job.reason})" if known else job.reason,
    }


def partition_cells(jobs: Sequence[QueuedJob], user: str, now_s: float) -> list[Cells]:
    """Return the cells of each partition: its running and pending jobs, and the place of the user's first job."""
    names = sorted({name for job in jobs for name in job.partitions})
    rows: list[Cells] = []
    for name in names:
        here = [job for job in jobs if name in job.partitions]
        pending = [job for job in here if job.state == state.PENDING]
        running = [job for job in here if job.state != state.PENDING]
        line = sorted((job for job in pending if job.in_line), key=lambda job: job.order)
        mine = [job for job in here if job.user == user]
        rows.append(
            {
                "partition": name,
                "running": str(sum(job.tasks for job in running)),
                "nodes": str(sum(job.nodes for job in running)),
                "pending": str(sum(job.tasks for job in pending)),
                "yours": f"{sum(job.tasks for job in mine if job in running)} running, "
                f"{sum(job.tasks for job in mine if job in pending)} pending",
                "your first": _place(line, mine, now_s),
            }
        )
    return rows


def _place(line: Sequence[QueuedJob], mine: Sequence[QueuedJob], now_s: float) -> str:
    first = next((job for job in line if job in mine), None)
    if first is None:
        held = sum(job.tasks for job in mine if job.state == state.PENDING)
        return f"{count(held, 'job')} held or waiting for others" if held else "-"
    before = sum(job.tasks for job in line[: line.index(first)])
    total = sum(job.tasks for job in line)
    start = ""
    if first.start_s is not None:
        form = "%H:%M" if first.start_s - now_s < 86400 else "%d %b %H:%M"
        start = f", expected {time.strftime(form, time.localtime(first.start_s))}"
    return f"{before + 1} of {total} in the queue: job {first.job_id}{start}"


class _QueueScreen(TopScreen):
    """A table of what squeue lists.

    Args:
        reader: runs what asks Slurm.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("1,escape", "app.view('runs')", "runs"),
        Binding("2", "app.view('jobs')", "other jobs"),
        Binding("3", "app.view('queue')", "queue"),
        Binding("R,ctrl+r", "refresh", "refresh"),
    ]
    TITLE_TEXT = ""
    COLUMNS: ClassVar[dict[str, int]] = {}
    DROPPED: ClassVar[tuple[str, ...]] = ()

    def __init__(self, reader: Reader) -> None:
        super().__init__()
        self._reader = reader
        self._rows: Sequence[Cells] = ()
        self._said = "asking Slurm ..."
        self._as_of = ""
        self._asks = False

    def body(self) -> ComposeResult:
        """Yield the table."""
        yield VirtualTable(self._cells, self._widths, id="queue")

    def rows_of(self, jobs: Sequence[QueuedJob]) -> list[Cells]:
        """Return the rows; each screen has its own."""
        raise NotImplementedError

    def on_mount(self) -> None:
        """Ask, now and again and again."""
        self.query_one(VirtualTable).focus()
        # not all users of a cluster at the same second
        self._timer = self.set_interval(ASK_EVERY_S * random.uniform(0.9, 1.1), self.action_refresh)
        self.action_refresh()

    def action_refresh(self) -> None:
        """Ask Slurm now."""
        if self._asks:
            return
        if why := self._reader.ports.schedulers("slurm").unavailable():
            self._said = why
        else:
            self._asks = True
            self._reader.in_background(SlurmQueue(self._reader.env).jobs, self._show, self._failed)
        self._update()

    def _show(self, jobs: list[QueuedJob]) -> None:
        self._rows = self.rows_of(jobs)
        self._said = self._as_of = f"as of {time.strftime('%H:%M:%S')}"
        self._answered()

    def _failed(self, error: HpcrunError | OSError) -> None:
        self._said = "; ".join(filter(None, (" ".join(error_text(error).split()), self._as_of)))
        self._answered()

    def _answered(self) -> None:
        self._asks = False
        if self.is_open:
            self._timer.reset()
            self._update()

    def _update(self) -> None:
        key = next(iter(self.COLUMNS))
        self.query_one(VirtualTable).show([row[key] for row in self._rows])
        self.draw()

    def _cells(self, number: int) -> tuple[Cells, Mapping[str, Style]]:
        return self._rows[number], {}

    def _widths(self, width: int) -> dict[str, int]:
        needed = {name: max(least, *(len(row[name]) for row in self._rows), len(name)) if self._rows else len(name)
                  for name, least in self.COLUMNS.items()}  # fmt: skip
        last = list(needed)[-1]
        names = fitting({**needed, last: self.COLUMNS[last]}, width - 1, self.DROPPED)
        widths = {name: needed[name] for name in names if name != last}
        return {**widths, last: max(0, width - 1 - sum(wide + GAP for wide in widths.values()))}

    def title_line(self, width: int) -> Iterable[Piece]:
        """Return what is shown, and when Slurm answered."""
        return ((f"{self.TITLE_TEXT}  ", BOLD), (cut(self._said, width - len(self.TITLE_TEXT) - 2), PLAIN))


class JobsScreen(_QueueScreen):
    """The user's jobs that no run of hpcrun knows."""

    TITLE_TEXT = "your jobs that hpcrun did not submit"
    COLUMNS: ClassVar[dict[str, int]] = {
        "job": 3, "name": 4, "partition": 4, "state": 5, "nodes": 1, "elapsed": 7, "limit": 5, "info": 16,
    }  # fmt: skip
    DROPPED: ClassVar[tuple[str, ...]] = ("partition", "limit", "nodes")

    def rows_of(self, jobs: Sequence[QueuedJob]) -> list[Cells]:
        """Return a row for each job."""
        run_ids = {item.run.run_id for item in self._reader.reading.runs}
        return [job_cells(job) for job in other_jobs(jobs, user_name(), run_ids)]


class PartitionsScreen(_QueueScreen):
    """The partitions: their running and pending jobs, and the place of the user's first job."""

    TITLE_TEXT = "queue by partition"
    COLUMNS: ClassVar[dict[str, int]] = {
        "partition": 4, "running": 1, "nodes": 1, "pending": 1, "yours": 5, "your first": 24,
    }  # fmt: skip
    DROPPED: ClassVar[tuple[str, ...]] = ("nodes",)

    def rows_of(self, jobs: Sequence[QueuedJob]) -> list[Cells]:
        """Return a row for each partition with a job."""
        return partition_cells(jobs, user_name(), self._reader.now_s())


SCREENS: Mapping[str, Callable[[Reader], TopScreen]] = {"jobs": JobsScreen, "queue": PartitionsScreen}
"""Name of a screen in ``app.view(...)`` → what makes it."""
