"""A plain run and an element of a sweep are treated alike: what is asked, said, noted and
written.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import pytest

from hpcrun.actions.status.run_status import RunStatus, element_row
from hpcrun.actions.status.status_query import get_status, last_known
from hpcrun.job.request.parameters import parse_assignments
from hpcrun.runs.elements import load_statuses
from hpcrun.runs.failed_nodes import FailedNodes
from hpcrun.runs.record import LastStatus
from hpcrun.runs.store import RunStore
from hpcrun.schedulers.slurm import SlurmScheduler
from hpcrun.schedulers.slurm_text import SEPARATOR
from tests.unit.builders import ports, run, write

RUN_ID = "20260102-030405-train-0a1b"
NOW = 5000.0


@dataclass
class Site:
    """A Slurm without accounting whose squeue says what stands in a file, and one run."""

    folder: Path

    @property
    def store(self) -> RunStore:
        return RunStore(self.folder / "runs", FailedNodes(self.folder / "failed-nodes.json"))

    def has(
        self, indices: str | None = None, *, job_id: str | None = "4711", after: str | None = None
    ) -> None:
        """Give it a run: a sweep of these elements, or a plain one."""
        rows = [list(map(list, row)) for row in parse_assignments(["n=a,b,c,d"])]
        sweep = (
            {"request": {"sweep": rows}, "plan": {"sweep": {"indices": indices, "first": 0}}}
            if indices
            else {}
        )
        waits = [{"run_id": after, "job_id": "12", "condition": "ok"}] if after else []
        self.store.create(run(RUN_ID, job_id=job_id, after=waits, **sweep), "")
        self.says({})

    def says(self, states: dict[str, str]) -> None:
        script = f"/r/{RUN_ID}/.submission_file_ab.sh"
        rest = ("None", "0:10", "1:00", "n1", script, "N/A")
        lines = [SEPARATOR.join((job, word, *rest)) for job, word in states.items()]
        self.answers("\n".join(f"echo '{line}'" for line in lines))

    def is_away(self) -> None:
        self.answers("exit 1")

    def answers(self, program: str) -> None:
        write(
            self.folder / "bin/squeue", f"#!/bin/sh\necho asked >>{self.folder}/asked\n{program}\n"
        ).chmod(0o755)

    def starts(self, element: int = 0, attempt: int = 0, **exit_: object) -> None:
        folder = self.store.folder(RUN_ID) / f"elements/{element}/attempts/{attempt}"
        job_id = f"4711_{element}" if self.store.load(RUN_ID).plan.get("sweep") else "4711"
        write(
            folder / "start", json.dumps({"job_id": job_id, "host": "node1", "started": NOW - 100})
        )
        write(folder / "heartbeat", str(NOW))
        if exit_:
            write(folder / "exit", json.dumps({"signal": "", "ended": NOW - 10, **exit_}))

    def runs(self, indices: str | None) -> None:
        """Give it a run that squeue has listed as running."""
        self.has(indices)
        self.says({f"4711_[{indices}]" if indices else "4711": "RUNNING"})
        self.status()

    def status(self, now_s: float = NOW) -> RunStatus:
        scheduler = SlurmScheduler(
            {"PATH": f"{self.folder}/bin:/usr/bin:/bin"}, _known={"cluster": "alpha"}
        )
        (item,) = get_status([RUN_ID], ports(self.store, scheduler, now_s)).runs
        return item


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


def test_what_the_elements_say_is_written_when_it_is_new_or_a_minute_old(site: Site) -> None:
    site.has("0-1")
    site.says({"4711_0": "RUNNING", "4711_[1]": "PENDING"})
    record = site.store.folder(RUN_ID) / "elements.json"
    site.status()
    first = record.stat().st_ino
    site.status(NOW + 59)
    assert record.stat().st_ino == first
    site.status(NOW + 60)
    second = record.stat().st_ino
    assert second != first
    site.says({"4711_0": "COMPLETED", "4711_[1]": "PENDING"})
    site.status(NOW + 61)
    assert record.stat().st_ino != second


@pytest.mark.parametrize("indices", [None, "0-1"])
def test_with_slurm_away_and_where_an_answer_leaves_it_out_a_run_is_as_last_known(
    site: Site, indices: str | None
) -> None:
    site.runs(indices)
    site.is_away()
    item = site.status(NOW + 500)
    assert item.status.state == "RUNNING"
    assert item.status.asked_s == NOW
    assert item.stale is True
    assert item.live is False
    site.says({})
    item = site.status(NOW + 505)
    assert item.status.state == "RUNNING"
    assert item.status.asked_s == NOW
    assert item.status.missed_s == NOW + 505
    assert item.stale


def test_an_element_that_an_answer_leaves_out_is_stale_and_the_others_are_not(site: Site) -> None:
    site.runs("0-1")
    site.says({"4711_0": "RUNNING"})
    item = site.status(NOW + 5)
    assert [(each.stale, each.live) for each in item.elements] == [(False, True), (True, False)]
    assert item.stale is False
    assert item.live is True
    assert item.status.asked_s == NOW + 5


def test_an_element_that_is_over_is_never_out_of_date(site: Site) -> None:
    site.has("0-1")
    site.says({"4711_0": "COMPLETED", "4711_1": "RUNNING"})
    site.status()
    site.is_away()
    item = site.status(NOW + 5)
    assert [element_row(item, each).stale for each in item.elements] == [False, True]


@pytest.mark.parametrize(("indices", "element"), [(None, 0), ("2-3", 2)])
@pytest.mark.parametrize("away", [False, True])
def test_a_job_id_that_was_never_learned_is_the_one_that_any_script_wrote(
    site: Site, indices: str | None, element: int, away: bool
) -> None:
    site.has(indices, job_id=None)
    site.starts(element)
    if away:
        site.is_away()
    item = site.status()
    assert item.run.job_id == "4711"
    assert item.status.state == "RUNNING"
    assert site.store.load(RUN_ID).job_id == "4711"


def test_a_sweep_whose_job_id_squeue_tells_costs_a_second_question(site: Site) -> None:
    site.has("0-3", job_id=None)
    site.says({"4711_0": "RUNNING", "4711_[1-3]": "PENDING"})
    item = site.status()
    assert item.run.job_id == "4711"
    assert [each.status.state for each in item.elements] == [
        "RUNNING",
        "PENDING",
        "PENDING",
        "PENDING",
    ]
    assert (site.folder / "asked").read_text().split() == ["asked"] * 2


@pytest.mark.parametrize(("indices", "element"), [(None, 0), ("0-1", 1)])
def test_a_run_of_which_no_job_came_is_known_again_when_it_starts_after_all(
    site: Site, indices: str | None, element: int
) -> None:
    site.has(indices, job_id=None)
    assert site.status().status.state == "NOT_SUBMITTED"
    assert site.store.active_ids() == []
    site.starts(element)
    site.says(
        {"4711": "RUNNING"}
        if indices is None
        else {f"4711_{element}": "RUNNING", "4711_[0]": "PENDING"}
    )
    item = site.status(NOW + 1)
    assert item.status.state == "RUNNING"
    assert item.run.job_id == "4711"
    assert item.live is True
    assert [each.status.state for each in item.elements] == (
        [] if indices is None else ["PENDING", "RUNNING"]
    )
    assert site.store.active_ids() == [RUN_ID]


@pytest.mark.parametrize(("indices", "element"), [(None, 0), ("0-3", 3)])
def test_the_node_that_failed_is_noted(site: Site, indices: str | None, element: int) -> None:
    site.has(indices)
    site.starts(element, status=1, reason="node_failure", nodes=["node7"], again=True)
    site.status()
    assert [entry.node for entry in FailedNodes(site.folder / "failed-nodes.json").known(NOW)] == [
        "node7"
    ]


def test_what_a_folder_alone_says_of_a_sweep_is_what_its_elements_do(site: Site) -> None:
    site.has("0-3")
    site.starts(0, status=0)
    site.starts(2)
    (item,) = last_known([RUN_ID], store=site.store, now_s=NOW).runs
    assert [each.status.state for each in item.elements] == [
        "COMPLETED",
        "PENDING",
        "RUNNING",
        "PENDING",
    ]
    assert item.status.state == "RUNNING"
    assert item.stale is True
    assert item.status.attempt == 0
    assert not (item.folder / "elements.json").exists()


@pytest.mark.parametrize("indices", [None, "1-2"])
def test_a_run_that_could_never_start_was_cancelled_with_its_elements(
    site: Site, indices: str | None
) -> None:
    first = "20260102-030400-first-0a1b"
    site.has(indices, after=first)
    site.store.create(run(first, job_id="12"), "")
    site.store.save_status(first, LastStatus("FAILED", 1.0, final=True))
    item = site.status()
    assert item.status.state == "CANCELLED"
    assert item.status.final is True
    assert item.status.reason == "DependencyNeverSatisfied"
    assert {each.status.state for each in item.elements} <= {"CANCELLED"}
    assert {status.state for status in load_statuses(item.folder).values()} <= {"CANCELLED"}


def test_a_sweep_of_which_an_element_has_started_waits_for_nobody(site: Site) -> None:
    first = "20260102-030400-first-0a1b"
    site.has("1-2", after=first)
    site.store.create(run(first, job_id="12"), "")
    site.starts(2)
    assert site.status().waits == ()


def test_a_second_question_without_an_answer_loses_nothing(site: Site) -> None:
    """The controller goes away between the two questions about a sweep whose job id the first one
    told.
    """
    site.has("0-1", job_id=None)
    site.says({"4711_[0-1]": "RUNNING"})
    with (site.folder / "bin/squeue").open("a") as program:
        program.write("printf '#!/bin/sh\\nexit 1\\n' >$0\n")
    item = site.status()
    assert item.run.job_id == "4711"
    assert item.stale is True
    assert not (item.folder / "elements.json").exists()


def test_any_number_of_runs_costs_one_squeue_and_one_sacct(site: Site) -> None:
    site.has()
    ids = [f"20260102-03040{number}-train-0a1b" for number in range(4)]
    for number, run_id in enumerate(ids):
        site.store.create(run(run_id, job_id=str(number)), "")
    site.says({"4711": "RUNNING"})
    write(site.folder / "bin/sacct", f"#!/bin/sh\necho accounted >>{site.folder}/asked\n").chmod(
        0o755
    )
    scheduler = SlurmScheduler(
        {"PATH": f"{site.folder}/bin:/usr/bin:/bin"}, _known={"cluster": "alpha"}
    )
    assert len(get_status([*ids, RUN_ID], ports(site.store, scheduler, NOW)).runs) == 5
    assert (site.folder / "asked").read_text().split() == ["asked", "accounted"]
