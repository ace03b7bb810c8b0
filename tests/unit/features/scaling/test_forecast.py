"""What is expected of other numbers of GPUs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hpcrun.errors import UsageError
from hpcrun.features.scaling.forecast import (
    LARGE_GROWTH,
    Case,
    Forecast,
    JobSize,
    MeasuredEpoch,
    MeasuredTraining,
    advised_lr,
    fit_steps,
    forecast,
    gpus_to_ask_for,
    half_rows,
    remedy,
    steps_per_epoch,
)
from hpcrun.features.scaling.plan import read_workload, workload_of
from hpcrun.features.scaling.points import Epoch, Point
from hpcrun.features.scaling.step_model import StepModel
from hpcrun.features.scaling.worth_its_gpus import MIN_EFFICIENCY
from hpcrun.job.profile_model import CardSection

H100 = CardSection(tflops={"tf32": 494.5, "bf16": 989, "fp16": 989}, memory_bandwidth_gb_s=3350)
SEED = MeasuredTraining(samples=20_480_000, batch_size=1024, epoch_s=36 * 60, lr=1e-3)
"""About 20,000 steps of 1024, in 36 minutes."""


def sized(gpus: int) -> JobSize:
    return JobSize(gpus, -(-gpus // 8))


def fitted(work: MeasuredTraining, card: CardSection = H100) -> StepModel:
    return fit_steps(
        work, half_rows(card), [sized(epoch.gpus).nodes for epoch in work.epochs_measured]
    )


def rows(
    work: MeasuredTraining, case: Case, *counts: int, card: CardSection = H100
) -> list[Forecast]:
    return list(forecast(work, [case], [sized(gpus) for gpus in counts], fitted(work, card)))


def test_what_two_measurements_say_whatever_the_card() -> None:
    assert half_rows(H100) == pytest.approx(295.2, abs=0.1)
    assert half_rows(CardSection()) is None
    assert half_rows(CardSection(memory_bandwidth_gb_s=900)) is None
    work = read_workload(
        {
            "samples": "20.48M",
            "batch_size": "1024",
            "reference_gpus": "4",
            "epoch_time": "36m",
            "also": "4096=17m",
        }
    )
    steps = fitted(replace(work), CardSection())  # with a large model it could be the all-reduce
    assert steps.half_batch() == pytest.approx(608, rel=0.1)
    assert [steps.misfit(each) for each in steps.timed] == pytest.approx([0, 0], abs=0.03)
    one, four = forecast(work, ["fixed"], [sized(1), sized(4)], steps)
    assert four.epoch_s == pytest.approx(36 * 60)
    assert one.efficiency == pytest.approx(1)
    # four times the GPUs of one, for less than twice the speed
    assert four.concerns == ("little work",)


def test_1024_over_four_h100s_is_too_little_work() -> None:
    found = rows(SEED, "fixed", 1, 2, 4, 8)
    assert [row.concerns for row in found] == [(), (), ("little work",), ("little work",)]
    assert [row.batch_per_gpu for row in found] == [1024, 512, 256, 128]
    assert {row.steps for row in found} == {20_000}
    assert found[0].efficiency == pytest.approx(1)
    assert found[2].efficiency == pytest.approx(0.50, abs=0.03)
    assert found[2].lr_linear == found[2].lr_sqrt == 1e-3
    assert found[2].warmup_steps == 0
    advice = gpus_to_ask_for(found, fitted(SEED))
    assert advice.row is None
    assert advice.next_row == found[1]  # one measured size decides nothing
    two = replace(SEED, also=(MeasuredEpoch(2, 1024, SEED.epoch_s / 1.7),))
    found = rows(two, "fixed", 1, 2, 4, 8)
    advice = gpus_to_ask_for(found, fitted(two))
    assert advice.row == found[1]
    assert advice.next_row == found[2]


def test_a_larger_batch_on_each_of_four_is_the_remedy_with_a_short_warm_up() -> None:
    one, four = rows(SEED, "fixed", 1, 4)
    better = remedy(SEED, four, [one.size, four.size], fitted(SEED))
    assert better is not None
    assert better.batch_size == 2048
    assert better.steps == 10_000
    assert better.concerns == ()
    assert [better.lr_linear, better.lr_sqrt] == pytest.approx([2e-3, 1.414e-3], rel=1e-3)
    assert better.warmup_steps == 50_000
    assert advised_lr(SEED, better) == better.lr_sqrt
    assert advised_lr(replace(SEED, optimizer="sgd"), better) == better.lr_linear
    assert MeasuredTraining(1000, 10, 1.0).warmup == 5
    assert MeasuredTraining(1000, 10, 1.0, epochs=90).warmup == 5
    assert MeasuredTraining(1000, 10, 1.0, epochs=4).warmup == 2
    assert MeasuredTraining(1000, 10, 1.0, epochs=4, warmup_epochs=1).warmup == 1


def test_overhead_and_tokens_change_the_efficiency() -> None:
    work = MeasuredTraining(2048 * 100, 1024, 200.0, also=(MeasuredEpoch(1, 2048, 101.0),))
    (two,) = rows(work, "fixed", 2)
    assert two.efficiency == pytest.approx(0.5, abs=0.1)
    assert two.concerns[0] == "little work"
    work = MeasuredTraining(samples=10**6, batch_size=64, epoch_s=2400.0, tokens_per_sample=512)
    assert rows(work, "fixed", 4)[0].efficiency > 0.65
    assert rows(replace(work, tokens_per_sample=1), "fixed", 4)[0].efficiency < 0.4


def test_measurements_that_contradict_each_other() -> None:
    for also in (MeasuredEpoch(1, 512, 80.0), MeasuredEpoch(1, 2048, 30.0)):
        with pytest.raises(UsageError, match="the measured epochs contradict each other"):
            fitted(
                MeasuredTraining(samples=2048 * 100, batch_size=1024, epoch_s=200.0, also=(also,))
            )


def test_negative_scaling_that_was_measured_on_two_gpus_is_forecast_on_four() -> None:
    """As AG News: 32 samples on one GPU, 8 on each of four, and more time for a step with
    each GPU.
    """
    one = MeasuredTraining(120_000, 32, 19.458, tokens_per_sample=128)
    two = replace(one, also=(MeasuredEpoch(2, 32, 32.0),))
    measured = rows(two, "fixed", 1, 2, 4)
    assert measured[2].speedup == pytest.approx(0.46, rel=0.15)
    assert [row.concerns[-1:] for row in measured] == [(), ("slower",), ("slower",)]
    asked = gpus_to_ask_for(measured, fitted(two)).row
    assert asked is not None
    assert asked.size.gpus == 1


@pytest.mark.parametrize(
    ("case", "gpus", "message", "hint"),
    [
        (
            "fixed",
            3,
            "--batch-size 1024 does not divide by --gpus 3",
            "batch of 1023 or 1026, or --mode scaled",
        ),
        (
            "fixed",
            2048,
            "does not divide by --gpus 2048: 0.50 each",
            "use a global batch of 2048, or",
        ),
        ("scaled", 20_001, "20481024, more than the 20480000 samples", "at most 20000 GPUs"),
    ],
)
def test_batches_that_do_not_divide(case: Case, gpus: int, message: str, hint: str) -> None:
    with pytest.raises(UsageError, match=message) as caught:
        forecast(SEED, [case], [JobSize(gpus, 1)], fitted(SEED))
    assert hint in (caught.value.hint or "")


@settings(max_examples=60)
@given(
    batch_per_gpu=st.integers(1, 4096),
    reference=st.sampled_from([1, 2, 4, 8, 16]),
    counts=st.lists(st.sampled_from([1, 2, 4, 8, 16, 64]), min_size=1, unique=True),
    step_s=st.floats(1e-4, 10),
    second=st.none() | st.tuples(st.sampled_from([2, 4, 8]), st.floats(0.5, 4)),
    optimizer=st.sampled_from([None, "sgd", "adam"]),
)
def test_no_row_contradicts_its_remark_or_the_answer(
    batch_per_gpu: int,
    reference: int,
    counts: list[int],
    step_s: float,
    second: tuple[int, float] | None,
    optimizer: Any,
) -> None:
    """The efficiency column, what a row is lost to, the answer, the ranges and the learning rates
    say the same.
    """
    batch, lr = batch_per_gpu * reference * 64, 0.1
    epoch_s = step_s * steps_per_epoch(10**7, batch)
    also = (
        ()
        if second is None
        else (MeasuredEpoch(second[0] * reference, batch, epoch_s * second[1] / second[0]),)
    )
    work = MeasuredTraining(10**7, batch, epoch_s, reference, also=also, lr=lr, optimizer=optimizer)
    try:
        steps = fitted(work)
    except UsageError as error:  # what was measured cannot be
        assert "contradict each other" in error.message
        return
    sizes = [sized(gpus) for gpus in counts]
    for case in ("fixed", "scaled"):
        try:
            found = forecast(work, [case], sizes, steps)
        except UsageError as error:
            assert "more than the 10000000 samples" in error.message
            continue
        advice = gpus_to_ask_for(found, steps)
        for row in found:
            shown = round(row.efficiency, 2)
            assert bool(row.concerns) == (shown < MIN_EFFICIENCY)
            assert 0 < row.speedup_low <= row.speedup <= row.speedup_high * (1 + 1e-9)
            assert (second is not None and second[1] < 1) or row.efficiency <= 1 + 1e-6
            if row.size.gpus == reference and (case == "fixed" or row.batch_size == batch):
                assert row.epoch_s == pytest.approx(epoch_s)
            if row.growth > 1:
                assert row.warmup_steps > 0
            rate = advised_lr(work, row)
            assert rate is not None
            assert row.growth < 1 or rate <= lr * max(LARGE_GROWTH, row.growth**0.5)
        assert (advice.row is None) == (len(steps.losses) == 1)
        assert advice.row is None or advice.step is None or advice.step.added < MIN_EFFICIENCY
        assert (
            advice.row is None
            or advice.next_row is None
            or advice.row.size.gpus < advice.next_row.size.gpus
        )
        for row in found:
            if "little work" in row.concerns and (better := remedy(work, row, sizes, steps)):
                assert not better.concerns
                assert better.batch_size > row.batch_size


def test_a_workload_that_cannot_be() -> None:
    for said, message in (
        ({"batch_size": "2M"}, "--batch-size 2000000 is more than the 1200000 samples"),
        ({"reference_gpus": "3"}, "--batch-size 1024 does not divide by 3 GPUs"),
        ({"reference_gpus": "4", "also": "4095=17m"}, "--also 4095 does not divide by 4 GPUs"),
        ({"also": "2:1023=17m"}, "--also 1023 does not divide by 2 GPUs"),
        ({"also": "1024=17m"}, "--also 1:1024 is measured twice"),
        ({"also": "4096"}, "--also: '4096' has no '='"),
        ({"also": "2/1/1:4096=1m"}, "--also: '1/1' is not a number"),
        ({"epoch_time": "0.1/step"}, "--epoch-time: '0.1' has no unit"),
        ({"epochs": "3", "warmup_epochs": "5"}, "--warmup-epochs 5 is more than --epochs 3"),
        ({"lr": "nan"}, "--lr: 'nan' is not a number above zero"),
        ({"samples": "1.2m"}, "--samples: '1.2m' is not a number"),
        ({"tokens_per_sample": "0"}, "--tokens-per-sample: '0' is not a whole number"),
    ):
        asked = {"samples": "1.2M", "batch_size": "1024", "epoch_time": "36m", **said}
        with pytest.raises(UsageError, match=message):
            read_workload(asked)


def test_what_is_missing_is_named_at_once() -> None:
    with pytest.raises(UsageError, match="--samples, --epoch-time are missing"):
        read_workload({"batch_size": "1024"})
    assert (
        read_workload({"lr": "1e-3"}, {"samples": 1000, "batch_size": 10, "epoch_s": 2.0}).lr
        == 1e-3
    )


def test_measured_epochs_on_other_gpus_and_the_time_of_a_step() -> None:
    said = {
        "samples": "10240",
        "batch_size": "1024",
        "epoch_time": "0.5s/step",
        "reference_gpus": "2",
    }
    work = read_workload({**said, "also": "2048=0.8s/step, 4:1024=3s,16/2:2048=1m"})
    assert work.epochs_measured == (
        MeasuredEpoch(2, 1024, 5.0),
        MeasuredEpoch(2, 2048, 4.0),
        MeasuredEpoch(4, 1024, 3.0),
        MeasuredEpoch(16, 2048, 60.0, 2),
    )
    assert work.most_per_gpu == 1024
    assert read_workload({**said, "reference_gpus": "4/2"}).epochs_measured == (
        MeasuredEpoch(4, 1024, 5.0, 2),
    )


def test_the_metrics_of_runs_say_what_was_measured() -> None:
    def point(gpus: int, batch: int | None, *times: float, **more: Any) -> Point:
        return Point(
            gpus,
            batch_size=batch,
            epochs=tuple(Epoch(i, time_s=t) for i, t in enumerate(times)),
            **more,
        )

    points = [
        point(2, 64, 9, 5, 5, samples=1000),
        point(1, 64, 20, 10, samples=1000),
        point(2, 64, 9, 3.5, 3.5, samples=500),
        point(4, 64, state="FAILED"),
    ]
    known = workload_of(points, 1)
    assert known == {
        "samples": 1000,
        "batch_size": 64,
        "epoch_s": 10.0,
        "gpus": 1,
        "nodes": 1,
        # the mean of 5 s, and of 3.5 s for half of the samples
        "also": (MeasuredEpoch(2, 64, 6.0, 1),),
    }
    assert read_workload({"also": "4:64=2s"}, known).also == (
        *known["also"],
        MeasuredEpoch(4, 64, 2.0),
    )
    with pytest.raises(UsageError, match="no run has the time of an epoch"):
        workload_of([point(1, 64)], 1)
    with pytest.raises(UsageError, match="the run on 1 GPUs does not say its batch"):
        workload_of([point(1, None, 3)], 1)
    assert workload_of([point(1, None, 3)], 1, 32)["batch_size"] == 32


def test_the_samples_and_the_time_of_an_epoch_follow_from_its_speed(
    subtests: pytest.Subtests,
) -> None:
    for epoch, samples, known in (
        (Epoch(1, 20.0, 50.0), None, (1000, 20.0)),
        (Epoch(1, None, 50.0), 1000, (1000, 20.0)),
        (Epoch(1, 20.0), None, (None, 20.0)),
    ):
        with subtests.test(epoch=epoch):
            found = workload_of([Point(1, batch_size=64, samples=samples, epochs=(epoch,))], 1)
            assert (found.get("samples"), found["epoch_s"]) == known
