"""The check of a submission against limits."""

from __future__ import annotations

import ast
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from hpcrun.actions.jobs.check_limits import LimitError, within_limits
from hpcrun.actions.jobs.prepare import Prepared
from hpcrun.actions.ports import Consent, Surroundings
from hpcrun.profiles.limits import limits_of, smallest
from hpcrun.runs.store import RunStore
from tests.harness import REPO
from tests.unit import builders


def job(**asked: Any) -> Prepared:
    plan = builders.plan(**{"gpus": "4", "walltime_s": "2h", **asked})
    return Prepared(cast("Any", None), cast("Any", None), plan, builders.script(plan))


def check(
    folder: Path, *jobs: Prepared, consent: Consent | None = None, **limits: float
) -> Surroundings:
    surroundings = replace(
        builders.surroundings(folder),
        limits=lambda: limits_of(limits, Path("/file")),
        consent=consent or Consent(hint="do this"),
    )
    ports = builders.ports(RunStore(folder / "runs"), builders.Takes(), 1000.0)
    with within_limits(jobs, ports, surroundings) as result:
        return result


def test_what_equals_the_limit_is_within(tmp_path: Path) -> None:
    allowed = job()
    result = check(tmp_path, allowed, gpus_per_job=4, gpu_hours_per_job=8, gpu_hours_per_day=8)
    assert result.consent.has(allowed)


def test_only_the_jobs_that_were_checked_are_allowed(tmp_path: Path) -> None:
    first = job()
    result = check(tmp_path, first, gpu_hours_per_job=8)
    assert not result.consent.has(replace(first))


def test_jobs_of_one_command_count_together(tmp_path: Path) -> None:
    with pytest.raises(LimitError, match="at most 16 GPU-hours; the limit is 8 "):
        check(tmp_path, job(), job(), gpu_hours_per_job=8)
    check(tmp_path, job(), job(), gpus_per_job=4)


def test_requeues_count(tmp_path: Path) -> None:
    with pytest.raises(LimitError, match=r"16 GPU-hours with 1 requeue; the limit is 15\.5"):
        check(tmp_path, job(requeue=1), gpu_hours_per_job=15.5)


@pytest.mark.parametrize("limit", ["gpu_hours_per_job", "gpu_hours_per_day"])
def test_unknown_hours_are_over_each_limit_of_hours(tmp_path: Path, limit: str) -> None:
    open_end = job(no_sbatch=["time"])
    limits: dict[str, Any] = {limit: 10**9}
    with pytest.raises(LimitError, match="the GPU-hours are unknown"):
        check(tmp_path, open_end, **limits)
    check(tmp_path, open_end, gpus_per_job=4)


def test_unknown_gpus_are_over_the_limit_of_gpus(tmp_path: Path) -> None:
    unknown = replace(job(), script="#!/bin/bash\n#SBATCH --gpus-per-socket=1 --time=60\n")
    with pytest.raises(LimitError, match="the number of GPUs is unknown"):
        check(tmp_path, unknown, gpus_per_job=10**6)


def test_a_person_is_asked_once_about_all_limits(tmp_path: Path) -> None:
    questions: list[str] = []

    def ask(problem: str) -> bool:
        questions.append(problem)
        return True

    limits: dict[str, Any] = {"gpus_per_job": 1, "gpu_hours_per_job": 1, "gpu_hours_per_day": 1}
    check(tmp_path, job(), consent=Consent(ask), **limits)
    [question] = questions
    assert question.count("the limit is 1 ") == 3


def test_a_person_who_does_not_agree_submits_nothing(tmp_path: Path) -> None:
    with pytest.raises(LimitError, match="nothing was submitted"):
        check(tmp_path, job(), consent=Consent(lambda _: False), gpus_per_job=1)


def test_a_single_run_of_unknown_requeues_is_over_each_limit_of_hours(tmp_path: Path) -> None:
    script = "#!/bin/bash\n#SBATCH --gpus=1 --time=60 --requeue\n"
    endless = replace(job(), script=script)
    with pytest.raises(LimitError, match=r"unknown \(Slurm may requeue it any number of times"):
        check(tmp_path, endless, gpu_hours_per_job=10**6)


def test_a_refusal_has_exit_code_4_and_the_hint(tmp_path: Path) -> None:
    with pytest.raises(LimitError) as refused:
        check(tmp_path, job(), gpus_per_job=1)
    assert refused.value.exit_code == 4
    assert refused.value.hint == "do this"


def test_one_function_alone_passes_a_job_to_a_scheduler() -> None:
    """Its own test of limits is then the test of every submission."""
    places = []
    for path in (REPO / "hpcrun").rglob("*.py"):
        text = path.read_text("utf-8")
        if ".submit" not in text:
            continue
        for node in ast.walk(ast.parse(text)):
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
                continue
            owner = node.func.value
            name = getattr(owner, "id", getattr(owner, "attr", ""))
            if node.func.attr == "submit" and "scheduler" in name:
                places.append(path.name)
            if getattr(node.func, "attr", "") == "submit_with_submitit":
                places.append(path.name)
    assert places == ["submission.py"]


def test_a_smaller_limit_of_a_folder_that_moves_hides_no_runs_of_a_fixed_one(
    tmp_path: Path,
) -> None:
    moving = limits_of({"gpu_hours_per_day": 7}, Path("/moving/config.yaml"))
    fixed = limits_of({"gpu_hours_per_day": 8}, Path("/fixed/config.yaml"))
    asked: list[Path] = []

    def lists(limiting: Path) -> list[Path]:
        asked.append(limiting)
        names = ["moved", "home"] if limiting == Path("/fixed") else ["moved"]
        return [tmp_path / name for name in names]

    ports = builders.ports(RunStore(tmp_path / "runs"), builders.Takes(), 1000.0)
    surroundings = replace(
        builders.surroundings(tmp_path), limits=lambda: smallest([moving, fixed]), consent=Consent()
    )
    limited = within_limits([job()], replace(ports, run_lists=lists), surroundings)
    with pytest.raises(LimitError, match="the limit is 7 "), limited:
        raise AssertionError("not refused")
    assert asked[-1] == Path("/fixed")
