"""The plan, and what came of it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import cast

from hpcrun.actions.jobs.prepare import Prepared
from hpcrun.actions.jobs.submission import SubmitResult
from hpcrun.job.request.notify_options import Notify
from hpcrun.views.plan_text import plan_lines, submitted_lines
from tests.unit import given


def test_submissions_stand_in_the_columns_of_the_plan_and_idle_messages_need_a_limit() -> None:
    plan = given.plan(gpus="4")
    result = SubmitResult(cast("Prepared", None), given.run(), Path("/runs/it"))
    lines = [*plan_lines(plan), *submitted_lines(result)]
    assert {line[9:11] for line in lines} == {"  "}
    assert all(line[11] != " " for line in lines)
    plan = replace(plan, notify=Notify(("$A",), ("failed", "idle")))
    assert "to $A: failed" in [line.split("  ")[-1].strip() for line in plan_lines(plan)]
    assert any(
        "to $A: failed, idle" in line for line in plan_lines(replace(plan, cancel_idle_s=1800))
    )
    assert any(
        "none without" in line
        for line in plan_lines(replace(plan, notify=Notify(("$A",), ("idle",))))
    )


def test_ray_runs_one_program_and_sets_the_threads_of_its_tasks_itself() -> None:
    lines = "\n".join(plan_lines(given.plan(gpus="8", nodes=2, launcher="ray")))
    assert "GPUs, the program on the head node of a Ray cluster" in lines
    assert "OMP_NUM_THREADS" not in lines
