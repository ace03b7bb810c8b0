"""The forecast for other numbers of GPUs: tables, advice, CSV and JSON."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from hpcrun.actions.studies.forecast import ForecastResult
from hpcrun.job.request import GpuCount
from hpcrun.scaling.forecast import Case, Concern, Forecast
from hpcrun.views.table import fitting, text_table
from hpcrun.views.text import clock_text, count, labelled, one_line, rows_csv

if TYPE_CHECKING:
    from rich.table import Table

FIELDS = (
    "case", "gpus", "nodes", "batch_size", "batch_per_gpu", "steps", "lr_linear", "lr_sqrt", "warmup_steps", "step_s",
    "comm_s", "exposed_s", "epoch_s", "speedup", "efficiency", "gpu_hours", "cost", "concerns",
)  # fmt: skip
"""Columns of --csv and fields of the rows of --json: never rename or remove one; add new ones at the end."""

_PROSE, _INDENT = 100, 9
# On a narrow terminal the first of these goes first: each follows from others.
_DROPPED = ("STEP", "COMM", "STEPS", "NODES", "SPEED-UP")

_TITLE: dict[Case, str] = {
    "fixed": "fixed: global batch {fixed}, split across GPUs",
    "scaled": "scaled: per-GPU batch {scaled}, global batch grows with the GPUs",
}
_WHY: dict[Concern, str] = {
    "little work": "step time is dominated by fixed overhead: below {fills} samples per GPU, "
    "a smaller batch saves little time",
    "communication": "the gradient all-reduce takes longer than the computation of a step: use a larger per-GPU batch, "
    "gradient accumulation, or fewer nodes",
    "slower": "slower than the measured epoch",
}


def heading_lines(result: ForecastResult) -> list[str]:
    """Return the measurement, and the machine of the forecast."""
    work, profile = result.question.work, result.profile
    on = "" if work.gpus == 1 else f" on {work.gpus} GPUs"
    links = [link.name for link in (result.network.inside, result.network.between) if link]
    where = ", ".join([profile.card.model or "no GPU model in the profile", *links])
    epochs = f", {count(work.epochs, 'epoch')}" if work.epochs > 1 else ""
    return [
        one_line(
            f"measured  {work.samples} samples in {span_text(work.epoch_s)}, global batch {work.batch_size}{on}{epochs}"
        ),
        one_line(f"profile   {profile.name}: {where}"),
    ]


def case_title(result: ForecastResult, case: Case) -> str:
    """Return the title of a table."""
    work = result.question.work
    return _TITLE[case].format(fixed=work.batch_size, scaled=work.batch_per_gpu)


def case_table(result: ForecastResult, case: Case, width: int) -> Table:
    """Return one case for a terminal of ``width`` columns; a row with a warning ends with an exclamation mark."""
    rows = [row for row in result.rows if row.case == case]
    shown: dict[str, list[str]] = {
        "GPUS": [str(row.size.gpus) for row in rows],
        **({"NODES": [str(row.size.nodes) for row in rows]} if any(row.size.nodes > 1 for row in rows) else {}),
        **_batch_columns(rows, case),
        "STEPS": [str(row.steps) for row in rows],
        "STEP": [span_text(row.step_s) for row in rows],
        **({"COMM": [_span_or_dash(row.comm_s) for row in rows]} if any(row.comm_s for row in rows) else {}),
        "EPOCH": [span_text(row.epoch_s) for row in rows],
        "SPEED-UP": [f"{row.speedup:.2f}" for row in rows],
        "EFF.": [f"{row.efficiency:.0%}".replace("%", " %") for row in rows],
        "GPU-HOURS": [_amount(row.gpu_hours) for row in rows],
        **({"COST": [_amount(row.gpu_hours * result.price) for row in rows]} if result.price else {}),
        "": ["!" if row.concerns else "" for row in rows],
    }
    needed = {heading: max(len(heading), *map(len, cells)) for heading, cells in shown.items()}
    return _table({heading: shown[heading] for heading in fitting(needed, width, _DROPPED)})


def _batch_columns(rows: Sequence[Forecast], case: Case) -> dict[str, list[str]]:
    if case == "fixed":
        return {"BATCH/GPU": [str(row.batch_per_gpu) for row in rows]}
    return {"BATCH": [str(row.batch_size) for row in rows]}


def _table(shown: Mapping[str, Sequence[str]]) -> Table:
    return text_table(shown, zip(*shown.values(), strict=True), right=shown, whole=shown)


def rates_table(result: ForecastResult) -> Table | None:
    """Return the learning rates for batches that differ from the measured one; None if there are none."""
    work = result.question.work
    rows = {row.batch_size: row for row in result.rows if row.batch_size != work.batch_size}
    if work.lr is None or not rows:
        return None
    return _table(
        {
            "BATCH": [str(batch_size) for batch_size in rows],
            "LINEAR": [_rate(row.lr_linear) for row in rows.values()],
            "SQUARE ROOT": [_rate(row.lr_sqrt) for row in rows.values()],
            "WARM-UP": [count(row.warmup_steps, "step") if row.warmup_steps else "-" for row in rows.values()],
        }
    )


def rates_title(result: ForecastResult) -> str:
    """Return the measured learning rate, and the column for the optimizer."""
    work = result.question.work
    column = {"sgd": "; SGD: linear", "adam": "; Adam: square root", None: ""}[work.optimizer]
    return f"learning rate ({_rate(work.lr)} at global batch {work.batch_size}){column}"


def advice_lines(result: ForecastResult, width: int) -> list[str]:
    """Return the warnings, what to run instead, and what the numbers rest on."""
    width = min(width, _PROSE)
    lines = [line for text in _warnings(result) for line in labelled("warning", one_line(text), _INDENT, width)]
    for remedy in result.remedies:
        lines += [
            f"instead  {remedy_command(result, remedy)}",
            f"         {count(remedy.steps, 'step')} and {span_text(remedy.epoch_s)} an epoch"
            + _more_memory(result, remedy),
        ]
    return [*lines, *(line for note in result.notes for line in labelled("note", one_line(note), _INDENT, width))]


def _more_memory(result: ForecastResult, remedy: Forecast) -> str:
    grows = remedy.batch_per_gpu > result.question.work.most_per_gpu
    return f", if {remedy.batch_per_gpu} samples fit in the GPU's memory" if grows else ""


def _warnings(result: ForecastResult) -> list[str]:
    found: dict[tuple[Case, Concern], list[Forecast]] = {}
    for row in result.rows:
        for concern in row.concerns:
            found.setdefault((row.case, concern), []).append(row)
    return [
        f"{case}, {_and(rows)}: " + _WHY[concern].format(fills=f"{result.fills_gpu or 0:.0f}")
        for (case, concern), rows in found.items()
    ]


def _and(rows: Sequence[Forecast]) -> str:
    named = [f"{row.size.gpus} GPUs (per-GPU batch {row.batch_per_gpu})" for row in rows]
    return f"{', '.join(named[:-1])} and {named[-1]}" if len(named) > 1 else named[0]


def remedy_command(result: ForecastResult, remedy: Forecast) -> str:
    """Return the command for a batch that gives each GPU enough work; the user replaces SCRIPT and its options."""
    work, size = result.question.work, remedy.size
    gpus = GpuCount(count=size.gpus, type=result.gpu_type)
    words = [
        "hpcrun",
        "submit",
        "-P",
        result.profile_name,
        "--gpus",
        f"{gpus.type}:{gpus.count}" if gpus.type else str(gpus.count),
    ]
    words += ["--nodes", str(size.nodes)] if size.nodes > 1 else []
    rate = remedy.lr_sqrt if work.optimizer == "adam" else remedy.lr_linear
    rest = ["SCRIPT", "--batch-size", str(remedy.batch_size), *(["--lr", _rate(rate)] if rate is not None else [])]
    return one_line(shlex.join([*words, *rest]))


def span_text(seconds: float) -> str:
    """Return a time in a suitable unit: ``12 µs``, ``108 ms``, ``42.3 s``, ``36:00``, ``2-00:00:00``."""
    for unit, size in (("µs", 1e-6), ("ms", 1e-3), ("s", 1.0)):
        if seconds < 999.5 * size and seconds < 59.95:
            return f"{seconds / size:.3g} {unit}"
    return clock_text(round(seconds))


def _span_or_dash(seconds: float | None) -> str:
    if seconds is None:
        return "?"
    return span_text(seconds) if seconds else "-"


def _amount(number: float) -> str:
    if number >= 100:
        return f"{number:.0f}"
    return f"{number:.2f}" if number >= 0.1 else f"{number:.2g}"


def _rate(rate: float | None) -> str:
    return "-" if rate is None else f"{rate:.4g}"


def forecast_csv(result: ForecastResult) -> str:
    """Return one line for each case and number of GPUs; times in seconds."""
    return rows_csv([_row(row, result.price) | {"concerns": "; ".join(row.concerns)} for row in result.rows], FIELDS)


def forecast_json(result: ForecastResult) -> dict[str, Any]:
    """Return the forecast as a JSON document."""
    return {
        "kind": "forecast",
        "profile": result.profile.name,
        "measured": asdict(result.question.work),
        "price_per_gpu_hour": result.price,
        "fills_gpu": result.fills_gpu,
        "rows": [_row(row, result.price) for row in result.rows],
        "remedies": [
            {**_row(remedy, result.price), "command": remedy_command(result, remedy)} for remedy in result.remedies
        ],
        "warnings": _warnings(result),
        "notes": list(result.notes),
    }


def _row(row: Forecast, price: float | None) -> dict[str, Any]:
    return {name: getattr(row, name, None) for name in FIELDS} | {
        "gpus": row.size.gpus,
        "nodes": row.size.nodes,
        "cost": None if price is None else row.gpu_hours * price,
        "concerns": list(row.concerns),
    }
