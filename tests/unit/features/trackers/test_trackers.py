"""What the logs of ranks and the files in a run's folder tell of wandb, MLflow, Aim and
TensorBoard.
"""

from __future__ import annotations

import os
import sqlite3
import time
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from hpcrun.features.trackers import tensorboard
from hpcrun.features.trackers.tensorboard import EventFile, is_of, search
from hpcrun.features.trackers.tracker_files import (
    _of_aim,
    _of_mlflow,
    _pythons,
    is_local,
    page_url,
    parse_log,
)
from hpcrun.job.run_paths import AttemptFolder
from hpcrun.runs.attempt import Attempt, ExitRecord

ATTEMPT = Attempt(
    AttemptFolder(Path("/nowhere")), 0, "1", "node1.site", 1000.0, ExitRecord(0, "", 2000.0), 2000.0
)


SAVED = "wandb: Run data is saved locally in "


@pytest.mark.parametrize(
    ("text", "runs"),
    [
        # wandb 0.31, online; the page is named again at the end
        (
            f"{SAVED}/w/wandb/run-20260102_030405-ab12\nwandb: ⭐️ View project at "
            "https://wandb.ai/me/p\n"
            "wandb: 🚀 View run at https://wandb.ai/me/p/runs/ab12\n"
            "wandb: 🚀 View run swift-sun-1 at: https://wandb.ai/me/p/runs/ab12\n",
            [("wandb", "ab12", "https://wandb.ai/me/p/runs/ab12", False)],
        ),
        (
            "\x1b[34m\x1b[1mwandb\x1b[0m: Run data is saved locally in "
            "\x1b[35m/w/run-20260102_030405-c\x1b[0m\n",
            [("wandb", "c", None, False)],
        ),
        (f"{SAVED}/w/offline-run-20260102_030405-a-b\n", [("wandb", "a-b", None, True)]),
        (
            "🏃 View run bold-fly-1 at: http://mlflow:5000/#/experiments/0/runs/4295557e\n",
            [("MLflow", "4295557e", "http://mlflow:5000/#/experiments/0/runs/4295557e", False)],
        ),
        ("wandb: 🚀 View run at javascript:alert(1)\nView run x at: ftp://host/runs/1\n", []),
        ("wandb: 🚀 View run at https://me:secret@wandb.ai/runs/1\n", []),
        (f"{SAVED}/w/\x1b]0;x\x07/run-20260102_030405-ab12\n", []),
        (f"{SAVED}/etc/passwd\n", []),
        (
            f"{SAVED}/{'x' * 300}/offline-run-20260102_030405-a\n"  # no such path can be
            f"{SAVED}/w/offline-run-20260102_030405-b\n",
            [("wandb", "a", None, True), ("wandb", "b", None, True)],
        ),
    ],
)
def test_a_log_names_the_trackers_runs(
    text: str, runs: list[tuple[str, str, str | None, bool]]
) -> None:
    found = parse_log(text.encode(), 0, 0)
    assert [(each.tracker, each.id, each.url, each.offline) for each in found] == runs


@pytest.mark.parametrize(
    "text", ["https://wandb.ai/me/p", "http://127.0.0.1:5000/#/experiments/0", "http://[::1]:8/x"]
)
def test_a_plain_web_address_is_opened(text: str) -> None:
    assert page_url(text) == text


@pytest.mark.parametrize(
    "text",
    [
        *("file:///etc/passwd", "https://", "https://a@b/", "https://[::1", "http://h:99999/"),
        *(
            f"https://host/{path}"
            for path in ("\u202eevil", "a b", "\x1b[2J", '"$(reboot)"', "x" * 2000)
        ),
    ],
)
def test_nothing_else_is_opened(text: str) -> None:
    assert page_url(text) is None


def test_only_an_address_of_this_machine_needs_a_tunnel() -> None:
    assert [
        is_local(url) for url in ("http://localhost:1/", "http://127.1.2.3/", "http://[::1]/")
    ] == [True] * 3
    assert not is_local("https://localhost.example.org/")


