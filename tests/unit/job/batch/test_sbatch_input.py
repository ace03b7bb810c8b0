"""sbatch's own variables: each one counts, or is named."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from hpcrun.errors import UsageError
from hpcrun.job.batch.sbatch_input import DIRECTIVES, apply_sbatch_env
from hpcrun.job.request.job_request import given_fields
from hpcrun.job.request.read_request import read_request
from tests.unit.builders import plan, request, slurm_profile

TOGETHER = {"SBATCH_REQ_SWITCH", "SBATCH_WAIT4SWITCH"}
# of "INPUT ENVIRONMENT VARIABLES" those that stand for no directive
OTHERS = {
    "SLURM_CONF",
    "SLURM_DEBUG_FLAGS",
    "SLURM_EXIT_ERROR",
    "SLURM_STEP_KILLED_MSG_NODE_ID",
    "SLURM_UMASK",
}


def directives(env: dict[str, str], **asked: Any) -> dict[str, str | None]:
    """The directives of a job that is submitted with these variables."""
    found, _ = apply_sbatch_env(request(**asked), env)
    said = {
        name: value for name, value in given_fields(found).items() if name not in ("script", "gpus")
    }
    return dict(plan(slurm_profile(partition="theirs"), gpus="2", **said).directives)


def notes(env: dict[str, str]) -> tuple[str, ...]:
    return tuple(
        note
        for note in apply_sbatch_env(request(), env)[1]
        if not note.startswith("from your shell: ")
    )


@pytest.mark.parametrize(
    ("env", "directive", "value"),
    [
        ({"SBATCH_PARTITION": "p"}, "partition", "p"),
        ({"SBATCH_ACCOUNT": "a"}, "account", "a"),
        ({"SBATCH_WCKEY": "w"}, "wckey", "w"),
        ({"SBATCH_TIMELIMIT": "30"}, "time", "00:30:00"),
        ({"SBATCH_MEM_PER_NODE": "4G"}, "mem", "4G"),
        ({"SBATCH_MEM_PER_GPU": "4G"}, "mem-per-gpu", "4G"),
        ({"SBATCH_JOB_NAME": "n"}, "job-name", "n"),
        ({"SBATCH_HINT": "nomultithread"}, "hint", "nomultithread"),
        ({"SLURM_HINT": "nomultithread"}, "hint", "nomultithread"),
        ({"SBATCH_GPU_BIND": "closest"}, "gpu-bind", "closest"),
        ({"SBATCH_BURST_BUFFER": "b"}, "bb", "b"),
        ({"SBATCH_EXCLUSIVE": ""}, "exclusive", None),
        ({"SBATCH_EXCLUSIVE": "user"}, "exclusive", "user"),
        ({"SBATCH_SPREAD_JOB": "1"}, "spread-job", None),
        ({"SBATCH_REQ_SWITCH": "1"}, "switches", "1"),
        ({"SBATCH_REQ_SWITCH": "1", "SBATCH_WAIT4SWITCH": "1:00"}, "switches", "1@1:00"),
    ],
)
def test_one_for_a_directive_of_the_person_s_own_becomes_that(
    env: dict[str, str], directive: str, value: str | None
) -> None:
    assert directives(env).items() >= {directive: value}.items()
    assert notes(env) == ()


def test_any_other_is_named_with_what_to_do(subtests: pytest.Subtests) -> None:
    for name, value, words in (
        (
            "SBATCH_EXPORT",
            "NONE",
            "SBATCH_EXPORT=NONE of your shell is ignored: use --env NAME=VALUE",
        ),
        ("SBATCH_REQUEUE", "", "SBATCH_REQUEUE is ignored: use --requeue N"),
        ("SBATCH_GPUS", "4", "SBATCH_GPUS=4 of your shell is ignored: use --gpus"),
        ("SBATCH_OUTPUT", "x", "use --output-dir"),
        ("SBATCH_ARRAY_INX", "0-3", "use --array IDS"),
        ("SLURM_CLUSTERS", "c2", "hpcrun submits to this cluster alone"),
        ("SLURM_UMASK", "077", "SLURM_UMASK=077"),
        ("SLURM_MPI_TYPE", "pmix", "--srun mpi=pmix does the same"),
        ("SRUN_CPUS_PER_TASK", "3", "--env SRUN_CPUS_PER_TASK=... sets it in the job"),
    ):
        with subtests.test(name=name):
            (note,) = notes({name: value})
            assert words in note


@pytest.mark.parametrize(
    ("env", "asked", "directive", "value"),
    [
        ({"SBATCH_PARTITION": "env"}, {"partition": "flag"}, "partition", "flag"),
        ({"SBATCH_WCKEY": "env"}, {"sbatch": ["wckey=flag"]}, "wckey", "flag"),
        ({"SBATCH_MEM_PER_GPU": "1G"}, {"memory_mb": "2G"}, "mem", "2G"),
        ({"SBATCH_MEM_PER_NODE": "1G"}, {"sbatch": ["mem-per-gpu=2G"]}, "mem-per-gpu", "2G"),
    ],
)
def test_what_was_typed_comes_first(
    env: dict[str, str], asked: dict[str, object], directive: str, value: str
) -> None:
    made = directives(env, **asked)
    assert made[directive] == value
    assert len({"mem", "mem-per-gpu"} & set(made)) == (1 if directive.startswith("mem") else 0)


@pytest.mark.parametrize("name", sorted(set(DIRECTIVES) | TOGETHER))
def test_each_counts_or_is_named(name: str) -> None:
    env = {name: "1", **({"SBATCH_REQ_SWITCH": "1"} if name in TOGETHER else {})}
    changed, (note,) = apply_sbatch_env(request(), env)
    assert (changed != request()) is note.startswith("from your shell: ")


def test_inside_a_job_they_describe_that_job() -> None:
    for env in (
        {"SBATCH_EXPORT": "NONE", "SBATCH_PARTITION": "p", "SLURM_JOB_ID": "1"},
        {"SLURM_CONF": "x"},
    ):
        assert apply_sbatch_env(request(), env) == (request(), ())


def test_a_value_that_cannot_be_read_is_refused_by_its_variable() -> None:
    for name in ("SBATCH_TIMELIMIT", "SBATCH_MEM_PER_NODE", "SBATCH_JOB_NAME"):
        with pytest.raises(UsageError, match=f"^{name}: "):
            apply_sbatch_env(request(), {name: "so ön"})


def test_the_table_has_what_sbatch_reads() -> None:
    """Against the program itself, where there is one: strings that it looks for in its
    environment.
    """
    program = shutil.which("sbatch")
    known = set(DIRECTIVES) | TOGETHER | OTHERS
    read = (
        re.findall(rb"\0(SBATCH_[A-Z0-9_]+)(?=\0)", Path(program).read_bytes()) if program else []
    )
    assert {name.decode() for name in read} <= known


def test_the_variables_that_were_used_are_named() -> None:
    env = {
        "SBATCH_PARTITION": "gpu",
        "SBATCH_EXCLUSIVE": "",
        "SBATCH_OUTPUT": "x",
        "SBATCH_ACCOUNT": "b",
        "HOME": "/",
    }
    _, notes = apply_sbatch_env(read_request({"script": "a.py", "account": "a"}), env)
    assert notes[0] == "from your shell: SBATCH_EXCLUSIVE SBATCH_PARTITION=gpu"
