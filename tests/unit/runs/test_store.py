"""The runs folder: whole runs or none, and markers for those that are not over."""

from __future__ import annotations

import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from hpcrun.errors import NotFoundError, PlanError
from hpcrun.runs.record import LastStatus
from hpcrun.runs.store import DamagedRunError, RunExistsError, RunStore
from tests.harness import REPO
from tests.unit.builders import run, write

OLDEST = "20250101-000000-a-0000"
OLD, NEW = "20260101-000000-a-0000", "20260102-000000-b-0000"


@contextmanager
def full_disk() -> Iterator[None]:
    """Let no file grow, as on a full disk or over a quota."""
    old = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (16, old[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, old)
        signal.signal(signal.SIGXFSZ, ignored)


def files(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if not path.is_dir())


@pytest.fixture
def store(tmp_path: Path) -> RunStore:
    """A store with one run."""
    store = RunStore(tmp_path)
    store.create(run(OLD), "")
    return store


def test_a_new_run_has_a_record_a_script_and_programs_and_is_active(tmp_path: Path) -> None:
    store = RunStore(tmp_path / "runs")
    assert store.run_ids() == []
    assert store.active_ids() == []
    with pytest.raises(NotFoundError, match=f"there is no run '{OLD}'"):
        store.load(OLD)
    folder = store.create(run(OLD), "#!/bin/bash\n", files={"preflight/node.py": "print(1)\n"})
    assert folder == store.folder(OLD)
    assert (folder / "script.sh").read_bytes() == b"#!/bin/bash\n"
    assert (folder / "preflight/node.py").read_text() == "print(1)\n"
    assert store.load(OLD) == run(OLD)
    assert store.run_ids() == [OLD]
    assert store.active_ids() == [OLD]
    assert store.last_status(OLD) is None
    store.create(run(OLDEST), "")
    (store.root / ".half-made").mkdir()
    assert store.run_ids() == store.active_ids() == [OLDEST, OLD]
    shutil.copytree(folder, store.root / NEW)
    with pytest.raises(DamagedRunError, match=f"it is the record of {OLD}"):
        store.load(NEW)
    for run_id in (OLD, OLD, OLDEST):
        store.delete(run_id)
    assert files(store.root) == [f"{NEW}/preflight/node.py", f"{NEW}/run.json", f"{NEW}/script.sh"]


def test_a_run_may_lie_elsewhere_is_found_by_its_link_and_deleted_on_a_full_disk(
    tmp_path: Path,
) -> None:
    store, scratch = RunStore(tmp_path / "runs"), tmp_path / "scratch" / ("x" * 40)
    folder = store.create(run(OLD), "text", scratch)
    assert folder == scratch / OLD
    assert store.load(OLD) == run(OLD)
    assert store.folder(OLD).resolve() == folder
    with full_disk():
        store.delete(OLD)
    assert files(tmp_path) == store.run_ids() == []
    assert not folder.exists()
    assert not store.folder(OLD).is_symlink()


@pytest.mark.parametrize("elsewhere", [False, True])
def test_a_full_disk_or_a_file_in_its_place_leaves_no_half_made_run(
    elsewhere: bool, tmp_path: Path
) -> None:
    store = RunStore(tmp_path / "runs")
    with full_disk(), pytest.raises(PlanError, match="cannot write to the runs folder") as refused:
        store.create(run(OLD), "x" * 100, tmp_path / "scratch" if elsewhere else None)
    assert "File too large" in refused.value.message
    assert "HPCRUN_RUNS" in (refused.value.hint or "")
    assert files(tmp_path) == []
    assert store.run_ids() == []
    assert store.active_ids() == []
    with pytest.raises(PlanError, match=f"cannot write to the runs folder {tmp_path}/file"):
        RunStore(write(tmp_path / "file", "")).create(run(OLD), "")


def test_a_record_is_replaced_whole_and_a_full_disk_leaves_it_as_it_was(
    store: RunStore, tmp_path: Path
) -> None:
    store.change(store.load(OLD), job_id="4711")
    assert files(store.folder(OLD)) == ["run.json", "script.sh"]
    before = files(tmp_path)
    with full_disk(), pytest.raises(PlanError):
        store.change(run(OLD), job_id="9")
    with full_disk():
        store.save_status(OLD, LastStatus("COMPLETED", 1.0, final=True))
    assert store.load(OLD) == run(OLD, job_id="4711")
    assert files(tmp_path) == before


def test_a_change_keeps_what_another_process_has_changed_since_the_run_was_read(
    store: RunStore,
) -> None:
    early = store.load(OLD)
    store.change(early, note="#paper")
    assert store.change(early, job_id="4711").note == "#paper"
    assert store.load(OLD) == run(OLD, job_id="4711", note="#paper")
    assert store.change(early, note=None).job_id == "4711"


def test_changes_at_the_same_time_lose_nothing(store: RunStore) -> None:
    early = store.load(OLD)
    names = ("note", "job_id", "cwd", "cluster", "profile", "host", "profile_file")
    with ThreadPoolExecutor() as pool:
        changes = [pool.submit(store.change, early, **{name: name}) for name in names]
    assert [change.exception() for change in changes] == [None] * len(names)
    later = store.load(OLD)
    assert [getattr(later, name) for name in names] == list(names)


def test_the_same_id_twice_leaves_the_first_run_and_what_another_process_makes_is_left_alone(
    tmp_path: Path,
) -> None:
    store = RunStore(tmp_path)
    store.create(run(OLD), "first")
    with pytest.raises(RunExistsError):
        store.create(run(OLD), "second")
    assert (store.folder(OLD) / "script.sh").read_text() == "first"
    write(tmp_path / "active" / NEW, "")  # another process is making it
    with pytest.raises(RunExistsError):
        store.create(run(NEW), "")
    assert store.run_ids() == [OLD]
    assert store.active_ids() == [OLD, NEW]
    theirs = tmp_path / "scratch" / f".{OLD}"
    write(theirs / ".made-by-hpcrun", "")
    with pytest.raises(PlanError, match="File exists"):
        RunStore(tmp_path / "runs").create(run(OLD), "", tmp_path / "scratch")
    assert (theirs / ".made-by-hpcrun").exists()
    assert RunStore(tmp_path / "runs").active_ids() == []


@pytest.mark.parametrize("elsewhere", [False, True])
def test_a_run_and_its_runs_folder_are_closed_to_others_whatever_the_umask(
    elsewhere: bool, tmp_path: Path
) -> None:
    store, old = RunStore(tmp_path / "runs"), os.umask(0)
    try:
        folder = store.create(
            run(OLD, job_id="4711"), "", tmp_path / "scratch" if elsewhere else None
        )
        store.note_job(store.load(OLD))
    finally:
        os.umask(old)
    folders = (store.root, folder, store.root / "active", store.root / "jobs")
    assert [path.stat().st_mode & 0o777 for path in folders] == [0o700] * 4
    assert [path.stat().st_mode & 0o777 for path in (store.root / "jobs").iterdir()] == [0o600]


def test_a_run_that_is_deleted_leaves_the_index_of_jobs_and_no_other_does(tmp_path: Path) -> None:
    store = RunStore(tmp_path)
    for run_id, job_id in ((OLD, "4711"), (NEW, "4712")):
        store.create(run(run_id, job_id=job_id), "")
        store.note_job(store.load(run_id))
    store.delete(OLD)
    assert store.noted_jobs() == {NEW: frozenset({"4712"})}


def test_a_damaged_record_is_named_by_its_file(store: RunStore, tmp_path: Path) -> None:
    for text in ("", "{", "[]", '{"schema": 99}', "\xff"):
        (store.folder(OLD) / "run.json").write_text(text, "latin-1")
        with pytest.raises(DamagedRunError, match=r"run\.json cannot be read"):
            store.load(OLD)


def test_a_run_that_is_over_is_active_no_more(store: RunStore, tmp_path: Path) -> None:
    running = LastStatus("RUNNING", 1.0)
    store.save_status(OLD, running)
    assert store.last_status(OLD) == running
    assert store.active_ids() == [OLD]
    over = LastStatus("COMPLETED", 2.0, final=True)
    store.save_status(OLD, over)
    store.save_status(OLD, over)
    assert store.last_status(OLD) == over
    assert store.active_ids() == []
    store.save_status(OLD, running)  # of a slower process: the next status asks again
    assert store.active_ids() == [OLD]
    write(store.folder(OLD) / "status.json", "{")
    assert store.last_status(OLD) is None


KILLED = """
import os, signal, sys
from pathlib import Path
from hpcrun.runs.store import RunStore
from tests.unit.builders import run

action, root, elsewhere, run_id, event, text = sys.argv[1:]

def watch(name, args):
    if name == event and any(text in str(arg) for arg in args):
        os.kill(os.getpid(), signal.SIGKILL)

sys.addaudithook(watch)
store = RunStore(Path(root))
if action == "create":
    store.create(run(run_id), "", Path(elsewhere) if elsewhere else None)
else:
    store.delete(run_id)
"""


@pytest.mark.parametrize("elsewhere", [False, True])
@pytest.mark.parametrize(
    ("action", "before"),
    [
        *(
            ("create", before)
            for before in ("open .made-by-hpcrun", "open script.sh", "os.rename .")
        ),
        *(
            ("delete", before)
            for before in ("os.remove script.sh", "os.remove run.json", f"os.rmdir .{OLD}.gone")
        ),
    ],
)
def test_what_a_killed_process_leaves_of_a_run_can_be_recognised(
    action: str, before: str, elsewhere: bool, tmp_path: Path
) -> None:
    """The process is killed just before Python's audit event with this text in an argument."""
    store, scratch = RunStore(tmp_path / "runs"), tmp_path / "scratch" if elsewhere else None
    if action == "delete":
        store.create(run(OLD), "", scratch)
    argv = [
        sys.executable,
        "-c",
        KILLED,
        action,
        str(store.root),
        str(scratch or ""),
        OLD,
        *before.split(),
    ]
    done = subprocess.run(argv, cwd=REPO, capture_output=True, text=True, timeout=30)
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert store.run_ids() == []
    (left,) = store.leftovers(time.time() + 1)
    name = f".{OLD}" if action == "create" else f".{OLD}.gone"
    assert left.path == (scratch or store.root) / name
    assert left.run_id == OLD
    assert left.kept is None
    assert store.leftovers(time.time() - 60) == []
    assert store.remove_leftovers([left], time.time() + 1) == []
    assert files(tmp_path) == []
    assert not left.path.exists()


def test_what_others_keep_in_a_runs_folder_is_no_leftover(store: RunStore, tmp_path: Path) -> None:
    kept = [
        ".ssh/id",
        ".git/HEAD",
        ".venv/x",
        f".{NEW}/thesis.tex",
        "active/notes.txt",
        "jobs/4711",
        "jobs/4711.notes",
    ]
    for name in kept:
        write(tmp_path / name, "")
    (left,) = store.leftovers(time.time() + 1)
    assert left.path.name == f".{NEW}"
    assert left.kept == "it has no record of hpcrun"
    (error,) = store.remove_leftovers([left], time.time() + 1)
    assert "was not removed" in error.message
    assert set(kept) <= set(files(tmp_path))


def test_a_folder_that_is_not_the_run_s_own_is_not_deleted(tmp_path: Path) -> None:
    store = RunStore(tmp_path / "runs")
    store.create(run(OLD), "")
    thesis = write(tmp_path / "thesis" / OLD / "thesis.tex", "")
    store.folder(NEW).symlink_to(thesis.parent)
    with pytest.raises(PlanError, match="it holds more than run"):
        store.delete(NEW)
    shutil.move(store.folder(OLD), store.folder("20260103-000000-c-0000"))
    with pytest.raises(PlanError, match="it holds more than run"):
        store.delete("20260103-000000-c-0000")
    assert thesis.exists()
