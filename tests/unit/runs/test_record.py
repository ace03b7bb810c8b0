"""The record of a run, as JSON."""

from __future__ import annotations

import json
import os
from dataclasses import fields, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpcrun.runs.record import (
    SCHEMA,
    LastStatus,
    NewerRecordError,
    RecordError,
    Run,
    run_from_json,
    run_to_json,
    status_from_json,
    status_to_json,
)
from tests.unit.builders import run

WAITED = {"run_id": "20260102-030405-train-0a1b", "job_id": "4", "condition": "ok", "over": False}
# As the system gives it: a byte that is no UTF-8 is a lone surrogate from U+DC80 on (PEP 383); no
# other comes.
ANY_TEXT = st.binary(max_size=40).map(lambda data: os.fsdecode(data.replace(b"\0", b"")))


@given(ANY_TEXT, st.lists(ANY_TEXT, max_size=5), st.none() | st.just("4711"))
def test_a_record_written_is_read_back_the_same(
    script: str, args: list[str], job_id: str | None
) -> None:
    record = run(job_id=job_id, request={"script": script, "args": args})
    text = run_to_json(record)
    assert text.isascii()
    assert json.loads(text)["schema"] == SCHEMA
    assert "unknown" not in json.loads(text)
    assert run_from_json(text) == record


def test_a_damaged_record_or_status_is_refused() -> None:
    for text in (
        "",
        "{",
        "[]",
        "5",
        "{}",
        '{"schema": 1}',
        '{"schema": 1, "run_id": "x"}',
        "[" * 200_000,
    ):
        with pytest.raises(ValueError, match=r".+"):
            run_from_json(text)
    for text in (
        "",
        "[]",
        "{}",
        '{"state": "RUNNING", "asked_s": 1e999}',
        '{"state": ["x"], "asked_s": 1}',
    ):
        with pytest.raises(ValueError, match=r".+"):
            status_from_json(text)


@pytest.mark.parametrize(
    ("rows", "problem"),
    [
        ([], ""),
        ([[]], ""),
        ([[["n", "a"]], [["n", "b"], ["m", ""]]], ""),
        (None, "is not a list"),
        ("ab", "is not a list"),
        ({"n": "a"}, "is not a list"),
        ([3], "is not a list"),
        (["ab"], "is not a list"),
        ([["ab"]], "is not a pair of texts"),
        ([[["n", "a"], ["n", "a", "b"]]], "is not a pair of texts"),
        ([[["n", 1]]], "is not text"),
        ([[["n", None]]], "is not text"),
        ([[["n", "a\0"]]], "is not text"),
    ],
)
def test_the_parameters_of_a_sweep_are_pairs_of_texts(rows: Any, problem: str) -> None:
    document = json.loads(run_to_json(run(request={"sweep": rows})))
    if problem:
        with pytest.raises(RecordError, match=f"its field sweep {problem}"):
            run_from_json(json.dumps(document))
    else:
        assert run_from_json(json.dumps(document)).request["sweep"] == rows


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("script", 5),
        ("script", ["x"]),
        ("script", "a\0"),
        ("args", None),
        ("args", 5),
        ("args", "ab"),
        ("args", ["a", 5]),
        ("args", [["a"]]),
        ("args", ["a\0"]),
        ("module", "yes"),
        ("gpus", "many"),
        ("gpus", 4),
        ("gpus", {}),
        ("gpus", {"count": "4"}),
        ("gpus_per_node", {"count": 4, "type": 5}),
        ("secrets", [5]),
        ("roles", ["x"]),
        ("roles", [{"size": 5}]),
        ("roles", [{"name": "server", "command": 5}]),
    ],
)
def test_the_program_and_the_gpus_of_a_request_have_their_types(name: str, value: Any) -> None:
    document = run_to_json(run(request={"script": "train.py", name: value}))
    with pytest.raises(RecordError, match=f"its field {name} "):
        run_from_json(document)


@pytest.mark.parametrize("note", [5, "", "two\nlines", "x" * 1001, ["x"]])
def test_a_note_is_one_line(note: Any) -> None:
    with pytest.raises(RecordError, match="its field note "):
        run_from_json(run_to_json(run(note=note)))


def test_the_request_of_a_run_is_read_back_the_same() -> None:
    request = {
        "script": "train.py",
        "args": ["--lr", "0.1"] * 3,
        "module": True,
        "gpus": {"count": 4, "type": "a100"},
        "roles": [{"name": "server", "command": ["serve.py"]}],
    }
    assert run_from_json(run_to_json(run(request=request))).request == request


def test_a_sweep_whose_elements_have_no_parameters_is_damaged() -> None:
    rows = [[["n", "a"]], [["n", "b"]]]
    whole = run(request={"sweep": rows}, plan={"sweep": {"indices": "0-1", "first": 0}})
    assert run_from_json(run_to_json(whole)) == whole
    cut = replace(whole, plan={"sweep": {"indices": "0,4", "first": 0}})
    with pytest.raises(RecordError, match="it has parameters of 2 elements, and none of element 4"):
        run_from_json(run_to_json(cut))


def test_a_role_has_a_harmless_name_and_its_ranks() -> None:
    role = {
        "name": "server",
        "first_rank": 1,
        "ranks": 2,
        "first_node": 0,
        "nodes": 1,
        "on_exit": "end",
        "port": 8000,
    }
    (read,) = run_from_json(run_to_json(run(plan={"roles": [role]}))).roles
    assert read.name == "server"
    assert read.first_rank == 1
    assert read.ranks == 2
    assert read.ready == ""
    for change in (
        {"name": "\x1b[2J"},
        {"name": "../x"},
        {"ranks": -1},
        {"first_rank": "1"},
        {"after": "server"},
    ):
        with pytest.raises(RecordError):
            run_from_json(run_to_json(run(plan={"roles": [{**role, **change}]})))


