"""What the records of elements that share a task say when the elements, or their requeue, end."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

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
    }
