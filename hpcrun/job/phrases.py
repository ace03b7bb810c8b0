"""Phrases that many messages have: ranks and their nodes, lists, cut texts, and pydantic's errors. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

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


# pydantic's error types (https://docs.pydantic.dev/latest/errors/validation_errors), and the requirement in words.
_MUST_BE: dict[str, str] = {
    "bool_parsing": "true or false",
    "bool_type": "true or false",
    "dict_type": "a section of keys and values",
    "finite_number": "a finite number",
    "float_parsing": "a number",
    "float_type": "a number",
    "greater_than": "more than {gt}",
    "greater_than_equal": "{ge} or more",
    "int_from_float": "a whole number",
    "int_parsing": "a whole number",
    "int_parsing_size": "a whole number of fewer digits",
    "int_type": "a whole number",
    "less_than": "less than {lt}",
    "less_than_equal": "{le} or less",
    "list_type": "a list, such as [one, two]",
    "literal_error": "{expected}",
    "mapping_type": "a section of keys and values",
    "model_type": "a section of keys and values",
    "string_type": "text",
    "tuple_type": "a list, such as [one, two]",
}


def error_words(detail: Mapping[str, Any]) -> str:
    """Return the error of a value, such as ``must be a whole number``, without the value itself.

    Args:
        detail: one of pydantic's ``ValidationError.errors()``.
    """
    words = _MUST_BE.get(detail["type"])
    if words is None:
        return str(detail["msg"]).removeprefix("Value error, ")
    return f"must be {words.format_map(detail.get('ctx', {}))}"
