"""The request of a run, as it would be typed again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hpcrun.actions.jobs.resubmit import (
    check_over,
    folder_of,
    lineage_of,
    repeated,
    same_python,
)
from hpcrun.errors import PlanError, UsageError
from hpcrun.job.job_states import JobInfo
from hpcrun.job.plan.job_plan import Plan, Snapshot
from hpcrun.job.request.after import After
from hpcrun.job.request.job_request import given_fields
from hpcrun.job.request.read_request import read_request
from hpcrun.job.run_paths import RunFolder
from hpcrun.runs.record import LastStatus
from hpcrun.runs.store import RunStore
from hpcrun.schedulers.protocol import JobRef
from tests.unit.builders import Takes, plan, ports, run


def again(
    request: dict[str, Any], here: dict[str, str] | None = None, /, **asked: Any
) -> dict[str, Any]:
    said = repeated(run(request={"script": "train.py", **request}), asked, here or {})
    return given_fields(read_request(said))


def test_nothing_is_changed_that_was_not_said() -> None:
    same = {"gpus": {"count": 4, "type": "a100"}, "walltime_s": 60, "requeue": 2}
    before = {**same, "args": ["--lr", "1"], "sbatch": ["nice=1"], "env": [["A", "1"]]}
    after = {**same, "args": ("--lr", "1"), "sbatch": ("nice=1",), "env": (("A", "1"),)}
    assert again(before) == {"script": "train.py", "name": "train", **after}


@pytest.mark.parametrize(
    ("before", "asked", "after"),
    [
        ({"srun": ["mpi=pmix"]}, {"srun": ["mpi=none"]}, {"srun": ("mpi=pmix", "mpi=none")}),
        ({"torchrun": ["max-restarts=1"]}, {}, {"torchrun": ("max-restarts=1",)}),
        ({"segment": 4}, {"segment": 2}, {"segment": 2}),
        ({"gpus_per_node": {"count": 2}}, {"gpus": "8"}, {"gpus": {"count": 8}}),
        ({"gpus": {"count": 2}}, {"gpus_per_node": "4"}, {"gpus_per_node": {"count": 4}}),
        ({"cpus": 4}, {"cpus_per_gpu": 2}, {"cpus_per_gpu": 2}),
        ({"env": [["A", "1"], ["B", "2"]]}, {"env": ["A=3"]}, {"env": (("B", "2"), ("A", "3"))}),
        ({"sbatch": ["nice=1"]}, {"sbatch": ["nice=2"]}, {"sbatch": ("nice=1", "nice=2")}),
        ({"load": ["cuda/12"]}, {"load": ["cuda/13"]}, {"load": ("cuda/13",)}),
        ({"args": ["x"]}, {"args": []}, {}),
        # the arguments of the script that an interpreter runs, and not those of the interpreter
        (
            {"script": "python", "args": ["-u", "train.py", "--lr", "1"]},
            {"args": ["--lr", "2"]},
            {"script": "python", "args": ("-u", "train.py", "--lr", "2")},
        ),
        (
            {"script": "env", "args": ["A=1", "python", "-m", "train", "x"]},
            {"args": []},
            {"script": "env", "args": ("A=1", "python", "-m", "train")},
        ),
    ],
)
def test_what_is_said_counts(
    before: dict[str, Any], asked: dict[str, Any], after: dict[str, Any]
) -> None:
    assert again(before, **asked) == {"script": "train.py", "name": "train", **after}


def test_a_secret_comes_from_here() -> None:
    request = {"env": [["HF_TOKEN", "***"], ["STARS", "***"]]}
    assert again(request, {"HF_TOKEN": "x"})["env"] == (("HF_TOKEN", "x"), ("STARS", "***"))
    assert again(request, env=["HF_TOKEN=y"])["env"] == (("STARS", "***"), ("HF_TOKEN", "y"))
    with pytest.raises(UsageError, match="HF_TOKEN is a secret"):
        again(request)


def test_the_python_environment_is_the_runs() -> None:
    python = {"executable": "/v/bin/python", "prefix": "/v", "variable": "VIRTUAL_ENV"}
    env = {"CONDA_PREFIX": "/c", "VIRTUAL_ENV": "/other", "A": "1"}
    assert same_python(python, env) == {"A": "1", "VIRTUAL_ENV": "/v"}
    assert same_python({**python, "prefix": None}, env) == {"A": "1"}


class Runs(Takes):
    """A scheduler that lists every job as running."""

    def poll(self, refs: Sequence[JobRef]) -> dict[Path, JobInfo]:
        """List the jobs."""
        return {ref.folder: JobInfo("4711", "RUNNING") for ref in refs}


def test_a_run_that_has_not_ended_is_repeated_by_force_or_after_its_end(tmp_path: Path) -> None:
    store = RunStore(tmp_path)
    earlier = run(job_id="4711")
    store.create(earlier, "")
    port = ports(store, Runs(), 1000.0)
    with pytest.raises(PlanError, match="has not ended: RUNNING"):
        check_over(earlier, (), port, force=False)
    check_over(earlier, (), port, force=True)
    check_over(earlier, (After("4711"),), port, force=False)


def test_a_run_that_has_ended_is_repeated(tmp_path: Path) -> None:
    store = RunStore(tmp_path)
    earlier = run(job_id="4711")
    store.create(earlier, "")
    store.save_status(earlier.run_id, LastStatus("FAILED", 900.0, final=True, forgotten=True))
    check_over(earlier, (), ports(store, Runs(), 1000.0), force=False)


def test_the_folder_of_a_submission_is_the_one_that_still_exists(tmp_path: Path) -> None:
    assert folder_of(str(tmp_path), "run train") == tmp_path
    for gone in (None, str(tmp_path / "gone")):
        with pytest.raises(PlanError, match="run train was submitted from no longer exists"):
            folder_of(gone, "run train")


WITH_SNAPSHOT = replace(plan(gpus="1"), snapshot=Snapshot(".", (".",)))


@pytest.mark.parametrize(
    ("new", "old", "new_snapshot", "is_shared"),
    [
        (WITH_SNAPSHOT, {"snapshot": {"folder": "."}}, False, True),
        (WITH_SNAPSHOT, {"snapshot": {"folder": "."}}, True, False),
        (WITH_SNAPSHOT, {}, False, False),
        (plan(gpus="1"), {"snapshot": {"folder": "."}}, False, False),
    ],
    ids=["the same snapshot", "a new snapshot", "none before", "none now"],
)
def test_the_code_is_that_of_the_earlier_snapshot_if_both_have_one(
    new: Plan, old: dict[str, Any], new_snapshot: bool, is_shared: bool, tmp_path: Path
) -> None:
    store = RunStore(tmp_path)
    earlier = run(job_id="4711", plan=old)
    store.create(earlier, "")
    folder = store.folder(earlier.run_id)
    RunFolder(folder).code.mkdir()
    lineage = lineage_of(earlier, new, store=store, fresh=False, new_snapshot=new_snapshot)
    assert lineage.code == (folder if is_shared else None)
    assert lineage.checkpoints == folder
    assert lineage.resubmitted_from == earlier.run_id


def test_a_snapshot_that_is_gone_is_an_error(tmp_path: Path) -> None:
    store = RunStore(tmp_path)
    earlier = run(job_id="4711", plan={"snapshot": {"folder": "."}})
    store.create(earlier, "")
    with pytest.raises(PlanError, match=r"the snapshot of .* is gone"):
        lineage_of(earlier, WITH_SNAPSHOT, store=store, fresh=True, new_snapshot=False)
