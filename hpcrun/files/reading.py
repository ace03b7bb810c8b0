"""Reading files that a job, another version of hpcrun or another person may have written.

Only regular files are opened: a FIFO would block, a device may have no end. A record is small, one
JSON object, not nested deeply, with finite numbers, and each of its fields has the type that a
table says: no caller has to check it.
"""

from __future__ import annotations

import errno
import json
import math
import os
import re
import stat
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import MISSING, fields
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO

from hpcrun.files.foreign_folder import (
    LARGEST,
    is_foreign,
    names_in_foreign,
    opened_parent,
    parts_below,
)

MOST_RECORD = 1 << 20
"""How many bytes a record may have, unless its reader says otherwise."""
_DEEPEST = 40
"""How deep the objects and lists of a record may be nested.

Python's own functions fail at about a thousand levels.
"""
_MOST_DIGITS = 40
_HEAD_BYTES = 65536
"""How much of a file its beginning is."""
_LATEST_S = 1e11
"""Times are seconds since the epoch, up to about the year 5100: datetime(3) ends with the year
9999.
"""
# Lone surrogates that do not stand for an undecodable byte (PEP 383): nothing can print them.
_UNPRINTABLE = re.compile("[\ud800-\udc7f\udd00-\udfff]")

_FLAGS = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC

Kind = Callable[[Any], Any]
"""Returns a value as it is used; raises ValueError with the end of a sentence: ``is not text``."""


class NotRegularError(OSError):
    """A path that leads to something other than a regular file.

    The path leads to a folder, a FIFO, a device or a socket, or to a link where none is allowed.
    """


def open_regular(path: Path | str, *, links: bool = True) -> BinaryIO:
    """Open a regular file for reading, as :func:`open_descriptor` does."""
    return open(open_descriptor(path, links=links), "rb")


def open_descriptor(path: Path | str, *, links: bool = True) -> int:
    """Open a regular file for reading; never wait, and never touch anything else.

    Args:
        path: the file to open.
        links: a symbolic link is followed.

    Returns:
        the descriptor. Python's own file on a descriptor costs three more system calls.

    Raises:
        NotRegularError: the path leads to something else.
        OSError: the file is not there, or cannot be read.
    """
    if is_foreign(path):
        return _open_foreign(path)
    flags = _FLAGS
    if links:
        _check_mode(os.stat(path).st_mode, path)  # before: to open a device can do something to it
    else:
        flags |= os.O_NOFOLLOW
    return _open(path, path, flags)


def _open_foreign(path: Path | str) -> int:
    """Open a regular file of limited size, by a way without links.

    Raises:
        OSError: as of :func:`open_descriptor`, or the file is larger.
    """
    name = parts_below(path)[-1]
    with opened_parent(path) as parent:
        status = os.stat(name, dir_fd=parent, follow_symlinks=False)
        if not stat.S_ISLNK(status.st_mode):
            _check_mode(status.st_mode, path)
        descriptor = _open(name, path, _FLAGS | os.O_NOFOLLOW, parent)
    if os.fstat(descriptor).st_size > LARGEST:
        os.close(descriptor)
        raise OSError(errno.EFBIG, f"is larger than {LARGEST} bytes", str(path))
    return descriptor


def _open(name: Path | str, path: Path | str, flags: int, parent: int | None = None) -> int:
    try:
        descriptor = os.open(name, flags, dir_fd=parent)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENXIO):  # ENXIO: a socket
            what = "is a symbolic link" if error.errno == errno.ELOOP else "is not a regular file"
            raise NotRegularError(error.errno, what, str(path)) from None
        raise
    try:
        _check_mode(os.fstat(descriptor).st_mode, path)
        return descriptor
    except BaseException:
        os.close(descriptor)
        raise


def _check_mode(mode: int, path: Path | str) -> None:
    if not stat.S_ISREG(mode):
        raise NotRegularError(errno.EINVAL, "is not a regular file", str(path))


def list_folder(folder: Path | str) -> list[str]:
    """Return the names in a folder.

    Raises:
        OSError: it is no folder, cannot be read, or is behind a link of a foreign folder.
    """
    if is_foreign(folder):
        return names_in_foreign(folder)
    return os.listdir(folder)


def walk_folder(folder: Path) -> Iterator[tuple[str, list[str], list[str]]]:
    """Yield path, folders and files of each folder at and below a folder, as os.walk does.

    Links to folders are not followed; nothing is below the link of a foreign folder.
    """
    if not is_foreign(folder):
        yield from os.walk(folder)
        return
    name = parts_below(folder)[-1]
    with suppress(OSError), opened_parent(folder) as parent:
        for place, folders, files, _ in os.fwalk(name, dir_fd=parent):
            yield os.path.join(folder.parent, place), folders, files


