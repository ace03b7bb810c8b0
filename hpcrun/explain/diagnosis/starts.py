"""Which start of the ranks failed first, where torchrun started them again. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import chain

from hpcrun.explain.diagnosis.diagnose import fails_by_itself
from hpcrun.explain.diagnosis.facts import Facts
from hpcrun.explain.diagnosis.progress import went_beyond


def first_to_fail(starts: Sequence[Facts]) -> Facts:
    """Return the start whose failure ended a job: the first one after which the program came no further.

    A start that came further than the one before has survived its failure. If the ranks of a start speak only of
    others, a later start may tell more.

    Args:
        starts: in their order; at least one.
    """
    first = len(starts) - 1
    while first and not _went_beyond(starts[first - 1], starts[first]):
        first -= 1
    which = next((place for place in range(first, len(starts)) if fails_by_itself(starts[place])), len(starts) - 1)
    if which == len(starts) - 1:
        return starts[-1]
    return replace(
        starts[which], start=f"the answer is of start {which + 1} of {len(starts)}: no later one came further"
    )


def _went_beyond(before: Facts, after: Facts) -> bool:
    return went_beyond(*(list(chain.from_iterable(log.scan.tail for log in one.logs if log.rank is not None))
                         for one in (before, after)))  # fmt: skip
