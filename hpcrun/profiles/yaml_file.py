"""Reads and saves files that users write.

Every mistake, and every value, of a YAML file can be shown with its line. A file is read by the
events of the parser, not by its constructors: so numbers and dates keep the user's spelling (an
account 0042, a version 12.10), and the result has only plain mappings, lists and scalars. A file is
saved completely or not at all, by one process at a time.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hpcrun.errors import ProfileError
from hpcrun.files.ownership import read_checked, read_open
from hpcrun.files.writing import flocked, make_folder, replace_file

if TYPE_CHECKING:
    from ruamel.yaml import YAML


Key = tuple[str, ...]

MOST_TOLD = 30
EXTEND = "+"  # "modules+: [x]" adds to the inherited list


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a value was written: a file and a line (counted from 1)."""

    path: Path
    line: int

    def __str__(self) -> str:
        return f"{self.path}:{self.line}"

    def mistake(self, text: str, key: Key = ()) -> Mistake:
        """Return a mistake in this line."""
        return Mistake(self.path, self.line, text, key)


@dataclass(frozen=True, slots=True)
class Mistake:
    """One mistake in a file."""

    path: Path
    line: int | None  # counted from 1; None for the whole file
    text: str  # the mistake, with the nearest key or the allowed values
    key: Key = ()  # the key of the value, if there is one

    def __str__(self) -> str:
        place = f"{self.path}:{self.line}" if self.line else str(self.path)
        line = f"{place}: {self.text}"
        return "".join(letter if letter.isprintable() or letter == "\n" else "?" for letter in line)


class MistakesError(ProfileError):
    """A file with mistakes in it; ``mistakes`` holds each of them."""

    def __init__(self, mistakes: Sequence[Mistake], *, hint: str | None = None) -> None:
        mistakes = sorted(mistakes, key=lambda mistake: (str(mistake.path), mistake.line or 0))
        lines = [str(mistake) for mistake in mistakes[:MOST_TOLD]]
        if len(mistakes) > MOST_TOLD:
            lines.append(f"... and {len(mistakes) - MOST_TOLD} more")
        super().__init__("\n".join(lines), hint=hint)
        self.mistakes = tuple(mistakes)


def values_in(value: Any, key: Key = ()) -> Iterator[tuple[Key, Any]]:
    """Yield a value, and all values in its sections and lists, each with its key."""
    yield key, value
    inner: Iterable[tuple[Any, Any]] = ()
    if isinstance(value, dict):
        inner = value.items()
    elif isinstance(value, list):
        inner = enumerate(value)
    for name, item in inner:
        yield from values_in(item, (*key, str(name)))


def dotted(key: Key) -> str:
    """Return a key as typed, ``gpu.type``; control characters are shown as escapes."""
    text = ".".join(key)
    return text if text.isprintable() else ascii(text)[1:-1]


MAX_BYTES = 1_000_000
WAIT_S = 10.0
"""How long to wait for a lock, which is held for the moment of reading, checking and replacing one
small file.
"""
_MAX_DEPTH = 20
_MOST_VALUES = 5000
# the core schema of YAML 1.2, plain style
_WORDS: dict[str, bool | None] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}


@dataclass(frozen=True, slots=True)
class YamlFile:
    """A mapping read from a file, and the line of every key in it."""

    path: Path
    data: dict[str, Any]  # dicts, lists, text, true, false and null
    # path of keys (and of positions in lists), such as ``("gpu", "type")`` → its file and line
    origins: dict[Key, Origin]


def read_text(path: Path) -> str:
    """Return the text of a file that users write, with its line ends.

    Raises:
        ProfileError: the file is too large, or is not text.
    """
    return _read(path, lambda: read_open(path, MAX_BYTES)[0])


def read_own_text(path: Path) -> str:
    """Return the text of a file like ``read_text``, but only of a file that others cannot write.

    Raises:
        ProfileError: another user could have written the file, or it is too large or not text.
    """
    return _read(path, lambda: read_checked(path, MAX_BYTES))


def _read(path: Path, read: Callable[[], bytes]) -> str:
    try:
        return decoded_text(read(), path)
    except PermissionError:
        hint = f"its owner can allow it: chmod a+r {shlex.quote(str(path))}"
        raise MistakesError([Mistake(path, None, "you may not read it")], hint=hint) from None
    except OSError as error:
        raise MistakesError([Mistake(path, None, str(error.strerror))]) from None


