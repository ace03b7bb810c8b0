"""Mistakes in files that users write: each has its file, line and key, and all are reported at once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hpcrun.errors import ProfileError

Key = tuple[str, ...]

MOST_TOLD = 30


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a value was written: a file and a line (counted from 1)."""

    path: Path
    line: int

    def __str__(self) -> str:
        return f"{self.path}:{self.line}"


@dataclass(frozen=True, slots=True)
class Mistake:
    """One mistake in a file.

    Attributes:
        line: counted from 1; None for the whole file.
        text: the mistake, with the nearest key or the allowed values.
        key: the key of the value, if there is one.
    """

    path: Path
    line: int | None
    text: str
    key: Key = ()

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.text}" if self.line else f"{self.path}: {self.text}"


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
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, item in inner:
        yield from values_in(item, (*key, str(name)))


def dotted(key: Key) -> str:
    """Return a key as typed, ``gpu.type``; control characters are shown as escapes."""
    text = ".".join(key)
    return text if text.isprintable() else ascii(text)[1:-1]