def read_bytes(path: Path | str, most: int = MOST_RECORD, *, links: bool = False) -> bytes:
    """Return the content of a small regular file.

    Args:
        path: the file to read.
        most: how many bytes the file may have.
        links: a symbolic link is followed.

    Raises:
        NotRegularError: the path leads to something else.
        OSError: the file is larger, is not there, or cannot be read.
    """
    with open_regular(path, links=links) as file:
        data = file.read(most + 1)
    if len(data) > most:
        raise OSError(errno.EFBIG, f"is larger than {most} bytes", str(path))
    return data


def read_end(path: Path | str, most: int) -> bytes:
    """Return the last bytes of a regular file, at most so many; no symbolic link is followed.

    Raises:
        NotRegularError: the path leads to something else.
        OSError: the file is not there, or cannot be read.
    """
    with open_regular(path, links=False) as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - most))
        return file.read(most)


def read_text(path: Path | str, most: int = MOST_RECORD) -> str:
    """Return the text of a small regular file; undecodable bytes show as U+FFFD.

    Raises:
        OSError: as of :func:`read_bytes`.
    """
    return read_bytes(path, most).decode("utf-8", "replace")


def read_named_text(path: Path | str, most: int) -> str:
    """Return the text of a file that a person names; a link is followed.

    The text is UTF-8, with or without a byte order mark.

    Args:
        path: the file to read.
        most: how many bytes the file may have.

    Raises:
        ValueError: the file cannot be read, is larger, or is no text; the message names the file.
    """
    try:
        return decode_named(path, read_bytes(path, most, links=True))
    except NotRegularError as error:
        raise ValueError(f"{path} {error.strerror}") from None
    except OSError as error:
        if error.errno == errno.EFBIG:
            raise ValueError(f"{path} is larger than {most / 1_000_000:g} MB") from None
        raise ValueError(f"cannot read {path}: {error.strerror}") from None


def decode_named(name: Path | str, data: bytes) -> str:
    """Return the text of what a person names: UTF-8, with or without a byte order mark.

    Raises:
        ValueError: the data are no text; the message has the name.
    """
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(
            f"{name} is no UTF-8 text ({error.reason} at byte {error.start})"
        ) from None


def file_head(path: Path) -> bytes:
    """Return the beginning of a regular file; empty if the file cannot be read."""
    try:
        with open_regular(path) as file:
            return file.read(_HEAD_BYTES)
    except (OSError, ValueError):
        return b""


def file_text(path: Path) -> str:
    """Return the beginning of a file as text; empty if the file cannot be read."""
    return file_head(path).decode("utf-8", "replace")


def parse_object(text: str | bytes, *, finite: bool = True, strict: bool = True) -> dict[str, Any]:
    """Read one JSON object.

    Args:
        text: the JSON text; bytes are decoded as UTF-8.
        finite: refuse NaN and infinite numbers.
        strict: refuse control characters in strings.

    Raises:
        ValueError: the text is something else, is nested too deeply, or holds a number that is too
            large.
    """
    reading: dict[str, Any] = {"parse_int": _whole_number}
    if finite:
        reading |= {"parse_float": _finite_number, "parse_constant": _finite_number}
    if isinstance(text, bytes):
        text = text.decode()
    try:
        data = json.loads(text, strict=strict, **reading)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    if not isinstance(data, dict):
        raise ValueError("not a JSON object")
    _check_depth(data)
    if r"\ud" in text or r"\uD" in text:
        printable: dict[str, Any] = _printable(data)
        return printable
    return data


def read_object(
    path: Path | str, most: int = MOST_RECORD, *, strict: bool = True
) -> dict[str, Any]:
    """Return the JSON object in a small regular file.

    Raises:
        OSError, ValueError: as of :func:`read_bytes` and :func:`parse_object`.
    """
    return parse_object(read_text(path, most), strict=strict)


def _whole_number(text: str) -> int:
    if len(text) > _MOST_DIGITS:
        raise ValueError(f"a number of {len(text)} digits")
    return int(text)


def _finite_number(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text[:_MOST_DIGITS]} is no finite number")
    return number


_NESTED = (dict, list)  # a union would be made anew for each of thousands of values


def _check_depth(data: Any) -> None:
    level = [data]
    for _ in range(_DEEPEST):
        inner = [item.values() if isinstance(item, dict) else item for item in level]
        level = [value for value in chain.from_iterable(inner) if isinstance(value, _NESTED)]
        if not level:
            return
    raise ValueError("it is nested too deeply")


def _printable(value: Any) -> Any:
    if isinstance(value, str):
        return _UNPRINTABLE.sub("\ufffd", value)
    if isinstance(value, list):
        return [_printable(item) for item in value]
    if isinstance(value, dict):
        return {_printable(name): _printable(item) for name, item in value.items()}
    return value


