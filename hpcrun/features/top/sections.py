"""The sections of a run's page: what each reads, how often, and what it shows.

``read`` is called in a thread of its own, one call of a section at a time; all else in the thread of the screens. A
section is read only while it is on the screen, and again only while its run can change, or after an error.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from rich.text import Text

from hpcrun.actions.runs.ranks import RankRow, RanksReader, RankState, matching_rows
from hpcrun.actions.status.run_status import RunStatus
from hpcrun.errors import HpcrunError
from hpcrun.features.top import run_page_text as view
from hpcrun.job import state
from hpcrun.job.layout import RunFolder
from hpcrun.reading import read_text
from hpcrun.runs.attempt import Attempt, attempts

if TYPE_CHECKING:
    from hpcrun.actions.runs.metrics import Metrics
    from hpcrun.explain.diagnosis.rules import Rule
    from hpcrun.explain.ended import Explanation
    from hpcrun.runs.use import NodeUse

FEW_RANKS = 32
"""Up to so many ranks are read every 3 s; more are read every 10 s, since each is a request to the file server."""
SHARE_OF_TIME = 20
"""After a reading that took 2 s, the next one begins 40 s later at the earliest."""
_MOST_SCRIPT = 4 << 20


class PageReader(Protocol):
    """The ports of a run's page: what is known of runs, rules and metrics, the clock and the threads."""

    def run_status(self, run_id: str) -> RunStatus:
        """Return what was last learned of a run, or of an element, ``run id/3``; never waits.

        Raises:
            HpcrunError: its folder is gone, or its record cannot be read.
        """

    def rules(self) -> Sequence[Rule]:
        """Return the rules of ``explain``; reads files."""

    def metric_patterns(self, profile: str) -> Mapping[str, str]:
        """Return metric → regular expression that finds it in the logs of a run of this profile; reads files."""

    def now_s(self) -> float:
        """Return the time, in seconds since the epoch."""

    def in_background(
        self,
        call: Callable[[], Any],
        then: Callable[[Any], object],
        failed: Callable[[HpcrunError | OSError], object],
    ) -> None:
        """Make a call in a thread of its own; ``then`` or ``failed`` is called in the thread of the screens.

        Any exception of the call reaches ``failed``, as a bug where it is neither of the two.
        """


@dataclass(frozen=True, slots=True)
class Surface:
    """What a section is drawn for: the run as it is known now, the time, and the room for the lines."""

    item: RunStatus
    now_s: float
    width: int = 80
    height: int = 20


class Section(ABC):
    """One section of the page.

    Attributes:
        title: on the line of the sections.
        frame: what it is drawn for; set before anything is drawn.
        data: what was read last; None before the first reading.
        error: why the last reading failed; empty if it did not.
    """

    title = ""
    frame: Surface
    every_s = 10.0
    """Seconds between two readings of a run that has not ended."""

    def __init__(self, reader: PageReader) -> None:
        self.reader = reader
        self.data: Any = None
        self.error = ""
        self.reads_since: float | None = None
        self._next_s = 0.0
        self._read_of: tuple[object, ...] | None = None

    def is_due(self, item: RunStatus, now_s: float) -> bool:
        """Whether to read now: first, when the run's state has changed, and again while it runs or a reading failed."""
        if self.reads_since is not None:
            return False
        if self._read_of != _mark(item):
            return True
        can_change = not item.status.final or bool(self.error)
        return can_change and self.every_s > 0 and now_s >= self._next_s

    def begin(self, item: RunStatus, now_s: float) -> None:
        """Note that it is being read."""
        self.reads_since, self._read_of = now_s, _mark(item)

    def end(self, now_s: float, data: Any = None, error: str = "") -> None:
        """Take what was read, or why it was not; for None, the data of before stays."""
        took_s = now_s - (self.reads_since or now_s)
        self.reads_since, self.error = None, error
        self._next_s = now_s + max(self.every_s, SHARE_OF_TIME * took_s)
        if data is not None:
            self.data = data

    def again(self) -> None:
        """Read at the next opportunity."""
        self._read_of = None

    @abstractmethod
    def read(self, item: RunStatus) -> Any:
        """Return what it shows; None if nothing has changed."""

    def heading(self) -> list[Text]:
        """Return the lines that stay above the others."""
        return []

    def lines(self) -> Sequence[Any]:
        """Return the lines, if they are not what was read; called only after the first reading."""
        lines: Sequence[Any] = self.data
        return lines

    def draw(self, line: Any) -> Text:
        """Return one line as it looks."""
        text: Text = line
        return text


