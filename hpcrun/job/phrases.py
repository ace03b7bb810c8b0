"""Phrases that many messages have: ranks and their nodes, lists and texts that are cut to a length. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from hpcrun.job.parameters import index_ranges

_LONGEST_RANKS = 40
_NUMBERED = re.compile(r"(?P<name>.*?)(?P<number>0|[1-9]\d{0,8})", re.ASCII)


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


def host_list(names: Iterable[str]) -> str:
    """Return the names of nodes as squeue shows them: ``a100-[1-2],login``."""
    numbers: dict[str, list[int]] = {}
    for name in names:
        match = _NUMBERED.fullmatch(name)
        numbers.setdefault(match["name"] if match else name, []).extend([int(match["number"])] if match else [])
    ranges = {name: f"[{index_ranges(own)}]" if own[1:] else "".join(map(str, own)) for name, own in numbers.items()}
    return ",".join(name + text for name, text in ranges.items())


def other_ranks(number: int) -> str:
    """Return ``1 other rank`` or ``7 other ranks``."""
    return "1 other rank" if number == 1 else f"{number} other ranks"


def cut_at_word(text: str, most: int) -> str:
    """Return at most so many characters of a text: whole words and ``…``, or a part of a single long one."""
    if len(text) <= most:
        return text
    head = text[: most - 1]
    whole = head if text[most - 1].isspace() else head.rpartition(" ")[0]
    return f"{(whole if len(whole) > most // 2 else head).rstrip()}…"
