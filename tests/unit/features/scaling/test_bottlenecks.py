"""Why a size falls short, and the commands that a report proposes."""

from __future__ import annotations

from typing import Any

import pytest

from hpcrun.features.scaling.bottlenecks import ScalingDiagnosis, diagnose_series
from hpcrun.features.scaling.points import Epoch, Point
from hpcrun.features.scaling.series import build_series
from hpcrun.features.scaling.sizes import ScaleCommand, Size, with_options
from hpcrun.features.scaling.worth_its_gpus import advise

SIZES = (Size(1, 1), Size(4, 1))


UNKNOWN = ScaleCommand()
STUDY = ScaleCommand(
    "t.py --num-workers 2 '{batch_size}'", profile="-P a100", options="--lr 1e-3", batch_size=1024
)
WEAK = ScaleCommand(
    "t.py '{per_gpu_batch_size}'", sizes="--ranks", options="--weak", batch_size=64, weak=True
)
TWICE = ScaleCommand("t.py --repeat 2", options="--lr 1 --repeat 1 --chain", gpu_type="a100")


def test_a_proposed_command_is_the_study_s_own_with_one_change(subtests: pytest.Subtests) -> None:
    for command, sizes, changes, line in (
        (UNKNOWN, SIZES, {"batch_size": 4096}, "--gpus 1,4 SCRIPT --batch-size 4096"),
        (UNKNOWN, SIZES, {"args": {"--epochs": "20"}}, "--gpus 1,4 SCRIPT --epochs 20"),
        (UNKNOWN, (Size(4, 1), Size(8, 2)), {}, "--gpus 4,8 --nodes 1,2 SCRIPT"),
        (
            ScaleCommand("t.py --epochs=3"),
            SIZES,
            {"args": {"--epochs": "20"}},
            "--gpus 1,4 t.py --epochs 20",
        ),
        (
            ScaleCommand("t.py --lr 1"),
            SIZES,
            {"args": {"--epochs": "20"}, "options": {"--cpus-per-gpu": "8"}},
            "--gpus 1,4 --cpus-per-gpu 8 t.py --lr 1",
        ),
        (
            STUDY,
            SIZES,
            {"batch_size": 4096},
            "-P a100 --gpus 1,4 --lr 1e-3 --batch-size 4096 t.py --num-workers 2 '{batch_size}'",
        ),
        (
            STUDY,
            SIZES,
            {"options": {"--cpus-per-gpu": "8"}, "args": {"--num-workers": "8"}},
            "-P a100 --gpus 1,4 --lr 1e-3 --cpus-per-gpu 8 --batch-size 1024 t.py --num-workers 8 "
            "'{batch_size}'",
        ),
        (
            WEAK,
            SIZES,
            {"batch_size": 512},
            "--ranks 1,4 --weak --batch-size 128 t.py '{per_gpu_batch_size}'",
        ),
        (
            TWICE,
            SIZES,
            {"options": {"--repeat": "3", "--chain": ""}},
            "--gpus a100:1,4 --lr 1 --repeat 3 --chain t.py --repeat 2",
        ),
    ):
        with subtests.test(command=command):
            assert command.scale(sizes, **changes) == f"hpcrun scale run {line}"


def test_a_change_unknown_to_the_script_is_no_command_and_preflight_checks_a_sizes_nodes() -> None:
    assert ScaleCommand("t.py").change(SIZES, batch_size=8) == ""
    assert UNKNOWN.preflight(4, 1) == "hpcrun preflight --gpus 4"
    assert STUDY.preflight(8, 2) == "hpcrun preflight -P a100 --gpus 8 --nodes 2"


def test_a_proposed_number_is_more_than_the_study_had(subtests: pytest.Subtests) -> None:
    for command, data, startup in (
        (
            ScaleCommand("t.py --num_workers 16 --epochs=50", options="--cpus-per-gpu 12"),
            "--gpus 1,4 --cpus-per-gpu 24 t.py --num_workers 32 --epochs=50",
            "--gpus 1,4 --cpus-per-gpu 12 t.py --num_workers 16 --epochs 100",
        ),
        (
            ScaleCommand("t.py --epochs 3", options="--cpus 16"),
            "--gpus 1,4 --cpus 32 t.py --epochs 3",
            "--gpus 1,4 --cpus 16 t.py --epochs 20",
        ),
        (
            ScaleCommand("t.py --num-workers 1", sizes="--ranks"),
            "--ranks 1,4 t.py --num-workers 8",
            "",
        ),
        (ScaleCommand("t.py", sizes="--ranks"), "", ""),
    ):
        with subtests.test(command=command):
            epochs = (Epoch(1, time_s=50, data_s=20, sync_s=20),)
            series = build_series(
                [
                    Point(1, epochs=(Epoch(1, time_s=100),)),
                    Point(4, epochs=epochs, startup_s=30, total_s=100),
                ]
            )[0]
            advice = advise(series, 0.7)
            found = diagnose_series(series, advice, command) if advice else None
            assert found
            commands = {
                cause.kind: cause.command.removeprefix("hpcrun scale run ")
                for cause in found.causes
            }
            assert commands["data"] == data
            assert commands["startup"] == startup
            assert (
                commands["sync"]
                == f"hpcrun preflight --gpus {0 if command.sizes == '--ranks' else 4}"
            )


