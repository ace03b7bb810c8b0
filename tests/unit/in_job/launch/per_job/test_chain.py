"""Whether a link of a chain got anywhere, from what is known at its end."""

from __future__ import annotations

from typing import Any

import pytest

from hpcrun.in_job.launch.per_job.chain import AT_ONCE_S, judge, progress

FIRST: dict[str, Any] = {}
STEPS = {"step": 1200, "status": 1, "at_once": False, "nowhere": False}
NO_STEPS = {**STEPS, "step": None}


def link(**fields: Any) -> dict[str, Any]:
    """What is known of a link that has failed."""
    usual = {
        "number": 2,
        "status": 1,
        "seconds": 3600.0,
        "failed": True,
        "saved": None,
        "step": None,
    }
    given = {**usual, **fields}
    return {**given, "at_once": given["failed"] and given["seconds"] < AT_ONCE_S}


@pytest.mark.parametrize(
    ("end", "before", "reason"),
    [
        (
            link(saved=False, step=1200),
            STEPS,
            "link 2 made no new checkpoint and no step since 1200",
        ),
        # before its first step
        (link(saved=False), STEPS, "link 2 made no new checkpoint and no step since 1200"),
        # its time limit
        (link(saved=False, failed=False), NO_STEPS, "link 2 made no new checkpoint and no step"),
        (
            link(saved=False, number=1, failed=False),
            FIRST,
            "link 1 made no new checkpoint and no step",
        ),
        (
            link(saved=False),
            {**NO_STEPS, "nowhere": True},
            "link 2 made no new checkpoint and no step",
        ),
        (
            link(seconds=7.0),
            {**NO_STEPS, "at_once": True},
            "link 2 failed after 7 s with exit status 1, as link 1 did",
        ),
    ],
)
def test_a_link_that_got_nowhere_ends_its_chain(
    end: dict[str, Any], before: dict[str, Any], reason: str
) -> None:
    assert judge(end, before) == (reason, True)


@pytest.mark.parametrize(
    ("end", "before"),
    [
        (link(saved=True), STEPS),
        (link(saved=True, seconds=7.0), {**NO_STEPS, "at_once": True}),
        (link(saved=False, step=1201), STEPS),
        (link(saved=False, step=5), NO_STEPS),
        (link(number=1), FIRST),
        (link(), NO_STEPS),  # checkpoints elsewhere, and no steps
        (link(step=1100), STEPS),  # elsewhere, and perhaps its steps begin anew in each link
        # a failure, perhaps after hours of work that nobody has noted
        (link(saved=False), NO_STEPS),
        (link(seconds=7.0, status=2), {**NO_STEPS, "at_once": True}),
        (link(seconds=7.0, failed=False), {**NO_STEPS, "at_once": True}),
        (link(seconds=7.0), NO_STEPS),
    ],
)
def test_a_chain_continues_if_a_link_may_have_got_further(
    end: dict[str, Any], before: dict[str, Any]
) -> None:
    assert judge(end, before)[1] is False


def test_the_progress_of_a_chain_is_kept_from_link_to_link() -> None:
    first = progress(link(number=1, step=1200), {}, nowhere=False)
    assert (first["step"], first["at_once"], first["nowhere"]) == (1200, False, False)
    second = progress(link(step=1100, seconds=7.0), first, nowhere=True)
    assert (second["step"], second["at_once"], second["nowhere"]) == (1200, True, True)
