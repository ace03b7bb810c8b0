"""Numbers that a training reports: the regular expressions that find them in a log, the usual ones and users' own."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hpcrun.job.patterns import Match

VALUE = "value"
"""The named group with the number; without it, the first group has the number."""
STEP = "step"
"""The named group, or the metric, with the step of a line."""
_NUMBER = r"[-+]?(?:(?:\d+\.?\d*|\.\d+)(?:e[-+]?\d+)?|nan|inf)"
_USUAL = re.compile(
    r"(?<![\w./-])(?P<name>(?:(?:train|training|val|valid|validation|test|eval|best|min|max|mean|avg|total) )?"
    r"(?:[a-z]\w{0,30}[_./-])?(?:loss|acc|accuracy)(?:[_/](?:train|val|valid|test|eval)\w{0,9})?)['\"]?"
    # behind a blank only what cannot be a count: "loss 3 of 5 packets"
    r"(?:\s*[:=]\s*|\s+(?=(?:tensor\()?(?:[-+]?\d*\.\d|\d+e|\d+%|[-+]?(?:nan|inf)\b)))"
    rf"(?:tensor\()?(?P<value>{_NUMBER})(?=\.?(?:[\s,;%|)\]}}'\"]|$))",
    re.IGNORECASE,
)
_USUAL_STEP = re.compile(r"(?<!\w)(?:global_)?step['\"]?\s*[:=]?\s*(\d{1,15})(?![\w.])", re.IGNORECASE)


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


def usual_numbers(line: str) -> tuple[float | None, dict[str, float]]:
    """Return the step and the losses and accuracies in a line as most scripts print them: ``step 3 val_loss=0.12``.

    A step beside an epoch is None: it may begin again with each epoch.
    """
    lowered = line.lower()
    if "loss" not in lowered and "acc" not in lowered:
        return None, {}
    values = {match["name"].lower().replace(" ", "_"): float(match["value"]) for match in _USUAL.finditer(line)}
    step = _USUAL_STEP.search(line) if values and "epoch" not in lowered else None
    return float(step[1]) if step else None, values
