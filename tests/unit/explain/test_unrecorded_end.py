"""What explain says of the end of a job that left no record of it."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from hpcrun.actions.status.run_status import RunStatus
from hpcrun.explain.ended import Explanation, explain
from hpcrun.explain.first_line import explained_status
from hpcrun.explain.unrecorded_end import Questions
from hpcrun.runs.record import LastStatus
from tests.unit.builders import run, write
from tests.unit.explain.written import RULES

LEFT = "the job's process of hpcrun on node01 left no record of its end"


def start(folder: Path) -> Path:
    """An attempt that has started, and has left no record of its end."""
    record = '{"job_id": "4711", "host": "node01", "started": 1.0}'
    return write(folder / "elements/0/attempts/0/start", record).parent


def ended(folder: Path, state: str = "FAILED", *, by: str = "slurm", **status: Any) -> RunStatus:
    return RunStatus(run(scheduler=by), folder, LastStatus(state, 0.0, final=True, **status))


def no_space(path: Any) -> Any:
    del path
    return SimpleNamespace(f_bavail=3, f_frsize=4096, f_files=9, f_favail=9)


def test_an_end_of_which_nothing_can_be_seen_is_unknown(tmp_path: Path) -> None:
    start(tmp_path)
    assert explain(ended(tmp_path), RULES).summary == f"{LEFT}; why is unknown"


def test_an_end_with_a_record_is_not_unknown(tmp_path: Path) -> None:
    record = '{"status": 9, "signal": "", "ended": 2.0, "message": ""}'
    write(start(tmp_path) / "exit", record)
    assert explain(ended(tmp_path), RULES).summary == "the job ended as FAILED"


def test_a_log_that_tells_of_a_full_disk_explains_it(tmp_path: Path) -> None:
    start(tmp_path)
    line = "hpcrun: cannot write the record exit: [Errno 28] No space left on device"
    write(tmp_path / "batch.log", f"begun\n{line}\n")
    shown = explain(ended(tmp_path), RULES)
    assert shown.summary == f"{LEFT}, and a log has: {line}"
    assert shown.fix.startswith("free some space there")


@pytest.mark.parametrize(
    "status",
    [{"signal": 9}, {"exit_status": 137}, {"reason": "RaisedSignal:9(Killed)"}],
    ids=["sacct", "exit status", "squeue"],
)
def test_it_was_killed_if_slurm_saw_the_signal(tmp_path: Path, status: dict[str, Any]) -> None:
    start(tmp_path)
    summary = explain(ended(tmp_path, **status), RULES).summary
    assert summary.startswith("the job's process of hpcrun on node01 was killed (SIGKILL)")


def test_accounting_knows_the_signal_that_squeue_did_not_show(tmp_path: Path) -> None:
    start(tmp_path)
    for signal, summary in (
        (9, "the job's process of hpcrun on node01 was killed (SIGKILL): it left no record"),
        (7, f"{LEFT}; Slurm's accounting has signal 7 as its end"),
    ):
        questions = Questions(end_signal={"4711": signal}.get)
        shown = explain(ended(tmp_path), RULES, questions=questions)
        assert shown.summary.startswith(summary)


def test_a_disk_that_is_full_now_explains_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    start(tmp_path)
    monkeypatch.setattr(os, "statvfs", no_space)
    shown = explain(ended(tmp_path), RULES)
    assert shown.summary == f"{LEFT}: the file system of {tmp_path} is full now"


def test_a_node_that_is_away_explains_it(tmp_path: Path) -> None:
    start(tmp_path)
    states = {"node01": "idle", "node02": "down*"}
    questions = Questions(node_states=lambda _: states)
    shown = explain(ended(tmp_path, hosts="node[01-02]"), RULES, questions=questions)
    assert shown.summary == f"{LEFT}; Slurm does not reach node02 (down*) now"


def test_a_reason_of_squeue_is_no_launch_failure_if_the_job_has_started(tmp_path: Path) -> None:
    start(tmp_path)
    shown = explain(ended(tmp_path, reason="JobLaunchFailure"), RULES)
    assert shown.summary == f"{LEFT}; why is unknown"


def test_a_lost_local_job_is_not_the_failure_of_a_node(tmp_path: Path) -> None:
    start(tmp_path)
    lost = ended(tmp_path, "NODE_FAIL", by="local", reason="no record")
    assert explain(lost, RULES).summary == f"{LEFT}; why is unknown"
    restarted = ended(tmp_path, "NODE_FAIL", by="local", reason="this machine was restarted")
    assert explain(restarted, RULES).summary == "this machine was restarted while the job ran"


# --- the node could not open the job's output ----------------------------------------------------


def not_opened(folder: Path) -> Explanation:
    return explain(ended(folder, hosts="node01", signal=53), RULES)


def test_an_output_that_the_node_could_not_open_is_named(tmp_path: Path) -> None:
    shown = not_opened(tmp_path)
    output = tmp_path / "batch.log"
    assert shown.summary.startswith(f"node01 could not open the job's output {output}: ")
    assert shown.fix.endswith("--exclude=node01")


def test_a_launch_failure_without_an_output_is_only_likely_to_be_that(tmp_path: Path) -> None:
    status = ended(tmp_path, hosts="node01", reason="JobLaunchFailure")
    summary = explain(status, RULES).summary
    assert summary.startswith("node01 did not launch the job, and its output ")
    assert "most likely the folder is not visible there, or not writable" in summary
    assert explained_status(status, RULES).cause == summary


def test_a_job_with_an_output_had_one(tmp_path: Path) -> None:
    write(tmp_path / "batch.log", "begun\n")
    assert "output" not in not_opened(tmp_path).summary
