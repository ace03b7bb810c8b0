"""The dump of one rank by torch's flight recorder. Pure.

The dump has the last collectives that the rank called, each group's in a row.

The format is the format of torch's FlightRecorder.hpp, versions 1 and 2 (torch 2.2 to 2.13), of
NCCL or gloo, as a pickle. It has no rank: the name of the file tells whose it is.

A pickle is a program for Python's unpickler: it may call any function, and four bytes of it may
claim gigabytes. So the opcodes are checked first, one by one from the first to the last, and only
those may be there that torch's C++ pickler writes for plain data
(torch/csrc/jit/serialization/pickler.cpp). RE2 checks a run of them at once: 2,000 collectives take
a millisecond. A hostile dump may also name the same object in all of its entries: so each object is
converted once, and every entry takes about the same time, whatever is in it.
"""

from __future__ import annotations

import io
import pickle
import re
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import chain, islice
from typing import Any, NoReturn

from hpcrun.explain.diagnosis.flight_calls import (
    LARGEST,
    Calls,
    CollectiveCall,
    Dump,
    Kind,
    ProcessGroup,
    Sizes,
    Transfer,
    make_kind,
)
from hpcrun.explain.diagnosis.traceback import Frame

MOST_BYTES = 16 << 20
"""hpcrun has torch keep 2,000 collectives: their dump has about 1 MB."""
_MOST_CONTAINERS = 500_000
_MOST_PAIRS = 50_000
"""Pairs can be nested, and Python computes the hash of nested ones on the C stack: 100,000 of them
still fit there.
"""
_PROTOCOL = b"\x80\x02"
_TEXT = b"X"
_TEXT_HEADER = 5
_MEMO = rb"q.|r..[\x00-\x1f]\x00"
"""Python allocates the memo up to the largest index in it: here up to 2 million."""
_OPCODES = (
    rb"(?:h.|j....)\x86?|[(saN\x88\x89]|K.|M..|J....|G........|\x8a\x08........"
    rb"|\x8a(?:\x00|\x01.|\x02..|\x03...|\x04....|\x05.....|\x06......|\x07.......)"
    # A pair is never kept in the memo: pairs of the same pair, 40 levels deep, take forever to
    # hash. Its second part is a text: of pairs of numbers, thousands can have the same hash, and a
    # dict of them is slow.
    rb"|[}\]ue](?:" + _MEMO + rb")?"
)
_ERRORS = (
    pickle.UnpicklingError,
    EOFError,
    LookupError,
    ValueError,
    TypeError,
    AttributeError,
    ArithmeticError,
    RecursionError,
    MemoryError,
)
"""What Python's unpickler raises for opcodes in a wrong order."""
_MOST_KEPT = 200
"""Calls that are kept, per rank and group: a rank may be this far ahead of another one, and its
line is still known.
"""
_MOST_ENTRIES = 50_000
_MOST_FRAMES = 200
_MOST_GROUPS = 256
_LONGEST_TEXT = 4096
_LONGEST_CALLED = 200
"""Characters of a text, and of the name of a collective or a type, that are read."""
_ABOVE_RANKS = 10_000_000
_MOST_MEMBERS = 200_000
_MOST_OF_ALL_GROUPS = 8 << 20
"""No job has more ranks than the first; the members of all groups of all dumps that are kept."""
_MOST_NESTED = 16
"""Tensors and dimensions of a collective that are read."""
_P2P = re.compile(r"(?P<what>send|recv) (?P<rank>\d{1,6})(?:->|<-)(?P<peer>\d{1,6})")
_NUMBER = re.compile(r"\d{1,7}")
_COMPLETED = "completed"
_COALESCED = "coalesced"
"""The entry that ends a group of calls which NCCL launches together: only it shows that they have
ended.
"""
_OF_C = (".c", ".cc", ".cpp", ".cu", ".h", ".hpp", ".so", "??")
"""The ends of the files of C++ frames, which TORCH_FR_CPP_STACK adds."""
_OF_TORCH = "/torch/distributed/"
_NOT_NAMED = ("", "undefined")
Entry = dict[str, Any]


class DumpError(ValueError):
    """No dump of the flight recorder, or a damaged one; the message is the end of a sentence."""


