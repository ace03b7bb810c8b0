"""Which ranks came to which collective, and which rank did not: from the dumps of all ranks. Pure.

A collective waits until all ranks of its group have called it. So in each group the first call is
looked for that some ranks made and others did not. Where ranks wait for one another in several
groups (data and tensor parallel), the ranks count that wait nowhere themselves: the others wait
because of them.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from hpcrun.explain.diagnosis.flight_calls import (
    Calls,
    CollectiveCall,
    Dump,
    Kind,
    ProcessGroup,
    transfers_of,
)

_MOST_COMPARED = 2_000_000
"""Members of all groups that have dumps: 20,000 ranks in 100 groups each.

Hostile dumps may have more.
"""
Sides = tuple[list[int], tuple[int, ...]]
"""The members of a group with a dump, and those without one."""


class Trouble(Enum):
    """What is wrong with a collective, the most certain first."""

    DIFFERENT = "different collectives"
    SIZES = "different sizes"
    LATE = "a rank that came after the timeout"
    MISSING = "a rank that did not come"
    NO_DUMP = "a rank that left no dump"
    STUCK = "all ranks came"


_CERTAIN = (Trouble.DIFFERENT, Trouble.SIZES, Trouble.LATE)


@dataclass(frozen=True, slots=True)
class Stand:
    """Ranks at the same call, in the same line of code.

    Attributes:
        call: None if they have called no collective, or the recorder has not kept it.
        group: of the call.
    """

    ranks: tuple[int, ...]
    call: CollectiveCall | None
    group: ProcessGroup | None


@dataclass(frozen=True, slots=True)
class Meeting:
    """A collective that does not end.

    Attributes:
        name: of the collective, such as ``all_reduce``, or ``recv`` of a transfer between two
            ranks.
        number: its number in its group; None for a transfer.
        came: where those stand that came.
        absent: where those stand that did not come: their last calls.
        unknown: the members that left no dump.
        culprits: the ranks that it is because of, as far as the dumps show.
    """

    finding: Trouble
    group: ProcessGroup
    name: str
    number: int | None
    came: tuple[Stand, ...]
    absent: tuple[Stand, ...] = ()
    unknown: tuple[int, ...] = ()
    culprits: tuple[int, ...] = ()
    late_s: float = 0.0
    timeout_s: float = 0.0

    @property
    def came_ranks(self) -> frozenset[int]:
        """The ranks that came."""
        return frozenset(rank for stand in self.came for rank in stand.ranks)


@dataclass(frozen=True, slots=True)
class Flight:
    """What the dumps show.

    Attributes:
        meetings: the collectives that do not end, the one on which the others depend first.
        in_circle: the ranks wait for each other: the groups are used in different orders.
        dumps: the ranks with a dump.
        unknown: the ranks without one.
        source: who recorded it.
    """

    meetings: tuple[Meeting, ...] = ()
    in_circle: bool = False
    dumps: tuple[int, ...] = ()
    unknown: tuple[int, ...] = ()
    source: str = "torch's flight recorder (FlightRecorder.hpp)"

    @property
    def decided(self) -> bool:
        """Whether it shows why the job hung."""
        if not self.meetings or self.meetings[0].finding is Trouble.STUCK:
            return False
        first = self.meetings[0]
        return first.finding is not Trouble.NO_DUMP or len(first.unknown) <= len(first.came_ranks)

    @property
    def culprit(self) -> int | None:
        """The one rank that it is because of; None if there are several, or it is not known."""
        if not self.decided or self.in_circle:
            return None
        waiting = frozenset(rank for one in self.meetings for rank in one.came_ranks)
        culprits = self.meetings[0].culprits
        few = [rank for rank in culprits if rank not in waiting] or culprits
        return few[0] if len(few) == 1 else None


def judge(dumps: Mapping[int, Dump], world: Collection[int] = ()) -> Flight:
    """Return what the dumps show."""
    everyone = sorted({*world, *dumps})
    by_group: defaultdict[ProcessGroup, dict[int, Calls]] = defaultdict(dict)
    default: ProcessGroup | None = None
    for rank in sorted(dumps):
        for recorded, mine in dumps[rank].groups.items():
            group = recorded
            if recorded.default:
                # all ranks have this group, whatever their dumps have of its members
                default = default or recorded
                group = default
            by_group[group][rank] = mine
    sides: dict[tuple[int, ...], Sides] = {}
    left = _MOST_COMPARED
    meetings = []
    for group, calls in by_group.items():
        ranks = group.ranks or (tuple(everyone) if group.default else tuple(calls))
        if ranks not in sides:
            unknown = tuple(rank for rank in ranks if rank not in dumps)
            sides[ranks] = [rank for rank in ranks if rank in dumps], unknown
        left -= len(sides[ranks][0])
        if left >= 0 and (meeting := _meeting(group, calls, dumps, *sides[ranks])):
            meetings.append(meeting)
    ordered, in_circle = _causes_first([*meetings, *_transfers(dumps)])
    unknown = tuple(rank for rank in everyone if rank not in dumps)
    return Flight(tuple(ordered), in_circle, tuple(sorted(dumps)), unknown)


def _meeting(
    group: ProcessGroup,
    calls: Mapping[int, Calls],
    dumps: Mapping[int, Dump],
    present: Sequence[int],
    unknown: tuple[int, ...],
) -> Meeting | None:
    """Return the collective of a group that does not end; None if there is none."""
    reached = {rank: calls[rank].last for rank in present if rank in calls}
    reached |= _without_calls(
        [rank for rank in present if rank not in calls], reached, calls, dumps
    )
    if not reached:
        return None
    differ = _different(group, calls)
    if differ:
        return differ
    least = min(reached.values())
    most = max(reached.values())
    if least < most:
        number = least + 1
        came = [rank for rank, last in reached.items() if last >= number and rank in calls]
        # in this call, or after it in one that has not ended: a broadcast may end for its root
        # first
        made = (
            call
            for rank in came
            for at in (number, calls[rank].last)
            if (call := calls[rank].get(at))
        )
        if all(call.done for call in made):
            return None
        absent = [rank for rank, last in reached.items() if last < number]
        return Meeting(
            Trouble.MISSING,
            group,
            _name(number, came, calls),
            number,
            _stands(number, came, group, calls),
            _last_stands(absent, dumps),
            unknown,
            tuple(absent),
        )
    is_known = all(rank in reached for rank in present)
    if most and is_known:
        return _all_came(group, calls, dumps, unknown)
    return None


def _without_calls(
    ranks: Sequence[int],
    reached: Mapping[int, int],
    calls: Mapping[int, Calls],
    dumps: Mapping[int, Dump],
) -> dict[int, int]:
    """Return what ranks reached whose dumps have no call of a group.

    They reached nothing, or they lost their calls of long ago. The recorder keeps the last 2,000
    calls of all groups. What others called since a rank's recording began, this rank did not call.
    """
    newest = max(reached.values(), default=0)
    called = [call.created_s for rank in reached if (call := calls[rank].get(newest))]
    since_s = min(called, default=0.0)
    lost = {rank: newest - 1 for rank in ranks if 0 < dumps[rank].began_s < since_s}
    return {**lost, **{rank: 0 for rank in ranks if dumps[rank].whole}}


def _all_came(
    group: ProcessGroup,
    calls: Mapping[int, Calls],
    dumps: Mapping[int, Dump],
    unknown: tuple[int, ...],
) -> Meeting | None:
    """Return the last collective of a group to which all ranks with a dump came.

    The result is None if the collective is known to have ended.
    """
    number = max(mine.last for mine in calls.values())
    known = {rank: call for rank in calls if (call := calls[rank].get(number))}
    if not known or all(call.done for call in known.values()):
        return None
    states = any(call.kind.states for call in known.values())
    if not states and any(
        (last := dumps[rank].last) and not _is_of(last, group, number) for rank in known
    ):
        return None  # they went on after it
    name = _name(number, list(known), calls)
    stands = _stands(number, list(known), group, calls)
    first = min(known.values(), key=lambda call: call.created_s)
    late = [
        rank
        for rank, call in known.items()
        if 0 < first.timeout_s < call.created_s - first.created_s
    ]
    if late and first.created_s:
        late_s = min(known[rank].created_s for rank in late) - first.created_s
        return Meeting(
            Trouble.LATE,
            group,
            name,
            number,
            stands,
            (),
            unknown,
            tuple(late),
            late_s,
            first.timeout_s,
        )
    if unknown:
        return Meeting(Trouble.NO_DUMP, group, name, number, stands, (), unknown, unknown)
    if states:
        return Meeting(Trouble.STUCK, group, name, number, stands)
    return None  # gloo's dumps do not show whether a collective has ended


def _is_of(last: tuple[ProcessGroup, int], group: ProcessGroup, number: int) -> bool:
    return last[1] == number and (last[0] == group or (last[0].default and group.default))


def _different(group: ProcessGroup, calls: Mapping[int, Calls]) -> Meeting | None:
    """Return the first call of a group at which some ranks called something different."""
    ranks = sorted(calls)
    if len(ranks) < 2:
        return None
    first = max(calls[rank].first for rank in ranks)
    last = min(calls[rank].last for rank in ranks)
    model = calls[ranks[0]]
    numbers = set()
    for rank in ranks[1:]:
        number = _first_difference(model, calls[rank], first, last)
        if number is not None:
            numbers.add(number)
            last = number
    if not numbers:
        return None
    number = min(numbers)
    at = {rank: call for rank in ranks if (call := calls[rank].get(number))}
    if all(call.done for call in at.values()):
        return None
    names = Counter(call.kind.name for call in at.values())
    finding = Trouble.DIFFERENT if len(names) > 1 else Trouble.SIZES
    compared = {
        rank: call.kind.name if len(names) > 1 else call.kind.must_equal
        for rank, call in at.items()
    }
    (usual, count), *others = Counter(compared.values()).most_common()
    if not others or count > others[0][1]:
        odd = tuple(rank for rank in at if compared[rank] != usual)
    else:
        odd = ()
    stands = _stands(number, list(at), group, calls)
    return Meeting(finding, group, names.most_common(1)[0][0], number, stands, culprits=odd)


def _first_difference(one: Calls, other: Calls, first: int, last: int) -> int | None:
    """Return the first number at which two ranks called what cannot go together.

    The search goes from ``first`` to ``last``.
    """
    for number in range(first, last + 1):
        if number not in one or number not in other:
            return None  # the recorder kept others of one than of the other
        kind, another = one[number].kind, other[number].kind
        if kind is not another and not kind.goes_with(another):
            return number
    return None


def _transfers(dumps: Mapping[int, Dump]) -> Iterator[Meeting]:
    """Yield of each rank the first send or receive whose other side has no open one.

    Transfers of gloo are not recorded.
    """
    open_ones = {
        (rank, transfer.what, peer)
        for rank, dump in dumps.items()
        for peer, transfer in transfers_of(dump)
    }
    for rank, dump in dumps.items():
        for peer, transfer in transfers_of(dump):
            if (peer, "send" if transfer.what == "recv" else "recv", rank) in open_ones:
                continue
            came = (
                Stand(
                    (rank,), CollectiveCall(0, Kind(transfer.what), transfer.place), transfer.group
                ),
            )
            finding = Trouble.MISSING if peer in dumps else Trouble.NO_DUMP
            absent, unknown = (_last_stands([peer], dumps), ()) if peer in dumps else ((), (peer,))
            yield Meeting(
                finding, transfer.group, transfer.what, None, came, absent, unknown, (peer,)
            )
            break


def _name(number: int, ranks: Sequence[int], calls: Mapping[int, Calls]) -> str:
    """Return the name of a collective; empty if no rank has kept it."""
    return next((call.kind.name for rank in ranks if (call := calls[rank].get(number))), "")


def _stands(
    number: int, ranks: Sequence[int], group: ProcessGroup, calls: Mapping[int, Calls]
) -> tuple[Stand, ...]:
    """Return where ranks made a call, those in the same line together; most ranks first."""
    return _together((rank, group, calls[rank].get(number)) for rank in ranks)


def _last_stands(ranks: Sequence[int], dumps: Mapping[int, Dump]) -> tuple[Stand, ...]:
    """Return the last collective of all that ranks called."""
    lasts = ((rank, dumps[rank].last) for rank in ranks)
    return _together(
        (rank, last[0], dumps[rank].groups[last[0]].get(last[1])) if last else (rank, None, None)
        for rank, last in lasts
    )


def _together(
    stands: Iterable[tuple[int, ProcessGroup | None, CollectiveCall | None]],
) -> tuple[Stand, ...]:
    """Return ranks at the same call and in the same line as one stand.

    The stand with the largest number of ranks comes first.
    """
    together: dict[object, tuple[list[int], CollectiveCall | None, ProcessGroup | None]] = {}
    for rank, group, call in stands:
        key = (group, call and (call.number, call.kind, call.place))
        together.setdefault(key, ([], call, group))[0].append(rank)
    made = (Stand(tuple(ranks), call, group) for ranks, call, group in together.values())
    return tuple(sorted(made, key=lambda stand: (-len(stand.ranks), stand.ranks)))


def _causes_first(meetings: Sequence[Meeting]) -> tuple[list[Meeting], bool]:
    """Return the meetings, and whether all culprits wait for one another.

    First come the meetings whose culprits wait nowhere.
    """
    waiting = frozenset(
        rank for one in meetings if one.finding is not Trouble.STUCK for rank in one.came_ranks
    )

    def order(one: Meeting) -> tuple[bool, bool, int, int, list[int]]:
        certain = one.finding in _CERTAIN or not all(rank in waiting for rank in one.culprits)
        kind = list(Trouble).index(one.finding)
        came = sorted(one.came_ranks)
        return one.finding is Trouble.STUCK, not certain, kind, -len(came), came

    ordered = sorted(meetings, key=order)
    in_circle = (
        len(ordered) > 1
        and ordered[0].finding is Trouble.MISSING
        and waiting.issuperset(ordered[0].culprits)
    )
    return ordered, in_circle
