"""What cannot be submitted: one clear message, an exit code of the house, no run and no job left."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.harness import RESEARCHER, Cluster, Hpcrun

pytestmark = pytest.mark.slurm


def nothing_left(cluster: Cluster, person: Hpcrun) -> bool:
    runs = [path.name for path in person.runs.iterdir() if path.name not in ("active", ".programs")]
    markers = list((person.runs / "active").iterdir()) if (person.runs / "active").exists() else []
    return not runs and not markers and not cluster.slurm("squeue", "-h", "-u", RESEARCHER).strip()


@pytest.mark.parametrize(
    ("args", "code", "says"),
    [
        (["--time", "3-00:00:00"], 4, "longer than the 2-00:00:00 that profile 'a100' allows"),
        (["--partition", "gpuu"], 5, "Invalid partition name specified"),
        (["--account", "nobody"], 5, "Invalid account"),
        (["--qos", "nope"], 5, "Invalid qos specification"),
        (["--sbatch", "patition=gpu"], 5, "did you mean 'partition'?"),
        (["--partition", "cpu", "--gpus", "1"], 5, "Requested node configuration is not available"),
    ],
)
def test_refusals(cluster: Cluster, as_researcher: Hpcrun, args: list[str], code: int, says: str) -> None:
    (as_researcher.folder / "train.py").write_text("print('never')\n")
    done = as_researcher("submit", "-P", "a100", *args, "train.py")
    assert done.returncode == code, done.stderr
    assert says in done.stderr
    assert "Traceback" not in done.stderr
    assert nothing_left(cluster, as_researcher)


@pytest.fixture
def full_disk(as_researcher: Hpcrun) -> Iterator[Path]:
    """A runs folder on a file system of the researcher's own that is full to the last block."""
    mount = as_researcher.folder / "full"
    mount.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size=64k,mode=700,uid={RESEARCHER}", "tmpfs", mount], check=True)
    runs = mount / "runs"
    for path in (runs, runs / "active"):
        path.mkdir(mode=0o700)
        shutil.chown(path, RESEARCHER)
    with (mount / "filler").open("wb", buffering=0) as file, pytest.raises(OSError, match="No space left"):
        while True:
            file.write(b"x" * 1024)
    yield runs
    subprocess.run(["umount", str(mount)], check=True)


def test_a_full_disk(cluster: Cluster, as_researcher: Hpcrun, full_disk: Path) -> None:
    done = as_researcher("submit", "-P", "a100", "--gpus", "1", "true", env={"HPCRUN_RUNS": str(full_disk)})
    assert done.returncode == 4, done.stderr
    assert "No space left on device" in done.stderr
    assert "HPCRUN_RUNS" in done.stderr
    assert sorted(path.name for path in full_disk.iterdir()) == ["active"]
    assert nothing_left(cluster, as_researcher)


def test_a_cancel_that_slurm_did_not_do_leaves_no_word_of_it(cluster: Cluster, as_researcher: Hpcrun) -> None:
    as_researcher("submit", "-P", "cpu", "--cpus", "1", "--sbatch", "hold", "sleep", "60", check=True)
    refusing = as_researcher.folder / "bin"
    refusing.mkdir()
    (refusing / "scancel").write_text("#!/bin/sh\necho 'scancel: error: Socket timed out' >&2\nexit 1\n")
    (refusing / "scancel").chmod(0o755)
    done = as_researcher("cancel", "last", env={"PATH": f"{refusing}:{as_researcher.environ['PATH']}"})
    assert (done.returncode, "Socket timed out" in done.stderr) == (5, True)
    assert not list(as_researcher.runs.glob("*/cancelled"))
    as_researcher("cancel", "last", check=True)
    assert list(as_researcher.runs.glob("*/cancelled"))
    (log,) = as_researcher.runs.glob("*/hpcrun.log")
    lines = log.read_text().splitlines()
    did = [["submit:", "hpcrun"], ["submit:", "sbatch"], ["cancel:", "scancel"], ["cancel:", "scancel"]]
    assert [line.split()[1:3] for line in lines] == did
    assert [": job " in lines[1], ": exit status 1, " in lines[2], ": exit status 0, " in lines[3]] == [True] * 3
