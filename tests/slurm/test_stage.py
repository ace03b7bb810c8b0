"""--stage on a real Slurm, on nodes with disks of their own."""

from __future__ import annotations

import os
import signal
import subprocess
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


# --- --keep --------------------------------------------------------------------------------------

KEEP = (*HERE, "--launcher", "srun", "--nproc-per-node", "1", "--stage", "data", "--keep", "7")
# what a job can do to the copy, as the user that has made it
CHANGES = """
import os, pathlib
data = pathlib.Path(os.environ["HPCRUN_STAGE"], "data")
for act in ((data / "file").write_text, (data / "new").write_text):
    try:
        act("changed")
    except PermissionError as error:
        print(error.strerror, flush=True)
print((data / "file").read_text(), flush=True)
"""


def disk(cluster: Cluster, node: str) -> Path:
    """The disk of a node for data, as it is seen from outside of the node."""
    pid = (cluster.root / f"run/slurmd-{node}.pid").read_text().strip()
    return Path(f"/proc/{pid}/root/mnt")


def kept(cluster: Cluster, node: str) -> list[Path]:
    """The folders that are kept on a node."""
    return sorted(disk(cluster, node).glob("hpcrun-kept-*"))


def is_held(folder: Path) -> bool:
    """Whether a process holds a folder."""
    flock = ["flock", "--exclusive", "--nonblock", str(folder), "true"]
    return subprocess.run(flock, check=False).returncode != 0


def log_of(folder: Path) -> str:
    log = folder / "batch.log"
    return log.read_text() if log.exists() else ""


def end_well(person: Hpcrun, folder: Path) -> str:
    """Wait for the end of a job; return its log."""
    status = person.ended(folder.name, 60)
    assert status["state"] == "COMPLETED", log_of(folder)
    return log_of(folder)


@pytest.mark.versions
def test_the_next_job_copies_only_to_new_nodes_and_no_job_changes_the_copy(
    cluster: Cluster, as_researcher: Hpcrun
) -> None:
    for node in USED:
        cluster.apart(node)
    for name in ("file", "deep/file", "deep/er/file", "other/file"):
        as_researcher.write(f"data/{name}", "content")
    as_researcher.write("changes.py", CHANGES)
    first = as_researcher.submit(*KEEP, "--nodes", "2", "changes.py")
    log = end_well(as_researcher, first)
    assert "--stage: 0 of 2 nodes have it already" in log
    out = (attempt(first, 0) / "rank-1.out").read_text()
    assert out == "Permission denied\nPermission denied\ncontent\n"
    had = [node for node in USED if kept(cluster, node)]
    assert len(had) == 2
    second = as_researcher.submit(*KEEP, "--nodes", "3", "changes.py")
    log = end_well(as_researcher, second)
    assert "--stage: 2 of 3 nodes have it already" in log
    assert ", to 1 node, into /mnt/hpcrun-stage-" in log
    wait_for(
        lambda: [len(copies(cluster, node)) for node in USED] == [1, 1, 1],
        20,
        "the job to remove its own folders",
    )
    as_researcher.write("data/file", "another")
    third = as_researcher.submit(*KEEP, "--nodes", "3", "changes.py")
    assert "--stage: 0 of 3 nodes have it already" in end_well(as_researcher, third)
    assert (attempt(third, 0) / "rank-2.out").read_text().endswith("another\n")


SLEEPS = ("bash", "-c", "echo begun; rm -r $HPCRUN_STAGE; exec sleep 600")


