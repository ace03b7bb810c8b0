"""Which rank ended a run: a choice from the ranks' records, whatever order they are in. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum

TERMINATED = 143
"""128 + SIGTERM: the status of a rank that the launcher, Slurm or a person ended."""
_KILLED, _ABORTED = 137, 134
SAME_MOMENT_S = 5.0
"""Ends closer than this have no certain order: a rank that raised takes seconds to tear down CUDA and its threads, and
the others notice the closed connection at once; the clocks of two nodes differ, too."""
CLEARED_AWAY_AFTER_S = 5.0
"""A rank killed (SIGKILL) so long after another failed was cleared away: torchrun and srun send SIGTERM, and SIGKILL
30 s later (torch's PContext.close, slurm.conf's KillWait)."""


class Speech(IntEnum):
    """What the end of a rank's log speaks of, the likeliest culprit first."""

    OWN = 0
    """An exception or a message of its own."""
    NOTHING = 1
    """No exception: a native crash, ``sys.exit(3)``, a kill."""
    NETWORK = 2
    """A connection that failed outside of torch.distributed: its own trouble, or another rank's."""
    WAITED = 3
    """Other ranks that it waited for in vain."""
    GONE = 4
    """Another rank that was gone, which mostly had waited or failed before."""

    @property
    def of_others(self) -> bool:
        """A symptom of another rank's end."""
        return self >= Speech.WAITED


@dataclass(frozen=True, slots=True)
class RankEnd:
    """How a rank ended: exit status (128 + n for signal n), on which node, when (seconds since the epoch).

    Attributes:
        told: it was told to end before it did, whatever its status.
    """

    rank: int
    node: str
    status: int
    ended_s: float
    told: bool = False

    @property
    def by_itself(self) -> bool:
        """It failed, and was not told to end."""
        return self.status not in (0, TERMINATED)


@dataclass(frozen=True, slots=True)
class Culprit:
    """The rank that ended a run.

    Attributes:
        left: it ended with exit status 0 while others worked on, which then failed or waited for it in vain.
    """

    rank: int
    left: bool = False


def find_culprit(ends: Sequence[RankEnd], speech: Mapping[int, Speech]) -> Culprit | None:
    """Return the rank that ended the run, None where no rank ended by itself.

    The first rank that failed of its own, else one that left with exit status 0 before the others failed, else the
    first that failed because of others.

    Args:
        ends: the records of the ranks, in any order.
        speech: rank → what its log speaks of; ``NOTHING`` for a rank that is not in it.
    """
    failed = _failures(ends, speech)
    of_others = [end for end in failed if _speech(end, speech).of_others]
    own = [end for end in failed if not _speech(end, speech).of_others]
    # a rank may have failed and be slow to end: it is told to end then, as those are that have to be cleared away
    own = [end for end in own if not end.told] or own
    if own:
        last_s = min(end.ended_s for end in own) + SAME_MOMENT_S
        moment = [end for end in own if end.ended_s <= last_s]
        return Culprit(min(moment, key=lambda end: (_suspicion(end, speech), end.ended_s, end.rank)).rank)
    leaver = first_leaver(ends, within_s=SAME_MOMENT_S if of_others else 0.0)
    if leaver is not None:
        return Culprit(leaver.rank, left=True)
    if of_others:
        return Culprit(min(of_others, key=lambda end: (_symptom(end, speech), end.ended_s, end.rank)).rank)
    return None


def before_signal(ends: Iterable[RankEnd], signalled_s: float) -> list[RankEnd]:
    """Return the ends that a signal to the whole job did not cause, and those of the ranks that it terminated.

    Args:
        signalled_s: when the job was signalled, in seconds since the epoch.
    """
    return [end for end in ends if end.status == TERMINATED or end.ended_s < signalled_s]


def first_leaver(ends: Iterable[RankEnd], within_s: float = 0.0) -> RankEnd | None:
    """Return the first rank with exit status 0, if it ended before all that did not end well; None where none did.

    Args:
        within_s: it may have ended so many seconds later: the others notice closed connections before it is gone.
    """
    known = sorted(ends, key=lambda end: (end.ended_s, end.rank))
    badly = [end for end in known if end.status != 0]
    well = [end for end in known if end.status == 0]
    return well[0] if well and badly and well[0].ended_s <= badly[0].ended_s + within_s else None


def failure_order(ends: Iterable[RankEnd], speech: Mapping[int, Speech]) -> list[int]:
    """Return the ranks that failed by themselves: those of their own trouble first, each kind by time."""
    failed = _failures(ends, speech)
    failed.sort(key=lambda end: (_symptom(end, speech), end.told, end.ended_s, end.rank))
    return [end.rank for end in failed]


def _failures(ends: Iterable[RankEnd], speech: Mapping[int, Speech]) -> list[RankEnd]:
    """Return the ranks that failed and were not cleared away behind another that had.

    A rank that raised may take so long to end that it is terminated with the others, who had noticed: its exception is
    in its log all the same, and SIGTERM itself leaves none.
    """
    known = list(ends)
    first_s = min((end.ended_s for end in known if end.by_itself), default=0.0)
    return [
        end
        for end in known
        if (end.by_itself and (end.status != _KILLED or end.ended_s <= first_s + CLEARED_AWAY_AFTER_S))
        or (end.status == TERMINATED and _speech(end, speech) is Speech.OWN)
    ]


def _speech(end: RankEnd, speech: Mapping[int, Speech]) -> Speech:
    return speech.get(end.rank, Speech.NOTHING)


def _symptom(end: RankEnd, speech: Mapping[int, Speech]) -> int:
    """Return 0 for a rank that failed of its own, else how far its words are from the culprit."""
    said = _speech(end, speech)
    return int(said) if said.of_others else 0


def _suspicion(end: RankEnd, speech: Mapping[int, Speech]) -> int:
    """Return how a rank is placed among those that ended in the same moment, the likeliest culprit 0.

    A silent abort or kill is how libraries and launchers end a rank whose peer is gone; other ends are the rank's own.
    """
    said = _speech(end, speech)
    if end.status == TERMINATED:
        return 1
    if said is Speech.NOTHING:
        return 2 if end.status in (_KILLED, _ABORTED) else 0
    return 3 if said is Speech.NETWORK else 0
