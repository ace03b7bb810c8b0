"""The files of an attempt: which records count, and what they say of its ranks."""

from __future__ import annotations

import errno
import json
import os
import time
from pathlib import Path
from typing import Any

import pytest

from hpcrun.in_job.launch import records
from tests.unit.in_job.attempts import Attempt


def leave(attempt: Attempt, name: str, **fields: Any) -> None:
    """Leave a record, as another process does."""
    path = attempt.folder / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(fields))


@pytest.mark.parametrize(
    "fields",
    [
        {"a": 1, "b": 2.5, "c": "text", "d": True, "e": False},
        {"a": 'quo"te', "b": "back\\slash", "c": "line\nbreak", "d": "ü"},
        {"a": ["list"], "b": {"in": 1}, "c": None},
        {},
        17,
    ],
    ids=["plain", "escapes", "nested", "empty", "number"],
)
def test_a_record_is_json(attempt: Attempt, fields: dict[str, Any] | int) -> None:
    assert records.write("a", fields)
    assert json.loads(attempt.text("a")) == fields
    assert {*os.listdir(attempt.folder)} == {"stop", "a"}


@pytest.mark.parametrize(
    ("text", "record"),
    [('{"a": 1}', {"a": 1}), ("", None), ('{"a": ', None), ("[1]", None), ("7", None)],
)
def test_what_is_no_record_is_none(
    attempt: Attempt, text: str, record: dict[str, Any] | None
) -> None:
    (attempt.folder / "a").write_text(text)
    assert records.read("a") == record


def test_a_record_that_is_missing_or_no_text_is_none(attempt: Attempt) -> None:
    assert records.read("a") is None
    (attempt.folder / "a").write_bytes(b"\xff")
    assert records.read("a") is None


def test_a_record_that_cannot_be_written_is_said(
    attempt: Attempt, capsys: pytest.CaptureFixture[str]
) -> None:
    assert not records.write("a", {}, str(attempt.folder / "missing"))
    assert capsys.readouterr().err.startswith("hpcrun: cannot write the record a: [Errno 2] ")


