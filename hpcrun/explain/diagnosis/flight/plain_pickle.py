"""Reads pickles of plain data: dicts, lists, pairs, text, numbers, true, false and None; and the texts in them. Pure.

A pickle is a program for Python's unpickler: it may call any function, and four bytes of it may claim gigabytes. So
the opcodes are checked first, one by one from the first to the last, and only those may be there that torch's C++
pickler writes for plain data (torch/csrc/jit/serialization/pickler.cpp). RE2 checks a run of them at once: 2,000
collectives take a millisecond.
"""

from __future__ import annotations

import io
import pickle
from functools import cache
from typing import Any, NoReturn

MOST_BYTES = 16 << 20
"""hpcrun has torch keep 2,000 collectives: their dump has about 1 MB."""
_MOST_CONTAINERS = 500_000
_MOST_PAIRS = 50_000
"""Pairs can be nested, and Python computes the hash of nested ones on the C stack: 100,000 of them still fit there."""
_PROTOCOL = b"\x80\x02"
_TEXT, _TEXT_HEADER = b"X", 5
_MEMO = rb"q.|r..[\x00-\x1f]\x00"
"""Python allocates the memo up to the largest index in it: here up to 2 million."""
_OPCODES = (
    rb"(?:h.|j....)\x86?|[(saN\x88\x89]|K.|M..|J....|G........|\x8a\x08........"
    rb"|\x8a(?:\x00|\x01.|\x02..|\x03...|\x04....|\x05.....|\x06......|\x07.......)"
    # A pair is never kept in the memo: pairs of the same pair, 40 levels deep, take forever to hash. Its second part
    # is a text: of pairs of numbers, thousands can have the same hash, and a dict of them is slow.
    rb"|[}\]ue](?:" + _MEMO + rb")?"
)
_ERRORS = (pickle.UnpicklingError, EOFError, LookupError, ValueError, TypeError, AttributeError, ArithmeticError,
           RecursionError, MemoryError)  # fmt: skip
"""What Python's unpickler raises for opcodes in a wrong order."""


class PlainPickleError(ValueError):
    """A pickle that is damaged, too large, or holds more than plain data; the message is the end of a sentence."""


def load_plain(data: bytes) -> Any:
    """Return the data of a pickle; nothing in it is called.

    Raises:
        PlainPickleError: it is something else.
    """
    if len(data) > MOST_BYTES:
        raise PlainPickleError(f"is larger than {MOST_BYTES >> 20} MB")
    # of single bytes there are as many in texts and numbers, so this is at least the number of containers and pairs
    if data.count(b"}") + data.count(b"]") > _MOST_CONTAINERS or data.count(b"\x86") > _MOST_PAIRS:
        raise PlainPickleError("has too many objects")
    _check_opcodes(data)
    try:
        return _Plain(io.BytesIO(data)).load()
    except _ERRORS as error:
        raise PlainPickleError(f"is damaged ({type(error).__name__})") from None


class _Plain(pickle.Unpickler):
    """Python's unpickler without classes and functions, if a check above should miss one."""

    def find_class(self, _module: str, _name: str, /) -> NoReturn:
        raise pickle.UnpicklingError


def _check_opcodes(data: bytes) -> None:
    if not data.startswith(_PROTOCOL):
        raise PlainPickleError("is no pickle of protocol 2")
    opcodes, memo = _compiled()
    place, size = len(_PROTOCOL), len(data)
    while place < size:
        if run := opcodes.match(data, place):
            place = run.end()
        opcode = data[place : place + 1]
        if opcode == pickle.STOP:
            return
        if opcode == _TEXT:
            place += _TEXT_HEADER + int.from_bytes(data[place + 1 : place + _TEXT_HEADER], "little")
            if place < size and (kept := memo.match(data, place)):
                place = kept.end()
        elif opcode and not run:
            raise PlainPickleError(f"has opcode {opcode!r} at byte {place}, which plain data does not have")
    raise PlainPickleError("is cut off")


@cache
def _compiled() -> tuple[Any, Any]:
    """Return the expressions of a run of opcodes, and of what keeps the text before it in the memo or ends a pair."""
    import re2

    options = re2.Options()
    options.encoding = re2.Options.Encoding.LATIN1
    options.dot_nl = True
    options.log_errors = False
    return re2.compile(rb"(?:" + _OPCODES + rb")+", options), re2.compile(rb"(?:" + _MEMO + rb")?\x86?", options)


class Texts:
    """The texts of one dump, each converted once: a hostile dump may name one of megabytes in each of its entries.

    It is of use only while the dump is there, as it knows the texts by their id.
    """

    def __init__(self) -> None:
        self._known: dict[tuple[int, int], str] = {}

    def of(self, value: Any, longest: int) -> str:
        """Return the beginning of a text, as it can be printed: a pickle can hold half characters.

        Raises:
            ValueError: it is no text.
        """
        if not isinstance(value, str):
            raise ValueError("no text")
        key = id(value), longest
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = value[:longest].encode("utf-8", "replace").decode()
        return found
