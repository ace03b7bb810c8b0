"""Errors and notes of the Python API name options as Python has them."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest
import submitit

import hpcrun
from hpcrun.api.python_spelling import as_parameter
from hpcrun.api.submitit_plugin import HpcrunExecutor
from hpcrun.cli.context import make_context
from hpcrun.errors import HpcrunError
from hpcrun.job.text.spelling import spell, spell_row, spelled_by
from hpcrun.schedulers.slurm_text import refusal_hint

_OPTION = re.compile(r"(?<![\w-])--[a-z][\w-]*")
_IN_SHELL = re.compile(r"`[^`]*`|hpcrun [a-z ]+(--\w+)?")
LOCAL = {"profile": "local", "gpus": 0}
ASKED: list[dict[str, Any]] = [
    {"gpus": 3, "nodes": 2},
    {"gpus": 8, "gpus_per_node": 2, "nodes": 2},
    {"gpus_per_node": 9},
    {"nodes": 2},
    {"profile": "cpu", "gpus": 1},
    {"time": "30d"},
    {"time": "0"},
    {"mem": "9000G"},
    {"cpus": 900},
    {"tasks_per_node": 2},
    {"cpus": 4, "cpus_per_gpu": 2},
    {"gpus": 0, "cpus_per_gpu": 2},
    {"warn": "2h", "time": "1h"},
    {"retry_on_failure": True},
    {"exclude_bad_nodes": True},
    {"spares": 1},
    {"spares": 1, "restarts": 1},
    {"gpus": 2, "segment": 3},
    {"gpus": 0, "cancel_idle": "10m"},
    {"sbatch": {"gpus": 1}},
    {"sbatch": {"signal": "x"}},
    {"sbatch": {"output": "x"}},
    {"sbatch": {"requeue": True}},
    {"sbatch": {"cluster": "x"}},
    {"srun": {"ntasks": 1}},
    {"no_sbatch": "gres"},
    {"no_sbatch": "nodes"},
    {"no_sbatch": "nice"},
    {"stage": "/nonexistent"},
    {"stage": "/etc/hostname:a/b"},
    {"keep": 7},
    {"mounts": "/a:/b"},
    {"container": "image.sif"},
    {"snapshot_include": "*.env"},
    {"notify": "$NOWHERE"},
    {"notify_on": "failed"},
    {"setup": "export TOKEN=ghp_0123456789abcdef0123456789abcdef0123"},
    {"env": {"NCCL_DEBUG": "LOUD"}},
    {"env": {"MASTER_PORT": 3, "OMP_NUM_THREADS": 64}},
    {"env": ["A"]},
    {"max_parallel": 3},
    {"gpus": 0, "profile": "a100"},
    {**LOCAL, "segment": 2},
    {**LOCAL, "srun": "mpi=pmix"},
    {**LOCAL, "spares": 1},
    {**LOCAL, "notify": "mailto:ada@example.org"},
]


def texts(parameters: dict[str, Any]) -> str:
    """What a person reads of an error, or of the notes on a job."""
    try:
        executor = hpcrun.Executor(**{"profile": "a100", **parameters})
        with spelled_by(executor.speller):
            prepared = executor._prepare(make_context(announce=None), "function", 1)
    except HpcrunError as error:
        return f"{error.message}\n{error.hint}"
    return "\n".join(prepared.plan.notes)


@pytest.mark.parametrize("parameters", ASKED, ids=str)
def test_no_error_and_no_note_names_an_option_of_the_command_line(
    parameters: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SRUN_CPU_BIND", "none")
    text = texts(parameters)
    assert text
    assert _OPTION.findall(_IN_SHELL.sub("", text)) == []


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("gpus-per-node", 4, "gpus_per_node=4"),
        ("gpus", "a100:4", "gpus='a100:4'"),
        ("nproc-per-node", None, "tasks_per_node"),
        ("time", "01:00:00", "time='01:00:00'"),
        ("env", "A=b", "env={'A': 'b'}"),
        ("sbatch", "exclusive", "sbatch={'exclusive': True}"),
        ("no-sbatch", "mem", "no_sbatch=['mem']"),
        ("mount", "SRC:DST", "mounts=['SRC:DST']"),
        ("retry-on-failure", None, "retry_on_failure=True"),
        ("profile", "local", "profile='local'"),
        ("dry-run", None, "executor.script()"),
    ],
)
def test_an_option_as_a_parameter(name: str, value: object, text: str) -> None:
    assert as_parameter(name, value) == text


def test_the_command_line_reads_its_own_options() -> None:
    assert spell("gpus-per-node", 4) == "--gpus-per-node 4"
    assert spell("snapshot-include", Path("it is.txt")) == "--snapshot-include 'it is.txt'"
    assert spell_row("use --requeue N: N attempts, or --qos") == (
        "use --requeue N: N attempts, or --qos"
    )


def test_advice_of_a_table_is_spelled_for_python() -> None:
    with spelled_by(as_parameter):
        assert spell_row("use --requeue N: N attempts, or --env NAME=VALUE") == (
            "use requeue=N: N attempts, or env={'NAME': 'VALUE'}"
        )
        refusal = str(refusal_hint("Invalid account or account/partition"))
        assert "choose one with account" in refusal


def of_submitit(**parameters: Any) -> Callable[[], object]:
    auto = submitit.AutoExecutor("logs", cluster="hpcrun", hpcrun_profile="a100")
    auto.update_parameters(**parameters)
    return cast(HpcrunExecutor, auto._executor)._executor.script


def test_a_program_with_submitit_reads_the_parameters_of_its_auto_executor() -> None:
    with pytest.raises(HpcrunError) as spares:
        of_submitit(hpcrun_spares=1)()
    assert "hpcrun_spares has no effect without hpcrun_restarts" in spares.value.message
    with pytest.raises(HpcrunError) as nodes:
        of_submitit(nodes=2)()
    assert nodes.value.hint == "add gpus_per_node=4, or hpcrun_gpus=0 for a CPU job"
