"""Numbers that people type about a training: how many samples, how long an epoch took, a learning rate."""

from __future__ import annotations

import math
import re

from hpcrun.job.units import parse_time

COUNT_FORMS = "1200000, 1.2M or 500k (k, M, G: a thousand, a million, 10⁹; B is G)"
DURATION_FORMS = "36m, 42.3s, 1h30m or 0:36:00"

_NUMBER = r"\d{1,15}(?:\.\d{1,9})?"
_COUNT = re.compile(rf"(?P<number>{_NUMBER})(?P<unit>[kKMGB]?)", re.ASCII)
_UNIT_COUNT = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "B": 10**9}
_DURATION = re.compile("".join(rf"(?:({_NUMBER}){unit})?" for unit in "dhms"), re.ASCII)
_CLOCK = re.compile(r"(?:\d{1,6}-)?\d{1,6}:\d{2}:\d{2}", re.ASCII)


def parse_count(text: str) -> int:
    """Return how many things of a data set or a model there are, ``1.2M`` or ``25000000``.

    Raises:
        ValueError: the text is not a number of whole things, or is zero.
    """
    match = _COUNT.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"{text!r} is not a number; write it as {COUNT_FORMS}")
    whole, _, part = match["number"].partition(".")
    # in integers: 1.2M as a float is a little less, or more
    number, rest = divmod(int(whole + part) * _UNIT_COUNT[match["unit"].upper()], int(10 ** len(part)))
    if number == 0 or rest:
        raise ValueError(f"{text!r} is not a whole number from 1 on; write it as {COUNT_FORMS}")
    return number


def parse_duration(text: str) -> float:
    """Return how long something took, in seconds. A bare number is refused: Slurm would take it for minutes.

    Raises:
        ValueError: the text is not a time with its unit, or is zero.
    """
    word = text.strip()
    if _CLOCK.fullmatch(word):
        return float(parse_time(word))
    match = _DURATION.fullmatch(word)
    if not word or match is None:
        bare = re.fullmatch(_NUMBER, word, re.ASCII)
        problem = "has no unit" if bare else "is not a time"
        raise ValueError(f"{text!r} {problem}; write it as {DURATION_FORMS}")
    d, h, m, s = (float(part or 0) for part in match.groups())
    seconds = ((d * 24 + h) * 60 + m) * 60 + s
    if seconds == 0:
        raise ValueError(f"{text!r} is zero; write it as {DURATION_FORMS}")
    return seconds


def parse_positive(text: str) -> float:
    """Return a number above zero that is neither infinite nor beyond use.

    Raises:
        ValueError: the text is not such a number.
    """
    try:
        number = float(text) if text.isascii() and "_" not in text else math.nan
    except ValueError:
        number = math.nan
    if not 1e-12 <= number <= 1e12:  # NaN is not, either
        raise ValueError(f"{text!r} is not a number above zero; write it as 0.001, 1e-3 or 2.5")
    return number
