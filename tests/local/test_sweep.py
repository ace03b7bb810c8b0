"""Sweeps on this machine: one element after the other, or a few at once."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path

import pytest

from tests.harness import Hpcrun, wait_for

LOCAL = ("submit", "-P", "local", "--gpus", "0")


def states(hpcrun: Hpcrun) -> list[str]:
    return [element["state"] for element in hpcrun.status()["elements"]]


def times(hpcrun: Hpcrun, index: int) -> tuple[float, float]:
    """When an element started and ended."""
    folder = Path(hpcrun.status()["folder"]) / f"elements/{index}/attempts/0"
    return json.loads((folder / "start").read_text())["started"], json.loads(
        (folder / "exit").read_text()
    )["ended"]


def test_elements_run_one_after_the_other(hpcrun: Hpcrun) -> None:
    done = hpcrun(
        *LOCAL,
        "--sweep",
        "n=1,2,3",
        "--wait",
        "bash",
        "-c",
        'echo "$HPCRUN_ELEMENT $*"; exit $(($2 == 2))',
        "x",
    )
    assert done.returncode == 7
    assert "bash/1 FAILED: n=2, rank 0 on local-0 failed first with exit status 1" in done.stderr
    assert f"hint: hpcrun explain {hpcrun.status()['job_id']}/1\n" in done.stderr
    job_id = hpcrun.status()["job_id"]
    assert (
        f"look       hpcrun status {job_id} | hpcrun sweep {job_id} | hpcrun logs -f {job_id}/0 | "
        in done.stdout
    )
    assert states(hpcrun) == ["COMPLETED", "FAILED", "COMPLETED"]
    assert hpcrun("logs", "last/2", check=True).stdout == "2 --n 3\n"
    assert times(hpcrun, 0)[1] <= times(hpcrun, 1)[0]
    assert "1 of 3 failed: rank 0 on local-0 failed first" in hpcrun("status", check=True).stdout
    assert (
        hpcrun("cancel", f"{job_id}/1").stderr
        == f"hpcrun: job {job_id}_1 has already ended: FAILED\n"
    )
    explained = hpcrun("explain", "last", check=True)
    assert "last is a sweep; showing its first failed element, 1\n" in explained.stderr
    assert "rank 0 on local-0 failed first with exit status 1" in explained.stdout
    assert explained.stdout == hpcrun("explain", "last/1", check=True).stdout
    assert "the job completed" in hpcrun("explain", "last/2", check=True).stdout
    rows = hpcrun(
        "status", "last/2", "last/0", "last/2", "--csv", "--columns", "name", check=True
    ).stdout.split()
    assert rows == ["name", "bash/0", "bash/2"]
    follow = hpcrun(*LOCAL, "--sweep", "x=1,2", "--follow", "echo")
    assert (follow.returncode, "hint: use --wait" in follow.stderr) == (2, True)


def test_as_many_at_once_as_were_asked_for(hpcrun: Hpcrun) -> None:
    until_next = "touch began-$1; until [ $1 = 3 ] || [ -e began-$(($1 + 1)) ]; do sleep 0.1; done"
    program = ("sh", "-c", until_next, "sh", "{n}")
    hpcrun(*LOCAL, "--sweep", "n=1,2,3", "--max-parallel", "2", "--wait", *program, check=True)
    assert times(hpcrun, 1)[0] < times(hpcrun, 0)[1] <= times(hpcrun, 2)[0] < times(hpcrun, 1)[1]


def test_more_of_an_element_that_runs(hpcrun: Hpcrun) -> None:
    said = "echo lr is $1; sleep 60"
    hpcrun(*LOCAL, "--sweep", "lr=1,2", "bash", "-c", said, "bash", "{lr}", check=True)

    def look() -> str | None:
        out = hpcrun("status", "-v", "last/0").stdout
        return out if "last line" in out else None

    closer = wait_for(look, 30, "its line")
    assert "/0\n" in closer
    assert "  last line    lr is 1\n" in closer
    assert "last line" not in hpcrun("status", "-v", "last/1").stdout
    assert "last line" not in hpcrun("status", "-v", "last").stdout
    hpcrun("cancel", "--yes", "last", check=True)


TRAIN = """
import os, sys
from hpcrun_runtime import log_metrics
lr, name = sys.argv[1:]
if lr == "3" and os.environ["HPCRUN_RESUBMITTED"] == "no":
    raise KeyError("labels")