class DumpReader:
    """Reads the dumps of a job's ranks.

    The members of groups that several dumps have in common are kept once.
    """

    def __init__(self) -> None:
        self._members: dict[str | tuple[int, ...], tuple[int, ...]] = {}
        self._members_left = _MOST_OF_ALL_GROUPS

    def read(self, data: bytes) -> Dump:
        """Return what a dump has.

        Raises:
            DumpError: it is damaged, or something else.
        """
        loaded = load_plain(data)
        known = isinstance(loaded, dict) and ("entries" in loaded or "version" in loaded)
        entries = loaded.get("entries", []) if known else None
        if not isinstance(entries, list):
            raise DumpError("is no dump of torch's flight recorder")
        try:
            return _EntryReader(self, loaded.get("pg_config")).read(entries[-_MOST_ENTRIES:])
        except (
            AttributeError,
            TypeError,
            ValueError,
            LookupError,
            OverflowError,
            RecursionError,
        ) as error:
            raise DumpError(f"is no dump that hpcrun knows ({type(error).__name__})") from None

    def members(self, listed: Any) -> tuple[int, ...]:
        """Return the members of a group in a text or a list, each once; none of anything else.

        Raises:
            ValueError: there are more than a job can have.
        """
        numbers: Iterator[int] = iter(())
        if isinstance(listed, str):
            if listed in self._members:
                return self._members[listed]
            numbers = (int(match[0]) for match in _NUMBER.finditer(listed))
        elif isinstance(listed, list):
            numbers = (rank for rank in listed if type(rank) is int and 0 <= rank < _ABOVE_RANKS)
        ranks = list(islice(numbers, _MOST_MEMBERS + 1))
        self._members_left -= len(ranks)
        if len(ranks) > _MOST_MEMBERS or self._members_left < 0:
            raise ValueError("too many ranks")
        distinct = tuple(dict.fromkeys(ranks))
        members = self._members.setdefault(distinct, distinct)
        if isinstance(listed, str):
            self._members[listed] = members
        return members


class _EntryReader:
    """Reads the entries of one dump.

    It knows objects by their id, so it is of use only while the dump is there.
    """

    def __init__(self, shared: DumpReader, config: Any) -> None:
        self._shared = shared
        self._config = config if isinstance(config, dict) else {}
        self._texts: dict[tuple[int, int], str] = {}
        self._members: dict[int, tuple[int, ...]] = {}
        self._places: dict[int, Frame | None] = {}

    def read(self, entries: Sequence[Entry]) -> Dump:
        groups: dict[tuple[str, str], tuple[ProcessGroup, Calls]] = {}
        calls: dict[ProcessGroup, Calls] = {}
        transfers: dict[tuple[tuple[str, str], int | None], list[Transfer]] = {}
        last: tuple[ProcessGroup, int] | None = None
        for names, entry in _newest(entries):
            if names not in groups:
                group = self._group(*names)
                groups[names] = group, calls.setdefault(group, Calls())
                if len(groups) > _MOST_GROUPS:
                    raise ValueError("too many groups")
            group, its_calls = groups[names]
            written = self._text(entry["profiling_name"], _LONGEST_CALLED)
            what = written.rpartition(":")[2]
            place = self._own_place(entry.get("frames"))
            done = entry.get("state") == _COMPLETED
            p2p = _P2P.fullmatch(what)
            if p2p:
                if not done:
                    transfer = Transfer(group, p2p["what"], int(p2p["peer"]), place)
                    transfers.setdefault((names, _number(entry, "p2p_seq_id")), []).append(transfer)
            elif entry.get("is_p2p"):
                if what == _COALESCED and done:
                    transfers.pop((names, _number(entry, "p2p_seq_id")), None)
            else:
                number = _whole(
                    entry["collective_seq_id"] if "collective_seq_id" in entry else entry["seq_id"]
                )
                created_s = _created_s(entry)
                timeout_s = _whole(entry.get("timeout_ms") or 0) / 1e3
                its_calls.add(
                    CollectiveCall(
                        number, self._kind(written, entry), place, created_s, timeout_s, done
                    )
                )
                last = group, number
        first = entries[0] if entries else {}
        called = {group: mine for group, mine in calls.items() if mine}
        open_ones = tuple(chain.from_iterable(transfers.values()))
        return Dump(
            called, open_ones, last, _created_s(first), whole=first.get("record_id", 0) == 0
        )

    def _text(self, value: Any, longest: int = _LONGEST_TEXT) -> str:
        """Return the beginning of a text, as it can be printed.

        A pickle can hold half characters.

        Raises:
            ValueError: if the value is not a text.
        """
        if not isinstance(value, str):
            raise ValueError("no text")
        key = id(value), longest
        if key not in self._texts:
            self._texts[key] = value[:longest].encode("utf-8", "replace").decode()
        return self._texts[key]

    def _group(self, name: str, description: str) -> ProcessGroup:
        configured = self._config.get(name)
        if isinstance(configured, dict):
            listed = configured.get("ranks")
        else:
            listed = None
        if id(listed) not in self._members:  # several groups may name the same list
            self._members[id(listed)] = self._shared.members(listed)
        described = "" if description in _NOT_NAMED else self._text(description)
        return ProcessGroup(self._text(name), described, self._members[id(listed)])

    def _kind(self, written: str, entry: Entry) -> Kind:
        types, out_types = (
            tuple(self._text(one, _LONGEST_CALLED) for one in (entry.get(name) or ())[:1])
            for name in ("input_dtypes", "output_dtypes")
        )
        return make_kind(
            written,
            _sizes(entry.get("input_sizes")),
            _sizes(entry.get("output_sizes")),
            types,
            out_types,
        )

    def _own_place(self, frames: Any) -> Frame | None:
        """Return the innermost frame in the user's own code."""
        for frame in islice(frames or (), _MOST_FRAMES):
            if id(frame) not in self._places:
                self._places[id(frame)] = self._own_frame(frame)
            place = self._places[id(frame)]
            if place is not None:
                return place
        return None

    def _own_frame(self, frame: Entry) -> Frame | None:
        place = Frame(
            self._text(frame["filename"]), _whole(frame["line"]), self._text(frame["name"])
        )
        is_own = (
            place.in_user_code and not place.file.endswith(_OF_C) and _OF_TORCH not in place.file
        )
        return place if is_own else None