@pytest.mark.versions
@pytest.mark.parametrize(
    "launch",
    [
        pytest.param(("--launcher", "srun", "--nproc-per-node", "1", *SLEEPS), id="srun"),
        pytest.param(("--launcher", "command", *SLEEPS), id="command"),
        pytest.param(
            ("--role", "one:1", *SLEEPS, "--role", "two:1", *SLEEPS),
            id="roles",
        ),
    ],
)
def test_the_ranks_of_each_node_hold_the_copy(
    cluster: Cluster, as_researcher: Hpcrun, launch: tuple[str, ...]
) -> None:
    """Also if the program removes the folder of its job, with the links."""
    for node in USED[:2]:
        cluster.apart(node)
    as_researcher.write("data/file", "content")
    on = (*HERE, "--exclude", ",".join(sorted(NODES - {*USED[:2]})), "--stage", "data")
    size = () if "--role" in launch else ("--nodes", "2")
    folder = as_researcher.submit(*on, *size, "--keep", "1", *launch)
    begun(folder, ranks=2)
    copies_kept = [path for node in USED[:2] for path in kept(cluster, node)]
    assert [is_held(path) for path in copies_kept] == [True, True]
    as_researcher("cancel", folder.name, check=True)
    wait_for(
        lambda: not any(is_held(path) for path in copies_kept), 30, "the job to leave the copies"
    )


@pytest.mark.versions
def test_only_copies_that_no_job_of_their_owner_uses_give_way(
    cluster: Cluster, as_researcher: Hpcrun
) -> None:
    """A script that has no ranks on a node at the time uses the copy there, too."""
    for node in USED[:2]:
        cluster.apart(node)
    for name in ("one", "two"):
        with as_researcher.write(f"{name}/bytes", "").open("wb") as file:
            os.posix_fallocate(file.fileno(), 0, 300 << 20)
    as_researcher.write(
        "script.sh",
        "#!/bin/bash\n#SBATCH -p gpu --mem=1G --nodes=2\necho begun\nexec sleep 600\n",
    )
    keep = ("--exclude", ",".join(sorted(NODES - {*USED[:2]})), "--keep", "1")
    script = ("-P", "a100", "--env", "HPCRUN_STAGE_DIR=/mnt", *keep, "--stage", "one", "script.sh")
    uses = as_researcher.submit(*script)
    wait_for(lambda: "begun" in log_of(uses), 60, "the script to begin")
    (used,) = kept(cluster, USED[1])
    foreign = disk(cluster, USED[1]) / (used.name[:-32] + "0" * 32)
    foreign.mkdir(mode=0o777)
    need = (*HERE, "--nodelist", USED[1], "--keep", "1", "--stage", "two", "true")
    refused = as_researcher.ended(as_researcher.submit(*need).name, 60)
    assert refused["state"] == "FAILED"
    assert "315 MB are needed in /mnt" in refused["reason"]
    assert used.exists()
    as_researcher("cancel", uses.name, check=True)
    as_researcher.ended(uses.name, 60)
    log = end_well(as_researcher, as_researcher.submit(*need))
    assert f"--stage: {USED[1]}: removed {as_researcher.folder}/one (315 MB, last used" in log
    (stays, new) = sorted(kept(cluster, USED[1]), key=lambda path: path != foreign)
    assert stays == foreign
    assert (new / "data/two/bytes").exists()


@pytest.mark.versions
def test_the_folder_of_another_user_is_not_used(cluster: Cluster, as_researcher: Hpcrun) -> None:
    for node in USED[:2]:
        cluster.apart(node)
    as_researcher.write("data/file", "content")
    as_researcher.write("changes.py", CHANGES)
    end_well(as_researcher, as_researcher.submit(*KEEP, "--nodelist", USED[0], "changes.py"))
    (folder,) = kept(cluster, USED[0])
    squat = disk(cluster, USED[1]) / folder.name
    (squat / "data/data").mkdir(parents=True)
    (squat / "data/data/file").write_text("hostile")
    second = as_researcher.submit(*KEEP, "--nodelist", USED[1], "changes.py")
    log = end_well(as_researcher, second)
    line = f"/mnt/{folder.name} belongs to the user with the id 0; this job gets a copy of its own"
    assert f"--stage: {USED[1]}: {line}" in log
    assert (attempt(second, 0) / "rank-0.out").read_text() == "changed\n"
    assert (squat / "data/data/file").read_text() == "hostile"
    wait_for(lambda: copies(cluster, USED[1]) == [folder.name], 20, "the job to remove its copy")
