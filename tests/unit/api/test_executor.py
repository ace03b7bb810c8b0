"""hpcrun.Executor: its parameters, and the scripts they make."""

from __future__ import annotations

import inspect
import sys
import threading
import traceback
from pathlib import Path
from typing import Any

import pytest

import hpcrun
from hpcrun.api.executor import _names
from hpcrun.errors import PlanError, ProfileError, UsageError
from hpcrun.in_job.hpcrun_function import STDERR_TO_STDOUT
from hpcrun.job.resources.cpus_memory_time import Machine
from hpcrun.job.text.quoting import quote_bash
from tests.harness import Hpcrun
from tests.unit.builders import laptop, plan


def directives(**said: Any) -> set[str]:
    text = hpcrun.Executor(**{"profile": "a100", **said}).script()
    return {
        line.removeprefix("#SBATCH ") for line in text.splitlines() if line.startswith("#SBATCH ")
    }


@pytest.mark.parametrize(
    ("said", "directives_"),
    [
        ({"gpus": 4, "nodes": 2}, ["--nodes=2", "--gres=gpu:a100:2", "--ntasks-per-node=1"]),
        ({"gpus": "a100:2"}, ["--gres=gpu:a100:2"]),
        ({"gpus_per_node": 2, "nodes": 2, "tasks_per_node": 2}, ["--ntasks-per-node=2"]),
        ({"time": "4h", "mem": "64G"}, ["--time=04:00:00", "--mem=64G"]),
        ({"time": 240}, ["--time=04:00:00"]),  # minutes, as --time 240
        ({"time": "240"}, ["--time=04:00:00"]),
        (
            {"sbatch": {"comment": "a word", "exclusive": True}},
            ['--comment="a word"', "--exclusive"],
        ),
        ({"sbatch": {"exclusive": None}}, ["--exclusive"]),
        ({"sbatch": ["nice=5"]}, ["--nice=5"]),
        ({"sbatch": {"nice": 1}}, ["--nice=1"]),
        (
            {"requeue": 3, "notify": "mailto:ada@example.org"},
            ["--requeue", "--mail-user=ada@example.org"],
        ),
    ],
    ids=str,
)
def test_parameters_are_the_options_of_submit(said: dict[str, Any], directives_: list[str]) -> None:
    assert directives(**said).issuperset(directives_)


@pytest.mark.parametrize(
    ("given", "same"),
    [
        ({"timeout_min": 30, "mem_gb": 2.5}, {"time": "30m", "mem": "2560M"}),
        ({"timeout_min": 30, "time": "4h"}, {"time": "4h"}),
        ({"timeout_min": None, "setup": None}, {}),
        ({"max_num_timeout": 2, "signal_delay_s": 90}, {"requeue": 2, "warn": "90s"}),
        ({"gres": "gpu:a100:2"}, {"gpus_per_node": "a100:2"}),
        ({"gres": "gpu:2"}, {"gpus_per_node": 2}),
        ({"gres": "gpu"}, {"gpus_per_node": 1}),
        ({"gpus_per_task": 2}, {"gpus_per_node": 2}),
        ({"gpus_per_task": 1, "tasks_per_node": 2}, {"gpus_per_node": 2, "tasks_per_node": 2}),
        ({"gpus_per_task": 1, "tasks_per_node": "4"}, {"gpus_per_node": 4, "tasks_per_node": 4}),
        ({"srun_args": ["--cpu-bind=none"]}, {"srun": {"cpu-bind": "none"}}),
        ({"mem_per_gpu": "4G", "exclusive": False}, {"sbatch": {"mem-per-gpu": "4G"}}),
        ({"comment": "mine", "sbatch": ["nice=5"]}, {"sbatch": {"comment": "mine", "nice": 5}}),
        ({"additional_parameters": {"mail_type": "END"}}, {"sbatch": {"mail-type": "END"}}),
        ({"submitit_folder": "logs", "use_srun": True}, {}),
    ],
    ids=str,
)
def test_the_names_of_submitit_and_of_its_launcher_for_hydra_mean_the_same(
    given: dict[str, Any], same: dict[str, Any]
) -> None:
    script = hpcrun.Executor("a100", **given).script()
    assert script == hpcrun.Executor("a100", **same).script()


def test_earlier_tasks_of_a_node_count_for_gpus_per_task() -> None:
    executor = hpcrun.Executor("a100", tasks_per_node=2)
    executor.update_parameters(gpus_per_task=2)
    assert executor.parameters["gpus_per_node"] == 4


def test_a_name_without_an_effect_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    executor = hpcrun.Executor("a100", submitit_folder="logs")
    executor.update_parameters(comment="old")
    executor.update_parameters(comment="new")
    assert "--comment=new" in executor.script()
    assert caplog.messages == [
        "submitit_folder has no effect: the files of a job are in the folder of its run"
    ]


