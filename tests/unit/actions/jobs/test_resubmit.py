"""The request of a run, as it would be typed again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hpcrun.actions.jobs import resubmit
from hpcrun.actions.jobs.resubmit import (
    alone_on,
    check_no_calls,
    check_over,
    failed_of,
    family_of,
    folder_of,
    lineage_of,
    repeated,
    same_python,
    stdin_of,
)
from hpcrun.errors import PlanError, UsageError
from hpcrun.job.job_states import JobInfo
from hpcrun.job.plan.job_plan import Plan, Snapshot
from hpcrun.job.request.after import After
from hpcrun.job.request.job_request import given_fields
from hpcrun.job.request.read_request import read_request
from hpcrun.job.run_paths import RunFolder
from hpcrun.runs.elements import save_statuses
from hpcrun.runs.record import LastStatus, Run
from hpcrun.runs.store import RunStore
from hpcrun.schedulers.protocol import JobRef
from tests.unit.builders import Takes, plan, ports, run, write


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
        ({"warm": True}, {"no_warm": True}, {"no_warm": True}),
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


def test_a_run_that_has_not_ended_is_repeated_after_its_end(tmp_path: Path) -> None:
    store = RunStore(tmp_path)
    earlier = run(job_id="4711")
    store.create(earlier, "")
    port = ports(store, Runs(), 1000.0)
    with pytest.raises(PlanError, match="has not ended: RUNNING"):
        check_over(earlier, (), port)
    check_over(earlier, (After("4711"),), port)


def test_a_run_that_has_ended_is_repeated(tmp_path: Path) -> None:
    store = RunStore(tmp_path)
    earlier = run(job_id="4711")
    store.create(earlier, "")
    store.save_status(earlier.run_id, LastStatus("FAILED", 900.0, final=True, forgotten=True))
    check_over(earlier, (), ports(store, Runs(), 1000.0))


FIRST = "20260102-030401-train-0a1b"
SECOND = "20260102-030401-again-0a1b"  # of the same second, and before the first by its name
THIRD = "20260102-030403-train-0a1b"
OTHER = "20260102-030404-train-0a1b"


def family(folder: Path) -> RunStore:
    """Three runs that have ended and share checkpoints, one after the other, and another run."""
    store = RunStore(folder)
    for run_id, job_id, earlier in (
        (FIRST, "1", None),
        (SECOND, "2", FIRST),
        (THIRD, "3", SECOND),
        (OTHER, "4", None),
    ):
        store.create(run(run_id, job_id=job_id, checkpoints_of=earlier), "")
        store.save_status(run_id, LastStatus("FAILED", 900.0, final=True, forgotten=True))
    return store


@pytest.mark.parametrize("run_id", [FIRST, SECOND, THIRD])
def test_all_runs_that_share_checkpoints_are_a_family(run_id: str, tmp_path: Path) -> None:
    store = family(tmp_path)
    members = {member.run_id for member in family_of(store.load(run_id), store)}
    assert members == {FIRST, SECOND, THIRD}


def test_a_family_stays_one_when_its_first_run_is_removed(tmp_path: Path) -> None:
    store = family(tmp_path)
    store.delete(FIRST)
    members = {member.run_id for member in family_of(store.load(THIRD), store)}
    assert members == {SECOND, THIRD}


@pytest.mark.parametrize("run_id", [FIRST, SECOND, THIRD])
def test_no_second_run_writes_the_checkpoints_of_a_family_of_which_one_runs(
    run_id: str, tmp_path: Path
) -> None:
    store = family(tmp_path)
    port = ports(store, Runs(), 1000.0)
    store.save_status(SECOND, LastStatus("RUNNING", 900.0))
    with pytest.raises(PlanError, match=rf"{SECOND}.* has not ended: RUNNING"):
        check_over(store.load(run_id), (), port)
    check_over(store.load(OTHER), (), port)


def test_a_run_that_may_have_been_requeued_is_not_repeated(tmp_path: Path) -> None:
    store = family(tmp_path)
    store.save_status(SECOND, LastStatus("FAILED", 900.0, final=True))
    store.change(store.load(SECOND), cluster="beta")
    with pytest.raises(PlanError, match=f"{SECOND}: it ended as FAILED, but may have been"):
        check_over(store.load(FIRST), (), ports(store, Runs(), 1000.0))


def test_a_run_with_checkpoints_of_its_own_waits_for_no_family(tmp_path: Path) -> None:
    store = family(tmp_path)
    store.save_status(SECOND, LastStatus("RUNNING", 900.0))
    check_over(store.load(THIRD), (), ports(store, Runs(), 1000.0), fresh=True)


def test_after_a_run_those_have_ended_for_which_it_waits(tmp_path: Path) -> None:
    store = family(tmp_path)
    for run_id in (FIRST, SECOND):
        store.save_status(run_id, LastStatus("PENDING", 900.0))
    wait = {"run_id": FIRST, "job_id": "1", "condition": "any", "over": False}
    store.change(store.load(SECOND), after=[wait])
    check_over(store.load(SECOND), (After("2"),), ports(store, Runs(), 1000.0))


def test_of_a_sweep_only_the_same_elements_must_have_ended(tmp_path: Path) -> None:
    store = RunStore(tmp_path)
    sweep = run(job_id="4711", plan={"sweep": {"indices": "0-2", "first": 0}})
    store.create(sweep, "")
    ended = LastStatus("FAILED", 900.0, final=True, forgotten=True)
    save_statuses(store.folder(sweep.run_id), {1: ended})
    port = ports(store, Runs(), 1000.0)
    check_over(sweep, (), port, (1,))
    with pytest.raises(PlanError, match="has not ended: RUNNING"):
        check_over(sweep, (), port, (1, 2))


def test_one_process_at_a_time_resubmits_a_run_of_a_family(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resubmit, "_LOCK_WAIT_S", 0.0)
    store = family(tmp_path)
    with alone_on(store.load(FIRST), store):
        refused = pytest.raises(PlanError, match="another hpcrun resubmits")
        with refused, alone_on(store.load(THIRD), store):
            pass
        with alone_on(store.load(OTHER), store):
            pass


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


# --- runs that are repeated in another way, and elements ---


def kept(folder: Path, **said: Any) -> tuple[Run, RunStore]:
    """A run in its store."""
    store = RunStore(folder)
    made = run(**said)
    store.create(made, "")
    return made, store


def final(state: str) -> LastStatus:
    """A status that nobody needs to ask about again."""
    return LastStatus(state, 900.0, final=True, forgotten=True)


def test_calls_of_python_functions_are_not_repeated_here(tmp_path: Path) -> None:
    made, store = kept(tmp_path)
    check_no_calls(made, store)
    write(RunFolder(store.folder(made.run_id)).calls, "")
    with pytest.raises(PlanError, match="called Python functions"):
        check_no_calls(made, store)


def test_a_script_of_stdin_is_read_from_the_run(tmp_path: Path) -> None:
    made, store = kept(tmp_path, request={"script": "-"})
    with pytest.raises(PlanError, match="has no copy of its script"):
        stdin_of(made, store)
    write(RunFolder(store.folder(made.run_id)).stdin, "#!/bin/bash\n")
    assert stdin_of(made, store) == "#!/bin/bash\n"
    assert stdin_of(run(request={"script": "train.py"}), store) is None


SWEEP = {"sweep": {"indices": "0-2", "first": 0}}


@pytest.mark.parametrize(
    ("states", "failed"),
    [
        pytest.param(["FAILED", "COMPLETED", "TIMEOUT"], (0, 2), id="two"),
        pytest.param(["COMPLETED", "COMPLETED", "CANCELLED"], (2,), id="cancelled"),
    ],
)
def test_the_failed_elements_are_those_that_did_not_complete(
    states: list[str], failed: tuple[int, ...], tmp_path: Path
) -> None:
    made, store = kept(tmp_path, plan=SWEEP)
    save_statuses(store.folder(made.run_id), dict(enumerate(map(final, states))))
    assert failed_of(made, ports(store, Runs(), 1000.0)) == failed


@pytest.mark.parametrize(
    ("plan", "message", "hint"),
    [
        pytest.param({}, "is no sweep", "hpcrun resubmit 4711 repeats it", id="no sweep"),
        pytest.param(
            SWEEP, "no element of .* has failed", "hpcrun resubmit 4711 repeats all", id="none"
        ),
    ],
)
def test_a_run_without_failed_elements_has_none_to_repeat(
    plan: dict[str, Any], message: str, hint: str, tmp_path: Path
) -> None:
    made, store = kept(tmp_path, plan=plan)
    if plan:
        save_statuses(store.folder(made.run_id), dict.fromkeys(range(3), final("COMPLETED")))
    else:
        store.save_status(made.run_id, final("FAILED"))
    with pytest.raises(PlanError, match=message) as refused:
        failed_of(made, ports(store, Runs(), 1000.0))
    assert (refused.value.hint or "").startswith(hint)
