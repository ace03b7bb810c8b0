"""The facts of a run at the top of its page."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from hpcrun.actions.status.run_status import ElementStatus, RunStatus
from hpcrun.features.share import command
from hpcrun.features.share.command import _hidden_text, _unknown_secrets
from hpcrun.features.share.gather_page import AttemptSpan, SharedRun
from hpcrun.features.share.page_rows import (
    code_rows,
    date_text,
    element_label,
    ended,
    facts,
    kind_of,
    program_text,
    tiles,
)
from hpcrun.job.run_paths import AttemptFolder
from hpcrun.runs.attempt import RESTART, Attempt, ExitRecord
from hpcrun.runs.record import LastStatus, Run
from tests.unit.builders import run

DONE = LastStatus("COMPLETED", 5000.0, final=True)
RUNNING = LastStatus("RUNNING", 5000.0)


@pytest.fixture(autouse=True)
def _in_utc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The times of the page are those of UTC."""
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def shared(record: Run | None = None, status: LastStatus = DONE, **fields: Any) -> SharedRun:
    """What a page shows of a run."""
    of_item = {name: fields.pop(name) for name in ("elements", "element") if name in fields}
    item = RunStatus(record or run(), Path("/x"), status, **of_item)
    return SharedRun(item, 6000.0, (), **fields)


def span(started_s: float, ended_s: float, **said: Any) -> AttemptSpan:
    """An attempt on two nodes."""
    exit_ = said.pop("exit_", None)
    attempt = Attempt(AttemptFolder(Path("/x")), 0, "4711", "n1", started_s, exit_, 0.0)
    return AttemptSpan(attempt, 0, said.pop("nodes", ["n1", "n2"]), ended_s, **said)


@pytest.mark.parametrize(
    ("zone", "text"),
    [
        ("UTC", "1970-01-01 01:23:20 UTC"),
        ("XXX-5:30", "1970-01-01 06:53:20 UTC+05:30"),
        ("XXX3", "1969-12-31 22:23:20 UTC-03:00"),
    ],
)
def test_a_time_has_its_distance_from_utc(
    monkeypatch: pytest.MonkeyPatch, zone: str, text: str
) -> None:
    monkeypatch.setenv("TZ", zone)
    time.tzset()
    assert date_text(5000.0) == text


def test_a_run_that_has_not_started_has_its_size_alone() -> None:
    assert [name for name, _ in tiles(shared(status=LastStatus("PENDING", 5000.0)))] == ["Size"]


def test_a_run_has_its_time_its_wait_and_its_attempts() -> None:
    status = replace(DONE, elapsed_s=65)
    one = shared(status=status, attempts=(span(1090.0, 1155.0),))
    assert dict(tiles(one))["Ran for"] == "1:05"
    assert dict(tiles(one))["Waited"] == "1:30"
    assert "Attempts" not in dict(tiles(one))
    two = replace(one, attempts=(span(1090.0, 1100.0), span(1000.0, 1155.0)))
    assert dict(tiles(two))["Attempts"] == "2"
    assert dict(tiles(two))["Waited"] == "0:00"
    running = shared(status=replace(RUNNING, elapsed_s=65))
    assert dict(tiles(running))["Running for"] == "1:05"


def test_a_sweep_counts_its_elements() -> None:
    elements = (
        ElementStatus(0, "7_0", (("lr", "1"),), DONE),
        ElementStatus(1, "7_1", (), LastStatus("FAILED", 1.0, final=True)),
    )
    sweep = shared(elements=elements, attempts=(span(1000.0, 1100.0), span(1000.0, 1100.0)))
    found = dict(tiles(sweep))
    assert (found["Elements"], found["Completed"]) == ("2", "1 of 2")
    assert "Attempts" not in found
    assert element_label(0, sweep) == "0: lr=1"
    assert element_label(1, sweep) == "1"


def test_the_facts_of_a_run_name_what_when_and_where() -> None:
    record = run(
        note="the first",
        resubmitted_from="20260101-000000-train-0001",
        after=({"run_id": "20260101-000000-prepare-0002", "condition": "ok"},),
        plan={"directives": [["partition", "gpu"], ["qos", "long"], ["time", "1"]]},
    )
    found = shared(
        record,
        replace(DONE, exit_status=3, reason="by hand"),
        attempts=(span(2000.0, 2100.0), span(3000.0, 3100.0, nodes=["n2", "n3"])),
        versions={"torch": "2.8"},
        trackers=(("wandb", "https://wandb.ai/x"),),
    )
    assert list(facts(found)) == [
        ("run", record.run_id),
        ("job", "4711"),
        ("note", "the first"),
        ("state", "COMPLETED, exit status 3, by hand"),
        ("submitted", "1970-01-01 00:16:40 UTC on login1"),
        ("started", "1970-01-01 00:33:20 UTC"),
        ("ended", "1970-01-01 00:51:40 UTC"),
        ("where", "cluster alpha, partition gpu, qos long, profile big"),
        ("nodes", "n1, n2, n3"),
        ("versions", "torch 2.8"),
        ("wandb", "https://wandb.ai/x"),
        ("repeats", "20260101-000000-train-0001"),
        ("after ok", "20260101-000000-prepare-0002"),
    ]


