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
    "{fills} samples on a GPU "
    "it is more than half of computing",
    "communication": "what every doubling costs: waiting for the other ranks, the gradient "
    "all-reduce, and the shared "
    "data loader and file system",
}


def forecast_text(result: ForecastResult, width: int) -> Iterator[TextPart]:
    """Yield the answer, a table for each case, the learning rates, and the advice.

    The advice says what to measure or to run instead.
    """
    work, wrap = (
        result.work,
        textwrap.TextWrapper(min(width, _PROSE), subsequent_indent="  ", break_long_words=False),
    )
    # a sentence for each case, which it begins with: the answers differ
    yield stdout(
        line for case in result.advice for line in wrap.wrap(one_line(_answer(result, case)))
    )
    yield stdout(["", *heading_lines(result)])
    for case in result.advice:
        yield stdout(["", _TITLE[case].format(fixed=work.batch_size, scaled=work.batch_per_gpu)])
        yield table(case_table(result, case, width))
    rates = rates_table(result)
    if rates:
        column = {"sgd": "; SGD: linear", "adam": "; Adam: square root", None: ""}[work.optimizer]
        yield stdout(
            ["", f"learning rate ({_rate(work.lr)} at global batch {work.batch_size}){column}"]
        )
        yield table(rates)
    advice = advice_lines(result, width)
    if advice:
        yield stdout(["", *advice])


def _answer(result: ForecastResult, case: Case) -> str:
    work, advice = result.work, result.advice[case]
    row, after = advice.row, advice.next_row
    batch = f"the global batch stays {work.batch_size}"
    if case == "scaled":
        batch = f"the global batch grows with the GPUs, {work.batch_per_gpu} on each"
    if row is None:
        if after:
            first = f"measure {count(after.size.gpus, 'GPU')} first, forecast {_speed(after)}"
        else:
            first = ""
        return f"If {batch}: {first or 'measure more GPUs'}. One measured size decides nothing."
    answer = f"ask for {count(row.size.gpus, 'GPU')}"
    if (round(row.speedup, 2), round(row.efficiency, 2)) != (1, 1):
        answer += f", {_speed(row)} at {whole_percent(row.efficiency)} efficiency"
    if after and after.speedup < row.speedup:
        answer += f"; {after.size.gpus} would be slower, {_speed(after)}"
    elif after and (step := advice.step):
        added = f"the added {step.gpus - step.before} at {whole_percent(step.added)}"
        answer += f"; {after.size.gpus} would be {_speed(after)}, {added}"
    if case == "scaled" and row.growth >= LARGE_GROWTH:
        answer += f"; check the accuracy with global batch {row.batch_size}"
    return f"If {batch}: {answer}."


def _speed(row: Forecast) -> str:
    span = _range(row, " to ")
    return times_text(row.speedup) + (f" ({span}×)" if span else "")


def _range(row: Forecast, to: str) -> str:
    low = f"{row.speedup_low:.2f}"
    high = f"{row.speedup_high:.2f}"
    return f"{low}{to}{high}" if low != high else ""


def heading_lines(result: ForecastResult) -> list[str]:
    """Return the measurements, and the machine of the forecast."""
    work = result.work
    first, *others = work.epochs_measured
    if work.epochs > 1:
        epochs = f", {count(work.epochs, 'epoch')}"
    else:
        epochs = ""
    where = result.profile.card.model or "no GPU model in the profile"
    return [
        one_line(f"measured  {work.samples} samples in {_measured_text(first)}{epochs}"),
        *(one_line(f"          and in {_measured_text(epoch)}") for epoch in others[:_MOST_SHOWN]),
        *([f"          and {len(others) - _MOST_SHOWN} more"] if len(others) > _MOST_SHOWN else []),
        one_line(f"profile   {result.profile.name}: {where}"),
    ]


def _measured_text(epoch: MeasuredEpoch) -> str:
    nodes = f" of {epoch.nodes} nodes" if (epoch.nodes or 1) > 1 else ""
    if epoch.gpus > 1 or nodes:
        on = f" on {count(epoch.gpus, 'GPU')}{nodes}"
    else:
        on = ""
    return f"{span_text(epoch.epoch_s)}, global batch {epoch.batch_size}{on}"


def case_table(result: ForecastResult, case: Case, width: int) -> Table:
    """Return the table of one case for a terminal of ``width`` columns.

    A row below the target says what its time is lost to.
    """
    rows = [row for row in result.rows if row.case == case]
    several = any(row.size.nodes > 1 for row in rows)
    batch = {"fixed": ("BATCH/GPU", "batch_per_gpu"), "scaled": ("BATCH", "batch_size")}[case]
    shown: dict[str, list[str]] = {
        "GPUS": [str(row.size.gpus) for row in rows],
        **({"NODES": [str(row.size.nodes) for row in rows]} if several else {}),
        batch[0]: [str(getattr(row, batch[1])) for row in rows],
        "STEPS": [str(row.steps) for row in rows],
        "STEP": [span_text(row.step_s) for row in rows],
        "EPOCH": [span_text(row.epoch_s) for row in rows],
        "SPEED-UP": [f"{row.speedup:.2f}" for row in rows],
        "RANGE": [_range(row, "-") or "-" for row in rows],
        "EFF.": [whole_percent(row.efficiency) for row in rows],
        "GPU-HOURS": [number_text(row.gpu_hours) for row in rows],
        **(
            {"COST": [number_text(row.gpu_hours * result.price) for row in rows]}
            if result.price
            else {}
        ),
        "LOST TO": [_LOST_TO[row.concerns[0]] if row.concerns else "" for row in rows],
    }
    if not any(shown["LOST TO"]):
        del shown["LOST TO"]
    needed = {heading: max(len(heading), *map(len, cells)) for heading, cells in shown.items()}
    return _table({heading: shown[heading] for heading in fitting(needed, width, _DROPPED)})


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
            "WARM-UP": [
                count(row.warmup_steps, "step") if row.warmup_steps else "-"
                for row in rows.values()
            ],
        }
    )


