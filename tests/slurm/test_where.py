"""where on a real Slurm: busy nodes come later, and no more is asked than needed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import datetime
from typing import Any

import pytest

from tests.harness import Cluster, Hpcrun, wait_for

pytestmark = pytest.mark.slurm


def busy(cluster: Cluster, *options: str) -> str:
    """A job that runs for ten minutes on two nodes; its id."""
    job = cluster.slurm(
        "sbatch",
        "--parsable",
        "--nodes=2",
        "--time=10",
        "--output=/dev/null",
        *options,
        "--wrap=sleep 600",
    ).strip()
    wait_for(
        lambda: cluster.slurm("squeue", "-h", "-j", job, "-o", "%T").strip() == "RUNNING",
        60,
        "the job to run",
    )
    return job


def document(person: Hpcrun, *args: str) -> dict[str, Any]:
    done = person("where", *args, "--json")
    return {"exit status": done.returncode, **json.loads(done.stdout)}


@pytest.mark.versions
def test_a_busy_profile_comes_later(cluster: Cluster, as_researcher: Hpcrun) -> None:
    log = as_researcher.folder / "asked"
    env = as_researcher.shims(sbatch=f'printf "%s\\n" "$*" >> {log}\nexec /usr/bin/sbatch "$@"')
    busy_a100 = busy(cluster, "--partition=gpu", "--nodelist=a100-[1-2]", "--gres=gpu:a100:4")
    jobs = cluster.jobs()
    done = as_researcher(
        "where", "--gpus", "8", "--time", "1h", "-P", "a100", "-P", "h100", "-P", "cpu", env=env
    )
    assert done.returncode == 0, done.stderr
    table, misfits, submit = done.stdout.split("\n\n")
    _, first, second = table.splitlines()
    assert first.split()[:6] == ["h100", "1", "×", "8", "h100", "now"]
    assert first.split()[-2:] == ["gpu", "8"]
    assert second.startswith("a100")
    assert "in 9 min" in second or "in 10 min" in second
    assert "a100-[1-2]" in second
    assert "8 GPUs per node, but a node of profile 'cpu' has 0" in misfits
    assert submit == "hpcrun submit -P h100 --gpus 8 --time 01:00:00 SCRIPT\n"
    assert len(log.read_text().splitlines()) == 2
    assert cluster.jobs() == jobs

    by_json = document(as_researcher, "--gpus", "8", "-P", "a100", "-P", "h100")
    assert [offer["profile"] for offer in by_json["offers"]] == ["h100", "a100"]
    ends = cluster.slurm("squeue", "-h", "-j", busy_a100, "-o", "%e").strip()
    assert by_json["offers"][1]["start_s"] - datetime.fromisoformat(ends).timestamp() < 60

    # the line it gives is one that submits
    words = submit.split()[1:-1]
    dry = as_researcher(*words, "--dry-run", "hostname")
    assert dry.returncode == 0, dry.stderr
    assert "#SBATCH --gres=gpu:h100:8" in dry.stdout


@pytest.mark.versions
def test_jobs_that_would_be_displaced_are_told(cluster: Cluster, as_researcher: Hpcrun) -> None:
    job = busy(cluster, "--partition=preempt", "--nodelist=h100-[1-2]", "--gres=gpu:h100:8")
    found = document(as_researcher, "--gpus", "8", "-P", "h100", "-P", "h200")
    assert [offer["profile"] for offer in found["offers"]] == ["h200", "h100"]
    assert found["offers"][1]["displaces"] == [job]
    assert (
        "(displaces 1 job)"
        in as_researcher("where", "--gpus", "8", "-P", "h100", check=True).stdout
    )


@pytest.fixture
def drained(cluster: Cluster) -> Iterator[str]:
    """The only node of the partition cpu, drained with a reason."""
    cluster.slurm("scontrol", "update", "NodeName=cpu-1", "State=DRAIN", "Reason=bad fan, ticket 7")
    yield "cpu-1 is drained (bad fan, ticket 7)"
    cluster.slurm("scontrol", "update", "NodeName=cpu-1", "State=RESUME")


def test_a_drained_node_is_named_with_its_reason(drained: str, as_researcher: Hpcrun) -> None:
    where = as_researcher("where", "--gpus", "0", "--cpus", "4", "-P", "cpu")
    assert f"cannot start now:\n  cpu  {drained}" in where.stdout
    assert "fits no profile" not in where.stderr
    doctor = as_researcher("doctor", "-P", "cpu").stdout
    assert drained in doctor
    as_researcher("submit", "-P", "cpu", "--gpus", "0", "--name", "waits", "true", check=True)

    def verbose() -> str:
        return as_researcher("status", "-v", "waits").stdout

    wait_for(lambda: drained in verbose(), 60, "Slurm's reason of the pending job")
    assert "--nodelist" not in verbose()


def test_reserved_nodes_are_named(cluster: Cluster, as_researcher: Hpcrun) -> None:
    size = ("Users=root", "Nodes=h100-[1-2]", "StartTime=now", "Duration=10")
    cluster.slurm("scontrol", "create", "reservation", "ReservationName=course", *size)
    try:
        wait_for(lambda: cluster.nodes()["h100-2"] == "reserved", 60, "the reservation to begin")
        where = as_researcher("where", "--gpus", "h100:16", "-P", "h100").stdout
    finally:
        cluster.slurm("scontrol", "delete", "ReservationName=course")
    assert "h100-1 is reserved, h100-2 is reserved" in where
