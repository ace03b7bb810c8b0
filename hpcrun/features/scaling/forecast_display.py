"""The forecast for other numbers of GPUs: tables, advice, CSV and JSON."""

from __future__ import annotations

import shlex
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from hpcrun.cli.output import TextPart, stdout, table
from hpcrun.features.scaling.forecast import (
    LARGE_GROWTH,
    Case,
    Concern,
    Forecast,
    GpuAdvice,
    MeasuredEpoch,
    advised_lr,
)
from hpcrun.features.scaling.plan import ForecastResult
from hpcrun.features.scaling.sentences import number_text, times_text, whole_percent
from hpcrun.views.text import clock_text, count, fitting, labelled, one_line, rows_csv, text_table

if TYPE_CHECKING:
    from rich.table import Table

FIELDS = (
    "case",
    "gpus",
    "nodes",
    "batch_size",
    "batch_per_gpu",
    "steps",
    "lr_linear",
    "lr_sqrt",
    "warmup_steps",
    "step_s",
    "epoch_s",
    "speedup",
    "efficiency",
    "gpu_hours",
    "cost",
    "concerns",
    "speedup_low",
    "speedup_high",
)
"""Columns of --csv and fields of the rows of --json: never rename or remove one; add new ones at
the end.
"""

_FORECAST = (
    *("step_s", "epoch_s", "speedup", "efficiency", "gpu_hours", "cost"),
    *("speedup_low", "speedup_high"),
)
"""Fields of a size that is not measured, which are None if nothing supports them."""
_PROSE = 100
_INDENT = 9
_MOST_SHOWN = 5  # measured epochs besides the first
# On a narrow terminal the first of these goes first: each follows from others.
_DROPPED = ("STEP", "STEPS", "NODES", "RANGE", "SPEED-UP", "LOST TO")

_TITLE: dict[Case, str] = {
    "fixed": "fixed: global batch {fixed}, split across GPUs",
    "scaled": "scaled: per-GPU batch {scaled}, global batch grows with the GPUs",
}
_LOST_TO: dict[Concern, str] = {"little work": "overhead", "communication": "communication"}
_WHY: dict[Concern, str] = {
    "little work": "the fixed overhead of a step, which does not shrink with the batch: below "
    "{fills} samples on a GPU it is more than half of computing",
    "communication": "what every doubling costs: waiting for the other ranks, the gradient "
    "all-reduce, and the shared data loader and file system",
}
_RULE = {"sgd": "; SGD: linear", "adam": "; Adam: square root", None: ""}
"""Optimizer → the rule for its learning rate."""
_BATCH_COLUMN: dict[Case, str] = {"fixed": "BATCH/GPU", "scaled": "BATCH"}
"""The heading of the batch that changes with the GPUs."""


def forecast_text(result: ForecastResult, width: int) -> Iterator[TextPart]:
    """Yield the answer, a table for each case, the learning rates, and the advice.

    The advice says what to measure or to run instead.
    """
    work = result.work
    wrap = textwrap.TextWrapper(min(width, _PROSE), subsequent_indent="  ", break_long_words=False)
    answers = []
    # a sentence for each case, which it begins with: the answers differ
    for case in result.advice:
        answers += wrap.wrap(one_line(_answer(result, case)))
    yield stdout(answers)
    yield stdout(["", *heading_lines(result)])
    for case in result.advice:
        yield stdout(["", _TITLE[case].format(fixed=work.batch_size, scaled=work.batch_per_gpu)])
        yield table(case_table(result, case, width))
    rates = rates_table(result)
    if rates:
        measured = f"{_rate(work.lr)} at global batch {work.batch_size}"
        yield stdout(["", f"learning rate ({measured}){_RULE[work.optimizer]}"])
        yield table(rates)
    advice = advice_lines(result, width)
    if advice:
        yield stdout(["", *advice])


