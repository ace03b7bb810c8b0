"""hpcrun metrics."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from hpcrun.actions.runs.find import find_element
from hpcrun.actions.runs.logs import parse_ranks
from hpcrun.actions.runs.metrics import Metrics, choose_metrics, last_rows, read_elements, read_metrics
from hpcrun.cli.complete import RUN
from hpcrun.cli.context import make_context, user_folder
from hpcrun.cli.options import check_one_of, flag, option
from hpcrun.cli.output import JsonOption, Outcome, Outcomes, TextPart, note, stderr, stdout, table, verbatim, width
from hpcrun.errors import UsageError
from hpcrun.job.parameters import Parameters, index_ranges
from hpcrun.profiles.config import FILE_NAME
from hpcrun.runs.elements import elements_of
from hpcrun.runs.record import Run
from hpcrun.views.metrics import (
    elements_json,
    elements_table,
    metrics_csv,
    metrics_json,
    metrics_table,
    plot_lines,
    save_png,
)
from hpcrun.views.text import count, one_line

SHOWN = 20


def how_to_record() -> str:
    """Return how a run gets metrics, with a line that can be pasted and the file that takes it."""
    config = user_folder("config") / FILE_NAME
    return (
        "call hpcrun_runtime.log_metrics(step=..., loss=...) in the script, or give a pattern for its output in "
        f"{one_line(str(config))}: metrics: {{loss: 'loss ([0-9.]+)'}}"
    )


def metrics(
    run: str = RUN,
    names: list[str] | None = option("--metric -m NAME", "Show only this metric. Repeatable."),
    rank: str | None = option("--rank RANKS", "Ranks to show: 3, 0-3 or 0-3,7. Default: the first with metrics."),
    all_ranks: bool = flag("--all-ranks", "Show all ranks."),
    lines: int | None = option("--lines -n N", f"Show only the last N rows. Default: {SHOWN} in a table."),
    plot: bool = flag("--plot", "Draw the metrics in the terminal."),
    png: Path | None = option("--png FILE", "Draw the metrics to a PNG file."),
    as_csv: bool = flag("--csv", "Print CSV."),
    as_json: JsonOption = False,
) -> Outcomes:
    """Show the metrics of a run, such as its loss.

    They come from hpcrun_runtime.log_metrics, or from patterns in the logs.
    """
    check_one_of(plot=plot, png=png, csv=as_csv, json=as_json)
    check_one_of(rank=rank, **{"all-ranks": all_ranks})
    context = make_context()
    named = find_element(run, context.store)
    wanted = parse_ranks(rank, named.run.world_size) if rank is not None else None
    patterns, remark = context.metric_patterns(named.run.profile)
    yield note([named.note, remark])
    folder = context.store.folder(named.run.run_id)
    elements = elements_of(named.run)
    if elements and named.element is None:
        if plot or png is not None:
            what, several = ("--plot", "--plot") if plot else ("--png", "--png FILE")
            one = f"{index_ranges(elements.parameters)}: {named.run.job_id}/{min(elements.parameters)}"
            together = f"hpcrun sweep {named.run.job_id} {several} draws all; " if named.run.plan.get("sweep") else ""
            raise UsageError(
                f"{what} draws one element, but {named.run.name} has {len(elements.parameters)}",
                hint=f"{together}choose one of {one}",
            )
        each = read_elements(
            folder, elements.parameters, patterns, wanted=wanted, all_ranks=all_ranks, names=names or ()
        )
        whole = {index: last_rows(result, lines) for index, result in each.items()}
        yield Outcome(
            lambda: _elements_text(each, whole, named.run, elements.parameters, lines, as_csv=as_csv),
            lambda: elements_json(whole, named.run.run_id, elements.parameters),
        )
        return
    result = read_metrics(folder, patterns, wanted=wanted, all_ranks=all_ranks, element=named.element or 0)
    result = last_rows(choose_metrics(result, names or ()), lines)
    if result.unreadable:
        yield note([f"hpcrun: left out {count(result.unreadable, 'line')} that cannot be read as metrics"])
    if png is not None and result.rows:
        save_png(result, png, named.run.run_id)
    yield Outcome(
        lambda: _text(result, lines, as_csv=as_csv, plot=plot, png=png),
        lambda: {**metrics_json(result, named.run.run_id), "element": named.element},
    )


def _elements_text(
    each: Mapping[int, Metrics],
    whole: Mapping[int, Metrics],
    run: Run,
    parameters: Mapping[int, Parameters],
    lines: int | None,
    *,
    as_csv: bool,
) -> Iterator[TextPart]:
    """Show the metrics of a sweep: on a terminal the last rows of each element, else all of them."""
    if as_csv:
        yield verbatim(metrics_csv(whole))
    elif not any(result.rows for result in each.values()):
        yield stderr([f"hpcrun: no metrics in any of {len(each)} elements", f"hint: {how_to_record()}"])
    else:
        last = {index: last_rows(result, lines or 1) for index, result in each.items()}
        yield table(elements_table(last, parameters))
        if lines is None:
            yield stderr(
                [f"hpcrun: the last row of each element; for all rows of one: hpcrun metrics {run.job_id}/{min(each)}"]
            )


def _text(metrics: Metrics, shown: int | None, *, as_csv: bool, plot: bool, png: Path | None) -> Iterator[TextPart]:
    if as_csv:
        yield verbatim(metrics_csv({None: metrics}))
    elif not metrics.rows:
        yield stderr(["hpcrun: no metrics", f"hint: {how_to_record()}"])
    elif png is not None:
        yield stdout([f"written  {png}"])
    elif plot:
        yield stdout(plot_lines(metrics, width() if sys.stdout.isatty() else 80))
    else:
        yield table(metrics_table(metrics if shown is not None else last_rows(metrics, SHOWN)))
        if shown is None and len(metrics.rows) > SHOWN:
            yield stderr([f"hpcrun: the last {SHOWN} of {len(metrics.rows)} rows; for more: -n, --csv or --json"])
