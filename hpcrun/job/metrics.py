"""Numbers that a training reports: the regular expressions that find them in a log."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hpcrun.job.patterns import Match

VALUE = "value"
"""The named group with the number; without it, the first group has the number."""
STEP = "step"
"""The named group, or the metric, with the step of a line."""


def check_metric_pattern(text: str) -> str:
    """Return the regular expression of a metric.

    Raises:
        ValueError: it is not a regular expression, or has no group for the number.
    """
    from hpcrun.job.patterns import PatternError, compile_pattern  # few profiles have one

    try:
        pattern = compile_pattern(text)
    except PatternError as error:
        raise ValueError(f"{text!r} is not a regular expression that can be used: {error}") from None
    if not pattern.groups:
        raise ValueError(f"{text!r} has no group for the number: write (?P<{VALUE}>...) around it")
    return text


def found_number(match: Match) -> float | None:
    """Return the number in a match, None if it is not a number."""
    text = match.named[VALUE] if VALUE in match.named else match.groups[0]
    try:
        return float((text or "").replace(",", ""))  # 1,234.5
    except ValueError:
        return None


def finite_number(text: str) -> float | None:
    """Return the number that a text is, None if it is not one, or not finite."""
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None
