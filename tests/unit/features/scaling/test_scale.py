"""What a study is made of, and what becomes of it when runs are refused, uncertain, or made
already.
"""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from hpcrun.actions.jobs.prepare import prepare
from hpcrun.cli.context import Context
from hpcrun.errors import PlanError, SchedulerError, SubmissionUncertainError, UsageError
from hpcrun.features.scaling.scale import (
    StudyJob,
    Submitted,
    new_study,
    prepare_points,
    submit_points,
)
from hpcrun.features.scaling.sizes import Design, Size, Workload
from hpcrun.features.scaling.studies import Study, StudyStore
from hpcrun.job.resources.cpus_memory_time import Machine
from hpcrun.job.run_paths import run_name
from hpcrun.runs.store import RunStore
from tests.unit.builders import (
    Takes,
    cpu_cluster,
    ports,
    request,
    slurm_profile,
    surroundings,
    write,
)

GPUS = Design("GPUs", None, (Size(1), Size(8)), Workload())


def begun(
    design: Design = GPUS, *, profile: Any = None, script: str = "train.py", **said: Any
) -> Study:
    """A study of which nothing is submitted."""
    asked = {name: said.pop(name) for name in ("args", "launcher", "env", "name") if name in said}
    return new_study(
        request(script, **asked),
        design,
        profile or slurm_profile(),
        new_id=an_id,
        created_s=1.0,
        profile="a100",
        cwd="/",
        **said,
    )[0]


def an_id(name: str) -> str:
    return f"20260101-000000-{name}-aaaa"


def test_sizes_have_the_nodes_that_the_profile_gives_them_and_names() -> None:
    study = begun()
    assert [(point.run_id[16:-5], point.gpus, point.nodes) for point in study.points] == [
        ("train-g1-r1", 1, 1),
        ("train-g8-r1", 8, 2),
    ]
    assert study.study_id == an_id("train")
    study = begun(Design("GPUs", None, (Size(4, 1), Size(4, 2)), Workload()))
    assert [point.run_id[16:-5] for point in study.points] == ["train-g4-n1-r1", "train-g4-n2-r1"]
    with pytest.raises(UsageError, match="4 GPUs are given twice"):
        begun(Design("GPUs", None, (Size(4), Size(4, 1)), Workload()))
    assert begun(env=["API_TOKEN=x", "A=1"]).request["env"] == [["API_TOKEN", "***"], ["A", "1"]]


def test_ranks_are_on_one_node_and_with_one_process_per_node_on_as_many() -> None:
    ranks = Design("ranks", None, (Size(1), Size(4)), Workload())
    study = begun(ranks, profile=cpu_cluster())
    assert [point.nodes for point in study.points] == [1, 1]
    assert study.request["launcher"] == "torchrun"
    assert [
        point.nodes for point in begun(ranks, profile=cpu_cluster(), launcher="python").points
    ] == [1, 4]
    with pytest.raises(PlanError, match="have no GPUs"):
        begun(profile=cpu_cluster())


# --- submitting ----------------------------------------------------------------------------------


class Submits:
    """Submits the runs of a study to a scheduler that does with some of them what it is told."""

    def __init__(
        self, folder: Path, study: Study, profile: str = "a100", **ends: BaseException
    ) -> None:
        self.study, self.scheduler = study, Takes(**ends)
        self.waited: list[str] = []
        self.store = RunStore(folder / "runs")
        self.studies = StudyStore(folder / "runs")
        self.studies.save(study)
        write(folder / "train.py", "")
        self.around = around = surroundings(folder)
        template = request(args=["{gpus}"])
        self.jobs: list[StudyJob] = prepare_points(
            study,
            template,
            study.points,
            lambda asked: prepare(asked, profile, around, lambda: Machine(cpus=1)),
        )

    def submit_all(self) -> list[Submitted]:

        def waiter(run_id: str) -> SimpleNamespace:
            return SimpleNamespace(wait=lambda: self.waited.append(run_id))

        context = Context({}, self.store.root)
        everything = ports(self.store, self.scheduler, 1000.0)
        vars(context).update(
            store=self.store, ports=everything, surroundings=self.around, waiter=waiter
        )
        return [*submit_points(self.study, self.jobs, context)]

    def noted(self) -> list[tuple[bool, str]]:
        return [
            (point.submitted, point.problem)
            for point in self.studies.load(self.study.study_id).points
        ]


def test_a_run_that_is_refused_does_not_keep_the_next_from_its_turn(tmp_path: Path) -> None:
    sizes = Design("GPUs", None, (Size(1), Size(2), Size(4)), Workload())
    refuses = Submits(
        tmp_path, begun(sizes, one_by_one=True), train_g2_r1=SchedulerError("no\nroom")
    )
    outcomes = refuses.submit_all()
    assert [isinstance(result, SchedulerError) for _, result in outcomes] == [False, True, False]
    assert refuses.noted() == [(True, ""), (False, "no room"), (True, "")]
    assert [job.dependency for job in refuses.scheduler.taken] == ["", "afterany:1"]
    assert [prepared.plan.command[-1] for _, prepared in refuses.jobs] == ["1", "2", "4"]


def test_runs_wait_for_none_at_the_same_time_and_without_slurm_each_before_the_next(
    tmp_path: Path,
) -> None:
    free = Submits(tmp_path / "free", begun())
    free.submit_all()
    assert [job.dependency for job in free.scheduler.taken] == ["", ""]
    assert free.waited == []
    local = Submits(tmp_path / "local", begun(one_by_one=True), profile="local")
    local.submit_all()
    assert local.waited == [an_id("train-g1-r1"), an_id("train-g8-r1")]


def test_a_submission_that_nobody_answered_is_noted_as_made_and_an_interruption_is_no_refusal(
    tmp_path: Path,
) -> None:
    silent = Submits(
        tmp_path / "silent", begun(), train_g1_r1=SubmissionUncertainError("no answer")
    )
    assert [point.submitted for point, _ in silent.submit_all()] == [True, True]
    assert silent.noted() == [(True, ""), (True, "")]
    interrupted = Submits(tmp_path / "interrupted", begun(), train_g8_r1=KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        interrupted.submit_all()
    assert interrupted.noted() == [(True, ""), (False, "")]


def test_a_run_that_was_made_and_not_noted_is_not_made_again(tmp_path: Path) -> None:
    killed = Submits(tmp_path, begun())
    killed.store.folder(an_id("train-g1-r1")).mkdir(parents=True)
    assert [point.gpus for point, _ in killed.submit_all()] == [8]
    assert killed.noted() == [(True, ""), (True, "")]
    assert [run_name(job.folder.name) for job in killed.scheduler.taken] == ["train-g8-r1"]
