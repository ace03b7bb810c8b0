"""hpcrun notify: the messages about a run that nobody has sent, and what may be told of them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from hpcrun.cli.context import Context
from hpcrun.errors import PlanError
from hpcrun.features.notify import command
from hpcrun.features.notify.command import (
    _explain,
    _failure,
    _in_job,
    _send_due,
    _sent_outcome,
)
from hpcrun.features.notify.deliveries import FAILED, SENT, UNSURE, Delivery, MessageClaim
from hpcrun.features.notify.send import Message
from hpcrun.job.request.notify_options import EVENTS
from hpcrun.job.run_paths import RunFolder
from hpcrun.runs.record import run_to_json
from tests.unit.builders import run, write
from tests.unit.features.notify.test_due import NOW_S, in_job, record

PLAN = {"notify": {"to": ["$A", "$B"], "events": list(EVENTS)}}


class Sender:
    """Destinations that take all messages."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, str, str]] = []

    def send_message(
        self, message: Message, to: Sequence[str], _: object, *, run_folder: Path, event: str
    ) -> list[Delivery]:
        deliveries = []
        for each in to:
            MessageClaim(run_folder, event, each).close(SENT, "")
            self.sent.append((event, each, message.title))
            deliveries.append(Delivery(event, each, SENT, ""))
        return deliveries


@pytest.fixture
def sender(monkeypatch: pytest.MonkeyPatch) -> Sender:
    made = Sender()
    monkeypatch.setattr(command, "send_message", made.send_message)
    return made


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The folder of a run that has begun, whose messages have a place."""
    found = tmp_path / "20260102-030405-train-0a1b"
    record(found)
    RunFolder(found).messages().mkdir()
    return found


def context_at(folder: Path) -> Context:
    """The context of a command that asks no scheduler."""
    context = Context({}, folder)
    vars(context).update(now_s=lambda: NOW_S, rules=lambda: ())
    return context


def send(folder: Path, event: str | None = None, **fields: Any) -> list[Delivery]:
    """The results of the messages that are due."""
    item = in_job(folder, **{"plan": PLAN, **fields})
    return _send_due(item, context_at(folder), event)


def test_a_due_message_goes_to_each_destination_once(folder: Path, sender: Sender) -> None:
    assert [(each.event, each.to) for each in send(folder)] == [
        ("started", "$A"),
        ("started", "$B"),
    ]
    assert sender.sent[0][2] == "train started after 2 h in the queue"
    assert send(folder) == []


def test_an_event_that_has_just_come_is_told(folder: Path, sender: Sender) -> None:
    send(folder)
    assert {each.event for each in send(folder, "first-step")} == {"first-step"}


def test_a_run_without_destinations_sends_nothing(folder: Path, sender: Sender) -> None:
    assert send(folder, plan={}) == []
    assert sender.sent == []


@pytest.mark.parametrize(
    ("sent", "quiet", "lines"),
    [
        ([], False, ("train: no message is due",)),
        ([], True, ()),
        ([Delivery("started", "$A", SENT, "")], True, ()),
    ],
)
def test_only_a_person_reads_that_nothing_was_sent(
    folder: Path, sent: list[Delivery], quiet: bool, lines: tuple[str, ...]
) -> None:
    outcome = _sent_outcome(sent, in_job(folder, plan=PLAN), quiet=quiet)
    assert outcome.text
    (part,) = outcome.text()
    assert part.lines == lines


def test_in_the_background_a_failure_is_written_to_the_log(folder: Path) -> None:
    failed = [Delivery("started", "$A", FAILED, "403"), Delivery("started", "$B", SENT, "")]
    outcome = _sent_outcome(failed, in_job(folder, plan=PLAN), quiet=True)
    assert outcome.text
    (part,) = outcome.text()
    assert len(part.lines) == 1
    assert "$A" in part.lines[0]


def test_the_destinations_that_refused_are_counted_once() -> None:
    sent = [
        Delivery("started", "$A", SENT, ""),
        Delivery("finished", "$A", SENT, ""),
        Delivery("started", "$B", FAILED, "403"),
        Delivery("finished", "$B", UNSURE, ""),
    ]
    assert _failure(sent[:2]) is None
    failure = _failure(sent)
    assert isinstance(failure, PlanError)
    assert failure.message == "1 of 2 destinations did not accept the message"


def test_a_log_with_an_unknown_secret_is_not_explained(folder: Path) -> None:
    write(folder / "elements/0/attempts/0/rank-0.err", "KeyError: 'correct horse'\n")
    record(folder, exit_={"status": 1})
    context = context_at(folder)
    assert "KeyError" in _explain(context, in_job(folder))
    assert _explain(context, in_job(folder, request={"secrets": ["HF_TOKEN"]})) == ""
    context.env["HF_TOKEN"] = "correct horse"
    assert "KeyError" in _explain(context, in_job(folder, request={"secrets": ["HF_TOKEN"]}))


def test_a_job_finds_its_run_by_its_folder(folder: Path) -> None:
    item = run(plan=PLAN, created_s=NOW_S)
    write(folder / "run.json", run_to_json(item))
    found = _in_job(folder, context_at(folder))
    assert found.run == item
    assert found.folder == folder


def test_a_folder_without_a_record_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(PlanError, match=f"^{tmp_path}: "):
        _in_job(tmp_path, context_at(tmp_path))
