"""How messages spell the options of a job: as the command line has them, or as Python has them.

Who asks decides it: the command line is the default, and ``hpcrun.api`` sets its own spelling.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import PurePath

Speller = Callable[[str, object], str]
"""Name of an option without dashes, and its value or None → the text."""
_IN_ROW = re.compile(r"--([a-z][a-z-]+)(?: ([A-Z]+(?:[=,:][A-Z]+)*|[a-z]\d+:\d+|\d+)(?![\w-]))?")


def _as_typed(name: str, value: object) -> str:
    if value is None:
        return f"--{name}"
    if isinstance(value, PurePath):  # others may be words to read, such as "3 or 6"
        return f"--{name} {shlex.quote(str(value))}"
    return f"--{name} {value}"


_SPELLER: ContextVar[Speller] = ContextVar("speller", default=_as_typed)


def spell(name: str, value: object = None) -> str:
    """Return an option, and its value if there is one, as the one who asked writes them."""
    return _SPELLER.get()(name, value)


def spell_row(text: str) -> str:
    """Return a row of a table of advice, in which a placeholder in capitals follows its option."""
    return _IN_ROW.sub(lambda match: spell(match[1], match[2]), text)


@contextmanager
def spelled_by(speller: Speller) -> Iterator[None]:
    """Let messages spell options in another way; the outermost of several decides."""
    if _SPELLER.get() is not _as_typed:
        yield
        return
    token = _SPELLER.set(speller)
    try:
        yield
    finally:
        _SPELLER.reset(token)
