"""A history of runs: their attempts, ends and causes, read from their folders, and jobs of Slurm's
accounting.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from hpcrun.actions.status.past_jobs import cause_of, project_of, runs_since
from hpcrun.explain.diagnosis.rules import load_rules
from hpcrun.features.history.accounted_jobs import OTHER, REMOVED, parse_accounted
from hpcrun.features.history.history import (
    History,
    HistoryRow,
    budgets_of,
    get_history,
)
from hpcrun.job.run_paths import SUBMISSION_FILE, RunsFolder
from hpcrun.runs.elements import load_statuses, save_statuses
from hpcrun.runs.record import LastStatus
from hpcrun.runs.store import RunStore
from hpcrun.schedulers.pending_and_usage import ACCOUNTS, Limit
from hpcrun.schedulers.slurm_text import SEPARATOR
from tests.unit.builders import ports, run, write

NOW = 1_800_000_000.0
HOUR = 3600.0


class Idle:
    """A cluster that knows none of the jobs any more."""

    def cluster(self) -> str:
        return "alpha"

    def poll(self, jobs: object) -> dict[Path, Any]:
        return {}


@pytest.fixture
def runs(tmp_path: Path) -> RunStore:
    (tmp_path / "runs").mkdir(mode=0o700)
    return RunStore(tmp_path / "runs")


def attempt(
    folder: Path, begin: float, end: float | None, number: int = 0, element: int = 0, **exit_: Any
) -> Path:
    """Write an attempt: hours before now at which it began and ended; None if it left no exit
    record.
    """
    place = folder / f"elements/{element}/attempts/{number}"
    start = {"job_id": "4711", "host": "n1", "started": NOW + begin * HOUR}
    write(place / "start", json.dumps(start))
    if end is not None:
        said = {
            "status": 0,
            "signal": "",
            "ended": NOW + end * HOUR,
            "message": "",
            "reason": "",
            **exit_,
        }
        write(place / "exit", json.dumps(said))
    return place


def made(
    runs: RunStore, created: float, status: Mapping[str, Any] | None, number: int = 0, **said: Any
) -> Path:
    """Write a run that was submitted so many hours before now."""
    one = run(
        f"20270115-000000-{said.pop('name', 'train')}-{number:04x}",
        created_s=NOW + created * HOUR,
        **said,
    )
    folder = runs.create(one, "")
    if status is not None:
        runs.save_status(one.run_id, LastStatus(**{"asked_s": NOW, "final": True, **status}))
    return folder


def look(
    runs: RunStore, by: str = "name", accounted: tuple[str, ...] = (), words: tuple[str, ...] = ()
) -> History:
    found, jobs = ports(runs, Idle(), NOW), parse_accounted("\n".join(accounted), NOW)
    return get_history(
        found,
        by=by,
        since_s=NOW - 1000 * HOUR,
        rules=lambda: load_rules([]),
        accounted=jobs,
        words=words,
    )


def test_a_filter_counts_the_runs_with_its_words_alone(runs: RunStore) -> None:
    folder = made(runs, -10, {"state": "COMPLETED"})
    attempt(folder, -9, -8, 0)
    assert look(runs, words=("completed",)).total.gpu_hours == 4
    assert look(runs, words=("!completed",)).runs == 0


def test_each_attempt_of_a_requeued_run_counts_and_failed_ones_are_lost(runs: RunStore) -> None:
    folder = made(runs, -10, {"state": "COMPLETED"})
    attempt(folder, -9, -8, 0, status=143, reason="node_failure", again=True, how="requeue")
    attempt(folder, -7, -5, 1, status=143, reason="preemption", again=True, how="requeue")
    attempt(folder, -4, -1, 2)
    found = look(runs)
    assert found.total.gpu_hours == (1 + 2 + 3) * 4
    assert found.total.lost_gpu_hours == 4
    assert found.total.success == 1.0
    assert found.total.waits_s == [HOUR]


def test_spare_nodes_count_and_without_attempts_the_time_that_slurm_told(runs: RunStore) -> None:
    attempt(
        made(runs, -10, {"state": "COMPLETED"}, plan={"requeue": {"times": 1, "spares": 2}}), -2, -1
    )
    made(runs, -10, {"state": "COMPLETED", "elapsed_s": 7200}, 1, name="other")
    assert {row.key: row.gpu_hours for row in look(runs).rows} == {"train": (2 + 2) * 2, "other": 8}


def test_a_gpu_counts_once_for_all_elements_of_a_pack(runs: RunStore) -> None:
    plan = {"sweep": {"indices": "0-3", "first": 0, "pack": 3}}
    request = {"sweep": [[["n", "1"]]] * 4}
    folder = made(
        runs, -9, None, nodes=1, gpus_per_node=2, plan=plan, request=request, job_id="4711"
    )
    for element, (begin, end) in enumerate([(-8, -7), (-8, -4), (-5, -3), (-8, -6)]):
        attempt(folder, begin, end, element=element)
    total = look(runs).total
    # two tasks: from 8 to 3, and from 8 to 6 hours ago
    assert total.gpu_hours == 2 * 5 + 2 * 2
    assert total.ended == 4


def test_an_attempt_without_an_exit_record_ended_after_its_last_heartbeat(runs: RunStore) -> None:
    folder = made(runs, -10, {"state": "NODE_FAIL"})
    write(attempt(folder, -9, None) / "heartbeat", str(NOW - 6 * HOUR))
    found = look(runs)
    assert found.total.gpu_hours == 12
    assert found.total.lost_gpu_hours == 12
    assert [(each.cause, each.failed) for each in found.causes] == [("node failure", 1)]


def test_a_running_run_counts_until_now_and_until_its_heartbeat_elsewhere(runs: RunStore) -> None:
    here = made(runs, -3, None)
    write(attempt(here, -2, None) / "heartbeat", str(NOW - 10))
    there = made(runs, -3, {"state": "RUNNING", "final": False}, 1, cluster="beta")
    write(attempt(there, -2, None) / "heartbeat", str(NOW - HOUR))
    found = look(runs, by="cluster")
    assert {group.key: group.gpu_hours for group in found.rows} == {"alpha": 8, "beta": 4}
    assert found.running == 2
    assert found.total.ended == 0
    assert found.runs == 2


def test_of_a_sweep_each_element_ends_and_the_first_to_start_has_waited(runs: RunStore) -> None:
    request = {"sweep": [[["lr", "1"]], [["lr", "2"]], [["lr", "3"]]]}
    plan = {"sweep": {"indices": "0-2", "first": 0}}
    folder = made(
        runs, -10, {"state": "FAILED"}, request=request, plan=plan, nodes=1, gpus_per_node=1
    )
    attempt(folder, -7, -6, element=0)
    attempt(folder, -9, -8, element=1)
    failed = attempt(folder, -5, -4, element=2, status=1, reason="failure")
    write(
        failed / "rank-0.exit",
        json.dumps({"rank": 0, "node": "n1", "status": 1, "ended": NOW - 4 * HOUR}),
    )
    write(
        failed / "rank-0.err",
        "Traceback (most recent call last):\n  File 't.py', line 3, in f\nKeyError: 'x'\n",
    )
    ends = {0: "COMPLETED", 1: "COMPLETED", 2: "FAILED"}
    statuses = {
        index: LastStatus(word, NOW, final=True, forgotten=True, exit_status=int(index == 2))
        for index, word in ends.items()
    }
    save_statuses(folder, statuses)
    found = look(runs)
    assert found.total.ended == 3
    assert found.total.gpu_hours == 3
    assert found.total.lost_gpu_hours == 1
    assert found.total.waits_s == [HOUR]
    assert [(each.cause, each.failed) for each in found.causes] == [("KeyError", 1)]
    kept = load_statuses(folder)
    assert kept[2].rule == ""
    assert "KeyError" in str(kept[2].cause)
    assert kept[0] == statuses[0]


def test_what_explain_found_is_kept_and_not_examined_again(
    runs: RunStore, monkeypatch: pytest.MonkeyPatch, subtests: pytest.Subtests
) -> None:
    for number in range(3):
        folder = made(runs, -10, {"state": "FAILED", "exit_status": 1}, number)
        failed = attempt(folder, -5, -4, status=1, reason="failure")
        write(
            failed / "rank-0.exit",
            json.dumps({"rank": 0, "node": "n1", "status": 1, "ended": NOW - 4 * HOUR}),
        )
        write(
            failed / "rank-0.err",
            "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0\n",
        )
    for within_s, cause in (
        (-1.0, "not examined"),
        (60.0, "cuda-out-of-memory"),
        (-1.0, "cuda-out-of-memory"),
    ):
        with subtests.test(within_s=within_s):
            monkeypatch.setattr("hpcrun.features.history.history.EXAMINE_WITHIN_S", within_s)
            assert [(each.cause, each.failed) for each in look(runs).causes] == [(cause, 3)]


def test_what_does_not_count_and_runs_that_ended_before_are_not_read(runs: RunStore) -> None:
    made(runs, -10, {"state": "NOT_SUBMITTED"}, 0)
    made(runs, -10, {"state": "COMPLETED"}, 1, scheduler="local", cluster=None, host="here")
    made(runs, -10, {"state": "PENDING", "final": False}, 2, cluster="beta")
    folder = made(
        runs,
        -10,
        {"state": "COMPLETED"},
        3,
        after=[{"run_id": "r", "job_id": "1", "condition": "ok"}],
    )
    attempt(folder, -2, -1)
    found = look(runs)
    assert found.runs == 1
    assert found.local == 1
    assert found.total.ended == 1
    assert found.total.waits_s == []
    folder = made(runs, -3000, {"state": "COMPLETED"}, 4)
    (folder / "run.json").write_text("damaged")
    old = runs.root / "20200101-000000-train-0000"
    folder.rename(old)
    os.utime(old / "status.json", (0, 0))
    assert look(runs).damaged == ()
    os.utime(old / "status.json", (NOW, NOW))
    assert len(look(runs).damaged) == 1


def test_rows_by_project_and_account(runs: RunStore, tmp_path: Path) -> None:
    project = tmp_path / "project"
    (project / ".git").mkdir(parents=True)
    (project / "configs").mkdir()
    plan = {"directives": [["account", "lab"]]}
    attempt(
        made(runs, -10, {"state": "COMPLETED"}, 0, cwd=str(project / "configs"), plan=plan), -2, -1
    )
    attempt(made(runs, -10, {"state": "COMPLETED"}, 1, cwd=str(tmp_path)), -3, -1)
    assert [group.key for group in look(runs, by="project").rows] == [str(tmp_path), str(project)]
    assert [group.key for group in look(runs, by="account").rows] == ["(default)", "lab"]
    assert project_of(None) == "-"


def accounted(
    job_id: str = "9",
    run_id: str = "",
    *,
    state: str = "FAILED",
    start: float | None = -4,
    end: float | None = -3,
) -> str:
    """A line of sacct, with the start and the end in hours before now."""
    eligible, *times = (
        "Unknown" if hours is None else str(int(NOW + hours * HOUR)) for hours in (-5, start, end)
    )
    script = f"/runs/{run_id}/{SUBMISSION_FILE}" if run_id else "train.sh"
    known = (
        "wrap",
        "lab",
        "alpha",
        state,
        "3:0",
        eligible,
        eligible,
        *times,
        "4",
        "cpu=4,gres/gpu=2",
        "/w",
    )
    return SEPARATOR.join((job_id, *known, f"sbatch {script}"))


def test_jobs_of_the_accounting_are_counted_once(runs: RunStore) -> None:
    attempt(made(runs, -10, {"state": "COMPLETED"}), -2, -1)
    mine = accounted("4711", "20270115-000000-train-0000")
    gone, pending = (
        accounted("5", "20270114-000000-gone-0000"),
        accounted("10", state="PENDING", start=None, end=None),
    )
    found = look(runs, by="profile", accounted=(mine, gone, accounted(), pending))
    assert {group.key: group.gpu_hours for group in found.rows} == {"big": 4, OTHER: 2, REMOVED: 2}
    assert found.runs == 1
    assert found.others == 2
    assert found.total.lost_gpu_hours == 4
    assert [(each.cause, each.failed) for each in found.causes] == [("exit status 3", 2)]
    assert found.total.waits_s == [8 * HOUR, HOUR, HOUR]
    assert [group.key for group in look(runs, by="account").rows] == ["(default)"]
    assert [group.key for group in look(runs, by="account", accounted=(mine,)).rows] == ["lab"]


def test_a_run_that_is_still_active_counts_however_old_its_id_and_its_files(runs: RunStore) -> None:
    run_id = "20200101-000000-train-0000"
    folder = made(runs, -10, {"state": "RUNNING", "final": False}).rename(runs.root / run_id)
    os.utime(folder / "status.json", (0, 0))
    (RunsFolder(runs.root).active / run_id).touch()
    assert runs_since(runs, NOW - HOUR) == [run_id]
    (RunsFolder(runs.root).active / run_id).unlink()
    assert runs_since(runs, NOW - HOUR) == []


def test_the_gpus_of_a_requeued_job_are_those_of_its_last_start_that_had_some(
    runs: RunStore,
) -> None:
    first = accounted(state="NODE_FAIL", start=-9, end=-8)
    second = accounted(state="COMPLETED", start=-7, end=-6).replace("gres/gpu=2", "gres/gpu=3")
    assert look(runs, accounted=(first, second)).total.gpu_hours == 2 * 3
    pending = accounted(state="PENDING", start=None, end=None).replace("gres/gpu=2", "node=1")
    assert look(runs, accounted=(first, pending)).total.gpu_hours == 2


def test_a_job_of_the_accounting_waited_from_when_it_could_start(runs: RunStore) -> None:
    submitted = str(int(NOW - 5 * HOUR))
    eligible = str(int(NOW - 4.5 * HOUR))
    fields = accounted().split(SEPARATOR)
    assert fields.count(submitted) == 2
    fields[len(fields) - 1 - fields[::-1].index(submitted)] = eligible
    assert look(runs, accounted=(SEPARATOR.join(fields),)).total.waits_s == [0.5 * HOUR]


def test_a_requeued_job_of_the_accounting(runs: RunStore) -> None:
    starts = (
        accounted(state="NODE_FAIL", start=-9, end=-8),
        accounted(state="PREEMPTED", start=-7, end=-5),
        accounted(state="RUNNING", start=-2, end=None),
    )
    found = look(runs, accounted=starts)
    assert found.total.gpu_hours == 10
    assert found.total.lost_gpu_hours == 2
    assert found.running == 1


@pytest.mark.parametrize(
    ("jobs", "within_s"),
    [(0, None), (1, 1.0), (2, 2.0), (9, 9.0), (10, 9.0), (11, 10.0), (100, 90.0), (101, 91.0)],
)
def test_nine_jobs_of_ten_start_within_this_time(jobs: int, within_s: float | None) -> None:
    waits_s = [float(seconds) for seconds in range(jobs, 0, -1)]
    assert HistoryRow("train", waits_s=waits_s).wait_90_percent_s == within_s


def test_the_name_of_a_cause() -> None:
    def cause(said: str | None = None, rule: str | None = "", **more: Any) -> str:
        return cause_of(LastStatus("FAILED", 0, rule=rule, cause=said, **more))

    assert cause_of(LastStatus("TIMEOUT", 0)) == "time limit"
    assert cause("rank 3: KeyError: 1", "nccl-timeout") == "nccl-timeout"
    assert cause("rank 1 on n1 failed first: KeyError: 'x' at a.py:1") == "KeyError"
    assert (cause("", exit_status=2), cause("")) == ("exit status 2", "unknown")
    assert cause_of(LastStatus("FAILED", 0)) == "not examined"


def test_budgets_are_limits_of_minutes_of_the_accounts_and_of_the_qos_that_runs_named() -> None:
    def limit(what: str, holder: str = "account lab") -> Limit:
        return Limit(holder, what, "300", "6000", "all its users")

    limits = {
        ACCOUNTS: [limit("running jobs"), limit("cpu minutes"), limit("gres/gpu:a100 minutes")],
        "long": [limit("gres/gpu minutes", "QOS long")],
        "other": [limit("gres/gpu minutes", "QOS other")],
    }
    found = budgets_of(limits, {"long"})
    assert [(each.holder, each.unit) for each in found] == [
        ("account lab", "GPU-hours of a100"),
        ("QOS long", "GPU-hours"),
        ("account lab", "CPU-hours"),
    ]
    assert found[0].used_hours == 5
    assert found[0].allowed_hours == 100
    assert found[0].share == 0.05