def test_records_of_newer_and_older_versions_and_their_unknown_fields() -> None:
    text = (
        run_to_json(run())
        .replace(f'"schema": {SCHEMA}', '"schema": 99')
        .replace('"nodes": 2', '"nodes": {}')
    )
    with pytest.raises(NewerRecordError, match="written by a newer hpcrun"):
        run_from_json(text)
    said = json.loads(run_to_json(run()))
    for name in ("request", "plan", "cwd", "after", "chain", "code", "walltime_s", "schema"):
        del said[name]
    assert run_from_json(json.dumps(said)) == run(walltime_s=None)  # of an older version
    known = json.loads(
        run_to_json(
            run(after=[{**WAITED, "since": 4}], chain={"link": 1, "links": 2, "first": "x"})
        )
    )
    known |= {"colour": [{"red": 1}], "plan": {"shade": 3}}
    read = run_from_json(json.dumps(known))
    assert json.loads(run_to_json(replace(read, job_id="5"))) == {**known, "job_id": "5"}


@pytest.mark.parametrize("name", [item.name for item in fields(Run)])
@pytest.mark.parametrize(
    "value",
    [[], [5], {}, {"sweep": 5}, {"sweep": {"indices": "0-3", "first": 0}}, 1e300, "\0", -1],
    ids=repr,
)
def test_no_field_of_a_record_gets_through_with_a_wrong_type(name: str, value: Any) -> None:
    said = json.loads(run_to_json(run(chain={"link": 1, "links": 2, "first": "x"})))
    try:
        read = run_from_json(json.dumps({**said, name: value}))
    except RecordError as error:
        assert name in str(error) or "sweep" in value
    else:
        assert read == run_from_json(run_to_json(read))
        assert isinstance(getattr(read, name), dict | list)


@given(ANY_TEXT, st.booleans(), st.none() | st.integers(0, 10**6))
def test_a_status_written_is_read_back_the_same(
    reason: str, final: bool, elapsed_s: int | None
) -> None:
    status = LastStatus("RUNNING", 5.5, final=final, reason=reason, elapsed_s=elapsed_s)
    assert status_from_json(status_to_json(status)) == status
    newer = json.dumps({**json.loads(status_to_json(status)), "colour": 3})
    assert status_from_json(newer) == status


ROLE = {"name": "server", "first_rank": 0, "ranks": 1, "first_node": 0, "nodes": 1}
PLAN = {"roles": [{**ROLE, "on_exit": "end"}], "sweep": {"indices": "0", "first": 0}}
CHAIN = {"link": 1, "links": 2, "first": "x"}
CODE = {"files": 1, "bytes": 1, "root": "/w", "commit": None, "changes": ""}


def with_value(document: Any, path: str, value: Any) -> str:
    """The text of a record in which the field at a dotted path has a value."""
    *parents, last = path.split(".")
    place = document
    for name in parents:
        place = place[int(name)] if isinstance(place, list) else place.setdefault(name, {})
    place[last] = value
    return json.dumps(document)


@pytest.mark.parametrize(
    ("path", "least", "most"),
    [
        ("nodes", 0, 10**7),
        ("walltime_s", 0, 10**10),
        ("chain.link", 0, 10**7),
        ("chain.links", 0, 10**7),
        ("plan.cpus_per_node", 0, 10**7),
        ("plan.roles.0.ranks", 0, 10**7),
        ("plan.roles.0.first_node", 0, 10**7),
        ("plan.requeue.times", 0, 10**7),
        ("plan.requeue.restarts", 0, 10**7),
        ("plan.sweep.first", 0, 10**7),
        ("plan.sweep.pack", 1, 10**6),
        ("request.gpus.count", 0, 10**9),
        ("code.files", 0, 10**12),
        ("code.bytes", 0, 10**18),
        ("code.changed", 0, 10**9),
        ("schema", 0, 10**6),
    ],
)
def test_a_number_of_a_record_has_its_limits(path: str, least: int, most: int) -> None:
    document = json.loads(run_to_json(run(chain=CHAIN, code=CODE, plan=PLAN)))
    with pytest.raises(RecordError, match=f"is not a whole number from {least} to {most}$"):
        run_from_json(with_value(document, path, most + 1))


@pytest.mark.parametrize(
    ("name", "least", "most"),
    [
        ("attempt", 0, 10**7),
        ("elapsed_s", -(10**10), 10**10),
        ("limit_s", -(10**10), 10**10),
        ("total_elapsed_s", -(10**10), 10**10),
        ("exit_status", -(10**6), 10**6),
        ("signal", -1000, 1000),
    ],
)
def test_a_number_of_a_status_has_its_limits(name: str, least: int, most: int) -> None:
    document = {"state": "RUNNING", "asked_s": 5.5}
    with pytest.raises(ValueError, match=f"is not a whole number from {least} to {most}$"):
        status_from_json(with_value(document, name, most + 1))


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("created_s", -1),
        ("gpu_hours_at_most", -1),
        ("scheduler", "pbs"),
        ("run_id", "../x"),
        ("job_id", "-x"),
        ("after", [{"run_id": "x", "job_id": "4", "condition": "soon"}]),
        ("by", {"terminal": True}),
        ("code", {"files": 1, "bytes": 1, "root": "/w", "commit": None}),
        ("chain", {"link": 1, "links": 2}),
        ("plan.sweep", {"first": 0}),
    ],
)
def test_a_field_of_a_record_has_its_form(path: str, value: Any) -> None:
    document = json.loads(run_to_json(run()))
    with pytest.raises(RecordError, match=r"^its field |^it has no "):
        run_from_json(with_value(document, path, value))
