"""compare: runs side by side: what differs between them, and what came of each.

Nothing is run or imported: records, and files of snapshots, are read as text.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from hpcrun.actions.runs import run_facts
from hpcrun.actions.runs.code_changes import changed_files, snapshot_folder
from hpcrun.actions.runs.run_metrics import Metrics, read_metrics
from hpcrun.actions.status.run_status import RunStatus, element_of
from hpcrun.actions.status.status_query import get_status
from hpcrun.cli.context import Context
from hpcrun.errors import NotFoundError, UsageError
from hpcrun.explain.first_line import with_element_lines, with_first_lines
from hpcrun.features.compare.metric_facts import Fact, metric_facts
from hpcrun.job.text.hide_secrets import HIDER
from hpcrun.job.text.recognise_secrets import MASK
from hpcrun.job.text.units import count
from hpcrun.views.text import clock_text

RESULT = "result"
METRICS = "metrics"
SECTIONS = (RESULT, *run_facts.SECTIONS, METRICS)
_ALWAYS = (RESULT, METRICS)
"""What came of the runs is shown also where it is the same."""
_UNKNOWN = (*run_facts.RECORDED, METRICS)
"""The sections in which a fact that a run lacks is unknown."""
FIRST = "first"
"""What a file is in the run with which the snapshots of the others are compared."""


@dataclass(frozen=True, slots=True)
class ComparedFact:
    """A fact of all runs."""

    section: str
    name: str
    values: tuple[Fact | None, ...]  # of each run; None if it was not given, or is unknown
    metric: str = ""  # the metric that it is about; empty for none
    is_file: bool = False  # it is about a file of the snapshots

    @property
    def differs(self) -> bool | None:
        """Whether the runs differ in it; None if that is unknown."""
        known = {value.text for value in self.values if value is not None}
        is_complete = None not in self.values
        is_hidden = any(text == MASK or run_facts.NOT_COMPARED in text for text in known)
        if self.section in _UNKNOWN or is_hidden:
            if len(known) > 1:
                return True
            return False if is_complete and not is_hidden else None
        return len(known) > 1 or not is_complete

    @property
    def is_shown(self) -> bool:
        """Whether it is shown where only differences are."""
        return bool(self.differs) or self.section in _ALWAYS


@dataclass(frozen=True, slots=True)
class Comparison:
    """Some runs side by side."""

    items: tuple[RunStatus, ...]
    labels: tuple[str, ...]  # of each run
    metrics: tuple[Metrics, ...]  # of each run
    snapshots: tuple[Path | None, ...]  # the folder of each run's snapshot
    facts: tuple[ComparedFact, ...]  # in the order of the sections
    remarks: tuple[str, ...]  # what could not be read
    unknown: tuple[str, ...]  # what could not be compared, since no record has it
    without_code: tuple[str, ...]  # the labels of the runs of which no record has all of the code

    @property
    def same(self) -> dict[str, int]:
        """Section → the number of its facts that are the same in all runs."""
        numbers: dict[str, int] = {}
        for fact in self.facts:
            if fact.differs is False and not fact.is_shown:
                numbers[fact.section] = numbers.get(fact.section, 0) + 1
        return numbers


def compare_runs(named: Sequence[tuple[str, int | None]], context: Context) -> Comparison:
    """Return runs and elements of sweeps side by side.

    Args:
        named: the ids of the runs, each with an element of a sweep.
        context: the runs, and what asks the scheduler.

    Raises:
        NotFoundError: one of them was removed meanwhile.
        UsageError: one of them is a sweep, which is not one run.
    """
    result = get_status([run_id for run_id, _ in named], context.ports)
    result = with_first_lines(result, context.store, context.rules)
    by_id = {item.run.run_id: item for item in result.runs}
    items = []
    for run_id, element in named:
        if run_id not in by_id:
            raise NotFoundError(f"run {run_id} was removed, or cannot be read any more")
        items.append(_one_run(by_id[run_id], element, context))
    labels = _labels(items)
    remarks = []
    if result.away:
        remarks.append(f"{result.away.message}; the states are the last known")
    metrics = []
    for item in items:
        patterns, remark = context.metric_patterns(item.run.profile)
        if remark:
            remarks.append(remark)
        role = item.run.deciding_role
        metrics.append(read_metrics(item.folder, patterns, element=item.element or 0, role=role))
    snapshots = [snapshot_folder(item.run, context.store) for item in items]
    facts = _compared(items, metrics, snapshots, context)
    return Comparison(
        items=tuple(items),
        labels=tuple(labels),
        metrics=tuple(metrics),
        snapshots=tuple(snapshots),
        facts=tuple(facts),
        remarks=tuple(dict.fromkeys(remarks)),
        unknown=tuple(_unknown(facts, labels, snapshots)),
        without_code=tuple(_without_code(facts, labels, snapshots)),
    )


def _one_run(item: RunStatus, element: int | None, context: Context) -> RunStatus:
    if element is not None:
        item = with_element_lines(item, [element], context.store, context.rules)
        return element_of(item, element)
    if item.elements:
        label = item.run.job_id or item.run.run_id
        raise UsageError(
            f"{label} is a sweep of {count(len(item.elements), 'element')}, not one run",
            hint=f"hpcrun sweep {label} compares its elements; "
            f"{label}/{item.elements[0].index} is one of them",
        )
    return item


def _labels(items: Sequence[RunStatus]) -> list[str]:
    """Return the job ids of runs; their run ids where two clusters gave the same id."""
    labels = [item.label for item in items]
    if len(set(labels)) == len(labels):
        return labels
    labels = []
    for item in items:
        element = "" if item.element is None else f"/{item.element}"
        labels.append(f"{item.run.run_id}{element}")
    return labels


def _compared(
    items: Sequence[RunStatus],
    metrics: Sequence[Metrics],
    snapshots: Sequence[Path | None],
    context: Context,
) -> list[ComparedFact]:
    """Return the facts of runs, in the order of the sections."""
    runs = []
    for item in items:
        facts = run_facts.facts_of(item.run, context.store, item.element, item.status.hosts)
        runs.append({RESULT: _result(item), **facts})
    compared = []
    for section in SECTIONS[:-1]:
        names = dict.fromkeys(name for facts in runs for name in facts[section])
        for name in names:
            values = tuple(_fact(facts[section].get(name)) for facts in runs)
            compared.append(ComparedFact(section, name, values))
    compared += _files(snapshots)
    for of_metric in metric_facts(metrics):
        fact = ComparedFact(METRICS, of_metric.name, of_metric.values, of_metric.metric)
        compared.append(fact)
    return compared


def _fact(value: str | Fact | None) -> Fact | None:
    return Fact(value, value) if isinstance(value, str) else value


def _result(item: RunStatus) -> Mapping[str, str | Fact]:
    """Return what came of a run, and whose checkpoints it was given."""
    status = item.status
    run = item.run
    facts: dict[str, str | Fact] = {"name": run.name}
    if run.note:
        facts["note"] = run.note
    facts["state"] = status.state
    if status.ran_s is not None:
        facts["elapsed"] = Fact(clock_text(status.ran_s), status.ran_s)
    if status.exit_status:
        facts["exit status"] = Fact(str(status.exit_status), status.exit_status)
    if status.cause:
        facts["cause"] = HIDER.hide(status.cause)
    if status.attempt:
        facts["attempts"] = Fact(str(status.attempt + 1), status.attempt + 1)
    if run.checkpoints_of:
        facts["checkpoints of"] = run.checkpoints_of
    return facts


def _files(snapshots: Sequence[Path | None]) -> list[ComparedFact]:
    """Return the files that differ from those of the first run with a snapshot."""
    first = next((folder for folder in snapshots if folder), None)
    changed: list[dict[str, str] | None] = []
    for folder in snapshots:
        changed.append(None if folder is None or first is None else changed_files(first, folder))
    names = dict.fromkeys(path for files in changed if files for path in files)
    facts = []
    for name in names:
        values: list[Fact | None] = []
        for folder, files in zip(snapshots, changed, strict=True):
            if files is None:
                values.append(None)
            elif folder is first:
                values.append(Fact(FIRST, FIRST))
            else:
                change = files.get(name, "the same")
                values.append(Fact(change, change))
        facts.append(ComparedFact(run_facts.CODE, name, tuple(values), is_file=True))
    return facts


# --- what is not known ---------------------------------------------------------------------------


def _unknown(
    facts: Sequence[ComparedFact], labels: Sequence[str], snapshots: Sequence[Path | None]
) -> Iterator[str]:
    """Yield which facts are unknown of which runs, and which are not compared."""
    lacking: dict[str, list[str]] = {}
    for place, label in enumerate(labels):
        names = ", ".join(_unknown_of(facts, place))
        if names:
            lacking.setdefault(names, []).append(label)
    for names, of_runs in lacking.items():
        yield f"not known of {', '.join(of_runs)}: {names}"
    without = _without_code(facts, labels, snapshots)
    if without:
        yield unknown_files_text(without)
    environment = [fact for fact in facts if fact.section == run_facts.ENVIRONMENT]
    if any(fact.differs and None in fact.values for fact in environment):
        yield "- of a variable: hpcrun did not set it; what a shell exports is not recorded"
    secrets = [fact.name for fact in facts if Fact(MASK, MASK) in fact.values]
    if secrets:
        yield f"secrets are not compared: {', '.join(secrets)}"


def _without_code(
    facts: Sequence[ComparedFact], labels: Sequence[str], snapshots: Sequence[Path | None]
) -> list[str]:
    """Return the runs with neither a snapshot nor a commit whose changed files are known."""
    changes = [fact for fact in facts if fact.section == run_facts.CODE and fact.name == "changes"]
    without = []
    for place, label in enumerate(labels):
        is_known = False
        for fact in changes:
            value = fact.values[place]
            is_known = value is not None and run_facts.NOT_COMPARED not in value.text
        if snapshots[place] is None and not is_known:
            without.append(label)
    return without


def unknown_files_text(labels: Sequence[str]) -> str:
    """Return in words that it is not known which files these runs ran."""
    return f"not known without a snapshot: the files of {', '.join(labels)}"


def _unknown_of(facts: Sequence[ComparedFact], place: int) -> Iterator[str]:
    """Yield the sections of which nothing is known of a run, and the names of other facts."""
    for section in _UNKNOWN:
        of_section = [fact for fact in facts if fact.section == section]
        missing = [fact for fact in of_section if fact.values[place] is None]
        if len(missing) == len(of_section):
            yield section
        elif section != METRICS:
            yield from (fact.name for fact in missing if not fact.is_file)
