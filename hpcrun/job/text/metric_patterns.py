"""Metrics in the lines of logs: expressions of users, and what most scripts print."""

from __future__ import annotations

import math
import re

from hpcrun.job.text.patterns import Match, PatternError, compile_pattern

VALUE = "value"  # the named group with the number; without it, the first group has the number
EPOCH = "epoch"  # the epoch in which a log states a step
STEP = "step"  # the named group, or the metric, with the step of a line
_NUMBER = r"[-+]?(?:(?:\d+\.?\d*|\.\d+)(?:e[-+]?\d+)?|nan|inf)"
_USUAL = (
    r"(?i)"
    r"(?<![\w./-])(?P<name>(?:"
    r"(?:train|training|val|valid|validation|test|eval|best|min|max|mean|avg|total) )?"
    r"(?:[a-z]\w{0,30}[_./-])?(?:loss|acc|accuracy)(?:[_/](?:train|val|valid|test"
    r"|eval)\w{0,9})?)['\"]?"
    # behind a blank only what cannot be a count: "loss 3 of 5 packets"
    r"(?:\s*[:=]\s*(?:['\"](?=[^'\"\s]+['\"]))?"
    r"|\s+(?=(?:tensor\()?(?:[-+]?\d*\.\d|\d+e|\d+%|[-+]?(?:nan|inf)\b)))"
    rf"(?:tensor\()?(?P<value>{_NUMBER})(?=\.?(?:[\s,;%|)\]}}'\"]|$))"
)
_USUAL_STEP = r"(?i)(?<!\w)(?:global_)?step['\"]?\s*[:=]?\s*(\d{1,15})(?![\w.])"
_USUAL_EPOCH = r"(?i)(?<!\w)epoch['\"]?\s*[:=\[(]?\s*['\"]?(\d{1,9}(?:\.\d+)?)(?![\w.])"
"""Compiled when a line of a log first needs them: the plan of a job imports this module, too."""


def check_metric_pattern(text: str) -> str:
    """Return the regular expression of a metric.

    Raises:
        ValueError: the text is no regular expression, or has no group for the number.
    """
    try:
        pattern = compile_pattern(text)
    except PatternError as error:
        raise ValueError(
            f"{text!r} is not a regular expression that can be used: {error}"
        ) from None
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
    """Return the step, and the losses and accuracies, in a line as most scripts print them.

    An example is ``step 3 val_loss=0.12``. An epoch beside the step is one of the numbers, since
    the step may begin again with each epoch. If such an epoch is no number, the step is None.
    """
    lowered = line.lower()
    if "loss" not in lowered and "acc" not in lowered:
        return None, {}
    values = {}
    for match in re.finditer(_USUAL, line):
        values[match["name"].lower().replace(" ", "_")] = float(match["value"])
    if not values:
        return None, values
    step = re.search(_USUAL_STEP, line)
    if step and "epoch" in lowered:
        epoch = re.search(_USUAL_EPOCH, line)
        if epoch is None:
            return None, values
        values[EPOCH] = float(epoch[1])
    return float(step[1]) if step else None, values
