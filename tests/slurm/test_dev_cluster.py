"""The development cluster itself: what the other slurm tests stand on."""

from __future__ import annotations

import socket

import pytest

from tests.harness import Cluster, ClusterError, Hpcrun, cluster_sh, wait_for

pytestmark = pytest.mark.slurm

NODES = "a100-1 a100-2 a40-1 cpu-1 h100-1 h100-2 h200-1 l40s-1 l40s-2 v100-1 v100-2".split()


def submit(person: Hpcrun, *args: str, script: str) -> str:
    """The id of a job of bash commands."""
    file = person.folder / "job.sh"
    file.write_text(f"#!/bin/bash\n{script}\n")
    return person.run("sbatch", "--parsable", "--output=job.log", *args, str(file)).stdout.strip()


def test_limits_are_enforced(cluster: Cluster, as_researcher: Hpcrun) -> None:
    job = submit(as_researcher, "--qos=short", "--time=20", script="true")

    def reason() -> str:
        return cluster.slurm("squeue", "--noheader", f"--job={job}", "--format=%r").strip()

    wait_for(
        lambda: reason() == "QOSMaxWallDurationPerJobLimit", 10, "the reason why the job waits"
    )


def test_a_blocked_node_is_reached_on_other_ports_only(cluster: Cluster) -> None:
    def answers(port: int) -> str:
        """What a connection from this machine to the node says: nobody listens there, so silence is
        the firewall.
        """
        try:
            socket.create_connection(("v100-2", port), timeout=2).close()
        except OSError as error:
            return type(error).__name__
        return "answered"

    cluster.block("v100-2")
    assert answers(19999) == "ConnectionRefusedError"
    assert answers(20000) == "TimeoutError"
    assert answers(27999) == "TimeoutError"
    assert answers(28000) == "ConnectionRefusedError"
    cluster.unblock("v100-2")
    assert answers(20000) == "ConnectionRefusedError"


def test_every_node_is_there_and_restore_undoes_what_a_test_did(
    cluster: Cluster, as_researcher: Hpcrun
) -> None:
    assert list(cluster.nodes()) == NODES
    assert cluster_sh("up").startswith("already up")
    jobs_of_others = cluster.jobs()
    submit(as_researcher, script="sleep 60")
    cluster.stop("dbd")
    cluster.stop("v100-1")
    cluster.slurm("scontrol", "update", "nodename=cpu-1", "state=drain", "reason=test")
    cluster.restore(keep=jobs_of_others)
    assert cluster.jobs() <= jobs_of_others
    assert cluster.nodes()["v100-1"] == cluster.nodes()["cpu-1"] == "idle"
    assert "dev" in cluster.slurm("sacctmgr", "--noheader", "list", "cluster")


@pytest.mark.parametrize(
    ("call", "says"),
    [
        ((), "no command"),
        (("up", "--fast"), "not a command: 'up --fast'"),
        (
            ("up", "--as", "small"),
            "no such kind of cluster: 'small'; there are many, one-type and limited",
        ),
        (("up", "--as", "limited"), "a cluster is up, and its kind is many"),
        (("unplug", "a100-9"), "no such node: 'a100-9'"),
    ],
)
def test_a_wrong_call_says_what_is_wrong(call: tuple[str, ...], says: str) -> None:
    with pytest.raises(ClusterError, match=says):
        cluster_sh(*call)
