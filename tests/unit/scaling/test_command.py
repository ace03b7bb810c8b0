"""The commands that a report proposes."""

from __future__ import annotations

import shlex

import pytest

from hpcrun.features.scaling.causes import ScaleCommand, with_options
from hpcrun.features.scaling.sizes import Size

SIZES = (Size(1, 1), Size(4, 1))


def test_a_command_of_which_nothing_is_known() -> None:
    unknown = ScaleCommand()
    assert unknown.scale(SIZES, batch_size=4096) == "hpcrun scale run --gpus 1,4 SCRIPT --batch-size 4096"
    assert unknown.scale(SIZES, args={"--epochs": "20"}) == "hpcrun scale run --gpus 1,4 SCRIPT --epochs 20"
    assert unknown.preflight(4, 1) == "hpcrun preflight --gpus 4"


def test_a_study_s_own_command_has_its_options_and_its_batch_in_their_places() -> None:
    study = ScaleCommand(
        "train.py --batch-size '{batch_size}'", profile="-P a100", options="--lr 1e-3", batch_size=1024
    )
    begin, end = "hpcrun scale run -P a100 --gpus 1,4 --lr 1e-3", "train.py --batch-size '{batch_size}'"
    assert study.scale(SIZES, batch_size=4096) == f"{begin} --batch-size 4096 {end}"
    assert (
        study.scale(SIZES, options={"--cpus-per-gpu": "8"}, args={"--num-workers": "8"})
        == f"{begin} --cpus-per-gpu 8 --batch-size 1024 {end} --num-workers 8"
    )
    assert study.preflight(8, 2) == "hpcrun preflight -P a100 --gpus 8 --nodes 2"


def test_nodes_are_said_where_there_are_several() -> None:
    assert ScaleCommand().scale((Size(4, 1), Size(8, 2))) == "hpcrun scale run --gpus 4,8 --nodes 1,2 SCRIPT"


def test_in_weak_scaling_the_batch_is_that_of_each() -> None:
    study = ScaleCommand("t.py '{per_gpu_batch_size}'", sizes="--ranks", options="--weak", batch_size=64, weak=True)
    assert (
        study.scale(SIZES, batch_size=512)
        == "hpcrun scale run --ranks 1,4 --weak --batch-size 128 t.py '{per_gpu_batch_size}'"
    )


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("train.py --batch-size 32 --lr 1", "train.py --batch-size 64 --lr 1"),
        ("train.py --batch_size=32 --lr 1", "train.py --batch_size 64 --lr 1"),
        ("train.py --batch-size", "train.py --batch-size 64"),
        ("train.py --batch-size 1 --x --batch_size 2", "train.py --batch-size 64 --x"),
        ("train.py --lr -1", "train.py --lr -1 --batch-size 64"),
        ("train.py 'my data'", "train.py 'my data' --batch-size 64"),
    ],
)
def test_no_option_stands_twice(script: str, expected: str) -> None:
    assert with_options(script, {"--batch-size": "64"}) == expected
    assert ScaleCommand(script).scale(SIZES, batch_size=64) == f"hpcrun scale run --gpus 1,4 {expected}"


def test_options_of_hpcrun_stand_once_too() -> None:
    study = ScaleCommand("train.py --repeat 2", options="--lr 1 --repeat 1 --chain", gpu_type="a100")
    command = study.scale(SIZES, options={"--repeat": "3", "--chain": ""})
    assert command == "hpcrun scale run --gpus a100:1,4 --lr 1 --repeat 3 --chain train.py --repeat 2"
    assert shlex.split(command)[1] == "scale"
