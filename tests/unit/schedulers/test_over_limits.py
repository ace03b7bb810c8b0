"""Which limit a pending job alone is over, from the texts of squeue and scontrol."""

from __future__ import annotations

import pytest

from hpcrun.job.job_states import OverLimit
from hpcrun.schedulers.over_limits import (
    RequestedJob,
    limits_of,
    over_limit,
    parse_own_qos,
    parse_requested,
)
from hpcrun.schedulers.pending_and_usage import ACCOUNTS, Limit

JOB = RequestedJob("short", "lab", "gpu", 60.0, {"cpu": 4.0, "mem": 8000.0, "gres/gpu": 8.0})
GPUS = Limit("QOS short", "gres/gpu", "0", "4")


def test_the_request_of_a_job_is_read_from_padded_fields() -> None:
    fields = ("7", "short", "lab", "gpu", "1:00:00", "cpu=4,mem=8000M,node=2,gres/gpu=8", "")
    text = "   \x1f".join(fields)
    amounts = {"cpu": 4.0, "mem": 8000.0, "node": 2.0, "gres/gpu": 8.0}
    assert parse_requested(text) == {"7": RequestedJob("short", "lab", "gpu", 60.0, amounts)}


def test_a_job_without_a_time_limit_has_no_minutes() -> None:
    fields = ("7", "short", "lab", "gpu", "UNLIMITED", "cpu=4", "")
    assert parse_requested("\x1f".join(fields))["7"].minutes is None


@pytest.mark.parametrize(
    ("reason", "limit", "requested"),
    [
        ("QOSMaxGRESPerUser", GPUS, 8.0),
        ("QOSGrpGRES", Limit("QOS short", "gres/gpu", "0", "4", "all its users"), 8.0),
        ("QOSMaxCpuPerUserLimit", Limit("QOS short", "cpu", "0", "2"), 4.0),
        ("QOSMaxMemoryPerUser", Limit("QOS short", "mem", "0", "4000"), 8000.0),
        ("AssocGrpCPUMinutesLimit", Limit("account lab", "cpu minutes", "0", "200"), 240.0),
        (
            "AssocGrpCPURunMinutesLimit",
            Limit("account lab", "cpu minutes reserved by running jobs", "0", "200"),
            240.0,
        ),
    ],
)
def test_a_job_that_requests_more_than_a_limit_is_over_it(
    reason: str, limit: Limit, requested: float
) -> None:
    over = over_limit(JOB, reason, [limit])
    assert over is not None
    assert (over.what, over.requested) == (limit.what, requested)


@pytest.mark.parametrize(
    ("reason", "limit"),
    [
        pytest.param("QOSMaxGRESPerUser", Limit("QOS short", "gres/gpu", "4", "8"), id="as many"),
        pytest.param("QOSMaxCpuPerUserLimit", GPUS, id="another resource"),
        pytest.param(
            "QOSMaxGRESPerUser",
            Limit("QOS short", "gres/gpu", "0", "4", "all its users"),
            id="not per user",
        ),
        pytest.param("QOSMaxJobsPerUserLimit", GPUS, id="a number of jobs"),
        pytest.param("QOSGrpGRESMinutes", GPUS, id="counted in minutes"),
    ],
)
def test_a_job_is_not_over_a_limit_that_its_reason_does_not_mean(reason: str, limit: Limit) -> None:
    assert over_limit(JOB, reason, [limit]) is None


def test_a_job_may_start_if_one_of_two_qos_allows_it() -> None:
    wide = Limit("QOS wide", "gres/gpu", "0", "16")
    assert over_limit(JOB, "QOSMaxGRESPerUser", [GPUS, wide]) is None


def test_the_limits_are_those_of_the_qos_of_job_and_partition_or_of_the_account() -> None:
    wide = Limit("QOS wide", "gres/gpu", "0", "16")
    mine = Limit("account lab, you", "cpu", "0", "2")
    other = Limit("account thesis", "cpu", "0", "2")
    limits = {"short": [GPUS], "wide": [wide], ACCOUNTS: [mine, other]}
    assert limits_of(JOB, "QOSMaxGRESPerUser", limits, "wide") == [GPUS, wide]
    assert limits_of(JOB, "QOSMaxGRESPerUser", limits, None) == [GPUS]
    assert limits_of(JOB, "AssocGrpCpuLimit", limits, "wide") == [mine]


@pytest.mark.parametrize(("text", "qos"), [("QoS=N/A", None), ("QoS=wide", "wide"), ("", None)])
def test_the_qos_of_a_partition_is_read(text: str, qos: str | None) -> None:
    assert parse_own_qos(f"PartitionName=gpu {text} MaxNodes=UNLIMITED") == qos


@pytest.mark.parametrize(
    ("limit", "words"),
    [
        (
            OverLimit("QOS short", "gres/gpu", 8, 4, "you"),
            "requests 8 GPUs, QOS short allows 4 per user",
        ),
        (
            OverLimit("account lab", "gres/gpu:a100", 8, 4, "all its users"),
            "requests 8 a100 GPUs, account lab allows 4 for all its users together",
        ),
        (
            OverLimit("account lab, you", "cpu minutes", 240, 200, "you"),
            "requests 240 CPUs x minutes, account lab allows 200 per user",
        ),
    ],
)
def test_a_limit_is_told_with_both_numbers(limit: OverLimit, words: str) -> None:
    assert limit.reason.short == words
    assert limit.reason.is_final
