"""How a study that was begun is listed and shown, and what a wait for it ends with."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from hpcrun.actions.status.run_status import RunStatus
from hpcrun.cli.output import Outcome
from hpcrun.errors import JobFailedError, PlanError
from hpcrun.features.scaling.scale import must_wait_between, new_study, resume_study
from hpcrun.features.scaling.sizes import Design, Size, Workload
from hpcrun.features.scaling.studies import (
    Study,
    StudyPoint,
    StudyRun,
    StudyStatus,
    StudyStore,
    last_open,
)
from hpcrun.features.scaling.study_flow import (
    interrupted,
    list_studies,
    next_lines,
    point_text,
    show_status,
    studies_table,
    study_lines,
)
from hpcrun.runs.record import LastStatus
from hpcrun.runs.store import RunStore
from tests.unit.builders import drawn, laptop, request, run, write
from tests.unit.features.scaling.test_study import NEWER, ONE, POINTS, STUDY, TWO, end, there

STUDY_ID = STUDY.study_id


@pytest.fixture
def store(tmp_path: Path) -> RunStore:
    """A runs folder with the record of the study, of which one run completed and one failed."""
    found = RunStore(tmp_path / "runs")
    StudyStore(found.root).save(STUDY)
    end(found, ONE, job_id="71")
    end(found, TWO, "FAILED", job_id="72")
    return found


def lines_of(outcomes: Iterable[Outcome]) -> list[str]:
    """What outcomes print for a person, with their notes."""
    lines: list[str] = []
    for outcome in outcomes:
        parts = [*outcome.notes, *(outcome.text() if outcome.text else ())]
        for part in parts:
            lines += drawn(part.table, 200) if part.table else part.lines
    return lines


def points(*sizes: tuple[int, int]) -> tuple[StudyPoint, ...]:
    """Runs of these numbers of GPUs and nodes."""
    return tuple(StudyPoint(gpus, nodes, 1, ONE) for gpus, nodes in sizes)


@pytest.mark.parametrize(
    ("sizes", "text"),
    [
        ([(1, 1), (2, 1)], "1, 2 GPUs"),
        ([(1, 1), (1, 1), (2, 1)], "1, 2 GPUs"),
        ([(1, 1), (4, 1), (4, 2)], "1, 4 (1 node), 4 (2 nodes) GPUs"),
    ],
)
def test_a_size_on_several_numbers_of_nodes_has_them(
    sizes: list[tuple[int, int]], text: str
) -> None:
    first, second = study_lines(replace(STUDY, points=points(*sizes)))
    assert first == f"study      {STUDY_ID}, strong scaling on {text}"
    assert second == f"runs       {len(sizes)} runs, at the same time"


def test_runs_may_be_one_after_the_other() -> None:
    chained = replace(STUDY, one_by_one=True, points=points((1, 1)))
    assert study_lines(chained)[1] == "runs       1 run, one after the other"


@pytest.mark.parametrize(
    ("point", "text"),
    [((1, 1), "1 GPU on 1 node"), ((8, 2), "8 GPUs on 2 nodes")],
)
def test_a_run_is_named_by_its_size(point: tuple[int, int], text: str) -> None:
    assert point_text(STUDY, *points(point)) == text


@pytest.mark.parametrize(
    ("jobs", "cancel"), [(0, ""), (1, " | hpcrun cancel 0"), (20, "19"), (21, "")]
)
def test_up_to_twenty_jobs_are_cancelled_by_their_ids(jobs: int, cancel: str) -> None:
    look, report = next_lines(STUDY, [str(number) for number in range(jobs)])
    shown = f"look       hpcrun scale run --show {STUDY_ID}"
    assert look.startswith(shown)
    assert look.endswith(cancel or shown)
    assert report == f"report     hpcrun scale report {STUDY_ID}"


def test_studies_are_listed_with_their_age_and_what_was_submitted() -> None:
    complete = replace(NEWER, dataset="", points=POINTS[:2])
    heading, first, second = drawn(studies_table([STUDY, complete], 4600.0), 200)
    assert heading.split() == ["STUDY", "STARTED", "RUNS", "SIZES", "DATA", "SET"]
    assert first.split() == [STUDY_ID, *"1 h ago 2 of 3 1, 2, 4 GPUs imdb".split()]
    assert second.split() == [NEWER.study_id, "43", "min", "ago", "2", "1,", "2", "GPUs", "-"]


def test_runs_of_a_study_have_their_jobs_and_reasons(store: RunStore) -> None:
    (outcome,) = show_status(STUDY, there(store), check=False)
    lines = [line.split() for line in lines_of([outcome])]
    assert lines[2] == ["RUN", "GPUS", "NODES", "BATCH", "JOB", "STATE", "REASON"]
    assert lines[3][:6] == ["train-g1-r1", "1", "1", "64", "71", "COMPLETED"]
    assert lines[4] == ["train-g2-r1", "2", "1", "64", "72", "FAILED", "exit", "status", "1"]
    assert lines[5] == "train-g4-r1 4 1 64 - NOT_SUBMITTED sbatch refused".split()
    assert lines[6][0] == "report"


def test_a_study_as_a_document_has_the_runs_that_count(store: RunStore) -> None:
    (outcome,) = show_status(STUDY, there(store), check=False)
    assert outcome.document
    document = outcome.document()
    assert (document["kind"], document["study_id"]) == ("study", STUDY_ID)
    found = [(point["job_id"], point["state"], point["problem"]) for point in document["points"]]
    assert found == [
        ("71", "COMPLETED", ""),
        ("72", "FAILED", ""),
        (None, "NOT_SUBMITTED", "sbatch refused"),
    ]
    assert all(point["final"] for point in document["points"])


def test_a_run_that_did_not_complete_fails_the_wait(store: RunStore) -> None:
    shown = show_status(STUDY, there(store), check=True)
    next(shown)
    with pytest.raises(JobFailedError, match="2 of 3 runs did not complete") as caught:
        next(shown)
    assert caught.value.hint == f"hpcrun explain {TWO}"


def test_runs_that_were_not_submitted_are_submitted_by_resume(store: RunStore) -> None:
    partial = replace(STUDY, points=(POINTS[0], POINTS[2]))
    shown = show_status(partial, there(store), check=True)
    next(shown)
    with pytest.raises(JobFailedError, match="1 of 2 runs did not complete") as caught:
        next(shown)
    assert caught.value.hint == (f"hpcrun scale run --resume {STUDY_ID} submits the missing runs")


def test_a_study_whose_runs_completed_is_no_failure(store: RunStore) -> None:
    done = replace(STUDY, points=POINTS[:1])
    assert len(list(show_status(done, there(store), check=True))) == 1


@pytest.mark.parametrize(
    ("left", "message", "option"),
    [
        (1, "1 of 3 runs are not submitted yet", "--resume"),
        (0, "its runs are not affected", "--show"),
    ],
)
def test_ctrl_c_says_how_to_go_on(store: RunStore, left: int, message: str, option: str) -> None:
    made = tuple(replace(point, submitted=True) for point in POINTS)
    study = STUDY if left else replace(STUDY, points=made)
    StudyStore(store.root).save(study)
    error = interrupted(STUDY, there(store))
    assert error.message == f"study {STUDY_ID}: {message}"
    assert error.hint == f"hpcrun scale run {option} {STUDY_ID} --wait continues"


def test_a_damaged_study_is_named_beside_the_others(store: RunStore) -> None:
    studies = StudyStore(store.root)
    studies.save(NEWER)
    record = studies.folder(STUDY_ID) / "study.json"
    record.write_text("{")
    lines = lines_of(list_studies(there(store)))
    assert NEWER.study_id in lines[1]
    assert len(lines) == 3
    assert lines[2].startswith("hpcrun: ")
    assert f"{record} cannot be read" in lines[2]


def test_a_runs_folder_without_studies_says_so(tmp_path: Path) -> None:
    empty = RunStore(tmp_path / "empty")
    outcomes = list(list_studies(there(empty)))
    assert lines_of(outcomes) == [f"no studies in {empty.root}"]
    assert outcomes[0].document
    assert outcomes[0].document() == {"kind": "studies", "studies": []}


def open_run(number: int, state: str = "PENDING", job_id: str | None = "7") -> StudyRun:
    """A run of a study that was made in this second."""
    record = run(f"{ONE[:-4]}{number:04}", created_s=1000.0 + number, job_id=job_id)
    final = state == "COMPLETED"
    shown = LastStatus(state, 2000.0, final=final)
    return StudyRun(POINTS[0], record.run_id, RunStatus(record, Path("/x"), shown))


def test_a_chain_goes_on_behind_its_last_open_run() -> None:
    runs = (open_run(1, job_id="71"), open_run(3, "COMPLETED"), open_run(2, job_id="72"))
    found = last_open(StudyStatus(STUDY, runs))
    assert found
    assert (found.run_id, found.job_id, found.condition) == (runs[2].run_id, "72", "any")


@pytest.mark.parametrize(
    "runs",
    [(), (open_run(1, "COMPLETED"),), (open_run(1, job_id=None),)],
    ids=["no run", "ended", "no job"],
)
def test_without_an_open_job_the_next_run_waits_for_none(runs: tuple[StudyRun, ...]) -> None:
    assert last_open(StudyStatus(STUDY, runs)) is None


def begun(store: RunStore) -> Study:
    """A study of this machine's ranks, of which the first run completed and the second failed to
    be submitted.
    """
    work = store.root.parent / "work"
    write(work / "train.py", "")
    study, _ = new_study(
        request("train.py", args=["--ranks", "{gpus}"], launcher="python"),
        Design("ranks", None, (Size(1), Size(2)), Workload()),
        laptop(),
        new_id=lambda name: f"20260106-000000-{name}-eeee",
        created_s=3000.0,
        profile="local",
        cwd=str(work),
        one_by_one=True,
    )
    first, second = study.points
    study = replace(study, points=(replace(first, submitted=True), second))
    StudyStore(store.root).save(study)
    end(store, first.run_id)
    return study


def test_missing_runs_of_a_study_are_planned_in_its_folder(store: RunStore) -> None:
    study = begun(store)
    context = there(store)
    context.env["PATH"] = "/usr/bin:/bin"
    *_, plan = resume_study(study.study_id, context, dry_run=True, wait=False, as_json=False)
    assert plan.document
    document = plan.document()
    assert (document["kind"], document["study_id"]) == ("study_plan", study.study_id)
    (point,) = document["points"]
    assert point["gpus"] == 2
    assert point["plan"]["name"] == "train-p2-r1"
    assert point["plan"]["command"][-2:] == ("--ranks", "2")
    assert point["run_id"] != study.points[1].run_id


def test_a_study_without_missing_runs_is_shown(store: RunStore) -> None:
    study = begun(store)
    end(store, study.points[1].run_id)
    outcomes = resume_study(study.study_id, there(store), dry_run=False, wait=False, as_json=False)
    lines = lines_of(outcomes)
    assert lines[0].startswith(f"study      {study.study_id}, strong scaling on 1, 2 ranks")
    assert sum("COMPLETED" in line for line in lines) == 2
    noted = StudyStore(store.root).load(study.study_id).points
    assert [point.submitted for point in noted] == [True, True]


def test_two_processes_do_not_resume_a_study(store: RunStore) -> None:
    study = begun(store)
    with (
        StudyStore(store.root).submitting(study.study_id),
        pytest.raises(PlanError, match="another hpcrun is submitting the runs") as caught,
    ):
        list(resume_study(study.study_id, there(store), dry_run=True, wait=False, as_json=False))
    assert caught.value.hint == f"hpcrun scale run --show {study.study_id}"


@pytest.mark.parametrize(
    ("one_by_one", "scheduler", "waits"),
    [(True, "local", True), (True, "slurm", False), (False, "local", False)],
)
def test_only_runs_of_this_machine_are_waited_for_between(
    one_by_one: bool, scheduler: str, waits: bool
) -> None:
    prepared: Any = SimpleNamespace(plan=SimpleNamespace(scheduler=scheduler))
    study = replace(STUDY, one_by_one=one_by_one)
    assert must_wait_between(study, [(POINTS[0], prepared)]) == waits
    assert not must_wait_between(study, [])
