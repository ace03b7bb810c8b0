"""hpcrun scale run on this machine, where nothing but the command itself lets one run wait for
another.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
from itertools import pairwise
from typing import Any

import pytest

from tests.harness import Hpcrun, wait_for

ON_CPUS = (
    "scale",
    "run",
    "-P",
    "local",
    "--ranks",
    "1,2",
    "--nodes",
    "1,2",
    "--launcher",
    "python",
)
TRAIN = """
import sys
from hpcrun_runtime import log_metrics
print(*sys.argv[1:], flush=True)
gpus, repeat = int(sys.argv[1]), sys.argv[2]
for epoch in (1, 2, 3):
    time_s = (9.0 if epoch == 1 else 2.0) / gpus
    log_metrics(step=epoch, epoch_time=time_s, samples=100 // gpus, val_accuracy=0.5)
sys.exit(3 if gpus == 2 and repeat == "2" else 0)
"""
WAIT = """
import os, pathlib, time
print(os.environ["API_TOKEN"], flush=True)
while not pathlib.Path("go").exists():
    time.sleep(0.05)
"""


def record(hpcrun: Hpcrun) -> dict[str, Any]:
    """The record of the only study."""
    (path,) = hpcrun.runs.glob("studies/*/study.json")
    return dict(json.loads(path.read_text()))


def times(hpcrun: Hpcrun, point: dict[str, Any]) -> tuple[float, float]:
    """When a run began and when it ended."""
    attempt = hpcrun.runs / point["run_id"] / "elements/0/attempts/0"
    start, end = (json.loads((attempt / name).read_text()) for name in ("start", "exit"))
    return start["started"], end["ended"]


def test_a_study_runs_each_size_alone_and_a_run_that_fails_is_shown(hpcrun: Hpcrun) -> None:
    hpcrun.write("train.py", TRAIN)
    done = hpcrun(
        *ON_CPUS,
        "--repeat",
        "2",
        "--batch-size",
        "64",
        "train.py",
        "{gpus}",
        "{repeat}",
        "{batch_size}",
    )
    assert done.returncode == 7
    assert "hpcrun: 1 of 4 runs did not complete" in done.stderr
    rows = [line.split() for line in done.stdout.splitlines() if line.startswith("train-p")][-4:]
    assert [(*row[:4], row[5]) for row in rows] == [
        ("train-p1-r1", "1", "1", "64", "COMPLETED"),
        ("train-p2-r1", "2", "2", "64", "COMPLETED"),
        ("train-p1-r2", "1", "1", "64", "COMPLETED"),
        ("train-p2-r2", "2", "2", "64", "FAILED"),
    ]
    spans = [times(hpcrun, point) for point in record(hpcrun)["points"]]
    assert all(before[1] <= after[0] for before, after in pairwise(spans))
    assert hpcrun("logs", "train-p2-r1", "--rank", "0").stdout == "2 1 64\n"
    listed = hpcrun("scale", "run", "--list", check=True).stdout.splitlines()
    assert [line.split()[0] for line in listed] == ["STUDY", record(hpcrun)["study_id"]]
    again = hpcrun.document("scale", "run", "--show", "train", check=True)
    assert [point["state"] for point in again["points"]] == [
        "COMPLETED",
        "COMPLETED",
        "COMPLETED",
        "FAILED",
    ]

    # the figures have tests of their own
    lib = hpcrun.write("lib/matplotlib.py", "raise ImportError\n").parent
    env = {"PYTHONPATH": str(lib)}
    twice = ("last", record(hpcrun)["study_id"])  # one study
    document = hpcrun.document("scale", "report", *twice, "-o", "out", env=env, check=True)
    (series,) = document["series"]
    assert [(row["gpus"], row["speedup"]) for row in series["rows"]] == [(1, 1.0), (2, 2.0)]
    assert series["sources"] == ["metrics"]
    assert document["warmup"] == 1
    assert document["weak"] is False
    assert [(each["gpus"], each["repeat"]) for each in series["left_out"]] == [(2, 2)]
    text = (hpcrun.folder / "out/report.txt").read_text()
    assert "train-p2-r2" in text
    assert text.startswith("No answer yet: the times are unreliable (short epochs")
    assert "\nRANKS" in text
    assert "GPU" not in text
    assert record(hpcrun)["study_id"] in hpcrun("scale", "report", env=env, check=True).stdout


def test_a_study_whose_command_was_killed_loses_nothing_and_goes_on(hpcrun: Hpcrun) -> None:
    hpcrun.write("train.py", WAIT)
    secret = {"API_TOKEN": "s3cret"}
    argv = hpcrun.argv(*ON_CPUS, "--env", "API_TOKEN=s3cret", "train.py")
    scale = subprocess.Popen(argv, cwd=hpcrun.folder, env=hpcrun.environ, stdout=subprocess.DEVNULL)
    wait_for(
        lambda: list(hpcrun.runs.glob("*/elements/0/attempts/0/rank-0.out")), 20, "the first run"
    )
    beside = hpcrun("scale", "run", "--resume", "last")
    assert (beside.returncode, "another hpcrun is submitting" in beside.stderr) == (4, True)
    assert "RUNNING" in hpcrun("scale", "run", "--show", "last", check=True).stdout
    early = hpcrun("scale", "report", "last", check=True).stdout
    assert early.startswith(
        "Study not finished: 1 running. No verdict yet, and nothing is written.\n"
    )
    assert not list(hpcrun.folder.glob("report-*"))
    scale.kill()
    scale.wait()
    before = record(hpcrun)
    assert [point["submitted"] for point in before["points"]] == [True, False]
    assert not [path for path in hpcrun.runs.glob("**/*.json") if "s3cret" in path.read_text()]
    unset = hpcrun("scale", "run", "--resume", "last")
    assert (unset.returncode, "API_TOKEN is a secret" in unset.stderr) == (2, True)
    planned = hpcrun("scale", "run", "--resume", "last", "--dry-run", env=secret, check=True)
    assert "train-p2-r1  2 ranks on 2 nodes: train.py" in planned.stderr
    assert record(hpcrun) == before
    (hpcrun.folder / "go").touch()
    done = hpcrun(
        "scale", "run", "--resume", "last", "--json", env=secret, cwd=hpcrun.home, check=True
    )
    points = json.loads(done.stdout)["points"]
    assert [point["state"] for point in points] == ["COMPLETED", "COMPLETED"]
    assert points[0]["run_id"] == before["points"][0]["run_id"]
    assert hpcrun("scale", "run", "--resume", "last", check=True).stdout.count("COMPLETED") == 2
    assert len(list(hpcrun.runs.glob("*/run.json"))) == 2
    assert times(hpcrun, points[0])[1] <= times(hpcrun, points[1])[0]
    assert hpcrun("logs", "train-p2-r1", "--rank", "0").stdout == "s3cret\n"


def test_control_c_ends_no_run_and_says_how_to_come_back(hpcrun: Hpcrun) -> None:
    hpcrun.write("train.py", WAIT.replace('os.environ["API_TOKEN"]', '"begun"'))
    scale = subprocess.Popen(
        hpcrun.argv(*ON_CPUS, "train.py"),
        cwd=hpcrun.folder,
        env=hpcrun.environ,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    wait_for(
        lambda: list(hpcrun.runs.glob("*/elements/0/attempts/0/rank-0.out")), 20, "the first run"
    )
    os.kill(scale.pid, signal.SIGINT)
    said = scale.communicate(timeout=20)[1]
    study = record(hpcrun)["study_id"]
    assert scale.returncode == 130
    assert f"study {study}: 1 of 2 runs are not submitted yet" in said
    assert f"hint: hpcrun scale run --resume {study} --wait continues" in said
    (hpcrun.folder / "go").touch()
    wait_for(
        lambda: list(hpcrun.runs.glob("*/elements/0/attempts/0/exit")),
        20,
        "the end of the first run",
    )


def test_a_dry_run_shows_every_run_and_one_script_and_makes_nothing(hpcrun: Hpcrun) -> None:
    (hpcrun.folder / "train.py").touch()
    asked = "scale run -P a100 --gpus 1,2,8 --weak --batch-size 32 --lr 1e-3 --dataset imdb".split()
    args = ("train.py", "{dataset}", "{batch_size}", "{lr}", "{nodes}")
    shown = hpcrun(*asked, "--dry-run", *args, check=True)
    assert "train-g1-r1  1 GPU on 1 node: train.py imdb 32 1e-3 1" in shown.stderr
    assert "train-g8-r1  8 GPUs on 2 nodes: train.py imdb 256 0.008 2" in shown.stderr
    assert shown.stdout.startswith("#!/bin/bash")
    document = json.loads(hpcrun(*asked, "--dry-run", "--json", *args, check=True).stdout)
    assert document["points"][0]["script"] == shown.stdout
    assert [point["plan"]["shape"]["nodes"] for point in document["points"]] == [1, 1, 2]
    assert list(hpcrun.runs.iterdir()) == []


def test_what_cannot_be_is_refused_before_anything_is_made(
    hpcrun: Hpcrun, subtests: pytest.Subtests
) -> None:
    hpcrun.write("train.py", "")
    for args, status, words in (
        ("--gpus 1,2", 2, "SCRIPT is missing"),
        ("--gpus 1,2 --repeat 0 train.py", 2, "--repeat 0: must be 1 or more"),
        ("--gpus 1,2 -P cpu train.py", 4, "--ranks 1,2,4 is a study of CPU ranks"),
        ("--gpus 1,2 --nodes 2 -P a100 train.py", 2, "1 GPU does not divide by 2 nodes"),
        ("--resume last train.py", 2, "without SCRIPT and sizes"),
        ("--resume trian", 6, "there are no studies"),
    ):
        with subtests.test(args=args):
            refused = hpcrun("scale", "run", *args.split(), env={"HPCRUN_PROFILE": "local"})
            assert (refused.returncode, refused.stdout, words in refused.stderr) == (
                status,
                "",
                True,
            ), refused.stderr
            assert list(hpcrun.runs.iterdir()) == []
