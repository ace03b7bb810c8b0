"""What the silence of the ranks of a running job says: who stopped first, or that no rank looks stuck. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from hpcrun.job.units import format_span, joined, other_ranks

WROTE_LATELY_S = 20.0
"""The age up to which a rank's last line is fresh, whatever the rank's usual pause."""
MUCH_LONGER = 3.0
"""How many times the usual pause a pause must be to count as silence."""
STOPPED_TOGETHER_S = 5.0
"""The time within which ranks count as stopped together: file servers write with delays of seconds."""
_BEGINNING_S = 120.0
"""The beginning of a job: ranks whose last line is from it print nothing while they train."""


def silence_limit_s(usual_s: float | None) -> float:
    """Return after how many seconds a job is silent.

    Args:
        usual_s: its usual pause between two lines, None if unknown.
    """
    return max(WROTE_LATELY_S, MUCH_LONGER * (usual_s or 0.0))


def silence_sentence(
    silent_s: Mapping[int, float | None], where: Callable[[int], str], *, running_s: float, usual_s: float | None
) -> str:
    """Return who stopped first, or that no rank looks stuck.

    Args:
        silent_s: rank → seconds since it last wrote; None if it has written nothing.
        where: returns the name of a rank: ``rank 11 on node-3``.
        running_s: seconds since the start of the job.
        usual_s: the usual pause between two lines.
    """
    ages = {rank: age for rank, age in silent_s.items() if age is not None}
    if not ages:
        return f"the job is running; no rank has written anything since it started {format_span(running_s)} ago"
    newest_s, limit_s = min(ages.values()), silence_limit_s(usual_s)
    if newest_s <= WROTE_LATELY_S:
        return f"{_calm(ages, len(silent_s), limit_s)}: nothing looks stuck"
    if newest_s <= limit_s:
        pace = f"at {format_span(usual_s or 0.0)} from line to line until then"
        return f"{_calm(ages, len(silent_s), limit_s)}: {pace}, that is too early to call it stuck"
    ranks = sorted(talkers(ages, running_s), key=lambda rank: -ages[rank])
    first = [rank for rank in ranks if ages[ranks[0]] - ages[rank] <= STOPPED_TOGETHER_S]
    rest = [rank for rank in ranks if rank not in first]
    usually = f", which usually takes {format_span(usual_s)} from line to line" if usual_s and usual_s >= 1 else ""
    if rest and len(first) <= len(rest):
        who = joined([where(rank) for rank in first])
        text = f"{who} last wrote {format_span(ages[first[0]])} ago; {_others(rest, ages)}"
        return f"{text} {format_span(ages[rest[0]])} ago"
    if len(silent_s) == 1:
        return f"the job has written nothing for {format_span(newest_s)}{usually}"
    quiet = len(silent_s) - len(ranks)
    text = f"no rank has written for {format_span(newest_s)}{usually}"
    if not quiet:
        return text
    return f"{text} ({other_ranks(quiet)} wrote only at the start, or nothing)"


def _calm(ages: Mapping[int, float], ranks: int, limit_s: float) -> str:
    """Return which ranks wrote lately."""
    newest = min(ages, key=lambda rank: ages[rank])
    oldest_s = max(ages.values())
    if ranks == 1:
        return f"the job wrote {format_span(ages[newest])} ago"
    if len(ages) == ranks and oldest_s <= limit_s:
        return f"all {ranks} ranks wrote in the last {format_span(max(WROTE_LATELY_S, oldest_s))}"
    return f"rank {newest} wrote {format_span(ages[newest])} ago"


def talkers(ages: Mapping[int, float], running_s: float) -> list[int]:
    """Return the ranks that wrote after the beginning of the job; all if none did."""
    newest_s = min(ages.values())
    early = {rank for rank, age in ages.items() if running_s - age <= _BEGINNING_S and age - newest_s > _BEGINNING_S}
    return [rank for rank in ages if rank not in early]


def _others(ranks: Sequence[int], ages: Mapping[int, float]) -> str:
    if len(ranks) == 1:
        return f"rank {ranks[0]} wrote"
    all_others = len(ranks) == len(ages) - 1
    return f"the other {len(ranks)} wrote" if all_others else f"{len(ranks)} others wrote"
