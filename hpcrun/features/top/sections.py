"""The sections of a run's page: what each reads, how often, and what it shows.

``read`` is called in a thread of its own, one call of a section at a time; all else in the thread
of the screens. A section is read only while it is on the screen, and again only while its run can
change, or after an error.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rich.text import Text

from hpcrun.actions.runs.run_metrics import Metrics, read_metrics
from hpcrun.actions.status.run_status import RunStatus
from hpcrun.features.top import run_page_text as view
from hpcrun.features.top.lines import LineView
from hpcrun.features.top.ranks import RankRow, RanksReader, RankState, matching_rows
from hpcrun.files.reading import read_text
from hpcrun.job import job_states as state
from hpcrun.job.run_paths import RunFolder
from hpcrun.runs.attempt import Attempt, attempts
from hpcrun.runs.use_samples import NodeUse, read_use
from hpcrun.views.text import visible

if TYPE_CHECKING:
    from hpcrun.explain.ended import Explanation
    from hpcrun.features.top.reader import Reader

FEW_RANKS = 32
"""Up to so many ranks are read every 3 s; more are read every 10 s, since each is a request to the
file server.
"""
SHARE_OF_TIME = 20  # after a reading that took 2 s, the next one begins 40 s later at the earliest
_MOST_SCRIPT = 4 << 20


class Section(ABC):
    """One section of the page."""

    title = ""  # on the line of the sections
    noun = "line"  # what one of its lines is
    chooses = False  # whether a line of it can be chosen, to open its log
    # only lines with these words are shown; None where lines are searched
    filter: str | None = None
    every_s = 10.0  # seconds between two readings of a run that has not ended
    # what it is drawn for
    item: RunStatus
    now_s: float
    width: int
    height: int

    def __init__(self, reader: Reader) -> None:
        self.reader = reader
        self.shown: LineView[Any] = LineView(self.draw, key=self.key, id=self.title)
        self.data: Any = None  # what was read last; None before the first reading
        self.error = ""  # why the last reading failed
        self._next_s = 0.0
        self._read_of: tuple[object, ...] | None = None

    def is_due(self, item: RunStatus, now_s: float) -> bool:
        """Return whether to read now.

        The section reads at first, when the run's state has changed, and again while the run is in
        progress or after a reading failed.
        """
        if self._read_of != _mark(item):
            return True
        can_change = not item.status.final or bool(self.error)
        return can_change and self.every_s > 0 and now_s >= self._next_s

    def end(
        self, item: RunStatus, began_s: float, now_s: float, data: Any = None, error: str = ""
    ) -> None:
        """Take what was read, or why it was not: then the data of before stays."""
        self._read_of = _mark(item)
        self.error = error
        self._next_s = now_s + max(self.every_s, SHARE_OF_TIME * (now_s - began_s))
        if data is not None:
            self.data = data

    def again(self) -> None:
        """Read at the next opportunity."""
        self._read_of = None

    @abstractmethod
    def read(self, item: RunStatus) -> Any:
        """Return what it shows."""

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

    def key(self, line: Any) -> object:
        """Return what tells that a line of a later reading is the same one."""
        return id(line)

    def first_choice(self) -> int | None:
        """Return the line on which the cursor begins; None for the first line."""
        return None

    def log_at(self, number: int) -> tuple[int, int | None]:  # noqa: ARG002
        """Return the rank and the attempt whose log a line is about.

        The attempt is None for the newest attempt.
        """
        return self.item.run.main_rank, None


def _mark(item: RunStatus) -> tuple[object, ...]:
    status = item.status
    return item.element, status.state, status.final, status.attempt


class RanksSection(Section):
    """The ranks of the newest attempt, first those that failed or are silent."""

    title = "ranks"
    noun = "rank"
    chooses = True
    filter = ""
    every_s = 3.0
    _ranks: RanksReader | None = None

    def read(self, item: RunStatus) -> Any:
        """Return the attempt and its ranks."""
        self._ranks = self._ranks or RanksReader(
            item.folder, item.element or 0, item.run.world_size
        )
        self.every_s = 3.0 if item.run.world_size <= FEW_RANKS else 10.0
        shown = [row.rank for row in self.shown.on_screen if isinstance(row, RankRow)]
        return self._ranks.read(self.reader.now_s(), is_over=item.status.final, shown=shown) or ()

    def is_due(self, item: RunStatus, now_s: float) -> bool:
        """Whether it is time to read, also the last lines of the next ranks."""
        has_more = self._ranks is not None and self._ranks.missing and not self.error
        return bool(has_more) or super().is_due(item, now_s)

    def heading(self) -> list[Text]:
        """Return the attempt and the names of the columns."""
        if not self.data:
            return []
        attempt, rows = self.data
        above = view.rank_heading(attempt, rows, len(matching_rows(rows, self.filter)), self.now_s)
        return [Text(above), Text(view.RankColumns(rows, self.item.run).heading(), "bold")]

    def lines(self) -> Sequence[Any]:
        """Return the ranks that match the filter."""
        status = self.item.status
        rows = self.data[1] if self.data else []
        has_started = any(row.kind is not RankState.NOT_STARTED for row in rows)
        if status.final and not has_started:
            return [Text("The job ended before it started a rank; b shows the batch script's log.")]
        if not rows:
            return [Text(f"The job is {status.state}: no rank has started.")]
        self._columns = view.RankColumns(rows, self.item.run)
        return matching_rows(rows, self.filter)

    def draw(self, line: Any) -> Text:
        """Return one rank as a line."""
        if isinstance(line, Text):
            return line
        return self._columns.line(line, self.now_s)

    def key(self, line: Any) -> object:
        """Return the rank of a line."""
        return line.rank if isinstance(line, RankRow) else id(line)

    def log_at(self, number: int) -> tuple[int, None]:
        """Return the rank of a line."""
        row = self.shown.lines[number]
        return row.rank if isinstance(row, RankRow) else self.item.run.main_rank, None


class AttemptsSection(Section):
    """The attempts on a time line."""

    title = "attempts"
    chooses = True

    def read(self, item: RunStatus) -> list[Attempt]:
        """Return the attempts, the oldest first."""
        return list(attempts(item.folder, item.element or 0))[::-1]

    def lines(self) -> Sequence[Text]:
        """Return their bars."""
        item = self.item
        begun = self.data
        waits = item.status.state in (state.PENDING, state.SUBMITTING)
        over = item.status.final or waits or (bool(begun) and begun[-1].exit is not None)
        ending = f"ended as {item.status.state}" if item.status.final else ""
        return view.attempt_lines(
            begun, item.run.created_s, self.now_s, self.width, is_over=over, ending=ending
        )

    def first_choice(self) -> int:
        """Return the line of the newest attempt."""
        newest = 0
        for number, line in enumerate(self.shown.lines):
            if view.attempt_of(line) is not None:
                newest = number
        return newest

    def log_at(self, number: int) -> tuple[int, int | None]:
        """Return the attempt that a line is about: none above the first."""
        rank = self.item.run.main_rank
        for line in reversed(self.shown.lines[: number + 1]):
            attempt = view.attempt_of(line)
            if attempt is not None:
                return rank, attempt
        return rank, None


class MetricsSection(Section):
    """The metrics as curves."""

    title = "metrics"
    chosen = 0

    def read(self, item: RunStatus) -> Metrics:
        """Return the metrics of all attempts."""
        patterns = self.reader.metric_patterns(item.run.profile)
        return read_metrics(
            item.folder, patterns, element=item.element or 0, role=item.run.deciding_role
        )

    def lines(self) -> Sequence[Text]:
        """Return the curve of the chosen metric, and the last values of all."""
        return view.metric_lines(self.data, self.chosen, self.width, self.height) or [
            Text("The run has logged no metrics so far."),
            Text(),
            Text("Call hpcrun_runtime.log_metrics(step=..., loss=...) in the script, or give a"),
            Text("pattern for its output in config.yaml: metrics: {loss: 'loss ([0-9.]+)'}"),
        ]


class UseSection(Section):
    """The use of the hardware over time."""

    title = "use"

    def read(self, item: RunStatus) -> tuple[NodeUse, ...]:
        """Return the samples of the newest attempt that has some."""
        for attempt in attempts(item.folder, item.element or 0):
            nodes = read_use(attempt.folder)
            if nodes:
                return nodes
        return ()

    def lines(self) -> Sequence[Text]:
        """Return rows of bars for what each node used.

        Each GPU has a row, and so have the CPUs, the memory and the network of each node.
        """
        none = "No use of the hardware is recorded yet: the job takes a sample every 10 s."
        if self.item.status.final:
            none = "No use of the hardware was recorded for this run."
        return view.use_lines(self.data, self.width) or [Text(none)]


class ExplainSection(Section):
    """The verdict of explain, in its words."""

    title = "explain"
    every_s = 30.0

    def read(self, item: RunStatus) -> Explanation:
        """Return the explanation."""
        from hpcrun.explain.ended import explain  # many modules, for one section
        from hpcrun.explain.running import explain_running, read_running

        if item.status.state == state.RUNNING:
            patterns = self.reader.metric_patterns(item.run.profile)
            running = read_running(item, self.reader.now_s(), patterns)
            if running is not None:
                return explain_running(running)
        return explain(item, self.reader.rules())

    def lines(self) -> Sequence[Text]:
        """Return its lines, as hpcrun explain prints them."""
        from hpcrun.views.explanation_text import explanation_text

        return list(explanation_text(self.data, self.width).split("\n", allow_blank=True))


class ScriptSection(Section):
    """The script as it was submitted."""

    title = "script"
    every_s = 0.0

    def read(self, item: RunStatus) -> list[Text]:
        """Return its lines."""
        text = read_text(RunFolder(item.folder).script, _MOST_SCRIPT)
        return [Text(visible(line.expandtabs())) for line in text.splitlines()]


class PlanSection(Section):
    """The request, the plan and the folder."""

    title = "plan"
    every_s = 0.0

    def read(self, item: RunStatus) -> str:
        """Return the command that submits the same."""
        from hpcrun.job.request.request_line import editable_line, with_named_secrets

        run = item.run
        if not run.request.get("script"):
            return "# submitted from Python: its function is in the run's folder"
        return editable_line(with_named_secrets(run.request), run.profile_file or run.profile, ())

    def lines(self) -> Sequence[Text]:
        """Return all of it."""
        return view.plan_lines(self.item, self.data, self.width)


SECTIONS: tuple[type[Section], ...] = (
    RanksSection,
    AttemptsSection,
    MetricsSection,
    UseSection,
    ExplainSection,
    ScriptSection,
    PlanSection,
)
