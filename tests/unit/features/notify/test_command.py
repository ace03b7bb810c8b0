"""hpcrun notify --test: a message to each destination, and what became of it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from hpcrun.cli.context import Context
from hpcrun.cli.output import Outcome
from hpcrun.errors import PlanError, UsageError
from hpcrun.features.notify import command
from hpcrun.features.notify.deliveries import FAILED, SENT, Delivery, MessageClaim, deliveries
from tests.unit.builders import write


class Receiver:
    """Destinations that take messages, or refuse them."""

    def __init__(self) -> None:
        self.state = SENT
        self.to: list[str] = []

    def send_message(
        self, _: object, to: Sequence[str], env: object, *, run_folder: Path, event: str
    ) -> list[Delivery]:
        self.to += to
        for each in to:
            MessageClaim(run_folder, event, each).close(self.state, "error=500")
        return deliveries(run_folder, 0.0)


@pytest.fixture
def receiver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Receiver:
    """The destinations of a person whose home is empty."""
    receiver = Receiver()
    monkeypatch.setattr(command, "send_message", receiver.send_message)
    for kind in ("CONFIG", "STATE", "CACHE", "DATA"):
        monkeypatch.setenv(f"XDG_{kind}_HOME", str(tmp_path / kind))
    return receiver


def send_test(folder: Path, *urls: str) -> Outcome:
    context = Context({"PATH": "", "HPCRUN_SITE": str(folder / "site")}, folder)
    return command._test(list(urls), context)


def document(outcome: Outcome) -> dict[str, Any]:
    assert outcome.document
    return dict(json.loads(json.dumps(outcome.document())))


def test_a_test_message_goes_to_each_destination(tmp_path: Path, receiver: Receiver) -> None:
    outcome = send_test(tmp_path, "json://a", "json://b")
    assert receiver.to == ["json://a", "json://b"]
    assert [each["state"] for each in document(outcome)["messages"]] == [SENT, SENT]
    assert outcome.failure is None


def test_a_destination_that_refuses_the_message_is_a_failure(
    tmp_path: Path, receiver: Receiver
) -> None:
    receiver.state = FAILED
    outcome = send_test(tmp_path, "json://a")
    assert [each["state"] for each in document(outcome)["messages"]] == [FAILED]
    assert outcome.failure is not None


@pytest.mark.parametrize("url", ["mailto:me@example.org", "none"])
def test_what_slurm_sends_cannot_be_tested(tmp_path: Path, receiver: Receiver, url: str) -> None:
    with pytest.raises(UsageError, match="Slurm itself sends this mail"):
        send_test(tmp_path, url)
    assert receiver.to == []


def test_a_wrong_url_is_refused(tmp_path: Path, receiver: Receiver) -> None:
    with pytest.raises(UsageError, match="--test: "):
        send_test(tmp_path, "json://a", "no url")
    assert receiver.to == []


def test_without_a_url_the_configured_destinations_are_tested(
    tmp_path: Path, receiver: Receiver
) -> None:
    write(tmp_path / "CONFIG/hpcrun/config.yaml", "notify: [json://c, json://d]\n")
    send_test(tmp_path)
    assert receiver.to == ["json://c", "json://d"]


def test_a_site_that_locks_destinations_lets_no_other_be_tested(
    tmp_path: Path, receiver: Receiver
) -> None:
    site = "notify: [json://site]\nlocked: {notify: Ask the help desk.}\n"
    write(tmp_path / "site/config.yaml", site)
    with pytest.raises(PlanError, match=r"--test json://a: .* the site has locked") as refused:
        send_test(tmp_path, "json://site", "json://a")
    assert refused.value.hint == "Ask the help desk."
    assert receiver.to == []
    send_test(tmp_path, "json://site")
    assert receiver.to == ["json://site"]


def test_without_a_destination_there_is_nothing_to_test(tmp_path: Path, receiver: Receiver) -> None:
    with pytest.raises(UsageError, match="there is no destination to test") as refused:
        send_test(tmp_path)
    assert str(tmp_path / "CONFIG/hpcrun/config.yaml") in str(refused.value.hint)
