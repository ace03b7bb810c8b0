"""The messages about a run: which of them were sent where.

A message is sent at most once to each destination.

The job sends them, and each command of hpcrun that asks for the run's status sends what the job
could not. Both first make a file for the event and the destination (O_EXCL), and the one that makes
it sends the message. If this process is killed meanwhile, the file stays, and nobody knows whether
the message arrived: it is shown, and not sent again.
"""

from __future__ import annotations

import binascii
import json
import os
import re
import time
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from hpcrun.files.reading import Kind, one_of, read_fields, read_object, text, time_s
from hpcrun.files.writing import replace_file
from hpcrun.job.request.notify_options import event_kind
from hpcrun.job.run_paths import RunFolder
from hpcrun.runs.attempt import names_in

SENT = "sent"
FAILED = "failed"
UNSURE = "unsure"
CLAIMED = "claimed"
UNREACHABLE = "unreachable"
UNKNOWN = "unknown"
"""The message has not left its host, and the next command sends it: no connection, or no such
destination there.
"""
UNSURE_AFTER_S = 600.0  # a message that has been claimed for so long has lost its sender

_UNSENT = ".unsent"
_NAME = re.compile(
    rf"(?P<event>[a-z]+(?:-[a-z0-9]+)*)\.[0-9a-f]{{8}}(?:{re.escape(_UNSENT)})?", re.ASCII
)
_STATES = one_of(SENT, FAILED, UNSURE, CLAIMED, UNREACHABLE, UNKNOWN)
_KINDS: dict[str, Kind] = {"to": text, "state": _STATES, "time": time_s, "reason": text}


@dataclass(frozen=True, slots=True)
class Delivery:
    """What became of a message to one destination.

    Attributes:
        state: ``sent``, ``failed``, ``claimed`` while it is sent, ``unsure`` if nobody knows
            whether it arrived;
            ``unreachable`` or ``unknown`` if it was not sent, and still may be.
    """

    event: str  # ``started``, ``attempt-0``
    to: str  # the destination, without secrets
    state: str
    reason: str = ""
    time_s: float = 0.0

    def as_json(self) -> dict[str, Any]:
        """Return it as ``hpcrun notify --json`` and ``hpcrun status --json`` print it."""
        return {
            "event": event_kind(self.event),
            "to": self.to,
            "state": self.state,
            "reason": self.reason,
        }


class MessageClaim:
    """The right to send one message to one destination.

    Raises:
        FileExistsError: another process has it, or had it.
        OSError: it cannot be claimed.
    """

    def __init__(self, run_folder: Path, event: str, to: str) -> None:
        self._to = to
        self._path = _path(run_folder, event, to)
        descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with open(descriptor, "w", encoding="utf-8") as file:
            file.write(_text(to, CLAIMED, ""))

    def close(self, state: str, reason: str = "") -> None:
        """Record the result of sending a message.

        A message that cannot have left this host can be claimed again.
        """
        is_unsent = state in (UNREACHABLE, UNKNOWN)
        path = self._path
        if is_unsent:
            path = path.with_name(path.name + _UNSENT)
        with suppress(OSError):  # it stays claimed: it is not sent again
            replace_file(path, _text(self._to, state, reason), durable=False)
        if is_unsent:
            with suppress(OSError):
                self._path.unlink()


def _text(to: str, state: str, reason: str) -> str:
    return json.dumps({"to": to, "state": state, "time": time.time(), "reason": reason}) + "\n"


def _path(run_folder: Path, event: str, to: str) -> Path:
    return RunFolder(run_folder).messages() / f"{event}.{_digest(to)}"


def _digest(to: str) -> str:
    # hashlib takes long to import
    return f"{binascii.crc32(to.encode('utf-8', 'surrogateescape')):08x}"


def unclaimed(run_folder: Path, event: str, destinations: Collection[str]) -> list[str]:
    """Return the destinations to which a message about an event has not been sent."""
    known = set(names_in(RunFolder(run_folder).messages()))
    return [to for to in destinations if f"{event}.{_digest(to)}" not in known]


def deliveries(run_folder: Path, now_s: float) -> list[Delivery]:
    """Return what became of the messages about a run, the oldest first."""
    folder = RunFolder(run_folder).messages()
    results = []
    names = set(names_in(folder))
    for name in names:
        claim = name.removesuffix(_UNSENT)
        was_claimed = claim != name and claim in names
        match = _NAME.fullmatch(name)
        if match and not was_claimed:
            with suppress(OSError):
                results.append(_delivery(folder / name, match["event"], now_s))
    return sorted(results, key=lambda each: each.time_s)


def _delivery(path: Path, event: str, now_s: float) -> Delivery:
    try:
        record, _ = read_fields(read_object(path), _KINDS, tuple(_KINDS))
        delivery = Delivery(event, record["to"], record["state"], record["reason"], record["time"])
    except ValueError:  # its sender was killed before it wrote
        delivery = Delivery(event, "", CLAIMED, time_s=path.stat().st_mtime)
    if delivery.state == CLAIMED and now_s - delivery.time_s > UNSURE_AFTER_S:
        return replace(delivery, state=UNSURE, reason="")
    return delivery


_OUTCOMES = {
    SENT: "sent to",
    CLAIMED: "sent to",
    FAILED: "NOT accepted by",
    UNREACHABLE: "NOT sent to",
    UNKNOWN: "NOT sent to",
    UNSURE: "may not have arrived at",
}


def delivery_lines(deliveries: Iterable[Delivery]) -> list[str]:
    """Return the results of messages, with the messages that arrived first.

    An example of a line: ``started, failed (2), finished sent to $A``.
    """
    kinds_of: dict[_Outcome, list[str]] = {}
    for each in deliveries:
        outcome = _outcome_of(each)
        if outcome.to:
            kinds_of.setdefault(outcome, []).append(event_kind(each.event))
    lines = []
    order = list(_OUTCOMES.values())
    for outcome in sorted(kinds_of, key=lambda outcome: order.index(outcome.how)):
        line = f"{_counted(kinds_of[outcome])} {outcome.how} {outcome.to}"
        if outcome.reason:
            line += f": {outcome.reason}"
        lines.append(line)
    return lines


@dataclass(frozen=True, slots=True)
class _Outcome:
    """What became of messages, in words."""

    how: str
    to: str  # empty for a message that is being sent, and whose destination is not recorded yet
    reason: str


def _outcome_of(delivery: Delivery) -> _Outcome:
    how = _OUTCOMES[delivery.state]
    if delivery.state in (SENT, CLAIMED):
        return _Outcome(how, delivery.to, "")
    reason = delivery.reason
    if delivery.state == UNREACHABLE:
        reason = "cannot connect"
    return _Outcome(how, delivery.to or "its destination", reason)


def _counted(kinds: Sequence[str]) -> str:
    """Return ``started, failed (2)``."""
    parts = []
    for kind, number in Counter(kinds).items():
        parts.append(kind if number == 1 else f"{kind} ({number})")
    return ", ".join(parts)
