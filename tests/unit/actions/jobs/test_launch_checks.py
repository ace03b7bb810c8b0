"""Which launches are refused here, and who is asked about them: programs of a test's own."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import pytest

from hpcrun.actions.jobs.launch_checks import check_launch_options
from hpcrun.errors import UsageError
from hpcrun.job.plan.job_plan import PythonEnvironment
from tests.unit.builders import plan, request, slurm_profile, write

PYTHON = "test/bin/python"
UNKNOWN = """#!/bin/sh
echo "srun: unrecognized option '--cpu-bimd=none'" >&2
[ $# = 0 ] && echo 'srun: fatal: No command given to execute.' >&2
exit 255
"""
NO_NUMBER = """#!/bin/sh
echo 'torchrun: error: argument --max-restarts: invalid int value' >&2
exit 2
"""
MISSPELT = """#!/bin/sh
echo 'torchrun: error: unrecognized arguments: --max-restartz=3' >&2
exit 2
"""
OLD = """#!/bin/sh
echo 'error: the lockfile needs to be updated' >&2
exit 1
"""


def check(folder: Path, python: PythonEnvironment, profile: str = "", **asked: Any) -> None:
    """Check the launch of a job where the programs in ``folder`` are the first on PATH."""
    options: dict[str, Any] = {"srun": {"cpu-bimd": "none"}} if profile else {}
    made = plan(slurm_profile(name=profile or "big", **options), python=python, **asked)
    check_launch_options(request(**asked), made, {"PATH": f"{folder}:/usr/bin:/bin"})


def program(path: Path, text: str) -> Path:
    write(path, text).chmod(0o755)
    return path


def python_of(folder: Path, text: str, **said: Any) -> PythonEnvironment:
    return PythonEnvironment(str(program(folder / PYTHON, text)), "PATH", **said)


@pytest.mark.parametrize(
    ("profile", "asked", "where"),
    [
        pytest.param("", {"srun": ["cpu-bimd=none"]}, "--srun: ", id="typed"),
        pytest.param("mine", {}, "srun: of profile 'mine': ", id="profile"),
    ],
)
def test_an_option_unknown_to_srun_has_a_similar_one(
    profile: str, asked: dict[str, Any], where: str, tmp_path: Path
) -> None:
    program(tmp_path / "srun", UNKNOWN)
    with pytest.raises(UsageError) as refused:
        check(tmp_path, PythonEnvironment("python", "PATH"), profile, gpus="4", **asked)
    words = "srun refuses it: unrecognized option '--cpu-bimd=none'"
    assert refused.value.message == where + words
    assert refused.value.hint == "did you mean cpu-bind?"


@pytest.mark.parametrize(
    ("answer", "option", "hint"),
    [
        pytest.param(MISSPELT, "max-restartz=3", "did you mean max-restarts?", id="name"),
        pytest.param(
            NO_NUMBER, "max-restarts=x", "`torchrun --help` lists its options", id="value"
        ),
    ],
)
def test_torchruns_refusal_has_a_hint(answer: str, option: str, hint: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--torchrun: torchrun refuses it: ") as refused:
        check(tmp_path, python_of(tmp_path, answer), gpus="4", torchrun=[option])
    assert refused.value.hint == hint


def test_a_python_of_the_project_is_not_asked(tmp_path: Path) -> None:
    python = python_of(tmp_path, MISSPELT, of_project=True)
    check(tmp_path, python, gpus="4", torchrun=["max-restartz=3"])


def test_an_outdated_lock_is_refused_with_the_command_to_run(tmp_path: Path) -> None:
    program(tmp_path / "uv", OLD)
    project = "/my project"
    python = PythonEnvironment("python", "uv", uv_project=project)
    with pytest.raises(UsageError) as refused:
        check(tmp_path, python, gpus="4")
    assert refused.value.message == "--uv: error: the lockfile needs to be updated"
    assert refused.value.hint == f"uv lock --project {shlex.quote(project)}"


def test_a_lock_that_is_current_is_taken(tmp_path: Path) -> None:
    program(tmp_path / "uv", "#!/bin/sh\n")
    check(tmp_path, PythonEnvironment("python", "uv", uv_project="/project"), gpus="4")
