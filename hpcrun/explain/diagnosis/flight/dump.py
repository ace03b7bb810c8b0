"""The dump of one rank: the last collectives that it called, each group's in a row. Pure.

The format is that of torch's FlightRecorder.hpp, versions 1 and 2 (torch 2.2 to 2.13), of NCCL or gloo, as a pickle or
as JSON (which has no frames). It has no rank: the file's name tells whose it is.
"""

from __future__ import annotations

import re
from array import array
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count, islice
from typing import Any

from hpcrun.explain.diagnosis.flight.groups import GroupReader, GroupsOfDump, ProcessGroup, named_group
from hpcrun.explain.diagnosis.flight.kinds import LONGEST_CALLED, Kind, KindReader, kind_of_several
from hpcrun.explain.diagnosis.flight.plain_pickle import PlainPickleError, Texts, load_plain
from hpcrun.explain.diagnosis.traceback import Frame
from hpcrun.reading import parse_object

_MOST_KEPT = 200
"""Calls that are kept, per rank and group: a rank may be this far ahead of another one, and its line is still known."""
_MOST_ENTRIES, _MOST_FRAMES, _MOST_GROUPS = 50_000, 200, 256
"""Parts of a dump that are read. A hostile dump may name the same object in all of its entries: so each object is
converted once, and every entry takes about the same time, whatever is in it."""
_LONGEST_TEXT = 4096
_LARGEST = 1 << 60
"""The largest number in a key of a dict: the hashes of larger ones may be the same."""
_MOST_OBJECTS, _MOST_COMMAS = 500_000, 2_000_000
"""Objects and commas in JSON, of which a megabyte may become 40 in memory."""
_P2P = re.compile(r"(?P<what>send|recv) (?P<own>\d{1,6})(?:->|<-)(?P<peer>\d{1,6})")
_COMPLETED = "completed"
_COALESCED = "coalesced"
"""The entry that ends a group of calls which NCCL launches together: only it shows that they have ended."""
_OF_C = (".c", ".cc", ".cpp", ".cu", ".h", ".hpp", ".so", "??")
"""The ends of the files of C++ frames, which TORCH_FR_CPP_STACK adds."""
_OF_TORCH = "/torch/distributed/"


class DumpError(ValueError):
    """No dump of the flight recorder, or a damaged one; the message is the end of a sentence."""


@dataclass(frozen=True, slots=True)
class CollectiveCall:
    """One call of a collective by one rank.

    Attributes:
        number: its place among the collectives of the group, from 1.
        place: the innermost line of the user's own code; None where the dump has none.
        created_s: when it was called, in seconds since the epoch.
        done: it was completed, as far as the dump knows.
    """

    number: int
    kind: Kind
    place: Frame | None
    created_s: float
    timeout_s: float
    done: bool


@dataclass(slots=True)
class Calls:
    """The calls of one rank in one group, in their order."""

    numbers: array[int] = field(default_factory=lambda: array("q"))
    kinds: list[Kind] = field(default_factory=list)
    places: list[Frame | None] = field(default_factory=list)
    created_ns: array[int] = field(default_factory=lambda: array("q"))
    timeouts_ms: array[int] = field(default_factory=lambda: array("q"))
    done: bytearray = field(default_factory=bytearray)

    @property
    def last(self) -> int:
        """The number of the last call."""
        return self.numbers[-1]

    def clear(self) -> None:
        """Forget all calls."""
        for items in (self.numbers, self.kinds, self.places, self.created_ns, self.timeouts_ms, self.done):
            del items[:]

    def index(self, number: int) -> int | None:
        """Return the place of a call in the lists; None if it is not among them."""
        place = bisect_left(self.numbers, number)
        return place if place < len(self.numbers) and self.numbers[place] == number else None

    def call(self, number: int) -> CollectiveCall | None:
        """Return a call by its number; None if the recorder has not kept it."""
        at = self.index(number)
        if at is None:
            return None
        created_s, timeout_s = self.created_ns[at] / 1e9, self.timeouts_ms[at] / 1e3
        return CollectiveCall(number, self.kinds[at], self.places[at], created_s, timeout_s, bool(self.done[at]))


