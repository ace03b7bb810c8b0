"""The process groups of dumps and their members. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import islice
from typing import Any

from hpcrun.explain.diagnosis.flight.plain_pickle import Texts

_DEFAULT = "default_pg"
_NOT_NAMED = ("", "undefined")
_NUMBER = re.compile(r"\d{1,7}")
_MOST_MEMBERS = 200_000
"""No job has more ranks."""
_ABOVE_RANKS = 10_000_000
"""Python's hashes of numbers are the same for the multiples of 2**61 - 1: a dict of them is slow."""
_MOST_LISTED, _LISTED_EACH = 64 << 20, 8
"""Bytes of the lists of members, of all dumps, that are kept; a member of a list counts as so many."""
_LONGEST_NAME = 4096


class Members(tuple[int, ...]):
    """The ranks of a group; its hash is computed once, as a group is looked up for each call of each rank."""

    _hash: int | None = None

    def __hash__(self) -> int:
        if self._hash is None:
            self._hash = super().__hash__()
        return self._hash


@dataclass(frozen=True, slots=True)
class ProcessGroup:
    """A process group.

    Attributes:
        name: torch's; the groups of a mesh may share one.
        description: ``default_pg``, ``mesh_tp`` or empty.
        ranks: its members in the order of the group; empty where the dump does not have them, as gloo's.
    """

    name: str
    description: str
    ranks: tuple[int, ...]

    @property
    def default(self) -> bool:
        """Whether it has all ranks."""
        return self.description == _DEFAULT or (self.name == "0" and not self.description)


class GroupReader:
    """Reads the groups of a job's dumps; members that they have in common are kept once."""

    def __init__(self) -> None:
        self._of_text: dict[str, Members] = {}
        self._members: dict[Members, Members] = {}
        self._left = _MOST_LISTED

    def members(self, listed: Any) -> Members:
        """Return the members in a text or a list; none of anything else.

        Raises:
            ValueError: there are more than a job can have.
        """
        if isinstance(listed, str):
            if listed not in self._of_text:
                self._count(len(listed))
                numbers = [int(match[0]) for match in islice(_NUMBER.finditer(listed), _MOST_MEMBERS + 1)]
                self._of_text[listed] = self._shared(numbers)
            return self._of_text[listed]
        if not isinstance(listed, list):
            return self._shared([])
        self._count(_LISTED_EACH * len(listed))
        return self._shared(
            [rank for rank in listed[: _MOST_MEMBERS + 1] if type(rank) is int and 0 <= rank < _ABOVE_RANKS]
        )

    def _shared(self, ranks: list[int]) -> Members:
        if len(ranks) > _MOST_MEMBERS:
            raise ValueError("too many ranks")
        members = Members(dict.fromkeys(ranks))
        return self._members.setdefault(members, members)

    def _count(self, size: int) -> None:
        self._left -= size
        if self._left < 0:
            raise ValueError("too many ranks")


class GroupsOfDump:
    """The groups of one dump."""

    def __init__(self, reader: GroupReader, config: Any) -> None:
        self._reader, self._config = reader, config if isinstance(config, dict) else {}
        self._members: dict[int, Members] = {}

    def group(self, name: str, description: str, texts: Texts) -> ProcessGroup:
        """Return a group by its name and its description.

        Raises:
            ValueError: it has more members than a job can have.
        """
        said = self._config.get(name)
        listed = said.get("ranks") if isinstance(said, dict) else None
        members = self._members.get(id(listed))  # several groups may name the same list
        if members is None:
            members = self._members[id(listed)] = self._reader.members(listed)
        described = "" if description in _NOT_NAMED else texts.of(description, _LONGEST_NAME)
        return ProcessGroup(texts.of(name, _LONGEST_NAME), described, members)


def named_group(entry: dict[str, Any]) -> tuple[str, str]:
    """Return the name and the description of an entry's group.

    Raises:
        ValueError: it is something else: to compute the hash of a nested pair takes long.
    """
    said = entry.get("process_group")
    if not said:
        number = entry.get("pg_id")
        if not isinstance(number, int | str | None):
            raise ValueError("no group")
        return str(number), ""
    if not isinstance(said, list | tuple) or len(said) != 2:
        raise ValueError("no group")
    name, description = said
    if not (isinstance(name, str) and isinstance(description, str)):
        raise ValueError("no group")
    return name, description
