"""The ranks of an attempt: state, node, time and text of the last line of each rank.

Ranks that are odd come first.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from enum import Enum
from itertools import islice
from pathlib import Path

from hpcrun.runs.attempt import Attempt, attempts, node_ranks, rank_exits
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
        self.words, self.style = words, style


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
        ended = self.kind in (RankState.FAILED, RankState.TERMINATED)
        if ended:
            return f"{self.kind.words} ({self.exit_status})"
        return self.kind.words


@dataclass(slots=True)
class RanksReader:
    """The reader of the ranks of one element of a run, which reads again and again.

    The reader reads a last line again only if the rank has written since.
    """

    folder: Path  # of the run
    element: int
    world_size: int  # how many ranks an attempt has
    missing: int = 0  # ranks whose last line is still to be read
    _lines: dict[tuple[int, int, bool], tuple[float | None, str]] = field(default_factory=dict)
    _paces: dict[tuple[int, int], tuple[float | None, float]] = field(default_factory=dict)

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
        attempt = next(iter(islice(attempts(self.folder, self.element), 1)), None)
        if attempt is None:
            return None
        return attempt, self._with_lines(
            attempt, self._rows(attempt, now_s, is_over=is_over), shown
        )

    def _rows(self, attempt: Attempt, now_s: float, *, is_over: bool) -> list[RankRow]:
        """Return the ranks, with the odd ranks first.

        The order is failed ranks (the first failure first), silent ranks (the longest silence
        first), and then ranks without output.

        A rank that wrote only at the start of the job, while other ranks write, is not silent: in
        most programs only rank 0 prints. A rank that always writes seldom is not silent either.
        """
        wrote = last_writes(attempt.folder).ranks
        node_of = {rank: node for node, its in node_ranks(attempt.folder).items() for rank in its}
        ends = {end.rank: end for end in rank_exits(attempt.folder)}
        ages = {
            rank: max(0.0, now_s - at_s)
            for rank, at_s in wrote.items()
            if at_s is not None and rank not in ends
        }
        if ages:
            talking = set(talkers(ages, max(0.0, now_s - attempt.started_s)))
        else:
            talking = set()
        latest = max(
            (rank for rank in wrote if wrote[rank]), key=lambda rank: wrote[rank] or 0, default=None
        )
        if latest is None:
            usual_s = 0.0
        else:
            usual_s = self._pace(attempt, latest, wrote[latest])
        left = iter(range(MOST_PACES))

        def kind(rank: int) -> RankState:
            end = ends.get(rank)
            if end is not None:
                if end.is_consequence:
                    bad = RankState.TERMINATED
                else:
                    bad = RankState.FAILED
                return RankState.COMPLETED if end.status == 0 else bad
            if rank not in wrote and rank not in node_of:
                return RankState.NOT_STARTED
            if is_over or attempt.exit is not None:
                return RankState.NO_END
            if rank not in ages:
                return RankState.NO_OUTPUT
            is_silent = rank in talking and ages[rank] > silence_limit_s(usual_s)
            if is_silent and next(left, None) is not None:
                is_silent = ages[rank] > silence_limit_s(
                    max(usual_s, self._pace(attempt, rank, wrote[rank]))
                )
            return RankState.SILENT if is_silent else RankState.RUNNING

        rows = []
        for rank in sorted(
            {*wrote, *node_of, *ends, *range(self.world_size)},
            key=lambda rank: wrote.get(rank) or 0.0,
        ):
            end = ends.get(rank)
            wrote_s = wrote.get(rank)
            if end:
                row = RankRow(rank, kind(rank), end.node, wrote_s, end.status, end.ended_s)
            else:
                row = RankRow(rank, kind(rank), node_of.get(rank), wrote_s)
            rows.append(row)
        return sorted(rows, key=_place)

    def _pace(self, attempt: Attempt, rank: int, wrote_s: float | None) -> float:
        """Return the usual pause of a rank in seconds, 0 if the pause is not known.

        The function reads the pause again only if the rank has written since.
        """
        key = (attempt.number, rank)
        if self._paces.get(key, (None, 0.0))[0] != wrote_s:
            self._paces[key] = (wrote_s, usual_pause_s(attempt, rank) or 0.0)
        return self._paces[key][1]

    def _with_lines(
        self, attempt: Attempt, rows: Sequence[RankRow], shown: Sequence[int]
    ) -> list[RankRow]:
        on_screen = set(shown)
        keys = {row.rank: (attempt.number, row.rank, row.kind is RankState.FAILED) for row in rows}
        changed = [
            row
            for row in rows
            if row.wrote_s is not None
            and self._lines.get(keys[row.rank], (None, ""))[0] != row.wrote_s
        ]
        # stable: else those that are odd first
        changed.sort(key=lambda row: row.rank not in on_screen)
        for row in changed[:MOST_LINES]:
            self._lines[keys[row.rank]] = (row.wrote_s, _line_of(attempt, row))
        self.missing = max(0, len(changed) - MOST_LINES)
        return [replace(row, line=self._lines.get(keys[row.rank], (None, ""))[1]) for row in rows]


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
    texts = (
        (row, f"rank {row.rank} {row.state} {row.node or ''} {row.line}".lower()) for row in rows
    )
    return [row for row, text in texts if all(term in text for term in terms)]
