"""Numbers that ranks noted, and those that stand in their logs."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from hpcrun.job.run_paths import AttemptFolder
from hpcrun.job.text.metric_patterns import usual_numbers
from hpcrun.job.text.patterns import Pattern, compile_pattern
from hpcrun.runs.attempt import Attempt
from hpcrun.runs.metric_files import (
    LogMetrics,
    MetricsRow,
    Unreadable,
    count_steps,
    join,
    metric_ranks,
    noted,
)
from tests.harness import REPO


def attempt(folder: Path, number: int = 0) -> Attempt:
    return Attempt(AttemptFolder(folder), number, "1", "here", 0.0, None, 0.0)


def row(step: float | None, rank: int = 0, attempt: int = 0, **values: float) -> MetricsRow:
    return MetricsRow(rank, attempt, step, None, values)


def test_lines_that_were_cut_off_are_counted_and_left_out(tmp_path: Path) -> None:
    lines = [
        '{"time": 5.0, "step": 1, "loss": NaN, "note": "x", "odd": [1]}',
        "[1]",
        "[" * 5000,
        '{"time": 6.0, "st',
        '{"time": 1e300, "step": Infinity, "loss": 1e999}',
    ]
    (tmp_path / "rank-0.metrics").write_text("\n".join(lines))
    bad = Unreadable()
    found, impossible = noted(attempt(tmp_path), 0, bad)
    assert impossible.time_s is None
    assert impossible.step is None
    assert found.step == 1
    assert found.time_s == 5.0
    assert found.values["note"] == "x"
    assert sorted(found.values) == ["loss", "note"]
    assert math.isnan(float(found.values["loss"]))
    assert bad.lines == 3
    assert metric_ranks(AttemptFolder(tmp_path)) == [0]
    assert metric_ranks(AttemptFolder(tmp_path / "none")) == []


def test_rows_are_ordered_by_rank_and_step_of_which_the_latest_attempt_stands() -> None:
    rows = [
        row(1, loss=9),
        row(2, loss=8, lr=1),
        row(2, attempt=1, loss=7),
        row(3, attempt=1, loss=6),
    ]
    assert join(rows) == [
        row(1, loss=9),
        row(2, attempt=1, loss=7, lr=1),
        row(3, attempt=1, loss=6),
    ]
    rows = [row(2, rank=1, a=1), row(10, a=2), row(9, a=3), row(None, a=4), row(None, a=4)]
    assert join(rows) == [
        row(9, a=3),
        row(None, a=4),
        row(None, a=4),
        row(10, a=2),
        row(2, rank=1, a=1),
    ]


def patterns(**said: str) -> dict[str, Pattern]:
    return {name: compile_pattern(text) for name, text in said.items()}


def test_metrics_of_a_log_are_numbered_over_all_attempts(tmp_path: Path) -> None:
    finder = LogMetrics(
        patterns(loss=r"loss (?P<value>[0-9.e+-]+)", epoch_time=r"took ([0-9.,]+) s")
    )
    (tmp_path / "rank-0.out").write_text(
        "loss 0.5\ntook 1,234.5 s\n10:00:00 loss 4e-1 took 2 s\nloss ...\n"
    )
    (tmp_path / "rank-0.err").write_text("\rloss 0.9\rloss 0.3\n")
    rows = count_steps(
        [row for number in (0, 1) for row in finder.rows(attempt(tmp_path, number), 0)]
    )
    assert [(item.step, dict(item.values)) for item in rows[:4]] == [
        (1, {"loss": 0.5}),
        (1, {"epoch_time": 1234.5}),
        (2, {"loss": 0.4, "epoch_time": 2.0}),
        (3, {"loss": 0.3}),
    ]
    assert [item.step for item in rows[4:]] == [4, 3, 5, 6]


def test_a_line_may_name_its_step_and_one_without_belongs_to_the_last_or_to_none(
    tmp_path: Path,
) -> None:
    finder = LogMetrics({}, usual=True)
    (tmp_path / "rank-0.out").write_text(
        "initial loss 3.1\nstep 0 loss 3.0\nstep 10 loss 2.8\nval_loss 2.9\nfinal loss 2.74\n"
    )
    rows = join(count_steps(list(finder.rows(attempt(tmp_path), 0))))
    assert [(row.step, dict(row.values)) for row in rows] == [
        (None, {"loss": 3.1}),
        (0, {"loss": 3.0}),
        (10, {"loss": 2.8, "val_loss": 2.9}),
        (None, {"loss": 2.74}),
    ]
    stepped = LogMetrics(patterns(step=r"epoch (\d+)", loss=r"loss (\S+)"))
    assert stepped.read("epoch 7: loss 0.1") == (7, {"loss": 0.1})
    assert stepped.read("epoch 8") == (8, {})
    grouped = LogMetrics(patterns(loss=r"\[(?P<step>\d+)\] loss (?P<value>\S+)"))
    assert grouped.read("[12] loss nan")[0] == 12


@pytest.mark.parametrize(
    ("log", "steps"),
    [
        ("epoch 0 step 10 loss 3.5\n", [10]),
        ("epoch 0 step 10 loss 3.5\nepoch 1 step 20 loss 2.5\nval_loss 4.5\n", [10, 20]),
        ("epoch 0 step 10 loss 3.5\nepoch 1 step 10 loss 2.5\n", [10, 10]),
        ("Epoch [1/2] step 5/9 loss 3.5\nEpoch [2/2] step 2/9 loss 2.5\n", [5, 2]),
        ("first epoch, step 10 loss 3.5\nnext epoch, step 10 loss 2.5\n", [1, 2]),
    ],
)
def test_a_stated_step_is_the_step_and_its_epoch_keeps_it_apart(
    log: str, steps: list[float], tmp_path: Path
) -> None:
    (tmp_path / "rank-0.out").write_text(log)
    rows = join(count_steps(list(LogMetrics({}, usual=True).rows(attempt(tmp_path), 0))))
    assert [row.step for row in rows] == steps


@pytest.mark.parametrize(
    ("line", "step", "values"),
    [
        ("Loss: 3", None, {"loss": 3}),
        (
            "epoch 3: loss 0.8859, test accuracy 88.9%, 1101 samples/s",
            None,
            {"loss": 0.8859, "test_accuracy": 88.9},
        ),
        (
            "Train Loss: 0.5 | Val Loss: 6e-1 | best loss=4",
            None,
            {"train_loss": 0.5, "val_loss": 0.6, "best_loss": 4},
        ),
        ("step 7 val_loss=.25 val/acc=0.5.", 7, {"val_loss": 0.25, "val/acc": 0.5}),
        ("Epoch 2 Iteration 70/900 Loss 6.9021 (6.95)", None, {"loss": 6.9021}),
        ("{'loss': 1.5, 'train_loss': 2, 'epoch': 3.0}", None, {"loss": 1.5, "train_loss": 2}),
        ("epoch 0 step 10 loss 2.5", 10, {"loss": 2.5, "epoch": 0}),
        ('{"step": 12, "loss": NaN}', 12, {"loss": math.nan}),
        ("{'loss': '2.776', 'grad_norm': '1.299', 'epoch': '2'}", None, {"loss": 2.776}),
        ("loss: 'cross_entropy', loss: '3 of 5'", None, {}),
        ("global_step=5 loss tensor(0.25, grad_fn=<MeanBackward0>)", 5, {"loss": 0.25}),
        ("40%|####  | 4/10 [00:01<00:02, 3.1it/s, loss=0.9, v_num=1]", None, {"loss": 0.9}),
        ("using loss scale 65536.0", None, {}),
        ("loss weight 0.5, loss_fn: mse, lossless: 1.0, gloss 0.1, loss: cross_entropy", None, {}),
        ("loss 3 of 5 packets, loss: 2026-01-01 10:00, loss: 1.2.3, loss: 5x", None, {}),
        ("/data/loss=0.5/x.pt: --loss 0.5 loss", None, {}),
        ("a" * 100_000 + "loss" * 10_000, None, {}),
    ],
)
def test_the_usual_forms_of_a_loss_need_no_pattern(
    line: str, step: float | None, values: dict[str, float]
) -> None:
    found = usual_numbers(line)
    assert found[0] == step
    assert found[1] == pytest.approx(values, nan_ok=True)


def test_healthy_logs_have_no_other_metrics_than_their_own() -> None:
    found = {}
    for path in sorted((REPO / "tests/data/explain/healthy").glob("*.log")):
        finder, names = LogMetrics({}, usual=True), set()
        for line in path.read_text(errors="replace").splitlines():
            names |= set(finder.read(line)[1])
        if names:
            found[path.stem] = sorted(names)
    losses = {name: ["loss"] for name in ("json-log", "loss-falls", "nan-skipped", "torch-linear")}
    best = {"loss-inf-best": ["best_loss"], "loss-nan-first": ["best_loss", "loss"]}
    assert found == {
        **losses,
        **best,
        "digits": ["loss", "test_accuracy"],
        "nan-metrics": ["eval_loss"],
    }
