"""Slurm's reasons in plain words."""

from __future__ import annotations

import pytest

from hpcrun.job.state import explain_reason


@pytest.mark.parametrize(
    ("word", "short"),
    [
        ("Resources", "next in the queue, waiting for free resources"),
        ("Priority", "other jobs have a higher priority"),
        ("QOSMaxJobsPerUserLimit", "you have reached the QOS limit of running jobs"),
        ("QOSMaxGRESPerUser", "your running jobs have reached the QOS limit per user"),
        ("QOSMaxGRESPerJob", "requests more than the QOS allows per job"),
        ("QOSGrpGRES", "all users of the QOS together have reached its limit"),
        ("QOSGrpGRESRunMinutes", "your running jobs have the allowed time reserved"),
        ("AssocGrpBillingMinutes", "the budget of the account or QOS is exhausted"),
        ("AssocGrpCpuLimit", "the jobs of your account have reached its limit"),
        ("ReqNodeNotAvail, UnavailableNodes:a100-1", "required nodes are down, drained or reserved"),
        ("ReqNodeNotAvail, Reserved for maintenance", "would overlap a maintenance window"),
        ("PartitionTimeLimit", "requests more time than the partition allows"),
        ("Licenses", "all licenses are in use"),
        ("JobHeldAdmin", "held by an administrator"),
        ("BeginTime", "before its begin time"),
        ("launch failed requeued held", "held: the launch on its nodes failed"),
    ],
)
def test_a_reason_is_explained(word: str, short: str) -> None:
    found = explain_reason(word)
    assert found is not None
    assert found.short == short
    assert found.advice.endswith(".")


@pytest.mark.parametrize(
    ("word", "never"),
    [("PartitionNodeLimit", True), ("DependencyNeverSatisfied", True), ("MaxMemPerLimit", True), ("Resources", False),
     ("ReqNodeNotAvail, UnavailableNodes:a100-1", False)],
)  # fmt: skip
def test_some_reasons_say_that_the_job_never_starts(word: str, never: bool) -> None:
    found = explain_reason(word)
    assert found is not None
    assert found.is_final == never


def test_a_reason_that_is_not_known_stays_as_it_is() -> None:
    assert explain_reason("SomethingNew2031") is None
