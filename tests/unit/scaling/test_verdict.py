"""Verdicts, the sizes to ask for, and why a size falls short."""

from __future__ import annotations

from typing import Any

import pytest

from hpcrun.features.scaling.causes import ScaleCommand, ScalingDiagnosis, diagnose_series
from hpcrun.features.scaling.points import Epoch, Point
from hpcrun.features.scaling.series import Series, build_series
from hpcrun.features.scaling.verdict import Advice, advise, pareto, verdict


def study(*speedups: tuple[int, float]) -> Series:
    (series,) = build_series([Point(n, epochs=(Epoch(1, time_s=3600 / s),)) for n, s in speedups])
    return series


def advice(series: Series, least: float = 0.7) -> Advice:
    found = advise(series, least)
    assert found
    return found


@pytest.mark.parametrize(
    ("speedup", "word"),
    [(3.4, "good"), (3.1, "good"), (3.08, "diminishing returns"), (2.8, "diminishing returns"), (2.79, "poor"),
     (1, "poor"), (0.999, "poor"), (0.99, "negative scaling")],
)  # fmt: skip
def test_verdicts_have_one_target_for_all_gpus_and_for_the_added_ones(speedup: float, word: str) -> None:
    series = study((1, 1), (4, speedup))
    found = advice(series)
    assert [verdict(row, series, found) for row in series.rows] == ["baseline", word]
    assert [verdict(row, series, None) for row in series.rows] == ["baseline", "no verdict"]
    assert (found.value.gpus == 4) == (word == "good")


def test_another_target_changes_advice_and_verdicts_alike() -> None:
    series = study((1, 1), (4, 2.6))
    assert verdict(series.rows[1], series, advice(series, 0.5)) == "good"
    assert verdict(series.rows[1], series, advice(series, 0.6)) == "diminishing returns"
    assert verdict(series.rows[1], series, advice(series, 0.66)) == "poor"


def test_doubtful_sizes_carry_no_advice() -> None:
    series = study((1, 1), (2, 1.9), (4, 9))
    found = advise(series, 0.7, frozenset({4}))
    assert found
    assert (found.value.gpus, found.fastest.gpus, found.next_step) == (2, 2, None)
    assert [verdict(row, series, found) for row in series.rows] == ["baseline", "good", "no verdict"]
    assert advise(series, 0.7, frozenset({1})) is None
    assert advise(series, 0.7, frozenset({2, 4})) is None


def test_one_size_and_no_size() -> None:
    lone = study((4, 1))
    assert advise(lone) is None
    assert verdict(lone.rows[0], lone, None) == ""
    (empty,) = build_series([Point(1, state="FAILED")])
    assert advise(empty) is None


def test_pareto() -> None:
    #    GPU-hours 1, 1.33, 1.25 and 4; the second is beaten by the third
    series = study((1, 1), (2, 1.5), (4, 3.2), (8, 2))
    assert [row.gpus for row in pareto(series.rows)] == [4, 1]


def diagnosis(*, time_s: float = 50.0, **fields: Any) -> ScalingDiagnosis:
    """Why 4 GPUs are twice as fast as one, where that one's batch was 64 and the four's too."""
    epoch = {name: fields.pop(name) for name in ("data_s", "sync_s") if name in fields}
    base = Point(1, epochs=(Epoch(1, time_s=100),), batch_size=fields.pop("base_batch", 256))
    four = Point(4, epochs=(Epoch(1, time_s=time_s, **epoch),), **{"batch_size": 1024, **fields})
    (series,) = build_series([base, four])
    found = diagnose_series(series, advice(series), ScaleCommand("train.py --lr 1e-3"))
    assert found
    return found


def test_causes_come_by_their_share() -> None:
    found = diagnosis(sync_s=20, data_s=5, startup_s=30, total_s=100)
    assert [(cause.kind, round(cause.share, 2)) for cause in found.causes] == [
        ("sync", 0.4),
        ("startup", 0.3),
        ("data", 0.1),
    ]
    assert "takes 40 % of an epoch" in found.causes[0].evidence
    assert found.unknown == ()


def test_what_was_not_measured_is_no_cause() -> None:
    found = diagnosis()
    assert found.causes == ()
    assert [words.split(" (")[0] for words in found.unknown] == ["communication", "data loading", "launch overhead"]
    nothing = diagnosis(batch_size=None)
    assert [words.split(" (")[0] for words in nothing.unknown] == [
        "the batch per GPU",
        "communication",
        "data loading",
        "launch overhead",
        "uneven batches",
    ]


def test_a_batch_that_was_divided() -> None:
    (cause,) = diagnosis(time_s=60, base_batch=1024).causes
    assert (cause.kind, cause.evidence) == (
        "batch",
        "global batch 1024 leaves a per-GPU batch of 256 on 4 GPUs, 1024 at 1",
    )
    assert cause.command == "hpcrun scale run --gpus 1,4 train.py --lr 1e-3 --batch-size 4096"
    # waiting for data explains its part of the loss, and is not the batch's fault
    by_kind = {each.kind: each.share for each in diagnosis(time_s=50, base_batch=1024, data_s=20).causes}
    assert by_kind == {"data": pytest.approx(0.4), "batch": pytest.approx(0.1)}


def test_a_small_batch_that_was_not_divided_is_not_why_more_gpus_lose() -> None:
    assert [cause.kind for cause in diagnosis(base_batch=8, batch_size=32, sync_s=20).causes] == ["sync"]


def test_ranks_with_uneven_work() -> None:
    (cause,) = diagnosis(rank_samples=(100, 100, 100, 60)).causes
    assert (cause.kind, cause.evidence) == ("uneven", "ranks have 60 to 100 samples in an epoch")
    assert cause.share == pytest.approx(0.1)
    (odd,) = [each for each in diagnosis(batch_size=9, base_batch=9).causes if each.kind == "uneven"]
    assert (odd.evidence, odd.share) == ("a batch of 9 does not divide by 4 GPUs", 0.25)
    assert odd.command.endswith("--batch-size 8")


def test_the_first_size_that_does_not_pay_is_asked_about_not_the_largest() -> None:
    series = study((1, 1), (2, 1.95), (4, 2.5), (8, 2.6), (16, 2.6))
    found = diagnose_series(series, advice(series), ScaleCommand())
    assert found
    assert found.row.gpus == 4
    ideal = study((1, 1), (2, 1.95), (4, 3.9))
    assert diagnose_series(ideal, advice(ideal), ScaleCommand()) is None
    worth_it = study((1, 1), (2, 1.9), (4, 3.4))
    assert diagnose_series(worth_it, advice(worth_it), ScaleCommand()) is None  # nothing was measured that explains it
