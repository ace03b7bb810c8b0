"""The metrics of runs as facts: last, best, at the last common step, and the pace."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from hpcrun.actions.runs.run_metrics import PROGRESS, Metrics
from hpcrun.runs.metric_direction import is_more_better
from hpcrun.runs.metric_files import Value
from hpcrun.views.metrics_table import curves_of, json_value, value_text, whole

Curve = Mapping[float, float]
"""Step → value, by step."""
JsonValue = str | int | float | dict[str, "str | int | float | None"]
PACE = "seconds per step"


@dataclass(frozen=True, slots=True)
class Fact:
    """A fact of a run: as text for a person, and as a value for a program."""

    text: str
    value: JsonValue


@dataclass(frozen=True, slots=True)
class MetricFact:
    """A fact of the metrics of all runs."""

    name: str  # ``loss, last``
    metric: str  # ``loss``
    values: tuple[Fact | None, ...]  # of each run; None if a run has no such value


def metric_facts(runs: Sequence[Metrics]) -> list[MetricFact]:
    """Return the facts of each metric that is a number in one of the runs, and the pace.

    The best value is left out where it is the last of every run, and of what counts the progress;
    so is the value at the last common step.
    """
    facts = []
    for metric in metric_names(runs):
        curves = [curve_of(metrics, metric) for metrics in runs]
        last = [_last(metrics, metric, curve) for metrics, curve in zip(runs, curves, strict=True)]
        facts.append(MetricFact(f"{metric}, last", metric, tuple(last)))
        best = [_best(curve, metric) for curve in curves]
        if best != last and metric not in PROGRESS:
            facts.append(MetricFact(f"{metric}, best", metric, tuple(best)))
        step = _common_step(curves)
        if step is not None:
            common = tuple(_at_step(curve, step) for curve in curves)
            facts.append(MetricFact(f"{metric}, step {value_text(step)}", metric, common))
    paces = tuple(_pace(metrics) for metrics in runs)
    if any(paces):
        facts.append(MetricFact(PACE, "", paces))
    return facts


def metric_names(runs: Sequence[Metrics]) -> list[str]:
    """Return the metrics that are numbers in one of the runs, each once."""
    names = dict.fromkeys(name for metrics in runs for name in metrics.names)
    numeric = []
    for name in names:
        if any(_has_number(metrics, name) for metrics in runs):
            numeric.append(name)
    return numeric


def _has_number(metrics: Metrics, name: str) -> bool:
    return any(isinstance(row.values.get(name), float | int) for row in metrics.rows)


def curve_of(metrics: Metrics, metric: str) -> dict[float, float]:
    """Return the finite values of a metric by step; of a step that was repeated the newest."""
    points = next(iter(curves_of(metrics, metric).values()), [])
    return dict(sorted(dict(points).items()))


def _last(metrics: Metrics, metric: str, curve: Curve) -> Fact | None:
    """Return the last value, which need not be finite; None without values."""
    rows = [row for row in metrics.rows if isinstance(row.values.get(metric), float | int)]
    if not rows:
        return None
    value = rows[-1].values[metric]
    is_finite = not isinstance(value, float) or math.isfinite(value)
    if is_finite and curve:
        step = max(curve)
        return Fact(_at(curve[step], step), _point(curve, step))
    at_step = rows[-1].step
    return Fact(_at(value, at_step), {"value": json_value(value), "step": whole(at_step)})


def _best(curve: Curve, metric: str) -> Fact | None:
    if not curve:
        return None
    choose = max if is_more_better(metric) else min
    step = choose(curve, key=lambda step: curve[step])
    return Fact(_at(curve[step], step), _point(curve, step))


def _at_step(curve: Curve, step: float) -> Fact | None:
    if step not in curve:
        return None
    return Fact(value_text(curve[step]), _point(curve, step))


def _at(value: Value, step: float | None) -> str:
    return f"{value_text(value)} at {value_text(step)}"


def _point(curve: Curve, step: float) -> JsonValue:
    return {"value": whole(curve[step]), "step": whole(step)}


def _common_step(curves: Sequence[Curve]) -> float | None:
    """Return the last step that all curves with values have.

    The result is None if it is the last of each, or if there is none.
    """
    drawn = [curve for curve in curves if curve]
    if len(drawn) < 2:
        return None
    steps = set.intersection(*(set(curve) for curve in drawn))
    if not steps or all(max(curve) == max(steps) for curve in drawn):
        return None
    return max(steps)


def _pace(metrics: Metrics) -> Fact | None:
    """Return the seconds that a step took, by the times of the last attempt; None if unknown."""
    if not metrics.rows:
        return None
    last = metrics.rows[-1]
    times = {}
    for row in metrics.rows:
        if (row.attempt, row.rank) == (last.attempt, last.rank):
            if row.step is not None and row.time_s is not None:
                times[row.step] = row.time_s
    steps = list(times)
    if len(steps) < 2 or any(later <= step for step, later in pairwise(steps)):
        return None
    pace_s = (times[steps[-1]] - times[steps[0]]) / (steps[-1] - steps[0])
    return Fact(f"{pace_s:.3g}", pace_s)
