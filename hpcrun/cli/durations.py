"""The value of an option that takes a duration."""

from __future__ import annotations

from hpcrun.errors import UsageError


def read_duration(option: str, text: str) -> int:
    """Return a duration in seconds, as it was typed behind an option.

    Raises:
        UsageError: the text is no duration, or has no unit.
    """
    from hpcrun.job.units import parse_time

    try:
        return parse_time(text)
    except ValueError as error:
        raise UsageError(f"{option}: {error}", hint=f"{option} 10m, {option} 2h, {option} 30d") from None
