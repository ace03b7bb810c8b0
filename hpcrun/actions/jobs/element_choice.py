"""Which element of a sweep a command looks into, where it can look into one only."""

from __future__ import annotations

from hpcrun.actions.status.status import RunStatus, element_row
from hpcrun.errors import UsageError
from hpcrun.job.parameters import index_ranges


def one_element(item: RunStatus, element: int | None) -> tuple[RunStatus, str | None]:
    """Return a run, or one element of it as a run of its own, and what to say of the choice.

    Args:
        item: the run, with its elements where it is a sweep.
        element: the one that was named; None takes the only one that runs.

    Raises:
        UsageError: none was named, and several could be meant.
    """
    if not item.elements:
        return item, None
    if element is not None:
        return next(element_row(item, one) for one in item.elements if one.index == element), None
    running = [one for one in item.elements if one.status.state == "RUNNING"]
    if len(running) == 1:
        return element_row(item, running[0]), f"{item.run.name} is a sweep; showing element {running[0].index}"
    if not running:
        return item, None
    named = index_ranges(one.index for one in running)
    raise UsageError(
        f"{item.run.name} is a sweep, and {len(running)} of its elements run: {named}",
        hint=f"name one: {item.run.job_id}/{running[0].index}",
    )
