"""hpcrun plan: a forecast of what more GPUs bring."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hpcrun.cli import complete
from hpcrun.cli.context import make_context
from hpcrun.cli.lean_imports import import_pydantic
from hpcrun.cli.options import takes_options
from hpcrun.cli.outcome import Outcome, TextPart, stdout, table
from hpcrun.cli.output import JsonOption, width
from hpcrun.errors import UsageError

if TYPE_CHECKING:
    from hpcrun.actions.studies.forecast import ForecastResult

_MEASURED, _ASKED, _KNOWN = "Measurement", "Forecast", "Training"


def _option(*names: str, help: str, panel: str, metavar: str) -> Any:
    return typer.Option(*names, help=help, rich_help_panel=panel, metavar=metavar, show_default=False)


class ForecastOptions:
    """One attribute for each option of which ``actions.forecast.read_question`` reads the text."""

    samples: Annotated[str, _option("--samples", metavar="N", panel=_MEASURED, help="Samples per epoch: 1.2M, 500k.")]
    batch_size: Annotated[
        str, _option("--batch-size", metavar="N", panel=_MEASURED, help="Global batch of the measured epoch.")
    ]
    epoch_time: Annotated[
        str,
        _option("--epoch-time", metavar="TIME", panel=_MEASURED, help="Time of the measured epoch: 36m, 42.3s, 1h30m."),
    ]
    reference_gpus: Annotated[
        str | None,
        _option("--reference-gpus", metavar="N", panel=_MEASURED, help="GPUs of the measured epoch. Default: 1."),
    ] = None
    also: Annotated[
        str | None,
        _option(
            "--also",
            metavar="BATCH=TIME",
            panel=_MEASURED,
            help="Epoch time with a second global batch on the same GPUs; it replaces an estimate.",
        ),
    ] = None

    gpus: Annotated[
        str,
        _option(
            "--gpus",
            "-G",
            metavar="[TYPE:]N,...",
            panel=_ASKED,
            help="Numbers of GPUs to forecast, each of a whole job: 1,2,4,8.",
        ),
    ]
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
    asked: dict[str, str | None],
    profile: Annotated[
        str | None,
        typer.Option(
            "--profile",
            "-P",
            metavar="NAME",
            help="Cluster profile, by name or path. Default: as submit.",
            rich_help_panel=_ASKED,
            show_default=False,
            autocompletion=complete.profile_name,
        ),
    ] = None,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print CSV.")] = False,
    as_json: JsonOption = False,
) -> Outcome:
    """Forecast the time and cost of a training on more GPUs. Nothing runs.

    The forecast starts from the time of one epoch that you measured.
    It shows batch, steps, learning rate, time, GPU-hours and cost, and warns
    where a rank has too little work.
    """
    if as_json and as_csv:
        raise UsageError("--json and --csv cannot be combined", hint="choose one")
    import_pydantic()
    from hpcrun.actions.jobs.prepare import choose_profile
    from hpcrun.actions.studies.forecast import make_forecast, read_question
    from hpcrun.views.forecast import forecast_csv, forecast_json

    question = read_question({name: text for name, text in asked.items() if text is not None})
    context = make_context()
    name = choose_profile(profile, context.surroundings, lambda: context.scheduler("slurm").unavailable())
    result = make_forecast(question, name, context.surroundings)
    return Outcome(
        lambda: [stdout([forecast_csv(result)])] if as_csv else _text(result),
        lambda: forecast_json(result),
    )


def _text(result: ForecastResult) -> Iterator[TextPart]:
    from hpcrun.views.forecast import advice_lines, case_table, case_title, heading_lines, rates_table, rates_title

    yield stdout(heading_lines(result))
    for case in result.question.cases:
        yield stdout(["", case_title(result, case)])
        yield table(case_table(result, case, width()))
    if rates := rates_table(result):
        yield stdout(["", rates_title(result)])
        yield table(rates)
    if advice := advice_lines(result, width()):
        yield stdout(["", *advice])
