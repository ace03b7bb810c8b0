"""hpcrun as a plug-in of submitit: what AutoExecutor and JobEnvironment see of it."""

from __future__ import annotations

import os
import warnings
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import submitit
from submitit.core import plugins
from submitit.core.utils import JobPaths

from hpcrun.api.submitit_plugin import HpcrunExecutor, HpcrunJobEnvironment, _link_files
from hpcrun.errors import UsageError
from hpcrun.job.run_paths import RunFolder
from tests.harness import Hpcrun
from tests.unit.builders import write


def executor(**said: Any) -> submitit.AutoExecutor:
    return submitit.AutoExecutor("logs", cluster="hpcrun", hpcrun_profile="a100", **said)


def directives(auto: submitit.AutoExecutor) -> set[str]:
    text = cast(HpcrunExecutor, auto._executor)._executor.script()
    return {
        line.removeprefix("#SBATCH ") for line in text.splitlines() if line.startswith("#SBATCH ")
    }


@pytest.mark.parametrize(
    ("said", "directive"),
    [
        ({"timeout_min": 90, "mem_gb": 2.5}, "--time=01:30:00 --mem=2560M"),
        (
            {"nodes": 2, "gpus_per_node": 2, "tasks_per_node": 2},
            "--ntasks-per-node=2 --gres=gpu:a100:2",
        ),
        ({"cpus_per_task": 3, "name": "mine"}, "--cpus-per-task=3 --job-name=mine"),
        ({"hpcrun_partition": "debug", "slurm_partition": "other"}, "--partition=debug"),
        # its own parameter wins over the shared one
        ({"timeout_min": 90, "hpcrun_time": "4h"}, "--time=04:00:00"),
        ({"timeout_min": 90, "hpcrun_timeout_min": 30}, "--time=00:30:00"),
        ({"hpcrun_requeue": 2, "hpcrun_sbatch": {"comment": "word"}}, "--requeue --comment=word"),
    ],
    ids=str,
)
def test_shared_parameters_and_those_with_the_prefix_are_options_of_submit(
    said: dict[str, Any], directive: str
) -> None:
    auto = executor()
    auto.update_parameters(**said)
    assert directives(auto).issuperset(directive.split())


def test_parameters_of_the_constructor_and_of_update_are_shown_by_both_executors() -> None:
    auto = executor(hpcrun_qos="long")
    auto.update_parameters(timeout_min=5)
    assert (
        auto.parameters
        == auto._executor.parameters
        == {"profile": "a100", "qos": "long", "time": 5}
    )


@pytest.mark.parametrize(
    ("said", "error", "message"),
    [
        ({"hpcrun_partiton": "x"}, NameError, "'partiton'; did you mean 'partition'?"),
        ({"hpcrun_launcher": "torchrun"}, NameError, "no parameter 'launcher'"),
        ({"hpcrun_time": "soon"}, UsageError, "time='soon'"),
        ({"hpcrun_stderr_to_stdout": 1}, UsageError, "write True or False"),
    ],
    ids=str,
)
def test_a_wrong_parameter_is_refused(
    said: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        executor().update_parameters(**said)


def test_a_program_gets_hpcrun_only_if_it_names_it() -> None:
    assert plugins.get_executors()["hpcrun"] is HpcrunExecutor
    assert submitit.AutoExecutor.which() in ("slurm", "local")


def test_submitit_s_old_names_are_still_those_of_its_own_executors(tmp_path: Path) -> None:
    auto = submitit.AutoExecutor(tmp_path, cluster="debug")
    with pytest.warns(UserWarning, match="Use 'slurm_partition' instead"):
        auto.update_parameters(partition="x")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        auto.update_parameters(hpcrun_partition="x")  # for another cluster: no effect here
    with pytest.raises(NameError, match="did you mean 'partition'"):
        auto.update_parameters(hpcrun_partiton="x")


def test_finding_the_plug_in_loads_nothing_large(request: pytest.FixtureRequest) -> None:
    person: Hpcrun = request.getfixturevalue("hpcrun")
    program = """
import sys, submitit
at_once = [name for name in sys.modules if name.startswith("hpcrun")]
submitit.AutoExecutor("logs", cluster="debug").update_parameters(timeout_min=1, slurm_partition="x")
submitit.core.plugins.get_job_environments()
large = ("hpcrun", "pydantic", "jinja2", "pandas")
print(at_once, [name for name in sys.modules if name.startswith(large)])
"""
    said = person.run(f"{person.venv}/bin/python", "-c", program).stdout
    assert said == "[] ['hpcrun.version', 'hpcrun', 'hpcrun.api', 'hpcrun.api.submitit_plugin']\n"


@pytest.mark.parametrize("folder", ["logs", "logs/%j", "a 0; echo 'b'\n$(id)/%A/%a"])
def test_the_folder_gets_links_under_submitit_s_names(tmp_path: Path, folder: str) -> None:
    run = RunFolder(tmp_path / "runs/20261121-093012-train-3f2a")
    run.submitit.mkdir(parents=True)
    own = JobPaths(run.submitit, "7_2", 0)
    own.stdout.write_text("said")
    job: Any = SimpleNamespace(
        job_id="7_2", num_tasks=1, run_folder=run, task=lambda _: SimpleNamespace(paths=own)
    )
    names = JobPaths(tmp_path / folder, "7_2", 0)
    for _ in range(2):  # the second of a job with the same number, on another cluster
        _link_files(tmp_path / folder, job)
    assert names.stdout.read_text() == "said"
    assert os.readlink(names.submission_file) == str(run.script)
    assert os.readlink(names.result_pickle) == str(own.result_pickle)
    assert len(list(names.folder.iterdir())) == 5


def test_a_file_of_the_user_is_not_replaced(tmp_path: Path) -> None:
    own = SimpleNamespace(paths=JobPaths(tmp_path / "run", "7", 0))
    job: Any = SimpleNamespace(
        job_id="7", num_tasks=1, run_folder=RunFolder(tmp_path), task=lambda _: own
    )
    mine = write(tmp_path / "7_0_log.out", "mine")
    with pytest.raises(FileExistsError):
        _link_files(tmp_path, job)
    assert mine.read_text() == "mine"


def test_a_program_of_hpcrun_submit_knows_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not HpcrunJobEnvironment().activated()
    (tmp_path / "hosts").write_text("a100-1\na100-2\n")
    said = {"HPCRUN_ATTEMPT_DIR": str(tmp_path), "HPCRUN_JOB_ID": "8", "HPCRUN_NODE_RANK": "1"}
    for name, value in said.items():
        monkeypatch.setenv(name, value)
    here = submitit.JobEnvironment()
    assert here.cluster == "hpcrun"
    assert here.job_id == "8"
    assert here.hostnames == ["a100-1", "a100-2"]
    assert here.num_nodes == 2
    assert here.node == 1
    assert here.num_tasks == 2
    assert here.global_rank == 1
    assert here.local_rank == 0
    ranks = {
        "RANK": "3",
        "WORLD_SIZE": "4",
        "LOCAL_RANK": "1",
        "SLURM_ARRAY_JOB_ID": "7",
        "SLURM_ARRAY_TASK_ID": "5",
    }
    for name, value in ranks.items():
        monkeypatch.setenv(name, value)
    assert here.num_tasks == 4
    assert here.global_rank == 3
    assert here.local_rank == 1
    assert here.job_id == "7_5"
    # a submitted function, on a node that need not have hpcrun
    monkeypatch.setenv("SUBMITIT_EXECUTOR", "slurm")
    assert submitit.JobEnvironment().cluster == "slurm"
