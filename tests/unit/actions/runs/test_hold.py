"""hold and release: only pending jobs that the scheduler lists as those of the runs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from hpcrun.actions.runs.cancel import change_pending, left_waiting, named_statuses
from hpcrun.actions.status.run_status import RunStatus
from hpcrun.errors import SchedulerError
from hpcrun.job.job_states import JobInfo
from hpcrun.runs.store import RunStore
from hpcrun.schedulers.protocol import JobRef, Verb
from tests.unit.builders import ports, run

IDS = [f"20260102-030405-{name}-0a1b" for name in ("waits", "runs", "lr")]


class Queue:
    """A scheduler that lists jobs, and writes down what is held and released."""

    name = "slurm"

    def __init__(self, away: bool = False) -> None:
        self.said: list[tuple[str, list[str | None]]] = []
        self.away = away

    def cluster(self) -> str:
        return "alpha"

    def poll(self, jobs: Sequence[JobRef]) -> dict[Path, JobInfo]:
        if self.away:
            raise SchedulerError("Slurm does not respond")
        states = {"70": "PENDING", "71": "RUNNING", "72_0": "RUNNING", "72_1": "PENDING"}
        return {job.folder: JobInfo(str(job.job_id), states[str(job.job_id)]) for job in jobs}

    def change(self, verb: Verb, jobs: Sequence[JobRef]) -> None:
        self.said.append((verb, [job.job_id for job in jobs]))


def held(
    tmp_path: Path, queue: Queue, *chosen: tuple[int, int | None], verb: Verb = "hold"
) -> tuple[list[RunStatus], list[RunStatus]]:
    store = RunStore(tmp_path)
    sweep = {
        "plan": {"sweep": {"indices": "0-1", "first": 0}},
        "request": {"sweep": [[["lr", "1"]], [["lr", "2"]]]},
    }
    runs = [
        run(run_id, job_id=str(70 + n), **(sweep if n == 2 else {})) for n, run_id in enumerate(IDS)
    ]
    for each in runs:
        store.create(each, "")
    given = ports(store, queue, 2000.0)
    items = named_statuses([(IDS[n], index) for n, index in chosen], given)
    return change_pending(verb, items, given)


def test_pending_jobs_are_held_once_and_others_are_named(tmp_path: Path) -> None:
    queue = Queue()
    # two are named by their job ids and by their names
    chosen = [(number, None) for number in (0, 1, 2, 0, 1)]
    changed, others = held(tmp_path, queue, *chosen)
    assert queue.said == [("hold", ["70", "72"])]  # of the sweep what has not started
    assert len(changed) == 2
    assert [item.run.job_id for item in others] == ["71"]


def test_elements_are_released_one_by_one(tmp_path: Path) -> None:
    queue = Queue()
    _, others = held(tmp_path, queue, (2, 0), (2, 1), verb="release")
    assert queue.said == [("release", ["72_1"])]
    assert [item.run.name for item in others] == ["lr/0"]


def test_nothing_is_held_while_the_scheduler_does_not_respond(tmp_path: Path) -> None:
    queue = Queue(away=True)
    with pytest.raises(SchedulerError):
        held(tmp_path, queue, (0, None))
    assert queue.said == []


def test_of_the_runs_that_depend_on_a_cancelled_one_those_that_may_start_are_named(
    tmp_path: Path,
) -> None:
    store = RunStore(tmp_path)
    for run_id, condition in zip(IDS, ("ok", "any", "fail"), strict=True):
        store.create(
            run(run_id, after=[{"run_id": "x", "job_id": "1", "condition": condition}]), ""
        )
    assert {each.run_id for each in left_waiting({"x"}, store)} == set(IDS[1:])