@pytest.mark.parametrize(
    ("parameter", "text"),
    [
        ("mounts", "/data:/mnt"),
        ("env", "MODE=fast"),
        ("load", "cuda"),
        ("setup", "ulimit -c 0"),
        ("secrets", "TOKEN"),
        ("stage", "/etc/hostname"),
        ("notify", "mailto:ada@example.org"),
        ("srun", "cpu-bind=none"),
        ("sbatch", "nice=5"),
        ("no_sbatch", "mem"),
    ],
)
def test_one_value_of_an_option_that_repeats_needs_no_list(
    parameter: str, text: str, tmp_path: Path
) -> None:
    more: dict[str, Any] = {"profile": "a100", "mem": "4G"}
    if parameter == "mounts":
        more["container"] = tmp_path / "image.sif"
        more["container"].touch()
    one = hpcrun.Executor(**{**more, parameter: text}).script()
    assert one == hpcrun.Executor(**{**more, parameter: [text]}).script()


def test_options_of_srun_stand_on_the_line_that_starts_the_tasks() -> None:
    text = hpcrun.Executor("a100", gpus=2, srun={"cpu-bind": "none", "overlap": True}).script()
    assert "--kill-on-bad-exit=1 --cpu-bind=none --overlap \\\n" in text


def test_a_destination_with_a_secret_is_refused_and_not_repeated() -> None:
    with pytest.raises(UsageError, match=r"notify=\.\.\.: holds") as refused:
        hpcrun.Executor("a100", notify=["gotify://host/hushhush"]).script()
    assert "hush" not in str(refused.value)


def test_environment_set_up_and_python_stand_in_the_script_and_no_folder_of_a_run(
    tmp_path: Path, subtests: pytest.Subtests
) -> None:
    text = hpcrun.Executor(
        "a100", env={"MODE": "it's", "N": 3}, setup="ulimit -c 0", load=["cuda"]
    ).script()
    python = f"command=({quote_bash(sys.executable)} -u -m hpcrun_function)"
    for part in (
        "export MODE='it'\\''s'",
        "export N=3",
        "eval 'ulimit -c 0'",
        "module load cuda",
        python,
    ):
        with subtests.test(part=part):
            assert part in text
    assert str(tmp_path / "runs") not in text


@pytest.mark.parametrize("workdir", ["code", "~/code"])
def test_a_job_starts_in_the_folder_of_workdir(workdir: str, tmp_path: Path) -> None:
    (tmp_path / "code").mkdir()
    script = hpcrun.Executor("a100", workdir=workdir).script()
    assert f"cd -- {tmp_path}/code" in script


def test_a_workdir_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=f"workdir: there is no folder {tmp_path}/code"):
        hpcrun.Executor("a100", workdir="code").script()


@pytest.mark.parametrize(("merges", "number"), [(True, 1), (False, 0)])
def test_both_streams_of_a_function_are_one_log_on_request(merges: bool, number: int) -> None:
    text = hpcrun.Executor("a100", stderr_to_stdout=merges).script()
    assert text.count(f"export {STDERR_TO_STDOUT}=1\n") == number


@pytest.mark.parametrize("variable", ["VIRTUAL_ENV", "CONDA_PREFIX"])
@pytest.mark.parametrize(
    ("prefix", "activates"),
    [pytest.param(sys.prefix, True, id="its own"), pytest.param("/opt/other", False, id="another")],
)
def test_a_job_activates_the_environment_of_this_python_alone(
    variable: str, prefix: str, activates: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, prefix)
    script = hpcrun.Executor("a100").script()
    assert (f"export {variable}={quote_bash(prefix)}\n" in script) == activates


def test_several_calls_are_an_array_and_one_is_none() -> None:
    executor = hpcrun.Executor("a100", array_parallelism=2)
    assert "#SBATCH --array=0-4%2\n" in executor.script(elements=5)
    assert "--array" not in executor.script()


@pytest.mark.parametrize(
    ("gpus", "said", "at_once"),
    [
        pytest.param("1", {}, 1, id="with GPUs"),
        pytest.param("0", {}, 4, id="without GPUs"),
        pytest.param("1", {"array_parallelism": 2}, 2, id="said"),
    ],
)
def test_calls_with_local_gpus_run_one_by_one(
    gpus: str, said: dict[str, Any], at_once: int
) -> None:
    here = plan(laptop(), machine=Machine(cpus=8, gpu_ids=("0", "1")), gpus=gpus)
    array = hpcrun.Executor("local", **said)._array(here, 4)
    assert array.at_once == at_once
    assert array.elements == (0, 1, 2, 3)


def test_update_parameters_changes_what_was_said_and_nothing_else() -> None:
    executor = hpcrun.Executor("a100", gpus=4, time="4h")
    executor.update_parameters(time="1h", gpus=None)
    assert "--time=01:00:00" in executor.script()
    assert "gpu:a100:4" not in executor.script()