def test_mlflow_runs_are_found_by_their_tag(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "mlflow.db")) as database, database:
        database.execute("create table runs (run_uuid text, start_time int)")
        database.execute("create table tags (run_uuid text, key text, value text)")
        database.executemany("insert into runs values (?, ?)", [("a", 1), ("b", 2), ("c", 3)])
        rows = [("a", "hpcrun.run", "mine"), ("b", "hpcrun.run", "other")]
        rows += [("c", "hpcrun.run", "mine"), ("c", "hpcrun.element", "3")]
        database.executemany("insert into tags values (?, ?, ?)", rows)
    tags = tmp_path / "mlruns/0/d/tags"
    tags.mkdir(parents=True)
    (tags / "hpcrun.run").write_text("mine")
    found = {
        element: [(each.id, each.folder) for each in _of_mlflow(tmp_path, "mine", element, ATTEMPT)]
        for element in (0, 3)
    }
    assert found[0] == [("a", tmp_path / "mlflow.db"), ("d", tmp_path / "mlruns")]
    assert found[3][0] == ("c", tmp_path / "mlflow.db")


@pytest.mark.parametrize("content", [b"", b"not a database", b"SQLite format 3\0" + b"\xff" * 100])
def test_a_damaged_database_has_no_runs(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "mlflow.db").write_bytes(content)
    assert list(_of_mlflow(tmp_path, "mine", 0, ATTEMPT)) == []


def test_aim_runs_are_those_that_began_during_an_attempt(tmp_path: Path) -> None:
    for name, began_s in (("early", 900), ("mine", 1500), ("late", 3000)):
        path = tmp_path / f".aim/meta/chunks/{name}/IDENTITY"
        path.parent.mkdir(parents=True)
        path.touch()
        os.utime(path, (began_s, began_s))
    assert [each.id for each in _of_aim(tmp_path, [ATTEMPT])] == ["mine"]


@pytest.mark.parametrize(
    ("began_s", "host", "expected"),
    [
        (1500, "node1.4711.0", True),
        (1500, "node1.site.org.4711.0.v2", True),
        (1500, "node2.4711.0", False),
        (900, "node1.4711.0", False),
        (2100, "node1.4711.0", False),
    ],
)
def test_an_event_file_is_of_the_run_by_time_and_host(
    began_s: float, host: str, expected: bool
) -> None:
    assert is_of(EventFile(Path("x"), Path(), began_s, host), [ATTEMPT]) == expected


def test_an_attempt_that_still_runs_has_no_end() -> None:
    assert is_of(
        EventFile(Path("x"), Path(), time.time(), "node1.1.0"), [replace(ATTEMPT, exit=None)]
    )


def test_a_search_follows_no_links_and_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = "events.out.tfevents.0000001500.node1.1.0"
    for folder in ("logs/a", "node_modules", "env/logs", "outside"):
        (tmp_path / "root" / folder).mkdir(parents=True)
        (tmp_path / "root" / folder / name).touch()
    (tmp_path / "root/env/pyvenv.cfg").touch()
    (tmp_path / "root/logs/again").symlink_to("..")
    (tmp_path / "root/logs/to-a-file").symlink_to(f"a/{name}")
    files, is_whole = search(tmp_path / "root")
    assert sorted(file.path.parent.name for file in files) == ["a", "outside"]
    assert is_whole
    monkeypatch.setattr(tensorboard, "MOST_ENTRIES", 3)
    assert search(tmp_path / "root")[1] is False


def test_the_python_of_a_container_is_not_run_here() -> None:
    plan = {"python": {"executable": "/opt/python"}}
    assert next(_pythons(plan, {})) == "/opt/python"
    assert "/opt/python" not in _pythons({**plan, "container": {"image": "torch.sif"}}, {})
