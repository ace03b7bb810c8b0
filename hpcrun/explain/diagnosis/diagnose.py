"""Chooses the cause among its consequences. Pure.

The choice uses the scheduler's state, the ranks' records and their logs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain

from hpcrun.explain.diagnosis.culprit import (
    OF_THE_JOB,
    counted_ends,
    find_culprit,
    first_leaver,
    places_of_failures,
    rank_without_records,
    seen_by_launcher,
)
from hpcrun.explain.diagnosis.facts import Cause, Culprit, Diagnosis, Facts, LogSubject, RankEnd
from hpcrun.explain.diagnosis.last_words import (
    failed_in,
    hangs_since,
    is_beside,
    is_in_chain,
    is_said_caught,
    subject_of_logs,
    was_survived,
)
from hpcrun.explain.diagnosis.line_order import (
    LogLine,
    came_of_a_timeout,
    caught_before_waits,
    ended_by_a_timeout,
    first_waits,
    line_of,
    was_cleared_away,
)
from hpcrun.explain.diagnosis.log import Log
from hpcrun.explain.diagnosis.progress import went_beyond
from hpcrun.explain.diagnosis.rules import Rule
from hpcrun.explain.diagnosis.scan import Hit
from hpcrun.explain.diagnosis.traceback import is_exception_line

_WAITED_FOR = frozenset({"TIMEOUT", "CANCELLED"})
"""States in which a job ends if one rank has failed and the others wait for it."""

# The kinds of causes, the most likely first. A rank that was terminated, or has no record, failed
# because of others.
_CAUSE, _STATE, _CAUSE_OF_OTHERS, _SYMPTOM, _SYMPTOM_OF_OTHERS, _TERMINATED = range(6)
Key = tuple[int, ...]


def diagnose(facts: Facts, rules: Sequence[Rule]) -> Diagnosis:
    """Find the rank that ended the run, and the cause of its end.

    If a rank failed because of itself, the messages of other ranks and launchers are evidence. A
    cause in a rank has priority over the state of the job, and the state over a symptom.
    """
    job = _Job.of(facts)
    matches = [(item, job.is_late(item)) for item in job.matches()]
    candidates = [item for item, late in matches if not (late or job.is_evidence(item))]
    ended_before = _ended_before(facts)
    rule_places = {rule.name: place for place, rule in enumerate(rules)}
    # a line that says how a job was ended is no cause if the job had failed before
    ranked = [
        (job.key(item, rule_places), item)
        for item in candidates
        if not (ended_before and facts.state in item.rule.states)
    ]
    ranked += job.of_state(rules) if not ended_before else []
    ranked += job.of_exits(rules, blaming={item.rank for item, late in matches if late})
    ranked.sort(key=lambda item: item[0])
    cause = _behind([item for _, item in ranked])
    caught = job.caught_failure(cause)
    cause = caught or cause
    first = job.first(cause, caught=caught is not None)
    evidence = [item for item, late in matches if not late and job.is_evidence(item)]
    if caught is not None:
        evidence += [
            item for item in candidates if item.rule.level == "wait" and item.rank != caught.rank
        ]
    evidence += [item for item, late in matches if late]
    leaver_rank = None
    if first.left:
        leaver_rank = first.rank
    elif job.culprit:
        leaver = first_leaver(counted_ends(facts))
        leaver_rank = leaver.rank if leaver else None
    of_others = {}  # the last evidence of each rank
    for item in evidence:
        if item.rank is None or item.rank != first.rank:
            of_others[item.rank] = item
    return Diagnosis(
        cause,
        first,
        tuple(of_others.values()),
        caught=caught is not None,
        leaver=leaver_rank,
        of_record=job.culprit is not None,
    )


@dataclass(frozen=True, slots=True)
class _Job:
    """A job that ended, and what follows from its facts.

    Attributes:
        waits: the lines which show that ranks waited for others in vain.
        subjects: rank → the subject of its log; without records, of the ranks whose logs there are.
        culprit: the rank that ended it by the records; None if there are none, or no rank ended by
            itself.
        places: rank → its place among the ranks that failed.
    """

    facts: Facts
    waits: Sequence[LogLine]
    subjects: Mapping[int, LogSubject]
    culprit: Culprit | None
    places: Mapping[int, int]

    @classmethod
    def of(cls, facts: Facts) -> _Job:
        waits = first_waits(facts.logs)
        subjects = _subjects(facts, waits)
        return cls(
            facts,
            waits,
            subjects,
            find_culprit(counted_ends(facts), subjects),
            places_of_failures(facts, subjects),
        )

    @property
    def subject_of_culprit(self) -> LogSubject:
        rank = self.culprit.rank if self.culprit else None
        if rank is None:
            return LogSubject.NOTHING
        return self.subjects.get(rank, LogSubject.NOTHING)

    @property
    def has_failed_by_itself(self) -> bool:
        """Whether the records show a rank whose own failure ended the job."""
        return (
            self.culprit is not None
            and self.culprit.own_words
            and not self.subject_of_culprit.of_others
        )

    def matches(self) -> list[Cause]:
        """Return the matching lines that concern the end of the job."""
        return [
            Cause(hit.rule, log.rank, log, hit)
            for log in self.facts.logs
            for hit in _hits_of_the_end(log, self.facts)
            if hit.rule.level != "caught"
        ]

    def is_late(self, item: Cause) -> bool:
        """Whether a line is a consequence of another failure, by its rule or its time."""
        assert item.log is not None and item.hit is not None
        return (
            item.rule.level == "consequence"
            or came_of_a_timeout(item.log, item.hit, self.waits)
            or was_cleared_away(item.log, item.hit)
        )

    def is_evidence(self, item: Cause) -> bool:
        """Whether a line is a consequence of the first rank's failure, and not its cause.

        Messages of Slurm and of the kernel explain the end of any rank; messages of programs in the
        batch script's log (torchrun's agents, set-up commands) and of other ranks do not.
        """
        culprit, subjects = self.culprit, self.subjects
        # without records: a rank has failed by itself
        if culprit is None and item.rule.level == "wait":
            return LogSubject.OWN in subjects.values() and (
                item.rank is None or subjects.get(item.rank) is not LogSubject.OWN
            )
        if culprit is None or item.rank == culprit.rank or culprit.missing:
            return False
        if item.rank is not None or culprit.left:
            return culprit.left or not self.subject_of_culprit.of_others
        assert item.hit is not None
        return (
            item.rule.level != "cause"
            or is_exception_line(item.hit.line)
            or "[c10d]" in item.hit.line
        )

    def key(self, item: Cause, rule_places: Mapping[str, int]) -> Key:
        """Return the sort key of a cause; the most likely cause comes first.

        The key has the kind, no wait, the first rank, the launcher's rank, the last traceback, the
        line and the rule.
        """
        assert item.log is not None and item.hit is not None
        rank, places = item.rank, self.places
        by_itself = rank is None or rank in places
        if item.rule.level == "cause":
            tier = _CAUSE if by_itself else _CAUSE_OF_OTHERS
        else:
            tier = _SYMPTOM if by_itself else _SYMPTOM_OF_OTHERS
        local = item.hit.values.get("local")
        return (
            tier,
            int(item.rule.level == "wait"),
            len(places) if rank is None else places.get(rank, len(places) + 1),
            int(local is not None and local != str(seen_by_launcher(self.facts))),
            int(not is_in_chain(item.hit, item.log)),
            item.hit.number or 0,
            rule_places[item.rule.name],
        )

    def of_state(self, rules: Sequence[Rule]) -> list[tuple[Key, Cause]]:
        """Return the rules about the job's state, with their sort keys.

        There are none if a rank ended the job before a signal.
        """
        if self.has_failed_by_itself and self.facts.state not in OF_THE_JOB:
            return []
        return [((_STATE,), Cause(rule)) for rule in rules if self.facts.state in rule.states]

    def of_exits(self, rules: Sequence[Rule], blaming: set[int | None]) -> list[tuple[Key, Cause]]:
        """Return the rules about the exit statuses of ranks, with their sort keys."""
        ranked: list[tuple[Key, Cause]] = []
        for rule, end in (
            (rule, end) for rule in rules if rule.exits for end in self.facts.ends.values()
        ):
            if end.status not in rule.exits or end.rank in blaming:
                continue
            if end.by_itself and (self.culprit is None or self.culprit.rank == end.rank):
                place = self.places.get(end.rank, len(self.places))
                ranked.append(((_SYMPTOM, 1, place, 2), Cause(rule, end.rank)))
            elif not end.by_itself and not self.places and self.culprit is None:
                ranked.append(((_TERMINATED,), Cause(rule)))
        return ranked

    def caught_failure(self, cause: Cause | None) -> Cause | None:
        """Return the failure that one rank caught, and for which the others then waited.

        The result is None if no such failure is known.
        """
        if (
            cause is not None and cause.rule.level in ("cause", "symptom")
        ) or self.has_failed_by_itself:
            return None
        if not self.facts.ends and LogSubject.OWN in self.subjects.values():
            return None
        hits = [(log, hit) for log in self.facts.logs for hit in log.scan.hits]
        caught = [
            (log, hit)
            for log, hit in hits
            if hit.rule.level == "caught" or _was_caught(hit, log, self.facts)
        ]
        if self.culprit is not None and self.culprit.left:
            of_others: tuple[str, ...] = ("wait", "consequence")
        else:
            of_others = ("wait",)
        lines = [line_of(log, hit) for log, hit in caught]
        which = caught_before_waits(
            lines, [(log, hit) for log, hit in hits if hit.rule.level in of_others]
        )
        if which is None:
            return None
        log, hit = caught[which]
        return Cause(hit.rule, lines[which].rank, log, hit)

    def first(self, cause: Cause | None, *, caught: bool) -> Culprit:
        """Return the rank that ended the job."""
        culprit, of_cause = self.culprit, cause.rank if cause is not None else None
        if culprit is not None:
            of_own_log = of_cause is not None and (caught or culprit.own_words)
            return replace(culprit, rank=of_cause) if of_own_log else culprit
        if self.facts.ends:
            if self.facts.state in OF_THE_JOB:
                of_place = next(iter(self.places), None)
            else:
                of_place = None
            return Culprit(of_cause if of_cause is not None else of_place)
        return rank_without_records(self.facts, self.subjects, self.places, cause)


def _was_caught(hit: Hit, log: Log, facts: Facts) -> bool:
    end = facts.ends.get(log.rank) if log.rank is not None else None
    return (
        hit.rule.level == "cause" and was_survived(hit, log, end) and not is_said_caught(hit, log)
    )


def _ended_before(facts: Facts) -> bool:
    """Whether a job failed before it was cancelled or reached its time limit: others waited."""
    if facts.state not in _WAITED_FOR:
        return False
    return not facts.ends and any(failed_in(log) or hangs_since(log) for log in facts.logs)


def _hits_of_the_end(log: Log, facts: Facts) -> list[Hit]:
    """Return the matching lines of a log that concern its end."""
    end = facts.ends.get(log.rank) if log.rank is not None else None
    return [
        hit for hit in log.scan.hits if not was_survived(hit, log, end) and not is_beside(hit, log)
    ]


def _behind(ranked: Sequence[Cause]) -> Cause | None:
    """Return the best cause, or a cause in the same log that has priority over it."""
    if not ranked:
        return None
    best = ranked[0]
    here = (
        item
        for item in ranked
        if item.log is not None
        and (item.log is best.log or item.rank is None or item.rule.level == "wait")
    )
    return next((item for item in here if best.rule.name in item.rule.before), best)


def _subjects(facts: Facts, waits: Sequence[LogLine]) -> dict[int, LogSubject]:
    """Return rank → the subject of its log; without records, of the ranks whose logs there are."""
    logs: dict[int, list[Log]] = {rank: [] for rank in facts.ends}
    for log in facts.logs:
        if log.rank is not None and (log.rank in logs or not facts.ends):
            logs.setdefault(log.rank, []).append(log)
    ends = facts.ends
    return {rank: _subject(mine, ends.get(rank), waits) for rank, mine in logs.items()}


def _subject(logs: Sequence[Log], end: RankEnd | None, waits: Sequence[LogLine]) -> LogSubject:
    subject = subject_of_logs(logs, end)
    raised = [log for log in logs if log.traceback is not None]
    late = (
        subject is LogSubject.OWN
        and raised
        and all(ended_by_a_timeout(log, waits) for log in raised)
    )
    return LogSubject.GONE if late else subject


def first_to_fail(starts: Sequence[Facts]) -> Facts:
    """Return the start whose failure ended a job.

    This is the first start after which the program came no further. A start that came further than
    the start before has survived its failure.
    """
    first = len(starts) - 1
    lines = [
        list(chain.from_iterable(log.scan.tail for log in one.logs if log.rank is not None))
        for one in starts
    ]
    while first and not went_beyond(lines[first - 1], lines[first]):
        first -= 1
    start = f"the answer is of start {first + 1} of {len(starts)}: no later one came further"
    return replace(starts[first], start=start if first < len(starts) - 1 else "")