def test_no_option_stands_twice(subtests: pytest.Subtests) -> None:
    for script, expected in (
        ("t.py --batch-size 1 --x --batch_size=2", "t.py --batch-size 64 --x"),
        ("t.py --batch-size", "t.py --batch-size 64"),
        ("t.py 'my data' --lr -1", "t.py 'my data' --lr -1 --batch-size 64"),
    ):
        with subtests.test(script=script):
            assert with_options(script, {"--batch-size": "64"}) == expected


def diagnose(*points: Point, command: str = "SCRIPT") -> ScalingDiagnosis | None:
    (series,) = build_series(points)
    advice = advise(series, 0.7)
    assert advice
    return diagnose_series(series, advice, ScaleCommand(command))


def test_the_first_size_that_does_not_pay_is_asked_about_not_the_largest() -> None:
    def study(*speedups: float) -> ScalingDiagnosis | None:
        return diagnose(
            *(Point(2**n, epochs=(Epoch(1, time_s=3600 / s),)) for n, s in enumerate(speedups))
        )

    diagnosis = study(1, 1.95, 2.5, 2.6, 2.6)
    assert diagnosis
    assert diagnosis.row.gpus == 4
    # nothing was measured that explains 3.4
    assert study(1, 1.95, 3.9) is study(1, 1.9, 3.4) is None


def diagnosis(
    *, time_s: float = 50.0, script: str = "train.py --batch-size 64", **fields: Any
) -> ScalingDiagnosis:
    """Why 4 GPUs are twice as fast as one, where that one's batch was 64 and the four's too."""
    epoch = {name: fields.pop(name) for name in ("data_s", "sync_s") if name in fields}
    base = Point(1, epochs=(Epoch(1, time_s=100),), batch_size=fields.pop("base_batch", 256))
    four = Point(4, epochs=(Epoch(1, time_s=time_s, **epoch),), **{"batch_size": 1024, **fields})
    found = diagnose(base, four, command=script)
    assert found
    return found


def test_causes_come_by_their_share() -> None:
    found = diagnosis(sync_s=20, data_s=5, startup_s=30, total_s=100)
    assert {cause.kind: round(cause.share, 2) for cause in found.causes} == {
        "sync": 0.4,
        "startup": 0.3,
        "data": 0.1,
    }
    assert [cause.kind for cause in found.causes] == ["sync", "startup", "data"]
    assert "takes 40 % of an epoch" in found.causes[0].evidence
    assert found.unknown == ()


def test_what_was_not_measured_is_no_cause() -> None:
    found = diagnosis()
    assert found.causes == ()
    assert [words.split(" (")[0] for words in found.unknown] == [
        "communication",
        "data loading",
        "launch overhead",
    ]
    nothing = [words.split(" (")[0] for words in diagnosis(batch_size=None).unknown]
    assert nothing[0] == "the batch per GPU"
    assert nothing[-1] == "uneven batches"
    assert len(nothing) == 5


def test_a_batch_that_was_divided() -> None:
    (cause,) = diagnosis(time_s=60, base_batch=1024).causes
    assert cause.kind == "batch"
    assert cause.evidence == "global batch 1024 leaves a per-GPU batch of 256 on 4 GPUs, 1024 at 1"
    assert cause.command == "hpcrun scale run --gpus 1,4 train.py --batch-size 4096"
    # waiting for data explains its part of the loss, and is not the batch's fault
    by_kind = {
        each.kind: each.share for each in diagnosis(time_s=50, base_batch=1024, data_s=20).causes
    }
    assert by_kind == {"data": pytest.approx(0.4), "batch": pytest.approx(0.1)}
    uneven = diagnosis(time_s=50, base_batch=1024, rank_samples=(100, 100, 100, 60)).causes
    assert {each.kind: each.share for each in uneven} == {
        "batch": pytest.approx(0.4),
        "uneven": pytest.approx(0.1),
    }
    # a small batch that was not divided is not why more GPUs lose
    assert [cause.kind for cause in diagnosis(base_batch=8, batch_size=32, sync_s=20).causes] == [
        "sync"
    ]


def test_ranks_with_uneven_work() -> None:
    (cause,) = diagnosis(rank_samples=(100, 100, 100, 60)).causes
    assert cause.kind == "uneven"
    assert cause.evidence == "ranks have 60 to 100 samples in an epoch"
    assert cause.share == pytest.approx(0.1)
    (odd,) = [
        each for each in diagnosis(batch_size=9, base_batch=9).causes if each.kind == "uneven"
    ]
    assert odd.evidence == "a batch of 9 does not divide by 4 GPUs"
    assert odd.share == 0.25
    assert odd.command.endswith("--batch-size 8")


def test_a_proposed_batch_keeps_each_gpu_busy_though_the_baseline_s_was_small() -> None:
    (cause,) = diagnosis(time_s=60, base_batch=8, batch_size=8).causes
    assert cause.command == "hpcrun scale run --gpus 1,4 train.py --batch-size 128"


def test_waiting_for_the_rank_with_most_samples_is_not_the_batch_s_fault() -> None:
    found = diagnosis(base_batch=1024, rank_samples=(100, 80, 80, 60), samples=320)
    assert {cause.kind: round(cause.share, 2) for cause in found.causes} == {
        "batch": 0.3,
        "uneven": 0.2,
    }
