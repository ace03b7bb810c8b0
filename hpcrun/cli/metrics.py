"""hpcrun metrics."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from hpcrun.actions.runs.compiled_text import compiled_row
from hpcrun.actions.runs.find import FoundRun
from hpcrun.actions.runs.log_choice import parse_ranks, role_named
from hpcrun.actions.runs.run_metrics import (
    Metrics,
    choose_metrics,
    last_rows,
    read_elements,
    read_metrics,
)
from hpcrun.cli.complete import RUN
from hpcrun.cli.context import user_folder
from hpcrun.cli.options import check_one_of, flag, option
from hpcrun.cli.output import (
    JsonOption,
    Outcome,
    Outcomes,
    TextPart,
    note,
    stderr,
    stdout,
    table,
    verbatim,
    width,
)
from hpcrun.cli.runs_option import RUNS, context_of
from hpcrun.errors import UsageError
from hpcrun.job.request.parameters import Parameters
from hpcrun.job.text.units import index_ranges
from hpcrun.profiles.config import FILE_NAME
from hpcrun.runs.attempt import last_attempt
from hpcrun.runs.compiled_files import compiled_files
from hpcrun.runs.elements import elements_of
from hpcrun.views.metrics_table import (
    metrics_csv,
    metrics_json,
    metrics_table,
    plot_lines,
    save_png,
)
from hpcrun.views.text import count, one_line, written_line

SHOWN = 20


def how_to_record() -> str:
    """Return how a run gets metrics, with a line that can be pasted and the file that takes it."""
    config = one_line(str(user_folder("config") / FILE_NAME))
    pattern = "metrics: {loss: 'loss ([0-9.]+)'}"
    return (
        "call hpcrun_runtime.log_metrics(step=..., loss=...) in the script, or give a pattern for "
        f"its output in {config}: {pattern}"
    )


def metrics(
    run: str = RUN,
    names: list[str] | None = option("--metric -m NAME", "Show only this metric. Repeatable."),
    rank: str | None = option(
        "--rank RANKS", "Ranks to show: 3, 0-3 or 0-3,7. Default: the first with metrics."
    ),
    all_ranks: bool = flag("--all-ranks", "Show all ranks."),
    role: str | None = option(
        "--role NAME", "Role whose ranks to show. Default: the one that decides the job's end."
    ),
    lines: int | None = option(
        "--lines -n N", f"Show only the last N rows. Default: {SHOWN} in a table."
    ),
    plot: bool = flag("--plot", "Draw the metrics in the terminal."),
    png: Path | None = option("--png FILE", "Draw the metrics to a PNG file."),
    as_csv: bool = flag("--csv", "Print CSV."),
    runs: str | None = RUNS,
    as_json: JsonOption = False,
) -> Outcomes:
    """Show the metrics of a run, such as its loss.

    They come from hpcrun_runtime.log_metrics, or from patterns in the logs.
    """
    check_one_of(plot=plot, png=png, csv=as_csv, json=as_json)
    check_one_of(rank=rank, **{"all-ranks": all_ranks})
    context = context_of(runs)
    [named] = yield from context.named([run])
    part = role_named(named.run, role) or named.run.deciding_role
    number_of_ranks = part.ranks if part else named.run.world_size
    wanted = None if rank is None else parse_ranks(rank, number_of_ranks)
    patterns, remark = context.metric_patterns(named.run.profile)
    yield note([remark])
    folder = context.store.folder(named.run.run_id)
    elements = elements_of(named.run)
    parameters = None
    results: Mapping[Any, Metrics]
    if elements and named.element is None:
        parameters = elements.parameters
        if plot or png is not None:
            indices = index_ranges(parameters)
            raise UsageError(
                f"--plot and --png draw one element, but {named.run.name} has {len(parameters)}",
                hint=f"RUN/N draws one of {indices}; hpcrun sweep --plot draws all",
            )
        results = read_elements(
            folder,
            parameters,
            patterns,
            wanted=wanted,
            all_ranks=all_ranks,
            names=names or (),
            role=part,
        )
    else:
        of_run = read_metrics(
            folder,
            patterns,
            wanted=wanted,
            all_ranks=all_ranks,
            element=named.element or 0,
            role=part,
        )
        results = {None: choose_metrics(of_run, names or ())}
    yield note([*_unreadable_lines(results), *_compiled_notes(folder, named)])
    chosen = {index: last_rows(result, lines) for index, result in results.items()}
    if png is not None and chosen[None].rows:
        save_png(chosen[None], png, named.run.run_id)
    yield Outcome(
        lambda: _text(chosen, parameters, lines, as_csv=as_csv, plot=plot, png=png),
        lambda: metrics_json(chosen, named.run.run_id, parameters, element=named.element),
    )


def _compiled_notes(folder: Path, named: FoundRun) -> list[str]:
    """Return how the run, or its element, has started with --warm, and what was compiled."""
    if elements_of(named.run) and named.element is None:
        return []
    attempt = last_attempt(folder, named.element or 0)
    files = compiled_files(attempt) if attempt else None
    if attempt is None or files is None:
        return []
    start, text = compiled_row(attempt, files)
    return [f"{start} start: {text}"]


def _unreadable_lines(results: Mapping[Any, Metrics]) -> list[str]:
    number = sum(result.unreadable for result in results.values())
    if number == 0:
        return []
    return [f"hpcrun: left out {count(number, 'line')} that cannot be read as metrics"]


def _text(
    results: Mapping[Any, Metrics],
    parameters: Mapping[int, Parameters] | None,
    lines: int | None,
    *,
    as_csv: bool,
    plot: bool,
    png: Path | None,
) -> Iterator[TextPart]:
    """Show the metrics of a run or of a sweep.

    A terminal gets the last rows, a program gets all of them.
    """
    has_rows = any(result.rows for result in results.values())
    if not has_rows:
        yield stderr(["hpcrun: no metrics", f"hint: {how_to_record()}"])
    if as_csv:
        yield verbatim(metrics_csv(results))
    elif not has_rows:
        return
    elif png is not None:
        yield stdout([written_line(png)])
    elif plot:
        columns = width() if sys.stdout.isatty() else 80
        yield stdout(plot_lines(results[None], columns))
    else:
        most = 1 if parameters else SHOWN
        if lines is not None:
            most = lines
        shown = {index: last_rows(result, most) for index, result in results.items()}
        yield table(metrics_table(shown, parameters))
        if any(len(result.rows) > most for result in results.values()):
            if parameters:
                part = f"{count(most, 'row')} of each element"
            else:
                part = f"{most} of {len(results[None].rows)} rows"
            yield stderr([f"hpcrun: the last {part}; for more: -n, --csv or --json"])
