"""What is new in a run that failed, since the nearest run that completed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hpcrun.actions.status.run_status import RunStatus
from hpcrun.explain.since_good import since_good_run
from hpcrun.job.run_paths import RunFolder
from hpcrun.runs.record import LastStatus, run_to_json, status_to_json
from hpcrun.runs.store import RunStore
from tests.unit.builders import run, write

COMPLETED = LastStatus("COMPLETED", 1.0, final=True)
CLEAN: dict[str, Any] = {
    "root": "/home/me",
    "commit": "a" * 40,
    "changes": "",
    "changed": 0,
    "copied": False,
    "files": 0,
    "bytes": 0,
}
CHANGED = {**CLEAN, "changes": "1 changed file", "changed": 1}
READ = {**CHANGED, "digests": [["train.py", "0badc0de"]]}
FAILED = LastStatus("FAILED", 1.0, final=True)


@pytest.fixture
def store(tmp_path: Path) -> RunStore:
    tmp_path.chmod(0o700)
    return RunStore(tmp_path)


def noted(
    store: RunStore,
    number: int,
    *args: str,
    status: LastStatus = COMPLETED,
    code: dict[str, Any] | None = None,
) -> RunStatus:
    """Write a run of ``fit.py`` with these arguments."""
    request: dict[str, Any] = {"script": "fit.py", "args": list(args)}
    record = run(
        run_id=f"20260102-03040{number}-train-0a1b", job_id=str(number), request=request, code=code
    )
    folder = RunFolder(store.root / record.run_id)
    folder.path.mkdir(mode=0o700)
    write(folder.record, run_to_json(record))
    write(folder.status, status_to_json(status))
    return RunStatus(record, folder.path, status)


@pytest.mark.parametrize(
    ("args", "who", "line"),
    [
        (
            ("--lr", "0.1", "--batch", "8192"),
            "new",
            "--batch 8192, since run 1, which completed; hpcrun compare 1 4",
        ),
        (
            ("--lr", "0.7"),
            "new",
            "--lr 0.7 (was 0.1), since run 1, which completed; hpcrun compare 1 4",
        ),
        (
            ("--lr", "0.3"),
            "new",
            "no --width (was 32), since run 2, which completed; hpcrun compare 2 4",
        ),
        (("--lr", "0.1"), "the same", "as run 1, which completed: arguments, options and"),
    ],
)
def test_the_nearest_completed_run_is_the_reference(
    store: RunStore, args: tuple[str, ...], who: str, line: str
) -> None:
    noted(store, 1, "--lr", "0.1")
    noted(store, 2, "--lr", "0.3", "--width", "32")
    noted(store, 3, *args, status=FAILED)
    [evidence] = since_good_run(noted(store, 4, *args, status=FAILED), store)
    assert evidence.who == who
    assert evidence.lines[0].startswith(line)


def test_many_new_facts_are_not_told(store: RunStore) -> None:
    noted(store, 1, "--lr", "0.1")
    assert since_good_run(noted(store, 2, "a", "b", "--c", "--d", status=FAILED), store) == ()


def test_a_run_that_completed_or_is_the_first_is_not_compared(store: RunStore) -> None:
    assert since_good_run(noted(store, 1, "--lr", "0.1", status=FAILED), store) == ()
    assert since_good_run(noted(store, 2, "--lr", "0.1"), store) == ()


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        (CLEAN, CLEAN, "completed: code, arguments"),
        (None, CLEAN, "completed: arguments"),
        (CHANGED, CHANGED, "completed: arguments"),
        (READ, READ, "completed: code, arguments"),
        (CLEAN, READ, "code: train.py (0badc0de) (was none), since run 1"),
    ],
    ids=["one commit", "unknown", "changed files, which may differ", "one change", "a change"],
)
def test_code_is_the_same_only_where_all_of_it_is_known(
    store: RunStore, before: dict[str, Any] | None, after: dict[str, Any], words: str
) -> None:
    noted(store, 1, "--lr", "0.1", code=before)
    failed = noted(store, 2, "--lr", "0.1", status=FAILED, code=after)
    [evidence] = since_good_run(failed, store)
    assert words in evidence.lines[0]


def test_three_new_facts_are_told(store: RunStore) -> None:
    noted(store, 1, "--lr", "0.1")
    failed = noted(store, 2, "--lr", "0.2", "--c", "--d", status=FAILED)
    [evidence] = since_good_run(failed, store)
    assert evidence.lines[0].startswith("--lr 0.2 (was 0.1), --c, --d, since run 1")


def test_a_long_value_is_cut(store: RunStore) -> None:
    noted(store, 1, "--name", "a" * 60)
    [evidence] = since_good_run(noted(store, 2, "--name", "b" * 61, status=FAILED), store)
    assert evidence.lines[0].startswith(f"--name {'b' * 59}… (was {'a' * 60}), since")
