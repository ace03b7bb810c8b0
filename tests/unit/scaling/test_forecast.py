"""What is expected of other numbers of GPUs."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpcrun.errors import UsageError
from hpcrun.job.profile import CardSection
from hpcrun.scaling.communication import Link, Network
from hpcrun.scaling.forecast import Case, Forecast, JobSize, communication_s, forecast, half_rows, step_cost, with_batch
from hpcrun.scaling.workload import MeasuredTraining, read_workload, steps_per_epoch

H100 = CardSection(tflops={"tf32": 494.5, "bf16": 989, "fp16": 989}, memory_bandwidth_gb_s=3350)
NETWORK = Network(Link("NVLink", 360e9, 3.4e-6), Link("infiniband", 50e9, 14e-6))
SEED = MeasuredTraining(samples=20_480_000, batch_size=1024, epoch_s=36 * 60, lr=1e-3)
"""About 20,000 steps of 1024, in 36 minutes."""


def rows(work: MeasuredTraining, case: Case, *counts: int, card: CardSection = H100) -> list[Forecast]:
    sizes = [JobSize(gpus, -(-gpus // 8)) for gpus in counts]
    reference = communication_s(work, JobSize(work.gpus, -(-work.gpus // 8)), NETWORK) or 0.0
    cost = step_cost(work, half_rows(card), reference)
    return list(forecast(work, [case], sizes, cost, NETWORK))


def test_the_rows_that_fill_a_card_are_its_rate_over_its_bandwidth() -> None:
    assert half_rows(H100) == pytest.approx(295.2, abs=0.1)
    assert half_rows(CardSection()) is None
    assert half_rows(CardSection(memory_bandwidth_gb_s=900)) is None


def test_1024_over_four_h100s_is_too_little_work() -> None:
    one, two, four, eight = rows(SEED, "fixed", 1, 2, 4, 8)
    assert [row.concerns for row in (one, two, four, eight)] == [(), (), ("little work",), ("little work",)]
    assert [row.batch_per_gpu for row in (one, two, four, eight)] == [1024, 512, 256, 128]
    assert {row.steps for row in (one, two, four, eight)} == {20_000}
    assert four.efficiency == pytest.approx((1024 + 295.22) / (256 + 295.22) / 4, rel=1e-4)
    assert four.lr_linear == four.lr_sqrt == 1e-3
    assert four.warmup_steps == 0


def test_1024_on_each_of_four_is_the_remedy() -> None:
    (four,) = rows(SEED, "scaled", 4)
    assert (four.batch_size, four.steps, four.concerns) == (4096, 5000, ())
    assert (four.lr_linear, four.lr_sqrt) == (4e-3, 2e-3)
    assert four.warmup_steps == 25_000
    assert four.epoch_s == pytest.approx(9 * 60)
    assert [four.speedup, four.efficiency] == pytest.approx([4, 1])
    assert four.gpu_hours == pytest.approx(0.6)


def test_two_measurements_are_reproduced_whatever_the_card() -> None:
    work = read_workload(
        {"samples": "20.48M", "batch_size": "1024", "reference_gpus": "4", "epoch_time": "36m", "also": "4096=17m"}
    )
    (fixed,) = rows(work, "fixed", 4)
    assert fixed.epoch_s == pytest.approx(36 * 60)
    assert fixed.concerns == ("little work",)
    cost = step_cost(work, None, 0.0)
    assert cost.half_batch == pytest.approx(608)
    assert with_batch(work, fixed, 4096, cost).epoch_s == pytest.approx(17 * 60)


@pytest.mark.parametrize(
    ("also", "problem"),
    [((2048, 100.0), "does not take longer"), ((512, 80.0), "grows faster than its batch")],
)
def test_measurements_that_contradict_each_other(also: tuple[int, float], problem: str) -> None:
    work = MeasuredTraining(samples=2048 * 100, batch_size=1024, epoch_s=200.0, second=also)
    with pytest.raises(UsageError, match=problem):
        step_cost(work, None, 0.0)


def test_two_measurements_in_proportion_differ_by_noise() -> None:
    work = MeasuredTraining(samples=2048 * 100, batch_size=1024, epoch_s=200.0, second=(2048, 201.0))
    cost = step_cost(work, None, 0.0)
    assert [cost.fixed_s, cost.at(1024)] == pytest.approx([0, 1])


def test_communication_that_outlasts_computation_is_named() -> None:
    work = MeasuredTraining(samples=10**6, batch_size=1024, epoch_s=20.0, parameters=10**9)
    assert rows(work, "fixed", 16)[0].concerns == ("little work", "communication", "slower")
    (sixteen,) = rows(work, "scaled", 16)
    assert sixteen.concerns == ("communication",)
    assert sixteen.comm_s == pytest.approx(0.16, rel=0.1)
    assert sixteen.exposed_s < (sixteen.comm_s or 0)


def test_tokens_fill_a_card_sooner() -> None:
    work = MeasuredTraining(samples=10**6, batch_size=64, epoch_s=600.0, tokens_per_sample=512)
    assert [row.concerns for row in rows(work, "fixed", 8)] == [()]
    assert rows(work, "fixed", 8)[0].efficiency > 0.9


def test_without_a_card_a_step_shrinks_with_its_batch() -> None:
    assert rows(SEED, "fixed", 4, card=CardSection())[0].efficiency == pytest.approx(1)


@pytest.mark.parametrize(
    ("case", "gpus", "message", "hint"),
    [
        (
            "fixed",
            3,
            "--batch-size 1024 does not divide by --gpus 3",
            "use a global batch of 1023 or 1026, 2 or 4 GPUs",
        ),
        ("fixed", 2048, "does not divide by --gpus 2048: 0.50 each", "use a global batch of 2048, 1024 GPUs"),
        ("scaled", 20_001, "20481024, more than the 20480000 samples", "at most 20000 GPUs"),
    ],
)
def test_batches_that_do_not_divide(case: Case, gpus: int, message: str, hint: str) -> None:
    cost = step_cost(SEED, None, 0.0)
    with pytest.raises(UsageError, match=message) as caught:
        forecast(SEED, [case], [JobSize(gpus, 1)], cost, NETWORK)
    assert hint in (caught.value.hint or "")


@given(
    batch_per_gpu=st.integers(1, 4096),
    reference=st.sampled_from([1, 2, 4, 8, 16]),
    counts=st.lists(st.sampled_from([1, 2, 4, 8, 16, 64]), min_size=1, unique=True),
    step_s=st.floats(1e-3, 10),
    parameters=st.none() | st.integers(1, 10**6),
    tokens=st.integers(1, 2048),
)
def test_what_was_measured_is_forecast_and_the_rest_never_beats_it(
    batch_per_gpu: int, reference: int, counts: list[int], step_s: float, parameters: int | None, tokens: int
) -> None:
    epoch_s = step_s * steps_per_epoch(10**6, batch_per_gpu * reference)
    work = MeasuredTraining(
        samples=10**6,
        batch_size=batch_per_gpu * reference,
        epoch_s=epoch_s,
        gpus=reference,
        parameters=parameters,
        tokens_per_sample=tokens,
    )
    (again,) = rows(work, "scaled", reference)
    assert again.epoch_s == pytest.approx(epoch_s)
    for row in rows(work, "scaled", *(gpus for gpus in counts if gpus >= reference)):
        assert row.efficiency <= 1 + 1e-9


@pytest.mark.parametrize(
    ("said", "message"),
    [
        ({"batch_size": "2M"}, "--batch-size 2000000 is more than the 1200000 samples"),
        ({"reference_gpus": "3"}, "--batch-size 1024 does not divide by --reference-gpus 3"),
        ({"reference_gpus": "4", "also": "4095=17m"}, "--also 4095 does not divide by --reference-gpus 4"),
        ({"also": "1024=17m"}, "--also 1024 is the batch of --batch-size"),
        ({"also": "4096"}, "--also: '4096' has no '='"),
        ({"epochs": "3", "warmup_epochs": "5"}, "--warmup-epochs 5 is more than --epochs 3"),
        ({"lr": "nan"}, "--lr: 'nan' is not a number above zero"),
        ({"overlap": "1.5"}, "--overlap: '1.5' is not a share"),
        ({"dtype": "fp8"}, "--dtype: 'fp8' is none of fp32, bf16, fp16"),
        ({"tokens_per_sample": "0"}, "--tokens-per-sample: '0' is not a whole number"),
    ],
)
def test_a_workload_that_cannot_be(said: dict[str, Any], message: str) -> None:
    asked = {"samples": "1.2M", "batch_size": "1024", "epoch_time": "36m", **said}
    with pytest.raises(UsageError, match=message):
        read_workload(asked)


def test_warm_up_is_short_in_a_short_training() -> None:
    assert MeasuredTraining(1000, 10, 1.0).warmup == 5
    assert MeasuredTraining(1000, 10, 1.0, epochs=90).warmup == 5
    assert MeasuredTraining(1000, 10, 1.0, epochs=4).warmup == 2
    assert MeasuredTraining(1000, 10, 1.0, epochs=4, warmup_epochs=1).warmup == 1
