"""hpcrun plan: what more GPUs would bring."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence

import pytest

from hpcrun.views.text import without_colours
from tests.harness import Hpcrun

MEASURED = (
    "scale",
    "plan",
    "--samples",
    "20.48M",
    "--batch-size",
    "1024",
    "--lr",
    "1e-3",
    "--epoch-time",
    "36m",
    "--tokens-per-sample",
    "1",
)
SEED = (*MEASURED, "--gpus", "1,2,4,8", "-P", "h100")


def test_the_first_line_is_the_answer_and_a_row_below_the_target_says_why(hpcrun: Hpcrun) -> None:
    shown = hpcrun(*SEED, "--also", "2:1024=21m", check=True).stdout
    first, second = " ".join(shown.partition("\n\n")[0].split()).split(". If ")
    assert first.startswith(
        "If the global batch stays 1024: ask for 2 GPUs, 1.71× at 86 % efficiency; 4 would be 2."
    )
    assert second.startswith("the global batch grows with the GPUs, 1024 on each: ask for 8 GPUs, ")
    flagged = [line.split()[0] for line in shown.splitlines() if line.endswith("  overhead")]
    assert flagged == ["8"]
    assert "8 GPUs (per-GPU batch 128): most of the lost time is" in shown
    assert "instead  hpcrun submit -P h100 --gpus 8 SCRIPT --batch-size 2048 --lr 0.001414" in shown
    assert "measure  " not in shown


SLOWER = (
    "scale plan --samples 120k --batch-size 32 --epoch-time 19.46s --tokens-per-sample 128 "
    "-P "
    "a100 -G 1,2,4"
).split()
GUIDE = (
    "scale plan --samples 1.2M --batch-size 1024 --lr 1e-3 --epoch-time 36m --gpus 1,2,4,8 "
    "-P h100 --also 2048=33m"
).split()
UNSUPPORTED = "scale plan --samples 1.2M --batch-size 1024 --epoch-time 36m -P h100 -G 1,2".split()
ONE_NODE = (
    "scale plan --samples 20.48M --batch-size 2048 --epoch-time 36m --also 2:2048=18.6m "
    "-P h100 -G 1,8,16"
).split()
ON_H100 = (*MEASURED, "-P", "h100")
SPREAD = (*ON_H100, "--gpus", "1,8", "--mode", "fixed")


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (
            SEED,
            "If the global batch stays 1024: measure 2 GPUs first, forecast 1.47× (0.96 to 1.62×). "
            "One",
        ),
        (SEED, "measure hpcrun scale run -P h100 --gpus 1,2 SCRIPT --batch-size 1024 and"),
        (
            (*SEED, "--mode", "scaled"),
            "hpcrun scale run -P h100 --gpus 1,2 --weak --batch-size 1024 SCRIPT --batch-size "
            "{batch_size} and",
        ),
        (
            (*ON_H100, "--gpus", "1,32", "--optimizer", "sgd", "--mode", "scaled"),
            "32768 0.032 0.005657 3125 steps",
        ),
        (
            (*ON_H100, "--gpus", "1,32", "--optimizer", "sgd", "--mode", "scaled"),
            "a global batch 32 times the measured one trains differently: raise the learning rate "
            "over the warm-up; do "
            "not start with 0.032 at once",
        ),
        (
            (*MEASURED, "--gpus", "4", "-P", "./my own.yaml"),
            "hpcrun submit -P './my own.yaml' --gpus 4 SCRIPT --batch-size 2048",
        ),
        ((*MEASURED, "--gpus", "2", "-P", "local"), "profile 'local' has no GPU model"),
        (
            (*MEASURED, "--gpus", "8", "-P", "local", "--also", "256=1h30m"),
            "8 GPUs (per-GPU batch 128): most of the lost time is the fixed overhead",
        ),
        (
            (*SLOWER, "--also", "2:32=32s", "--mode", "fixed"),
            "If the global batch stays 32: ask for 1 GPU; 2 would be slower, 0.61×",
        ),
        (GUIDE, "4 GPUs (per-GPU batch 256)"),
        (GUIDE, "the last step of an epoch has only 896 samples"),
        ((*SPREAD, "--reference-gpus", "8"), "an epoch, if 512 samples fit in the GPU's memory"),
        (
            UNSUPPORTED,
            "If the global batch stays 1024: measure 2 GPUs first. One measured size decides "
            "nothing.",
        ),
        (UNSUPPORTED, "for numbers, add --tokens-per-sample N, another batch as --also"),
        (
            (*ONE_NODE, "--mode", "scaled"),
            "measure first: its 2 nodes are a guess, and of nine published trainings that left",
        ),
        (
            (*ON_H100, "--also", "2:1024=15m"),
            "a measured size has 120 % of the ideal speed: measure the smallest one",
        ),
        (
            (*ON_H100, "--gpus", "8,16", "--reference-gpus", "8"),
            "of nine published trainings that left their first node, two were",
        ),
    ],
)
def test_what_is_said_of_a_measurement(hpcrun: Hpcrun, args: Sequence[str], words: str) -> None:
    hpcrun.write("my own.yaml", "extends: h100\n")
    shown = " ".join(hpcrun(*args, check=True).stdout.split())
    assert words in shown
    if "--also" in args:  # what was measured is neither unknown nor too large
        assert "has no GPU model" not in shown


def test_an_unknown_forecast_is_null_and_a_measured_size_is_not(hpcrun: Hpcrun) -> None:
    measured, other = hpcrun.document(*UNSUPPORTED, "--mode", "fixed", check=True)["rows"]
    assert measured["speedup"] == 1
    assert (other["gpus"], other["speedup"], other["epoch_s"]) == (2, None, None)


def test_json_and_csv_say_the_same(hpcrun: Hpcrun) -> None:
    args = (*SEED, "--epochs", "30", "--price-per-gpu-hour", "2", "--optimizer", "adamw")
    found = hpcrun.document(*args, check=True)
    rows = list(csv.DictReader(io.StringIO(hpcrun(*args, "--csv", check=True).stdout)))
    assert [(row["case"], row["gpus"]) for row in rows] == [
        (row["case"], str(row["gpus"])) for row in found["rows"]
    ]
    assert [float(row["epoch_s"]) for row in rows] == [row["epoch_s"] for row in found["rows"]]
    one, four = found["rows"][0], found["rows"][2]
    assert [one[name] for name in ("epoch_s", "gpu_hours", "cost")] == pytest.approx([2160, 18, 36])
    assert four["concerns"] == ["little work"]
    assert found["remedies"][0]["command"].endswith(
        "--batch-size 2048 --lr 0.001414 --warmup-steps 50000"
    )
    assert found["remedies"][0]["warmup_steps"] == 50_000
    assert len(found["warnings"]) == 2
    assert [(answer["case"], answer["gpus"]) for answer in found["answer"]] == [
        ("fixed", None),
        ("scaled", None),
    ]
    assert found["answer"][0]["text"].startswith(
        "If the global batch stays 1024: measure 2 GPUs first, "
    )


def test_nodes_price_and_fabric_are_the_profile_s(hpcrun: Hpcrun) -> None:
    hpcrun.write(
        "home/.config/hpcrun/profiles/ours.yaml",
        "extends: h100\ngpu: {per_node: 4}\nprice: {per_gpu_hour: 2.5}\n",
    )
    asked = (*MEASURED, "--gpus", "4,16", "--mode", "scaled")
    ours = hpcrun.document(*asked, "-P", "ours", check=True)
    assert [row["nodes"] for row in ours["rows"]] == [1, 4]
    assert [row["cost"] for row in ours["rows"]] == [
        pytest.approx(2.5 * row["gpu_hours"]) for row in ours["rows"]
    ]
    spread = hpcrun.document(*asked, "-P", "ours", "--nodes", "2,8", check=True)
    assert [row["nodes"] for row in spread["rows"]] == [2, 8]
    twice = hpcrun.document(*asked, "-P", "ours", "--gpus", "4,4,4", "--nodes", "1,2,2", check=True)
    assert [(row["gpus"], row["nodes"]) for row in twice["rows"]] == [(4, 1), (4, 2)]
    hpcrun.write(
        "home/.config/hpcrun/profiles/mixed.yaml",
        "extends: [base/slurm, fabric/infiniband-hdr]\n"
        "gpu: {types: {big: {per_node: 2}, small: {per_node: 8}}}\n",
    )
    named = hpcrun.document(*MEASURED, "--gpus", "big:1,2,4", "-P", "mixed", check=True)
    assert [row["nodes"] for row in named["rows"]] == [1, 1, 2] * 2
    refused = hpcrun(*MEASURED, "--gpus", "1,2", "-P", "mixed")
    assert (refused.returncode, "--gpus big:1,2, --gpus small:1,2" in refused.stderr) == (2, True)


TRAIN = """
import sys
from hpcrun_runtime import log_metrics
gpus = int(sys.argv[1])
for epoch in (1, 2, 3):
    time_s = (90.0 if epoch == 1 else 20.0) / gpus**0.5
    log_metrics(step=epoch, epoch_time=time_s, samples=6400 // gpus, batch_size=64)
"""


def test_a_study_and_a_run_say_what_was_measured(hpcrun: Hpcrun) -> None:
    hpcrun.write("train.py", TRAIN)
    on_cpus = ("scale", "run", "-P", "local", "--ranks", "1,2", "--launcher", "python", "--wait")
    hpcrun(*on_cpus, "--batch-size", "64", "train.py", "{gpus}", "{batch_size}", check=True)
    study = hpcrun("scale", "plan", "--from", "last", check=True).stdout  # the study's profile
    measured = (
        "measured  6400 samples in 20 s, global batch 64\n          and in 14.1 s, global "
        "batch 64 on 2 GPUs"
    )
    assert measured in study
    rows = [
        line.split()[0]
        for line in study.splitlines()
        if line.startswith("   ") and line[:4].strip().isdigit()
    ]
    assert rows == ["1", "2", "4", "8"] * 2
    said = hpcrun.document("scale", "plan", "--from", "last", "--also", "4:64=11s", check=True)[
        "measured"
    ]
    also = [(epoch["gpus"], epoch["epoch_s"]) for epoch in said["also"]]
    assert also == [(2, pytest.approx(14.14, abs=0.01)), (4, 11)]
    run = hpcrun("scale", "plan", "--from", "train-p2-r1", "--gpus", "2,4", check=True).stdout
    assert "measured  6400 samples in 14.1 s, global batch 64 on 2 GPUs" in run
    larger = hpcrun(
        "scale", "plan", "--from", "train-p2-r1", "--epoch-time", "30s", "--gpus", "2,4", check=True
    ).stdout
    assert "measured  6400 samples in 30 s" in larger
    nothing = hpcrun("scale", "plan", "--from", "nothing", "--gpus", "2")
    assert (nothing.returncode, "nothing" in nothing.stderr) == (6, True)


@pytest.mark.parametrize("columns", [50, 80])
def test_a_narrow_terminal(hpcrun: Hpcrun, columns: int) -> None:
    args = (*MEASURED, "--gpus", "1,8,64", "-P", "h100", "--price-per-gpu-hour", "2")
    lines = without_colours(hpcrun.screen(*args, columns=columns)).splitlines()
    headings = [line.split() for line in lines if line.startswith("GPUS")]
    assert [
        {"GPUS", "EPOCH", "EFF.", "GPU-HOURS", "COST"} <= set(heading) for heading in headings
    ] == [True, True]
    # a command is one line, whatever the width
    whole = (
        "instead",
        "measure ",
        "measured ",
        "profile",
        "         ",
        "learning",
        "scaled",
        "fixed",
    )
    assert [line for line in lines if len(line) > columns and not line.startswith(whole)] == []


def test_what_cannot_be_is_one_message(hpcrun: Hpcrun, subtests: pytest.Subtests) -> None:
    for args, message in (
        (("--gpus", "9"), "9 GPUs do not divide by 2 nodes"),
        (("--price-per-gpu-hour", "inf"), "--price-per-gpu-hour: 'inf' is not a number above zero"),
        (("--epochs", "\x1b[31m5M"), "--epochs: '\\x1b[31m5M' is not a number"),
        (("--csv", "--json"), "--csv and --json cannot be combined"),
    ):
        with subtests.test(args=args):
            done = hpcrun(*SEED, *args)
            assert done.returncode == 2
            assert message in (
                json.loads(done.stdout)["error"]["message"] if "--json" in args else done.stderr
            )
            assert "Traceback" not in done.stderr
            assert done.stdout == "" or "--json" in args
