"""The sentence and the evidence about a rank that ended before the others, from facts alone."""

from __future__ import annotations

from pathlib import Path

from hpcrun.actions.status.run_status import RunStatus
from hpcrun.explain.diagnosis.facts import Culprit, Diagnosis, Facts, RankEnd
from hpcrun.explain.evidence import evidence_of
from hpcrun.explain.wording import answer
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
