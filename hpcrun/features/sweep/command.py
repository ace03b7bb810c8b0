"""hpcrun sweep: the table of a sweep."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from hpcrun.cli.complete import run_name
from hpcrun.cli.context import make_context
from hpcrun.cli.options import argument, flag, option
from hpcrun.cli.output import JsonOption, Outcomes, note
from hpcrun.errors import UsageError

if TYPE_CHECKING:
    from hpcrun.runs.record import Run


def sweep(
    runs: list[str] | None = argument(
        "RUN", "Job id, run id, name, or 'last', the default. Several RUNs are one table.", complete=run_name
    ),
    order: str | None = option(
        "--sort METRIC[:min|max]",
        "Metric that decides which element is best, and whether small or large is better. Default: the loss or "
        "accuracy of the validation, else the first metric.",
    ),
    best: str | None = option(
        "--best METRIC[:min|max]", "Print only the command of the best element, as a job of its own."
    ),
    best_step: bool = flag("--best-step", "Compare the best value of each element. Default: its last value."),
    names: list[str] | None = option("--metric -m NAME", "Show only this metric. Repeatable."),
    lines: int | None = option("--lines -n N", "Show only the best N elements."),
    plot: bool = flag("--plot", "Draw the curves of the elements in the terminal."),
    png: Path | None = option("--png FILE", "Draw curves and parameters to a PNG file."),
    as_csv: bool = flag("--csv", "Print CSV."),
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
    from hpcrun.features.sweep.display import best_outcome, sweep_outcome
    from hpcrun.features.sweep.sweep import read_items, shown_part, sweep_table, sweeps_of

    context = make_context()
    sweeps: dict[str, Run] = {}
    for label in runs or ["last"]:
        repeated, remarks = sweeps_of(label, context.store)
        yield note(remarks)
        sweeps |= {run.run_id: run for run in repeated}
    items, remarks = read_items(list(sweeps), context)
    yield note(remarks)
    made = sweep_table(items, best or order, best_step=best_step)
    if best is not None:
        yield best_outcome(made, str(context.cwd))
    else:
        yield sweep_outcome(shown_part(made, names or (), lines), plot=plot, png=png, as_csv=as_csv)
