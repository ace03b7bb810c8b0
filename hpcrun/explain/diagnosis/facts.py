"""What is known of a run that has ended, and what a diagnosis of it says."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum

from hpcrun.explain.diagnosis.flight_meetings import Flight
from hpcrun.explain.diagnosis.log import Log
from hpcrun.explain.diagnosis.rules import Rule, fill
from hpcrun.explain.diagnosis.scan import Hit
from hpcrun.job.job_states import EXIT_TERMINATED
from hpcrun.job.run_paths import RoleRanks
from hpcrun.job.text.units import rank_text

SAME_MOMENT_S = 5.0
"""Ends closer than this have no certain order: a rank that raised an exception needs seconds to
tear down CUDA and its threads, while the others notice the closed connection at once; the clocks of
two nodes differ, too."""
CLEARED_AWAY_AFTER_S = 5.0
"""A rank that is killed (SIGKILL) this long after another has failed was killed because of it:
torchrun and srun send SIGTERM, and SIGKILL 30 s later (torch's PContext.close, slurm.conf's
KillWait)."""


class LogSubject(IntEnum):
    """The subject of the end of a rank's log, the most likely culprit first."""

    OWN = 0
    """The rank's own exception or message."""
    NOTHING = 1
    """No exception: a native crash, ``sys.exit(3)``, a kill."""
    NETWORK = 2
    """A connection that failed outside of torch.distributed: caused by this rank or by another one.
    """
    WAITED = 3
    """A timeout while it waited for other ranks."""
    GONE = 4
    """A connection lost to another rank, which had mostly timed out or failed before."""

    @property
    def of_others(self) -> bool:
        """Whether it is a symptom of another rank's end."""
        return self >= LogSubject.WAITED


@dataclass(frozen=True, slots=True)
class RankEnd:
    """How a rank ended: exit status (128 + n for signal n), node, time (seconds since the epoch).

    Attributes:
        signalled: it was terminated before it ended, whatever its status.
        pid: the process id of its program; 0 if it is not known.
    """

    rank: int
    node: str
    status: int
    ended_s: float
    signalled: bool = False
    pid: int = 0

    @property
    def by_itself(self) -> bool:
        """Whether it failed, and was not terminated."""
        return self.status not in (0, EXIT_TERMINATED)


@dataclass(frozen=True, slots=True)
class Facts:
    """The facts about a run that has ended.

    Attributes:
        ends: rank → how it ended, of the ranks that left a record.
        signalled_s: when the script or a rank first received a signal to end, in seconds since the
            epoch; None if there was no signal, or if it was not recorded.
        shared: the name of the log that all ranks share.
        flight: what torch's flight recorder kept of the ranks' collectives; None where there are no
            dumps.
        start: which start of the ranks it is about, where torchrun started them again later; else
            empty.
        role: the role that all ranks are of; None without roles.
        addresses: the addresses of the nodes → their names.
    """

    state: str
    ends: Mapping[int, RankEnd] = field(default_factory=dict)
    logs: Sequence[Log] = ()
    signalled_s: float | None = None
    shared: str = "batch script"
    flight: Flight | None = None
    start: str = ""
    role: RoleRanks | None = None
    addresses: Mapping[str, str] = field(default_factory=dict)

    @property
    def nodes(self) -> dict[int, str]:
        """The ranks that left a record → their nodes."""
        return {rank: end.node for rank, end in self.ends.items()}

    def name(self, rank: int) -> str:
        """Return ``rank 5 on node7``; without its node where it left no record."""
        return rank_text(rank, self.nodes.get(rank), self.role)

    def logs_of(self, rank: int | None) -> list[Log]:
        """Return the logs of a rank; None: those, or the parts of them, that belong to no rank."""
        return [log for log in self.logs if log.rank == rank]


@dataclass(frozen=True, slots=True)
class Cause:
    """A rule that explains a run, and the line that matches.

    Attributes:
        log, hit: None if the job's state or a rank's exit status decided.
        rank: the rank that failed; None for the whole job.
        more: what else is said of it, with the words of a log; empty for nothing.
    """

    rule: Rule
    rank: int | None = None
    log: Log | None = None
    hit: Hit | None = None
    more: str = ""

    @property
    def text(self) -> str:
        """What happened."""
        return fill(self.rule.cause, self.hit.values if self.hit else {}) + self.more


@dataclass(frozen=True, slots=True)
class Culprit:
    """The rank that ended a run; None if nothing proves which.

    Attributes:
        left: it ended with exit status 0 while others continued, which then failed or timed out.
        missing: all others waited for it until their timeout; it was terminated without a word.
        alike: the ranks that failed in the same way, if it is unknown for that reason.
    """

    rank: int | None
    left: bool = False
    missing: bool = False
    alike: tuple[int, ...] = ()

    @property
    def own_words(self) -> bool:
        """Whether its own log, and no other rank's, may tell what happened."""
        return not (self.left or self.missing)


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """The result of a diagnosis.

    Attributes:
        cause: None if no rule matches.
        culprit: the rank that ended the run, without consequences.
        consequences: messages of other ranks and the launchers that follow from it.
        caught: the culprit caught the failure and continued, and others then waited for it.
        of_record: the records of the ranks show that the culprit ended the run.
        by_places: where the ranks waited decided (torch's flight recorder, or their tracebacks),
            and no rule.
        leaver: the rank that ended before all others with exit status 0, whether it is the culprit
            or only evidence.
    """

    cause: Cause | None
    culprit: Culprit
    consequences: tuple[Cause, ...] = ()
    caught: bool = False
    leaver: int | None = None
    of_record: bool = False
    by_places: bool = False

    @property
    def first(self) -> int | None:
        """The rank that ended the run; None if there is none or it is unknown."""
        return self.culprit.rank

    def failed_first(self, end: RankEnd | None) -> bool:
        """Whether a rank's own failure was the first, and it was not only terminated."""
        by_itself = end is not None and end.rank == self.first and (end.by_itself or self.of_record)
        return by_itself and self.culprit.own_words and not self.caught
