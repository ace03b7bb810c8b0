"""What to say of a sweep as a whole, and which of its elements were meant."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from hpcrun.actions.runs.find import find_element
from hpcrun.actions.status.run_status import (
    NEVER,
    ElementStatus,
    combine,
    failed_elements,
    interesting_element,
    never_started,
    waits_of,
)
from hpcrun.errors import NotFoundError, UsageError
from hpcrun.job.request.parameters import parse_assignments
from hpcrun.runs.elements import elements_of, load_statuses, save_statuses
from hpcrun.runs.record import LastStatus, Run, run_from_json, run_to_json
from hpcrun.runs.store import RunStore
from hpcrun.schedulers.protocol import JobRef
from hpcrun.schedulers.slurm_text import SEPARATOR, jobs_of_runs, parse_squeue
from tests.unit import builders
from tests.unit.builders import run


def statuses(*words: str) -> list[LastStatus]:
    return [
        LastStatus(word, 1.0, final=word not in ("PENDING", "RUNNING", "UNKNOWN")) for word in words
    ]


def sweep_run(indices: str = "0-3", first: int = 0, **said: Any) -> Run:
    request = {"sweep": [list(map(list, row)) for row in parse_assignments(["n=a,b,c,d"])]}
    return builders.run(
        request=request, plan={"sweep": {"indices": indices, "first": first}}, **said
    )


@pytest.mark.parametrize(
    ("words", "state", "final"),
    [
        (("COMPLETED", "COMPLETED"), "COMPLETED", True),
        (("COMPLETED", "FAILED", "CANCELLED"), "FAILED", True),
        (("COMPLETED", "CANCELLED"), "CANCELLED", True),
        (("PENDING", "PENDING"), "PENDING", False),
        (("COMPLETED", "PENDING"), "RUNNING", False),
        (("FAILED", "RUNNING"), "RUNNING", False),
        (("UNKNOWN", "UNKNOWN"), "UNKNOWN", False),
    ],
)
def test_one_state_for_many(words: tuple[str, ...], state: str, final: bool) -> None:
    whole = combine(statuses(*words), 60)
    assert whole.state == state
    assert whole.final == final


def test_the_counts_add_up() -> None:
    words = ["RUNNING"] * 12 + ["COMPLETED"] * 30 + ["FAILED"] + ["PENDING"] * 957
    assert (
        combine(statuses(*words), 60).reason
        == "1000 elements: 12 running, 957 pending, 30 completed, 1 failed"
    )


def test_failed_elements_can_be_submitted_again() -> None:
    words = ("COMPLETED", "FAILED", "RUNNING", "TIMEOUT", "CANCELLED")
    elements = [
        ElementStatus(number, None, (), status) for number, status in enumerate(statuses(*words))
    ]
    assert failed_elements(elements) == [1, 3, 4]
    assert interesting_element(elements) == 1
    assert interesting_element(elements[2:3]) == 2
    assert interesting_element([ElementStatus(4, None, (), statuses("PENDING")[0])]) == 4


def test_elements_survive_being_written_and_read_and_what_another_version_has_noted_stays(
    tmp_path: Path,
) -> None:
    known = {
        0: LastStatus("COMPLETED", 2.0, True, elapsed_s=0, exit_status=0),
        7: LastStatus("PENDING", 2.0),
    }
    save_statuses(tmp_path, known)
    assert load_statuses(tmp_path) == known
    record = tmp_path / "elements.json"
    record.write_text("{")
    assert load_statuses(tmp_path) == {}
    noted = {
        "schema": 7,
        "0": {"state": "RUNNING", "asked_s": 1.0, "power": 3},
        "1": {"state": "PENDING"},
    }
    record.write_text(json.dumps(noted))  # another version's
    assert load_statuses(tmp_path)[0] == LastStatus("RUNNING", 1.0)


def test_an_element_is_found_by_run_and_by_job(tmp_path: Path, subtests: pytest.Subtests) -> None:
    store = RunStore(tmp_path)
    run = sweep_run("2-3", first=2, job_id="4711")
    store.create(run, "")
    assert run_from_json(run_to_json(run)) == run
    for word, element in (
        ("train/3", 3),
        ("last/2", 2),
        ("4711_1", 3),
        ("4711/3", 3),
        ("4711", None),
        ("train", None),
    ):
        with subtests.test(word=word):
            assert find_element(word, store).element == element
    elements = elements_of(run)
    assert elements is not None
    assert elements.job_id(run, 3) == "4711_1"
    store.create(builders.run("20260102-030405-plain-0a1b", job_id="12"), "")
    for word, wrong in (
        ("train/1", "has no element"),
        ("4711_2", "has no element"),
        ("plain/0", "is no array"),
    ):
        with pytest.raises(NotFoundError, match=wrong):
            find_element(word, store)
    assert elements_of(builders.run()) is None


def test_an_element_of_a_pack_is_a_part_of_a_task(tmp_path: Path) -> None:
    store = RunStore(tmp_path)
    run = sweep_run("0-1,3", job_id="4711")
    run.plan["sweep"]["pack"] = 2
    store.create(run, "")
    elements = elements_of(run)
    assert elements is not None
    assert [elements.job_id(run, index) for index in (0, 1, 3)] == ["4711_0", "4711_0", "4711_1"]
    assert find_element("4711_1", store).element == 3
    with pytest.raises(UsageError, match="task 4711_0 runs the elements 0-1") as error:
        find_element("4711_0", store)
    assert "4711/0" in str(error.value.hint)


def test_a_hundred_thousand_lines_are_read_in_time() -> None:
    rest = ["0:01", "1:00", "n1", "/runs/a/.submission_file_0.sh", "N/A"]
    refs = [JobRef(Path(f"/runs/a/elements/{index}"), f"1_{index}") for index in range(30)]
    ids = (f"{7 + index % 100}_{index}" for index in range(100_000))
    lines = [SEPARATOR.join([job_id, "RUNNING", "None", *rest]) for job_id in ids]
    text = "\n".join([*lines, SEPARATOR.join(["1_[5-9,20%4]", "PENDING", "Priority", *rest])])
    start = time.process_time()
    known = jobs_of_runs(parse_squeue(text), refs)
    assert time.process_time() - start < 10  # about one second; a quadratic way would take hours
    assert sorted(int(folder.name) for folder in known) == [5, 6, 7, 8, 9, 20]


AFTER = [
    {"run_id": "20260101-000000-first-0000", "job_id": "1", "condition": "ok", "over": False},
    {"run_id": "20260101-000000-last-0000", "job_id": "2", "condition": "fail", "over": False},
]


def judged(state: str, final: bool, **states: str | None) -> tuple[list[str], LastStatus]:
    """The runs that one waits for, each in a state, and its status after all.

    A state with a star is not final, and one with an exclamation mark may be requeued.
    """

    def status_of(run_id: str) -> LastStatus | None:
        word = states[run_id.split("-")[2]]
        if word is None:
            return None
        mark = word.lstrip("ABCDEFGHIJKLMNOPQRSTUVWXYZ")
        return LastStatus(word.rstrip("*!"), 0, final=mark != "*", forgotten=mark == "")

    status = LastStatus(state, 0, final=final)
    waits = waits_of(run(after=AFTER[: len(states)]), status, status_of)
    return [f"{wait.name} {wait.state}" for wait in waits], never_started(status, waits)


def test_a_waiting_run_names_what_is_not_fulfilled_and_a_cancelled_one_what_never_will_be(
    subtests: pytest.Subtests,
) -> None:
    for state, final, first, last, names in (
        ("PENDING", False, "RUNNING*", None, ["first RUNNING", "last UNKNOWN"]),
        ("PENDING", False, "COMPLETED", "RUNNING*", ["last RUNNING"]),
        ("PENDING", False, "COMPLETED", "FAILED", []),
        ("RUNNING", False, "RUNNING*", "RUNNING*", []),
        ("CANCELLED", True, "FAILED", "RUNNING*", ["first FAILED"]),
        ("CANCELLED", True, "RUNNING*", "RUNNING*", []),
    ):
        with subtests.test(state=state):
            assert judged(state, final, first=first, last=last)[0] == names


def test_a_run_that_slurm_forgot_was_cancelled_where_it_could_not_start(
    subtests: pytest.Subtests,
) -> None:
    never = LastStatus("CANCELLED", 0, final=True, reason=NEVER)
    unknown = LastStatus("UNKNOWN", 0)
    ends = {"FAILED": never, "FAILED!": unknown, "RUNNING*": unknown, "COMPLETED": unknown}
    for first, expected in ends.items():
        with subtests.test(first=first):
            assert judged("UNKNOWN", False, first=first)[1] == expected
