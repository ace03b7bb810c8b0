"""open: what trackers have of a run, as lines, hints and errors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hpcrun.errors import UsageError
from hpcrun.features.trackers.command import (
    Tracked,
    _check_served,
    _linked_lines,
    _sync_lines,
    display_hints,
    tracked_lines,
)
from hpcrun.features.trackers.tensorboard import LinkedRuns
from hpcrun.features.trackers.tracker_files import SyncResult, TrackerRun
from hpcrun.runs.store import RunStore
from tests.unit.builders import run

WANDB = TrackerRun("wandb", 0, 0, "a1", "https://wandb.ai/x")
OFFLINE = TrackerRun("wandb", 1, 0, "a2", folder=Path("/w/wandb/offline-run-a2"), offline=True)
MLFLOW = TrackerRun("MLflow", 0, 2, "b1", folder=Path("/w/ml runs"))
DATABASE = TrackerRun("MLflow", 0, 0, "b2", folder=Path("/w/mlflow.db"))
AIM = TrackerRun("Aim", 0, 0, "c1", folder=Path("/w/.aim"))


def tracked(*runs: TrackerRun, files: tuple[str, ...] = (), server: str | None = None) -> Tracked:
    return Tracked(runs, [Path(file) for file in files], server, None)


def test_runs_are_named_with_their_rank_and_attempt() -> None:
    assert tracked_lines(tracked(WANDB, OFFLINE, MLFLOW)) == [
        "wandb   https://wandb.ai/x",
        "wandb   run a2, offline in /w/wandb  (attempt 2)",
        "MLflow  run b1 in /w/ml runs  (rank 2)",
    ]


def test_a_server_stands_behind_the_runs() -> None:
    assert tracked_lines(tracked(server="http://m:5000")) == [
        "MLflow  http://m:5000  (the server of the job)"
    ]


def test_event_files_are_counted_by_folder() -> None:
    assert tracked_lines(tracked(files=("/w/a/x",))) == ["TensorBoard  1 event file in /w/a"]
    assert tracked_lines(tracked(files=("/w/b/x", "/w/a/x", "/w/a/y"))) == [
        "TensorBoard  3 event files in /w/a and 1 more"
    ]


@pytest.mark.parametrize(
    ("number", "last"), [(20, "wandb  https://wandb.ai/x"), (21, "and 1 more: --json has all")]
)
def test_twenty_runs_are_shown(number: int, last: str) -> None:
    lines = tracked_lines(tracked(*[WANDB] * number))
    assert lines[-1] == last
    assert lines[19] == "wandb  https://wandb.ai/x"


@pytest.mark.parametrize(
    ("result", "hints"),
    [
        (tracked(WANDB), []),
        (
            tracked(OFFLINE),
            [
                "when the job has ended, upload the offline wandb runs: "
                "hpcrun open --upload 'my run'"
            ],
        ),
        (tracked(TrackerRun("wandb", 0, 0, "a", offline=True, synced=True)), []),
        (tracked(files=("/w/x",)), ["hpcrun open --tensorboard 'my run' shows the event files"]),
        (
            tracked(MLFLOW, MLFLOW),
            ["mlflow ui --host 127.0.0.1 --backend-store-uri '/w/ml runs'"],
        ),
        (
            tracked(DATABASE),
            ["mlflow ui --host 127.0.0.1 --backend-store-uri sqlite:////w/mlflow.db"],
        ),
        (tracked(MLFLOW, server="http://m"), []),
        (tracked(AIM), ["aim up --host 127.0.0.1 --repo /w/.aim"]),
        (tracked(TrackerRun("Aim", 0, 0, "c", "http://aim", Path("/w"))), []),
    ],
    ids="page offline synced events mlflow database server aim aim-page".split(),
)
def test_hints_show_what_lies_on_disk(result: Tracked, hints: list[str]) -> None:
    assert display_hints(result, "my run") == hints


@pytest.mark.parametrize(
    ("values", "lines"),
    [
        ({}, ["train has no offline wandb runs"]),
        ({"failure": "no API key"}, []),
        (
            {"uploaded": (Path("/w/a"),), "pages": ("https://wandb.ai/x",)},
            ["uploaded  /w/a", "page      https://wandb.ai/x"],
        ),
        ({"before": (Path("/w/a"),)}, ["1 wandb run of train uploaded before"]),
        (
            {"running": (0,)},
            ["train: left out what it wrote, since the job has not ended"],
        ),
        (
            {"running": (0, 3)},
            ["train: left out what 2 elements wrote, since the job has not ended"],
        ),
    ],
    ids="none failed uploaded before running several".split(),
)
def test_an_upload_is_told_in_lines(values: dict[str, Any], lines: list[str]) -> None:
    assert _sync_lines(SyncResult(run(), **values)) == lines


@pytest.mark.parametrize("port", [None, 1, 65535])
def test_a_port_that_can_be_served(port: int | None) -> None:
    _check_served(port, [])


@pytest.mark.parametrize("port", [0, -1, 65536])
def test_a_port_that_cannot_be_served(port: int) -> None:
    with pytest.raises(UsageError, match="from 1 to 65535"):
        _check_served(port, [])


def test_a_log_folder_has_to_exist(tmp_path: Path) -> None:
    _check_served(None, [tmp_path])
    with pytest.raises(UsageError, match="there is no such folder"):
        _check_served(None, [tmp_path / "none"])


def linked(tmp_path: Path, counts: dict[str, int], **searched: Any) -> list[str]:
    links = LinkedRuns(tmp_path, [], RunStore(tmp_path))
    links.counts.update(counts)
    links.searched.update({Path(f"/{name}"): value for name, value in searched.items()})
    return _linked_lines(links)


def test_linked_runs_are_sorted_and_counted(tmp_path: Path) -> None:
    assert linked(tmp_path, {"b": 1, "a": 2}) == ["a  2 event files", "b  1 event file"]


def test_twenty_linked_runs_are_shown(tmp_path: Path) -> None:
    counts = {f"r{number:02}": 1 for number in range(21)}
    lines = linked(tmp_path, counts)
    assert lines[-2:] == ["r19  1 event file", "and 1 more"]
    del counts["r20"]
    assert len(linked(tmp_path, counts)) == 20


def test_a_folder_that_was_not_searched_to_its_end(tmp_path: Path) -> None:
    lines = linked(tmp_path, {}, large=((), False), small=((), True))
    assert lines == ["/large is too large to search all of it: --logdir DIR names a folder"]
