"""hpcrun plan: a forecast of what more GPUs bring."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hpcrun.cli import complete
from hpcrun.cli.context import Context, make_context
from hpcrun.cli.lean_imports import import_pydantic
from hpcrun.cli.options import takes_options
from hpcrun.cli.outcome import Outcome, Outcomes, TextPart, note, stdout, table
from hpcrun.cli.output import JsonOption, width
from hpcrun.errors import UsageError

if TYPE_CHECKING:
    from hpcrun.actions.studies.forecast import ForecastResult

_MEASURED, _ASKED, _KNOWN = "Measurement", "Forecast", "Training"


def _option(*names: str, help: str, panel: str, metavar: str) -> Any:
    return typer.Option(*names, help=help, rich_help_panel=panel, metavar=metavar, show_default=False)


class ForecastOptions:
    """One attribute for each option of which ``actions.forecast.read_question`` reads the text."""

    samples: Annotated[
        str | None, _option("--samples", metavar="N", panel=_MEASURED, help="Samples per epoch: 1.2M, 500k.")
    ] = None
    batch_size: Annotated[
        str | None, _option("--batch-size", metavar="N", panel=_MEASURED, help="Global batch of the measured epoch.")
    ] = None
    epoch_time: Annotated[
        str | None,
        _option(
            "--epoch-time",
            metavar="TIME",
            panel=_MEASURED,
            help="Time of the measured epoch, 36m or 42.3s, or of a step: 0.108s/step.",
        ),
    ] = None
    reference_gpus: Annotated[
        str | None,
        _option(
            "--reference-gpus",
            metavar="N[/NODES]",
            panel=_MEASURED,
            help="GPUs of the measured epoch, and their nodes if they were not the fewest. Default: 1.",
        ),
    ] = None
    also: Annotated[
        list[str] | None,
        _option(
            "--also",
            metavar="[GPUS:]BATCH=TIME",
            panel=_MEASURED,
            help="Another measured epoch: with this global batch, on the same or on other GPUs. Repeatable.",
        ),
    ] = None

    gpus: Annotated[
        str | None,
        _option(
            "--gpus",
            "-G",
            metavar="[TYPE:]N,...",
            panel=_ASKED,
            help="Numbers of GPUs to forecast, each of a whole job. Default: 1, 2, 4 and 8 times the measured ones.",
        ),
    ] = None
    nodes: Annotated[
        str | None,
        _option(
            "--nodes",
            "-N",
            metavar="N,...",
            panel=_ASKED,
            help="Nodes for each number of GPUs, or one number for all. Default: the fewest.",
        ),
    ] = None
    mode: Annotated[
        str | None,
        _option(
            "--mode",
            metavar="fixed|scaled|both",
            panel=_ASKED,
            help="Keep the global batch (fixed) or the per-GPU batch (scaled). Default: both.",
        ),
    ] = None
    price_per_gpu_hour: Annotated[
        str | None,
        _option(
            "--price-per-gpu-hour", metavar="PRICE", panel=_ASKED, help="Price of one GPU-hour. Default: the profile's."
        ),
    ] = None

    lr: Annotated[
        str | None, _option("--lr", metavar="RATE", panel=_KNOWN, help="Learning rate at the measured global batch.")
    ] = None
    optimizer: Annotated[
        str | None,
        _option(
            "--optimizer",
            metavar="NAME",
            panel=_KNOWN,
            help="Optimizer (sgd, adam, adamw ...); decides how the learning rate scales.",
        ),
    ] = None
    warmup_epochs: Annotated[
        str | None,
        _option(
            "--warmup-epochs",
            metavar="N",
            panel=_KNOWN,
            help="Warm-up epochs for a raised learning rate. Default: 5, at most half of --epochs.",
        ),
    ] = None
    epochs: Annotated[
        str | None,
        _option(
            "--epochs", metavar="N", panel=_KNOWN, help="Epochs of the training, for GPU-hours and cost. Default: 1."
        ),
    ] = None
    parameters: Annotated[
        str | None,
        _option(
            "--parameters",
            metavar="N",
            panel=_KNOWN,
            help="Parameters of the model (25M), for the size of the gradients.",
        ),
    ] = None
    dtype: Annotated[
        str | None,
        _option(
            "--dtype", metavar="fp32|bf16|fp16", panel=_KNOWN, help="Data type of the gradients. autocast keeps fp32."
        ),
    ] = None
    overlap: Annotated[
        str | None,
        _option(
            "--overlap",
            metavar="SHARE",
            panel=_KNOWN,
            help="Share of communication that overlaps the backward pass, 0 to 1. Default: all but one bucket.",
        ),
    ] = None
    tokens_per_sample: Annotated[
        str | None,
        _option(
            "--tokens-per-sample",
            metavar="N",
            panel=_KNOWN,
            help="Tokens, patches or pixels of a sample that a layer processes together. Default: 1.",
        ),
    ] = None


@takes_options(ForecastOptions)
def forecast(
    asked: dict[str, Any],
    source: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="STUDY|RUN",
            help="Read the measured epochs from the metrics of a scaling study or a run.",
            rich_help_panel=_MEASURED,
            show_default=False,
            autocompletion=complete.study_or_run_name,
        ),
    ] = None,
    profile: Annotated[
        str | None,
        typer.Option(
            "--profile",
            "-P",
            metavar="NAME",
            help="Cluster profile, by name or path. Default: as submit, or the study's.",
            rich_help_panel=_ASKED,
            show_default=False,
            autocompletion=complete.profile_name,
        ),
    ] = None,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print CSV.")] = False,
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
    from hpcrun.actions.studies.forecast import make_forecast, read_question
    from hpcrun.views.forecast import forecast_csv, forecast_json

    said = {name: text for name, text in asked.items() if text is not None}
    if also := said.pop("also", None):
        said["also"] = ",".join(also)
    context = make_context()
    known: dict[str, Any] = {}
    if source is not None:
        known, trained_on, remarks = _measured(source, context, said.get("batch_size"))
        profile = profile or trained_on
        yield note(remarks)
    question = read_question(said, known)
    name = choose_profile(profile, context.surroundings, lambda: context.scheduler("slurm").unavailable())
    result = make_forecast(question, name, context.surroundings)
    yield Outcome(
        lambda: [stdout([forecast_csv(result)])] if as_csv else _text(result),
        lambda: forecast_json(result),
    )


def _measured(word: str, context: Context, batch_size: str | None) -> tuple[dict[str, Any], str, list[str]]:
    """Return what the runs of a study, or one run, say of a training, their profile, and remarks."""
    from hpcrun.actions.runs.metrics import metric_patterns
    from hpcrun.actions.studies.forecast import read_named
    from hpcrun.job.units import parse_count
    from hpcrun.scaling.workload import read_option, workload_of

    folders = tuple(context.profile_layers.values())
    found = read_named(
        word,
        context.ports,
        place=context.studies,
        patterns=lambda profile: metric_patterns(profile, folders, context.config.metrics)[0],
    )
    batch = None if batch_size is None else read_option("batch_size", batch_size, parse_count)
    return workload_of(found.points, found.warmup, batch), found.profile, [*found.remarks]


def _text(result: ForecastResult) -> Iterator[TextPart]:
    from hpcrun.views.forecast import (
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