def _answer(result: ForecastResult, case: Case) -> str:
    """Return how many GPUs to ask for in one case, as a sentence."""
    work = result.work
    if case == "scaled":
        batch = f"the global batch grows with the GPUs, {work.batch_per_gpu} on each"
    else:
        batch = f"the global batch stays {work.batch_size}"
    row = result.advice[case].row
    if row is None:
        first = _measure_first(result, result.advice[case].next_row)
        return f"If {batch}: {first}. One measured size decides nothing."
    answer = f"ask for {count(row.size.gpus, 'GPU')}"
    if (round(row.speedup, 2), round(row.efficiency, 2)) != (1, 1):
        answer += f", {_speed(row)} at {whole_percent(row.efficiency)} efficiency"
    answer += _next_larger(row, result.advice[case])
    if result.leaves_node(row):
        answer += (
            f"; measure first: its {row.size.nodes} nodes are a guess, and of nine published "
            "trainings that left their first node, two were worth it"
        )
    if case == "scaled" and row.growth >= LARGE_GROWTH:
        answer += f"; check the accuracy with global batch {row.batch_size}"
    return f"If {batch}: {answer}."


def _measure_first(result: ForecastResult, following: Forecast | None) -> str:
    """Return what to measure where one size was measured."""
    if following is None:
        return "measure more GPUs"
    text = f"measure {count(following.size.gpus, 'GPU')} first"
    return f"{text}, forecast {_speed(following)}" if result.has_numbers else text


def _next_larger(row: Forecast, advice: GpuAdvice) -> str:
    """Return why the next larger size is not the answer; "" if there is nothing to say."""
    larger = advice.next_row
    if larger is None:
        return ""
    if larger.speedup < row.speedup:
        return f"; {larger.size.gpus} would be slower, {_speed(larger)}"
    step = advice.step
    if step is None:
        return ""
    added = f"the added {step.gpus - step.before} at {whole_percent(step.added)}"
    return f"; {larger.size.gpus} would be {_speed(larger)}, {added}"


def _speed(row: Forecast) -> str:
    speed = times_text(row.speedup)
    span = _range(row, " to ")
    return f"{speed} ({span}×)" if span else speed


def _range(row: Forecast, to: str) -> str:
    low = f"{row.speedup_low:.2f}"
    high = f"{row.speedup_high:.2f}"
    return f"{low}{to}{high}" if low != high else ""


def heading_lines(result: ForecastResult) -> list[str]:
    """Return the measurements, and the machine of the forecast."""
    work = result.work
    first, *others = work.epochs_measured
    measured = f"measured  {work.samples} samples in {_measured_text(first)}"
    if work.epochs > 1:
        measured += f", {count(work.epochs, 'epoch')}"
    lines = [measured]
    for epoch in others[:_MOST_SHOWN]:
        lines.append(f"          and in {_measured_text(epoch)}")
    if len(others) > _MOST_SHOWN:
        lines.append(f"          and {len(others) - _MOST_SHOWN} more")
    model = result.profile.card.model or "no GPU model in the profile"
    lines.append(f"profile   {result.profile.name}: {model}")
    return [one_line(line) for line in lines]


def _measured_text(epoch: MeasuredEpoch) -> str:
    text = f"{span_text(epoch.epoch_s)}, global batch {epoch.batch_size}"
    nodes = epoch.nodes or 1
    if nodes > 1:
        return f"{text} on {count(epoch.gpus, 'GPU')} of {nodes} nodes"
    if epoch.gpus > 1:
        return f"{text} on {count(epoch.gpus, 'GPU')}"
    return text


def case_table(result: ForecastResult, case: Case, width: int) -> Table:
    """Return the table of one case for a terminal of ``width`` columns.

    A row below the target says what its time is lost to.
    """
    rows: list[dict[str, str]] = []
    for row in result.rows:
        if row.case == case:
            cells = _cells(row, case, result.price)
            rows.append(cells if result.is_known(row) else _without_forecast(cells))
    shown = {heading: [row[heading] for row in rows] for heading in rows[0]}
    if all(cell == "1" for cell in shown["NODES"]):
        del shown["NODES"]
    if not any(shown["LOST TO"]):
        del shown["LOST TO"]
    needed = {}
    for heading, column in shown.items():
        needed[heading] = max(len(heading), *map(len, column))
    return _table({heading: shown[heading] for heading in fitting(needed, width, _DROPPED)})


