"""Chooses the cause among its consequences, from the scheduler's state, the ranks' records and their logs. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import chain

from hpcrun.explain.diagnosis.facts import Cause, Diagnosis, Facts, RankEnd, Speech
from hpcrun.explain.diagnosis.launcher import TORN_DOWN, RootCause, failed_task, first_root_cause
from hpcrun.explain.diagnosis.log import Log, went_beyond
from hpcrun.explain.diagnosis.order import (
    Culprit,
    LogLine,
    before_signal,
    came_of_a_timeout,
    caught_before_waits,
    ended_by_a_timeout,
    failure_order,
    find_culprit,
    first_leaver,
    first_waits,
    line_of,
    was_cleared_away,
)
from hpcrun.explain.diagnosis.ranks import inferred_rank, missing_rank, named_rank, rank_of_hit
from hpcrun.explain.diagnosis.root_exception import without_values
from hpcrun.explain.diagnosis.rules import Rule
from hpcrun.explain.diagnosis.scan import Hit
from hpcrun.explain.diagnosis.speech import (
    failed_in,
    hangs_since,
    is_beside,
    is_in_chain,
    is_said_caught,
    last_burst,
    may_speak,
    speech_of,
    was_interrupted,
    was_survived,
)
from hpcrun.explain.diagnosis.traceback import is_exception_line

_OF_THE_JOB = frozenset({"FAILED", "OUT_OF_MEMORY", "COMPLETED", "UNKNOWN"})
"""States in which a job ends because of its own program; in the others it was signalled to end."""
_WAITED_FOR = frozenset({"TIMEOUT", "CANCELLED"})
"""States in which a job ends if one rank has failed and the others wait for it."""


# The kinds of causes, the most likely first. A rank that was terminated, or has no record, failed because of others.
_CAUSE, _STATE, _CAUSE_OF_OTHERS, _SYMPTOM, _SYMPTOM_OF_OTHERS, _TERMINATED = range(6)


def diagnose(facts: Facts, rules: Sequence[Rule]) -> Diagnosis:
    """Find the rank that ended the run, and the cause of its end.

    If a rank failed because of itself, the messages of other ranks and launchers are evidence. A cause in a rank has
    priority over the state of the job, and the state over a symptom.
    """
    waits = first_waits(facts.logs)
    speech = _speeches(facts, waits)
    culprit = find_culprit(_counted(facts), speech)
    order = _failure_order(facts, speech)
    found = _found(facts, waits)
    candidates = [item for item, late in found if not (late or _is_evidence(item, culprit, speech))]
    places = {rule.name: place for place, rule in enumerate(rules)}
    ranked = [(_key(item, facts, order, places), item) for item in candidates if not _is_only_the_end(item, facts)]
    blaming = {item.rank for item, late in found if late}
    ranked += _without_lines(facts, rules, order, blaming, culprit, speech)
    ranked.sort(key=lambda item: item[0])
    cause = _behind([item for _, item in ranked])
    caught = _caught(facts, culprit, speech, cause)
    cause = caught or cause
    first, missing, alike = _first(facts, speech, order, culprit, cause, caught is not None)
    evidence = [item for item, late in found if not late and _is_evidence(item, culprit, speech)]
    if caught is not None:
        evidence += [item for item in candidates if item.rule.level == "wait" and item.rank != caught.rank]
    evidence += [item for item, late in found if late]
    left = culprit is not None and culprit.left
    leaver = first_leaver(_counted(facts)) if culprit and not left else None
    return Diagnosis(
        cause,
        first,
        tuple({item.rank: item for item in evidence if item.rank is None or item.rank != first}.values()),
        left=left,
        missing=missing,
        caught=caught is not None,
        leaver=first if left else leaver.rank if leaver else None,
        of_record=culprit is not None,
        alike=alike,
    )


def fails_by_itself(facts: Facts) -> bool:
    """Whether a rank ended the run because of itself."""
    speech = _speeches(facts, first_waits(facts.logs))
    culprit = find_culprit(_counted(facts), speech)
    return culprit is not None and culprit.own_words and speech.get(culprit.rank, Speech.NOTHING) < Speech.NETWORK


def _found(facts: Facts, waits: Sequence[LogLine]) -> list[tuple[Cause, bool]]:
    """Return the matching lines that concern the end, and whether each is a consequence of another failure."""
    return [
        (Cause(hit.rule, log.rank, log, hit), _is_late(log, hit, waits))
        for log in facts.logs
        for hit in _telling(log, facts)
        if hit.rule.level != "caught"
    ]


def _is_late(log: Log, hit: Hit, waits: Sequence[LogLine]) -> bool:
    return hit.rule.level == "consequence" or came_of_a_timeout(log, hit, waits) or was_cleared_away(log, hit)


def _is_only_the_end(item: Cause, facts: Facts) -> bool:
    """Whether a line says how a job was ended that had failed before."""
    return facts.state in item.rule.states and _ended_before(facts)


def _first(
    facts: Facts, speech: Mapping[int, Speech], order: Mapping[int, int], culprit: Culprit | None,
    cause: Cause | None, caught: bool,
) -> tuple[int | None, bool, tuple[int, ...]]:  # fmt: skip
    """Return the rank that ended the run, whether the others waited for it in vain, and the ranks that failed alike."""
    if culprit is not None:
        own = caught or culprit.own_words
        first = cause.rank if cause and cause.rank is not None and own else culprit.rank
        return first, culprit.missing, ()
    if facts.ends:
        of_order = next(iter(order), None) if facts.state in _OF_THE_JOB else None
        return cause.rank if cause and cause.rank is not None else of_order, False, ()
    return _without_records(facts, speech, order, cause, caught)


def _without_records(
    facts: Facts, speech: Mapping[int, Speech], order: Mapping[int, int], cause: Cause | None, caught: bool
) -> tuple[int | None, bool, tuple[int, ...]]:
    """Return the same for a job whose ranks left no records: a rank only with proof.

    It is the only one whose lines have the failure, or a launcher saw it fail before the others. What a rank says that
    waited for others, or lost one, proves nothing against it.
    """
    if cause is not None and cause.rule.level == "wait":
        absent = missing_rank(facts.logs)
        alike = _alike(cause, speech, order, facts)
        return absent, absent is not None, alike if absent is None and len(alike) > 1 else ()
    raised = [log.traceback for log in facts.logs if log.rank is None and log.traceback is not None]
    alike = _alike(cause, speech, order, facts)
    several = len(alike) > 1 or any(one.raised > 1 for one in raised)
    seen = _seen_by_launcher(facts, several=several)
    if cause is not None and (caught or cause.rule.states):  # of the job or a node: not of the rank that speaks of it
        named = named_rank(facts.logs, cause.log, cause.hit)
        return next((rank for rank in (cause.rank, named, seen) if rank is not None), None), False, ()
    if len(alike) > 1:
        return (seen, False, ()) if seen in alike else (None, False, alike)
    own = cause.rank if cause and cause.rank is not None else next(iter(order), None) if cause is None else None
    if own is not None:
        return own, False, ()
    if cause is None and _is_of_others(facts, speech):
        return None, False, ()
    named = named_rank(facts.logs, cause.log if cause else None, cause.hit if cause else None)
    inferred = inferred_rank(facts.logs, cause.log if cause else None, cause.hit if cause else None)
    first = next((rank for rank in (named, seen, inferred, *order) if rank is not None), None)
    root = root_of(facts)
    return first, False, root.tied if first is None and root is not None and len(root.tied) > 1 else ()


def _is_of_others(facts: Facts, speech: Mapping[int, Speech]) -> bool:
    """Whether the logs speak only of ranks that were lost, or for which others waited."""
    shared = [log for log in facts.logs if log.rank is None and log.traceback is not None]
    of_shared = [speech_of([log], None).of_others for log in shared]
    return all(of_shared) and bool(of_shared or any(one.of_others for one in speech.values()))


def _alike(
    cause: Cause | None, speech: Mapping[int, Speech], order: Mapping[int, int], facts: Facts
) -> tuple[int, ...]:
    """Return the ranks whose lines have the failure, the first in the log first."""
    if cause is not None:
        alike = [(log, hit) for log in facts.logs for hit in log.scan.hits if hit.rule is cause.rule]
        named = (rank_of_hit(log, hit) if log.rank is None else log.rank for log, hit in alike)
        same = {rank for rank in named if rank is not None}
    else:
        texts = {
            log.rank: without_values(log.traceback.exception)
            for log in facts.logs
            if log.traceback is not None and log.rank is not None and speech[log.rank] is Speech.OWN
        }
        same = set(texts) if len(set(texts.values())) == 1 else set()
    return tuple(sorted(same, key=lambda rank: (order.get(rank, len(order)), rank)))


def _caught(facts: Facts, culprit: Culprit | None, speech: Mapping[int, Speech], cause: Cause | None) -> Cause | None:
    """Return the failure that one rank caught and survived, and for which the others then waited; None if unknown."""
    if cause is not None and cause.rule.level in ("cause", "symptom"):
        return None
    if culprit is not None and culprit.own_words and not speech.get(culprit.rank, Speech.NOTHING).of_others:
        return None
    if not facts.ends and Speech.OWN in speech.values():
        return None
    lines = [(log, hit) for log in facts.logs for hit in log.scan.hits]
    caught = [(log, hit) for log, hit in lines if hit.rule.level == "caught" or _was_caught(hit, log, facts)]
    of_others = ("wait", "consequence") if culprit is not None and culprit.left else ("wait",)
    waits = [(log, hit) for log, hit in lines if hit.rule.level in of_others]
    places = [line_of(log, hit) for log, hit in caught]
    which = caught_before_waits(places, waits)
    if which is None:
        return None
    log, hit = caught[which]
    return Cause(hit.rule, places[which].rank, log, hit)


def _was_caught(hit: Hit, log: Log, facts: Facts) -> bool:
    end = facts.ends.get(log.rank) if log.rank is not None else None
    return hit.rule.level == "cause" and was_survived(hit, log, end) and not is_said_caught(hit, log)


def _seen_by_launcher(facts: Facts, *, several: bool = False) -> int | None:
    """Return the rank that torchrun or srun saw fail first, of a job whose ranks left no records.

    Args:
        several: the log shows the same failure of several processes: then torchrun's choice among those that failed in
            one second proves nothing.
    """
    if (root := root_of(facts)) is not None:
        return None if several and len(root.tied) > 1 else root.rank
    shared = [log for log in facts.logs if log.rank is None]
    return next(
        (
            rank
            for log in shared
            if (rank := failed_task(log.scan.tail, several_nodes=log.several_nodes, several=several)) is not None
        ),
        None,
    )


def root_of(facts: Facts) -> RootCause | None:
    """Return what torchrun says of the first failure; None where it says nothing of it."""
    found = (first_root_cause(log.scan.tail) for log in facts.logs if log.rank is None)
    return next((root for root in found if root is not None and root.exitcode != TORN_DOWN), None)


def _counted(facts: Facts) -> list[RankEnd]:
    """Return the ends that count: if the job was signalled, those before the signal."""
    if facts.state in _OF_THE_JOB:
        return list(facts.ends.values())
    if facts.signalled_s is None:
        return []
    return before_signal(facts.ends.values(), facts.signalled_s)


def _is_evidence(item: Cause, culprit: Culprit | None, speech: Mapping[int, Speech]) -> bool:
    """Whether a line is a consequence of the first rank's failure, and not its cause.

    Messages of Slurm and of the kernel explain the end of any rank; messages of programs in the batch script's log
    (torchrun's agents, set-up commands) and of other ranks do not.
    """
    if culprit is None and item.rule.level == "wait":  # without records: a rank has failed by itself
        return Speech.OWN in speech.values() and (item.rank is None or speech.get(item.rank) is not Speech.OWN)
    if culprit is None or item.rank == culprit.rank or culprit.missing:
        return False
    if item.rank is not None or culprit.left:
        return culprit.left or not speech.get(culprit.rank, Speech.NOTHING).of_others
    assert item.hit is not None
    return item.rule.level != "cause" or is_exception_line(item.hit.line) or "[c10d]" in item.hit.line


def _without_lines(
    facts: Facts,
    rules: Sequence[Rule],
    order: Mapping[int, int],
    blaming: set[int | None],
    culprit: Culprit | None,
    speech: Mapping[int, Speech],
) -> list[tuple[tuple[int, ...], Cause]]:
    """Return the rules that match the job's state or a rank's exit status, with their sort keys."""
    ranked: list[tuple[tuple[int, ...], Cause]] = []
    own = culprit is not None and culprit.own_words and not speech.get(culprit.rank, Speech.NOTHING).of_others
    # else a rank ended before the job was signalled
    if not _ended_before(facts) and (not own or facts.state in _OF_THE_JOB):
        ranked = [((_STATE,), Cause(rule)) for rule in rules if facts.state in rule.states]
    for rule in rules:
        for end in facts.ends.values():
            if end.status not in rule.exits or end.rank in blaming:
                continue
            if end.by_itself and (culprit is None or culprit.rank == end.rank):
                ranked.append(((_SYMPTOM, 1, order.get(end.rank, len(order)), 2), Cause(rule, end.rank)))
            elif not end.by_itself and not order and culprit is None:
                ranked.append(((_TERMINATED,), Cause(rule)))
    return ranked


def _ended_before(facts: Facts) -> bool:
    """Whether a job failed before it was cancelled or reached its time limit: others waited, or it tried again."""
    if facts.state not in _WAITED_FOR:
        return False
    if any(was_interrupted(log) for log in facts.logs):
        return True
    return not facts.ends and any(failed_in(log) or hangs_since(log) for log in facts.logs)


def _telling(log: Log, facts: Facts) -> list[Hit]:
    """Return the matching lines of a log that concern its end."""
    end = facts.ends.get(log.rank) if log.rank is not None else None
    if end is not None and end.status == 0:
        return []
    return last_burst(
        [hit for hit in log.scan.hits if not was_survived(hit, log, end) and not is_beside(hit, log)], log
    )


def _key(item: Cause, facts: Facts, order: Mapping[int, int], places: Mapping[str, int]) -> tuple[int, ...]:
    """Return the sort key, the most likely cause first: kind, no wait, first rank, that of the launcher, last
    traceback, line, rule."""
    assert item.log is not None and item.hit is not None
    by_itself = item.rank is None or item.rank in order or _by_itself(item.rank, facts)
    if item.rule.level == "cause":
        tier = _CAUSE if by_itself else _CAUSE_OF_OTHERS
    else:
        tier = _SYMPTOM if by_itself else _SYMPTOM_OF_OTHERS
    rank_place = len(order) if item.rank is None else order.get(item.rank, len(order) + 1)
    line = item.hit.number or 0
    return (
        tier,
        int(item.rule.level == "wait"),
        rank_place,
        int((local := item.hit.values.get("local")) is not None and local != str(_seen_by_launcher(facts))),
        int(not is_in_chain(item.hit, item.log)),
        line,
        places[item.rule.name],
    )


def _behind(ranked: Sequence[Cause]) -> Cause | None:
    """Return the best cause, or a cause in the same log that has priority over it."""
    if not ranked:
        return None
    best = ranked[0]
    here = (item for item in ranked if item.log is not None and (item.log is best.log or item.rank is None))
    return next((item for item in here if best.rule.name in item.rule.before), best)


def _failure_order(facts: Facts, speech: Mapping[int, Speech]) -> dict[int, int]:
    """Return rank → its place among the failed ranks; ranks whose logs are about the failures of others come last.

    If no rank has a record, the rank whose log stopped growing first comes first; in a log that ranks share, the one
    whose exception stands first.
    """
    if facts.ends:
        return {rank: place for place, rank in enumerate(failure_order(facts.ends.values(), speech))}
    silent = sorted(
        (speech[log.rank].of_others, log.written_s, log.traceback.ends if log.part and log.traceback else 0, log.rank)
        for log in facts.logs
        if log.rank is not None and speech[log.rank] in (Speech.OWN, Speech.NETWORK)
    )
    return {rank: place for place, rank in enumerate(dict.fromkeys(rank for *_, rank in silent))}


def _speeches(facts: Facts, waits: Sequence[LogLine]) -> dict[int, Speech]:
    """Return rank → the subject of its log; without records, of the ranks whose logs there are."""
    logs: dict[int, list[Log]] = {rank: [] for rank in facts.ends}
    for log in facts.logs:
        if log.rank is not None and (log.rank in logs or not facts.ends):
            logs.setdefault(log.rank, []).append(log)
    ends = facts.ends
    return {
        rank: _speech(mine, ends.get(rank), waits)
        for rank, mine in logs.items()
        if rank not in ends or facts.state in _OF_THE_JOB or may_speak(ends[rank], mine, facts.signalled_s)
    }


def _speech(logs: Sequence[Log], end: RankEnd | None, waits: Sequence[LogLine]) -> Speech:
    said = speech_of(logs, end)
    raised = [log for log in logs if log.traceback is not None]
    if said is Speech.OWN and raised and all(ended_by_a_timeout(log, waits) for log in raised):
        return Speech.GONE
    return said


def _by_itself(rank: int, facts: Facts) -> bool:
    """Whether a rank failed by itself, as far as known: a rank without a record was killed with the others."""
    end = facts.ends.get(rank)
    return end.by_itself if end is not None else not facts.ends and facts.state in ("FAILED", "UNKNOWN")


def first_to_fail(starts: Sequence[Facts]) -> Facts:
    """Return the start whose failure ended a job: the first one after which the program came no further.

    A start that came further than the one before has survived its failure. If the ranks of a start speak only of
    others, a later start may tell more.

    Args:
        starts: in their order; at least one.
    """
    first = len(starts) - 1
    while first and not _went_beyond(starts[first - 1], starts[first]):
        first -= 1
    which = next((place for place in range(first, len(starts)) if fails_by_itself(starts[place])), len(starts) - 1)
    if which == len(starts) - 1:
        return starts[-1]
    return replace(
        starts[which], start=f"the answer is of start {which + 1} of {len(starts)}: no later one came further"
    )


def _went_beyond(before: Facts, after: Facts) -> bool:
    return went_beyond(*(list(chain.from_iterable(log.scan.tail for log in one.logs if log.rank is not None))
                         for one in (before, after)))  # fmt: skip
