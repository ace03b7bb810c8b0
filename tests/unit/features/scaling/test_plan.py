"""What a forecast tells its reader about the measurements and the batches."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hpcrun.features.scaling.forecast import (
    JobSize,
    MeasuredEpoch,
    MeasuredTraining,
    fit_steps,
    forecast,
)
from hpcrun.features.scaling.plan import _remarks, read_workload

WORK = MeasuredTraining(samples=2**20, batch_size=4096, epoch_s=100.0, lr=0.1, optimizer="sgd")
SMALL = MeasuredTraining(samples=6400, batch_size=64, epoch_s=100.0)


def remarks(work: MeasuredTraining, *gpus: int) -> list[str]:
    """What is told of a forecast for these numbers of GPUs, with the batch of each kept."""
    fitted = fit_steps(work, None, [1 for _ in work.epochs_measured])
    sizes = [JobSize(number, 1) for number in gpus]
    return list(_remarks(work, fitted, forecast(work, ["scaled"], sizes, fitted)))


def test_the_linear_rule_is_doubted_beyond_the_batches_for_which_it_was_shown() -> None:
    (remark,) = remarks(WORK, 1, 4)
    assert remark.startswith("the linear rule was shown up to a global batch of 8192")
    assert remarks(WORK, 1, 2) == []
    assert remarks(replace(WORK, optimizer="adam"), 1, 4) == []
    assert remarks(replace(WORK, lr=None), 1, 4) == []


def test_batches_that_have_grown_much_get_a_warning_of_their_own_and_no_remark() -> None:
    assert remarks(WORK, 1, 4, 8) == []


def test_a_learning_rate_needs_the_name_of_the_optimizer_if_the_batch_grows() -> None:
    unnamed = replace(WORK, optimizer=None)
    (remark,) = remarks(unnamed, 1, 2)
    assert "add --optimizer sgd" in remark
    assert remarks(unnamed, 1) == []


def test_a_measured_size_that_is_faster_than_the_ideal_is_measured_again() -> None:
    (remark,) = remarks(replace(SMALL, also=(MeasuredEpoch(2, 128, 40.0),)), 1)
    assert remark.startswith("a measured size has 125 % of the ideal speed")
    assert remarks(replace(SMALL, also=(MeasuredEpoch(2, 128, 48.0),)), 1) == []


def test_another_batch_on_the_same_gpus_is_not_compared_with_the_ideal_speed() -> None:
    told = remarks(replace(SMALL, also=(MeasuredEpoch(1, 32, 80.0),)), 1)
    assert not any("ideal speed" in remark for remark in told)


def test_the_rest_of_an_epoch_is_counted_as_a_step() -> None:
    (remark,) = remarks(MeasuredTraining(samples=1000, batch_size=300, epoch_s=10.0), 1)
    assert remark.startswith("the last step of an epoch has only 100 samples")


@pytest.mark.parametrize("epochs", ["1", "5"])
def test_a_warm_up_may_be_as_long_as_the_training_or_longer_than_its_only_epoch(
    epochs: str,
) -> None:
    measured = {"samples": "1000", "batch_size": "10", "epoch_time": "10s"}
    work = read_workload({**measured, "warmup_epochs": "5", "epochs": epochs})
    assert work.warmup_epochs == 5
