"""Which study is meant, what became of its runs, and what they measured."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hpcrun.actions.status.run_status import RunStatus
from hpcrun.cli.context import Context
from hpcrun.errors import NotFoundError, UsageError
from hpcrun.features.scaling.plan import read_measured
from hpcrun.features.scaling.points import Epoch, Point, read_points
from hpcrun.features.scaling.studies import (
    REMOVED,
    Study,
    StudyPoint,
    StudyRun,
    StudyStatus,
    StudyStore,
    find_study,
    resubmissions,
    study_status,
    with_run_ids,
)
from hpcrun.runs.record import LastStatus
from hpcrun.runs.store import RunStore
from tests.unit.builders import ports, run

ONE, TWO, FOUR = (f"20260101-000000-train-g{gpus}-r1-aaaa" for gpus in (1, 2, 4))
POINTS = (
    StudyPoint(1, 1, 1, ONE, 64, submitted=True),
    StudyPoint(2, 1, 1, TWO, 64, submitted=True),
    StudyPoint(4, 1, 1, FOUR, 64, problem="sbatch refused"),
)
STUDY = Study(
    "20260101-000000-train-bbbb", "train", 1000.0, "a100", "/home/me", dataset="imdb", points=POINTS
)
NEWER = replace(STUDY, study_id="20260102-000000-train-cccc", created_s=2000.0)
AGAIN, THIRD = "20260103-000000-train-g2-r1-bbbb", "20260104-000000-train-g2-r1-cccc"


@pytest.fixture
def store(tmp_path: Path) -> RunStore:
    return RunStore(tmp_path / "runs")


@pytest.fixture(autouse=True)
def studies(store: RunStore) -> StudyStore:
    found = StudyStore(store.root)
    found.save(STUDY)
    return found


class Ended:
    """A scheduler that need not be asked: all runs are over."""

    def cluster(self) -> str:
        return "alpha"

    def poll(self, refs: list[object]) -> dict[Path, object]:
        assert not refs
        return {}


def end(store: RunStore, run_id: str, state: str = "COMPLETED", **said: Any) -> Path:
    """Make a run that is over."""
    values = {"nodes": 1, "world_size": 2, **said}
    folder = store.create(run(run_id, **values), "")
    store.save_status(
        run_id,
        LastStatus(state, 2000.0, final=True, forgotten=True, elapsed_s=90, reason="exit status 1"),
    )
    return folder


def attempt(
    folder: Path,
    number: int,
    started_s: float,
    ended_s: float | None,
    notes: Mapping[int, list[Any]],
) -> None:
    """Write down an attempt of a run and what its ranks noted."""
    place = folder / f"elements/0/attempts/{number}"
    place.mkdir(parents=True)
    (place / "start").write_text(json.dumps({"job_id": "1", "host": "here", "started": started_s}))
    if ended_s is not None:
        (place / "exit").write_text(json.dumps({"status": 0, "signal": "", "ended": ended_s}))
    for rank, lines in notes.items():
        (place / f"rank-{rank}.metrics").write_text(
            "".join(json.dumps(line) + "\n" for line in lines)
        )


def there(store: RunStore, **patterns: str) -> Context:
    """The context of a command where all runs are over, and a profile has these patterns."""
    context = Context({}, store.root)
    of_profile: dict[str, Any] = {
        "metric_patterns": lambda profile: (patterns, None),
        "rules": lambda: (),
    }
    vars(context).update(store=store, ports=ports(store, Ended(), 3000.0), **of_profile)
    return context


def measure(store: RunStore, **patterns: str) -> list[Point]:
    return read_points([STUDY], there(store, **patterns))[0]


# --- which one -----------------------------------------------------------------------------------


def test_a_study_is_meant_as_a_run_is_the_newest_of_its_name_and_that_is_said(
    studies: StudyStore, tmp_path: Path, subtests: pytest.Subtests
) -> None:
    for word in ("last", "train", "20260101", "bbbb", STUDY.study_id):
        with subtests.test(word=word):
            assert find_study(word, studies)[0] == STUDY
    studies.save(NEWER)
    study, note = find_study("train", studies)
    assert study == NEWER
    assert note == f"train: the newest of 2 studies of that name, {NEWER.study_id}"
    with pytest.raises(UsageError, match="matches 2 studies"):
        find_study("2026", studies)
    with pytest.raises(NotFoundError, match="there is no study 'trian'") as refused:
        find_study("trian", studies)
    assert refused.value.hint == "did you mean 'train'?"
    with pytest.raises(NotFoundError, match="there are no studies"):
        find_study("last", StudyStore(tmp_path / "empty"))


def test_a_forecast_from_a_study_says_which_one_and_what_of_it_was_not_read(
    store: RunStore, studies: StudyStore
) -> None:
    studies.save(NEWER)
    attempt(end(store, TWO), 0, 100.0, 150.0, {0: [{"step": 1, "epoch_time": 2.0}]})
    context = there(store)
    vars(context).update(metric_patterns=lambda profile: ({}, "profile a100 cannot be read"))
    note = f"train: the newest of 2 studies of that name, {NEWER.study_id}"
    assert read_measured("train", context).remarks == [note, "profile a100 cannot be read"]
    assert read_measured(TWO, context, "64").remarks == ["profile a100 cannot be read"]


# --- what became of it ---------------------------------------------------------------------------


def test_a_resubmitted_run_stands_for_its_point(store: RunStore) -> None:
    end(store, TWO)
    end(store, AGAIN, resubmitted_from=TWO)
    end(store, THIRD, resubmitted_from=AGAIN)
    end(store, "20260105-000000-train-g2-r1-dddd")  # of the same name, and another study's
    assert resubmissions([STUDY], store) == {ONE: [ONE], TWO: [TWO, AGAIN, THIRD], FOUR: [FOUR]}
    assert look(store).runs[1].run_id == THIRD


def test_what_is_missing_was_refused_untried_or_removed_and_a_run_that_was_not_noted_counts(
    store: RunStore,
) -> None:
    end(store, ONE, "NOT_SUBMITTED")
    status = look(store)
    assert [(item.state, item.problem) for item in status.runs] == [
        ("NOT_SUBMITTED", ""),
        ("UNKNOWN", REMOVED),
        ("NOT_SUBMITTED", "sbatch refused"),
    ]
    assert status.runs[1].over
    again = with_run_ids(status, lambda name: f"new-{name}")
    assert [(point.run_id, point.submitted, point.problem) for point in again.points] == [
        ("new-train-g1-r1", False, ""),
        (TWO, True, ""),
        ("new-train-g4-r1", False, ""),
    ]
    end(store, TWO)
    unnoted = replace(STUDY, points=(replace(POINTS[1], submitted=False),))
    assert with_run_ids(look(store, unnoted), str).points == POINTS[1:2]


def look(store: RunStore, study: Study = STUDY) -> StudyStatus:
    return study_status(study, there(store))


# --- what it measured ----------------------------------------------------------------------------


def test_epochs_of_all_attempts_are_one_training(store: RunStore) -> None:
    folder = end(store, TWO)
    before = [
        {
            "time": 125.0,
            "step": 1,
            "epoch_time": 20.0,
            "samples": 30,
            "batch_size": 32,
            "parameters": 7,
        },
        {"time": 145.0, "step": 2, "epoch_time": 19.0},
    ]
    attempt(folder, 0, 100.0, 150.0, {0: before, 1: [{"time": 125.0, "step": 1, "samples": 29}]})
    attempt(
        folder,
        1,
        200.0,
        260.5,
        {0: [{"step": 2, "epoch_time": 18.0}, {"step": 2, "val_accuracy": 0.5}]},
    )
    point = measure(store)[1]
    assert point.epochs == (Epoch(1, 20.0), Epoch(2, 18.0, accuracy=0.5))
    assert point.gpus == 2
    assert point.dataset == "imdb"
    assert point.state == "COMPLETED"
    assert point.source == "metrics"
    assert point.run == TWO
    assert point.total_s == 110.5
    assert point.startup_s == 5.0
    assert point.batch_size == 32
    assert point.parameters == 7
    assert point.samples == 59
    assert point.rank_samples == (30, 29)


def test_samples_are_known_only_where_every_rank_said_them(store: RunStore) -> None:
    folder = end(store, TWO, world_size=3)
    said = [{"step": 1, "epoch_time": 2.0, "samples": 10}]
    attempt(folder, 0, 100.0, 150.0, {0: said, 1: said})
    point = measure(store)[1]
    assert point.samples is None
    assert point.rank_samples == ()
    assert point.batch_size == 64


def test_logs_say_what_was_not_noted(store: RunStore) -> None:
    folder = end(store, TWO)
    attempt(folder, 0, 100.0, 150.0, {})
    (folder / "elements/0/attempts/0/rank-0.out").write_text(
        "epoch 1: 1,200 samples/s\nepoch 2: 1,300 samples/s\n"
    )
    patterns = {"step": r"epoch (\d+)", "samples_per_s": r"([\d,]+) samples/s"}
    point = measure(store, **patterns)[1]
    assert point.source == "log"
    assert [epoch.samples_per_s for epoch in point.epochs] == [1200, 1300]
    elapsed = measure(store)[1]  # what was kept is not believed where the patterns are others
    assert elapsed.source == "elapsed"
    assert elapsed.epochs == ()
    assert elapsed.total_s == 50.0
    kept = measure(store, **patterns)
    shutil.rmtree(folder)
    assert measure(store, step=r"epoch=(\d+)") == kept  # nothing else is left of a removed run


def test_a_log_with_the_usual_metrics_is_read_as_hpcrun_metrics_reads_it(store: RunStore) -> None:
    folder = end(store, TWO)
    attempt(folder, 0, 100.0, 150.0, {})
    (folder / "elements/0/attempts/0/rank-0.out").write_text(
        "step 10 loss=0.50 val_acc=0.71\nstep 20 loss=0.25 val_acc=0.82\n"
    )
    point = measure(store)[1]
    assert [(epoch.accuracy, epoch.loss) for epoch in point.epochs] == [(0.82, 0.25)]
    assert (point.source, point.total_s) == ("elapsed", 50.0)


def test_a_run_whose_end_is_unknown_for_good_is_over() -> None:
    item = RunStatus(run(TWO), Path("/runs"), LastStatus("UNKNOWN", 2000.0), lost=True)
    assert StudyRun(POINTS[1], TWO, item).over is True
    assert StudyRun(POINTS[1], TWO, replace(item, lost=False)).over is False


def test_points_that_are_of_no_use_say_why(store: RunStore) -> None:
    attempt(end(store, ONE, "FAILED"), 0, 100.0, None, {})
    one, *others = measure(store)
    # without a record of its end it took as long as the scheduler says
    assert one.state == "FAILED"
    assert one.problem == "exit status 1"
    assert one.total_s == 90
    assert [(point.state, point.problem) for point in others] == [
        ("UNKNOWN", REMOVED),
        ("NOT_SUBMITTED", "sbatch refused"),
    ]
    end(store, TWO)
    store.save_status(TWO, LastStatus("RUNNING", 2999.0))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Ended, "poll", lambda *_: {})
        point = measure(store)[1]
    assert point.ended is False
    assert point.problem == "not ended yet: RUNNING"


def test_a_run_that_is_over_is_read_once_and_may_then_be_removed(
    store: RunStore, studies: StudyStore
) -> None:
    attempt(end(store, TWO), 0, 100.0, 150.0, {0: [{"step": 1, "epoch_time": 2.0}]})
    before = measure(store)[1]
    kept = studies.folder(STUDY.study_id) / "points.json"
    kept.write_text(
        kept.read_text().replace('"gpus":', '"field of another version": [{}], "gpus":')
    )
    store.delete(TWO)
    assert measure(store)[1] == before
    assert before.epochs == (Epoch(1, 2.0),)


def test_a_resubmission_takes_the_place_of_what_was_kept_but_a_failed_one_not_of_a_completed_run(
    store: RunStore,
) -> None:
    end(store, TWO, "FAILED")
    assert measure(store)[1].state == "FAILED"
    attempt(
        end(store, AGAIN, resubmitted_from=TWO),
        0,
        100.0,
        150.0,
        {0: [{"step": 3, "epoch_time": 2.0}]},
    )
    point = measure(store)[1]
    assert point.state == "COMPLETED"
    assert point.run == AGAIN
    assert point.epochs == (Epoch(3, 2.0),)
    for before in (TWO, AGAIN):
        end(store, THIRD, "FAILED", resubmitted_from=before)
        assert [measure(store)[1].run, look(store).runs[1].run_id, measure(store)[1].run] == [
            AGAIN
        ] * 3
        store.delete(THIRD)


@pytest.mark.parametrize(
    "shape", [{"nodes": 3, "gpus_per_node": 2}, {"gpus_per_node": 0, "world_size": 6}]
)
def test_a_resubmission_of_another_size_counts_as_that_size(
    store: RunStore, shape: dict[str, Any]
) -> None:
    end(store, TWO, "FAILED")
    end(store, AGAIN, resubmitted_from=TWO, **shape)
    point = measure(store)[1]
    assert point.gpus == 6
    assert point.nodes == shape.get("nodes", 1)


def test_damage_to_what_was_kept_means_that_it_is_read_again(
    store: RunStore, studies: StudyStore, subtests: pytest.Subtests
) -> None:
    attempt(end(store, TWO), 0, 100.0, 150.0, {0: [{"step": 1, "epoch_time": 2.0}]})
    points = (
        "[3]",
        '{"RUN": {"gpus": [2], "run": "RUN"}}',
        '{"RUN": {"gpus": 0, "run": "RUN"}}',
        '{"RUN": {"gpus": 2, "run": "RUN", "epochs": [[1, "no"]]}}',
    )
    for text in (
        "{",
        "[1]",
        "{}",
        *(f'{{"schema": 1, "patterns": {{}}, "points": {each}}}' for each in points),
    ):
        with subtests.test(text=text):
            (studies.folder(STUDY.study_id) / "points.json").write_text(text.replace("RUN", TWO))
            assert measure(store)[1].epochs == (Epoch(1, 2.0),), text


@pytest.mark.parametrize(
    ("seconds", "cpus", "busy"),
    [(59, 8, (None, None)), (60, 8, (0.5, 0.25)), (60, None, (0.5, None))],
    ids=["short", "long enough", "unknown CPUs"],
)
def test_a_point_says_how_busy_its_hardware_was(
    store: RunStore, seconds: int, cpus: int | None, busy: tuple[float | None, float | None]
) -> None:
    folder = end(store, ONE)
    attempt(folder, 0, 1000.0, 1090.0, {})
    head = {"started": 1000, "cpus": cpus, "memory_limit": None}
    gpu = [0, 0.5, 1 << 30, 80 << 30, 300.0]
    names = ("time", "cpus", "memory", "network", "rdma", "gpus")
    sample = dict(zip(names, (1000 + seconds, 2.0, 1 << 30, 0, None, [gpu]), strict=True))
    text = "".join(json.dumps(line) + "\n" for line in (head, sample))
    (folder / "elements/0/attempts/0/node-n1.use").write_text(text)
    first, *_ = measure(store)
    assert (first.gpu_busy, first.cpu_busy) == busy
