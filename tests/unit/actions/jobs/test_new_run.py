"""The record of a new run: the request without secrets, and the plan."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

import pytest

from hpcrun.actions.jobs.new_run import request_record, run_record
from hpcrun.actions.jobs.prepare import prepare
from hpcrun.job.resources.cpus_memory_time import Machine
from hpcrun.job.text.recognise_secrets import MASK
from hpcrun.runs.record import Run
from hpcrun.runs.store import RunStore
from tests.unit.builders import Takes, ports, request, surroundings, write


@pytest.mark.parametrize(
    ("asked", "named", "env", "listed"),
    [
        pytest.param({"env": ["MODE=fast"]}, (), [["MODE", "fast"]], None, id="none"),
        pytest.param({"env": ["HF_TOKEN=x"]}, (), [["HF_TOKEN", MASK]], None, id="by its name"),
        pytest.param({"env": ["MODE=x"]}, ("MODE",), [["MODE", MASK]], ["MODE"], id="of profile"),
        pytest.param(
            {"env": ["MODE=x", "A=1"], "secrets": ["MODE"]},
            (),
            [["MODE", MASK], ["A", "1"]],
            ["MODE"],
            id="of option",
        ),
    ],
)
def test_the_values_of_secrets_are_not_recorded(
    asked: dict[str, Any], named: Collection[str], env: list[list[str]], listed: list[str] | None
) -> None:
    record = request_record(request(**asked), named)
    assert record["env"] == env
    assert record.get("secrets") == listed


def recorded(folder: Path, elements: Sequence[int] = (), **asked: Any) -> Run:
    write(folder / "train.py", "")
    around = surroundings(folder)
    prepared = prepare(request(gpus="1", **asked), "a100", around, lambda: Machine(cpus=1))
    here = ports(RunStore(folder / "runs"), Takes(), 1000.0)
    return run_record(prepared, here, around, elements)


def test_a_job_of_one_program_records_no_roles(tmp_path: Path) -> None:
    made = recorded(tmp_path, walltime_s="2h")
    assert "roles" not in made.plan
    assert made.plan["sweep"] is None
    assert made.gpu_hours_at_most == 2
    assert made.gpus_at_most == 1


def test_the_elements_of_a_sweep_are_recorded(tmp_path: Path) -> None:
    made = recorded(tmp_path, (0, 1, 2, 5), sweep=["n=a,b,c,d,e,f"], max_parallel=2)
    assert made.plan["sweep"] == {"indices": "0-2,5", "first": 0, "max_parallel": 2}


def test_an_array_of_calls_is_recorded_as_a_sweep(tmp_path: Path) -> None:
    made = recorded(tmp_path, (0, 1, 2))
    assert made.plan["sweep"] == {"indices": "0-2", "first": 0, "max_parallel": None}
    assert made.gpus_at_most == 1
