"""Slurm's reasons in plain words."""

from __future__ import annotations

import pytest

from hpcrun.job.reasons import explain_reason


@pytest.mark.parametrize(
    ("word", "short"),
    [
        ("Resources", "next in line, nothing is free"),
        ("Priority", "other jobs come first"),
        ("QOSMaxJobsPerUserLimit", "as many of your jobs run as the QOS allows"),
        ("QOSMaxGRESPerUser", "your running jobs use what the QOS allows a user"),
        ("QOSMaxGRESPerJob", "asks for more than the QOS allows a job"),
        ("QOSGrpGRES", "all users of the QOS together have reached its limit"),
        ("QOSGrpGRESRunMinutes", "your running jobs have the allowed time reserved"),
        ("AssocGrpBillingMinutes", "the budget of the account or QOS is used up"),
        ("AssocGrpCpuLimit", "the jobs of your account have reached its limit"),
        ("ReqNodeNotAvail, UnavailableNodes:a100-1", "nodes it needs are down, drained or reserved"),
        ("ReqNodeNotAvail, Reserved for maintenance", "would run into a maintenance"),
        ("PartitionTimeLimit", "asks for more time than the partition allows"),
        ("Licenses", "licences are in use"),
        ("JobHeldAdmin", "held by an administrator"),
        ("BeginTime", "not before its begin time"),
        ("launch failed requeued held", "could not be started on its nodes, held"),
    ],
)
def test_a_reason_is_explained(word: str, short: str) -> None:
    found = explain_reason(word)
    assert found is not None
    assert found.short == short
    assert found.advice.endswith(".")


def test_a_reason_that_is_not_known_stays_as_it_is() -> None:
    assert explain_reason("SomethingNew2031") is None