@pytest.mark.parametrize(
    ("said", "message", "hint"),
    [
        ({"profle": "a100"}, "Executor has no parameter 'profle'", "did you mean 'profile'?"),
        ({"node": 2}, "no parameter 'node'", "did you mean 'nodes'?"),
        ({"launcher": "torchrun"}, "no parameter 'launcher'", None),
        ({"timeout": 3}, "no parameter 'timeout'", "did you mean 'timeout_min'?"),
        ({"mem_gb": "64"}, "mem_gb='64': is not a number", None),
        ({"additional_parameters": 3}, "additional_parameters=3: is not a mapping", None),
        ({"time": "soon"}, "time='soon': ", None),
        ({"gpus": True}, "gpus=True: ", None),
        ({"nodes": 0}, "nodes=0: ", None),
        ({"nodes": "2-4"}, "nodes='2-4': a function has a result for each task", "nodes=4"),
        ({"env": {"A B": 1}}, "env=", None),
        ({"setup": 5}, "setup=5: ", None),
        ({"array_parallelism": 0}, "array_parallelism=0", None),
    ],
    ids=str,
)
def test_what_cannot_be_is_refused_at_once(
    said: dict[str, Any], message: str, hint: str | None
) -> None:
    with pytest.raises(UsageError) as caught:
        hpcrun.Executor(**said)
    assert message in caught.value.message
    assert hint is None or caught.value.hint == hint


def test_a_profile_s_errors_are_raised_and_not_printed(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ProfileError, match="a1000"):
        hpcrun.Executor("a1000").submit(len, [])
    with pytest.raises(PlanError, match="GPUs per node"):
        hpcrun.Executor("a100", gpus_per_node=64).submit(len, [])
    with pytest.raises(UsageError, match="starts one task on each node"):
        hpcrun.Executor("local", tasks_per_node=2).submit(len, [])
    assert capfd.readouterr() == ("", "")


def test_what_cannot_travel_is_refused_before_there_is_a_run(tmp_path: Path) -> None:
    with pytest.raises(
        UsageError, match=r"len and its arguments cannot be pickled: .*lock"
    ) as caught:
        hpcrun.Executor("local").submit(len, [threading.Lock()])
    assert "inside the function" in (caught.value.hint or "")
    assert not (tmp_path / "runs").exists()


def test_without_slurm_a_slurm_profile_cannot_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(PlanError, match="no sbatch"):
        hpcrun.Executor("a100").submit(len, [])
    assert not list((tmp_path / "runs").glob("2*"))


@pytest.mark.skipif(
    sys.version_info < (3, 11), reason="exceptions have no notes before Python 3.11"
)
def test_a_traceback_shows_the_hint() -> None:
    with pytest.raises(UsageError) as caught:
        hpcrun.Executor(profle="a100")  # type: ignore[call-arg]
    assert traceback.format_exception(caught.value)[-1] == "hint: did you mean 'profile'?\n"


def test_the_signature_has_each_parameter_with_its_type() -> None:
    executor = inspect.signature(hpcrun.Executor).parameters
    assert {*executor} == {*_names()}
    assert executor["gpus"].annotation == "int | str | None"
    assert {*inspect.signature(hpcrun.Executor.update_parameters).parameters} == {"self", *_names()}


def test_mypy_knows_the_parameters_and_their_types() -> None:
    """The comments tell mypy to complain, and mypy complains of a comment without need."""
    with pytest.raises(UsageError):
        hpcrun.Executor(gpu=4)  # type: ignore[call-arg]
    with pytest.raises(UsageError):
        hpcrun.Executor(requeue=[])  # type: ignore[arg-type]
    with pytest.raises(UsageError):
        hpcrun.Executor("a100").update_parameters(requeue=[])  # type: ignore[arg-type]
    hpcrun.Executor("a100", gpus="a100:4", timeout_min=90, workdir=Path(), setup=["true"])


@pytest.mark.parametrize("name", ["sweep", "sweep_file", "elements", "max_parallel"])
def test_options_of_sweeps_are_no_parameters(name: str) -> None:
    with pytest.raises(UsageError, match=f"no parameter '{name}'"):
        hpcrun.Executor(**{name: ["lr=1,2"]})  # type: ignore[arg-type]


def test_the_package_has_no_other_names() -> None:
    with pytest.raises(AttributeError, match="Exekutor"):
        getattr(hpcrun, "Exekutor")  # noqa: B009


def test_importing_the_package_costs_nothing(request: pytest.FixtureRequest) -> None:
    person: Hpcrun = request.getfixturevalue("hpcrun")  # a name that is the package's here
    program = (
        "import sys, hpcrun; print(sorted(sys.modules.keys() & {'submitit', 'pydantic', "
        "'cloudpickle'}))"
    )
    assert person.run(f"{person.venv}/bin/python", "-c", program).stdout == "[]\n"