@dataclass(frozen=True, slots=True)
class Transfer:
    """A send or receive that was not completed.

    Attributes:
        what: ``send`` or ``recv``.
        peer: the other rank's place in the group.
    """

    group: ProcessGroup
    what: str
    peer: int
    place: Frame | None


@dataclass(frozen=True, slots=True)
class Dump:
    """The dump of a rank.

    Attributes:
        last: the group and the number of the last collective of all.
        began_s: when the first of the collectives was called that it has, in seconds since the epoch.
        whole: that was the first of all.
    """

    groups: Mapping[ProcessGroup, Calls]
    transfers: tuple[Transfer, ...] = ()
    last: tuple[ProcessGroup, int] | None = None
    began_s: float = 0.0
    whole: bool = True


@dataclass(slots=True)
class _OpenTransfers:
    """The sends and receives that were not completed, in their order."""

    _open: dict[int, Transfer] = field(default_factory=dict)
    _launched: dict[tuple[tuple[str, str], int | None], list[int]] = field(default_factory=dict)
    _places: Iterator[int] = field(default_factory=count)

    def add(self, named: tuple[str, str], number: int | None, transfer: Transfer) -> None:
        """Note one, with its group and the number of those that are launched together."""
        place = next(self._places)
        self._open[place] = transfer
        self._launched.setdefault((named, number), []).append(place)

    def end(self, named: tuple[str, str], number: int | None) -> None:
        """Forget those that were launched together."""
        for place in self._launched.pop((named, number), ()):
            del self._open[place]

    def left(self) -> tuple[Transfer, ...]:
        """Return those that are still open."""
        return tuple(self._open.values())


class DumpReader:
    """Reads the dumps of a job's ranks; what they have in common is kept once."""

    def __init__(self) -> None:
        self._kinds, self._groups = KindReader(), GroupReader()
        self._frames: dict[tuple[str, int, str], Frame] = {}

    def read(self, data: bytes) -> Dump:
        """Return what a dump has.

        Raises:
            DumpError: it is damaged, or something else.
        """
        try:
            loaded = _load_json(data) if data.lstrip()[:1] == b"{" else load_plain(data)
        except PlainPickleError as error:
            raise DumpError(str(error)) from None
        except (ValueError, MemoryError):
            raise DumpError("is damaged JSON") from None
        known = isinstance(loaded, dict) and ("entries" in loaded or "version" in loaded)
        entries = loaded.get("entries", []) if known else None
        if not isinstance(entries, list):
            raise DumpError("is no dump of torch's flight recorder")
        try:
            return self._dump(loaded, entries[-_MOST_ENTRIES:])
        except (AttributeError, TypeError, ValueError, LookupError, OverflowError, RecursionError) as error:
            raise DumpError(f"is no dump that hpcrun knows ({type(error).__name__})") from None

    def _dump(self, loaded: dict[str, Any], entries: Sequence[dict[str, Any]]) -> Dump:
        configured = GroupsOfDump(self._groups, loaded.get("pg_config"))
        texts, places = Texts(), _Places(self._frames)
        groups: dict[tuple[str, str], tuple[ProcessGroup, Calls]] = {}
        calls: dict[ProcessGroup, Calls] = {}
        transfers = _OpenTransfers()
        last: tuple[ProcessGroup, int] | None = None
        for named, entry in _newest(entries):
            if named not in groups:
                group = configured.group(*named, texts)
                groups[named] = group, calls.setdefault(group, Calls())
                if len(groups) > _MOST_GROUPS:
                    raise ValueError("too many groups")
            group, its_calls = groups[named]
            _, _, what = texts.of(entry["profiling_name"], LONGEST_CALLED).rpartition(":")
            place = places.own_place(entry.get("frames"), texts)
            if p2p := _P2P.fullmatch(what):
                if entry.get("state") != _COMPLETED:
                    launched = _launched(entry)
                    transfers.add(named, launched, Transfer(group, p2p["what"], int(p2p["peer"]), place))
            elif entry.get("is_p2p"):
                if what == _COALESCED and entry.get("state") == _COMPLETED:
                    transfers.end(named, _launched(entry))
            else:
                number = entry["collective_seq_id"] if "collective_seq_id" in entry else entry["seq_id"]
                self._add(its_calls, number, self._kinds.kind(entry, texts), entry, place)
                last = group, number
        first = entries[0] if entries else {}
        began_s = (first.get("time_created_ns") or 0) / 1e9
        called = {group: one for group, one in calls.items() if one.numbers}
        return Dump(called, transfers.left(), last, began_s, whole=first.get("record_id", 0) == 0)

    @staticmethod
    def _add(calls: Calls, number: int, kind: Kind, entry: dict[str, Any], place: Frame | None) -> None:
        if calls.numbers and number == calls.last:  # several are launched together
            calls.kinds[-1] = kind_of_several(calls.kinds[-1], kind)
            calls.done[-1] |= entry.get("state") == _COMPLETED
            return
        if calls.numbers and number < calls.last:
            if calls.numbers[0] < number and calls.index(number) is None:
                return  # two threads noted theirs in another order
            calls.clear()  # the group was destroyed, and made anew
        calls.numbers.append(number)
        calls.kinds.append(kind)
        calls.places.append(place)
        calls.created_ns.append(entry.get("time_created_ns") or 0)
        calls.timeouts_ms.append(entry.get("timeout_ms") or 0)
        calls.done.append(entry.get("state") == _COMPLETED)


