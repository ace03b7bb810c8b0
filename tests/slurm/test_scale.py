"""A scaling study on real Slurm, by an ordinary user: on one node and on two, one after the other.

docs/guides/4-scaling.md has one with real training.
"""

from __future__ import annotations

import json

import pytest

from tests.harness import Cluster, Hpcrun

pytestmark = pytest.mark.slurm

CONFIG = r"""
metrics:
  step: 'epoch (\d+):'
  samples_per_s: '(\d+) samples/s'
"""
SMALL = (
    "-P",
    "a100",
    "-p",
    "gpu",
    "--cpus",
    "1",
    "--mem",
    "1G",
    "--time",
    "5m",
    "--launcher",
    "python",
)
DIGITS = """
import os, sys, time
nodes = int(os.environ["NNODES"])
if os.environ["NODE_RANK"] == "0":
    print(f"{nodes} nodes, batches of {sys.argv[1]}")
    for epoch in (1, 2):
        time.sleep(0.2)
        print(f"epoch {epoch}: {1000 * nodes} samples/s")
"""


def test_a_study_over_nodes_waits_its_turn_and_a_refused_size_spoils_nothing(
    cluster: Cluster, as_researcher: Hpcrun
) -> None:
    as_researcher.write("home/.config/hpcrun/config.yaml", CONFIG)
    as_researcher.write("digits.py", DIGITS)
    sizes = ("--gpus", "1,2,12", "--nodes", "1,2,3", "--chain", "--batch-size", "120")
    begun = as_researcher(
        "scale", "run", *SMALL, *sizes, "-J", "digits", "digits.py", "{batch_size}"
    )
    assert begun.returncode == 5
    assert "refused    digits-g12-r1  12 GPUs on 3 nodes: sbatch refused the job" in begun.stdout
    assert "hpcrun: 1 of 3 runs could not be submitted" in begun.stderr
    first, second = json.loads(
        as_researcher("status", "--json", "digits-g1-r1", "digits-g2-r1").stdout
    )["runs"]
    assert [(after["run_id"], after["condition"]) for after in second["after"]] == [
        (first["run_id"], "any")
    ]

    done = as_researcher("scale", "run", "--resume", "digits", "--wait", "--json")
    assert done.returncode == 7  # the third was tried once more, in vain
    one, two, twelve = json.loads(done.stdout)["points"]
    assert [(point["state"], point["nodes"]) for point in (one, two)] == [
        ("COMPLETED", 1),
        ("COMPLETED", 2),
    ]
    assert twelve["state"] == "NOT_SUBMITTED"
    assert "configuration is not available" in twelve["problem"]
    assert "2 nodes, batches of 120" in as_researcher("logs", "digits-g2-r1", check=True).stdout

    (series,) = json.loads(as_researcher("scale", "report", "digits", "--json", check=True).stdout)[
        "series"
    ]
    assert series["sources"] == ["log"]
    assert series["basis"] == "throughput"
    assert [(row["gpus"], row["nodes"]) for row in series["rows"]] == [(1, 1), (2, 2)]
    assert [each["gpus"] for each in series["left_out"]] == [12]
