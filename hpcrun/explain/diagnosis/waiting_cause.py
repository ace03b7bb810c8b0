"""The cause if ranks waited for each other and the logs show little.

Sources: the dumps of torch's flight recorder; without dumps, the tracebacks of the ranks that timed
out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice

from hpcrun.explain.diagnosis.facts import Cause, Culprit, Diagnosis, Facts, LogSubject
from hpcrun.explain.diagnosis.flight_calls import ProcessGroup
from hpcrun.explain.diagnosis.flight_meetings import Flight, Meeting, Stand, Trouble
from hpcrun.explain.diagnosis.last_words import subject_of_logs
from hpcrun.explain.diagnosis.rules import Rule
from hpcrun.explain.diagnosis.stack_groups import Group, RankStack, grouped
from hpcrun.explain.diagnosis.watchdog import watchdog_flight
from hpcrun.job.job_states import EXIT_ABORTED
from hpcrun.job.text.units import rank_text, ranks_text

_MOST_PLACES = 3
_MOST_MEETINGS = 4
_FIX_OF_CIRCLE = "let all ranks use the process groups in the same order"
_RULES = {
    Trouble.DIFFERENT: (
        "collective-mismatch",
        "let all ranks call the same collectives in the same order: none in a branch or a loop "
        "that is not the same on "
        "all ranks",
    ),
    Trouble.SIZES: (
        "collective-mismatch",
        "give the collective tensors of the same size and type on all ranks: pad the last batch, "
        "or drop_last=True",
    ),
    Trouble.LATE: (
        "collective-late",
        "shorten what that rank does before this line, or let the others wait longer: "
        "init_process_group(timeout=...)",
    ),
    Trouble.MISSING: (
        "collective-missing",
        "look at what the missing rank does after that line: a branch that only some ranks take, a "
        "slow loader or file "
        "system, an exception that the program caught",
    ),
    Trouble.NO_DUMP: (
        "collective-missing",
        "read the log of the rank without a dump: it hung outside of torch, or was killed",
    ),
}
"""What is wrong with a collective → the name of the rule, and what to do."""


def with_flight(before: Diagnosis, facts: Facts) -> Diagnosis:
    """Return a diagnosis with what the dumps show as its cause.

    The diagnosis does not change if a rank failed because of itself.
    """
    flight = facts.flight
    if flight is None or not flight.decided or _failed_by_itself(before, facts):
        return before
    nodes = {rank: end.node for rank, end in facts.ends.items()}
    name, fix = _RULES[flight.meetings[0].finding]
    name, fix = ("collective-order", _FIX_OF_CIRCLE) if flight.in_circle else (name, fix)
    rule = _rule(name, flight_sentence(flight, nodes), fix, flight.source)
    lines = (before.cause,) if before.cause and before.cause.hit else ()
    consequences = (*lines, *before.consequences)
    cause = Cause(rule, flight.culprit)
    return replace(
        before,
        cause=cause,
        culprit=Culprit(flight.culprit),
        consequences=consequences,
        by_places=True,
    )


def with_watchdog(facts: Facts, before: Diagnosis) -> Facts:
    """Return facts with what torch's watchdog printed of a wait that no dump shows."""
    is_wait = before.cause is not None and before.cause.rule.name == "collective-timeout"
    if not is_wait or (facts.flight is not None and facts.flight.meetings):
        return facts
    return replace(facts, flight=watchdog_flight(facts.logs) or facts.flight)


