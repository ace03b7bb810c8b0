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
from itertools import islice
from math import prod
from typing import Any

from hpcrun.diagnosis.flight.plain_pickle import PlainPickleError, load_plain
from hpcrun.diagnosis.traceback import Frame
from hpcrun.reading import parse_object

_MOST_KEPT = 200
"""Calls of a group that are kept of a rank: a rank can be that far ahead of another and its line is still known."""
_MOST_NESTED = 16
"""Tensors and dimensions of a collective that are looked at."""
_MOST_ENTRIES, _MOST_FRAMES, _MOST_GROUPS, _MOST_MEMBERS = 50_000, 200, 256, 4_000_000
"""What is looked at of a dump; members of all groups of all dumps. A hostile dump may name the same list many times."""
_MOST_KINDS = 10_000
_LONGEST_TEXT = 4096
_DEFAULT = "default_pg"
_NOT_NAMED = ("", "undefined")
_NUMBER = re.compile(r"\d{1,7}")
_P2P = re.compile(r"(?P<what>send|recv) (?P<own>\d{1,6})(?:->|<-)(?P<peer>\d{1,6})")
_COMPLETED = "completed"
_COALESCED = "coalesced"
"""What ends several calls that NCCL launches together; of the calls themselves no dump shows when they end."""
_KNOWN_AS = {"_all_gather_base": "all_gather_into_tensor", "_reduce_scatter_base": "reduce_scatter_tensor",
             "ALLGATHER_coalesced": "all_gather", "REDUCE_SCATTER_coalesced": "reduce_scatter"}  # fmt: skip
"""What a person calls for what torch writes."""
_EQUAL_INPUTS = frozenset({
    "all_reduce", "allreduce_coalesced", "broadcast", "_broadcast_oop", "reduce", "_reduce_oop", "gather",
    "all_gather_into_tensor", "all_gather_into_tensor_coalesced", "reduce_scatter_tensor",
    "reduce_scatter_tensor_coalesced", "reduce_scatter",
})  # fmt: skip
"""Collectives whose inputs must have the same number of elements on all ranks."""
_EQUAL_OUTPUTS = frozenset({"all_gather", "scatter"})


_OF_C = (".c", ".cc", ".cpp", ".cu", ".h", ".hpp", ".so", "??")
"""The ends of the files of C++ frames, which TORCH_FR_CPP_STACK adds."""
_OF_TORCH = "/torch/distributed/"


class DumpError(ValueError):
    """No dump of the flight recorder, or a damaged one; the message is the end of a sentence."""


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


@dataclass(frozen=True, slots=True)
class Kind:
    """What is called.

    Attributes:
        name: ``all_reduce``.
        tensors: the sizes and types, to be shown: ``[1024] Float``.
        must_equal: what must be the same on all ranks of a group.
        states: the dump knows whether it is completed.
        coalesced: several calls are launched together.
    """

    name: str
    tensors: str = ""
    must_equal: tuple[Any, ...] = ()
    states: bool = True
    coalesced: bool = False

    def goes_with(self, other: Kind) -> bool:
        """Whether one rank of a group may call this while another calls the other."""
        if self.coalesced or other.coalesced:
            return True
        return self.name == other.name and (
            self.must_equal == other.must_equal or not (self.must_equal and other.must_equal)
        )


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
        number: of the transfers that are launched together.
    """

    group: ProcessGroup
    what: str
    peer: int
    place: Frame | None
    number: Any = None


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


class DumpReader:
    """Reads the dumps of a job's ranks; what they have in common is kept once."""

    def __init__(self) -> None:
        self._kinds: dict[tuple[Any, ...], Kind] = {}
        self._frames: dict[tuple[str, int, str], Frame] = {}
        self._members: dict[str, tuple[int, ...]] = {}
        self._members_left = _MOST_MEMBERS

    def read(self, data: bytes) -> Dump:
        """Return what a dump has.

        Raises:
            DumpError: it is damaged, or something else.
        """
        try:
            loaded = parse_object(data) if data.lstrip()[:1] == b"{" else load_plain(data)
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
        config = loaded.get("pg_config")
        groups: dict[tuple[str, str], ProcessGroup] = {}
        own_frames: dict[int, Frame | None] = {}
        calls: dict[ProcessGroup, Calls] = {}
        transfers: list[Transfer] = []
        last: tuple[ProcessGroup, int] | None = None
        for named, entry in _newest(entries):
            group = groups.get(named)
            if group is None:
                group = groups[named] = self._group(*named, config)
                if len(groups) > _MOST_GROUPS:
                    raise ValueError("too many groups")
            _, _, what = entry["profiling_name"].rpartition(":")
            place = self._place(entry.get("frames") or (), own_frames)
            number = entry["collective_seq_id"] if "collective_seq_id" in entry else entry["seq_id"]
            if p2p := _P2P.fullmatch(what):
                if entry.get("state") != _COMPLETED:
                    transfers.append(Transfer(group, p2p["what"], int(p2p["peer"]), place, entry.get("p2p_seq_id")))
            elif entry.get("is_p2p"):
                if what == _COALESCED and entry.get("state") == _COMPLETED:
                    ended = entry.get("p2p_seq_id")
                    transfers = [one for one in transfers if one.group is not group or one.number != ended]
            else:
                self._add(calls.setdefault(group, Calls()), number, entry, place)
                last = group, number
        first = entries[0] if entries else {}
        began_s = (first.get("time_created_ns") or 0) / 1e9
        return Dump(calls, tuple(transfers), last, began_s, whole=first.get("record_id", 0) == 0)

    def _add(self, calls: Calls, number: int, entry: dict[str, Any], place: Frame | None) -> None:
        kind = self._kind(entry)
        if calls.numbers and number == calls.last:  # several are launched together
            calls.kinds[-1] = _together(calls.kinds[-1], kind)
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

    def _kind(self, entry: dict[str, Any]) -> Kind:
        inputs, outputs = entry.get("input_sizes") or (), entry.get("output_sizes") or ()
        types, output_types = entry.get("input_dtypes") or (), entry.get("output_dtypes") or ()
        written = entry["profiling_name"]
        key = (written, _frozen(inputs), _frozen(outputs), *types[:1], *output_types[:1])
        kind = self._kinds.get(key)
        if kind is None:
            if len(self._kinds) >= _MOST_KINDS:
                self._kinds.clear()
            kind = self._kinds[key] = _make_kind(written, inputs, outputs, types, output_types)
        return kind

    def _group(self, name: str, description: str, config: Any) -> ProcessGroup:
        said = config.get(name) if isinstance(config, dict) else None
        listed = said.get("ranks") if isinstance(said, dict) else None
        if not isinstance(listed, str):
            listed = " ".join(str(rank) for rank in listed if type(rank) is int) if isinstance(listed, list) else ""
        if listed not in self._members:
            ranks = tuple(int(number[0]) for number in islice(_NUMBER.finditer(listed), self._members_left + 1))
            self._members_left -= len(ranks)
            if self._members_left < 0:
                raise ValueError("too many ranks")
            self._members[listed] = ranks
        return ProcessGroup(_text(name), "" if description in _NOT_NAMED else _text(description), self._members[listed])

    def _place(self, frames: Sequence[dict[str, Any]], known: dict[int, Frame | None]) -> Frame | None:
        """Return the innermost frame in the user's own code; the frames of a dump are shared by its calls."""
        for frame in islice(frames, _MOST_FRAMES):
            if id(frame) not in known:
                known[id(frame)] = self._own_frame(frame)
            if (own := known[id(frame)]) is not None:
                return own
        return None

    def _own_frame(self, said: dict[str, Any]) -> Frame | None:
        file, line, function = said["filename"], said["line"], said["name"]
        if not isinstance(line, int):
            raise ValueError("a frame without its line")
        frame = Frame(_text(file), line, _text(function))
        if not frame.own or frame.file.endswith(_OF_C) or _OF_TORCH in frame.file:
            return None
        return self._frames.setdefault((frame.file, line, frame.function), frame)


