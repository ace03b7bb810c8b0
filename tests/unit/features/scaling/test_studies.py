"""The record of a study on disk."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from hpcrun.errors import NotFoundError, PlanError
from hpcrun.features.scaling.studies import DamagedStudyError, Study, StudyPoint, StudyStore
from hpcrun.runs.folder_checks import UnsafeFolderError
from hpcrun.runs.store import RunStore
from tests.unit.builders import run

POINT = StudyPoint(4, 2, 1, "20260101-000000-train-g4-r1-aaaa", batch_size=64)
STUDY = Study(
    "20260101-000000-train-bbbb",
    "train",
    7.5,
    "a100",
    "/home/me",
    request={"script": "t.py"},
    points=(POINT,),
)


@pytest.fixture
def store(tmp_path: Path) -> StudyStore:
    return StudyStore(tmp_path / "runs")


def test_what_was_saved_is_loaded_and_is_no_run(store: StudyStore) -> None:
    assert store.study_ids() == []
    with pytest.raises(NotFoundError, match="there is no study"):
        store.load(STUDY.study_id)
    store.save(STUDY)
    changed = replace(STUDY, points=(replace(POINT, submitted=True),))
    store.save(changed)
    assert store.study_ids() == [STUDY.study_id]
    assert store.load(STUDY.study_id) == changed
    (path,) = store.folder(STUDY.study_id).iterdir()
    assert path.name == "study.json"
    # another number, and no older hpcrun shows the study any more
    assert json.loads(path.read_text())["schema"] == 1
    runs = RunStore(store.runs)
    runs.create(run(), "")
    assert runs.run_ids() == [run().run_id]


def test_a_record_that_cannot_be_read_is_named(store: StudyStore) -> None:
    store.save(STUDY)
    path = store.folder(STUDY.study_id) / "study.json"
    for text in ("", "[]", "{}", '{"schema": 2}', '{"schema": 1, "points": []}', '{"schema": 1'):
        path.write_text(text)
        with pytest.raises(DamagedStudyError, match=str(path)):
            store.load(STUDY.study_id)


def test_a_copied_folder_and_one_that_others_could_have_written_are_not_used(
    store: StudyStore,
) -> None:
    store.save(STUDY)
    copy = store.folder("20260102-000000-train-cccc")
    copy.mkdir(mode=0o700)
    (copy / "study.json").write_text((store.folder(STUDY.study_id) / "study.json").read_text())
    with pytest.raises(DamagedStudyError, match="it is the record of"):
        store.load(copy.name)
    store.folder(STUDY.study_id).chmod(0o777)
    with pytest.raises(UnsafeFolderError):
        store.load(STUDY.study_id)


def test_two_do_not_submit_the_runs_of_a_study_at_once(store: StudyStore) -> None:
    store.save(STUDY)
    one, other = store.submitting(STUDY.study_id), store.submitting(STUDY.study_id)
    with one, pytest.raises(PlanError, match="another hpcrun is submitting"), other:
        pass
    with pytest.raises(OSError, match="of the caller"), store.submitting(STUDY.study_id):
        raise OSError("of the caller")