for step in range(3):
    log_metrics(step=step, loss=abs(float(lr) - 2) / (step + 1), length=len(name))
"""


def test_the_elements_are_compared_and_the_best_has_its_command(
    hpcrun: Hpcrun, subtests: pytest.Subtests
) -> None:
    hpcrun.write("train.py", TRAIN)
    words = (
        "--env",
        "HPCRUN_RESUBMITTED=no",
        "--sweep",
        "lr=1,2,3",
        "--wait",
        "train.py",
        "{lr}",
        "it's",
    )
    hpcrun(*LOCAL, *words)
    shown = hpcrun("sweep", check=True)
    rows = [line.split() for line in shown.stdout.splitlines()]
    assert rows == [
        ["ELEMENT", "STATE", "lr", "STEP", "loss", "length"],
        ["1", "COMPLETED", "2", "2", "0", "4"],
        ["0", "COMPLETED", "1", "2", "0.333333", "4"],
        ["2", "FAILED", "(1)", "3", "-", "-", "-"],
    ]
    assert "by loss, smallest first" in shown.stderr
    # each has its own cause
    assert "KeyError: 'labels'" in hpcrun("status", "last", check=True).stdout
    failed = hpcrun("status", "last/1", "last/2", "--state", "failed", "-v", check=True).stdout
    assert "train/2" in failed
    assert "train/1" not in failed
    (only,) = hpcrun.document("status", "last", "--state", "failed")["runs"]
    assert [element["element"] for element in only["elements"]] == [2]
    best = hpcrun("sweep", "train", "--best", "loss", check=True)
    assert best.stdout.endswith("--env HPCRUN_RESUBMITTED=no train.py 2 'it'\\''s'\n")
    assert "(lr=2) is COMPLETED: loss 0 at step 2" in best.stderr
    dry = hpcrun.run(
        "bash", "-c", f'hpcrun() {{ {shlex.join(hpcrun.argv())} "$@"; }}; {best.stdout.strip()}'
    )
    assert "submitted" in dry.stdout
    assert " elements (" not in dry.stdout
    hpcrun.ended()
    assert "is no sweep" in hpcrun("sweep", "last").stderr
    for option in ("--plot", "--csv", "--json"):
        with subtests.test(option=option):
            assert hpcrun("sweep", "train", option).returncode == 2
    sweep = hpcrun.document("status", "--all")["runs"][0]["run_id"]
    for option, start in (
        ("--plot", "loss by step"),
        ("--csv", "run_id,element,"),
        ("--json", "{"),
    ):
        with subtests.test(option=option):
            assert hpcrun("sweep", sweep, option, check=True).stdout.startswith(start)
    again = hpcrun(
        "resubmit", sweep, "--failed", "--env", "HPCRUN_RESUBMITTED=yes", "--dry-run", check=True
    )
    assert f"again      of {sweep}, which has left nothing in $HPCRUN_CHECK" in again.stderr
    hpcrun("resubmit", sweep, "--failed", "--env", "HPCRUN_RESUBMITTED=yes", check=True)
    hpcrun.ended()
    both = hpcrun("sweep", check=True)
    assert f"repeats elements of {sweep}: the newest of each is shown" in both.stderr
    assert [line.split()[0].partition("/")[2] for line in both.stdout.splitlines()[1:]] == [
        "1",
        "0",
        "2",
    ]
    assert "FAILED" not in both.stdout
    runs = (Path(hpcrun.document("status", name)["runs"][0]["folder"]) for name in ("last", sweep))
    link, kept = (folder / "elements/2/checkpoints" for folder in runs)
    assert link.resolve() == kept.resolve()
    assert hpcrun("logs", "last/0").returncode == 6  # no element of this run
    refused = hpcrun("resubmit", "last", "--failed")
    assert (refused.returncode, "no element of" in refused.stderr) == (4, True)


def test_one_element_is_cancelled_then_all(hpcrun: Hpcrun) -> None:
    hpcrun(*LOCAL, "--sweep", "n=300,301,302", "sleep", "{n}", check=True)
    wait_for(lambda: states(hpcrun)[0] == "RUNNING", 20, "the first to run")
    assert states(hpcrun) == ["RUNNING", "PENDING", "PENDING"]
    hpcrun("cancel", "--yes", "last/0", "last/1", check=True)
    wait_for(
        lambda: states(hpcrun) == ["CANCELLED", "CANCELLED", "RUNNING"], 20, "the third to run"
    )
    hpcrun("cancel", "--yes", "last", check=True)
    hpcrun.ended()
    assert states(hpcrun) == ["CANCELLED"] * 3


def test_an_element_is_started_again(hpcrun: Hpcrun) -> None:
    script = "exit $((HPCRUN_ELEMENT == 1 && HPCRUN_ATTEMPT == 0))"
    args = (
        "--requeue",
        "1",
        "--retry-on-failure",
        "--sweep",
        "n=1,2",
        "--wait",
        "bash",
        "-c",
        script,
    )
    hpcrun(*LOCAL, *args, check=True)
    assert [element["attempt"] for element in hpcrun.status()["elements"]] == [0, 1]


def test_by_hand_an_element_is_named(hpcrun: Hpcrun) -> None:
    hpcrun.write_script("echo.sh", *LOCAL[1:], "--sweep", "x=1,2", "echo")
    refused = hpcrun.run("bash", "echo.sh", check=False)
    assert refused.returncode != 0
    assert "HPCRUN_ELEMENT=0 bash" in refused.stderr
    hpcrun.run("bash", "echo.sh", env={"HPCRUN_ELEMENT": "1"})
    (log,) = hpcrun.folder.glob("hpcrun-L*/elements/1/attempts/0/rank-0.out")
    assert log.read_text() == "--x 2\n"
    outside = hpcrun.run("bash", "echo.sh", env={"HPCRUN_ELEMENT": "2"}, check=False)
    assert "this sweep has no element 2" in outside.stderr


def test_a_pack_runs_that_many_at_once_with_a_gpu_in_turn(hpcrun: Hpcrun) -> None:
    program = (
        "sh",
        "-c",
        'touch "b-$1"; until [ "$1" = 3 ] || [ -e b-$(($1 % 2 + 1)) ]; do sleep 0.1; done; '
        'echo "$CUDA_VISIBLE_DEVICES $PYTORCH_ALLOC_CONF"',
        "sh",
        "{n}",
    )
    pack = ("--sweep", "n=1,2,3", "--pack", "2", "--pack-memory", "--gpus", "2", "--wait")
    env = {"CUDA_VISIBLE_DEVICES": "4,7", "PYTORCH_CUDA_ALLOC_CONF": "backend:native"}
    hpcrun("submit", "-P", "local", *pack, *program, check=True, env=env)
    logs = [hpcrun("logs", f"last/{number}", check=True).stdout for number in range(3)]
    share = "backend:native,per_process_memory_fraction:0.9\n"
    assert logs == [f"4 {share}", f"7 {share}", f"4 {share}"]
    assert (
        hpcrun("status", "last/1", "--csv", "--columns", "job_id", check=True)
        .stdout.split()[1]
        .endswith("_1")
    )
    old = hpcrun.folder / "old"
    (old / "lib/python3/site-packages/torch-2.9.1.dist-info").mkdir(parents=True)
    (old / "bin").mkdir()
    (old / "bin/python").symlink_to(Path(sys.executable).resolve())
    hpcrun(
        "submit",
        "-P",
        "local",
        "--python",
        f"{old}/bin/python",
        *pack,
        *program[:-2],
        "sh",
        "3",
        check=True,
        env=env,
    )
    assert hpcrun("logs", "last/0", check=True).stdout == "4 backend:native\n"
    assert "no effect on torch before 2.10" in hpcrun("logs", "--batch", "last/0").stdout