def _without_forecast(cells: Mapping[str, str]) -> dict[str, str]:
    """Return the cells of a size of which nothing is known but its batch."""
    forecast = ("STEP", "EPOCH", "SPEED-UP", "EFF.", "GPU-HOURS", "COST")
    return {
        **cells,
        **{heading: "-" for heading in forecast if heading in cells},
        "RANGE": "-",
        "LOST TO": "",
    }


def _cells(row: Forecast, case: Case, price: float | None) -> dict[str, str]:
    """Return a row of the table of one case, by heading."""
    batch = row.batch_per_gpu if case == "fixed" else row.batch_size
    cells = {
        "GPUS": str(row.size.gpus),
        "NODES": str(row.size.nodes),
        _BATCH_COLUMN[case]: str(batch),
        "STEPS": str(row.steps),
        "STEP": span_text(row.step_s),
        "EPOCH": span_text(row.epoch_s),
        "SPEED-UP": f"{row.speedup:.2f}",
        "RANGE": _range(row, "-") or "-",
        "EFF.": whole_percent(row.efficiency),
        "GPU-HOURS": number_text(row.gpu_hours),
    }
    if price:
        cells["COST"] = number_text(row.gpu_hours * price)
    cells["LOST TO"] = _LOST_TO[row.concerns[0]] if row.concerns else ""
    return cells


def _table(shown: Mapping[str, Sequence[str]]) -> Table:
    right = [heading for heading in shown if heading != "LOST TO"]
    return text_table(shown, zip(*shown.values(), strict=True), right=right, whole=shown)


def rates_table(result: ForecastResult) -> Table | None:
    """Return the learning rates for batches that differ from the measured batch.

    Return None if there are no such batches.
    """
    work = result.work
    rows = {row.batch_size: row for row in result.rows if row.batch_size != work.batch_size}
    if work.lr is None or not rows:
        return None
    return _table(
        {
            "BATCH": [str(batch_size) for batch_size in rows],
            "LINEAR": [_rate(row.lr_linear) for row in rows.values()],
            "SQUARE ROOT": [_rate(row.lr_sqrt) for row in rows.values()],
            "WARM-UP": [_warmup_text(row.warmup_steps) for row in rows.values()],
        }
    )


def _warmup_text(steps: int) -> str:
    return count(steps, "step") if steps else "-"


def advice_lines(result: ForecastResult, width: int) -> list[str]:
    """Return what to measure next, the warnings, what to run instead, and the notes.

    The notes say what the numbers rest on.
    """
    width = min(width, _PROSE)
    lines = []
    measure = measure_command(result)
    if measure:
        lines.append(f"measure  {measure}")
        lines.append("         and forecast again: hpcrun scale plan --from STUDY")
    for warning in _warnings(result):
        lines += labelled("warning", one_line(warning), _INDENT, width)
    for remedy in result.remedies:
        outcome = f"{count(remedy.steps, 'step')} and {span_text(remedy.epoch_s)} an epoch"
        if remedy.batch_per_gpu > result.work.most_per_gpu:
            outcome += f", if {remedy.batch_per_gpu} samples fit in the GPU's memory"
        lines.append(f"instead  {remedy_command(result, remedy)}")
        lines.append(f"         {outcome}")
    for note in result.notes:
        lines += labelled("note", one_line(note), _INDENT, width)
    return lines


def measure_command(result: ForecastResult) -> str:
    """Return the command that measures the next doubling; empty if several sizes were measured."""
    work = result.work
    case, advice = next(iter(result.advice.items()))
    if advice.row is not None or advice.next_row is None:
        return ""
    gpus = _gpus_option(result, f"{work.gpus},{advice.next_row.size.gpus}")
    options = ["-P", result.profile_name, "--gpus", gpus]
    if case == "fixed":
        batch = str(work.batch_size)
    else:
        batch = "{batch_size}"
        options += ["--weak", "--batch-size", str(work.batch_per_gpu)]
    return one_line(f"hpcrun scale run {shlex.join(options)} SCRIPT --batch-size {batch}")


def _gpus_option(result: ForecastResult, numbers: str) -> str:
    """Return the value of --gpus, with the type if one was named."""
    return f"{result.gpu_type}:{numbers}" if result.gpu_type else numbers


