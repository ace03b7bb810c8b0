"""A sweep's elements, best first, and the command of the best."""

from __future__ import annotations

import csv
import io
import math
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from hpcrun.actions.runs.run_metrics import Metrics
from hpcrun.actions.status.run_status import ElementStatus, RunStatus
from hpcrun.errors import NotFoundError, UsageError
from hpcrun.features.sweep.command import _scale, sweep_csv, sweep_json, sweep_plot
from hpcrun.features.sweep.compare_elements import (
    SweepTable,
    best_row,
    default_ranking,
    parse_ranking,
    submit_command,
    sweep_table,
)
from hpcrun.runs.metric_files import MetricsRow
from hpcrun.runs.record import LastStatus, Run

DONE = LastStatus("COMPLETED", 1.0, final=True, exit_status=0)


def run(run_id: str = "20260101-000000-train-0001", **said: Any) -> Run:
    request = {
        "script": "train.py",
        "args": ["--name", "a b", "{lr}"],
        "gpus": {"count": 2, "type": None},
        "sweep": [[["lr", "1"]], [["lr", "2"]], [["lr", "3"]]],
        "max_parallel": 1,
        "env": [["HF_TOKEN", "***"], ["A", "b"]],
    }
    return Run(
        run_id,
        "train",
        "slurm",
        "c",
        "h",
        1.0,
        run_id[-1],
        "a100",
        1,
        2,
        2,
        3600,
        request={**request, **said},
        plan={"sweep": {"indices": "0-2", "first": 0}},
        cwd="/home/me/x y",
    )


def item(of: Run, *indices: int) -> RunStatus:
    elements = tuple(
        ElementStatus(index, f"{of.job_id}_{index}", (("lr", str(index + 1)),), DONE)
        for index in indices
    )
    return RunStatus(of, Path("/x"), DONE, elements=elements)


def metrics(*rows: tuple[int, dict[str, float | str]]) -> Metrics:
    made = tuple(MetricsRow(0, 0, step, None, values) for step, values in rows)
    return Metrics(tuple(dict.fromkeys(name for row in made for name in row.values)), made)


EACH = {
    0: metrics(
        (1, {"loss": 0.1, "note": "x"}), (2, {"loss": 0.5, "val_acc": 0.9}), (3, {"loss": 0.4})
    ),
    1: metrics((1, {"loss": 0.3}), (2, {"loss": 0.2, "val_acc": 0.7})),
    2: metrics((1, {"loss": 0.01}), (2, {"loss": math.nan})),
}


def order(table: SweepTable) -> list[int]:
    return [row.index for row in table.rows]


def test_best_first_diverged_ones_last_and_an_element_without_numbers_is_in_the_table() -> None:
    items = [(item(run(), 0, 1, 2), EACH)]
    assert order(sweep_table(items, "loss")) == [1, 0, 2]
    assert order(sweep_table(items, "loss:max")) == [0, 1, 2]
    # by val_acc, of which more is better; the last has none
    assert order(sweep_table(items)) == [0, 1, 2]
    at_best = sweep_table(items, "loss", best_step=True)
    best = [(row.index, row.step, row.values["loss"]) for row in at_best.rows]
    assert best == [(2, 1, 0.01), (0, 1, 0.1), (1, 2, 0.2)]
    # the last value of each metric, whichever row it stands in
    first = sweep_table(items, "loss").rows[1]
    assert first.step == 3
    assert first.values == {"loss": 0.4, "note": "x", "val_acc": 0.9}
    table = sweep_table([(item(run(), 0, 1), {0: metrics()})])
    assert table.ranking is None
    assert order(table) == [0, 1]
    assert table.names == ()
    with pytest.raises(NotFoundError, match="no element has a value of metric"):
        best_row(table)
    assert sweep_plot(table, 80) == ["no values"]