def with_tracebacks(before: Diagnosis, facts: Facts) -> Diagnosis:
    """Return a diagnosis with the different collectives of the timed-out ranks as its cause.

    The diagnosis does not change if it is already better. The first rank that times out is no more
    to blame than the others: all of them wait, each in its own call.
    """
    cause = before.cause
    if facts.flight is not None and facts.flight.meetings:
        return before
    if (
        before.by_places
        or before.culprit.missing
        or before.caught
        or cause is None
        or cause.rule.level != "wait"
    ):
        return before
    stacks = [
        RankStack(
            log.rank,
            facts.ends[log.rank].node if log.rank in facts.ends else "",
            log.traceback.frames,
        )
        for log in facts.logs
        if log.rank is not None and log.traceback is not None
    ]
    groups = grouped(stacks)
    calls = {group.position.call for group in groups}
    if len(calls) < 2 or not all(group.position.waits for group in groups):
        return before
    few = [group for group in groups if len(group.ranks) == 1]
    if len(few) == 1 and len(groups) == 2:
        odd = few[0].ranks[0].rank
    else:
        odd = None
    text = f"the ranks timed out in different collectives: {'; '.join(map(_calls_text, groups))}"
    rule = _rule(
        _RULES[Trouble.DIFFERENT][0], text, _RULES[Trouble.DIFFERENT][1], cause.rule.source
    )
    return replace(before, cause=replace(cause, rule=rule), culprit=Culprit(odd), by_places=True)


def _rule(name: str, cause: str, fix: str, source: str) -> Rule:
    """Return a rule whose cause is a sentence as it stands.

    Braces in the sentence are replaced, since they are the places of a rule's values.
    """
    return Rule(name, cause=cause.translate(str.maketrans("{}", "()")), fix=fix, source=source)


def _calls_text(group: Group) -> str:
    """Return ``ranks 0, 2 in all_reduce (train.py:95)``."""
    position = group.position
    at = f" ({position.user.short})" if position.user else ""
    return f"{ranks_text([each.rank for each in group.ranks])} in {position.call}{at}"


def _failed_by_itself(before: Diagnosis, facts: Facts) -> bool:
    """Whether the run ended because of more than ranks that waited for each other."""
    cause = before.cause
    if before.culprit.left or not (
        cause is None or cause.rule.level == "wait" or _was_aborted(cause, facts)
    ):
        return True
    if before.first is not None:
        end = facts.ends.get(before.first)
    else:
        end = None
    if end is not None and not end.by_itself:
        return False
    if end is None:
        known = {log.rank for log in facts.logs if log.rank is not None}
        return any(
            subject_of_logs([log for log in facts.logs if log.rank == rank], None) is LogSubject.OWN
            for rank in known
        )
    subject = subject_of_logs([log for log in facts.logs if log.rank == end.rank], end)
    # a rank that crashed leaves no message either; but the watchdog aborts those that wait, a
    # launcher the missing one
    silent = subject is LogSubject.NOTHING and (end.signalled or end.status == EXIT_ABORTED)
    return not (silent or subject.of_others)


def _was_aborted(cause: Cause, facts: Facts) -> bool:
    """Return whether torch's watchdog may have aborted a rank after a timeout.

    Only the exit status of the rank is known then.
    """
    if cause.rank is not None:
        end = facts.ends.get(cause.rank)
    else:
        end = None
    return cause.hit is None and end is not None and end.status == EXIT_ABORTED


def group_text(group: ProcessGroup) -> str:
    """Return what a group is called: ``the default group``, ``group mesh_tp (ranks 2-3)``."""
    if group.default:
        return "the default group"
    members = f" ({ranks_text(group.ranks)})" if group.ranks else ""
    return f"group {group.description or group.name}{members}"


def flight_sentence(flight: Flight, nodes: Mapping[int, str]) -> str:
    """Return what the first meeting shows."""
    if flight.in_circle:
        waits = (_wait(one, "in") for one in flight.meetings[:_MOST_MEETINGS])
        return f"the ranks wait for one another: {', '.join(waits)}"
    first, *others = flight.meetings
    named = first.came_ranks.union(first.culprits)
    waiting = sorted(
        {rank for one in others for rank in one.came_ranks if one.finding is not Trouble.STUCK}
        - named
    )
    if waiting:
        more = f"; {ranks_text(waiting)} {'wait' if len(waiting) > 1 else 'waits'} in other groups"
    else:
        more = ""
    return meeting_sentence(first, nodes) + more


