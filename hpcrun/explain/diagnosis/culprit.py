"""Finds the rank that ended a run, from the ranks' records in any order. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum

from hpcrun.job.state import EXIT_ABORTED, EXIT_KILLED, EXIT_TERMINATED

SAME_MOMENT_S = 5.0
"""Ends closer than this have no certain order: a rank that raised an exception needs seconds to tear down CUDA and its
threads, while the others notice the closed connection at once; the clocks of two nodes differ, too."""
CLEARED_AWAY_AFTER_S = 5.0
"""A rank that is killed (SIGKILL) this long after another has failed was killed because of it: torchrun and srun send
SIGTERM, and SIGKILL 30 s later (torch's PContext.close, slurm.conf's KillWait)."""
_WAITERS = 2
"""Ranks that must have waited for a silent rank, before the silent rank counts as the cause."""


class Speech(IntEnum):
    """The subject of the end of a rank's log, the most likely culprit first."""

    OWN = 0
    """The rank's own exception or message."""
    NOTHING = 1
    """No exception: a native crash, ``sys.exit(3)``, a kill."""
    NETWORK = 2
    """A connection that failed outside of torch.distributed: caused by this rank or by another one."""
    WAITED = 3
    """A timeout while it waited for other ranks."""
    GONE = 4
    """A connection lost to another rank, which had mostly timed out or failed before."""

    @property
    def of_others(self) -> bool:
        """Whether it is a symptom of another rank's end."""
        return self >= Speech.WAITED


@dataclass(frozen=True, slots=True)
class RankEnd:
    """How a rank ended: exit status (128 + n for signal n), node, time (seconds since the epoch).

    Attributes:
        signalled: it was terminated before it ended, whatever its status.
    """

    rank: int
    node: str
    status: int
    ended_s: float
    signalled: bool = False

    @property
    def by_itself(self) -> bool:
        """Whether it failed, and was not terminated."""
        return self.status not in (0, EXIT_TERMINATED)


@dataclass(frozen=True, slots=True)
class Culprit:
    """The rank that ended a run.

    Attributes:
        left: it ended with exit status 0 while others continued, which then failed or timed out.
        missing: all others waited for it until their timeout; it was terminated without a word.
    """

    rank: int
    left: bool = False
    missing: bool = False

    @property
    def own_words(self) -> bool:
        """Whether its own log, and no other rank's, may tell what happened."""
        return not (self.left or self.missing)


def find_culprit(ends: Sequence[RankEnd], speech: Mapping[int, Speech]) -> Culprit | None:
    """Return the rank that ended the run, None if no rank ended by itself.

    It is the first rank that failed because of itself, else one that ended with exit status 0 before the others failed,
    else the one for which all others waited, else the first that failed because of others.

    Args:
        ends: the records of the ranks, in any order.
        speech: rank → the subject of its log; ``NOTHING`` for a missing rank.
    """
    failed = _failures(ends, speech)
    of_others = [end for end in failed if _speech(end, speech).of_others]
    own = [end for end in failed if not _speech(end, speech).of_others]
    # a rank may fail and end slowly: then it is terminated like the other ranks
    own = [end for end in own if not end.signalled] or own
    if own:
        last_s = min(end.ended_s for end in own) + SAME_MOMENT_S
        moment = [end for end in own if end.ended_s <= last_s]
        return Culprit(min(moment, key=lambda end: (_suspicion(end, speech), end.ended_s, end.rank)).rank)
    leaver = first_leaver(ends, within_s=SAME_MOMENT_S if of_others else 0.0)
    if leaver is not None:
        return Culprit(leaver.rank, left=True)
    if (missing := _missing(ends, speech)) is not None:
        return Culprit(missing, missing=True)
    if of_others:
        return Culprit(min(of_others, key=lambda end: (_symptom(end, speech), end.ended_s, end.rank)).rank)
    return None


def _missing(ends: Sequence[RankEnd], speech: Mapping[int, Speech]) -> int | None:
    """Return the one rank that did not wait, where at least two others waited until their timeout.

    Of two ranks neither is known to have waited for the other: both may wait where the network fails.
    """
    rest = [end for end in ends if _speech(end, speech) is not Speech.WAITED]
    if len(rest) != 1 or len(ends) < 1 + _WAITERS:
        return None
    (one,) = rest
    silent = _speech(one, speech) is Speech.NOTHING and one.status in (EXIT_TERMINATED, EXIT_KILLED)
    return one.rank if silent or (one.by_itself and _speech(one, speech) is Speech.GONE) else None


def before_signal(ends: Iterable[RankEnd], signalled_s: float) -> list[RankEnd]:
    """Return the ends before a signal to the whole job, and those of the ranks that the signal terminated.

    Args:
        signalled_s: when the job was signalled, in seconds since the epoch.
    """
    return [end for end in ends if end.status == EXIT_TERMINATED or end.ended_s < signalled_s]


def first_leaver(ends: Iterable[RankEnd], within_s: float = 0.0) -> RankEnd | None:
    """Return the first rank with exit status 0, if it ended before all other ranks that did not; None if there is none.

    Args:
        within_s: it may have ended this many seconds later: the others notice closed connections before it has ended.
    """
    known = sorted(ends, key=lambda end: (end.ended_s, end.rank))
    badly = [end for end in known if end.status != 0]
    well = [end for end in known if end.status == 0]
    return well[0] if well and badly and well[0].ended_s <= badly[0].ended_s + within_s else None


def failure_order(ends: Iterable[RankEnd], speech: Mapping[int, Speech]) -> list[int]:
    """Return the ranks that failed by themselves: first those with their own error, each kind by time."""
    failed = _failures(ends, speech)
    failed.sort(key=lambda end: (_symptom(end, speech), end.signalled, end.ended_s, end.rank))
    return [end.rank for end in failed]


def _failures(ends: Iterable[RankEnd], speech: Mapping[int, Speech]) -> list[RankEnd]:
    """Return the ranks that failed and were not terminated because another rank had failed.

    A rank that raised an exception may end so slowly that it is terminated together with the others. But its exception
    is in its log, and SIGTERM alone leaves no exception.
    """
    known = list(ends)
    first_s = min((end.ended_s for end in known if end.by_itself), default=0.0)
    return [
        end
        for end in known
        if (end.by_itself and (end.status != EXIT_KILLED or end.ended_s <= first_s + CLEARED_AWAY_AFTER_S))
        or (end.status == EXIT_TERMINATED and _speech(end, speech) is Speech.OWN)
    ]


def _speech(end: RankEnd, speech: Mapping[int, Speech]) -> Speech:
    return speech.get(end.rank, Speech.NOTHING)


def _symptom(end: RankEnd, speech: Mapping[int, Speech]) -> int:
    """Return 0 for a rank that failed because of itself, else the distance of its message from the culprit."""
    said = _speech(end, speech)
    return int(said) if said.of_others else 0


def _suspicion(end: RankEnd, speech: Mapping[int, Speech]) -> int:
    """Return the place of a rank among those that ended in the same moment; the most likely culprit has 0.

    Libraries and launchers end a rank without its peer by a silent abort or kill; other ends have their cause in the
    rank.
    """
    said = _speech(end, speech)
    if end.status == EXIT_TERMINATED:
        return 1
    if said is Speech.NOTHING:
        return 2 if end.status in (EXIT_KILLED, EXIT_ABORTED) else 0
    return 3 if said is Speech.NETWORK else 0
