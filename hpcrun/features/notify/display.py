"""The text of the messages about a run, and what became of them, for a person."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from hpcrun.actions.status.resolve import ended_state
from hpcrun.features.notify.messages import CLAIMED, FAILED, SENT, UNKNOWN, UNREACHABLE, UNSURE, Delivery
from hpcrun.features.notify.send import Message, Sent
from hpcrun.job import state
from hpcrun.job.notify import FINISHED, FIRST_STEP, IDLE, STARTED, WAITING, event_kind
from hpcrun.job.secret_hider import HIDER
from hpcrun.job.units import format_span
from hpcrun.runs.attempt import RESTART
from hpcrun.views.text import harmless, without_colours

if TYPE_CHECKING:  # hpcrun status has no text of a message
    from hpcrun.features.notify.due import MessageFacts

_LONGEST_LINE, _MOST_METRICS = 400, 12
_MARKUP = re.compile(r"(?<![\w*])@(?=\w)|<(?=[!@#]|[A-Za-z][\w+.-]*:)|\](?=\()")
"""What a chat takes for a mention or a link with another text: ``@everyone``, ``<http://host|ok>``, ``[ok](...)``."""
_ENDS = {
    state.COMPLETED: "completed",
    state.FAILED: "failed",
    state.TIMEOUT: "reached its time limit",
    state.CANCELLED: "was cancelled",
    state.PREEMPTED: "was preempted",
    state.NODE_FAIL: "lost a node",
    "OUT_OF_MEMORY": "ran out of memory",
}
_QUEUED_LONG_S = 60


def message_of(facts: MessageFacts) -> Message:
    """Return the message about an event: one line as title, and some lines."""
    item, event = facts.item, facts.event
    name = item.run.name
    if event == STARTED:
        queued = f" after {format_span(facts.queue_s)} in the queue" if facts.queue_s >= _QUEUED_LONG_S else ""
        return _message(f"{name} started{queued}", [], facts)
    if event == FIRST_STEP:
        metrics = _metrics(facts.metrics)
        return _message(f"{name}: first step" if metrics else f"{name}: first output", [metrics], facts)
    if event == WAITING:
        reason = f"reason: {item.status.reason}" if item.status.reason else ""
        return _message(f"{name} has been pending for {format_span(facts.queue_s)}", [reason], facts, "warning")
    if event.startswith(f"{IDLE}-"):
        return _message(f"{name}: its GPUs are idle", [_idle(facts.idle)], facts, "warning")
    if event != FINISHED and facts.attempt is not None and not item.status.final:
        how = facts.attempt.exit.how if facts.attempt.exit else ""
        then = (
            "restarted in the same allocation" if how == RESTART else "requeued" if how else "the next attempt follows"
        )
        ended = _ENDS.get(ended_state(facts.attempt), "ended")
        title = f"{name}: attempt {facts.attempt.number + 1} {ended}, {then}"
        return _message(title, [facts.cause], facts, "warning")
    if event != FINISHED:
        return _message(f"{name} failed, the first element of its sweep", [facts.cause], facts, "warning")
    return _end(facts)


def _end(facts: MessageFacts) -> Message:
    status, run = facts.item.status, facts.item.run
    how = _ENDS.get(status.state, f"ended as {status.state}")
    after = f" after {format_span(status.ran_s)}" if status.ran_s is not None else ""
    counts = status.reason if facts.item.elements else None
    is_good = status.state == state.COMPLETED
    if counts and not is_good:
        done = sum(each.status.state == state.COMPLETED for each in facts.item.elements)
        how, after = f"ended: {done} of {len(facts.item.elements)} elements completed", ""
    said = facts.cause or (status.reason if not is_good and not counts else "") or ""
    hint = "" if is_good or status.state == state.CANCELLED else f"hpcrun explain {run.job_id or run.run_id}"
    lines = [counts or "", said, _metrics(facts.metrics), hint]
    return _message(f"{run.name} {how}{after}", lines, facts, "success" if is_good else "failure")


def _message(title: str, lines: Iterable[str], facts: MessageFacts, kind: Any = "info") -> Message:
    item = facts.item
    where = f" on {item.status.hosts}" if item.status.hosts else ""
    cluster = f", cluster {item.run.cluster}" if item.run.cluster else f", {item.run.host}"
    last = f"job {item.run.job_id or '-'}{where}{cluster}, run {item.run.run_id}"
    return Message(clean_line(title), "\n".join(clean_line(line) for line in [*lines, last] if line), kind)


