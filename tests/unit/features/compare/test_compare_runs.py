"""In what runs differ, what is the same, and what nobody knows."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hpcrun.actions.runs import run_facts
from hpcrun.actions.runs.run_metrics import Metrics
from hpcrun.actions.status.run_status import RunStatus
from hpcrun.errors import NotFoundError, PlanError
from hpcrun.features.compare.command import (
    _code_lines,
    _curves,
    _differing_arguments,
    _hidden_metrics,
    _left_out_lines,
    _sameness,
    comparison_table,
)
from hpcrun.features.compare.compare_runs import (
    METRICS,
    RESULT,
    ComparedFact,
    Comparison,
    _files,
    _labels,
    _result,
    _unknown,
    _without_code,
)
from hpcrun.features.compare.metric_facts import Fact
from hpcrun.job.text.recognise_secrets import MASK
from hpcrun.runs.metric_files import MetricsRow
from hpcrun.runs.record import LastStatus
from tests.unit.builders import drawn, run, write

NOT_COMPARED = f"3 files, {run_facts.NOT_COMPARED}"


def fact(section: str, *values: str | None, name: str = "x", **more: Any) -> ComparedFact:
    """A fact of some runs."""
    facts = tuple(None if value is None else Fact(value, value) for value in values)
    return replace(ComparedFact(section, name, facts), **more)


@pytest.mark.parametrize(
    ("section", "values", "differs"),
    [
        (run_facts.ARGUMENTS, ("1", "1"), False),
        (run_facts.ARGUMENTS, ("1", "2"), True),
        (run_facts.ARGUMENTS, ("1", None), True),
        (run_facts.VERSIONS, ("1", "1"), False),
        (run_facts.VERSIONS, ("1", "2"), True),
        (run_facts.VERSIONS, ("1", None), None),
        (run_facts.VERSIONS, ("1", "2", None), True),
        (METRICS, ("1", None), None),
        (run_facts.ENVIRONMENT, (MASK, MASK), None),
        (run_facts.ENVIRONMENT, (MASK, "x"), True),
        (run_facts.CODE, (NOT_COMPARED, NOT_COMPARED), None),
    ],
)
def test_what_a_run_lacks_differs_or_is_unknown(
    section: str, values: tuple[str | None, ...], differs: bool | None
) -> None:
    assert fact(section, *values).differs is differs


def test_results_are_shown_also_where_they_are_the_same() -> None:
    assert fact(RESULT, "1", "1").is_shown
    assert fact(METRICS, "1", "1").is_shown
    assert not fact(run_facts.ARGUMENTS, "1", "1").is_shown
    assert fact(run_facts.ARGUMENTS, "1", "2").is_shown
    assert not fact(run_facts.VERSIONS, "1", None).is_shown


def item(run_id: str = "20260102-030405-train-0a1b", **said: object) -> RunStatus:
    """A run that is over."""
    return RunStatus(run(run_id, **said), Path("/x"), LastStatus("COMPLETED", 1.0, final=True))


def curve(**values: float) -> Metrics:
    """The metrics of one step."""
    return Metrics(tuple(values), (MetricsRow(0, 0, 1, None, dict(values)),))


def comparison(*facts: ComparedFact, metrics: tuple[Metrics, ...] = ()) -> Comparison:
    """Two runs with these facts."""
    return Comparison(
        items=(item(), item()),
        labels=("71", "72"),
        metrics=metrics or (Metrics((), ()), Metrics((), ())),
        snapshots=(None, None),
        facts=facts,
        remarks=(),
        unknown=(),
        without_code=(),
    )


def test_what_is_the_same_is_counted_by_section() -> None:
    made = comparison(
        fact(RESULT, "1", "1"),
        fact(run_facts.ARGUMENTS, "1", "1"),
        fact(run_facts.ARGUMENTS, "1", "1"),
        fact(run_facts.ARGUMENTS, "1", "2"),
        fact(run_facts.VERSIONS, "1", None),
        fact(run_facts.VERSIONS, "1", "1"),
    )
    assert made.same == {run_facts.ARGUMENTS: 2, run_facts.VERSIONS: 1}
    (line,) = _left_out_lines(made)
    assert line == (
        f"hpcrun: the same: {run_facts.ARGUMENTS} (2), {run_facts.VERSIONS} (1); --all shows them"
    )
    assert _left_out_lines(comparison(fact(RESULT, "1", "1"))) == []


def test_a_table_has_what_differs_and_all_on_request() -> None:
    made = comparison(
        fact(RESULT, "ok", "ok", name="state"),
        fact(run_facts.ARGUMENTS, "1", None, name="lr"),
        fact(run_facts.ARGUMENTS, "2", "2", name="bs"),
    )
    few = [line.split() for line in drawn(comparison_table(made, everything=False), 80)]
    assert few[1:] == [["RESULT"], ["state", "ok", "ok"], ["ARGUMENTS"], ["lr", "1", "-"]]
    every = [line.split() for line in drawn(comparison_table(made, everything=True), 80)]
    assert every[-1] == ["bs", "2", "2"]


def test_a_section_with_many_facts_is_cut() -> None:
    facts = [fact(run_facts.ARGUMENTS, "1", "2", name=f"a{number}") for number in range(61)]
    lines = drawn(comparison_table(comparison(*facts), everything=False), 80)
    shown = sum(line.startswith("  a") and "more" not in line for line in lines)
    assert lines[-1].strip() == f"and {61 - shown} more: --json"


def test_runs_with_one_job_id_have_their_run_ids() -> None:
    other = item("20260102-030405-train-0a1c", cluster="beta")
    assert _labels([item(job_id="71"), item(job_id="72")]) == ["71", "72"]
    assert _labels([item(), other]) == [
        "20260102-030405-train-0a1b",
        "20260102-030405-train-0a1c",
    ]
    first = replace(item(), element=3)
    assert _labels([first, replace(first, element=3)])[0] == "20260102-030405-train-0a1b/3"


def test_what_came_of_a_run_has_only_what_is_known() -> None:
    assert _result(item()) == {"name": "train", "state": "COMPLETED"}
    status = LastStatus(
        "FAILED", 1.0, final=True, elapsed_s=65, exit_status=3, cause="KeyError", attempt=1
    )
    failed = replace(item(note="the first", checkpoints_of="x"), status=status)
    assert _result(failed) == {
        "name": "train",
        "note": "the first",
        "state": "FAILED",
        "elapsed": Fact("1:05", 65),
        "exit status": Fact("3", 3),
        "cause": "KeyError",
        "attempts": Fact("2", 2),
        "checkpoints of": "x",
    }


def test_files_are_compared_with_those_of_the_first_snapshot(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    for folder, text in ((first, "1"), (second, "2")):
        write(folder / "train.py", text)
        write(folder / "same.py", "x")
    write(second / "new.py", "x")
    found = {each.name: each for each in _files([None, first, second, first])}
    assert set(found) == {"train.py", "new.py"}
    assert all(each.is_file for each in found.values())
    texts = [value.text if value else None for value in found["train.py"].values]
    assert texts[:2] == [None, "first"]
    assert texts[2] not in ("the same", "first")
    assert _files([None, None]) == []


def test_what_nobody_knows_is_said_once_for_all_runs() -> None:
    facts = [
        fact(run_facts.VERSIONS, "1", None, name="torch"),
        fact(run_facts.VERSIONS, "1", "1", name="python"),
        fact(run_facts.ENVIRONMENT, "1", None, name="MODE"),
        fact(run_facts.ENVIRONMENT, MASK, MASK, name="TOKEN"),
    ]
    assert list(_unknown(facts, ["71", "72"], [None, None])) == [
        "not known of 71: nodes, code, metrics",
        "not known of 72: nodes, torch, code, metrics",
        "not known without a snapshot: the files of 71, 72",
        "- of a variable: hpcrun did not set it; what a shell exports is not recorded",
        "secrets are not compared: TOKEN",
    ]


def test_code_is_known_by_a_snapshot_or_its_changes(tmp_path: Path) -> None:
    changes = fact(run_facts.CODE, "none", NOT_COMPARED, None, name="changes")
    labels = ["71", "72", "73"]
    assert _without_code([changes], labels, [None] * 3) == ["72", "73"]
    assert _without_code([changes], labels, [None, tmp_path, None]) == ["73"]
    assert _without_code([], labels, [None] * 3) == labels


@pytest.mark.parametrize(
    ("values", "text"),
    [
        (("none", "none"), "the code is the same"),
        (
            (NOT_COMPARED, None),
            "the commits are the same; files changed since, and not kept: "
            f"71: {NOT_COMPARED}; 72: unknown",
        ),
    ],
)
def test_the_same_commit_is_the_same_code_without_changes(
    values: tuple[str | None, ...], text: str
) -> None:
    assert _sameness(comparison(fact(run_facts.CODE, *values, name="changes"))) == text


def test_without_commit_and_snapshot_no_code_is_compared() -> None:
    with pytest.raises(PlanError, match="71 has neither a snapshot of its code nor a commit"):
        _code_lines(comparison(), {})


def test_the_first_metric_is_drawn_where_there_is_one() -> None:
    both = comparison(metrics=(curve(loss=1.0, f1=0.5), curve(loss=2.0)))
    assert set(_curves(both, None).by_label) == {"71", "72"}
    assert _curves(both, None).metric == "loss"
    assert set(_curves(both, "f1").by_label) == {"71"}
    with pytest.raises(NotFoundError, match="no run has values of 'f2'"):
        _curves(both, "f2")
    with pytest.raises(PlanError, match="no run has metrics"):
        _curves(comparison(), None)


def test_a_legend_has_the_arguments_that_differ() -> None:
    made = comparison(
        fact(run_facts.ARGUMENTS, "0.1", "0.2", name="lr"),
        fact(run_facts.ARGUMENTS, "8", "8", name="bs"),
        fact(run_facts.ARGUMENTS, None, "adam", name="optimizer"),
        fact(run_facts.OPTIONS, "1", "2", name="--gpus"),
    )
    assert _differing_arguments(made, 0) == "lr=0.1"
    assert "optimizer=adam" in _differing_arguments(made, 1)


def test_the_first_metrics_are_shown() -> None:
    names = {f"m{number}": 1.0 for number in range(30)}
    made = comparison(metrics=(curve(**names), curve(loss=1.0)))
    hidden = _hidden_metrics(made)
    assert 0 < len(hidden) < 30
    assert hidden == [*names, "loss"][-len(hidden) :]
