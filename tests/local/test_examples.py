"""The training examples on this machine: that they learn, stop, go on, and say what is wrong."""

from __future__ import annotations

import argparse
import importlib
import json
import os
import re
import shlex
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.harness import REPO, Hpcrun

EXAMPLES = REPO / "examples"
PAGES = ("examples.md", "recbole.md")


def metrics(path: Path) -> list[dict[str, Any]]:
    """What one rank has noted, epoch by epoch."""
    return [json.loads(line) for line in path.read_text().splitlines()]


def load(checkpoint: Path) -> dict[str, Any]:
    # it takes a second and a half, which each worker of the tests would pay while it collects them
    import torch

    return dict(torch.load(checkpoint, weights_only=True))


def tensorboard_names(checkpoints: Path) -> set[str]:
    """Return the names of what was written for TensorBoard."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    return set(EventAccumulator(str(checkpoints / "tensorboard")).Reload().Tags()["scalars"])


def test_text_classification_learns(hpcrun: Hpcrun) -> None:
    size = (
        "--samples",
        "1024",
        "--seq-len",
        "32",
        "--d-model",
        "32",
        "--layers",
        "1",
        "--batch-size",
        "32",
        "--static-graph",
        "--accumulate",
        "2",
    )
    example = str(EXAMPLES / "text_classification.py")
    where = ("-P", "local", "--gpus", "2", "--wait")
    folder = hpcrun.submit(*where, example, "--epochs", "3", "--lr", "5e-3", *size, check=True)
    epochs, others = (
        metrics(folder / f"elements/0/attempts/0/rank-{rank}.metrics") for rank in (0, 1)
    )
    assert [epoch["step"] for epoch in epochs] == [1, 2, 3]
    assert epochs[-1]["loss"] < 0.95 * epochs[0]["loss"]
    assert epochs[-1]["accuracy"] > 0.2  # chance: 0.1
    for epoch, other in zip(epochs, others, strict=True):
        assert epoch["batch_size"] == 32
        assert epoch["samples"] == 512
        assert other["samples"] == 512
        assert epoch["accuracy"] == other["accuracy"]
        assert epoch["samples_per_s"] == pytest.approx(1024 / epoch["epoch_time"])
        assert 0 < epoch["data_time"] < epoch["epoch_time"]
        assert epoch["parameters"] == other["parameters"] > 100_000
    checkpoints = folder / "elements/0/checkpoints"
    assert {path.name for path in checkpoints.iterdir()} == {"last.pt", "best.pt", "final.pt"}
    assert load(checkpoints / "best.pt")["progress"][2] == max(
        epoch["accuracy"] for epoch in epochs
    )


@pytest.mark.needs_package("lightgbm", "tensorboard", "xgboost")
def test_the_trees_are_better_than_the_mean_and_use_the_cpus_of_the_job(hpcrun: Hpcrun) -> None:
    # threads that wait for each other do not compute meanwhile: on a busy machine they wait for
    # most of the time
    job = (
        "-P",
        "local",
        "--gpus",
        "0",
        "--cpus",
        "2",
        "--env",
        "OMP_WAIT_POLICY=passive",
        "--wait",
    )
    folder = hpcrun.submit(
        *job, str(EXAMPLES / "tree_models.py"), "--trees", "20", "--tensorboard", check=True
    )
    log = (folder / "elements/0/attempts/0/rank-0.out").read_text()
    assert ", 2 threads\n" in log
    mean, *trees = (float(stars) for stars in re.findall(r"off by ([\d.]+) stars", log))
    assert [stars < 0.95 * mean for stars in trees] == [True, True]
    saved = sorted(path.name for path in folder.glob("elements/0/checkpoints/*"))
    assert saved == ["lightgbm.txt", "tensorboard", "xgboost.json"]


# Two ranks as torchrun describes them, and two that go on: forks of one Python, which imports torch
# for all of them. What torch._dynamo is imported for is each rank's optimizer.
TWICE = """
import os, socket, sys
import sasrec, torch._dynamo, torch.utils.tensorboard

