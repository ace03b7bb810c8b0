"""How many runs a sweep becomes on a cluster whose arrays have a largest size."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hpcrun.actions.jobs.prepare import Prepared, prepare
from hpcrun.actions.jobs.submit import sweep_parts
from hpcrun.errors import PlanError
from hpcrun.job.resources import Machine
from hpcrun.schedulers.slurm import SlurmScheduler
from tests.unit.given import request, surroundings, write


def parts(folder: Path, config: str = "", **asked: Any) -> tuple[Prepared, list[Prepared]]:
    """A sweep as it was prepared, and as it is submitted where `scontrol show config` prints ``config``."""
    write(folder / "train.py", "")
    own = folder / "own"
    write(own / "profiles/site.yaml", "time: {default: 1h}\ngpu: {type: a100, per_node: 4}\n")
    scontrol = write(folder / "bin/scontrol", f"#!/bin/sh\ncat <<'END'\n{config}END\n")
    scontrol.chmod(0o755)
    around = surroundings(folder, {"PATH": f"{folder}/bin:/usr/bin:/bin"}, own=(own,))
    prepared = prepare(request(**asked), "site", around, lambda: Machine(cpus=4))
    return prepared, sweep_parts(prepared, SlurmScheduler(around.env), around)


def limits(array: int, jobs: int = 10_000) -> str:
    return f"MaxArraySize            = {array}\nMaxJobCount             = {jobs}\n"


@pytest.mark.parametrize("config", ["", limits(0), limits(5), limits(1001)])
def test_a_sweep_that_fits_or_whose_limit_is_not_known_is_one_run(tmp_path: Path, config: str) -> None:
    prepared, found = parts(tmp_path, config, sweep=["n=a,b,c,d,e"])
    assert found == [prepared]


def test_a_job_that_is_no_sweep_is_itself(tmp_path: Path) -> None:
    prepared, found = parts(tmp_path, limits(1, 1))
    assert found == [prepared]


def test_a_sweep_over_the_limit_is_several_runs_whose_elements_are_numbered_on(tmp_path: Path) -> None:
    _, found = parts(tmp_path, limits(2), sweep=["n=a,b,c,d,e"], name="grid", max_parallel=4)
    assert [part.plan.name for part in found] == ["grid-1", "grid-2", "grid-3"]
    assert [part.plan.directive("job-name") for part in found] == ["grid-1", "grid-2", "grid-3"]
    assert [part.plan.directive("array") for part in found] == ["0-1%2", "0-1%1", "0%1"]
    assert [part.request.elements for part in found] == [(0, 1), (2, 3), (4,)]
    assert [part.request.max_parallel for part in found] == [2, 1, 1]
    for part in found:
        assert f"#SBATCH --job-name={part.plan.name}\n" in part.script.text
        assert f"#SBATCH --array={part.plan.directive('array')}\n" in part.script.text


def test_one_late_element_is_one_run_under_its_own_name(tmp_path: Path) -> None:
    _, found = parts(tmp_path, limits(2), sweep=["n=a,b,c,d,e"], name="grid", elements=[4])
    (part,) = found
    assert (part.plan.name, part.plan.directive("array"), part.request.elements) == ("grid", "0", (4,))


def test_a_long_name_keeps_its_part_s_number(tmp_path: Path) -> None:
    _, found = parts(tmp_path, limits(3), sweep=["n=a,b,c,d,e"], name="x" * 100)
    assert [part.plan.name for part in found] == ["x" * 98 + "-1", "x" * 98 + "-2"]


def test_more_elements_than_the_cluster_takes_jobs_are_refused_with_what_fits(tmp_path: Path) -> None:
    assert len(parts(tmp_path, limits(1001, 5), sweep=["n=a,b,c,d,e"])[1]) == 1
    with pytest.raises(
        PlanError, match=r"5 elements are more than the jobs this cluster takes \(MaxJobCount 4\)"
    ) as said:
        parts(tmp_path, limits(1001, 4), sweep=["n=a,b,c,d,e"])
    assert said.value.hint == "submit it in pieces: --elements 0-1, then the rest"
