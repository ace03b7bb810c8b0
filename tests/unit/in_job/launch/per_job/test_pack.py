"""What the records of elements that share a task say when the elements, or their requeue, end."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hpcrun.in_job.launch import records, slurm_requests
from hpcrun.in_job.launch.per_job.exit_record import write_exit
from hpcrun.in_job.launch.per_job.pack import Element, Pack, _core
from tests.unit.in_job.attempts import LAUNCH, Attempt


@pytest.fixture
def element(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Element:
    monkeypatch.setenv("HPCRUN_RUN_DIR", str(tmp_path))
    element = Element("3", "0", [])
    Path(element.attempt_folder).mkdir(parents=True)
    return element


def record_of(element: Element) -> dict[str, Any]:
    return dict(json.loads((Path(element.attempt_folder) / "exit").read_text()))


def test_the_record_of_a_killed_element_has_the_fields_of_every_exit_record(
    element: Element,
) -> None:
    Pack([element], [], 0)._end(element, 137)
    record = record_of(element)
    assert record.pop("ended") > 0
    assert record == {
        "status": 137,
        "signal": "",
        "message": "",
        "reason": "",
        "again": False,
        "how": "",
        "nodes": [],
        "alone": 0,
        "workers": [],
    }


def test_if_slurm_refuses_to_requeue_the_message_of_the_element_stays(
    element: Element, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_exit(
        1,
        signalled=False,
        message="a node failed",
        how=records.REQUEUE,
        folder=element.attempt_folder,
    )
    monkeypatch.setattr(slurm_requests, "requeue_patiently", lambda _: False)
    Pack([element], [], 0)._requeue()
    record = record_of(element)
    assert record["again"] is False
    assert record["message"] == (
        "a node failed; scontrol requeue failed; hpcrun resubmit starts it again"
    )


def test_a_task_is_requeued_once_also_if_a_second_reason_comes(
    element: Element, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_exit(1, signalled=False, how=records.REQUEUE, folder=element.attempt_folder)
    requeues: list[list[str]] = []

    def requeue(excluded: list[str]) -> bool:
        requeues.append(excluded)
        return True

    monkeypatch.setattr(slurm_requests, "requeue_patiently", requeue)
    pack = Pack([element], [], 0)
    pack._requeue()
    pack._requeue()
    assert requeues == [[]]
    assert record_of(element)["again"] is True


# --- the elements of a task ----------------------------------------------------------------------


@pytest.fixture
def elements(attempt: Attempt, monkeypatch: pytest.MonkeyPatch) -> list[Element]:
    """Two elements of a task, the first of which has run the set-up."""
    monkeypatch.setenv("SLURM_RESTART_COUNT", "2")
    created = [Element("0", "0", ["--seed", "0"]), Element("1", "3", ["--seed", "1"])]
    for element in created:
        Path(element.attempt_folder).mkdir(parents=True, exist_ok=True)
    return created


def test_each_element_has_paths_and_numbers_of_its_own(
    attempt: Attempt, elements: list[Element], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DUMP", f"{attempt.folder}/flight/rank_")
    env = elements[1].environment()
    folder = f"{attempt.run}/elements/1"
    assert env["HPCRUN_ATTEMPT_DIR"] == f"{folder}/attempts/3"
    assert env["DUMP"] == f"{folder}/attempts/3/flight/rank_"
    assert env["HPCRUN_CHECKPOINT_DIR"] == f"{folder}/checkpoints"
    names = ("HPCRUN_ELEMENT", "HPCRUN_ATTEMPT", "HPCRUN_REQUEUES", "HPCRUN_PACKED")
    assert [env[name] for name in names] == ["1", "3", "2", "1"]


def job_that_fails(excluded: list[list[str]]) -> Callable[[list[str]], bool]:
    """Return what stands for a requeue: it keeps the nodes that are excluded."""

    def requeue(nodes: list[str]) -> bool:
        excluded.append(nodes)
        return True

    return requeue


@pytest.mark.parametrize(
    ("options", "expected"),
    [(["--exclude-bad-nodes"], ["n1", "n2"]), ([], [])],
    ids=["excluded", "used again"],
)
def test_the_bad_nodes_of_all_elements_are_excluded_if_asked(
    elements: list[Element],
    monkeypatch: pytest.MonkeyPatch,
    options: list[str],
    expected: list[str],
) -> None:
    for element, nodes in zip(elements, (["n2"], ["n2", "n1"]), strict=True):
        folder = element.attempt_folder
        write_exit(1, signalled=False, how=records.REQUEUE, nodes=nodes, folder=folder)
    excluded: list[list[str]] = []
    monkeypatch.setattr(slurm_requests, "requeue_patiently", job_that_fails(excluded))
    Pack(elements, options, 0)._requeue()
    assert excluded == [expected]


def test_a_task_of_elements_that_ended_is_not_requeued(
    elements: list[Element], monkeypatch: pytest.MonkeyPatch
) -> None:
    write_exit(1, signalled=False, folder=elements[0].attempt_folder)
    excluded: list[list[str]] = []
    monkeypatch.setattr(slurm_requests, "requeue_patiently", job_that_fails(excluded))
    Pack(elements, [], 0)._requeue()
    assert excluded == []


def pack(attempt: Attempt, failed: int, texts: list[str], **env: str) -> int:
    """Run a task whose elements run these texts of a shell; return its status."""
    came = attempt.run / "came"
    came.write_text("")
    words = [str(failed)]
    for number, text in enumerate(texts):
        (attempt.run / f"elements/{number}/attempts/0").mkdir(parents=True, exist_ok=True)
        words += [str(number), "0", "1", text]
    with came.open() as file:
        argv = [*LAUNCH, "pack", *words, "--", "--came", str(file.fileno()), "--", "sh", "-c"]
        variables = {**attempt.env, **env}
        return subprocess.run(argv, env=variables, pass_fds=[file.fileno()]).returncode


def of_element(attempt: Attempt, number: int, name: str) -> str:
    """Return the text of a file of an element."""
    return (attempt.run / f"elements/{number}/attempts/0/{name}").read_text()


@pytest.mark.parametrize(
    ("before", "statuses", "expected"),
    [(0, (0, 0), 0), (0, (0, 4), 4), (6, (0, 4), 6), (6, (0, 0), 6)],
)
def test_a_task_ends_with_the_status_of_what_failed_first(
    attempt: Attempt, before: int, statuses: tuple[int, int], expected: int
) -> None:
    assert pack(attempt, before, [f"exit {status}" for status in statuses]) == expected
    for number, status in enumerate(statuses):
        assert json.loads(of_element(attempt, number, "exit"))["status"] == status


def test_each_element_has_its_share_of_the_task(attempt: Attempt) -> None:
    (attempt.folder / "code").write_text('{"folder": "/code"}')
    show = "echo $CUDA_VISIBLE_DEVICES $SLURM_CPUS_PER_TASK $(nproc) >$HPCRUN_ATTEMPT_DIR/share"
    pack(attempt, 0, [show] * 3, CUDA_VISIBLE_DEVICES="5,7")
    shares = [of_element(attempt, number, "share").split() for number in range(3)]
    assert [share[0] for share in shares] == ["5", "7", "5"]
    assert all(share[1] == share[2] for share in shares)
    cpus = len(os.sched_getaffinity(0))
    assert sum(int(share[1]) for share in shares) == max(cpus, 3)
    assert [json.loads(of_element(attempt, number, "code")) for number in range(3)] == [
        {"folder": "/code"}
    ] * 3


def test_the_threads_of_a_core_stay_together(monkeypatch: pytest.MonkeyPatch) -> None:
    siblings = {0: "0,4\n", 4: "0,4\n", 1: "1-5\n", 5: "1-5\n", 7: ""}
    monkeypatch.setattr(records, "read_text", lambda path: siblings[int(path.split("/")[5][3:])])
    assert sorted([0, 1, 4, 5, 7], key=_core) == [0, 4, 1, 5, 7]
