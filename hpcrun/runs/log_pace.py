"""Selects the logs to read in each round, so that many followed logs do not load a file server.

If there are few logs, all are read in every round. If there are many, recently written logs come first, then the silent
ones in turn; silent logs always keep a share, so that none is forgotten.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

FEW = 32
"""The number of logs that are all read in every round: stdout and stderr of 16 ranks."""
CALLS_A_ROUND = 30
"""The system calls of a round on the logs if there are more logs; then a round takes one second."""
LIVE_ROUNDS = 20
"""After this number of rounds without new output a log counts as silent."""


class Followed(Protocol):
    """A log that is followed.

    Attributes:
        looked_at: the round in which it was last read.
        spoke_at: the round in which it last had new output.
        calls: the number of system calls on it so far.
    """

    looked_at: int
    spoke_at: int
    calls: int


L = TypeVar("L", bound=Followed)


@dataclass(slots=True)
class Pace(Generic[L]):
    """Counts the rounds, and selects the logs of each round."""

    round: int = 0

    def chosen(self, logs: Sequence[L], *, every: bool) -> Iterator[L]:
        """Yield the logs to read in the next round; read each log before you request the next one.

        Args:
            every: all logs, without a limit: at the beginning, and at the end of an attempt.
        """
        self.round += 1
        if every or len(logs) <= FEW:
            for log in logs:
                log.looked_at = self.round
                yield log
            return
        oldest_first = sorted(logs, key=lambda log: log.looked_at)
        live = [log for log in oldest_first if self.round - log.spoke_at <= LIVE_ROUNDS]
        left = CALLS_A_ROUND
        for some, kept in ((live, CALLS_A_ROUND // 4), (oldest_first, 0)):
            for log in some:
                if left <= kept:
                    break
                if log.looked_at < self.round:
                    before, log.looked_at = log.calls, self.round
                    yield log
                    left -= log.calls - before
