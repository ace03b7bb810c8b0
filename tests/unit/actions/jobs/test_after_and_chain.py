"""--after: which runs a job can wait for, and a run that has ended as Slurm says now."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from hpcrun.actions.jobs.after_and_chain import check_can_wait, resolve_after
from hpcrun.errors import PlanError, UsageError
from hpcrun.job.job_states import JobInfo
from hpcrun.job.request.after import After, Condition, Dependency
from hpcrun.runs.record import LastStatus
from hpcrun.runs.store import RunStore
from hpcrun.schedulers.protocol import JobRef
from tests.unit.actions.status.test_known_run import ENDED_S, RUN_ID, queue_of
from tests.unit.builders import Takes, plan, ports, run


def test_an_end_that_may_have_been_requeued_since_fulfils_no_condition(tmp_path: Path) -> None:
    queue = queue_of(tmp_path)
    queue.store.save_status(RUN_ID, LastStatus("COMPLETED", ENDED_S, final=True))
    site = ports(queue.store, queue, 200.0)
    queue.is_away = True
    with pytest.raises(PlanError, match="may have been requeued since"):
        resolve_after([After(RUN_ID)], site)
    queue.is_away = False
    queue.lists("PENDING", 190.0, 0)
    (waits,), _ = resolve_after([After(RUN_ID)], site)
    assert not waits.over
    queue.lists("COMPLETED", 195.0)
    (waits,), _ = resolve_after([After(RUN_ID)], site)
    assert waits.over


class Forgets(Takes):
    """A scheduler that has forgotten every job."""

    def poll(self, _: Sequence[JobRef]) -> dict[Path, JobInfo]:
        """List nothing."""
        return {}


def wait(folder: Path, condition: Condition, last: LastStatus | None, **said: Any) -> Dependency:
    """Wait for a run of this record and this status."""
    store = RunStore(folder)
    earlier = run(**said)
    store.create(earlier, "")
    if last is not None:
        store.save_status(earlier.run_id, last)
    (dependency,), _ = resolve_after([After("4711", condition)], ports(store, Forgets(), 1000.0))
    return dependency


def ended(state: str) -> LastStatus:
    """A status that nobody needs to ask about again."""
    return LastStatus(state, 900.0, final=True, forgotten=True)


@pytest.mark.parametrize(
    ("condition", "state"),
    [("ok", "COMPLETED"), ("fail", "FAILED"), ("any", "FAILED"), ("any", "COMPLETED")],
)
def test_an_end_that_fulfils_the_condition_is_not_waited_for(
    condition: Condition, state: str, tmp_path: Path
) -> None:
    dependency = wait(tmp_path, condition, ended(state))
    assert dependency.over
    assert dependency.job_id == "4711"


@pytest.mark.parametrize(("condition", "state"), [("ok", "FAILED"), ("fail", "COMPLETED")])
def test_an_end_against_the_condition_is_refused(
    condition: Condition, state: str, tmp_path: Path
) -> None:
    with pytest.raises(PlanError, match=f"would never start, .* has ended: {state}") as refused:
        wait(tmp_path, condition, ended(state))
    assert refused.value.hint == "--after 4711:any starts it after any end"


@pytest.mark.parametrize(
    ("said", "message"),
    [
        pytest.param({"scheduler": "local"}, "it is a local run of host login1", id="local"),
        pytest.param({"cluster": "beta"}, "it is on cluster beta, and this is alpha", id="other"),
    ],
)
def test_slurm_waits_for_jobs_of_its_own_alone(
    said: dict[str, Any], message: str, tmp_path: Path
) -> None:
    with pytest.raises(PlanError, match=message):
        wait(tmp_path, "ok", ended("COMPLETED"), **said)


def test_a_run_of_an_unknown_cluster_is_waited_for(tmp_path: Path) -> None:
    assert wait(tmp_path, "ok", ended("COMPLETED"), cluster=None).over


def test_a_directive_of_dependency_is_refused_beside_after() -> None:
    with pytest.raises(UsageError, match="--after and the directive 'dependency'"):
        check_can_wait(plan(gpus="4", sbatch=["dependency=afterok:7"]), "--after")
    check_can_wait(plan(gpus="4"), "--after")