def test_the_order_of_a_metric() -> None:
    most = ["val_acc", "NDCG@10", "Recall@20", "train/f1"]
    names = ["loss", "mapping", "dice_loss", "top5_error", "a:max", *most]
    assert [name for name in names if parse_ranking(name, names).largest] == most
    typed = [parse_ranking(text, names) for text in ("loss:max", "val_acc:min", "a:max")]
    assert [(each.metric, each.largest) for each in typed] == [
        ("loss", True),
        ("val_acc", False),
        ("a:max", False),
    ]
    with pytest.raises(UsageError, match="neither min nor max"):
        parse_ranking("loss:small", ["loss"])
    with pytest.raises(NotFoundError) as raised:
        parse_ranking("los", ["loss"])
    assert raised.value.hint == "did you mean 'loss'?"
    assert default_ranking([]) is None
    assert str(default_ranking(["loss", "valid_loss"])).startswith(
        "Ranking(metric='valid_loss', largest=False"
    )


def test_of_an_element_that_was_resubmitted_the_newest_is_shown() -> None:
    first, again = run(), run("20260101-000001-train-0002")
    table = sweep_table(
        [(item(first, 0, 1, 2), EACH), (item(again, 2), {2: metrics((5, {"loss": 0.0}))})], "loss"
    )
    assert [(row.index, row.run.run_id[-1]) for row in table.rows] == [(2, "2"), (1, "1"), (0, "1")]
    rows = list(csv.DictReader(io.StringIO(sweep_csv(table))))
    assert [rows[0][name] for name in ("element", "lr", "loss", "state")] == [
        "2",
        "3",
        "0",
        "COMPLETED",
    ]
    assert sweep_json(table)["order"] == {"metric": "loss", "direction": "min"}


def test_the_command_of_one_element_is_ready_to_paste_and_curves_are_named_at_their_ends() -> None:
    table = sweep_table([(item(run(), 0, 1, 2), EACH)], "loss")
    line = submit_command(best_row(table), "/elsewhere")
    assert line == (
        "cd '/home/me/x y' && hpcrun submit --profile a100 --gpus 2 --env A=b --secret HF_TOKEN "
        "train.py --name 'a b' 2"
    )
    assert shlex.split(submit_command(best_row(table), "/home/me/x y"))[:2] == ["hpcrun", "submit"]
    lines = sweep_plot(table, 80)
    assert lines[0] == "loss by step, of 2 of 3 elements; numbers name the elements"
    assert [
        line[-1] for line in lines if line[-1].isdigit() and "┤" in line and line[-2] == " "
    ] == ["0", "1"]
    assert max(map(len, lines)) <= 80


@pytest.mark.parametrize(
    ("values", "labels"),
    [
        (("1", "5", "5.1", "10"), ("1", "5", "10")),
        (("1", "9.9", "10"), ("1", "10")),
        (("1", "1.1", "10"), ("1", "10")),
        (("10", "1", "5"), ("1", "5", "10")),
        (("3", "3"), ("3",)),
        (("10", "0", "1", "2", "3", "4", "5", "6", "7", "8", "9"), ("0", "10")),
        (("b", "a"), ("b", "a")),
    ],
    ids=[
        "close in the middle",
        "close to the highest",
        "close to the lowest",
        "in the order of numbers",
        "one value",
        "too many",
        "no numbers",
    ],
)
def test_labels_of_an_axis_do_not_overlap(values: Sequence[str], labels: Sequence[str]) -> None:
    assert tuple(tick.text for tick in _scale(values).ticks) == labels


@pytest.mark.parametrize(
    ("values", "heights"),
    [
        (("0", "5", "10"), [0, 0.5, 1]),
        (("1e-4", "1e-2", "1"), [0, 0.5, 1]),
        (("-1", "0", "1"), [0, 0.5, 1]),
        (("7", "7"), [0.5, 0.5]),
        (("adam", "sgd", "lion"), [0, 0.5, 1]),
    ],
    ids=["linear", "logarithmic", "negative", "one value", "no numbers"],
)
def test_values_stand_at_their_height_on_an_axis(
    values: Sequence[str], heights: Sequence[float]
) -> None:
    assert _scale(values).heights == pytest.approx(heights)


def test_a_label_stands_at_the_height_of_its_value() -> None:
    scale = _scale(("0", "5", "10"))
    assert [tick.height for tick in scale.ticks] == scale.heights
