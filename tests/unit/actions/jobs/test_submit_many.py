"""Several jobs, one submitted after the other: what each has to do with those before it, and what a refusal leaves."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from hpcrun.actions.jobs.after_and_chain import chain_links
from hpcrun.actions.jobs.new_run import Lineage
from hpcrun.actions.jobs.prepare import prepare
from hpcrun.actions.jobs.submit import SubmitResult, submit_all, submit_many
from hpcrun.errors import HpcrunError, InterruptedByUser, PlanError, SchedulerError, SubmissionUncertainError
from hpcrun.job.after import Dependency, parse_chain
from hpcrun.job.resources import Machine
from hpcrun.runs.store import RunStore
from tests.unit.given import Takes, ports, request, surroundings, write

BEFORE = Lineage(after=(Dependency("20260101-000000-data-aaaa", "77", "ok"),))


class Chain:
    """A chain of three jobs, submitted to a scheduler that does with some of them what it is told."""

    def __init__(self, folder: Path, text: str = "3", *, profile: str = "a100", **ends: BaseException) -> None:
        write(folder / "train.py", "")
        self.around = surroundings(folder)
        self.scheduler, self.store = Takes(**ends), RunStore(folder / "runs")
        self.ports = ports(self.store, self.scheduler, 1000.0)
        prepared = prepare(request(gpus="1"), profile, self.around, lambda: Machine(cpus=1))
        self.links = chain_links(prepared, parse_chain(text), BEFORE, self.around)

    def submit(self) -> Iterator[SubmitResult]:
        return submit_all(self.links, self.ports, self.around)

    def refused(self) -> HpcrunError:
        with pytest.raises(HpcrunError) as refused:
            list(self.submit())
        return refused.value


@pytest.mark.parametrize(("text", "third"), [("3", "afternotok:1,afternotok:2"), ("3:any", "afterany:2")])
def test_each_link_waits_for_those_before_it_and_goes_on_from_the_first(tmp_path: Path, text: str, third: str) -> None:
    chain = Chain(tmp_path, text)
    first, second, last = chain.submit()
    assert [job.name for job in chain.scheduler.taken] == ["train", "train-2", "train-3"]
    assert [job.dependency for job in chain.scheduler.taken] == [
        "afterok:77",
        f"afterok:77,{third.split(',')[0].replace(':2', ':1')}",
        f"afterok:77,{third}",
    ]
    assert [item.run.checkpoints_of for item in (first, second, last)] == [None, first.run.run_id, first.run.run_id]
    assert last.run.chain == {"link": 3, "links": 3, "first": first.run.run_id}


def test_each_is_known_before_the_next_is_submitted(tmp_path: Path) -> None:
    chain = Chain(tmp_path)
    results = chain.submit()
    assert (next(results).run.job_id, len(chain.scheduler.taken)) == ("1", 1)
    assert (next(results).run.job_id, len(chain.scheduler.taken)) == ("2", 2)


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
    chain = Chain(tmp_path, "3", profile="a100", **ends)
    refused = chain.refused()
    assert (refused.message, refused.hint) == (message, hint)
    assert [job.name for job in chain.scheduler.taken] == ["train", "train-2"][: len(chain.scheduler.taken)]
    (error,) = ends.values()
    assert type(refused) is type(error)


def test_an_interruption_says_what_stays(tmp_path: Path) -> None:
    refused = Chain(tmp_path, train_2=KeyboardInterrupt()).refused()
    assert isinstance(refused, InterruptedByUser)
    assert refused.message.startswith("link 2 of 3 may not be submitted; the job before it stays submitted:\ninterrupt")
    assert refused.hint == "hpcrun cancel 1 cancels the submitted jobs; check with hpcrun status"


def test_whoever_goes_on_after_a_refusal_gets_the_next(tmp_path: Path) -> None:
    chain = Chain(tmp_path, train_2=SchedulerError("no"))
    first, second, third = submit_many(chain.links, chain.ports, chain.around)
    assert isinstance(first, SubmitResult)
    assert isinstance(second, SchedulerError)
    assert isinstance(third, SubmitResult)
    assert chain.scheduler.taken[1].dependency == "afterok:77,afternotok:1"
    assert set(chain.store.run_ids()) == {first.run.run_id, third.run.run_id}


def test_a_job_that_starts_at_once_has_no_chain(tmp_path: Path) -> None:
    with pytest.raises(PlanError, match="--chain needs Slurm"):
        Chain(tmp_path, profile="local")