def meeting_sentence(one: Meeting, nodes: Mapping[int, str]) -> str:
    """Return what is wrong with one collective."""
    came = ranks_text(sorted(one.came_ranks))
    if one.finding is Trouble.DIFFERENT:
        whole = (
            f"the ranks called different collectives as #{one.number} of {group_text(one.group)}"
        )
        return f"{whole}: {_listed(one.came, 'name')}"
    if one.finding is Trouble.SIZES:
        return (
            f"the ranks called {_collective(one)} with different tensors: "
            f"{_listed(one.came, 'tensors')}"
        )
    if one.finding is Trouble.LATE:
        who = _who(one.culprits, nodes)
        places = [stand for stand in one.came if set(stand.ranks) & set(one.culprits)]
        return (
            f"{who} came to {_collective(one)}{_at(places)} {one.late_s:.0f} s after the first "
            "rank, "
            f"which waits for {one.timeout_s:.0f} s"
        )
    if one.finding is Trouble.STUCK:
        return f"{came} are all in {_collective(one)}{_at(one.came)}, with tensors of the same size"
    return "; ".join(
        (_wait(one, "wait in" if len(one.came_ranks) > 1 else "waits in"), *_not_there(one, nodes))
    )


def stand_lines(flight: Flight) -> Iterator[str]:
    """Yield where each group of ranks stands: a line of code in full."""
    for one in flight.meetings[:_MOST_MEETINGS]:
        for stand in (*one.came[:_MOST_PLACES], *one.absent[:_MOST_PLACES]):
            if stand.call is not None and (place := stand.call.place) is not None:
                called = stand.call.kind.name + (
                    f" #{stand.call.number}" if stand.call.number else ""
                )
                if stand.group and not stand.group.default:
                    called += f" of {group_text(stand.group)}"
                yield (
                    f"{ranks_text(stand.ranks)}: {called} at {place.file}:{place.line} in "
                    f"{place.function}"
                )


def _wait(one: Meeting, verb: str) -> str:
    return f"{ranks_text(sorted(one.came_ranks))} {verb} {_collective(one)}{_at(one.came)}"


def _not_there(one: Meeting, nodes: Mapping[int, str]) -> Iterator[str]:
    for stand in islice(one.absent, _MOST_PLACES):
        several = len(stand.ranks) > 1
        who = _who(stand.ranks, nodes)
        if stand.call is None or stand.group is None:
            yield f"{who} did not come, and called no collective"
            continue
        if stand.group == one.group:
            group = ""
        else:
            group = f" of {group_text(stand.group)}"
        last = f"{stand.call.kind.name} #{stand.call.number}{group}{_at([stand])}"
        yield f"{who} did not come: {'their' if several else 'its'} last was {last}"
    rest = [rank for stand in one.absent[_MOST_PLACES:] for rank in stand.ranks]
    if rest:
        yield f"{ranks_text(rest)} did not come either"
    if one.unknown:
        yield f"{_who(one.unknown, nodes)} left no dump"


def _collective(one: Meeting) -> str:
    if one.number is None:
        return one.name
    return f"{one.name or 'collective'} #{one.number} of {group_text(one.group)}"


def _who(ranks: Sequence[int], nodes: Mapping[int, str]) -> str:
    if len(ranks) == 1:
        return rank_text(ranks[0], nodes.get(ranks[0]))
    return ranks_text(ranks)


def _at(stands: Sequence[Stand]) -> str:
    """Return the lines of code in brackets: of all ranks, or of each group of them."""
    places = [
        (stand, stand.call.place.short) for stand in stands if stand.call and stand.call.place
    ]
    if not places:
        return ""
    if len({place for _, place in places}) == 1:
        return f" ({places[0][1]})"
    parts = [f"{ranks_text(stand.ranks)} at {place}" for stand, place in places[:_MOST_PLACES]]
    return f" ({', '.join(parts)}{', ...' if places[_MOST_PLACES:] else ''})"


def _listed(stands: Sequence[Stand], what: str) -> str:
    """Return what each group of ranks called.

    An example is ``ranks 0-2 all_reduce (train.py:88), rank 3 broadcast (train.py:9)``.
    """
    parts = []
    for stand in stands[:_MOST_PLACES]:
        assert stand.call is not None
        kind = stand.call.kind
        parts.append(
            f"{ranks_text(stand.ranks)} "
            f"{kind.name if what == 'name' else kind.tensors}{_at([stand])}"
        )
    return ", ".join(parts) + (", ..." if stands[_MOST_PLACES:] else "")
