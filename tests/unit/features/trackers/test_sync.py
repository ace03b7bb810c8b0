"""Which offline wandb runs are uploaded, and which pages are named afterwards."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from hpcrun.features.trackers import tracker_files
from hpcrun.features.trackers.tracker_files import SyncResult, sync_wandb
from hpcrun.job.run_paths import RunFolder
from hpcrun.runs.record import LastStatus, Run
from hpcrun.runs.store import RunStore
from tests.unit.builders import run, write


@pytest.fixture
def store(tmp_path: Path) -> RunStore:
    return RunStore(tmp_path / "runs")


@pytest.fixture
def sweep(store: RunStore) -> Run:
    """A sweep of two elements, of which the first has ended and the second runs."""
    record = replace(
        run("20260101-120000-lr-0a1b", name="lr", plan={"sweep": {"indices": "0-1", "first": 0}}),
        request={"sweep": [[["lr", "1"]], [["lr", "2"]]]},
    )
    store.create(record, "#!/bin/bash\n")
    for index in (0, 1):
        folder = RunFolder(store.folder(record.run_id)).element(index).attempt(0)
        write(folder.start, json.dumps({"job_id": "7", "host": "n1", "started": 1000.0}))
        offline = store.root.parent / f"offline-run-20260102_030405-id{index}"
        offline.mkdir()
        line = f"wandb: Run data is saved locally in {offline}\n"
        write(folder.rank_log(0, "err"), line)
    ended = RunFolder(store.folder(record.run_id)).element(0).attempt(0)
    write(ended.exit, json.dumps({"status": 0, "signal": "", "ended": 2000.0}))
    return record


@pytest.fixture(autouse=True)
def wandb(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A ``wandb sync`` that uploads all it is given; the names of the folders that it was given."""
    given: list[str] = []

    def run_sync(_: Run, folder: Path, todo: Sequence[Path], env: Mapping[str, str]) -> None:
        pages = ""
        for path in todo:
            given.append(path.name)
            write(path / "run-x.wandb.synced", "")
            pages += f"Syncing: https://wandb.ai/me/p/runs/{path.name[-3:]}\n"
        write(RunFolder(folder).tracker_sync("log"), pages)

    monkeypatch.setattr(tracker_files, "_run_sync", run_sync)
    return given


def _ids(paths: Sequence[Path]) -> list[str]:
    return [path.name[-3:] for path in paths]


def _sync(record: Run, store: RunStore) -> SyncResult:
    return sync_wandb(record, store, None, {})


def test_an_element_that_runs_is_left_out(store: RunStore, sweep: Run) -> None:
    result = _sync(sweep, store)
    assert _ids(result.uploaded) == ["id0"]
    assert result.running == (1,)


def test_of_a_run_that_is_over_all_elements_are_uploaded(store: RunStore, sweep: Run) -> None:
    store.save_status(sweep.run_id, LastStatus("FAILED", 2000.0, final=True))
    result = _sync(sweep, store)
    assert _ids(result.uploaded) == ["id0", "id1"]
    assert result.running == ()


def test_what_was_uploaded_before_is_not_uploaded_again(
    store: RunStore, sweep: Run, wandb: list[str]
) -> None:
    _sync(sweep, store)
    result = _sync(sweep, store)
    assert _ids(result.before) == ["id0"]
    assert result.uploaded == ()
    assert len(wandb) == 1


def test_the_pages_are_those_of_the_uploaded_runs(store: RunStore, sweep: Run) -> None:
    log = RunFolder(store.folder(sweep.run_id)).element(0).attempt(0).rank_log(0, "out")
    write(log, "wandb: View run at https://wandb.ai/me/p/runs/other\n")
    assert _sync(sweep, store).pages == ("https://wandb.ai/me/p/runs/id0",)


def test_a_folder_of_another_user_is_not_uploaded(
    store: RunStore, sweep: Run, wandb: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tracker_files, "_is_own", lambda _: False)
    _sync(sweep, store)
    assert wandb == []
