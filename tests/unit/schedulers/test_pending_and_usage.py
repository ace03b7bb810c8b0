"""Places in the queue, usage and limits, from recorded answers of Slurm."""

from __future__ import annotations

import pytest

from hpcrun.schedulers.pending_and_usage import (
    ACCOUNTS,
    Limit,
    parse_jobs,
    parse_limits,
    parse_usage,
    places,
)
from hpcrun.schedulers.slurm_text import SEPARATOR
from tests.harness import REPO


def lines(*rows: str) -> str:
    return "\n".join(row.replace("|", SEPARATOR) for row in rows)


def test_the_place_in_line_is_by_priority_then_age() -> None:
    text = lines(
        *(
            f"{job_id}|{partition}|train|me|PENDING|0:00|1:00|1|"
            f"{reason}|{priority}|{start}|normal|(null)"
            for job_id, partition, priority, start, reason in [
                ("9", "gpu", 100, "N/A", "Priority"),
                ("7", "gpu", 100, "2030-01-02T03:04:05", "Resources"),
                ("12", "gpu", 900, "2030-01-02T03:04:05", "Resources"),
                ("3", "gpu", 999, "N/A", "JobHeldUser"),
                ("2_[4-9%2]", "gpu", 999, "N/A", "JobArrayTaskLimit"),
                ("20", "cpu", 999, "N/A", "Priority"),
                ("30_[0-3%2]", "cpu,gpu", 1, "N/A", "Priority"),
            ]
        ),
        "no line of squeue",
    )
    found = places(parse_jobs(text), ["7", "9", "3", "30", "404"])
    assert {job: (it.partition, it.place, it.of) for job, it in found.items()} == {
        "7": ("gpu", 2, 4),
        "9": ("gpu", 3, 4),
        "3": ("gpu", None, 4),
        "30": ("cpu", 2, 2),
    }
    assert found["7"].start_s is not None
    assert found["9"].start_s is None


def test_usage_is_that_of_the_largest_step() -> None:
    # Slurm 22.05.8
    text = lines(
        "2008|19|00:24.527|64|billing=64,cpu=64,gres/gpu=4,mem=500G,node=2||2||sbatch "
        "/r/run/.submission_file_a.sh",
        "2008.batch|19|00:00.185|32|cpu=32,gres/gpu=2,mem=250G,node=1|12240K|1|1|srun --label",
        "2008.0|18|00:24.341|64|cpu=64,gres/gpu=4,mem=500G,node=2|1075772K|2|2|srun --label",
        "1930|1|00:00.906|64|cpu=64,gres/gpu=4,mem=500G,node=2||2||sbatch "
        "/r/run/.submission_file_a.sh",
        "1930.0|1|00:00.863|64|cpu=64,gres/gpu=4,mem=500G,node=2|40M|2|4|srun --label",
        "235|0|00:00.070|32|billing=32,cpu=32||2||sbatch /r/run/.submission_file_a.sh",
        "1976|0|00:00:00|0|||0||sbatch /r/run/.submission_file_a.sh",
        "9|90061|1-01:01:01|1|cpu=1||1||sbatch /r/run/.submission_file_a.sh",
        "9.0|90061|1-01:01:01|1|cpu=1|1G|1|1|srun --label",
    )
    found = parse_usage(text)
    first = found["run", "2008"]
    assert first.elapsed_s == 19
    assert first.nodes == 2
    assert first.cpus == 64
    assert first.gpus == 4
    assert first.cpu_s == 24.0
    assert first.memory_mb == 250 * 1024
    assert round(first.used_mb or 0) == 1051
    assert found["run", "1930"].used_mb == 80  # two tasks on each node
    assert found["run", "235"].used_mb is None
    assert found["run", "235"].cpu_s is None
    assert found["run", "1976"].nodes == 1
    assert found["run", "9"].cpu_s == 90061


def test_the_node_with_the_most_tasks_counts_where_tasks_do_not_divide_by_nodes() -> None:
    text = lines(
        "7|10|00:01.000|5|cpu=5||2||sbatch /r/run/.submission_file_a.sh",
        "7.0|10|00:01.000|5|cpu=5|100M|2|5|srun --label",
    )
    assert parse_usage(text)["run", "7"].used_mb == 300.0


def test_all_times_that_a_job_was_requeued_count_and_none_of_another_job_of_its_id() -> None:
    text = lines(
        "7|100|00:20.000|4|cpu=4,gres/gpu:a100=4,mem=8G||1||sbatch /r/run/.submission_file_a.sh",
        "7.0|100|00:20.000|4|cpu=4,mem=8G|300M|1|1|srun --label",
        "7|10|00:02.000|4|cpu=4,gres/gpu:a100=2,mem=8G||1||sbatch /r/run/.submission_file_a.sh",
        "7.0|10|00:02.000|4|cpu=4,mem=8G|200M|1|1|srun --label",
    )
    usage = parse_usage(text)["run", "7"]
    assert usage.elapsed_s == 110
    assert usage.gpus == 2
    assert usage.gpu_s == 4 * 100 + 2 * 10
    assert usage.cpu_s == 22.0
    assert usage.used_mb == 300.0
    text = lines(
        "7|10|00:01.000|1|cpu=1||1||sbatch /r/old/.submission_file_a.sh",
        "7.0|10|00:01.000|1|cpu=1|10M|1|1|srun --label",
        "7|20|00:01.000|1|cpu=1||1||sbatch --wrap true",
        "7.batch|20|00:01.000|1|cpu=1|99M|1|1|",
        "7|30|00:01.000|1|cpu=1||1||sbatch /r/new/.submission_file_b.sh",
    )
    found = parse_usage(text)
    assert {key: (each.elapsed_s, each.used_mb) for key, each in found.items()} == {
        ("old", "7"): (10, 10.0),
        ("new", "7"): (30, None),
    }


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


def test_the_limits_of_a_qos_and_of_accounts_are_those_of_all_and_the_users_own() -> None:
    assert parse_limits(ASSOC_MGR, 1001)["short"] == [
        ALL,
        Limit("QOS short", "running jobs", "1", "2"),
        Limit("QOS short", "gres/gpu", "3", "4"),
    ]
    assert parse_limits(ASSOC_MGR, 0)["short"] == [
        ALL,
        Limit("QOS short", "running jobs", "0", "3"),
    ]
    assert parse_limits(ASSOC_MGR, 42)["short"] == [ALL]
    assert "normal" not in parse_limits(ASSOC_MGR, 1001)
    of_all = [
        Limit("account lab", "gres/gpu", "7", "8", "all its users"),
        Limit("account lab", "gres/gpu minutes", "5990", "6000", "all its users"),
    ]
    assert parse_limits(ASSOC_MGR, 1001)[ACCOUNTS] == [
        *of_all,
        Limit("account lab, you", "running jobs", "2", "3"),
    ]
    assert parse_limits(ASSOC_MGR, 42)[ACCOUNTS] == of_all
    assert parse_limits("scontrol: error", 0) == {}


@pytest.mark.parametrize(("version", "used"), [("22.05", "3"), ("24.11", "1"), ("26.05", "1")])
def test_a_budget_of_gpu_minutes_as_each_version_tells_it(version: str, used: str) -> None:
    text = (REPO / "tests/data" / version / "assoc-mgr.txt").read_text("utf-8")
    uid = int(
        next(line for line in text.splitlines() if "UserName=researcher(" in line)
        .split("(")[1]
        .split(")")[0]
    )
    assert parse_limits(text, uid)[ACCOUNTS] == [
        Limit("account lab", "gres/gpu minutes", used, "6000", "all its users")
    ]
