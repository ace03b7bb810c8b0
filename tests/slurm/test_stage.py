"""--stage on a real Slurm, on nodes with disks of their own."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from pathlib import Path

import pytest

from tests.harness import Cluster, Hpcrun, wait_for
from tests.slurm.lab import NODES, SMALL, attempt, begun, processes

pytestmark = pytest.mark.slurm

USED = ("a100-1", "a100-2", "h100-1")
HERE = (
    *SMALL,
    "-p",
    "gpu",
    "--exclude",
    ",".join(sorted(NODES - {*USED})),
    "--env",
    "HPCRUN_STAGE_DIR=/mnt",
)
# each rank reads its copy; in the first attempt, the one on the second node fails
READS = """
import os, pathlib, sys, time
stage = pathlib.Path(os.environ["HPCRUN_STAGE"])
paths = [path for path in sorted(stage.rglob("*")) if path.is_file()]
files = {str(path.relative_to(stage)): path.read_bytes() for path in paths}
stat = stage.stat()
print(os.environ["SLURMD_NODENAME"], oct(stat.st_mode), stat.st_ino, hash(str(files)), flush=True)
print(*map(ascii, files), sep="\\n", flush=True)
fails = os.environ["HPCRUN_ATTEMPT"] == "0" and os.environ.get("RANK") == "1"
while fails and not os.path.exists(os.environ["HPCRUN_ATTEMPT_DIR"] + "/rank-0.exit"):
    time.sleep(0.1)
sys.exit(fails)
"""


def copies(cluster: Cluster, node: str) -> list[str]:
    """What jobs have left on the disk of a node."""
    pid = (cluster.root / f"run/slurmd-{node}.pid").read_text().strip()
    return os.listdir(f"/proc/{pid}/root/mnt")


def make_tree(person: Hpcrun) -> Path:
    """A folder with names, links and files that are easily copied wrongly."""
    tree = person.folder / "-data"
    person.write("elsewhere", "out of the tree")
    for name in ("a b", "new\nline", "-dash", "deep/er/file", "\udcff"):
        person.write(f"-data/{name}", name.encode("utf-8", "surrogateescape").hex())
    (tree / "out").symlink_to("../elsewhere")
    (tree / "same").symlink_to("a b")
    (tree / "loop").symlink_to("..")
    (tree / "nowhere").symlink_to("gone")
    os.mkfifo(tree / "fifo")
    with open(tree / "sparse", "wb") as file:
        file.truncate(4 << 30)  # more than a disk of the nodes has
    return tree


def test_each_node_has_a_copy_also_the_spare_one(cluster: Cluster, as_researcher: Hpcrun) -> None:
    for node in USED:
        cluster.apart(node)
    tree = make_tree(as_researcher)
    (tree / "sparse").unlink()
    as_researcher.write("reads.py", READS)
    again = ("--restarts", "1", "--spares", "1", "--retry-on-failure", "--exclude-bad-nodes")
    ranks = ("--nodes", "2", "--launcher", "srun", "--nproc-per-node", "1")
    folder = as_researcher.submit(
        *HERE, *again, *ranks, "--stage", "./-data:set", "--stage", "elsewhere", "reads.py"
    )
    status = as_researcher.ended(folder.name, 60)
    log = (folder / "batch.log").read_text()
    assert status["state"] == "COMPLETED", log
    (first, second), (third, fourth) = (
        [(attempt(folder, number) / f"rank-{rank}.out").read_text().splitlines() for rank in (0, 1)]
        for number in (0, 1)
    )
    names = [
        "elsewhere",
        *(f"set/{name}" for name in ("-dash", "a b", "deep/er/file", "new\nline", "out", "same")),
    ]
    assert first[1:] == [*map(ascii, names), ascii("set/\udcff")]
    assert first[1:] == second[1:] == third[1:] == fourth[1:]
    assert first[0].split()[1] == "0o40700"
    assert third[0].split()[:3] == first[0].split()[:3]  # the copy of the first attempt
    assert {line[0].split()[0] for line in (first, second, fourth)} == {*USED}
    assert ", to 2 nodes, into /mnt/hpcrun-stage-" in log
    assert ", to 1 node, into /mnt/hpcrun-stage-" in log
    assert "2 links that lead nowhere, or back, are left out" in log
    wait_for(
        lambda: not any(copies(cluster, node) for node in USED), 20, "the job to remove its copies"
    )


def test_nothing_is_left_and_what_does_not_fit_is_not_begun(
    cluster: Cluster, as_researcher: Hpcrun
) -> None:
    for node in USED[:2]:
        cluster.apart(node)
    make_tree(as_researcher)
    with open(as_researcher.folder / "large", "wb") as file:
        os.posix_fallocate(file.fileno(), 0, 600 << 20)
    as_researcher.write(
        "script.sh",
        "#!/bin/bash\n#SBATCH -p gpu --mem=1G\nsrun -N1 -n1 python3 reads.py\ncat "
        "$HPCRUN_STAGE/elsewhere\n",
    )
    as_researcher.write(
        "reads.py", READS.replace("path.read_bytes()", "0").replace("sys.exit", "print")
    )
    on = [(*HERE, "--nodelist", node, "--stage", "elsewhere") for node in USED[:2]]
    sleeps = ("bash", "-c", "ls $HPCRUN_STAGE; exec sleep 600")
    cancelled = as_researcher.submit(*on[0], *sleeps)
    killed = as_researcher.submit(*on[1], *sleeps)
    for folder in (cancelled, killed):
        begun(folder)
    assert [len(copies(cluster, node)) for node in USED[:2]] == [1, 1]
    as_researcher("cancel", cancelled.name, check=True)
    for pid in processes(killed):
        with suppress(ProcessLookupError):  # it has ended with another one
            os.kill(pid, signal.SIGKILL)
    wait_for(lambda: not copies(cluster, USED[0]), 20, "the node to remove its copy")
    as_researcher.ended(killed.name, 30)
    assert len(copies(cluster, USED[1])) == 1

    script = ("-P", "a100", "-p", "gpu", "--nodelist", USED[1], "--env", "HPCRUN_STAGE_DIR=/mnt")
    last = as_researcher.submit(*script, "--stage", "./-data", "--stage", "elsewhere", "script.sh")
    large = as_researcher.submit(*on[0], "--stage", "large", "true")
    assert as_researcher.ended(last.name, 30)["state"] == "COMPLETED", (
        last / "batch.log"
    ).read_text()
    assert "out of the tree" in (last / "batch.log").read_text()
    assert "-data/sparse" in (attempt(last, 0) / "rank-0.out").read_text()
    wait_for(lambda: not copies(cluster, USED[1]), 20, "the last job to remove its copy")
    status = as_researcher.ended(large.name, 30)
    assert status["state"] == "FAILED"
    assert (
        f"629 MB are needed in /mnt, and {USED[0]} has 537 MB free. --env HPCRUN_STAGE_DIR="
        in status["reason"]
    )
    assert copies(cluster, USED[0]) == []
    refused = as_researcher("submit", *HERE, "--stage", "gone", "true")
    assert (refused.returncode, "--stage gone: there is no " in refused.stderr) == (2, True)
