r"""Regular expressions that users write for lines of logs, matched in linear time.

The time of a match grows only linearly with the line. Python's ``re`` tries every way to match:
``(a+)+$`` takes hours for a line of 40 characters. So RE2 (https://github.com/google/re2) compiles
these expressions. RE2 has no look-around and no back-references; hpcrun needs neither. The syntax
is Python's without these; ``\w``, ``\d``, ``\s`` and ``\b`` match ASCII only, and ``\pL`` is any
letter.

hpcrun imports RE2 when the first expression is compiled: ``submit`` and most calls of ``status`` do
not need RE2.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from itertools import islice
from typing import Any

_MOST_CHARACTERS = 20_000
_MOST_MEMORY = 4 << 20
"""Bytes that one expression may use: with RE2's default, 8 MiB, the shipped rules would use 500 MB.
"""
_LINES_AT_ONCE = 512


class PatternError(ValueError):
    """A text that is not a regular expression, or one that cannot be matched in linear time."""


@dataclass(frozen=True, slots=True)
class Match:
    """The match of a pattern in a line."""

    # the text of each group, the first has number 1; None for a group that matched nothing
    groups: tuple[str | None, ...]
    named: Mapping[str, str | None]  # the same for the groups with names


@dataclass(frozen=True, slots=True)
class Pattern:
    """A regular expression, compiled at its first use: ``compile_pattern`` checks it."""

    text: str  # as the user wrote it

    @property
    def groups(self) -> int:
        """The number of groups."""
        return int(_of_line(self.text).groups)

    def search(self, line: str) -> Match | None:
        """Find the expression anywhere in a line; the end of the line is not part of it."""
        match = _of_line(self.text).search(_encode(line.removesuffix("\n")))
        if match is None:
            return None
        groups = tuple(map(_decode, match.groups()))
        named = {name: groups[number - 1] for name, number in _names(self.text).items()}
        return Match(groups, named)

    def is_in(self, line: str) -> bool:
        """Return whether the expression is found anywhere in a line."""
        return _of_line(self.text).search(_encode(line.removesuffix("\n"))) is not None

    def may_be_in(self, text: str) -> bool:
        """Return whether the expression may be found in a line of a text: false is certain.

        One call for many lines.
        """
        of_lines = _of_lines(self.text)
        return of_lines is None or of_lines.search(_encode(text)) is not None

    def filter(self, lines: Iterable[tuple[str, str]]) -> Iterator[str]:
        """Yield the lines that match; each comes with its text to search.

        One call for many lines: calls take long.
        """
        listed = iter(lines)
        while batch := list(islice(listed, _LINES_AT_ONCE)):
            text = "\n".join(searched.removesuffix("\n") for _, searched in batch)
            if not self.may_be_in(text):
                continue
            for line, searched in batch:
                if self.is_in(searched):
                    yield line


def _encode(text: str) -> bytes:
    # a byte that is no text, kept as a lone surrogate, becomes a "?"
    return text.encode("utf-8", "replace")


def _decode(group: bytes | None) -> str | None:
    return None if group is None else group.decode("utf-8", "replace")


def compile_pattern(text: str) -> Pattern:
    """Return a regular expression to search with.

    Raises:
        PatternError: the text is no regular expression, is too long, or needs more than linear
            time.
    """
    import re2  # takes 7 ms: import it only if there is an expression

    if len(text) > _MOST_CHARACTERS:
        raise PatternError(
            f"an expression of {len(text)} characters is too long; the most is {_MOST_CHARACTERS}"
        )
    if re.search(r"(?<!\\)\{,\d+\}", text):  # for RE2, these characters themselves
        raise PatternError("write {0,N} in place of {,N}")
    try:
        _of_line(text)
    except re2.error as error:
        reason = error.args[0] if error.args else b""
        if isinstance(reason, bytes):
            reason = reason.decode("utf-8", "replace")
        raise PatternError(
            f"RE2 refuses it: {reason} (docs/explain.md, Regular expressions)"
        ) from None
    return Pattern(text)


@cache
def _of_line(text: str) -> Any:
    import re2

    options = re2.Options()
    options.log_errors = False
    options.max_mem = _MOST_MEMORY
    return re2.compile(_encode(text), options)


@cache
def _names(text: str) -> dict[str, int]:
    """Return name of a group → its number."""
    named = _of_line(text).groupindex
    return {name.decode("utf-8", "replace"): number for name, number in named.items()}


@cache
def _of_lines(text: str) -> Any:
    """Return an expression for several lines at once; None if each line must be searched alone."""
    import re2

    # "a" at the end of a line and "b" at the beginning of the next match a\sb: so search each line
    # again, alone
    if r"\A" in text or r"\z" in text:
        return None
    try:
        return _of_line(f"(?m:{text})")
    except re2.error:  # of the size that is allowed, but for these four characters
        return None


def any_of(words: Iterable[bytes]) -> Any:
    """Return an expression whose ``search(bytes, position)`` finds the first of several texts.

    It reads the bytes once, whatever the number of texts: ten times faster than ``bytes.find`` for
    fifty of them.
    """
    import re2

    none = rb"\z."  # behind the end is nothing: without texts, nothing is found
    return re2.compile(b"|".join(map(re.escape, words)) or none)
