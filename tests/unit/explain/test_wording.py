"""The sentence and the evidence about a rank that ended before the others, from facts alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from hpcrun.actions.status.run_status import RunStatus
from hpcrun.explain.diagnosis.facts import Culprit, Diagnosis, Facts, RankEnd
from hpcrun.explain.diagnosis.log import Log
from hpcrun.explain.diagnosis.rules import Rule
from hpcrun.explain.diagnosis.scan import Hit, LogScan
from hpcrun.explain.evidence import evidence_of
from hpcrun.explain.wording import _without_timeout, answer
from hpcrun.job.job_states import EXIT_TERMINATED
from hpcrun.runs.record import LastStatus
from tests.unit.builders import run

ITEM = RunStatus(run(), Path(), LastStatus("FAILED", 0.0, final=True))
LEFT = Diagnosis(cause=None, culprit=Culprit(0, left=True), leaver=0)


def facts(*ends: tuple[int, int, float]) -> Facts:
    """Facts from rank, exit status and time of each end."""
    return Facts(
        "FAILED", {rank: RankEnd(rank, "n1", status, ended_s) for rank, status, ended_s in ends}
    )


def test_after_a_rank_that_left_the_first_failure_is_named() -> None:
    text = answer(ITEM, facts((0, 0, 1.0), (1, 1, 9.0), (2, 3, 5.0)), LEFT, None)
    assert "while 2 other ranks continued" in text
    assert text.endswith("rank 2 on n1 then failed with exit status 3")


def test_the_evidence_says_how_long_before_the_others_a_rank_left() -> None:
    evidence = next(evidence_of(ITEM, facts((0, 0, 1.0), (1, 1, 9.0)), LEFT, None))
    assert evidence.lines == ("exit status 0, 8.0 s before another rank failed or was terminated",)


def test_a_rank_that_ended_with_the_others_was_not_before_them() -> None:
    evidence = next(evidence_of(ITEM, facts((0, 0, 9.0), (1, 1, 9.0)), LEFT, None))
    assert evidence.lines == ("exit status 0",)


WAIT = Rule("timeout", level="wait", cause="a timeout")


def log(rank: int, *, waited: bool) -> Log:
    """The log of a rank, which may have waited for the others until its timeout."""
    hits = (Hit(WAIT, "timed out", 1, {}),) if waited else ()
    return Log(f"rank-{rank}.err", rank, LogScan(hits, (), 1))


@pytest.mark.parametrize(
    ("timed_out", "silent", "text"),
    [
        ([0], [1], "rank 1 on n1"),
        ([0], [1, 2], ""),
        ([0, 1], [2], "rank 2 on n1"),
        ([0, 1], [2, 3], ""),
        ([0, 1, 2], [3, 4], "ranks 3-4"),
        ([0, 1, 2], [3, 4, 5], ""),
        ([0], [], ""),
    ],
)
def test_the_few_silent_ranks_may_have_been_missed(
    timed_out: list[int], silent: list[int], text: str
) -> None:
    ends = {rank: RankEnd(rank, "n1", 1, 5.0) for rank in timed_out}
    ends |= {rank: RankEnd(rank, "n1", EXIT_TERMINATED, 5.0) for rank in silent}
    logs = [log(rank, waited=rank in timed_out) for rank in ends]
    found = _without_timeout(Facts("FAILED", ends, logs))
    assert found == text


def test_a_rank_that_ended_by_itself_was_not_missed() -> None:
    ends = {rank: RankEnd(rank, "n1", rank, 5.0) for rank in (0, 1, 3)}
    logs = [log(0, waited=False), log(1, waited=True), log(3, waited=False)]
    assert _without_timeout(Facts("FAILED", ends, logs)) == ""
