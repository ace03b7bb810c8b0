"""init on clusters that leave different choices to a person; docs/guides/first-hour.md is tested on
the usual one.
"""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.harness import (
    Cluster,
    Hpcrun,
    answer,
    at_end,
    cluster_sh,
    folder_open_to_others,
    new_researcher,
    shown_to_researcher,
)
from tests.namespaces import Namespaces

pytestmark = pytest.mark.slurm


@contextmanager
def cluster_as(kind: str) -> Iterator[Cluster]:
    """A cluster of a kind, in namespaces of its own; for tests with the marker ``slurm``, which
    installs Slurm.
    """
    before = os.environ.get("HPCRUN_CLUSTER_DIR")
    with Namespaces().entered():
        os.environ["HPCRUN_CLUSTER_DIR"] = f"/tmp/hpcrun-cluster-{secrets.token_hex(4)}"
        try:
            cluster_sh("up", "--as", kind)
            yield Cluster.running()
        finally:
            cluster_sh("down")
            os.environ.pop("HPCRUN_CLUSTER_DIR")
            if before is not None:
                os.environ["HPCRUN_CLUSTER_DIR"] = before


@contextmanager
def fresh_researcher(cluster: Cluster) -> Iterator[Hpcrun]:
    """The cluster's ordinary user with an empty home, in a folder that is removed at the end."""
    with folder_open_to_others() as folder, shown_to_researcher(cluster) as shown:
        yield new_researcher(folder, cluster, shown)


@pytest.mark.versions
def test_limits_accounts_and_no_default_partition() -> None:
    with cluster_as("limited") as cluster, fresh_researcher(cluster) as person:

        def sbatch(*args: str) -> str:
            done = person.run(
                "sbatch", "--test-only", "--gres=gpu:a100:2", "--wrap=true", *args, check=False
            )
            return done.stderr.splitlines()[-1]

        # the cluster is what it should be
        assert list(cluster.nodes()) == ["a100-1", "a100-2", "cpu-1"]
        assert sbatch() == "allocation failure: No partition specified or system default partition"
        assert "Invalid account" in sbatch("--partition=accel", "--account=owners")
        assert "violates accounting/QOS policy" in sbatch(
            "--partition=accel", "--nodes=2", "--gres=gpu:a100:4"
        )

        # nothing is set up yet
        size = ("--gpus", "4", "--nodes", "2", "--launcher", "srun", "--wait")
        bare = person("submit", *size, "hostname")
        assert bare.returncode == 0, bare.stderr
        assert (
            "detected the cluster dev: partition accel, account lab (your default in Slurm); "
            in bare.stdout
        )
        assert "where      partition accel, account lab (profile detected)" in bare.stdout
        named = person("submit", *size, "--account", "thesis", "--dry-run", "hostname", check=True)
        assert "#SBATCH --account=thesis\n" in named.stdout
        large = person("submit", "--gpus", "8", "--account", "lab", "hostname")
        limit = (
            "hpcrun: 8 GPUs are more than the 4 that QOS normal allows one user at the same time"
        )
        assert (large.returncode, large.stderr.splitlines()[0]) == (4, limit)

        suggested = person("init", "--dry-run", check=True).stdout
        assert re.search(r"^account: lab +# your default in Slurm; ", suggested, re.MULTILINE)
        child = person.terminal("init", env={"HPCRUN_RUNS": None}, timeout=120)
        answer(child, r"1  lab +your default in Slurm\s+2  thesis\s+account \[1\]: $", "thesis")
        answer(child, r"launcher \[1\]: $", "")
        answer(child, r"Folder of the runs, .*: $", "")
        answer(child, r"Submit a test job of under a minute \(2 nodes × 1 GPU\)\? \[Y/n\] $", "")
        child.expect(
            r"rank 0  a100-1  1 GPU\s+rank 1  a100-2  1 GPU\s+all-reduce of 2 ranks on 2 nodes "
            r"works \(torch "
        )
        child.expect(r"job \d+ COMPLETED")
        child.expect_exact("next       hpcrun submit --gpus 4 --nodes 2 train.py")
        assert at_end(child)[0] == 0
        job = ("--gpus", "4", "--nodes", "2", "--launcher", "srun", "--wait", "hostname")
        done = person("submit", *job, check=True)  # a training takes longer, and shows nothing more
        assert "2 nodes × 2 a100 GPUs, 4 ranks by srun" in done.stdout
        assert "where      partition accel, account thesis (profile dev)" in done.stdout
        assert "COMPLETED" in done.stderr