def decoded_text(raw: bytes, path: Path) -> str:
    """Return the bytes of a file as text.

    Raises:
        MistakesError: the bytes are too many, or are not UTF-8 text. It is a ProfileError.
    """
    if len(raw) > MAX_BYTES:
        raise MistakesError(
            [Mistake(path, None, f"larger than {MAX_BYTES // 1000} kB; that is not a profile")]
        )
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        text = f"not UTF-8 text ({error.reason} at byte {error.start})"
        raise MistakesError([Mistake(path, None, text)]) from None


def parse_yaml(text: str, path: Path) -> YamlFile:
    """Return one mapping in YAML 1.2 without duplicate keys, tags and aliases.

    Args:
        text: the YAML text.
        path: the file of the text, for messages.

    Raises:
        MistakesError: the text is not such a mapping; the error names the line.
    """
    from ruamel.yaml.error import MarkedYAMLError, YAMLError

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of a %YAML 1.1 directive, which changes nothing here
            return _Builder(path, iter(bounded_parser().parse(text))).build()
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        has_tab = mark is not None and "\t" in "".join(text.splitlines()[mark.line : mark.line + 1])
        mistake = Mistake(path, mark.line + 1 if mark else None, first_line(error.problem or error))
        if has_tab:
            hint = "YAML indents with spaces, not with tabs"
        else:
            hint = None
        raise MistakesError([mistake], hint=hint) from None
    except YAMLError as error:
        position = getattr(error, "position", None)  # of a character that is not allowed in YAML
        if isinstance(position, int):
            line = text.count("\n", 0, position) + 1
        else:
            line = None
        raise MistakesError([Mistake(path, line, first_line(error))]) from None
    except AssertionError as error:  # ruamel.yaml's own, of %YAML 1.3
        raise MistakesError([Mistake(path, 1, first_line(error))]) from None


def parse_plain(text: str) -> Any:
    """Return the sections, lists and texts of a YAML text, without their lines.

    Raises:
        ValueError: the text has a mistake, or is nested too deeply.
    """
    from ruamel.yaml.error import YAMLError

    try:
        return bounded_parser().load(text)
    except RecursionError:  # of nested blocks
        raise ValueError("it is nested too deeply") from None
    except YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f"line {mark.line + 1}: " if mark else ""
        raise ValueError(line + first_line(getattr(error, "problem", None) or error)) from None


def bounded_parser() -> YAML:
    """Return a parser that refuses brackets that are nested too deeply.

    The parser refuses such brackets before it has read all of them. The scanner of ruamel.yaml
    looks at all open brackets for each token: its time grows with the square of their number. Its
    kind ``base`` leaves 1e-3, 007 and true as they are written, takes two thirds of the time of
    ``rt``, which looks after comments, and has no marks of its own in folded text.
    """
    from ruamel.yaml import YAML
    from ruamel.yaml.scanner import Scanner, ScannerError

    parser = YAML(typ="base", pure=True)
    inherited: Any = parser.Scanner or Scanner

    class Bounded(inherited):  # type: ignore[misc]
        def fetch_flow_collection_start(self, TokenClass: Any, to_push: str) -> None:
            if len(self.flow_context) > _MAX_DEPTH:
                raise ScannerError(
                    None, None, "nested too deeply to be a profile", self.reader.get_mark()
                )
            super().fetch_flow_collection_start(TokenClass, to_push)

    parser.Scanner = Bounded
    return parser


def first_line(error: object) -> str:
    """Return the first line of an error of ruamel.yaml."""
    return next(iter(str(error).strip().splitlines()), "not YAML")


