"""Submitting: the folder of a new run, the links of a chain, the arrays of a large sweep."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hpcrun.actions.jobs.after_and_chain import chain_links, check_can_wait, resolve_after
from hpcrun.actions.jobs.new_run import Lineage, new_run
from hpcrun.actions.jobs.prepare import Prepared, prepare
from hpcrun.actions.jobs.submission import SubmitResult, submit, submit_all, sweep_parts
from hpcrun.errors import (
    HpcrunError,
    InterruptedByUser,
    NotFoundError,
    PlanError,
    SchedulerError,
    SubmissionUncertainError,
    UsageError,
)
from hpcrun.job.request.after import Dependency, parse_after, parse_chain
from hpcrun.job.resources.cpus_memory_time import Machine
from hpcrun.job.run_paths import run_name
from hpcrun.runs.record import Run
from hpcrun.runs.store import RunExistsError, RunStore
from hpcrun.schedulers.local import LocalScheduler
from hpcrun.schedulers.protocol import Submission, SubmittedJob
from hpcrun.schedulers.slurm import SlurmScheduler
from tests.unit.builders import Takes, ports, request, run, surroundings, write

BEFORE = Lineage(after=(Dependency("20260101-000000-data-aaaa", "77", "ok"),))


class Chain:
    """A chain of three jobs, submitted to a scheduler that does with some of them what it is
    told.
    """

    def __init__(self, folder: Path, text: str = "3", **ends: BaseException) -> None:
        write(folder / "train.py", "")
        self.around = surroundings(folder)
        self.scheduler, self.store = Takes(**ends), RunStore(folder / "runs")
        self.ports = ports(self.store, self.scheduler, 1000.0)
        prepared = prepare(request(gpus="1"), "a100", self.around, lambda: Machine(cpus=1))
        self.links, self.lineage = chain_links(prepared, parse_chain(text), BEFORE, self.around)

    def submit(self) -> Iterator[SubmitResult]:
        return submit_all(self.links, self.lineage, self.ports, self.around, noun="link")

    def refused(self) -> HpcrunError:
        with pytest.raises(HpcrunError) as refused:
            list(self.submit())
        return refused.value


@pytest.mark.parametrize(
    ("text", "third"), [("3", "afternotok:1,afternotok:2"), ("3:any", "afterany:2")]
)
def test_each_link_waits_for_those_before_it_and_goes_on_from_the_first(
    tmp_path: Path, text: str, third: str
) -> None:
    chain = Chain(tmp_path, text)
    results = chain.submit()
    first = next(results)
    # it is known before the next is submitted
    assert first.run.job_id == "1"
    assert len(chain.scheduler.taken) == 1
    second, last = results
    assert [run_name(job.folder.name) for job in chain.scheduler.taken] == [
        "train",
        "train-2",
        "train-3",
    ]
    of_second = third.split(",")[0].replace(":2", ":1")
    waits = ["afterok:77", f"afterok:77,{of_second}", f"afterok:77,{third}"]
    assert [job.dependency for job in chain.scheduler.taken] == waits
    assert [item.run.checkpoints_of for item in (first, second, last)] == [
        None,
        first.run.run_id,
        first.run.run_id,
    ]
    chains = [{"link": number, "links": 3, "first": first.run.run_id} for number in (1, 2, 3)]
    assert [item.run.chain for item in (first, second, last)] == chains


@pytest.mark.parametrize(
    ("ends", "message", "hint"),
    [
        ({"train": SchedulerError("no", hint="look")}, "no", "look"),
        (
            {"train_2": SchedulerError("no")},
            "link 2 of 3 was not submitted; the job before it stays submitted:\nno",
            "hpcrun cancel 1 cancels the submitted jobs",
        ),
        (
            {"train_3": SchedulerError("no", hint="look")},
            "link 3 of 3 was not submitted; the 2 jobs before it stay submitted:\nno",
            "hpcrun cancel 1 2 cancels the submitted jobs; look",
        ),
        (
            {"train_2": SubmissionUncertainError("no answer")},
            "link 2 of 3 may not be submitted; the job before it stays submitted:\nno answer",
            "hpcrun cancel 1 cancels the submitted jobs",
        ),
    ],
)
def test_the_first_refusal_ends_it_and_says_what_stays(
    tmp_path: Path, ends: dict[str, BaseException], message: str, hint: str
) -> None:
    chain = Chain(tmp_path, "3", **ends)
    refused = chain.refused()
    assert refused.message == message
    assert refused.hint == hint
    ((failed, error),) = ends.items()
    taken = [run_name(job.folder.name) for job in chain.scheduler.taken]
    assert taken == ["train", "train-2", "train-3"][: int(failed.partition("_")[2] or 1) - 1]
    assert type(refused) is type(error)


def test_an_interruption_says_what_stays(tmp_path: Path) -> None:
    refused = Chain(tmp_path, train_2=KeyboardInterrupt()).refused()
    assert isinstance(refused, InterruptedByUser)
    assert refused.message.startswith(
        "link 2 of 3 may not be submitted; the job before it stays submitted:\ninterrupt"
    )
    assert refused.hint == "hpcrun cancel 1 cancels the submitted jobs; check with hpcrun status"


class Remarks(Takes):
    """A scheduler of a site that has a remark on each job."""

    def submit(self, submission: Submission) -> SubmittedJob:
        """Take a job, with a remark."""
        return replace(super().submit(submission), remarks="the site is in maintenance on Monday")


def test_the_remarks_of_the_scheduler_are_shown(tmp_path: Path) -> None:
    chain = Chain(tmp_path)
    chain.scheduler = Remarks()
    chain.ports = ports(chain.store, chain.scheduler, 1000.0)
    assert next(chain.submit()).remarks == "the site is in maintenance on Monday"


class NoRequeues(Takes):
    """A scheduler of a site whose filter clears the request to requeue; it counts the questions."""

    asked = 0

    def may_requeue(self, _: str) -> bool:
        """No job may be requeued."""
        self.asked += 1
        return False


@pytest.mark.parametrize(
    ("options", "remarks"),
    [
        ({"requeue": 2}, "the site does not let this job be requeued (Slurm shows Requeue=0): "),
        ({"restarts": 2}, ""),
        ({}, ""),
    ],
    ids=["requeue", "restarts", "neither"],
)
def test_a_site_that_removes_requeues_is_named_where_one_was_requested(
    options: dict[str, Any], remarks: str, tmp_path: Path
) -> None:
    write(tmp_path / "train.py", "")
    around = surroundings(tmp_path)
    scheduler = NoRequeues()
    port = ports(RunStore(tmp_path / "runs"), scheduler, 1000.0)
    prepared = prepare(request(gpus="1", **options), "a100", around, lambda: Machine(cpus=1))
    result = submit(prepared, port, around)
    effect = "--requeue 2 has no effect" if remarks else ""
    assert (result.remarks, scheduler.asked) == (f"{remarks}{effect}", 1 if remarks else 0)


def test_a_job_without_the_value_of_its_secret_is_refused_and_makes_no_run(tmp_path: Path) -> None:
    write(tmp_path / "own/profiles/mine.yaml", "extends: a100\nsecrets: [WANDB_API_KEY]\n")
    write(tmp_path / "train.py", "")
    around = surroundings(tmp_path, own=(tmp_path / "own",))
    prepared = prepare(request(gpus="1"), "mine", around, lambda: Machine(cpus=1))
    store = RunStore(tmp_path / "runs")
    scheduler = Takes()
    port = ports(store, scheduler, 1000.0)
    with pytest.raises(UsageError, match="WANDB_API_KEY is not set"):
        submit(prepared, port, around)
    assert store.run_ids() == []
    known = replace(around, env={**around.env, "WANDB_API_KEY": "s3cr3t"})
    submit(prepare(request(gpus="1"), "mine", known, lambda: Machine(cpus=1)), port, known)
    assert scheduler.taken[0].env["WANDB_API_KEY"] == "s3cr3t"


def test_a_job_that_starts_at_once_has_no_chain(tmp_path: Path) -> None:
    write(tmp_path / "train.py", "")
    plan = prepare(request(), "local", surroundings(tmp_path), lambda: Machine(cpus=4)).plan
    with pytest.raises(PlanError, match="--chain needs Slurm"):
        check_can_wait(plan, "--chain")


# --- a new run ---


def made(folder: Path, run_id: str) -> tuple[Run, Path]:
    write(folder / "train.py", "")
    around = surroundings(folder)
    prepared = prepare(request(), "local", around, lambda: Machine(cpus=4))
    port, files = (
        ports(RunStore(folder / "runs"), LocalScheduler(), 1000.0),
        {"notes/why": "because"},
    )
    new = new_run(prepared, port, around, run_id, output_dir=None, files=files, lineage=Lineage())
    return new.run, new.folder


def test_submissions_that_draw_the_same_id_are_runs_of_their_own(tmp_path: Path) -> None:
    ids = [made(tmp_path, "20260101-000000-train-00ff")[0].run_id for _ in range(3)]
    assert ids == [f"20260101-000000-train-{end}" for end in ("00ff", "0100", "0101")]
    assert RunStore(tmp_path / "runs").run_ids() == ids
    made(tmp_path, "20260101-000000-train-ffff")
    with pytest.raises(RunExistsError):
        made(tmp_path, "20260101-000000-train-ffff")


def test_a_new_run_is_whole_when_it_is_seen(tmp_path: Path) -> None:
    new, path = made(tmp_path, "20260101-000000-train-aaaa")
    loaded = RunStore(tmp_path / "runs").load(new.run_id)
    assert loaded.name == "train"
    assert loaded.profile == "local"
    assert loaded.host == "here"
    assert loaded.created_s == 1000.0
    assert (path / "notes/why").read_text() == "because"
    assert (path / "script.sh").read_text().startswith("#!")
    assert new.cwd == str(tmp_path)
    assert new.code is None


# --- a sweep over the cluster's limit ---


def parts(folder: Path, config: str = "", **asked: Any) -> tuple[Prepared, list[Prepared]]:
    """A sweep as it was prepared, and as it is submitted where `scontrol show config` prints
    ``config``.
    """
    write(folder / "train.py", "")
    own = folder / "own"
    write(own / "profiles/site.yaml", "time: {default: 1h}\ngpu: {type: a100, per_node: 4}\n")
    write(folder / "bin/scontrol", f"#!/bin/sh\ncat <<'END'\n{config}END\n").chmod(0o755)
    around = surroundings(folder, {"PATH": f"{folder}/bin:/usr/bin:/bin"}, own=(own,))
    prepared = prepare(request(**asked), "site", around, lambda: Machine(cpus=4))
    return prepared, sweep_parts(prepared, SlurmScheduler(around.env), around)


def limits(array: int, jobs: int = 10_000) -> str:
    return f"MaxArraySize            = {array}\nMaxJobCount             = {jobs}\n"


def test_no_sweep_or_one_that_fits_or_whose_limit_is_not_known_is_one_run(
    tmp_path: Path, subtests: pytest.Subtests
) -> None:
    for config in ("", limits(0), limits(5), limits(1001)):
        with subtests.test(config=config):
            prepared, found = parts(tmp_path, config, sweep=["n=a,b,c,d,e"])
            assert found == [prepared], config
    prepared, found = parts(tmp_path, limits(1, 1))
    assert found == [prepared]


def test_a_sweep_over_the_limit_is_several_runs_whose_elements_are_numbered_on(
    tmp_path: Path,
) -> None:
    _, found = parts(tmp_path, limits(2), sweep=["n=a,b,c,d,e"], name="grid", max_parallel=4)
    assert [part.plan.name for part in found] == ["grid-1", "grid-2", "grid-3"]
    assert [part.plan.directive("job-name") for part in found] == ["grid-1", "grid-2", "grid-3"]
    assert [part.plan.directive("array") for part in found] == ["0-1%2", "0-1%1", "0%1"]
    assert [part.request.elements for part in found] == [(0, 1), (2, 3), (4,)]
    assert [part.request.max_parallel for part in found] == [2, 1, 1]
    for part in found:
        assert f"#SBATCH --job-name={part.plan.name}\n" in part.script
        assert f"#SBATCH --array={part.plan.directive('array')}\n" in part.script
    _, (part,) = parts(tmp_path, limits(2), sweep=["n=a,b,c,d,e"], name="grid", elements=[4])
    assert part.plan.name == "grid"
    assert part.plan.directive("array") == "0"
    assert part.request.elements == (4,)
    _, found = parts(tmp_path, limits(3), sweep=["n=a,b,c,d,e"], name="x" * 100)
    assert [part.plan.name for part in found] == ["x" * 98 + "-1", "x" * 98 + "-2"]


def test_more_elements_than_the_cluster_takes_jobs_are_refused_with_what_fits(
    tmp_path: Path,
) -> None:
    assert len(parts(tmp_path, limits(1001, 5), sweep=["n=a,b,c,d,e"])[1]) == 1
    words = r"5 elements are more than the jobs this cluster takes \(MaxJobCount 4\)"
    with pytest.raises(PlanError, match=words) as said:
        parts(tmp_path, limits(1001, 4), sweep=["n=a,b,c,d,e"])
    assert said.value.hint == "submit it in pieces: --elements 0-1, then the rest"


@pytest.mark.parametrize(("text", "dependency"), [("19", "afterok:19"), ("19:any", "afterany:19")])
def test_a_job_that_hpcrun_did_not_submit_is_waited_for_with_sbatch_s_option(
    text: str, dependency: str, tmp_path: Path
) -> None:
    store = RunStore(tmp_path)
    store.create(run("20260101-000000-train-aaaa", job_id="100"), "")
    with pytest.raises(NotFoundError) as refused:
        resolve_after([parse_after(text)], ports(store, object(), 0.0))
    assert refused.value.message == "--after 19: there is no run '19'"
    assert refused.value.hint == "hpcrun status --all lists them"  # nobody may know the job
    assert f"--sbatch dependency={dependency} waits for it" in refused.value.if_listed
