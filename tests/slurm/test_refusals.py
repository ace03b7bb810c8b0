"""What cannot be submitted: one clear message, an exit code of the house, no run and no job
left.
"""

from __future__ import annotations

import pytest

from tests.harness import RESEARCHER, Cluster, Hpcrun

pytestmark = pytest.mark.slurm


def nothing_left(cluster: Cluster, person: Hpcrun) -> bool:
    runs = [path.name for path in person.runs.iterdir() if path.name not in ("active", ".programs")]
    markers = list((person.runs / "active").iterdir()) if (person.runs / "active").exists() else []
    return not runs and not markers and not cluster.slurm("squeue", "-h", "-u", RESEARCHER).strip()


def test_refusals(cluster: Cluster, as_researcher: Hpcrun, subtests: pytest.Subtests) -> None:
    for args, says in (
        (("--partition", "gpuu"), "Invalid partition name specified"),
        (("--account", "nobody"), "Invalid account"),
        (("--sbatch", "patition=gpu"), "did you mean 'partition'?"),
        (("--partition", "cpu", "--gpus", "1"), "Requested node configuration is not available"),
    ):
        with subtests.test(args=args):
            done = as_researcher("submit", "-P", "a100", *args, "true")
            assert (done.returncode, says in done.stderr, "Traceback" in done.stderr) == (
                5,
                True,
                False,
            ), done.stderr
            assert nothing_left(cluster, as_researcher)


def test_a_cancel_that_slurm_did_not_do_leaves_no_word_of_it(
    cluster: Cluster, as_researcher: Hpcrun
) -> None:
    as_researcher(
        "submit", "-P", "cpu", "--cpus", "1", "--sbatch", "hold", "sleep", "60", check=True
    )
    refusing = as_researcher.shims(scancel="echo 'scancel: error: Socket timed out' >&2; exit 1")
    done = as_researcher("cancel", "--yes", "last", env=refusing)
    assert (done.returncode, "Socket timed out" in done.stderr) == (5, True)
    assert not list(as_researcher.runs.glob("*/cancelled"))
    done = as_researcher("cancel", "--yes", "last", env=as_researcher.shims(scancel="exit 0"))
    assert (done.returncode, done.stdout) == (5, "")
    assert "was not cancelled: Slurm still lists it as PENDING" in done.stderr
    assert not list(as_researcher.runs.glob("*/cancelled"))
    assert as_researcher("cancel", "--yes", "last", check=True).stdout.startswith("cancelled  job ")
    assert list(as_researcher.runs.glob("*/cancelled"))
    (log,) = as_researcher.runs.glob("*/hpcrun.log")
    lines = log.read_text().splitlines()
    did = [
        ["submit:", "hpcrun"],
        ["submit:", "sbatch"],
        ["cancel:", "scancel"],
        ["cancel:", "scancel"],
        ["cancel:", "scancel"],
    ]
    assert [line.split()[1:3] for line in lines] == did
    assert [
        ": job " in lines[1],
        ": exit status 1, " in lines[2],
        ": exit status 0, " in lines[3],
        ": exit status 0, " in lines[4],
    ] == [True] * 4
