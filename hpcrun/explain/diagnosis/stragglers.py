"""Finds ranks or nodes whose steps take longer than the steps of the others.

The metrics that the ranks note are compared. Where the ranks wait for each other in every step, a
step takes the same time on all: then nothing is found, unless the program measures the time before
the ranks wait. That is why what programs print of their steps is not read.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from hpcrun.job.text.units import joined, rank_text
from hpcrun.runs.attempt import Attempt, node_ranks, rank_exits
from hpcrun.runs.metric_files import Unreadable, metric_ranks, noted

STEP_TIME = "s a step"
"""The kind of pace that is the time of a step in seconds; every other kind is a number of something
a second.
"""
Paces = dict[str, list[float]]
"""Kind of pace → its values, in the order in which one rank reported them."""

_SLOWER = 1.2
"""A rank is slow if its usual step takes so many times that of the others: less is common among
healthy nodes.
"""
_MOST_SLOWER = 1000
"""More is no slow rank: what was read is not the time of the same thing."""
_SHORTEST = 1e-15
_LONGEST = 1e15
"""A number outside of these is no pace of a program, and could not be computed with."""
_LEAST = 5
_LAST = 50
"""A rank with fewer values is left out; of more values, the last ones count."""
_NAMED = 3

_STEP = r"(?:steps?|it|iters?|iterations?|batch(?:es)?)"
_UNIT = r"(?:m(?:illi)?)?s(?:ec(?:ond)?s?)?"
_COUNTED = r"(samples|examples|sequences|images|imgs|tokens)"
_TIME_NAME = re.compile(
    rf"(?:.*[_/])?(?:{_STEP}_?time|(?:time|{_UNIT})_per_{_STEP})(?:_(?P<unit>{_UNIT}))?",
    re.IGNORECASE | re.ASCII,
)
_RATE_NAME = re.compile(
    rf"(?:.*[_/])?(?:{_COUNTED}|({_STEP}))_per_s(?:ec(?:ond)?)?", re.IGNORECASE | re.ASCII
)
_ROWS = 64
"""Rows at the end of a rank's metrics that are read."""


@dataclass(frozen=True, slots=True)
class Stragglers:
    """Ranks that are slower than the others.

    Attributes:
        ranks: the slow ranks.
        nodes: the nodes of which every rank is slow, if these are all slow ranks; else empty.
        kind: what was compared.
        theirs: their usual value: seconds, or a rate.
        others: the usual value of the other ranks.
    """

    ranks: tuple[int, ...]
    nodes: tuple[str, ...]
    kind: str
    theirs: float
    others: float


def noted_paces(rows: Sequence[tuple[float | None, float | None, Mapping[str, object]]]) -> Paces:
    """Return what the metrics of a rank say of its pace.

    Of several metrics of a kind the first counts. Without any, the time of a step is that between
    two rows.
    """
    paces: Paces = {}
    chosen: dict[str, str] = {}
    for _, _, values in rows:
        for name, value in values.items():
            if isinstance(value, float | int) and _SHORTEST <= value <= _LONGEST:
                kind, number = _kind_of(name, float(value))
                if kind and chosen.setdefault(kind, name) == name:
                    paces.setdefault(kind, []).append(number)
    if paces:
        return paces
    times = [(at_s, step) for at_s, step, _ in rows if at_s is not None and step is not None]
    between = [
        (after - at_s) / (next_ - step)
        for (at_s, step), (after, next_) in pairwise(times)
        if next_ > step
    ]
    return {STEP_TIME: between} if between else {}


def find_stragglers(paces: Mapping[int, Paces], node_of: Mapping[int, str]) -> Stragglers | None:
    """Return the ranks that are slower than the others.

    The result is None if there are no such ranks, or if this is unknown.
    """
    kinds = dict.fromkeys(kind for of_rank in paces.values() for kind in of_rank)
    for kind in sorted(kinds, key=lambda kind: kind != STEP_TIME):
        times = {rank: _times(kind, of_rank.get(kind, ())) for rank, of_rank in paces.items()}
        slow = _slow_ranks(
            {rank: values for rank, values in times.items() if len(values) >= _LEAST}
        )
        if slow is not None:
            ranks, theirs, others = slow
            if kind == STEP_TIME:
                shown = (theirs, others)
            else:
                shown = (1 / theirs, 1 / others)
            return Stragglers(ranks, _whole_nodes(ranks, times, node_of), kind, *shown)
    return None


