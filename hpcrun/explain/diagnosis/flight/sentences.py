"""What the dumps of the flight recorder show, in sentences. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice

from hpcrun.explain.diagnosis.flight.groups import ProcessGroup
from hpcrun.explain.diagnosis.flight.meetings import Flight, Meeting, Stand, Trouble
from hpcrun.job.units import rank_text, ranks_text

_MOST_PLACES, _MOST_MEETINGS = 3, 4

FIX_OF_CIRCLE = "let all ranks use the process groups in the same order"
FIXES = {
    Trouble.DIFFERENT: "let all ranks call the same collectives in the same order: none in a branch or a loop that "
    "is not the same on all ranks",
    Trouble.SIZES: "give the collective tensors of the same size and type on all ranks: pad the last batch, or "
    "drop_last=True",
    Trouble.LATE: "shorten what that rank does before this line, or let the others wait longer: "
    "init_process_group(timeout=...)",
    Trouble.MISSING: "look at what the missing rank does after that line: a branch that only some ranks take, a slow "
    "loader or file system, an exception that the program caught",
    Trouble.NO_DUMP: "read the log of the rank without a dump: it hung outside of torch, or was killed",
}


def group_text(group: ProcessGroup) -> str:
    """Return what a group is called: ``the default group``, ``group mesh_tp (ranks 2-3)``."""
    if group.default:
        return "the default group"
    members = f" ({ranks_text(group.ranks)})" if group.ranks else ""
    return f"group {group.description or group.name}{members}"


def flight_sentence(flight: Flight, nodes: Mapping[int, str]) -> str:
    """Return what the first meeting shows.

    Args:
        nodes: the ranks' nodes, as far as they are known.
    """
    if flight.in_circle:
        waits = (_wait(one, "in") for one in flight.meetings[:_MOST_MEETINGS])
        return f"the ranks wait for one another: {', '.join(waits)}"
    first, *others = flight.meetings
    named = first.came_ranks.union(first.culprits)
    waiting = sorted({rank for one in others for rank in one.came_ranks if one.finding is not Trouble.STUCK} - named)
    more = f"; {ranks_text(waiting)} {'wait' if len(waiting) > 1 else 'waits'} in other groups" if waiting else ""
    return meeting_sentence(first, nodes) + more


def meeting_sentence(one: Meeting, nodes: Mapping[int, str]) -> str:
    """Return what is wrong with one collective."""
    came = ranks_text(sorted(one.came_ranks))
    if one.finding is Trouble.DIFFERENT:
        whole = f"the ranks called different collectives as #{one.number} of {group_text(one.group)}"
        return f"{whole}: {_listed(one.came, 'name')}"
    if one.finding is Trouble.SIZES:
        return f"the ranks called {_collective(one)} with different tensors: {_listed(one.came, 'tensors')}"
    if one.finding is Trouble.LATE:
        who = _who(one.culprits, nodes)
        places = [stand for stand in one.came if set(stand.ranks) & set(one.culprits)]
        return (f"{who} came to {_collective(one)}{_at(places)} {one.late_s:.0f} s after the first rank, "
                f"which waits for {one.timeout_s:.0f} s")  # fmt: skip
    if one.finding is Trouble.STUCK:
        return f"{came} are all in {_collective(one)}{_at(one.came)}, with tensors of the same size"
    return "; ".join((_wait(one, "wait in" if len(one.came_ranks) > 1 else "waits in"), *_not_there(one, nodes)))


def stand_lines(flight: Flight) -> Iterator[str]:
    """Yield where each group of ranks stands: a line of code in full."""
    for one in flight.meetings[:_MOST_MEETINGS]:
        for stand in (*one.came[:_MOST_PLACES], *one.absent[:_MOST_PLACES]):
            if stand.call is not None and (place := stand.call.place) is not None:
                called = stand.call.kind.name + (f" #{stand.call.number}" if stand.call.number else "")
                if stand.group and not stand.group.default:
                    called += f" of {group_text(stand.group)}"
                yield f"{ranks_text(stand.ranks)}: {called} at {place.file}:{place.line} in {place.function}"


def _wait(one: Meeting, verb: str) -> str:
    return f"{ranks_text(sorted(one.came_ranks))} {verb} {_collective(one)}{_at(one.came)}"


def _not_there(one: Meeting, nodes: Mapping[int, str]) -> Iterator[str]:
    for stand in islice(one.absent, _MOST_PLACES):
        several = len(stand.ranks) > 1
        who = _who(stand.ranks, nodes)
        if stand.call is None or stand.group is None:
            yield f"{who} did not come, and called no collective"
            continue
        group = "" if stand.group == one.group else f" of {group_text(stand.group)}"
        last = f"{stand.call.kind.name} #{stand.call.number}{group}{_at([stand])}"
        yield f"{who} did not come: {'their' if several else 'its'} last was {last}"
    if rest := [rank for stand in one.absent[_MOST_PLACES:] for rank in stand.ranks]:
        yield f"{ranks_text(rest)} did not come either"
    if one.unknown:
        yield f"{_who(one.unknown, nodes)} left no dump"


def _collective(one: Meeting) -> str:
    if one.number is None:
        return one.name
    return f"{one.name or 'collective'} #{one.number} of {group_text(one.group)}"


def _who(ranks: Sequence[int], nodes: Mapping[int, str]) -> str:
    return rank_text(ranks[0], nodes.get(ranks[0])) if len(ranks) == 1 else ranks_text(ranks)


def _at(stands: Sequence[Stand]) -> str:
    """Return the lines of code in brackets: of all ranks, or of each group of them."""
    places = [(stand, stand.call.place.short) for stand in stands if stand.call and stand.call.place]
    if not places:
        return ""
    if len({place for _, place in places}) == 1:
        return f" ({places[0][1]})"
    parts = [f"{ranks_text(stand.ranks)} at {place}" for stand, place in places[:_MOST_PLACES]]
    return f" ({', '.join(parts)}{', ...' if places[_MOST_PLACES:] else ''})"


def _listed(stands: Sequence[Stand], what: str) -> str:
    """Return what each group of ranks called: ``ranks 0-2 all_reduce (train.py:88), rank 3 broadcast (train.py:9)``."""
    parts = []
    for stand in stands[:_MOST_PLACES]:
        assert stand.call is not None
        kind = stand.call.kind
        parts.append(f"{ranks_text(stand.ranks)} {kind.name if what == 'name' else kind.tensors}{_at([stand])}")
    return ", ".join(parts) + (", ..." if stands[_MOST_PLACES:] else "")