def _warnings(result: ForecastResult) -> list[str]:
    warnings = []
    for concern, why in _WHY.items():
        sizes: dict[str, None] = {}
        for row in result.rows:
            if row.concerns[:1] == (concern,) and result.is_known(row):
                sizes[f"{row.size.gpus} GPUs (per-GPU batch {row.batch_per_gpu})"] = None
        if sizes:
            reason = why.format(fills=f"{max(1.0, result.fills_gpu):.0f}")
            warnings.append(f"{', '.join(sizes)}: most of the lost time is {reason}")
    # no rule can be trusted with the learning rate of batches that have grown so much
    largest = max((*result.rows, *result.remedies), key=lambda row: row.growth)
    if largest.growth >= LARGE_GROWTH:
        rate = ""
        if largest.lr_linear is not None:
            rate = f"; do not start with {_rate(largest.lr_linear)} at once"
        warnings.append(
            f"a global batch {largest.growth:.0f} times the measured one trains differently: "
            f"raise the learning rate over the warm-up{rate}, and compare the accuracy with that "
            "of the measured batch"
        )
    return warnings


def remedy_command(result: ForecastResult, remedy: Forecast) -> str:
    """Return the command for a batch that gives each GPU enough work.

    The user replaces SCRIPT and its options.
    """
    size = remedy.size
    gpus = _gpus_option(result, str(size.gpus))
    words = ["hpcrun", "submit", "-P", result.profile_name, "--gpus", gpus]
    if size.nodes > 1:
        words += ["--nodes", str(size.nodes)]
    words += ["SCRIPT", "--batch-size", str(remedy.batch_size)]
    rate = advised_lr(result.work, remedy)
    if rate is not None:
        words += ["--lr", _rate(rate)]
        if remedy.warmup_steps:
            words += ["--warmup-steps", str(remedy.warmup_steps)]
    return one_line(shlex.join(words))


def span_text(seconds: float) -> str:
    """Return a time in a suitable unit.

    Examples are ``12 µs``, ``108 ms``, ``42.3 s``, ``36:00`` and ``2-00:00:00``.
    """
    for unit, size in (("µs", 1e-6), ("ms", 1e-3), ("s", 1.0)):
        if seconds < 999.5 * size and seconds < 59.95:
            return f"{seconds / size:.3g} {unit}"
    return clock_text(round(seconds))


def _rate(rate: float | None) -> str:
    return "-" if rate is None else f"{rate:.4g}"


def forecast_csv(result: ForecastResult) -> str:
    """Return one line for each case and number of GPUs; times in seconds."""
    rows = []
    for row in result.rows:
        fields = _row(row, result)
        fields["concerns"] = "; ".join(row.concerns)
        rows.append(fields)
    return rows_csv(rows, FIELDS)


def forecast_json(result: ForecastResult) -> dict[str, Any]:
    """Return the forecast as a JSON document."""
    answers = []
    for case, advice in result.advice.items():
        gpus = advice.row.size.gpus if advice.row else None
        answers.append({"case": case, "gpus": gpus, "text": _answer(result, case)})
    remedies = []
    for remedy in result.remedies:
        command = remedy_command(result, remedy)
        remedies.append({**_row(remedy, result), "command": command})
    return {
        "kind": "forecast",
        "profile": result.profile.name,
        "measured": asdict(result.work),
        "price_per_gpu_hour": result.price,
        "answer": answers,
        "fills_gpu": result.fills_gpu,
        "rows": [_row(row, result) for row in result.rows],
        "remedies": remedies,
        "warnings": _warnings(result),
        "measure": measure_command(result) or None,
        "notes": list(result.notes),
    }


def _row(row: Forecast, result: ForecastResult) -> dict[str, Any]:
    price = result.price
    fields = {name: getattr(row, name, None) for name in FIELDS}
    fields["gpus"] = row.size.gpus
    fields["nodes"] = row.size.nodes
    fields["cost"] = None if price is None else row.gpu_hours * price
    fields["concerns"] = list(row.concerns)
    if not result.is_known(row):
        fields.update(dict.fromkeys(_FORECAST), concerns=[])
    return fields