def _mark(item: RunStatus) -> tuple[object, ...]:
    status = item.status
    return item.element, status.state, status.final, status.attempt


def _element(item: RunStatus) -> int:
    return item.element or 0


class RanksSection(Section):
    """The ranks of the newest attempt, first those that failed or are silent."""

    title = "ranks"
    every_s = 3.0

    def __init__(self, reader: PageReader) -> None:
        super().__init__(reader)
        self.filter = ""
        self.shown: Sequence[int] = ()
        self._ranks: RanksReader | None = None

    def read(self, item: RunStatus) -> Any:
        """Return the attempt and its ranks."""
        if self._ranks is None:
            self._ranks = RanksReader(item.folder, _element(item), item.run.world_size)
        self.every_s = 3.0 if item.run.world_size <= FEW_RANKS else 10.0
        return self._ranks.read(self.reader.now_s(), is_over=item.status.final, shown=self.shown) or ()

    def is_due(self, item: RunStatus, now_s: float) -> bool:
        """Whether it is time to read, also the last lines of the next ranks."""
        has_more = self._ranks is not None and self._ranks.missing and self.reads_since is None and not self.error
        return bool(has_more) or super().is_due(item, now_s)

    @property
    def rows(self) -> list[RankRow]:
        """All ranks."""
        return self.data[1] if self.data else []

    def heading(self) -> list[Text]:
        """Return the attempt and the names of the columns."""
        if not self.data:
            return []
        kept = matching_rows(self.rows, self.filter)
        columns = view.RankColumns(self.rows).heading()
        return [Text(view.rank_heading(self.data[0], self.rows, len(kept), self.frame.now_s)), Text(columns, "bold")]

    def lines(self) -> Sequence[Any]:
        """Return the ranks that match the filter."""
        if not self.data:
            return [Text(_not_started(self.frame.item))]
        if self.frame.item.status.final and all(row.kind is RankState.NOT_STARTED for row in self.rows):
            return [Text(_not_started(self.frame.item))]
        self._columns = view.RankColumns(self.rows)
        return matching_rows(self.rows, self.filter)

    def draw(self, line: Any) -> Text:
        """Return one rank as a line."""
        return line if isinstance(line, Text) else self._columns.line(line, self.frame.now_s)


def _not_started(item: RunStatus) -> str:
    over = item.status.final
    return "The job ended before it started a rank; b shows the batch script's log." if over else (
        f"The job is {item.status.state}: no rank has started."
    )  # fmt: skip


class AttemptsSection(Section):
    """The attempts on a time line."""

    title = "attempts"

    def read(self, item: RunStatus) -> list[Attempt]:
        """Return the attempts, the oldest first."""
        return list(attempts(item.folder, _element(item)))[::-1]

    def attempt_at(self, number: int) -> int | None:
        """Return the attempt that a line is about; None above the first."""
        above = (view.attempt_of(line) for line in reversed(self.lines()[: number + 1]))
        return next((attempt for attempt in above if attempt is not None), None)

    def lines(self) -> Sequence[Text]:
        """Return their bars."""
        found: list[Attempt] = self.data
        item = self.frame.item
        waits = item.status.state in (state.PENDING, state.SUBMITTING)
        over = item.status.final or waits or (bool(found) and found[-1].exit is not None)
        ending = f"ended as {item.status.state}" if item.status.final else ""
        return view.attempt_lines(
            found, item.run.created_s, self.frame.now_s, self.frame.width, is_over=over, ending=ending
        )


