"""The result of a submitted function, and what its job says where there is none."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cloudpickle
import pytest
from submitit import Job
from submitit.core.utils import DelayedSubmission, FailedJobError, UncompletedJobError

from hpcrun.api import function_job
from hpcrun.api.function_job import FunctionJob
from hpcrun.runs.record import LastStatus
from hpcrun.runs.store import RunStore
from tests.unit.builders import run, write

FAILED = LastStatus("FAILED", 1.0, final=True, forgotten=True, reason="NonZeroExitCode")


@pytest.fixture(autouse=True)
def _nothing_learned() -> Iterator[None]:
    yield
    function_job._LEARNED.clear()


def job(folder: Path, tasks: int = 1, status: LastStatus = FAILED, **said: Any) -> FunctionJob[Any]:
    """The job of a run whose last status is this."""
    store = RunStore(folder / "runs")
    made = run("run-7", job_id="7", **said)
    store.create(made, "")
    store.save_status(made.run_id, status)
    return FunctionJob.of_run(store.folder(made.run_id), "7", tasks)


def leaves(part: Job[Any], outcome: str, result: Any) -> None:
    """Write the result of one task."""
    part.paths.folder.mkdir(parents=True, exist_ok=True)
    part.paths.result_pickle.write_bytes(cloudpickle.dumps((outcome, result)))


def message(failed: FunctionJob[Any]) -> str:
    """The message for a job without a result."""
    failure = failed.exception()
    assert isinstance(failure, UncompletedJobError)
    return str(failure)


def test_a_job_with_a_result_is_done(tmp_path: Path) -> None:
    done = job(tmp_path, status=LastStatus("RUNNING", 1.0))
    leaves(done, "success", 42)
    assert done.done()
    assert done.result() == 42


def test_all_tasks_of_a_job_have_results(tmp_path: Path) -> None:
    both = job(tmp_path, tasks=2)
    for number, part in enumerate(both._sub_jobs):
        leaves(part, "success", number)
    assert both.done()
    assert both.exception() is None
    assert both.results() == [0, 1]


def test_the_exception_is_of_the_task_that_raised(tmp_path: Path) -> None:
    both = job(tmp_path, tasks=2)
    leaves(both._sub_jobs[1], "error", "ValueError: too small")
    failure = both.exception()
    assert isinstance(failure, FailedJobError)
    assert "ValueError: too small" in str(failure)
    with pytest.raises(FailedJobError):
        both.results()


def test_a_job_without_a_result_says_why(tmp_path: Path) -> None:
    failed = job(tmp_path)
    assert message(failed) == (
        "job 7 (task 0, run run-7) left no result: FAILED (NonZeroExitCode)\n"
        "the job has not started"
    )


def test_the_rank_that_failed_first_is_named(tmp_path: Path) -> None:
    failed = job(tmp_path)
    attempt = failed.run_folder.path / "elements/0/attempts/0"
    write(attempt / "start", json.dumps({"job_id": "7", "host": "n1", "started": 1.0}))
    end = {"rank": 3, "node": "n2", "status": 9, "ended": 2.0}
    write(attempt / "rank-3.exit", json.dumps(end))
    assert message(failed).endswith(
        "FAILED (NonZeroExitCode; rank 3 on n2 failed first, with exit status 9)\n"
        "the job has written no log"
    )


@pytest.mark.parametrize(
    ("texts", "shown"),
    [
        ({"stdout": "hello\n", "stderr": "oh no\n"}, "stderr"),
        ({"stdout": "hello\n", "stderr": "\n"}, "stdout"),
    ],
)
def test_the_end_of_a_log_with_text_is_shown(
    tmp_path: Path, texts: dict[str, str], shown: str
) -> None:
    failed = job(tmp_path)
    for name, text in texts.items():
        write(getattr(failed.paths, name), text)
    path = getattr(failed.paths, shown)
    assert message(failed).endswith(f"the end of its {shown}, {path}:\n{texts[shown].strip()}")


def test_the_log_of_the_batch_script_is_shown_last(tmp_path: Path) -> None:
    failed = job(tmp_path)
    lines = [f"line {number}" for number in range(50)]
    path = write(failed.run_folder.path / "batch.log", "\n".join(lines))
    end = "\n".join(lines[10:])
    assert message(failed).endswith(f"the end of its batch log, {path}:\n{end}")


def test_the_logs_of_a_task_are_read_whole(tmp_path: Path) -> None:
    failed = job(tmp_path)
    assert failed.stdout() is None
    write(failed.paths.stdout, "one\ntwo\n")
    assert failed.stdout() == "one\ntwo\n"


def test_the_call_is_read_from_the_calls_of_the_run(tmp_path: Path) -> None:
    failed = job(tmp_path)
    calls = failed.run_folder.calls
    calls.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(calls, "w") as archive:
        archive.writestr("0", cloudpickle.dumps(DelayedSubmission(max, 3, 5)))
    call = failed.submission()
    assert call.function is max
    assert call.args == (3, 5)


def test_a_job_is_shown_with_its_run_and_state(tmp_path: Path) -> None:
    failed = job(tmp_path)
    assert repr(failed) == "FunctionJob<job_id=7, run=run-7, state=FAILED>"
    assert failed.run_id == "run-7"


def test_a_job_has_the_names_of_sacct(tmp_path: Path) -> None:
    failed = job(tmp_path)
    assert failed.get_info() == {"State": "FAILED", "Reason": "NonZeroExitCode"}