def test_a_run_of_this_machine_is_where_it_was() -> None:
    record = run(scheduler="local", job_id=None, profile="local")
    found = dict(facts(shared(record, RUNNING, attempts=(span(2000.0, 2100.0),))))
    assert found["where"] == "login1, without Slurm (profile local)"
    assert "job" not in found
    assert "ended" not in found
    assert found["state"] == "RUNNING, as of 1970-01-01 01:23:20 UTC"


@pytest.mark.parametrize("reason", ["NonZeroExitCode", "None", None, ""])
def test_a_reason_that_says_nothing_is_left_out(reason: str | None) -> None:
    assert dict(facts(shared(status=replace(DONE, reason=reason))))["state"] == "COMPLETED"


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (DONE, "ok"),
        (RUNNING, "run"),
        (LastStatus("PENDING", 1.0), "wait"),
        (LastStatus("FAILED", 1.0, final=True), "bad"),
        (LastStatus("STRANGE", 1.0, final=True), "bad"),
        (LastStatus("STRANGE", 1.0), "wait"),
    ],
)
def test_a_state_has_a_colour(status: LastStatus, kind: str) -> None:
    assert kind_of(status) == kind


def exit_of(status: int = 0, **said: Any) -> ExitRecord:
    """The end of an attempt, by its record."""
    return ExitRecord(status=status, signal="", ended_s=1.0, message="", **said)


@pytest.mark.parametrize(
    ("exit_", "status", "kind", "text"),
    [
        (exit_of(), DONE, "ok", "completed"),
        (None, RUNNING, "run", "runs"),
        (None, DONE, "bad", "killed without a record of its end, or its node failed"),
        (None, None, "bad", "killed without a record of its end, or its node failed"),
        (exit_of(), LastStatus("CANCELLED", 1.0, final=True), "stop", "cancelled"),
    ],
)
def test_the_end_of_an_attempt_is_told(
    exit_: ExitRecord | None, status: LastStatus | None, kind: str, text: str
) -> None:
    assert ended(span(1.0, 2.0, exit_=exit_, status=status)) == (kind, text)


def test_an_attempt_that_another_follows_was_requeued_or_restarted() -> None:
    again = exit_of(3, again=True, how="requeue", reason="failure")
    kind, text = ended(span(1.0, 2.0, exit_=again))
    assert kind == "again"
    assert text.endswith(", requeued")
    in_place = replace(again, how=RESTART, message="no GPU")
    _, text = ended(span(1.0, 2.0, exit_=in_place))
    assert "requeued" not in text
    assert text.endswith(": no GPU")


@pytest.mark.parametrize(
    ("plan", "text"),
    [
        ({"command": ["python", "my train.py"]}, "python 'my train.py'"),
        ({"command": ["python"], "sweep": {"indices": "0-1"}}, "python ..."),
        ({"command": ["python"], "preflight": "only"}, ""),
        ({}, ""),
    ],
)
def test_the_command_of_every_rank_is_quoted(plan: dict[str, Any], text: str) -> None:
    assert program_text(shared(run(plan=plan))) == text


def test_code_that_was_not_copied_may_have_changed() -> None:
    (row,) = code_rows(shared())
    assert row[0] == "snapshot"
    assert row[1].startswith("none: the job ran the files themselves")
    commit = {"copied": False, "root": "/work", "commit": "abc"}
    assert [name for name, _ in code_rows(shared(code=commit))] == ["snapshot", "at submission"]
    copied = {"root": "/work", "commit": "abc", "files": 2, "bytes": 10, "changes": ""}
    rows = list(code_rows(shared(run(code_of="x"), code=copied)))
    assert [name for name, _ in rows] == ["snapshot", "commit", "of run"]
    assert rows[1:] == [("commit", "abc"), ("of run", "x")]


@pytest.mark.parametrize(
    ("hidden", "unset", "text"),
    [
        (0, [], "no secret was found in it"),
        (1, [], "1 secret hidden"),
        (2, ["A", "B"], "2 secrets hidden; not hidden, since not set here: A, B"),
    ],
)
def test_what_is_hidden_is_counted(
    monkeypatch: pytest.MonkeyPatch, hidden: int, unset: list[str], text: str
) -> None:
    monkeypatch.setattr(command, "HIDER", SimpleNamespace(count=hidden))
    assert _hidden_text(unset) == text


def test_a_secret_that_is_not_set_here_is_asked_for() -> None:
    error = _unknown_secrets(["HF_TOKEN", "KEY"], "my run")
    assert "may show the value of HF_TOKEN, KEY, not set here" in error.message
    assert error.hint
    assert error.hint.startswith("read -rs HF_TOKEN && export HF_TOKEN; or ")
    assert error.hint.endswith("hpcrun share 'my run' --publish-unhidden")