def _newest(entries: Sequence[dict[str, Any]]) -> list[tuple[tuple[str, str], dict[str, Any]]]:
    """Return the newest entries of each group in their order, with the name and the description of the group."""
    counts: dict[tuple[str, str], int] = {}
    newest: list[tuple[tuple[str, str], dict[str, Any]]] = []
    for entry in reversed(entries):
        named: tuple[str, str] = tuple(entry.get("process_group") or (str(entry.get("pg_id")), ""))
        count = counts.get(named, 0)
        if count < _MOST_KEPT:
            counts[named] = count + 1
            newest.append((named, entry))
    newest.reverse()
    return newest


def _text(value: Any) -> str:
    """Return a text that can be printed: a pickle can hold half characters."""
    if not isinstance(value, str):
        raise ValueError("no text")
    return value[:_LONGEST_TEXT].encode("utf-8", "replace").decode()


def _frozen(sizes: Sequence[Sequence[int]]) -> tuple[tuple[int, ...], ...]:
    return tuple(tuple(size[:_MOST_NESTED]) for size in sizes[:_MOST_NESTED])


def _make_kind(
    written: str, inputs: Sequence[Any], outputs: Sequence[Any], types: Sequence[str], output_types: Sequence[str]
) -> Kind:
    if not all(type(number) is int for size in (*_frozen(inputs), *_frozen(outputs)) for number in size):
        raise ValueError("sizes that are no numbers")  # the product of a number and a text can have gigabytes
    types, output_types = [_text(one) for one in types[:1]], [_text(one) for one in output_types[:1]]
    backend, _, called = _text(written).rpartition(":")
    name = _KNOWN_AS.get(called, called)
    must_equal: tuple[Any, ...] = ()
    if name in _EQUAL_INPUTS and inputs:
        must_equal = (_elements(inputs), *types[:1])
    elif name in _EQUAL_OUTPUTS and outputs:
        must_equal = (_elements(outputs), *output_types[:1])
    return Kind(name, _shown(inputs or outputs, types or output_types), must_equal, states=backend != "gloo")


def _together(first: Kind, second: Kind) -> Kind:
    """Return the kind of several collectives that are launched together."""
    if first == second:
        return first
    return Kind(first.name, states=first.states, coalesced=True)


def _elements(sizes: Sequence[Any]) -> int:
    return sum(prod(size) for size in _frozen(sizes))


def _shown(sizes: Sequence[Any], types: Sequence[str]) -> str:
    if not sizes:
        return ""
    return " ".join((f"{len(sizes)} tensors" if sizes[1:] else str(list(_frozen(sizes)[0])), *types[:1]))


def transfers_of(dump: Dump) -> Iterator[tuple[int, Transfer]]:
    """Yield the open transfers of a dump with the global rank of the other side, where the group's ranks are known."""
    for transfer in dump.transfers:
        if transfer.peer < len(transfer.group.ranks):
            yield transfer.group.ranks[transfer.peer], transfer
