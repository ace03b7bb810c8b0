"""Which rank ended a run: by the records of the ranks, else by launchers and the lines of the logs.

Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from hpcrun.explain.diagnosis.facts import (
    CLEARED_AWAY_AFTER_S,
    SAME_MOMENT_S,
    Cause,
    Culprit,
    Facts,
    LogSubject,
    RankEnd,
)
from hpcrun.explain.diagnosis.last_words import subject_of_logs
from hpcrun.explain.diagnosis.launcher_lines import (
    TORN_DOWN,
    Failure,
    failed_task,
    failed_with,
    first_failure,
    starts_ranks,
)
from hpcrun.explain.diagnosis.line_rank import inferred_rank, missing_rank, named_rank, rank_of_hit
from hpcrun.explain.diagnosis.root_exception import without_values
from hpcrun.job.job_states import EXIT_ABORTED, EXIT_KILLED, EXIT_TERMINATED

_WAITERS = 2
"""Ranks that must have waited for a silent rank, before the silent rank counts as the cause."""
OF_THE_JOB = frozenset({"FAILED", "OUT_OF_MEMORY", "COMPLETED", "UNKNOWN"})
"""States in which a job ends because of its own program; in the others it was signalled to end."""


def find_culprit(ends: Sequence[RankEnd], subjects: Mapping[int, LogSubject]) -> Culprit | None:
    """Return the rank that ended the run, None if no rank ended by itself.

    It is the first rank that failed because of itself, else one that ended with exit status 0
    before the others failed, else the one for which all others waited, else the first that failed
    because of others.
    """
    failed = _failures(ends, subjects)
    of_others = [end for end in failed if _subject(end, subjects).of_others]
    by_itself = [end for end in failed if not _subject(end, subjects).of_others]
    # a rank may fail and end slowly: then it is terminated like the other ranks
    by_itself = [end for end in by_itself if not end.signalled] or by_itself
    aborter = _aborter(ends, by_itself, subjects)
    if aborter is not None:
        return Culprit(aborter)
    if by_itself:
        last_s = min(end.ended_s for end in by_itself) + SAME_MOMENT_S
        moment = [end for end in by_itself if end.ended_s <= last_s]
        return Culprit(
            min(
                moment, key=lambda end: (_place_in_moment(end, subjects), end.ended_s, end.rank)
            ).rank
        )
    leaver = first_leaver(ends, within_s=SAME_MOMENT_S if of_others else 0.0)
    if leaver is not None:
        return Culprit(leaver.rank, left=True)
    missing = _missing(ends, subjects)
    if missing is not None:
        return Culprit(missing, missing=True)
    if of_others:
        return Culprit(
            min(of_others, key=lambda end: (_symptom(end, subjects), end.ended_s, end.rank)).rank
        )
    return None


def _aborter(
    ends: Sequence[RankEnd], failed: list[RankEnd], subjects: Mapping[int, LogSubject]
) -> int | None:
    """Return the one rank with an error and no record, where MPI_Abort killed the others.

    The others wrote no error. MPI_Abort lets srun kill the step at once, and any of the ranks may
    still write a record.
    """
    silent = all(
        end.status == EXIT_KILLED and _subject(end, subjects) is LogSubject.NOTHING
        for end in failed
    )
    recorded = {end.rank for end in ends}
    ranks = [
        rank
        for rank, subject in subjects.items()
        if subject is LogSubject.OWN and rank not in recorded
    ]
    return ranks[0] if failed and silent and len(ranks) == 1 else None


def _missing(ends: Sequence[RankEnd], subjects: Mapping[int, LogSubject]) -> int | None:
    """Return the one rank that did not wait, where at least two others waited until their timeout.

    Of two ranks neither is known to have waited for the other: both may wait where the network
    fails.
    """
    rest = [end for end in ends if _subject(end, subjects) is not LogSubject.WAITED]
    if len(rest) != 1 or len(ends) < 1 + _WAITERS:
        return None
    (one,) = rest
    silent = _subject(one, subjects) is LogSubject.NOTHING and one.status in (
        EXIT_TERMINATED,
        EXIT_KILLED,
    )
    if silent or (one.by_itself and _subject(one, subjects) is LogSubject.GONE):
        return one.rank
    return None


def before_signal(ends: Iterable[RankEnd], signalled_s: float) -> list[RankEnd]:
    """Return the ends before a signal to the whole job, and the ends by the signal.

    The ends by the signal are those of the ranks that the signal terminated.
    """
    return [end for end in ends if end.status == EXIT_TERMINATED or end.ended_s < signalled_s]


def first_leaver(ends: Iterable[RankEnd], within_s: float = 0.0) -> RankEnd | None:
    """Return the first rank with exit status 0, if the rank ended before all ranks that failed.

    The result is None if there is no such rank.

    Args:
        ends: the ends of the ranks.
        within_s: the rank may have ended this many seconds later: the others notice closed
            connections before it has ended.
    """
    known = sorted(ends, key=lambda end: (end.ended_s, end.rank))
    badly = [end for end in known if end.status != 0]
    well = [end for end in known if end.status == 0]
    if well and badly and well[0].ended_s <= badly[0].ended_s + within_s:
        return well[0]
    return None


def failure_order(ends: Iterable[RankEnd], subjects: Mapping[int, LogSubject]) -> list[int]:
    """Return the ranks that failed by themselves.

    The ranks with their own error come first; each kind of rank is sorted by time.
    """
    failed = _failures(ends, subjects)
    failed.sort(key=lambda end: (_symptom(end, subjects), end.signalled, end.ended_s, end.rank))
    return [end.rank for end in failed]


def _failures(ends: Iterable[RankEnd], subjects: Mapping[int, LogSubject]) -> list[RankEnd]:
    """Return the ranks that failed and were not terminated because another rank had failed.

    A rank that raised an exception may end so slowly that it is terminated together with the
    others. But its exception is in its log, and SIGTERM alone leaves no exception.
    """
    known = list(ends)
    first_s = min((end.ended_s for end in known if end.by_itself), default=0.0)
    return [
        end
        for end in known
        if (
            end.by_itself
            and (end.status != EXIT_KILLED or end.ended_s <= first_s + CLEARED_AWAY_AFTER_S)
        )
        or (end.status == EXIT_TERMINATED and _subject(end, subjects) is LogSubject.OWN)
    ]


def _subject(end: RankEnd, subjects: Mapping[int, LogSubject]) -> LogSubject:
    return subjects.get(end.rank, LogSubject.NOTHING)


def _symptom(end: RankEnd, subjects: Mapping[int, LogSubject]) -> int:
    """Return 0 for a rank that failed because of itself, else a distance.

    The distance says how far the rank's message is from the culprit.
    """
    subject = _subject(end, subjects)
    return int(subject) if subject.of_others else 0


def _place_in_moment(end: RankEnd, subjects: Mapping[int, LogSubject]) -> int:
    """Return the place of a rank among the ranks that ended in the same moment.

    The most likely culprit has 0. Libraries and launchers end a rank without its peer by a silent
    abort or kill; other ends have their cause in the rank.
    """
    subject = _subject(end, subjects)
    if end.status == EXIT_TERMINATED:
        return 1
    if subject is LogSubject.NOTHING:
        return 2 if end.status in (EXIT_KILLED, EXIT_ABORTED) else 0
    return 3 if subject is LogSubject.NETWORK else 0


def counted_ends(facts: Facts) -> list[RankEnd]:
    """Return the ends that count: if the job was signalled, those before the signal."""
    if facts.state in OF_THE_JOB:
        return list(facts.ends.values())
    if facts.signalled_s is None:
        return []
    return before_signal(facts.ends.values(), facts.signalled_s)


def places_of_failures(facts: Facts, subjects: Mapping[int, LogSubject]) -> dict[int, int]:
    """Return rank → its place among the failed ranks.

    Ranks whose logs are about the failures of others come last. If no rank has a record, the rank
    whose log stopped growing first comes first; in a log that ranks share, the rank whose exception
    stands first.
    """
    if facts.ends:
        ranks = failure_order(facts.ends.values(), subjects)
    else:
        logs = [
            log
            for log in facts.logs
            if log.rank is not None and subjects[log.rank] in (LogSubject.OWN, LogSubject.NETWORK)
        ]
        logs.sort(
            key=lambda log: (
                log.written_s,
                log.traceback.ends if log.part and log.traceback else 0,
                log.rank,
            )
        )
        ranks = list(dict.fromkeys(log.rank for log in logs if log.rank is not None))
    return {rank: place for place, rank in enumerate(ranks)}


def rank_without_records(
    facts: Facts, subjects: Mapping[int, LogSubject], places: Mapping[int, int], cause: Cause | None
) -> Culprit:
    """Return the rank that ended a job whose ranks left no records: only with proof.

    The proof is that only this rank's lines have the failure, or that a launcher saw the rank fail
    before the others. A rank that only writes that it waited for others, or lost one, is not to
    blame.

    Args:
        facts: the logs of the job, and what else is known of its end.
        subjects: rank → the subject of the end of its logs.
        places: rank → its place among those that failed.
        cause: the rule that explains the end; None if there is none.
    """
    if cause is not None:
        hit_of = (cause.log, cause.hit)
    else:
        hit_of = (None, None)
    alike = _alike(facts, subjects, places, cause)
    if cause is not None and cause.rule.level == "wait":
        return _awaited(facts, alike)
    several = len(alike) > 1 or any(
        log.rank is None and log.traceback and log.traceback.raised > 1 for log in facts.logs
    )
    seen = seen_by_launcher(facts, several=several)
    if len(alike) > 1:
        if seen in alike:
            return Culprit(seen)
        return Culprit(None, alike=alike)
    if cause is not None:
        alone = cause.rank
    else:
        alone = next(iter(places), None)
    if alone is None and cause is None and _is_of_others(facts, subjects):
        # those that lost a rank did not fail first
        return Culprit(seen if subjects and seen not in subjects else None)
    if alone is not None:
        return Culprit(alone)
    rank = _first_known(named_rank(facts.logs, *hit_of), seen, inferred_rank(facts.logs), *places)
    tied = _seen_together(facts) if rank is None else ()
    return Culprit(rank, alike=tied if len(tied) > 1 else ())


def _awaited(facts: Facts, alike: tuple[int, ...]) -> Culprit:
    """Return the rank for which others waited; if none is named, the ranks that waited."""
    absent = missing_rank(facts.logs)
    if absent is not None:
        return Culprit(absent, missing=True)
    return Culprit(None, alike=alike if len(alike) > 1 else ())


def _first_known(*ranks: int | None) -> int | None:
    return next((rank for rank in ranks if rank is not None), None)


def _is_of_others(facts: Facts, subjects: Mapping[int, LogSubject]) -> bool:
    """Whether the logs speak only of ranks that were lost, or for which others waited."""
    shared = [
        subject_of_logs([log], None)
        for log in facts.logs
        if log.rank is None and log.traceback is not None
    ]
    return all(one.of_others for one in shared) and any(
        one.of_others for one in (*shared, *subjects.values())
    )


def _alike(
    facts: Facts, subjects: Mapping[int, LogSubject], places: Mapping[int, int], cause: Cause | None
) -> tuple[int, ...]:
    """Return the ranks whose lines have the failure, the first in the log first."""
    if cause is not None:
        hits = ((log, hit) for log in facts.logs for hit in log.scan.hits if hit.rule is cause.rule)
        ranks = {rank_of_hit(log, hit) if log.rank is None else log.rank for log, hit in hits}
    else:
        texts = {
            log.rank: without_values(log.traceback.exception)
            for log in facts.logs
            if log.traceback is not None
            and log.rank is not None
            and subjects[log.rank] is LogSubject.OWN
        }
        ranks = set(texts) if len(set(texts.values())) == 1 else set()
    known = (rank for rank in ranks if rank is not None)
    return tuple(sorted(known, key=lambda rank: (places.get(rank, len(places)), rank)))


def seen_by_launcher(facts: Facts, *, several: bool = False) -> int | None:
    """Return the rank that torchrun or srun saw fail first, if the ranks left no records.

    Args:
        facts: the logs of the job, and what else is known of its end.
        several: the log shows the same failure of several processes: then torchrun's choice among
            those that failed in one second proves nothing.
    """
    root = root_of(facts)
    if root is not None:
        if several and len(_seen_together(facts)) > 1:
            return None
        return root.rank
    for log in facts.logs_of(None):
        rank = failed_task(
            log.end,
            tasks_are_ranks=not starts_ranks(log.scan.tail),
            several_nodes=log.several_nodes,
            several=several,
        )
        if rank is not None:
            return rank
    return None


def root_of(facts: Facts) -> Failure | None:
    """Return what torchrun says of the first failure; None where it says nothing of it."""
    return next((root for _, root in _roots(facts)), None)


def _seen_together(facts: Facts) -> tuple[int, ...]:
    """Return the ranks that torchrun saw fail in the second of the first failure."""
    return next((tuple(failed_with(root, lines)) for lines, root in _roots(facts)), ())


def _roots(facts: Facts) -> Iterator[tuple[Sequence[str], Failure]]:
    for log in facts.logs_of(None):
        root = first_failure(log.end)
        if root is not None and root.exitcode != TORN_DOWN:
            yield log.end, root