def test_message(host: str) -> Message:
    """Return the message of ``hpcrun notify --test``."""
    return Message(
        clean_line(f"Test message from hpcrun on {host}"), "Messages about your runs will arrive here.", "info"
    )


def clean_line(text: str) -> str:
    """Return text from a log as one line for a message: no control characters, secrets, mentions, or links."""
    line = " ".join(without_colours(harmless(HIDER.hide(text))).split())
    line = "".join(char for char in line if char.isprintable())
    line = _MARKUP.sub(lambda match: f"{match[0]} ", line)
    return line if len(line) <= _LONGEST_LINE else f"{line[: _LONGEST_LINE - 1]}…"


def _metrics(metrics: Mapping[str, Any]) -> str:
    shown = [
        f"{name}={value:.6g}" if isinstance(value, float) else f"{name}={value}" for name, value in metrics.items()
    ]
    return " ".join(shown[:_MOST_METRICS]) + (" ..." if len(shown) > _MOST_METRICS else "")


def _idle(record: Mapping[str, Any]) -> str:
    """Return the text of the record of idle GPUs: since when they are idle, and when the job ends."""
    times = [record.get(name) for name in ("since", "warned", "ends")]
    since_s, warned_s, ends_s = (float(time) if isinstance(time, int | float) else None for time in times)
    if since_s is None or warned_s is None:
        return "hpcrun status --gpus shows their load"
    end = f"; the job ends in {format_span(ends_s - warned_s)} if they stay idle" if ends_s is not None else ""
    return f"all of its GPUs have been idle for {format_span(warned_s - since_s)}{end}"


def sent_lines(results: Sequence[tuple[str, Sent]]) -> list[str]:
    """Return what became of messages, a line each: event, result, destination."""
    rows = [(event_kind(event), _state_text(result.state), clean_line(f"{result.to}{_why(result.reason)}"))
            for event, result in results]  # fmt: skip
    wide, wider = (max((len(row[column]) for row in rows), default=0) for column in (0, 1))
    return [f"{event:<{wide}}  {state:<{wider}}  {text}" for event, state, text in rows]


def _why(reason: str) -> str:
    return f": {reason}" if reason else ""


def _state_text(word: str) -> str:
    return {SENT: "sent", UNREACHABLE: "not reachable", UNSURE: "no response", FAILED: "refused"}.get(word, "not sent")


_OUTCOMES = {
    SENT: "sent to",
    CLAIMED: "sent to",
    FAILED: "NOT accepted by",
    UNREACHABLE: "NOT sent to",
    UNKNOWN: "NOT sent to",
    UNSURE: "may not have arrived at",
}


def delivery_rows(deliveries: Sequence[Delivery]) -> list[tuple[str, str]]:
    """Return rows for the details of a run: what became of its messages, those that arrived first."""
    events: dict[tuple[str, str, str], list[str]] = {}
    for each in deliveries:
        is_good = each.state in (SENT, CLAIMED)
        reason = "cannot connect" if each.state == UNREACHABLE else "" if is_good else each.reason
        to = each.to or ("" if is_good else "its destination")
        if to:
            events.setdefault((_OUTCOMES[each.state], to, reason), []).append(event_kind(each.event))
    rows = sorted(events.items(), key=lambda row: list(_OUTCOMES.values()).index(row[0][0]))
    return [("messages", f"{_counted(kinds)} {how} {to}{_why(reason)}") for (how, to, reason), kinds in rows]


def _counted(kinds: Sequence[str]) -> str:
    """Return ``started, failed (2), finished``."""
    return ", ".join(
        kind if kinds.count(kind) == 1 else f"{kind} ({kinds.count(kind)})" for kind in dict.fromkeys(kinds)
    )


def deliveries_json(deliveries: Sequence[Delivery]) -> list[dict[str, Any]]:
    """Return what became of the messages about a run, as ``hpcrun notify --json`` does."""
    return [outcome_json(each.event, each) for each in deliveries]


def outcome_json(event: str, outcome: Sent | Delivery) -> dict[str, Any]:
    """Return what became of the message about an event to one destination."""
    return {"event": event_kind(event), "to": outcome.to, "state": outcome.state, "reason": outcome.reason}
