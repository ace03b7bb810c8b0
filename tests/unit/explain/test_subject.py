"""The process that an exception is about, where another process raised it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hpcrun.explain.diagnosis.facts import Facts, RankEnd
from hpcrun.explain.diagnosis.subject import subject_of
from hpcrun.job.run_paths import RunFolder
from hpcrun.runs.attempt import node_addresses, rank_exits
from tests.unit.explain.written import ATTEMPT, Written, explained, raised, write_run

DIED = "ray.exceptions.ActorDiedError: The actor died unexpectedly before finishing this task."
MESSAGE = ("\tclass_name: Worker", "\tpid: 22805", "\tname: worker-1", "\tip: 10.77.0.8")
ENDS = {
    0: RankEnd(0, "n0", 1, 1.0, pid=100),
    1: RankEnd(1, "n1", 143, 2.0, pid=101),
}
FACTS = Facts("FAILED", ENDS, addresses={"10.77.0.8": "n1", "10.77.0.9": "n0"})


def test_an_actor_is_told_of_by_its_name_and_the_rank_of_its_node() -> None:
    subject = subject_of(DIED, MESSAGE)
    assert subject is not None
    assert subject.sentence(FACTS) == "the process worker-1 (pid 22805 on n1) ended"
    assert (subject.node(FACTS), subject.rank(FACTS)) == ("n1", 1)
    assert subject.sentence(Facts("FAILED")).endswith("(pid 22805 on 10.77.0.8) ended")
    assert subject.rank(Facts("FAILED")) is None


def test_a_pid_of_a_rank_is_that_rank() -> None:
    subject = subject_of("ray.exceptions.WorkerCrashedError: x", ["pid: 101 memory pressure"])
    assert subject is not None
    assert subject.sentence(FACTS) == "rank 1 on n1 ended: memory pressure"


@pytest.mark.parametrize(
    "exception", ["RuntimeError: pid: 5 ip: 10.77.0.8", "KeyError: 'pid: 5'", DIED]
)
def test_only_a_report_with_a_place_has_another_subject(exception: str) -> None:
    assert subject_of(exception, ["no place is named"]) is None


def test_the_records_of_nodes_and_ranks_tell_which_process_it_was(tmp_path: Path) -> None:
    message = "\n".join((DIED, *MESSAGE))
    folder = write_run(Written(None, raised(message, 0), others=""), tmp_path / "run")
    node = folder / ATTEMPT / "node-node02.start"
    start = {"node": "node02", "first_rank": 4, "ranks": 4, "addresses": ["10.77.0.8"]}
    node.write_text(json.dumps(start))
    said = explained(folder)
    assert said.summary.startswith("the process worker-1 (pid 22805 on node02) ended; rank ")
    assert said.node == "node02"


def test_records_of_an_older_hpcrun_have_no_address_and_no_pid(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path).element(0).attempt(0)
    folder.path.mkdir(parents=True)
    folder.node_file("n0").write_text('{"node": "n0", "first_rank": 0, "ranks": 1}')
    end = '{"rank": 0, "node": "n0", "status": 1, "ended": 5.0}'
    folder.rank_exit(0).write_text(end)
    assert node_addresses(folder) == {}
    assert [one.pid for one in rank_exits(folder)] == [0]
