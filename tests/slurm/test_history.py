"""hpcrun history on a real Slurm with accounting: runs, removed runs, jobs of others' making, and a
budget.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.harness import Cluster, Hpcrun, wait_for

pytestmark = pytest.mark.slurm


def rows(person: Hpcrun) -> dict[str, dict[str, Any]]:
    """Name of a job → its numbers, with the jobs that only the accounting knows."""
    document = person.document("history", "--by", "name", "--all-jobs", "--since", "1d", check=True)
    return {row["group"]: row for row in document["rows"] if row["ended"]}


def test_a_history_counts_each_job_once_and_shows_the_budget(
    cluster: Cluster, as_researcher: Hpcrun
) -> None:
    # torchrun would import torch for each
    job = ("submit", "-P", "v100", "--gpus", "2", "--launcher", "python")
    as_researcher(*job, "-J", "kept", "sleep", "1", check=True)
    as_researcher.run(
        "sbatch", "-J", "other", "-o", "/dev/null", "--gres=gpu:v100:1", "--wrap=exit 3"
    )
    assert as_researcher(*job, "-J", "gone", "--wait", "false").returncode == 7
    as_researcher("clean", "--yes", "--state", "failed", check=True)
    wait_for(
        lambda: {"kept", "gone", "other"} <= set(rows(as_researcher)),
        30,
        "the accounting to have all jobs",
    )
    found = rows(as_researcher)
    assert [found[name]["ended"] for name in ("kept", "gone", "other")] == [1, 1, 1]
    assert [found[name]["success"] for name in ("kept", "gone", "other")] == [1, 0, 0]
    assert found["kept"]["gpu_hours"] >= 2 / 3600
    assert found["kept"]["wait_median_s"] >= 0
    own = as_researcher.document("history", check=True)
    assert own["runs"] == 2
    assert own["removed"] == 1
    assert own["others"] == 0
    assert own["budgets"] == []

    account = ("sacctmgr", "--immediate", "modify", "account", "lab", "set")
    cluster.slurm(*account, "GrpTRESMins=gres/gpu=6000")
    try:
        shown = as_researcher("history", check=True).stdout
    finally:
        cluster.slurm(*account, "GrpTRESMins=gres/gpu=-1")
    assert "budget   account lab: 0 of 100 GPU-hours used (0 %), by all its users\n" in shown
