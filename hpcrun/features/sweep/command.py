"""hpcrun sweep: the table of a sweep."""

from __future__ import annotations

import sys
from collections.abc import Generator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hpcrun.cli.complete import run_name
from hpcrun.cli.context import Context, make_context
from hpcrun.cli.lean_imports import import_pydantic
from hpcrun.cli.metrics import how_to_record
from hpcrun.cli.outcome import Outcome, Outcomes, note, printed, stderr, stdout, table, verbatim
from hpcrun.cli.output import JsonOption, width
from hpcrun.errors import UsageError

if TYPE_CHECKING:
    from hpcrun.actions.runs.metrics import Metrics
    from hpcrun.actions.status.run_status import RunStatus
    from hpcrun.features.sweep.sweep import SweepTable
    from hpcrun.runs.record import Run


def sweep(
    runs: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="RUN",
            help="Job id, run id, name, or 'last', the default. Several RUNs are one table.",
            show_default=False,
            autocompletion=run_name,
        ),
    ] = None,
    order: Annotated[
        str | None,
        typer.Option(
            "--sort",
            metavar="METRIC[:min|max]",
            help="Metric that decides which element is best, and whether small or large is better. Default: the loss "
            "or accuracy of the validation, else the first metric.",
            show_default=False,
        ),
    ] = None,
    best: Annotated[
        str | None,
        typer.Option(
            "--best",
            metavar="METRIC[:min|max]",
            help="Print only the command of the best element, as a job of its own.",
            show_default=False,
        ),
    ] = None,
    best_step: Annotated[
        bool, typer.Option("--best-step", help="Compare the best value of each element. Default: its last value.")
    ] = False,
    names: Annotated[
        list[str] | None,
        typer.Option("--metric", "-m", metavar="NAME", help="Show only this metric. Repeatable.", show_default=False),
    ] = None,
    lines: Annotated[
        int | None,
        typer.Option("--lines", "-n", metavar="N", help="Show only the best N elements.", show_default=False),
    ] = None,
    plot: Annotated[bool, typer.Option("--plot", help="Draw the curves of the elements in the terminal.")] = False,
    png: Annotated[
        Path | None,
        typer.Option("--png", metavar="FILE", help="Draw curves and parameters to a PNG file.", show_default=False),
    ] = None,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print CSV.")] = False,
    as_json: JsonOption = False,
) -> Outcomes:
    """Show parameters and metrics of a sweep's elements, best first.

    A sweep that repeats elements of another, such as by resubmit --failed,
    shows the newest of each.
    """
    if sum((plot, png is not None, as_csv, as_json)) > 1:
        raise UsageError("--plot, --png, --csv and --json cannot be combined", hint="choose one")
    if best is not None and (plot or png is not None or as_csv or order is not None):
        raise UsageError("--best prints one command: --sort, --plot, --png and --csv have no effect")
    if lines is not None and lines < 1:
        raise UsageError(f"--lines {lines}: must be 1 or more")
    import_pydantic()
    from hpcrun.actions.runs.metrics import read_elements
    from hpcrun.actions.status.status import get_status
    from hpcrun.features.sweep.sweep import sweep_table

    context = make_context()
    found = yield from _sweeps(runs or ["last"], context)
    result = get_status([run.run_id for run in found], context.ports)
    items: list[tuple[RunStatus, Mapping[int, Metrics]]] = []
    for item in result.runs:
        patterns, remark = context.metric_patterns(item.run.profile)
        yield note([remark])
        items.append((item, read_elements(item.folder, [one.index for one in item.elements], patterns)))
    made = sweep_table(items, best or order, best_step=best_step)
    if result.away:
        yield note([f"hpcrun: {result.away.message}; the states are the last known"])
    if best is not None:
        yield _best(made, context)
        return
    yield _outcome(_shown(made, names or (), lines), plot=plot, png=png, as_csv=as_csv)


def _sweeps(words: Sequence[str], context: Context) -> Generator[Outcome, None, list[Run]]:
    """Return the sweeps that are meant, and those that they repeat, oldest first."""
    from hpcrun.actions.runs.find import find_run
    from hpcrun.features.sweep.sweep import repeated_runs
    from hpcrun.runs.elements import elements_of

    found: dict[str, Run] = {}
    for word in words:
        meant = find_run(word, context.store)
        if elements_of(meant.run) is None:
            raise UsageError(
                f"{meant.run.run_id} is no sweep: it has no elements",
                hint=f"hpcrun metrics {meant.run.job_id or meant.run.run_id} shows its metrics",
            )
        earlier = repeated_runs(meant.run, context.store)
        if len(earlier) > 1:
            names = ", ".join(run.run_id for run in earlier[:-1])
            yield note([f"{meant.run.run_id} repeats elements of {names}: the newest of each is shown", meant.note])
        else:
            yield note([meant.note])
        found |= {run.run_id: run for run in earlier}
    return list(found.values())


def _shown(made: SweepTable, names: Sequence[str], lines: int | None) -> SweepTable:
    """Return the part of a table that was asked for."""
    from hpcrun.actions.runs.metrics import Metrics, choose_metrics

    if names:
        choose_metrics(Metrics(made.names, ()), names)
    return replace(made, names=tuple(names) or made.names, rows=made.rows[:lines])


def _outcome(made: SweepTable, *, plot: bool, png: Path | None, as_csv: bool) -> Outcome:
    from hpcrun.features.sweep.display import save_sweep_png, sweep_csv, sweep_json, sweep_plot, sweep_table_text

    if png is not None:
        save_sweep_png(made, png)
        return printed([f"written  {png}"])
    if as_csv:
        return Outcome(lambda: [verbatim(sweep_csv(made))])
    if plot:
        return printed(sweep_plot(made, width() if sys.stdout.isatty() else 80))
    order = [f"hpcrun: by {made.ranking.words}; other order: --sort METRIC:min or :max"] if made.ranking else []
    notes = order or ["hpcrun: no metrics in any element", f"hint: {how_to_record()}"]
    return Outcome(lambda: [table(sweep_table_text(made)), stderr(notes)], lambda: sweep_json(made))


def _best(made: SweepTable, context: Context) -> Outcome:
    from hpcrun.features.sweep.display import row_json
    from hpcrun.features.sweep.sweep import best_row, submit_command
    from hpcrun.job.parameters import parameters_text
    from hpcrun.views.metrics import value_text
    from hpcrun.views.text import one_line

    row = best_row(made)
    assert made.ranking is not None
    command = submit_command(row, str(context.cwd))
    name = f"{row.run.job_id or row.run.run_id}/{row.index}"
    value = f"{made.ranking.metric} {value_text(row.values.get(made.ranking.metric))} at step {value_text(row.step)}"
    about = [
        f"hpcrun: {name} ({parameters_text(row.parameters)}) is {row.status.state}: {value} ({made.ranking.words})",
        f"hpcrun: to continue it from its checkpoints: hpcrun resubmit {row.run.run_id} --elements {row.index}",
    ]
    return Outcome(
        lambda: [stderr(map(one_line, about)), stdout([command])],
        lambda: {"kind": "sweep-best", **row_json(row), "command": command},
    )
