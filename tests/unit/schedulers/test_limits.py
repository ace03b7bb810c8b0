"""Limits of QOS and accounts, from Slurm's own words."""

from __future__ import annotations

import pytest

from hpcrun.schedulers.queue import ACCOUNTS, Limit, parse_limits
from tests.harness import REPO

# Slurm 22.05.8: scontrol show assoc_mgr flags=qos,assoc users=researcher
ASSOC_MGR = """\
Current Association Manager state

Association Records

ClusterName=dev Account=root UserName= Partition= Priority=0 ID=1
    ParentAccount= Lft=1 DefAssoc=No
    GrpJobs=N(2) GrpJobsAccrue=N(1)
    GrpTRES=cpu=N(4),mem=N(8000),gres/gpu=N(0)
ClusterName=dev Account=lab UserName= Partition= Priority=0 ID=3
    ParentAccount=root(1) Lft=2 DefAssoc=No
    GrpJobs=N(2) GrpJobsAccrue=9(1)
    GrpTRES=cpu=N(4),mem=N(8000),gres/gpu=8(7)
    GrpTRESMins=cpu=N(0),gres/gpu=6000(5990)
ClusterName=dev Account=lab UserName=researcher(1001) Partition= Priority=0 ID=5
    ParentAccount= Lft=3 DefAssoc=Yes
    GrpJobs=3(2) GrpJobsAccrue=N(1)

QOS Records

QOS=normal(1)
    GrpJobs=N(1) GrpJobsAccrue=N(0) GrpSubmitJobs=N(101) GrpWall=N(0.00)
    Account Limits
      lab
        MaxJobsPA=5(1) MaxJobsAccruePA=N(0) MaxSubmitJobsPA=N(1)
    User Limits
      1001
        MaxJobsPU=N(1) MaxJobsAccruePU=N(0) MaxSubmitJobsPU=N(1)
        MaxTRESPU=cpu=N(64),gres/gpu=N(4)
QOS=short(2)
    GrpJobs=7(1)
    User Limits
      0
        MaxJobsPU=3(0) MaxJobsAccruePU=N(0) MaxSubmitJobsPU=N(0)
      1001
        MaxJobsPU=2(1) MaxJobsAccruePU=3(0) MaxSubmitJobsPU=N(1)
        MaxTRESPU=cpu=N(64),mem=N(512000),gres/gpu=4(3)
"""
ALL = Limit("QOS short", "running jobs", "1", "7", "all its users")


def test_the_limits_of_a_qos_are_those_of_all_and_those_of_the_users_own_lines() -> None:
    assert parse_limits(ASSOC_MGR, 1001)["short"] == [
        ALL, Limit("QOS short", "running jobs", "1", "2"), Limit("QOS short", "gres/gpu", "3", "4"),
    ]  # fmt: skip
    assert parse_limits(ASSOC_MGR, 0)["short"] == [ALL, Limit("QOS short", "running jobs", "0", "3")]
    assert parse_limits(ASSOC_MGR, 42)["short"] == [ALL]
    assert "normal" not in parse_limits(ASSOC_MGR, 1001)


def test_the_limits_of_accounts_are_those_of_all_and_the_users_own() -> None:
    of_all = [
        Limit("account lab", "gres/gpu", "7", "8", "all its users"),
        Limit("account lab", "gres/gpu minutes", "5990", "6000", "all its users"),
    ]
    assert parse_limits(ASSOC_MGR, 1001)[ACCOUNTS] == [*of_all, Limit("account lab, you", "running jobs", "2", "3")]
    assert parse_limits(ASSOC_MGR, 42)[ACCOUNTS] == of_all


def test_no_answer_is_no_limit() -> None:
    assert parse_limits("scontrol: error", 0) == {}


@pytest.mark.parametrize(("version", "used"), [("22.05", "3"), ("24.11", "1"), ("26.05", "1")])
def test_a_budget_of_gpu_minutes_as_each_version_tells_it(version: str, used: str) -> None:
    text = (REPO / "tests/data" / version / "assoc-mgr.txt").read_text("utf-8")
    uid = int(next(line for line in text.splitlines() if "UserName=researcher(" in line).split("(")[1].split(")")[0])
    assert parse_limits(text, uid)[ACCOUNTS] == [
        Limit("account lab", "gres/gpu minutes", used, "6000", "all its users")
    ]