def read_fields(
    data: Mapping[str, Any], kinds: Mapping[str, Kind], needed: Collection[str] = ()
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the fields of a record that a table knows, checked, and the others as they are.

    Args:
        data: the fields of the record.
        kinds: the table: field → function that checks the value.
        needed: fields that must be there.

    Raises:
        ValueError: a field is missing, or of the wrong type; the message names the field.
    """
    missing = [name for name in needed if name not in data]
    if missing:
        raise ValueError(f"it has no {', '.join(missing)}")
    known = {}
    unknown = {}
    for name, value in data.items():
        kind = kinds.get(name)
        if kind is None:
            unknown[name] = value
            continue
        try:
            known[name] = kind(value)
        except ValueError as error:
            raise ValueError(f"its field {name} {error}") from None
    return known, unknown


def kinds_of(record: type, *, integer: Kind, real: Kind, **others: Kind) -> dict[str, Kind]:
    """Return the kinds of a dataclass's fields, by the types that the fields are declared with.

    The table holds text, flags and numbers.

    Args:
        record: the dataclass; its module postpones the evaluation of annotations (PEP 563).
        integer: the kind of its integers.
        real: the kind of its floats.
        others: field → kind, of the fields whose types do not tell.
    """
    by_type = {"str": text, "bool": flag, "int": integer, "float": real}
    kinds = {}
    for each in fields(record):
        name, _, none = str(each.type).partition(" | ")
        kind = by_type.get(name)
        if each.name in others:
            kinds[each.name] = others[each.name]
        elif kind is not None:
            kinds[each.name] = optional(kind) if none else kind
    return kinds


def needs_of(record: type) -> tuple[str, ...]:
    """Return the fields of a dataclass that have no default."""
    names = []
    for each in fields(record):
        if each.default is MISSING and each.default_factory is MISSING:
            names.append(each.name)
    return tuple(names)


def text(value: Any) -> str:
    """Take text without NUL, which no path and no argument can hold.

    Raises:
        ValueError: the value is not text, or contains NUL.
    """
    if not isinstance(value, str) or "\0" in value:
        raise ValueError("is not text")
    return value


def matching(pattern: str, what: str) -> Kind:
    """Take text that a regular expression describes whole."""
    compiled = re.compile(pattern)

    def kind(value: Any) -> str:
        if not isinstance(value, str) or compiled.fullmatch(value) is None:
            raise ValueError(f"is not {what}")
        return value

    return kind


def whole(least: int = 0, most: int = 10**9) -> Kind:
    """Take an integer in a range."""

    def kind(value: Any) -> int:
        if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
            raise ValueError(f"is not a whole number from {least} to {most}")
        return value

    return kind


def number(value: Any) -> float:
    """Take a finite number.

    Raises:
        ValueError: the value is no number, is not finite, or is too large.
    """
    if not isinstance(value, int | float) or isinstance(value, bool) or not abs(value) < 1e300:
        raise ValueError("is not a number")
    return value


def hours(value: Any) -> float:
    """Take a number of hours.

    Raises:
        ValueError: the value is no number, or is negative.
    """
    if number(value) < 0:
        raise ValueError("is not a number of hours")
    return float(value)


def time_s(value: Any) -> float:
    """Take a time: seconds since the epoch.

    Raises:
        ValueError: the value is no number, is negative, or is too late.
    """
    if not 0 <= number(value) <= _LATEST_S:
        raise ValueError("is not a time")
    return float(value)


def flag(value: Any) -> bool:
    """Take true or false.

    Raises:
        ValueError: the value is neither of them.
    """
    if not isinstance(value, bool):
        raise ValueError("takes true or false")
    return value


def optional(kind: Kind) -> Kind:
    """Take null too."""
    return lambda value: None if value is None else kind(value)


def one_of(*words: str) -> Kind:
    """Take one of some words."""
    return matching("|".join(map(re.escape, words)), f"one of {', '.join(words)}")


_LISTS = (list, tuple)


def list_of(kind: Kind) -> Kind:
    """Take a list of such values."""

    def read(value: Any) -> list[Any]:
        if not isinstance(value, _LISTS):
            raise ValueError("is not a list")
        return [kind(item) for item in value]

    return read


def pair(value: Any) -> list[str]:
    """Take a list of two texts: a name and its value.

    Raises:
        ValueError: the value is not a list of two texts.
    """
    if not isinstance(value, _LISTS) or len(value) != 2:
        raise ValueError("is not a pair of texts")
    return [text(value[0]), text(value[1])]


def table(kinds: Mapping[str, Kind] | None = None, needed: Collection[str] = ()) -> Kind:
    """Take an object with such fields; unknown ones stay as they are."""

    def read(value: Any) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise ValueError("is not an object")
        known, unknown = read_fields(value, kinds or {}, needed)
        return {**known, **unknown}

    return read
