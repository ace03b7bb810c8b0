"""hpcrun plan: a forecast of what more GPUs bring."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from hpcrun.cli import complete
from hpcrun.cli.context import make_context
from hpcrun.cli.lean_imports import import_pydantic
from hpcrun.cli.options import HelpPanel, flag, takes_options
from hpcrun.cli.outcome import Outcome, Outcomes, TextPart, note, stdout, table
from hpcrun.cli.output import JsonOption, width
from hpcrun.errors import UsageError
from hpcrun.features.scaling.studies import StudyStore
from hpcrun.features.scaling.study_names import study_or_run_name

if TYPE_CHECKING:
    from hpcrun.features.scaling.plan import ForecastResult

_MEASUREMENT, _FORECAST, _TRAINING = HelpPanel("Measurement"), HelpPanel("Forecast"), HelpPanel("Training")


class ForecastOptions:
    """One attribute for each option of which ``actions.forecast.read_question`` reads the text."""

    samples: str | None = _MEASUREMENT.option("--samples", metavar="N", help="Samples per epoch: 1.2M, 500k.")
    batch_size: str | None = _MEASUREMENT.option(
        "--batch-size", metavar="N", help="Global batch of the measured epoch."
    )
    epoch_time: str | None = _MEASUREMENT.option(
        "--epoch-time", metavar="TIME", help="Time of the measured epoch, 36m or 42.3s, or of a step: 0.108s/step."
    )
    reference_gpus: str | None = _MEASUREMENT.option(
        "--reference-gpus",
        metavar="N[/NODES]",
        help="GPUs of the measured epoch, and their nodes if they were not the fewest. Default: 1.",
    )
    also: list[str] | None = _MEASUREMENT.option(
        "--also",
        metavar="[GPUS:]BATCH=TIME",
        help="Another measured epoch: with this global batch, on the same or on other GPUs. Repeatable.",
    )

    gpus: str | None = _FORECAST.option(
        "--gpus",
        "-G",
        metavar="[TYPE:]N,...",
        help="Numbers of GPUs to forecast, each of a whole job. Default: 1, 2, 4 and 8 times the measured ones.",
    )
    nodes: str | None = _FORECAST.option(
        "--nodes",
        "-N",
        metavar="N,...",
        help="Nodes for each number of GPUs, or one number for all. Default: the fewest.",
    )
    mode: str | None = _FORECAST.option(
        "--mode",
        metavar="fixed|scaled|both",
        help="Keep the global batch (fixed) or the per-GPU batch (scaled). Default: both.",
    )
    price_per_gpu_hour: str | None = _FORECAST.option(
        "--price-per-gpu-hour", metavar="PRICE", help="Price of one GPU-hour. Default: the profile's."
    )

    lr: str | None = _TRAINING.option("--lr", metavar="RATE", help="Learning rate at the measured global batch.")
    optimizer: str | None = _TRAINING.option(
        "--optimizer", metavar="NAME", help="Optimizer (sgd, adam, adamw ...); decides how the learning rate scales."
    )
    warmup_epochs: str | None = _TRAINING.option(
        "--warmup-epochs",
        metavar="N",
        help="Warm-up epochs for a raised learning rate. Default: 5, at most half of --epochs.",
    )
    epochs: str | None = _TRAINING.option(
        "--epochs", metavar="N", help="Epochs of the training, for GPU-hours and cost. Default: 1."
    )
    tokens_per_sample: str | None = _TRAINING.option(
        "--tokens-per-sample",
        metavar="N",
        help="Tokens, patches or pixels of a sample that a layer processes together. Default: 1.",
    )


@takes_options(ForecastOptions)
def forecast(
    asked: dict[str, Any],
    source: str | None = _MEASUREMENT.option(
        "--from",
        metavar="STUDY|RUN",
        help="Read the measured epochs from the metrics of a scaling study or a run.",
        complete=study_or_run_name,
    ),
    profile: str | None = _FORECAST.option(
        "--profile",
        "-P",
        metavar="NAME",
        help="Cluster profile, by name or path. Default: as submit, or the study's.",
        complete=complete.profile_name,
    ),
    as_csv: bool = flag("--csv", help="Print CSV."),
    as_json: JsonOption = False,
) -> Outcomes:
    """Forecast the time and cost of a training on more GPUs. Nothing runs.

    The forecast starts from an epoch that you measured; two or three
    measurements make it more certain. It says how many GPUs to ask for, and
    shows batch, steps, learning rate, time, GPU-hours and cost.
    """
    if as_json and as_csv:
        raise UsageError("--json and --csv cannot be combined", hint="choose one")
    import_pydantic()
    from hpcrun.actions.jobs.prepare import choose_profile
    from hpcrun.features.scaling.forecast_display import forecast_csv, forecast_json
    from hpcrun.features.scaling.plan import make_forecast, read_measured, read_question

    said = {name: text for name, text in asked.items() if text is not None}
    if also := said.pop("also", None):
        said["also"] = ",".join(also)
    context = make_context()
    known: dict[str, Any] = {}
    if source is not None:
        known, trained_on, remarks = read_measured(
            source,
            context.ports,
            place=StudyStore(context.store.root),
            patterns=lambda profile: context.metric_patterns(profile)[0],
            batch_size=said.get("batch_size"),
        )
        profile = profile or trained_on
        yield note(remarks)
    question = read_question(said, known)
    name = choose_profile(profile, context.surroundings, lambda: context.scheduler("slurm").unavailable())
    result = make_forecast(question, name, context.surroundings)
    yield Outcome(
        lambda: [stdout([forecast_csv(result)])] if as_csv else _text(result),
        lambda: forecast_json(result),
    )


def _text(result: ForecastResult) -> Iterator[TextPart]:
    from hpcrun.features.scaling.forecast_display import (
        advice_lines,
        answer_lines,
        case_table,
        case_title,
        heading_lines,
        rates_table,
        rates_title,
    )

    yield stdout(answer_lines(result, width()))
    yield stdout(["", *heading_lines(result)])
    for case in result.question.cases:
        yield stdout(["", case_title(result, case)])
        yield table(case_table(result, case, width()))
    if rates := rates_table(result):
        yield stdout(["", rates_title(result)])
        yield table(rates)
    if advice := advice_lines(result, width()):
        yield stdout(["", *advice])
