"""The metrics of runs as facts: last, best, at the last common step, and the pace."""

from __future__ import annotations

import math

from hpcrun.actions.runs.run_metrics import Metrics
from hpcrun.features.compare.metric_facts import metric_facts
from hpcrun.runs.metric_files import MetricsRow, Value


def metrics(*rows: tuple[float | None, Value], name: str = "loss", attempt: int = 0) -> Metrics:
    """A metric by step, ten seconds a step."""
    made = [
        MetricsRow(0, attempt, step, None if step is None else 10 * step, {name: value})
        for step, value in rows
    ]
    return Metrics((name,) if rows else (), tuple(made))


def texts(*runs: Metrics) -> dict[str, list[str | None]]:
    """The facts of runs, as a person sees them."""
    return {
        fact.name: [value.text if value else None for value in fact.values]
        for fact in metric_facts(runs)
    }


LONG = metrics((1, 5.0), (2, 1.0), (3, 2.0))
SHORT = metrics((1, 4.0), (2, 3.0))


def test_metrics_are_compared_at_their_ends_at_their_best_and_at_the_last_step_of_all() -> None:
    assert texts(LONG, SHORT) == {
        "loss, last": ["2 at 3", "3 at 2"],
        "loss, best": ["1 at 2", "3 at 2"],
        "loss, step 2": ["1", "3"],
        "seconds per step": ["10", "10"],
    }
    assert [*texts(SHORT, SHORT)] == ["loss, last", "seconds per step"]
    assert texts(LONG, SHORT, metrics())["loss, step 2"] == ["1", "3", None]


def test_a_program_gets_numbers() -> None:
    [last, best, *_, pace] = metric_facts([LONG])
    assert [fact.values[0].value for fact in (last, best, pace) if fact.values[0]] == [
        {"value": 2, "step": 3},
        {"value": 1, "step": 2},
        10.0,
    ]


def test_of_an_accuracy_the_largest_is_the_best() -> None:
    assert texts(metrics((1, 0.9), (2, 0.8), name="val_acc"))["val_acc, best"] == ["0.9 at 1"]


def test_what_counts_the_progress_has_no_best() -> None:
    epochs = metrics((1, 0), (2, 1), name="epoch")
    assert [*texts(epochs)] == ["epoch, last", "seconds per step"]


def test_a_run_that_diverged_has_no_number_at_its_end() -> None:
    diverged = metrics((1, 2.0), (2, math.nan))
    assert texts(diverged)["loss, last"] == ["nan at 2"]
    assert texts(diverged)["loss, best"] == ["2 at 1"]
    [last, *_] = metric_facts([metrics((1, math.inf))])
    assert last.values[0] is not None
    assert last.values[0].value == {"value": "Infinity", "step": 1}


def test_values_without_steps_and_values_that_are_words() -> None:
    assert texts(metrics((None, 1.0), (None, 3.0)))["loss, last"] == ["3 at 1"]
    assert metric_facts([metrics((1, "high"))]) == []
    assert metric_facts([metrics()]) == []


def test_a_pace_needs_two_steps_of_the_last_attempt_that_do_not_begin_again() -> None:
    rows = (
        MetricsRow(0, 0, 5, 0.0, {}),
        MetricsRow(0, 1, 6, 100.0, {}),
        MetricsRow(0, 1, 8, 101.0, {}),
    )
    assert texts(Metrics((), rows)) == {"seconds per step": ["0.5"]}
    assert texts(Metrics((), rows[:2])) == {}
    again = MetricsRow(0, 1, 7, 102.0, {})
    assert texts(Metrics((), (*rows, again))) == {}
