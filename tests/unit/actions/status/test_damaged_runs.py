"""What is said of a run whose record cannot be read: all that is known of it, and nothing that is not."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hpcrun.actions.status.status import damage_words
from hpcrun.runs.record import LastStatus
from hpcrun.runs.store import DamagedRunError, RunStore
from tests.unit.given import run, write

RUN = run(gpus_per_node=2)


def words(store: RunStore, record: str) -> tuple[str, str]:
    """What is wrong, and what is known all the same, of a run with this ``run.json``."""
    folder = store.folder(RUN.run_id)
    (folder / "run.json").write_text(record)
    with pytest.raises(DamagedRunError) as damaged:
        store.load(RUN.run_id)
    wrong, known = damage_words(RUN.run_id, damaged.value, store).split("; what can be read: ")
    assert known.endswith(f"; its logs are in {folder}")
    return wrong, known.removesuffix(f"; its logs are in {folder}")


@pytest.fixture
def store(tmp_path: Path) -> RunStore:
    made = RunStore(tmp_path / "runs")
    made.create(RUN, "")
    return made


def test_of_a_run_of_which_nothing_is_left_its_name_is_known(store: RunStore) -> None:
    wrong, known = words(store, "")
    assert wrong.startswith(f"{RUN.run_id} is damaged: ")
    assert known == "run train"


def test_what_the_record_the_script_and_the_last_status_say_is_put_together(store: RunStore) -> None:
    store.save_status(RUN.run_id, LastStatus("RUNNING", 1000.0))
    assert words(store, "{")[1] == "run train, last known RUNNING"
    half = json.dumps({"job_id": "4711", "cluster": "alpha", "profile": "big", "nodes": 2}, indent=1)[:-3]
    assert words(store, half)[1] == "run train, job 4711, profile big, cluster alpha, last known RUNNING"
    attempt = store.folder(RUN.run_id) / "elements/0/attempts/0"
    write(attempt / "start", json.dumps({"job_id": "4712", "host": "node1", "started": 1.0}))
    assert words(store, "{")[1] == "run train, job 4712, last known RUNNING"
    write(attempt / "exit", json.dumps({"status": 3, "signal": "", "ended": 2.0}))
    assert words(store, "{")[1] == "run train, job 4712, last known RUNNING, exit status 3"


def test_a_record_of_a_newer_hpcrun_is_not_called_damaged(store: RunStore) -> None:
    wrong, known = words(store, json.dumps({"schema": 99, "job_id": "4711"}))
    assert wrong.startswith(f"{RUN.run_id} needs a newer hpcrun: ")
    assert known == "run train, job 4711"
