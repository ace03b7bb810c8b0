"""Phrases that many messages have: ranks and their nodes, and lists of which only the first few are named. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from hpcrun.job.parameters import index_ranges

_LONGEST_RANKS = 40


def listed(names: Sequence[str], most: int = 3) -> str:
    """Return ``a, b, c``; of more names than ``most`` the first: ``a, b, c and 4 more``."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return f"{', '.join(names[:most])}{more}"


def joined(names: Sequence[str], most: int = 3) -> str:
    """Return ``a``, ``a and b`` or ``a, b and c``; of more names than ``most`` the first: ``a, b, c and 4 more``."""
    if len(names) > most:
        return listed(names, most)
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def rank_text(rank: int, node: str | None) -> str:
    """Return ``rank 3 on node-1``; ``rank 3`` if its node is unknown."""
    return f"rank {rank} on {node}" if node else f"rank {rank}"


def ranks_text(ranks: Sequence[int]) -> str:
    """Return ``rank 3`` or ``ranks 0-2, 5``; of many ranges the first."""
    ranges = index_ranges(ranks).replace(",", ", ")
    if len(ranges) > _LONGEST_RANKS:
        ranges = ranges[:_LONGEST_RANKS].rpartition(",")[0] + f", ... ({len(ranks)} ranks)"
    return f"rank {ranges}" if len(ranks) == 1 else f"ranks {ranges}"


def other_ranks(number: int) -> str:
    """Return ``1 other rank`` or ``7 other ranks``."""
    return "1 other rank" if number == 1 else f"{number} other ranks"
