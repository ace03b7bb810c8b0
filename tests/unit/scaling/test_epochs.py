"""Epochs from what a rank has said."""

from __future__ import annotations

from typing import Any

import pytest

from hpcrun.features.scaling.points import Epoch, epochs_of, whole


def test_what_was_said_of_an_epoch() -> None:
    rows = [
        (2, {"epoch_time": 3, "accuracy": 0.5, "val_accuracy": 0.75, "loss": 1.5, "data_time": 0.25, "sync_time": 0.5}),
        (1, {"epoch_time": 4.5, "samples_per_s": 200, "accuracy": 0.5}),
    ]
    assert epochs_of(rows) == (Epoch(1, 4.5, 200, 0.5), Epoch(2, 3, accuracy=0.75, loss=1.5, data_s=0.25, sync_s=0.5))


def test_steps_between_epochs_are_no_epochs() -> None:
    rows: list[tuple[float | None, dict[str, Any]]] = [(step, {"loss": 1.0, "samples_per_s": 9}) for step in range(9)]
    rows.append((None, {"epoch_time": 2.0}))
    assert [epoch.time_s for epoch in epochs_of(rows)] == [2.0]
    assert len(epochs_of(rows[:-1])) == 9


def test_rows_without_a_step_are_counted() -> None:
    assert [epoch.number for epoch in epochs_of([(None, {"epoch_time": 2}), (None, {"epoch_time": 3})])] == [1, 2]


@pytest.mark.parametrize("value", [0, -1, float("nan"), float("inf"), True, "12", 10**400])
def test_a_time_that_is_none_makes_no_epoch(value: Any) -> None:
    assert epochs_of([(1, {"epoch_time": value})]) == ()
    assert epochs_of([(1, {"epoch_time": 2.0, "samples_per_s": value})]) == (Epoch(1, 2.0),)


def test_a_speed_that_is_none_is_left_out() -> None:
    assert epochs_of([(1, {"epoch_time": 2.0, "samples_per_s": -4})]) == (Epoch(1, 2.0),)


def test_whole_numbers() -> None:
    assert whole([None, 64, 128.0]) == 128
    assert whole([0, 1.5, "7", True]) is None
