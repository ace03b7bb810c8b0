"""What the records of elements that share a task say when the elements, or their requeue, end."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from hpcrun.in_job.launch import records, slurm_requests
from hpcrun.in_job.launch.per_job.exit_record import write_exit
from hpcrun.in_job.launch.per_job.pack import Element, Pack


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