def _newest(entries: Sequence[Entry]) -> list[tuple[tuple[str, str], Entry]]:
    """Return the newest entries of each group in their order.

    Each entry has the name and the description of its group.
    """
    counts: dict[tuple[str, str], int] = {}
    newest: list[tuple[tuple[str, str], Entry]] = []
    for entry in reversed(entries):
        names = _group_names(entry)
        counts[names] = counts.get(names, 0) + 1
        if counts[names] <= _MOST_KEPT:
            newest.append((names, entry))
    newest.reverse()
    return newest


def _group_names(entry: Entry) -> tuple[str, str]:
    """Return the name and the description of an entry's group.

    Both are texts, as the hash of a nested pair takes long.

    Raises:
        ValueError: if one of the two is not a text.
    """
    name, description = entry.get("process_group") or (str(_number(entry, "pg_id")), "")
    if not (isinstance(name, str) and isinstance(description, str)):
        raise ValueError("no group")
    return name, description


def _created_s(entry: Entry) -> float:
    return _whole(entry.get("time_created_ns") or 0) / 1e9


def _number(entry: Entry, name: str) -> int | None:
    """Return a number of an entry that may have none."""
    return None if entry.get(name) is None else _whole(entry[name])


def _whole(number: Any) -> int:
    if not isinstance(number, int) or abs(number) > LARGEST:
        raise ValueError("no number")
    return number


def _sizes(listed: Any) -> tuple[int, Sizes]:
    """Return the number of tensors, and the sizes of the first of them.

    The sizes are checked to be numbers, before a hash of them is computed.

    Raises:
        ValueError: if a size is not a number in the valid range.
    """
    if not listed:
        return 0, ()
    sizes = tuple(tuple(size[:_MOST_NESTED]) for size in listed[:_MOST_NESTED])
    if any(
        type(number) is not int or not 0 <= number <= LARGEST for size in sizes for number in size
    ):
        raise ValueError("sizes that are no numbers")
    return len(listed), sizes


def load_plain(data: bytes) -> Any:
    """Return the data of a pickle; nothing in it is called.

    Raises:
        DumpError: it is something else.
    """
    if len(data) > MOST_BYTES:
        raise DumpError(f"is larger than {MOST_BYTES >> 20} MB")
    # of single bytes there are as many in texts and numbers, so this is at least the number of
    # containers and pairs
    if data.count(b"}") + data.count(b"]") > _MOST_CONTAINERS or data.count(b"\x86") > _MOST_PAIRS:
        raise DumpError("has too many objects")
    _check_opcodes(data)
    try:
        return _Plain(io.BytesIO(data)).load()
    except _ERRORS as error:
        raise DumpError(f"is damaged ({type(error).__name__})") from None


class _Plain(pickle.Unpickler):
    """Python's unpickler without classes and functions, if a check above should miss one."""

    def find_class(self, _module: str, _name: str, /) -> NoReturn:
        raise pickle.UnpicklingError


def _check_opcodes(data: bytes) -> None:
    if not data.startswith(_PROTOCOL):
        raise DumpError("is no pickle of protocol 2")
    opcodes, memo = _compiled()
    place = len(_PROTOCOL)
    size = len(data)
    while place < size:
        run = opcodes.match(data, place)
        if run:
            place = run.end()
        opcode = data[place : place + 1]
        if opcode == pickle.STOP:
            return
        if opcode == _TEXT:
            place += _TEXT_HEADER + int.from_bytes(data[place + 1 : place + _TEXT_HEADER], "little")
            if place < size and (kept := memo.match(data, place)):
                place = kept.end()
        elif opcode and not run:
            raise DumpError(
                f"has opcode {opcode!r} at byte {place}, which plain data does not have"
            )
    raise DumpError("is cut off")


@cache
def _compiled() -> tuple[Any, Any]:
    """Return two compiled expressions for the opcodes of a dump.

    The first matches a run of opcodes. The second matches what keeps the text before it in the
    memo, or ends a pair.
    """
    import re2

    options = re2.Options()
    options.encoding = re2.Options.Encoding.LATIN1
    options.dot_nl = True
    options.log_errors = False
    return re2.compile(rb"(?:" + _OPCODES + rb")+", options), re2.compile(
        rb"(?:" + _MEMO + rb")?\x86?", options
    )
