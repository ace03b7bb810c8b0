"""The other screens of ``hpcrun top``: the user's other jobs, and the partitions' queues.

The other jobs are those that are not hpcrun's. hpcrun asks Slurm only while one of these screens is
shown: one squeue for both.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import ClassVar

from rich.text import Text
from textual.binding import Binding, BindingType

from hpcrun.errors import HpcrunError
from hpcrun.features.top.pager import TableScreen
from hpcrun.features.top.reader import Reader
from hpcrun.features.top.rows import fitted
from hpcrun.features.top.screen import error_text
from hpcrun.job import job_states as state
from hpcrun.job.job_states import explain_reason
from hpcrun.machine.process import user_name
from hpcrun.schedulers.pending_and_usage import QueuedJob, SlurmQueue
from hpcrun.views.text import clock_text, count

ASK_EVERY_S = 30.0
_ASKING = "squeue"
Cells = Mapping[str, str]


def other_jobs(jobs: Iterable[QueuedJob], user: str, run_ids: Collection[str]) -> list[QueuedJob]:
    """Return the jobs of a user that are none of these runs, running ones first."""
    mine = (job for job in jobs if job.user == user and job.run_id not in run_ids)
    return sorted(mine, key=lambda job: (job.state == state.PENDING, job.order))


def job_cells(job: QueuedJob) -> Cells:
    """Return the cells of a job."""
    if job.state == state.PENDING and job.reason:
        known = explain_reason(job.reason)
    else:
        known = None
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
    """Return the cells of each partition: running and pending jobs, and the user's first job.

    The cell for the user's first job says the place of the job in the queue.
    """
    rows: list[Cells] = []
    for name in sorted({name for job in jobs for name in job.partitions}):
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
        if held:
            return f"{count(held, 'job')} held or waiting for others"
        return "-"
    before = sum(job.tasks for job in line[: line.index(first)])
    total = sum(job.tasks for job in line)
    start = ""
    if first.start_s is not None:
        form = "%H:%M" if first.start_s - now_s < 86400 else "%d %b %H:%M"
        start = f", expected {time.strftime(form, time.localtime(first.start_s))}"
    return f"{before + 1} of {total} in the queue: job {first.job_id}{start}"


class QueueScreen(TableScreen[Cells]):
    """A table of what squeue lists.

    The columns have least widths; the last column takes the rest of the screen.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("1,escape", "app.view('runs')", "runs"),
        Binding("2", "app.view('jobs')", "other jobs"),
        Binding("3", "app.view('queue')", "queue"),
        Binding("R,ctrl+r", "refresh", "refresh"),
    ]

    def __init__(
        self,
        reader: Reader,
        title: str,
        columns: Mapping[str, int],
        dropped: Sequence[str],
        rows_of: Callable[[Sequence[QueuedJob], Reader], list[Cells]],
    ) -> None:
        super().__init__(reader)
        self._title, self._columns, self._dropped, self._rows_of = title, columns, dropped, rows_of
        self._state = "asking Slurm ..."
        self._as_of = ""

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
        self._fit()

    def _take(self, jobs: list[QueuedJob]) -> None:
        self._state = self._as_of = f"as of {time.strftime('%H:%M:%S')}"
        self._timer.reset()
        rows = self._rows_of(jobs, self.reader)
        key = next(iter(self._columns))
        self.show_rows(rows, [row[key] for row in rows])

    def _failed(self, error: HpcrunError | OSError) -> None:
        self._state = "; ".join(filter(None, (" ".join(error_text(error).split()), self._as_of)))
        self._timer.reset()
        self._fit()

    def cells(self, row: Cells) -> tuple[str, Cells, Mapping[str, str]]:
        """Return the texts of a row."""
        return " ", row, {}

    def column_widths(self, width: int) -> dict[str, int]:
        """Return the columns for which there is room."""
        rows = self.rows.lines
        *others, last = self._columns
        needed = {
            name: max(
                [
                    len(name),
                    *((self._columns[name], *(len(row[name]) for row in rows)) if rows else ()),
                ]
            )
            for name in others
        }
        return fitted({**needed, last: self._columns[last]}, width, self._dropped)

    def title_line(self) -> Text:
        """Return what is shown, and when Slurm answered."""
        return Text.assemble((f"{self._title}  ", "bold"), self._state)


def _jobs_screen(reader: Reader) -> QueueScreen:
    columns = {
        "job": 3,
        "name": 4,
        "partition": 4,
        "state": 5,
        "nodes": 1,
        "elapsed": 7,
        "limit": 5,
        "info": 16,
    }

    def rows_of(jobs: Sequence[QueuedJob], reader: Reader) -> list[Cells]:
        run_ids = {item.run.run_id for item in reader.reading.runs}
        return [job_cells(job) for job in other_jobs(jobs, user_name(), run_ids)]

    dropped = ("partition", "limit", "nodes")
    return QueueScreen(reader, "your jobs that hpcrun did not submit", columns, dropped, rows_of)


def _partitions_screen(reader: Reader) -> QueueScreen:
    columns = {"partition": 4, "running": 1, "nodes": 1, "pending": 1, "yours": 5, "your first": 24}
    return QueueScreen(
        reader,
        "queue by partition",
        columns,
        ("nodes",),
        lambda jobs, reader: partition_cells(jobs, user_name(), reader.now_s()),
    )


SCREENS: Mapping[str, Callable[[Reader], QueueScreen]] = {
    "jobs": _jobs_screen,
    "queue": _partitions_screen,
}
"""Name of a screen in ``app.view(...)`` → what makes it."""