def straggler_sentence(slow: Stragglers, node_of: Mapping[int, str]) -> str:
    """Return in one sentence what was found about slow ranks.

    An example is ``rank 5 on node-2 takes 1.9 s a step, the others 1.2 s: 58 % more``.
    """
    one = len(slow.nodes or slow.ranks) == 1
    others = "the other nodes" if slow.nodes else "the others"
    if slow.kind == STEP_TIME:
        more = round(100 * (slow.theirs / slow.others - 1))
        takes = "takes" if one else "take"
        theirs = f"{takes} {_span(slow.theirs)} a step"
        return f"{_named(slow, node_of)} {theirs}, {others} {_span(slow.others)}: {more} % more"
    less = round(100 * (1 - slow.theirs / slow.others))
    reaches = "reaches" if one else "reach"
    theirs = f"{reaches} {slow.theirs:.4g} {slow.kind}"
    return f"{_named(slow, node_of)} {theirs}, {others} {slow.others:.4g}: {less} % less"


def _named(slow: Stragglers, node_of: Mapping[int, str]) -> str:
    """Return the names of the nodes, or of the ranks with their nodes; of many the first few."""
    return joined(
        list(slow.nodes) or [rank_text(rank, node_of.get(rank)) for rank in slow.ranks], _NAMED
    )


def _slow_ranks(
    times: Mapping[int, Sequence[float]],
) -> tuple[tuple[int, ...], float, float] | None:
    """Return the slow ranks, their usual time and that of the others; None if no rank is slow.

    A rank is slow only if most of its steps are: three quarters take longer than the usual step of
    the others.
    """
    if len(times) < 2:
        return None
    usual = {rank: _quantile(values, 1 / 2) for rank, values in times.items()}
    limit = _SLOWER * _quantile(usual.values(), 1 / 2)  # of two ranks, the faster one
    others = _quantile([time for time in usual.values() if time < limit], 1 / 2)
    slow = sorted(
        rank
        for rank, time in usual.items()
        if time >= limit and _quantile(times[rank], 1 / 4) > others
    )
    if (
        not slow
        or (theirs := _quantile([usual[rank] for rank in slow], 1 / 2)) > _MOST_SLOWER * others
    ):
        return None
    return tuple(slow), theirs, others


def _whole_nodes(
    slow: Sequence[int], ranks: Iterable[int], node_of: Mapping[int, str]
) -> tuple[str, ...]:
    """Return the nodes of the slow ranks, if all ranks of these nodes are slow.

    Each node must have several ranks; else the result is empty.
    """
    members: dict[str, set[int]] = {}
    for rank in ranks:
        if rank in node_of:
            members.setdefault(node_of[rank], set()).add(rank)
    whole = [node for node, mine in members.items() if len(mine) > 1 and mine <= set(slow)]
    covered = {rank for node in whole for rank in members[node]}
    return tuple(whole) if covered == set(slow) else ()


def _quantile(values: Collection[float], part: float) -> float:
    # statistics takes long to import
    """Return the value that so great a part of the values does not exceed."""
    return sorted(values)[math.ceil(part * len(values)) - 1]


def _times(kind: str, values: Sequence[float]) -> list[float]:
    """Return the last values as times: of a rate, the time of one of what it counts."""
    last = [value for value in values if _SHORTEST <= value <= _LONGEST][-_LAST:]
    return last if kind == STEP_TIME else [1 / value for value in last]


def _kind_of(name: str, value: float) -> tuple[str, float]:
    """Return the kind of pace that a metric is, and its value in the unit of this kind.

    The kind is empty if the metric is not a pace.
    """
    time = _TIME_NAME.fullmatch(name)
    if time is not None:
        return STEP_TIME, value / 1000 if (time["unit"] or "").lower().startswith("m") else value
    rate = _RATE_NAME.fullmatch(name)
    if rate is not None:
        if rate[2]:
            return (STEP_TIME, 1 / value)
        return (f"{rate[1].lower()}/s", value)
    return "", value


def _span(seconds: float) -> str:
    if seconds >= 0.1:
        return f"{seconds:.3g} s"
    return f"{1000 * seconds:.3g} ms"


def stragglers_of(attempt: Attempt) -> tuple[Stragglers, dict[int, str]] | None:
    """Return the ranks of an attempt that are slower than the others, and all ranks' nodes.

    The result is None if no rank is slower.
    """
    node_of = {end.rank: end.node for end in rank_exits(attempt.folder)}
    node_of |= {rank: node for node, mine in node_ranks(attempt.folder).items() for rank in mine}
    rows = {
        rank: noted(attempt, rank, Unreadable(), _ROWS) for rank in metric_ranks(attempt.folder)
    }
    paces = {
        rank: noted_paces([(row.time_s, row.step, row.values) for row in mine])
        for rank, mine in rows.items()
    }
    slow = find_stragglers(paces, node_of)
    return None if slow is None else (slow, node_of)
