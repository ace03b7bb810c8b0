"""The record of a run, as JSON."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpcrun.runs.record import SCHEMA, LastStatus, run_from_json, run_to_json, status_from_json, status_to_json
from tests.unit.given import run

ANY_TEXT = st.text(st.characters(exclude_characters="\0"), max_size=20)


@given(ANY_TEXT, st.lists(ANY_TEXT, max_size=5), st.none() | st.just("4711"))
def test_a_record_written_is_read_back_the_same(script: str, args: list[str], job_id: str | None) -> None:
    record = run(job_id=job_id, request={"script": script, "args": args})
    text = run_to_json(record)
    assert text.isascii()
    assert run_from_json(text) == record


def test_a_record_carries_the_number_of_its_schema() -> None:
    assert json.loads(run_to_json(run()))["schema"] == SCHEMA


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "5", "null", "{}", '{"schema": 1}', '{"schema": 1, "run_id": "x", "colour": 3}']
)
def test_a_damaged_record_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        run_from_json(text)


def test_a_record_of_another_version_is_refused_in_words() -> None:
    text = run_to_json(run()).replace(f'"schema": {SCHEMA}', '"schema": 99')
    with pytest.raises(ValueError, match="written by another version of hpcrun"):
        run_from_json(text)


@given(ANY_TEXT, st.booleans(), st.none() | st.integers(0, 10**6))
def test_a_status_written_is_read_back_the_same(reason: str, final: bool, elapsed_s: int | None) -> None:
    status = LastStatus("RUNNING", 5.5, final=final, reason=reason, elapsed_s=elapsed_s)
    assert status_from_json(status_to_json(status)) == status


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"state": "RUNNING", "asked_s": 1, "colour": 3}'])
def test_a_damaged_status_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        status_from_json(text)