class _Places:
    """The lines of code of one dump; its calls share lists and frames."""

    def __init__(self, shared: dict[tuple[str, int, str], Frame]) -> None:
        self._shared = shared
        self._of_list: dict[int, Frame | None] = {}
        self._own: dict[int, bool] = {}

    def own_place(self, frames: Any, texts: Texts) -> Frame | None:
        """Return the innermost frame in the user's own code."""
        if not frames:
            return None
        if id(frames) not in self._of_list:
            found = (self._own_frame(frame, texts) for frame in islice(frames, _MOST_FRAMES))
            self._of_list[id(frames)] = next((frame for frame in found if frame is not None), None)
        return self._of_list[id(frames)]

    def _own_frame(self, said: dict[str, Any], texts: Texts) -> Frame | None:
        line, function = said["line"], said["name"]
        file = texts.of(said["filename"], _LONGEST_TEXT)
        if not isinstance(line, int) or abs(line) > _LARGEST:
            raise ValueError("a frame without its line")
        own = self._own.get(id(file))
        if own is None:
            own = self._own[id(file)] = Frame(file, line, "").own and not (file.endswith(_OF_C) or _OF_TORCH in file)
        if not own:
            return None
        key = file, line, texts.of(function, _LONGEST_TEXT)
        return self._shared.setdefault(key, Frame(*key))


def _newest(entries: Sequence[dict[str, Any]]) -> list[tuple[tuple[str, str], dict[str, Any]]]:
    """Return the newest entries of each group in their order, with the name and the description of the group."""
    counts: dict[tuple[str, str], int] = {}
    newest: list[tuple[tuple[str, str], dict[str, Any]]] = []
    for entry in reversed(entries):
        named = named_group(entry)
        count = counts.get(named, 0)
        if count < _MOST_KEPT:
            counts[named] = count + 1
            newest.append((named, entry))
    newest.reverse()
    return newest


def _launched(entry: dict[str, Any]) -> int | None:
    """Return the number of the transfers that are launched together."""
    number = entry.get("p2p_seq_id")
    if not isinstance(number, int | None) or abs(number or 0) > _LARGEST:
        raise ValueError("a number that is none")
    return number


def _load_json(data: bytes) -> dict[str, Any]:
    if data.count(b"{") + data.count(b"[") > _MOST_OBJECTS or data.count(b",") > _MOST_COMMAS:
        raise PlainPickleError("has too many objects")
    return parse_object(data)


def transfers_of(dump: Dump) -> Iterator[tuple[int, Transfer]]:
    """Yield the open transfers of a dump with the global rank of the other side, where the group's ranks are known."""
    for transfer in dump.transfers:
        if transfer.peer < len(transfer.group.ranks):
            yield transfer.group.ranks[transfer.peer], transfer