def failing(times: int, number: int) -> Any:
    """Return what fails some times."""
    left = [number] * times

    def act() -> None:
        if left:
            raise OSError(left.pop(), "failed")

    return act


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_is_tried_again(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    pauses: list[float] = []
    monkeypatch.setattr(time, "sleep", pauses.append)
    records.retry_if_full(failing(2, number))
    assert len(pauses) == 2


@pytest.mark.parametrize(
    ("number", "within_s"),
    [
        pytest.param(errno.EACCES, None, id="another reason"),
        pytest.param(errno.ENOSPC, 0, id="no time"),
    ],
)
def test_another_failure_is_not_tried_again(number: int, within_s: float | None) -> None:
    with pytest.raises(OSError, match="failed"):
        records.retry_if_full(failing(1, number), within_s)


# --- what they say -------------------------------------------------------------------------------

FAILED = {"status": 1, "ended": 5.0, "told": ""}


def test_only_whole_exit_records_count(attempt: Attempt) -> None:
    leave(attempt, "rank-0.exit", rank=0, status=0, ended=1)
    leave(attempt, "rank-1.exit", rank=1, status="0", ended=1)
    leave(attempt, "rank-2.exit", rank=2, status=0)
    leave(attempt, "rank-3.exit.1", rank=3, status=0, ended=1)
    leave(attempt, "node-n1.exit", rank=4, status=0, ended=1)
    assert [record["rank"] for record in records.exits()] == [0]
    assert [record["rank"] for record in records.exits("node")] == [4]


@pytest.mark.parametrize(
    ("exits", "first"),
    [
        pytest.param([{"status": 1, "ended": 5}, {"status": 2, "ended": 4}], 2, id="the earlier"),
        pytest.param([{"status": 0, "ended": 1}], None, id="well"),
        pytest.param([{"status": 143, "ended": 1}], None, id="terminated"),
        pytest.param([{"status": 1, "ended": 1, "told": "TERM"}], None, id="asked to stop"),
        pytest.param([], None, id="none"),
    ],
)
def test_the_rank_that_failed_first_by_itself_counts(
    exits: list[dict[str, Any]], first: int | None
) -> None:
    failed = records.first_failed(exits)
    assert (failed["status"] if failed else None) == first


@pytest.mark.parametrize(
    ("left", "has_failed"),
    [
        pytest.param({}, False, id="nothing"),
        pytest.param({"rank-0.exit": {**FAILED, "status": 0}}, False, id="well"),
        pytest.param({"rank-0.exit": FAILED}, True, id="a rank"),
        pytest.param({"rank-0.exit": {**FAILED, "told": "TERM"}}, False, id="asked to stop"),
        pytest.param({"rank-0.exit": {**FAILED, "told": "cleared"}}, True, id="after a failure"),
        pytest.param({"node-n1.exit": FAILED}, True, id="a node without ranks"),
        pytest.param(
            {"node-n1.exit": FAILED, "rank-0.exit": {**FAILED, "status": 0}},
            False,
            id="a node after its ranks",
        ),
        pytest.param({"roles/a.end": {"message": "no"}}, True, id="a role"),
    ],
)
def test_an_attempt_has_failed_if_a_rank_has(
    attempt: Attempt, left: dict[str, dict[str, Any]], has_failed: bool
) -> None:
    for name, fields in left.items():
        leave(attempt, name, **fields)
    assert records.has_failed() == has_failed


def test_the_role_that_failed_first_says_why(attempt: Attempt) -> None:
    assert records.role_failure() == ""
    leave(attempt, "roles/a.end", message="later", time=5)
    leave(attempt, "roles/b.end", message="first", time=4)
    leave(attempt, "roles/c.start", message="no end", time=1)
    assert records.role_failure() == "first"


@pytest.mark.parametrize(
    ("name", "has_begun"),
    [("node-n1.start", True), ("rank-0.out", True), ("roles", True), ("hosts", False)],
)
def test_an_attempt_has_begun_once_a_rank_has_written(
    attempt: Attempt, name: str, has_begun: bool
) -> None:
    assert not records.has_begun()
    (attempt.folder / name).touch()
    assert records.has_begun() == has_begun


def test_nodes_have_started_if_their_start_is_recorded(attempt: Attempt) -> None:
    for name in ("node-n1.start", "node-n-2.start", "node-n3.exit", "rank-0.start"):
        (attempt.folder / name).touch()
    assert records.started_nodes() == {"n1", "n-2"}


# --- earlier attempts ----------------------------------------------------------------------------


@pytest.fixture
def third(attempt: Attempt, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of all attempts, of which this is the third."""
    monkeypatch.setenv("HPCRUN_ATTEMPT", "2")
    monkeypatch.setenv("HPCRUN_ATTEMPT_DIR", str(attempt.folder.parent / "2"))
    for number in ("0", "1", "2"):
        (attempt.folder.parent / number).mkdir(exist_ok=True)
    return attempt.folder.parent


def test_attempts_that_started_and_have_no_end_were_cut_off(third: Path) -> None:
    for name in ("0/start", "1/start", "1/exit", "2/start"):
        (third / name).touch()
    assert records.attempts_cut_off() == 1
    (third / "1/exit").unlink()
    assert records.attempts_cut_off() == 2


@pytest.mark.parametrize(
    ("record", "nodes"),
    [
        ({"reason": "node_failure", "nodes": ["n1", "n2"]}, ["n1", "n2"]),
        ({"reason": "failure", "nodes": ["n1"]}, []),
        ({"reason": "node_failure", "nodes": "n1"}, []),
        (None, []),
    ],
)
def test_the_nodes_that_failed_before_are_known(
    third: Path, record: dict[str, Any] | None, nodes: list[str]
) -> None:
    if record:
        (third / "1/exit").write_text(json.dumps(record))
    assert records.lost_nodes() == nodes


def test_before_the_first_attempt_there_is_none(attempt: Attempt) -> None:
    assert records.folder_before() == ""
    assert records.lost_nodes() == []
    assert records.attempts_cut_off() == 0


# --- requests to stop ----------------------------------------------------------------------------


def test_the_first_request_for_a_reason_is_known(attempt: Attempt) -> None:
    assert records.stop_reasons() == []
    assert records.ask_to_stop("terminated")
    assert not records.ask_to_stop("terminated")
    assert records.ask_to_stop("time_limit")
    assert records.stop_reasons() == ["terminated", "time_limit"]
    host, asked_s = attempt.text("stop/terminated").split()
    assert host == os.uname().nodename
    assert abs(float(asked_s) - time.time()) < 60


def test_a_request_that_cannot_be_made_is_said(
    attempt: Attempt, capsys: pytest.CaptureFixture[str]
) -> None:
    (attempt.folder / "stop").rmdir()
    assert not records.ask_to_stop("terminated")
    assert capsys.readouterr().err.startswith("hpcrun: cannot ask the ranks to stop: [Errno 2] ")


def test_results_go_to_the_output_and_problems_to_the_log(
    capsys: pytest.CaptureFixture[str],
) -> None:
    records.announce("all is well")
    records.say("a problem")
    assert tuple(capsys.readouterr()) == ("hpcrun: all is well\n", "hpcrun: a problem\n")
