"""Which of many followed logs are looked at in a round: so few that a file server hardly notices.

A few logs are all looked at in every round. Of many, those that were written to lately come first, then the silent
ones, each in turn; silent ones always keep a share, so that none is forgotten.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

FEW = 32
"""So many logs are looked at in every round: stdout and stderr of 16 ranks."""
CALLS_A_ROUND = 30
"""How many system calls a round may make on the logs where there are more; a round is then a second long."""
LIVE_ROUNDS = 20
"""After so many rounds without a word a log counts as silent."""


class Followed(Protocol):
    """A log that is followed.

    Attributes:
        looked_at: the round of the last look.
        spoke_at: the round in which there was something new.
        calls: how many system calls were made on it so far.
    """

    looked_at: int
    spoke_at: int
    calls: int


L = TypeVar("L", bound=Followed)


@dataclass(slots=True)
class Pace(Generic[L]):
    """Counts the rounds, and chooses for each."""

    round: int = 0

    def chosen(self, logs: Sequence[L], *, every: bool) -> Iterator[L]:
        """Yield the logs to look at in the next round; ask for the next one after having looked.

        Args:
            every: all of them, whatever it costs: at the beginning, and at the end of an attempt.
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