def rank(number, port):
    place = {"RANK": number, "LOCAL_RANK": number, "WORLD_SIZE": 2, "LOCAL_WORLD_SIZE": 2}
    here = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    os.environ.update({name: str(value) for name, value in {**place, **here}.items()})
    sasrec.main()
    sys.stdout.flush()
    os._exit(0)

def train():
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    ranks = [os.fork() or rank(number, port) for number in (0, 1)]
    assert [os.waitpid(pid, 0)[1] for pid in ranks] == [0, 0]

told = sys.argv.pop(1)
train()
print("noted:", sorted(os.listdir(os.environ["HPCRUN_ATTEMPT_DIR"])), flush=True)
os.unlink(told)
train()
"""


@pytest.mark.needs_package("recbole", "tensorboard")
def test_one_that_is_told_to_stop_goes_on_at_the_next_step(tmp_path: Path) -> None:
    notes = tmp_path / "attempt"
    notes.mkdir()
    told = tmp_path / "node/stop-told"
    told.parent.mkdir()
    told.touch()
    args = (
        "--epochs 1 --seq-len 20 --d-model 16 --layers 1 --time-aware --mhc --tensorboard".split()
    )
    env = {
        **os.environ,
        "OMP_NUM_THREADS": "1",
        # as in a job, hpcrun_runtime.py is found and hpcrun need not be
        "PYTHONPATH": f"{EXAMPLES}:{REPO / 'hpcrun'}",
        "HPCRUN_ATTEMPT_DIR": str(notes),
        "HPCRUN_NODE_DIR": str(told.parent),
        "HPCRUN_CHECKPOINT_DIR": str(tmp_path / "checkpoints"),
    }
    command = [sys.executable, "-c", TWICE, str(told), *args]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    first, _, second = done.stdout.partition("noted: []\n")
    assert "stopped in epoch 1, after step 20 of it" in first
    assert "goes on in epoch 1, after step 20 of it" in second
    assert "everybody's last film: HR@10" in second
    (epoch,) = metrics(notes / "rank-0.metrics")
    saved = load(tmp_path / "checkpoints/final.pt")
    steps = {int(state["step"]) for state in saved["optimizer"]["state"].values()}
    assert steps == {20 + epoch["samples"] // 64}
    assert tensorboard_names(tmp_path / "checkpoints") == {
        "loss",
        "accuracy",
        "ndcg",
        "epoch_time",
        "samples_per_s",
    }


@pytest.fixture
def training(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """What the examples share, in a rank of two; its GPUs are too few, however many this machine
    has.
    """
    monkeypatch.syspath_prepend(EXAMPLES)
    for name, value in {
        "WORLD_SIZE": "2",
        "RANK": "0",
        "LOCAL_RANK": "0",
        "LOCAL_WORLD_SIZE": "99",
    }.items():
        monkeypatch.setenv(name, value)
    return importlib.import_module("training")


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (
            ("--batch-size", "33"),
            "--batch-size 33 cannot be shared evenly by 2 ranks: take 32 or 34",
        ),
        (("--batch-size", "-2"), "--batch-size -2 cannot be shared evenly by 2 ranks: take 2"),
        (
            ("--backend", "nccl"),
            r"--backend nccl needs a GPU for each rank: this node has \d+ for 99 ranks",
        ),
    ],
)
def test_what_cannot_be_trained_is_refused_before_anybody_waits(
    training: ModuleType, args: tuple[str, ...], said: str
) -> None:
    parser = argparse.ArgumentParser()
    training.add_arguments(parser, batch_size=64, lr=0.1)
    with pytest.raises(SystemExit, match=f"^{said}$"):
        training.join(parser.parse_args(args))


def test_a_history_is_cut_so_that_every_step_is_learnt_once_and_the_last_two_never(
    training: ModuleType,
) -> None:
    sasrec = importlib.import_module("sasrec")
    histories = [list(range(length)) for length in (3, 4, 12, 13, 30)]
    pieces = sasrec.training_pieces(histories, 10)
    assert max(len(piece) for piece in pieces) == 11
    steps = sorted(step for piece in pieces for step in pairwise(piece))
    assert steps == sorted(step for seen in histories for step in pairwise(seen[:-2]))


def test_each_rank_shuffles_its_own_part_in_its_own_way(training: ModuleType) -> None:
    kgat = importlib.import_module("kgat")
    samplers = [
        kgat.OwnShuffle(range(101), num_replicas=2, rank=rank, drop_last=True) for rank in (0, 1)
    ]
    even, odd = (list(sampler) for sampler in samplers)
    assert sorted(even) == list(range(0, 100, 2))
    assert sorted(odd) == list(range(1, 101, 2))
    assert [number // 2 for number in even] != [number // 2 for number in odd]
    samplers[0].set_epoch(1)
    assert list(samplers[0]) != even
    samplers[0].done = 40
    assert len(list(samplers[0])) == 10


def test_without_torchrun_one_sentence_says_how_to_start_it(
    training: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("LOCAL_RANK")
    with pytest.raises(
        SystemExit, match=r"^no ranks: start it with hpcrun submit --launcher torchrun, or"
    ):
        training.join(argparse.Namespace(batch_size=64))


def test_without_recbole_one_sentence_says_how_to_get_the_data() -> None:
    # -S: without what pip has installed
    bare = [sys.executable, "-S", "-c", "import movielens; movielens.ratings()"]
    done = subprocess.run(bare, cwd=EXAMPLES, capture_output=True, text=True)
    assert (
        done.stderr
        == "MovieLens-100k comes with recbole: python -m pip install --no-deps recbole==1.2.1\n"
    )
    assert done.returncode == 1


SCRIPTS = ("digits_ddp", "digits_resume", "text_classification", "sasrec", "kgat", "tree_models")


def test_every_example_can_write_for_tensorboard(
    training: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in SCRIPTS:
        monkeypatch.setattr("sys.argv", [name, "--tensorboard"])
        assert importlib.import_module(name).parse_args().tensorboard is True


def test_without_tensorboard_only_its_option_needs_it_and_one_sentence_says_so() -> None:
    program = (
        "import board, sys; board.open_board(False)(1, loss=2.0); print({*sys.modules} & "
        "{'torch', 'tensorboard'})"
    )
    bare = [sys.executable, "-S", "-c", f"{program}; board.open_board(True, 1)"]
    done = subprocess.run(
        bare,
        cwd=EXAMPLES,
        env={"PYTHONPATH": f"{REPO}/hpcrun/in_job"},
        capture_output=True,
        text=True,
    )
    assert (done.stdout, done.returncode) == ("set()\n", 1)
    assert (
        done.stderr == "--tensorboard needs tensorboard: python -m pip install tensorboard torch\n"
    )


def submit_lines() -> list[str]:
    """Every ``hpcrun submit`` of the pages on examples, and of the examples' own first lines."""
    files = [*(REPO / "docs" / page for page in PAGES), *sorted(EXAMPLES.glob("*.py"))]
    lines = (line for file in files for line in file.read_text().replace("\\\n", " ").splitlines())
    return [
        found[1] for line in lines if (found := re.match(r" *(?:\$ )?hpcrun (submit .*)", line))
    ]


@pytest.mark.parametrize("line", submit_lines())
def test_every_line_that_the_pages_show_can_be_submitted(hpcrun: Hpcrun, line: str) -> None:
    for name in ("run_recbole.py", "recbole.yaml"):
        hpcrun.write(name, "")
    (hpcrun.folder / "examples").symlink_to(EXAMPLES)
    verb, *rest = shlex.split(line, comments=True)
    where = () if "-P" in rest else ("-P", "a100")
    done = hpcrun(verb, "--dry-run", *where, *rest)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("#!/bin/bash")