class _Builder:
    """Builds plain data from one file's parser events, noting the line of every key."""

    def __init__(self, path: Path, events: Iterator[Any]) -> None:
        self.path = path
        self.events = events
        self.origins: dict[Key, Origin] = {}
        self.values = 0

    def build(self) -> YamlFile:
        data: Any = None
        documents = 0
        for event in self.events:
            kind = type(event).__name__
            if kind == "DocumentStartEvent":
                documents += 1
                if documents > 1:
                    raise self._error(event, "a second YAML document", "write one profile per file")
                first = next(self.events)
                data = self._value(first, ())
                if not isinstance(data, dict | None):
                    raise self._error(
                        first, "keys and values were expected, such as 'partition: gpu'"
                    )
        return YamlFile(self.path, data or {}, self.origins)

    def _value(self, event: Any, key: Key) -> Any:
        kind = type(event).__name__
        if kind == "AliasEvent" or event.anchor is not None:
            raise self._error(
                event,
                "anchors and aliases (& and *) are not read",
                "write the value out, or use extends",
            )
        if event.tag is not None:
            raise self._error(
                event, f"the YAML tag {event.tag!r} is not allowed", "write the plain value"
            )
        if len(key) > _MAX_DEPTH:
            raise self._error(event, "nested too deeply to be a profile")
        self.values += 1
        if self.values > _MOST_VALUES:
            raise self._error(event, f"more than {_MOST_VALUES} values: that is not a profile")
        if kind == "MappingStartEvent":
            return self._mapping(key)
        if kind == "SequenceStartEvent":
            return self._list(key)
        plain = not event.style
        if plain and event.value in _WORDS:
            return _WORDS[event.value]
        return event.value

    def _mapping(self, key: Key) -> dict[str, Any]:
        section: dict[str, Any] = {}
        for event in self.events:
            if type(event).__name__ == "MappingEndEvent":
                break
            if type(event).__name__ != "ScalarEvent":
                raise self._error(event, "a key must be text")
            name = event.value
            if name == "<<" and not event.style:
                raise self._error(event, "merge keys (<<) are not read", "use extends")
            if name in section:
                raise self._error(event, f"the key {name!r} appears twice here")
            inner = (*key, name)
            self.origins[inner] = self._origin(event)
            section[name] = self._value(next(self.events), inner)
        return section

    def _list(self, key: Key) -> list[Any]:
        items: list[Any] = []
        for event in self.events:
            if type(event).__name__ == "SequenceEndEvent":
                break
            inner = (*key, str(len(items)))
            self.origins[inner] = self._origin(event)
            items.append(self._value(event, inner))
        return items

    def _error(self, event: Any, message: str, hint: str | None = None) -> MistakesError:
        return MistakesError([self._origin(event).mistake(message)], hint=hint)

    def _origin(self, event: Any) -> Origin:
        return Origin(self.path, event.start_mark.line + 1)


_PLAIN = re.compile(r"[\w./=+~^%$@-][\w./=+~^%$@:*-]*(?: [\w./=+~^%$@:*-]+)*")
_TAKEN = re.compile(r"~|null|true|false", re.IGNORECASE)


def flow(value: Any) -> str:
    """Return a value on one line, quoted if YAML would read it as something else."""
    if value is None or isinstance(value, bool):
        return json.dumps(value)
    if isinstance(value, dict):
        return (
            "{"
            + ", ".join(f"{flow(str(name))}: {flow(item)}" for name, item in value.items())
            + "}"
        )
    if isinstance(value, list | tuple):
        return "[" + ", ".join(flow(item) for item in value) + "]"
    text = str(value)
    plain = _PLAIN.fullmatch(text) and not _TAKEN.fullmatch(text) and not text.endswith(":")
    if plain and not re.match(r"[-=%@](?: |$)|@|%|---|<<|\.\.\.", text) and ": " not in text:
        return text
    return '"' + "".join(map(_escaped, text)) + '"'


def _escaped(char: str) -> str:
    if char in '\\"\n\t':
        return {"\n": "\\n", "\t": "\\t"}.get(char, f"\\{char}")
    code = ord(char)  # the joiners of Persian, Hindi and emoji stay
    if char.isprintable() or char in "\u200c\u200d":
        return char
    if code > 0xFFFF:
        return f"\\U{code:08x}"
    return f"\\u{code:04x}"


# --- positions -----------------------------------------------------------------------------------


@contextmanager
def locked(lock: Path) -> Iterator[None]:
    """Hold the lock of a user's files.

    Raises:
        ProfileError: another program holds the lock for longer than a change takes.
    """
    with ExitStack() as held:
        with saving(lock):
            make_folder(lock.parent)
            is_free = held.enter_context(flocked(lock, WAIT_S))
        if not is_free:
            raise ProfileError(
                "the profile or configuration is being changed by another program",
                hint="try again when it has ended",
            )
        yield


def replace_text(path: Path, text: str, mode: int = 0o644) -> None:
    """Replace a file, or make it, or raise ProfileError: then the old file has not changed.

    Its permissions stay, and a link still points to it. The umask reduces the mode of a new file:
    hpcrun would not use one that other users can write.
    """
    with saving(path):
        path = path.resolve()
        make_folder(path.parent)
        replace_file(path, text, mode=mode, keep_mode=True)


@contextmanager
def saving(path: Path) -> Iterator[None]:
    """Turn an error of the file system into a message with the state of the file.

    Raises:
        ProfileError: the file cannot be saved; the message says whether the file is unchanged.
    """
    try:
        yield
    except OSError as error:
        became = "; the file is unchanged" if os.path.exists(path) else ""
        raise ProfileError(
            f"{path} cannot be saved: {error.strerror}{became}",
            hint=f"see who may write to {path.parent} (ls -ld) and whether there is space (df)",
        ) from None