class MetricsSection(Section):
    """The metrics as curves."""

    title = "metrics"

    def __init__(self, reader: PageReader) -> None:
        super().__init__(reader)
        self.chosen = 0
        self._files: tuple[object, ...] = ()

    def read(self, item: RunStatus) -> Metrics | None:
        """Return the metrics of all attempts; None where no file has changed."""
        from hpcrun.actions.runs.metrics import read_metrics

        files = tuple(_changes(attempt) for attempt in attempts(item.folder, _element(item)))
        if self.data is not None and files == self._files:
            return None
        found = read_metrics(item.folder, self.reader.metric_patterns(item.run.profile), element=_element(item))
        self._files = files
        return found

    def lines(self) -> Sequence[Text]:
        """Return the curve of the chosen metric, and the last values of all."""
        said = view.metric_lines(self.data, self.chosen, self.frame.width, self.frame.height)
        return said or [
            Text("The run has logged no metrics so far."),
            Text(),
            Text("Call hpcrun_runtime.log_metrics(step=..., loss=...) in the script, or give a"),
            Text("pattern for its output in config.yaml: metrics: {loss: 'loss ([0-9.]+)'}"),
        ]


def _changes(attempt: Attempt) -> tuple[object, ...]:
    """Return what changes when a rank of an attempt writes: only of rank 0's logs, and of the metrics of all."""
    found: list[object] = [attempt.number]
    with suppress(OSError), os.scandir(attempt.folder.path) as entries:
        for entry in entries:
            if entry.name.endswith(".metrics") or entry.name in ("rank-0.out", "rank-0.err"):
                status = entry.stat(follow_symlinks=False)
                found.append((entry.name, status.st_size, status.st_mtime_ns))
    return (found[0], *sorted(map(str, found[1:])))


class UseSection(Section):
    """The use of the hardware over time."""

    title = "use"

    def read(self, item: RunStatus) -> tuple[NodeUse, ...]:
        """Return the samples of the newest attempt that has some."""
        from hpcrun.runs.use import read_use

        found = (read_use(attempt.folder) for attempt in attempts(item.folder, _element(item)))
        return next((nodes for nodes in found if nodes), ())

    def lines(self) -> Sequence[Text]:
        """Return a row of bars for each GPU, and for the CPUs, the memory and the network of each node."""
        if lines := view.use_lines(self.data, self.frame.width):
            return lines
        if self.frame.item.status.final:
            return [Text("No use of the hardware was recorded for this run.")]
        return [Text("No use of the hardware is recorded yet: the job takes a sample every 10 s.")]


class ExplainSection(Section):
    """The verdict of explain, in its words."""

    title = "explain"
    every_s = 30.0

    def read(self, item: RunStatus) -> Explanation:
        """Return the explanation."""
        from hpcrun.explain.ended import explain
        from hpcrun.explain.running import explain_running, look

        if item.status.state == state.RUNNING:
            patterns = self.reader.metric_patterns(item.run.profile)
            if (running := look(item, self.reader.now_s(), patterns)) is not None:
                return explain_running(running)
        return explain(item, self.reader.rules())

    def lines(self) -> Sequence[Text]:
        """Return its lines, as hpcrun explain prints them."""
        from hpcrun.views.explain import explanation_text

        return list(explanation_text(self.data, self.frame.width).split("\n", allow_blank=True))


class ScriptSection(Section):
    """The script as it was submitted."""

    title = "script"
    every_s = 0.0

    def read(self, item: RunStatus) -> list[Text]:
        """Return its lines."""
        return view.script_lines(read_text(RunFolder(item.folder).script, _MOST_SCRIPT))


class PlanSection(Section):
    """The request, the plan and the folder."""

    title = "plan"
    every_s = 0.0

    def read(self, item: RunStatus) -> str:
        """Return the command that submits the same."""
        from hpcrun.job.submit_line import editable_line, with_named_secrets

        run = item.run
        if not run.request.get("script"):
            return "# submitted from Python: its function is in the run's folder"
        return editable_line(with_named_secrets(run.request), run.profile_file or run.profile, ())

    def lines(self) -> Sequence[Text]:
        """Return all of it."""
        return view.plan_lines(self.frame.item, self.data, self.frame.width)


SECTIONS: tuple[type[Section], ...] = (
    RanksSection, AttemptsSection, MetricsSection, UseSection, ExplainSection, ScriptSection, PlanSection,
)  # fmt: skip
