"""The ranks of an attempt: state, node, time and text of the last line of each rank.

Ranks that are odd come first.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from enum import Enum
from pathlib import Path

from hpcrun.runs.attempt import Attempt, RankExit, last_attempt, node_ranks, rank_exits
from hpcrun.runs.log_files import fold, rank_log, tail
from hpcrun.runs.silence import last_line_of, last_writes, silence_limit_s, talkers, usual_pause_s

# the most logs whose last line is read at a time: 512 ranks get theirs in eight rounds
MOST_LINES = 64
# the most silent ranks of which the usual pause is looked up: the end of a log each, once
MOST_PACES = 32


class RankState(Enum):
    """The state of a rank, its words and its style, in the order in which ranks are shown.

    States that are odd come first.
    """

    FAILED = "failed", "bold red"
    NO_END = "no exit status", "bold red"
    SILENT = "silent", "bold yellow"
    NO_OUTPUT = "no output", "yellow"
    NOT_STARTED = "not started", "yellow"
    RUNNING = "running", ""
    TERMINATED = "terminated", ""
    COMPLETED = "completed", "green"

    def __init__(self, words: str, style: str) -> None:
        self.words = words
        self.style = style


_ORDER = {kind: number for number, kind in enumerate(RankState)}


@dataclass(frozen=True, slots=True)
class RankRow:
    """One rank of an attempt."""

    rank: int
    kind: RankState
    node: str | None = None  # None where it is not known yet
    # when it last wrote, in seconds since the epoch; None if it has written nothing
    wrote_s: float | None = None
    exit_status: int | None = None  # None while it runs
    ended_s: float | None = None  # when it ended, in seconds since the epoch
    line: str = ""  # its last line, as it wrote it; empty if that is not read yet

    @property
    def state(self) -> str:
        """Its state in words: ``failed, exit status 1``."""
        if self.kind in (RankState.FAILED, RankState.TERMINATED):
            return f"{self.kind.words} ({self.exit_status})"
        return self.kind.words


@dataclass(frozen=True, slots=True)
class _LastLine:
    """The last line of a rank."""

    wrote_s: float  # when the rank wrote it, in seconds since the epoch
    text: str


@dataclass(frozen=True, slots=True)
class _UsualPause:
    """The usual pause of a rank between two lines."""

    wrote_s: float  # when the rank wrote last, in seconds since the epoch
    pause_s: float  # 0 if it is not known


@dataclass(slots=True)
class RanksReader:
    """The reader of the ranks of one element of a run, which reads again and again.

    The reader reads a last line again only if the rank has written since.
    """

    folder: Path  # of the run
    element: int
    world_size: int  # how many ranks an attempt has
    missing: int = 0  # ranks whose last line is still to be read
    # by attempt, rank, and whether the rank failed
    _lines: dict[tuple[int, int, bool], _LastLine] = field(default_factory=dict)
    _pauses: dict[tuple[int, int], _UsualPause] = field(default_factory=dict)  # by attempt and rank

    def read(
        self, now_s: float, *, is_over: bool, shown: Sequence[int] = ()
    ) -> tuple[Attempt, list[RankRow]] | None:
        """Return the newest attempt and its ranks, or None if no attempt has started.

        Ranks that are odd come first.

        Args:
            now_s: the present time, in seconds since the epoch.
            is_over: whether the job has ended; then a rank without an exit status will have none.
            shown: the ranks that are on the screen; the reader reads their last lines first.
        """
        attempt = last_attempt(self.folder, self.element)
        if attempt is None:
            return None
        rows = self._rows(attempt, now_s, is_over=is_over)
        return attempt, self._with_lines(attempt, rows, shown)

    def _rows(self, attempt: Attempt, now_s: float, *, is_over: bool) -> list[RankRow]:
        """Return the ranks, with the odd ranks first.

        The order is failed ranks (the first failure first), silent ranks (the longest silence
        first), and then ranks without output.
        """
        wrote = last_writes(attempt.folder).ranks
        ends = {end.rank: end for end in rank_exits(attempt.folder)}
        node_of: dict[int, str] = {}
        for name, ranks in node_ranks(attempt.folder).items():
            node_of.update(dict.fromkeys(ranks, name))
        has_ended = is_over or attempt.exit is not None
        silent = set() if has_ended else self._silent_ranks(attempt, wrote, ends, now_s)
        rows = []
        for rank in {*wrote, *node_of, *ends, *range(self.world_size)}:
            end = ends.get(rank)
            node = node_of.get(rank)
            wrote_s = wrote.get(rank)
            if end:
                kind = _kind_of_end(end)
                rows.append(RankRow(rank, kind, end.node, wrote_s, end.status, end.ended_s))
                continue
            if rank not in wrote and node is None:
                kind = RankState.NOT_STARTED
            elif has_ended:
                kind = RankState.NO_END
            elif wrote_s is None:
                kind = RankState.NO_OUTPUT
            else:
                kind = RankState.SILENT if rank in silent else RankState.RUNNING
            rows.append(RankRow(rank, kind, node, wrote_s))
        return sorted(rows, key=_place)

    def _silent_ranks(
        self,
        attempt: Attempt,
        wrote: Mapping[int, float | None],
        ended: Collection[int],
        now_s: float,
    ) -> set[int]:
        """Return the ranks that have not written for much longer than usual.

        A rank that wrote only at the start of the job, while other ranks write, is not silent: in
        most programs only rank 0 prints. A rank that always writes seldom is not silent either.
        """
        written = {rank: at_s for rank, at_s in wrote.items() if at_s is not None}
        ages: dict[int, float] = {}
        for rank, wrote_s in written.items():
            if rank not in ended:
                ages[rank] = max(0.0, now_s - wrote_s)
        if not ages:
            return set()
        latest = max(written, key=lambda rank: written[rank])
        usual_s = self._usual_pause_s(attempt, latest, written[latest])
        running_s = max(0.0, now_s - attempt.started_s)
        limit_s = silence_limit_s(usual_s)
        quiet = [rank for rank in talkers(ages, running_s) if ages[rank] > limit_s]
        quiet.sort(key=lambda rank: written[rank])
        silent = set(quiet[MOST_PACES:])
        for rank in quiet[:MOST_PACES]:
            pause_s = self._usual_pause_s(attempt, rank, written[rank])
            if ages[rank] > silence_limit_s(max(usual_s, pause_s)):
                silent.add(rank)
        return silent

    def _usual_pause_s(self, attempt: Attempt, rank: int, wrote_s: float) -> float:
        """Return the usual pause of a rank in seconds, 0 if the pause is not known.

        The function reads the pause again only if the rank has written since.
        """
        key = (attempt.number, rank)
        known = self._pauses.get(key)
        if known is None or known.wrote_s != wrote_s:
            known = _UsualPause(wrote_s, usual_pause_s(attempt, rank) or 0.0)
            self._pauses[key] = known
        return known.pause_s

    def _with_lines(
        self, attempt: Attempt, rows: Sequence[RankRow], shown: Sequence[int]
    ) -> list[RankRow]:
        """Return the ranks with their last lines, as far as these have been read.

        The function reads the lines of ``MOST_LINES`` ranks that have written since.
        """
        changed = []
        for row in rows:
            known = self._lines.get(_line_key(attempt, row))
            if row.wrote_s is not None and (known is None or known.wrote_s != row.wrote_s):
                changed.append((row, row.wrote_s))
        on_screen = set(shown)
        # stable: else those that are odd first
        changed.sort(key=lambda pair: pair[0].rank not in on_screen)
        for row, wrote_s in changed[:MOST_LINES]:
            self._lines[_line_key(attempt, row)] = _LastLine(wrote_s, _line_of(attempt, row))
        self.missing = max(0, len(changed) - MOST_LINES)
        with_lines = []
        for row in rows:
            last = self._lines.get(_line_key(attempt, row))
            with_lines.append(replace(row, line=last.text) if last else row)
        return with_lines


def _kind_of_end(end: RankExit) -> RankState:
    if end.status == 0:
        return RankState.COMPLETED
    return RankState.TERMINATED if end.is_consequence else RankState.FAILED


def _line_key(attempt: Attempt, row: RankRow) -> tuple[int, int, bool]:
    return attempt.number, row.rank, row.kind is RankState.FAILED


def _line_of(attempt: Attempt, row: RankRow) -> str:
    """Return the last line of a rank.

    For a rank that failed, this is the last line of stderr, where the exception is.
    """
    if row.kind is RankState.FAILED:
        with suppress(OSError):
            text = tail(rank_log(attempt.folder, row.rank, "err").path, 5)
            lines = [line for line in text.splitlines() if line.strip()]
            if lines:
                return fold(lines[-1]).strip()
    return last_line_of(attempt, row.rank)


def _place(row: RankRow) -> tuple[int, float, int]:
    when = {RankState.FAILED: row.ended_s, RankState.SILENT: row.wrote_s}.get(row.kind)
    return _ORDER[row.kind], when or 0.0, row.rank


def matching_rows(rows: Sequence[RankRow], words: str) -> list[RankRow]:
    """Return the ranks in which each of some words occurs.

    A word may occur in the number, the state, the node or the last line of the rank.
    """
    terms = words.lower().split()
    matching = []
    for row in rows:
        text = f"rank {row.rank} {row.state} {row.node or ''} {row.line}".lower()
        if all(term in text for term in terms):
            matching.append(row)
    return matching
