"""hpcrun compare: its options, and the runs as a table, JSON, curves, a picture or a diff."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hpcrun.actions.jobs.git import diff_work_tree
from hpcrun.actions.runs import run_facts
from hpcrun.actions.runs.code_changes import diff_lines
from hpcrun.cli.complete import run_name
from hpcrun.cli.metrics import how_to_record
from hpcrun.cli.options import argument, check_one_of, flag, option
from hpcrun.cli.output import (
    JsonOption,
    Outcome,
    Outcomes,
    TextPart,
    note,
    printed,
    stderr,
    table,
    width,
)
from hpcrun.cli.runs_option import RUNS, context_of
from hpcrun.errors import NotFoundError, PlanError, UsageError, did_you_mean
from hpcrun.features.compare.compare_runs import (
    SECTIONS,
    ComparedFact,
    Comparison,
    compare_runs,
)
from hpcrun.features.compare.metric_facts import Curve, curve_of, metric_names
from hpcrun.files.foreign_folder import is_foreign
from hpcrun.job.text.arguments import LONGEST, short_arguments
from hpcrun.job.text.units import count, cut_at_word
from hpcrun.views.figure import PAGE, new_figure, ordered_styles, paper_style, save_figure
from hpcrun.views.metrics_table import braille_plot
from hpcrun.views.text import one_line, text_table, written_line

if TYPE_CHECKING:
    from rich.table import Table

MOST_RUNS = 8
"""So many columns a person can read; sweep and status have a row for each run."""
_SHOWN_METRICS = 3
_SHOWN_LINES = 200
_MOST_ROWS = 60  # of a section
_LONGEST_NAME = 60
_MOST_MARKED = 29
_HEIGHT = 3.0
_COMMIT = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")


def compare(
    runs: list[str] = argument(
        "RUN",
        "Job ids, run ids or names of two to eight; RUN/3 is element 3 of a sweep.",
        default=...,
        complete=run_name,
    ),
    everything: bool = flag("--all -a", "Show what is the same, too, and all metrics."),
    code: bool = flag("--code", "Print how the code of two runs differs, as diff -u does."),
    metric: str | None = option("--metric -m NAME", "Metric to draw. Default: the first."),
    plot: bool = flag("--plot", "Draw a metric of the runs in the terminal."),
    png: Path | None = option("--png FILE", "Draw a metric of the runs to a PNG file."),
    folder: str | None = RUNS,
    as_json: JsonOption = False,
) -> Outcomes:
    """Compare runs: what differs between them, and what came of each.

    The files of the others are compared with those of the first.
    """
    check_one_of(code=code, plot=plot, png=png, json=as_json)
    context = context_of(folder)
    typed = yield from context.named(runs)
    named = list(dict.fromkeys(run.named for run in typed))
    if not 2 <= len(named) <= MOST_RUNS:
        raise UsageError(
            f"compare takes 2 to {MOST_RUNS} runs; these are {len(named)}",
            hint="hpcrun compare 4711 4712; hpcrun sweep RUN for the elements of a sweep",
        )
    made = compare_runs(named, context)
    yield note(one_line(f"hpcrun: {remark}") for remark in made.remarks)
    if code:
        yield note(_code_remarks(made))
        yield printed(_code_lines(made, context.env))
    elif plot:
        yield printed(_plot_lines(made, metric, width() if sys.stdout.isatty() else 80))
    elif png is not None:
        _save_png(made, metric, png)
        yield printed([written_line(png)])
    else:
        yield Outcome(lambda: _text(made, everything=everything), lambda: comparison_json(made))


# --- the table, and its JSON ---------------------------------------------------------------------


def _text(made: Comparison, *, everything: bool) -> Iterator[TextPart]:
    yield table(comparison_table(made, everything=everything))
    lines = [one_line(f"hpcrun: {remark}") for remark in made.unknown]
    if not everything:
        lines += _left_out_lines(made)
    yield stderr(cut_at_word(line, LONGEST) for line in lines)
    if len(made.items) == 2 and any(_is_code(fact) for fact in made.facts):
        yield stderr(["hint: --code prints the difference"])


def _left_out_lines(made: Comparison) -> list[str]:
    """Return the line that counts what is the same, and names the metrics that are not shown."""
    parts = []
    if made.same:
        numbers = [f"{section} ({number})" for section, number in made.same.items()]
        parts.append(f"the same: {', '.join(numbers)}")
    hidden = _hidden_metrics(made)
    if hidden:
        parts.append(f"not shown: {', '.join(hidden)}")
    return [one_line(f"hpcrun: {'; '.join(parts)}; --all shows them")] if parts else []


def _is_code(fact: ComparedFact) -> bool:
    return bool(fact.differs) and (fact.is_file or fact.name == "commit")


def _hidden_metrics(made: Comparison) -> list[str]:
    return metric_names(made.metrics)[_SHOWN_METRICS:]


def comparison_table(made: Comparison, *, everything: bool) -> Table:
    """Return a row for each fact and a column for each run, for a terminal."""
    hidden = () if everything else _hidden_metrics(made)
    rows: list[list[str]] = []
    blank = [""] * len(made.items)
    for section in SECTIONS:
        shown = []
        for fact in made.facts:
            if fact.section == section and fact.metric not in hidden:
                if everything or fact.is_shown:
                    shown.append(fact)
        if shown:
            rows.append([section.upper(), *blank])
        rows += [_cells(fact) for fact in shown[:_MOST_ROWS]]
        if len(shown) > _MOST_ROWS:
            rows.append([f"  and {len(shown) - _MOST_ROWS} more: --json", *blank])
    return text_table(["", *map(one_line, made.labels)], rows)


def _cells(fact: ComparedFact) -> list[str]:
    cells = [f"  {cut_at_word(fact.name, _LONGEST_NAME)}"]
    for value in fact.values:
        cells.append("-" if value is None else cut_at_word(value.text, LONGEST))
    return cells


def comparison_json(made: Comparison) -> dict[str, Any]:
    """Return the comparison as a JSON document; a fact that is not given or not known is null."""
    runs = []
    for item, label in zip(made.items, made.labels, strict=True):
        runs.append(
            {
                "run_id": item.run.run_id,
                "element": item.element,
                "job_id": item.run.job_id,
                "label": label,
                "name": item.run.name,
                "state": item.status.state,
            }
        )
    sections: dict[str, list[dict[str, Any]]] = {section: [] for section in SECTIONS}
    for fact in made.facts:
        values = [None if value is None else value.value for value in fact.values]
        row = {"name": fact.name, "values": values, "differs": fact.differs}
        sections[fact.section].append(row)
    return {
        "kind": "compare",
        "runs": runs,
        "sections": sections,
        "remarks": [*made.remarks, *made.unknown],
    }


# --- the code ------------------------------------------------------------------------------------


def _code_lines(made: Comparison, env: Mapping[str, str]) -> list[str]:
    """Return how the code of two runs differs.

    Raises:
        UsageError: there are more than two runs.
    """
    if len(made.items) != 2:
        raise UsageError(f"--code compares two runs; these are {len(made.items)}")
    before, after = made.snapshots
    if before and after:
        lines = list(diff_lines(before, after, (made.labels[0], made.labels[1])))
    else:
        lines = _commit_lines(made, env)
    if not lines:
        return [_sameness(made)]
    left_out = len(lines) - _SHOWN_LINES
    if sys.stdout.isatty() and left_out > 0:
        lines = lines[:_SHOWN_LINES]
        lines.append(f"... {count(left_out, 'more line')}: hpcrun compare --code ... | less")
    return [_harmless(line) for line in lines]


def _sameness(made: Comparison) -> str:
    """Return what is the same of two runs whose snapshots, or commits, do not differ."""
    is_same = None not in made.snapshots
    changes = []
    for fact in made.facts:
        if fact.section == run_facts.CODE and fact.name == "changes":
            is_same = is_same or fact.differs is False
            for label, value in zip(made.labels, fact.values, strict=True):
                changes.append(f"{label}: {'unknown' if value is None else value.text}")
    if is_same:
        return "the code is the same"
    return f"the commits are the same; files changed since, and not kept: {'; '.join(changes)}"


def _code_remarks(made: Comparison) -> list[str]:
    """Return the line that says of which runs no files were kept; none if all have a snapshot."""
    without = []
    for label, folder in zip(made.labels, made.snapshots, strict=True):
        if folder is None:
            without.append(label)
    if not without:
        return []
    line = (
        f"hpcrun: compared are the commits at submission; the files that {', '.join(without)} ran "
        "may differ: submit --snapshot keeps them"
    )
    return [one_line(line)]


def _harmless(line: str) -> str:
    """Return a line of code that controls no terminal; its tabs stay."""
    return "\t".join(map(one_line, line.split("\t")))


def _commit_lines(made: Comparison, env: Mapping[str, str]) -> list[str]:
    """Return how the commits of two runs differ, by the repository of the first.

    Raises:
        PlanError: a commit is not recorded, or git does not have it any more.
    """
    commits = []
    for item, label in zip(made.items, made.labels, strict=True):
        code = item.run.code or {}
        commit = str(code.get("commit"))
        if not _COMMIT.fullmatch(commit):
            raise PlanError(
                f"{label} has neither a snapshot of its code nor a commit",
                hint="hpcrun submit --snapshot keeps the code",
            )
        commits.append(commit)
    root = Path(str((made.items[0].run.code or {}).get("root")))
    if is_foreign(made.items[0].folder):
        # a repository's configuration may have git run programs
        raise PlanError(
            "--code with --runs compares snapshots alone: git does not run in a folder that another"
            " person's record names",
            hint="hpcrun submit --snapshot keeps the code",
        )
    if not root.is_dir():
        raise PlanError(f"the folder of the code is no longer there: {root}")
    answer = diff_work_tree(root, *commits, "--", env=env)
    if not answer.ok:
        raise PlanError(f"git cannot compare the commits in {root}: {answer.words()}")
    return answer.stdout.removesuffix("\n").split("\n") if answer.stdout else []


# --- the curves ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Curves:
    """The curves of a metric, of the runs that have it."""

    metric: str
    by_label: Mapping[str, Curve]


def _curves(made: Comparison, metric: str | None) -> _Curves:
    """Return the curves of a metric; of the first without a name.

    Raises:
        PlanError: no run has metrics.
        NotFoundError: no run has this metric.
    """
    names = metric_names(made.metrics)
    if not names:
        raise PlanError("no run has metrics", hint=how_to_record())
    name = metric or names[0]
    curves = {}
    for label, metrics in zip(made.labels, made.metrics, strict=True):
        curve = curve_of(metrics, name)
        if curve:
            curves[label] = curve
    if not curves:
        hint = did_you_mean(name, names, f"there are: {', '.join(names)}")
        raise NotFoundError(f"no run has values of {name!r}", hint=hint)
    return _Curves(name, curves)


def _plot_lines(made: Comparison, metric: str | None, columns: int) -> list[str]:
    drawn = _curves(made, metric)
    curves = [list(curve.items()) for curve in drawn.by_label.values()]
    title = one_line(f"{drawn.metric} by step")
    return [title, *braille_plot(curves, columns, names=list(map(one_line, drawn.by_label)))]


def _save_png(made: Comparison, metric: str | None, path: Path) -> None:
    drawn = _curves(made, metric)
    with paper_style():
        figure = new_figure(PAGE, _HEIGHT)
        axes = figure.subplots()
        styles = ordered_styles(len(drawn.by_label))
        for (label, curve), style in zip(drawn.by_label.items(), styles, strict=True):
            if len(curve) > _MOST_MARKED:
                style["marker"] = ""
            arguments = _differing_arguments(made, made.labels.index(label))
            name = one_line(f"{label}: {arguments}" if arguments else label)
            axes.plot(list(curve), list(curve.values()), **style, label=name)
        axes.set_xlabel("step")
        axes.set_ylabel(one_line(drawn.metric))
        axes.legend(loc="upper left", bbox_to_anchor=(1, 1))
        save_figure(figure, path)


def _differing_arguments(made: Comparison, place: int) -> str:
    """Return the arguments of a run in which it differs from the others, for a legend."""
    arguments = {}
    for fact in made.facts:
        value = fact.values[place]
        if fact.section == run_facts.ARGUMENTS and fact.differs and value is not None:
            arguments[fact.name] = value.text
    return short_arguments(arguments, list(arguments))
