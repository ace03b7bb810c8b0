"""hpcrun metrics."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hpcrun.cli.complete import run_name
from hpcrun.cli.context import make_context
from hpcrun.cli.output import JsonOption, show, show_json, show_rich, tell, width, write
from hpcrun.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hpcrun.actions.metrics import Metrics
    from hpcrun.job.parameters import Parameters
    from hpcrun.runs.record import Run

SHOWN = 20
_HOW = (
    "record metrics with hpcrun_runtime.log_metrics(step=..., loss=...), or set patterns for the logs (metrics: "
    "in config.yaml)"
)


def metrics(
    run: Annotated[
        str,
        typer.Argument(
            metavar="RUN",
            help="Job id, run id, name, or 'last', the default. RUN/3 is element 3 of a sweep.",
            show_default=False,
            autocompletion=run_name,
        ),
    ] = "last",
    names: Annotated[
        list[str] | None,
        typer.Option("--metric", "-m", metavar="NAME", help="Show only this metric. Repeatable.", show_default=False),
    ] = None,
    rank: Annotated[
        str | None,
        typer.Option(
            "--rank",
            metavar="RANKS",
            help="Ranks to show: 3, 0-3 or 0-3,7. Default: the first with metrics.",
            show_default=False,
        ),
    ] = None,
    all_ranks: Annotated[bool, typer.Option("--all-ranks", help="Show all ranks.")] = False,
    lines: Annotated[
        int | None,
        typer.Option(
            "--lines",
            "-n",
            metavar="N",
            help=f"Show only the last N rows. Default: {SHOWN} in a table.",
            show_default=False,
        ),
    ] = None,
    plot: Annotated[bool, typer.Option("--plot", help="Draw the metrics in the terminal.")] = False,
    png: Annotated[
        Path | None, typer.Option("--png", metavar="FILE", help="Draw the metrics to a PNG file.", show_default=False)
    ] = None,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print CSV.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Show the metrics of a run, such as its loss.

    They come from hpcrun_runtime.log_metrics, or from patterns in the logs.
    """
    if sum((plot, png is not None, as_csv, as_json)) > 1:
        raise UsageError("--plot, --png, --csv and --json cannot be combined", hint="choose one")
    if rank is not None and all_ranks:
        raise UsageError("--rank and --all-ranks cannot be combined", hint="choose one")
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    from hpcrun.actions.find_element import find_element
    from hpcrun.actions.logs import parse_ranks
    from hpcrun.actions.metrics import choose_metrics, last_rows, profile_patterns, read_elements, read_metrics
    from hpcrun.job.parameters import index_ranges
    from hpcrun.runs.elements import elements_of
    from hpcrun.views.metrics import metrics_csv, metrics_json

    context = make_context()
    found = find_element(run, context.store)
    wanted = parse_ranks(rank, found.run.world_size) if rank is not None else None
    of_profile, remark = profile_patterns(found.run.profile, tuple(context.profile_layers.values()))
    tell(filter(None, (found.note, remark)))
    patterns = {**of_profile, **context.config.metrics}
    folder = context.store.folder(found.run.run_id)
    elements = elements_of(found.run)
    if elements and found.element is None:
        if plot or png is not None:
            raise UsageError(
                f"{'--plot' if plot else '--png'} draws one element, but {found.run.name} is a sweep",
                hint=f"choose one of {index_ranges(elements.parameters)}: "
                f"{found.run.job_id}/{min(elements.parameters)}",
            )
        each = read_elements(
            folder, elements.parameters, patterns, wanted=wanted, all_ranks=all_ranks, names=names or ()
        )
        _show_elements(each, found.run, elements.parameters, lines, as_csv=as_csv, as_json=as_json)
        return
    result = read_metrics(folder, patterns, wanted=wanted, all_ranks=all_ranks, element=found.element or 0)
    result = last_rows(choose_metrics(result, names or ()), lines)
    if result.unreadable:
        tell([f"hpcrun: {result.unreadable} lines are not metrics and are left out"])
    if as_json:
        show_json({**metrics_json(result, found.run.run_id), "element": found.element})
    elif as_csv:
        write(metrics_csv(result))
    elif not result.rows:
        tell(["hpcrun: no metrics", f"hint: {_HOW}"])
    else:
        _picture(result, found.run.run_id, plot=plot, png=png, shown=lines)


def _show_elements(
    each: Mapping[int, Metrics],
    run: Run,
    parameters: Mapping[int, Parameters],
    lines: int | None,
    *,
    as_csv: bool,
    as_json: bool,
) -> None:
    """Show the metrics of a sweep: the last rows of each element at a terminal, all of them to a program."""
    from hpcrun.actions.metrics import last_rows
    from hpcrun.views.metrics import elements_csv, elements_json, elements_table

    whole = {index: last_rows(result, lines) for index, result in each.items()}
    if as_json:
        show_json(elements_json(whole, run.run_id, parameters))
    elif as_csv:
        write(elements_csv(whole))
    elif not any(result.rows for result in each.values()):
        tell([f"hpcrun: no metrics in any of {len(each)} elements", f"hint: {_HOW}"])
    else:
        show_rich(elements_table({index: last_rows(result, lines or 1) for index, result in each.items()}, parameters))
        if lines is None:
            tell(
                [f"hpcrun: the last row of each element; for all rows of one: hpcrun metrics {run.job_id}/{min(each)}"]
            )


def _picture(metrics: Metrics, run_id: str, *, plot: bool, png: Path | None, shown: int | None) -> None:
    from hpcrun.actions.metrics import last_rows
    from hpcrun.views.metrics import metrics_table, plot_lines, save_png

    if png is not None:
        save_png(metrics, png, run_id)
        show([f"written  {png}"])
    elif plot:
        show(plot_lines(metrics, width() if sys.stdout.isatty() else 80))
    else:
        show_rich(metrics_table(metrics if shown is not None else last_rows(metrics, SHOWN)))
        if shown is None and len(metrics.rows) > SHOWN:
            tell([f"hpcrun: the last {SHOWN} of {len(metrics.rows)} rows; for more: -n, --csv or --json"])