def advice_lines(result: ForecastResult, width: int) -> list[str]:
    """Return what to measure next, the warnings, what to run instead, and the notes.

    The notes say what the numbers rest on.
    """
    width = min(width, _PROSE)
    measure = measure_command(result)
    if measure:
        lines = [
            f"measure  {measure}",
            "         and forecast again: hpcrun scale plan --from STUDY",
        ]
    else:
        lines = []
    lines += [
        line
        for text in _warnings(result)
        for line in labelled("warning", one_line(text), _INDENT, width)
    ]
    for remedy in result.remedies:
        each = remedy.batch_per_gpu
        lines += [
            f"instead  {remedy_command(result, remedy)}",
            f"         {count(remedy.steps, 'step')} and {span_text(remedy.epoch_s)} an epoch"
            + (
                f", if {each} samples fit in the GPU's memory"
                if each > result.work.most_per_gpu
                else ""
            ),
        ]
    return [
        *lines,
        *(
            line
            for note in result.notes
            for line in labelled("note", one_line(note), _INDENT, width)
        ),
    ]


def measure_command(result: ForecastResult) -> str:
    """Return the command that measures the next doubling; empty if several sizes were measured."""
    case = next(iter(result.advice))
    advice, work = result.advice[case], result.work
    if advice.row is not None or advice.next_row is None:
        return ""
    sizes = ",".join(str(gpus) for gpus in (work.gpus, advice.next_row.size.gpus))
    gpus = f"{result.gpu_type}:{sizes}" if result.gpu_type else sizes
    batch = str(work.batch_size) if case == "fixed" else "{batch_size}"
    if case == "fixed":
        weak = []
    else:
        weak = ["--weak", "--batch-size", str(work.batch_per_gpu)]
    options = shlex.join(["-P", result.profile_name, "--gpus", gpus, *weak])
    return one_line(f"hpcrun scale run {options} SCRIPT --batch-size {batch}")


def _warnings(result: ForecastResult) -> list[str]:
    warnings = []
    for concern, why in _WHY.items():
        rows = (row for row in result.rows if row.concerns[:1] == (concern,))
        sizes = dict.fromkeys(
            f"{row.size.gpus} GPUs (per-GPU batch {row.batch_per_gpu})" for row in rows
        )
        if sizes:
            reason = why.format(fills=f"{max(1.0, result.fills_gpu):.0f}")
            warnings.append(f"{', '.join(sizes)}: most of the lost time is {reason}")
    # no rule can be trusted with the learning rate of batches that have grown so much
    row = max((*result.rows, *result.remedies), key=lambda row: row.growth)
    if row.growth >= LARGE_GROWTH:
        if row.lr_linear is None:
            rate = ""
        else:
            rate = f"; do not start with {_rate(row.lr_linear)} at once"
        warnings.append(
            f"a global batch {row.growth:.0f} times the measured one trains differently: raise the "
            "learning rate over "
            f"the warm-up{rate}, and compare the accuracy with that of the measured batch"
        )
    return warnings


def remedy_command(result: ForecastResult, remedy: Forecast) -> str:
    """Return the command for a batch that gives each GPU enough work.

    The user replaces SCRIPT and its options.
    """
    work, size = result.work, remedy.size
    if result.gpu_type:
        gpus = f"{result.gpu_type}:{size.gpus}"
    else:
        gpus = str(size.gpus)
    words = ["hpcrun", "submit", "-P", result.profile_name, "--gpus", gpus]
    words += ["--nodes", str(size.nodes)] if size.nodes > 1 else []
    rate = advised_lr(work, remedy)
    if remedy.warmup_steps:
        warm_up = ["--warmup-steps", str(remedy.warmup_steps)]
    else:
        warm_up = []
    rest = ["SCRIPT", "--batch-size", str(remedy.batch_size)]
    rest += ["--lr", _rate(rate), *warm_up] if rate is not None else []
    return one_line(shlex.join([*words, *rest]))


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
    return rows_csv(
        [_row(row, result.price) | {"concerns": "; ".join(row.concerns)} for row in result.rows],
        FIELDS,
    )


def forecast_json(result: ForecastResult) -> dict[str, Any]:
    """Return the forecast as a JSON document."""
    return {
        "kind": "forecast",
        "profile": result.profile.name,
        "measured": asdict(result.work),
        "price_per_gpu_hour": result.price,
        "answer": [
            {
                "case": case,
                "gpus": advice.row.size.gpus if advice.row else None,
                "text": _answer(result, case),
            }
            for case, advice in result.advice.items()
        ],
        "fills_gpu": result.fills_gpu,
        "rows": [_row(row, result.price) for row in result.rows],
        "remedies": [
            {**_row(remedy, result.price), "command": remedy_command(result, remedy)}
            for remedy in result.remedies
        ],
        "warnings": _warnings(result),
        "measure": measure_command(result) or None,
        "notes": list(result.notes),
    }


def _row(row: Forecast, price: float | None) -> dict[str, Any]:
    return {name: getattr(row, name, None) for name in FIELDS} | {
        "gpus": row.size.gpus,
        "nodes": row.size.nodes,
        "cost": None if price is None else row.gpu_hours * price,
        "concerns": list(row.concerns),
    }
