"""What trackers have of a run whose records and files are on disk, and wandb sync by its Python."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hpcrun.actions.runs.find import FoundRun
from hpcrun.actions.status.run_status import RunStatus
from hpcrun.cli.context import Context
from hpcrun.cli.output import Outcome
from hpcrun.errors import NotFoundError, PlanError
from hpcrun.features.trackers import tracker_files
from hpcrun.features.trackers.command import _tunnel, _upload, tracked
from hpcrun.features.trackers.tracker_files import (
    TrackerHooks,
    TrackerRun,
    _ends,
    _run_sync,
    env_of,
    python_with,
    tracker_runs,
    working_folder,
)
from hpcrun.job.run_paths import RunFolder
from hpcrun.runs.record import LastStatus, Run
from hpcrun.runs.store import RunStore
from tests.unit.builders import run, write

EACH = tracker_files._EACH_END
PAGE = "https://wandb.ai/lab/p/runs/"


def view(tracker_id: str) -> str:
    """What wandb prints at the end of a run."""
    return f"wandb: View run at {PAGE}{tracker_id}\n"


class Job:
    """A run with logs."""

    def __init__(self, folder: Path, **said: Any) -> None:
        self.store = RunStore(folder / "runs")
        self.run = run(cwd=str(folder / "work"), **said)
        self.folder = self.store.create(self.run, "#!/bin/bash\n")

    def log(self, text: str, attempt: int = 0, rank: int = 0, element: int = 0) -> None:
        """What a rank printed on stderr."""
        place = RunFolder(self.folder).element(element).attempt(attempt)
        write(place.start, json.dumps({"job_id": "7", "host": "n1", "started": 1000.0}))
        write(place.rank_log(rank, "err"), text)

    def tracked(self, element: int | None = None) -> Any:
        """What ``open`` shows of it."""
        context = Context({}, self.folder)
        vars(context).update(store=self.store)
        return tracked(FoundRun(self.run, element), context)


@pytest.mark.parametrize(
    ("plan", "folder"),
    [
        ({}, "/work"),
        ({"workdir": "sub"}, "/work/sub"),
        ({"workdir": "/data"}, "/data"),
        ({"workdir": 7}, "/work"),
        ({"snapshot": {"folder": "sub"}, "workdir": "/data"}, "/runs/x/code/sub"),
        ({"snapshot": {}}, "/runs/x/code"),
        ({"snapshot": None, "workdir": "sub"}, "/work/sub"),
    ],
)
def test_a_program_starts_in_its_snapshot_or_folder(plan: dict[str, Any], folder: str) -> None:
    assert working_folder(run(cwd="/work", plan=plan), Path("/runs/x")) == Path(folder)


def test_variables_of_a_plan_without_a_value_are_left_out() -> None:
    pairs = [["A", "b"], ("C", "d"), ["E"], ["F", None], "GH", ["I", "j", "k"]]
    assert list(env_of(run(plan={"env": pairs}))) == [("A", "b"), ("C", "d")]
    assert list(env_of(run(plan={"env": None}))) == []


@pytest.mark.parametrize(
    ("content", "read"),
    [
        (b"x" * EACH, b"x" * EACH),
        (b"x" * EACH + b"yz", b"x" * EACH + b"\nyz"),
        (b"x" * EACH + b"y" * EACH, b"x" * EACH + b"\n" + b"y" * EACH),
        (b"x" * EACH + b"-" * 5 + b"y" * EACH, b"x" * EACH + b"\n" + b"y" * EACH),
    ],
    ids=["short", "a little more", "both ends", "long"],
)
def test_both_ends_of_a_long_log_are_read(tmp_path: Path, content: bytes, read: bytes) -> None:
    (tmp_path / "log").write_bytes(content)
    with open(tmp_path / "log", "rb") as file:
        assert _ends(file) == read


def test_the_newest_attempt_and_the_lowest_rank_have_the_page(tmp_path: Path) -> None:
    job = Job(tmp_path)
    job.log(view("old"), attempt=0)
    job.log(view("second"), attempt=1, rank=1)
    job.log(view("first"), attempt=1, rank=0)
    assert job.tracked().page == f"{PAGE}first"
    found = [(each.attempt, each.rank, each.id) for each in job.tracked().runs]
    assert found == [(1, 0, "first"), (1, 1, "second"), (0, 0, "old")]


def test_status_has_the_pages_of_the_newest_attempt(tmp_path: Path) -> None:
    job = Job(tmp_path)
    job.log(view("old"), attempt=0)
    job.log("".join(map(view, "abcde")), attempt=1)
    item = RunStatus(job.run, job.folder, LastStatus("RUNNING", 0.0))
    rows = TrackerHooks().run_rows(item)
    assert rows == [("wandb", f"{PAGE}{name}") for name in "abcd"]


def test_the_newest_attempts_and_the_first_ranks_are_read(tmp_path: Path) -> None:
    job = Job(tmp_path)
    for attempt in range(3):
        job.log(view(f"a{attempt}"), attempt=attempt)
    found = tracker_runs(job.run, job.folder, most_attempts=2)
    assert [each.attempt for each in found] == [2, 1]
    ranks = tracker_files.MOST_RANKS
    for rank in range(ranks + 1):
        job.log(view(f"r{rank}"), attempt=3, rank=rank)
    newest = tracker_runs(job.run, job.folder, most_attempts=1)
    assert [each.rank for each in newest] == list(range(ranks))


def test_an_offline_run_has_the_page_of_its_upload(tmp_path: Path) -> None:
    job = Job(tmp_path)
    for name in ("ab12", "cd34"):
        job.log(
            f"wandb: Run data is saved locally in {tmp_path}/offline-run-20260102_030405-{name}\n",
            rank=int(name == "cd34"),
        )
    write(RunFolder(job.folder).tracker_sync("log"), f"Syncing: {PAGE}ab12/ ...\n")
    urls = [each.url for each in tracker_runs(job.run, job.folder)]
    assert urls == [f"{PAGE}ab12/", None]


@pytest.mark.parametrize(
    ("uri", "server"),
    [
        ("http://mlflow:5000", "http://mlflow:5000"),
        ("sqlite:///x.db", None),
        ("http://me:secret@mlflow", None),
    ],
)
def test_without_a_known_run_the_server_is_the_page(
    tmp_path: Path, uri: str, server: str | None
) -> None:
    job = Job(tmp_path, plan={"env": [["MLFLOW_TRACKING_URI", uri]]})
    job.log("")
    assert job.tracked().server == server
    assert job.tracked().page == server


def test_a_run_of_the_server_stands_for_it(tmp_path: Path) -> None:
    job = Job(tmp_path, plan={"env": [["MLFLOW_TRACKING_URI", "http://mlflow:5000"]]})
    job.log("View run x at: http://mlflow:5000/#/experiments/0/runs/7\n")
    assert job.tracked().server is None
    assert job.tracked().page == "http://mlflow:5000/#/experiments/0/runs/7"


def test_a_sweep_has_the_pages_of_its_elements(tmp_path: Path) -> None:
    plan = {"sweep": {"indices": "0-1", "first": 0}}
    job = Job(tmp_path, plan=plan, request={"sweep": [[["lr", "1"]], [["lr", "2"]]]})
    job.log(view("second"), element=1)
    with pytest.raises(NotFoundError, match="is a sweep of 2 elements") as caught:
        job.tracked()
    assert caught.value.hint == "name one: hpcrun open 4711/0"
    with pytest.raises(NotFoundError, match="has not started yet"):
        job.tracked(0)
    assert job.tracked(1).page == f"{PAGE}second"


@pytest.mark.parametrize("port", [80, 6006])
def test_a_tunnel_leads_to_this_machines_own_address(tmp_path: Path, port: int) -> None:
    (part,) = _tunnel(port, Context({}, tmp_path)).notes
    assert part.lines[1].startswith(f"  ssh -N -L {port}:127.0.0.1:{port} ")


# --- wandb sync ----------------------------------------------------------------------------------


@pytest.fixture
def python(tmp_path: Path) -> Path:
    """A Python with wandb, which writes down how it was called."""
    path = write(
        tmp_path / "bin/python",
        "#!/bin/sh\n"
        f"out={tmp_path}/calls\n"
        '[ "$3" = wandb ] || exit 1\n'
        '[ -n "$4" ] || exit 0\n'
        'shift 3; echo "$*" >>$out; env >$out.env; pwd >$out.folder; echo done\n',
    )
    path.chmod(0o755)
    return path


def job_with(python: Path) -> Run:
    """A run of this Python."""
    return run(
        plan={
            "python": {"executable": str(python)},
            "env": [["WANDB_BASE_URL", "https://wandb.lab"], ["WANDB_MODE", "offline"], ["X", "y"]],
        }
    )


def test_two_hundred_runs_are_uploaded_at_a_time(tmp_path: Path, python: Path) -> None:
    todo = [Path(f"/w/{number}") for number in range(201)]
    assert _run_sync(job_with(python), tmp_path, todo, {"PATH": "/usr/bin:/bin"}) is None
    first, second = (tmp_path / "calls").read_text().splitlines()
    assert first.split() == ["sync", *map(str, todo[:200])]
    assert second == "sync /w/200"
    assert RunFolder(tmp_path).tracker_sync("log").read_text() == "done\ndone\n"


def test_an_upload_goes_to_the_server_of_the_job(tmp_path: Path, python: Path) -> None:
    env = {"PATH": "/usr/bin:/bin", "WANDB_API_KEY": "k", "WANDB_MODE": "disabled"}
    _run_sync(job_with(python), tmp_path, [Path("/w/1")], env)
    lines = (tmp_path / "calls.env").read_text().splitlines()
    assert {line for line in lines if line.startswith("WANDB")} == {
        "WANDB_BASE_URL=https://wandb.lab",
        "WANDB_API_KEY=k",
        f"WANDB_DIR={tmp_path}",
    }
    assert "X=y" not in lines
    assert (tmp_path / "calls.folder").read_text() == f"{tmp_path}\n"


@pytest.mark.parametrize(
    ("printed", "reason"),
    [
        ("Error: API key not configured\nTraceback\nlast", "API key not configured"),
        ("x\nwandb: ERROR Find logs at x\nwandb: ERROR no network", "wandb: ERROR no network"),
        ("one\n\n  two  \n", "two"),
        ("", "it did not end in time"),
        (f"Error: {'x' * 301}", "x" * 300),
    ],
    ids=["an error", "of wandb", "the last line", "nothing", "long"],
)
def test_a_failed_upload_says_why_in_a_line(
    tmp_path: Path, python: Path, printed: str, reason: str
) -> None:
    write(tmp_path / "printed", printed)
    fails = f'#!/bin/sh\n[ -n "$4" ] || exit 0\ncat {tmp_path}/printed; exit 3\n'
    python.write_text(fails)
    todo = [Path("/w/1")]
    failure = _run_sync(job_with(python), tmp_path, todo, {"PATH": "/usr/bin:/bin"})
    log = RunFolder(tmp_path).tracker_sync("log")
    assert failure == f"wandb sync failed: {reason}\nall of its output: {log}"


def test_a_python_of_the_active_environment_is_asked_second(tmp_path: Path, python: Path) -> None:
    without = write(tmp_path / "without", "#!/bin/sh\nexit 1\n")
    without.chmod(0o755)
    record = job_with(without)
    assert python_with("wandb", record, {"VIRTUAL_ENV": str(tmp_path)}) == str(python)
    assert python_with("wandb", record, {"CONDA_PREFIX": str(tmp_path)}) == str(python)


def test_all_pythons_that_lack_a_module_are_named(tmp_path: Path) -> None:
    without = write(tmp_path / "bin/python3", "#!/bin/sh\nexit 1\n")
    without.chmod(0o755)
    record = replace(job_with(without), plan={"python": {"executable": str(without)}})
    with pytest.raises(PlanError, match=f"no no_such_module in {without}, ") as caught:
        python_with("no_such_module", record, {"PATH": f"relative:{tmp_path}/bin"})
    assert caught.value.message.count(str(without)) == 1
    assert caught.value.hint
    assert caught.value.hint.endswith("pip install no_such_module")


def test_a_run_without_a_page_is_placed_by_its_folder() -> None:
    at = TrackerRun("wandb", 0, 0, "a1", folder=Path("/w/wandb/offline-run-a1"), synced=True)
    assert at.place == "run a1, offline, uploaded in /w/wandb"
    assert TrackerRun("Aim", 0, 0, "a1", folder=Path("/w/.aim")).place == "run a1 in /w/.aim"
    assert TrackerRun("wandb", 0, 0, "a1").place == "run a1"


def uploaded(folder: Path, lines: str) -> list[Outcome]:
    """What ``open --upload`` ends with, with these lines of sh in place of ``wandb sync``."""
    python = write(folder / "bin/python", f'#!/bin/sh\n[ -n "$4" ] || exit 0\n{lines}\n')
    python.chmod(0o755)
    job = Job(folder, plan={"python": {"executable": str(python)}})
    offline = folder / "offline-run-20260102_030405-ab12"
    offline.mkdir()
    job.log(f"wandb: Run data is saved locally in {offline}\n")
    job.store.save_status(job.run.run_id, LastStatus("COMPLETED", 2000.0, final=True))
    context = Context({"PATH": "/usr/bin:/bin"}, folder)
    vars(context).update(store=job.store)
    return list(_upload([FoundRun(job.run)], context, as_json=False))


def test_an_upload_names_the_folders_and_the_pages(tmp_path: Path) -> None:
    first, last = uploaded(
        tmp_path, f'shift 4; touch "$1/run-ab12.wandb.synced"; echo "Syncing: {PAGE}ab12 ..."'
    )
    assert first.text
    (part,) = first.text()
    assert part.lines == (
        f"uploaded  {tmp_path}/offline-run-20260102_030405-ab12",
        f"page      {PAGE}ab12",
    )
    assert last.failure is None
    assert last.document
    (document,) = last.document()["runs"]
    assert document["uploaded"] == [f"{tmp_path}/offline-run-20260102_030405-ab12"]
    assert document["pages"] == (f"{PAGE}ab12",)


@pytest.mark.parametrize(
    ("lines", "message", "hint"),
    [
        (
            "echo 'Error: API key not configured' >&2; exit 1",
            "API key not configured",
            "log in with `wandb login`, then again: hpcrun open --upload",
        ),
        ("echo 'Error: no network' >&2; exit 1", "no network", "again: hpcrun open --upload"),
        ("exit 0", "did not upload 1 of 1 runs", "again: hpcrun open --upload"),
    ],
    ids=["no key", "no network", "nothing"],
)
def test_an_upload_that_fails_says_what_to_do(
    tmp_path: Path, lines: str, message: str, hint: str
) -> None:
    *_, last = uploaded(tmp_path, lines)
    assert last.failure
    assert message in last.failure.message
    assert last.failure.hint == hint
