"""Which messages about a run are due, and the facts for their text, from the run's records and its status."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hpcrun.actions.status.elements import combine, failed_elements
from hpcrun.actions.status.poll import KnownRun, judge_element
from hpcrun.actions.status.resolve import ended_text
from hpcrun.actions.status.run_status import RunStatus, element_of, element_row
from hpcrun.job import state
from hpcrun.job.notify import (
    ATTEMPT,
    EVENTS,
    FAILED,
    FINISHED,
    FIRST_FAILURE,
    FIRST_STEP,
    IDLE,
    STARTED,
    WAITING,
    WAITING_S,
    Notify,
    event_kind,
)
from hpcrun.reading import read_object
from hpcrun.runs.attempt import Attempt, attempts, has_started
from hpcrun.runs.elements import all_elements, elements_with_calls
from hpcrun.runs.record import Run

if TYPE_CHECKING:
    from hpcrun.explain.diagnosis.rules import Rule

END_IS_NEWS_S, IS_NEWS_S = 86400.0, 3600.0
"""How long after its time a message about an end is still sent, and any other one."""
_LAST_ATTEMPTS = 3
_LOG_END = 200


@dataclass(frozen=True, slots=True)
class MessageFacts:
    """The facts for the text of a message.

    Attributes:
        event: its name, such as ``finished``, ``attempt-0``.
        item: the run, or the element of a sweep that the message is about.
        attempt: the attempt that it is about; None if none has started.
        cause: the first line of ``hpcrun explain``, or why the attempt ended; empty if nothing is known.
        metrics: the last ones of the run.
        idle: the record of idle GPUs that the job wrote: launch/idle_watch.py.
        queue_s: how long the job was pending before its first start, or has been pending.
    """

    event: str
    item: RunStatus
    attempt: Attempt | None = None
    cause: str = ""
    metrics: Mapping[str, Any] = field(default_factory=dict)
    idle: Mapping[str, Any] = field(default_factory=dict)
    queue_s: float = 0.0


def notify_of(run: Run) -> Notify | None:
    """Return the messages that a run's record requests, None if it requests none."""
    said = run.plan.get("notify")
    if not isinstance(said, dict) or not isinstance(said.get("to"), list):
        return None
    to = tuple(text for text in said["to"] if isinstance(text, str))
    events, waiting_s = said.get("events"), said.get("waiting_s")
    named = tuple(event for event in EVENTS if isinstance(events, list) and event in events)
    return Notify(to, named, waiting_s if isinstance(waiting_s, int) and waiting_s > 0 else WAITING_S) if to else None


def status_in_job(run: Run, folder: Path, now_s: float) -> RunStatus:
    """Return the status of a run by its records alone, as its job sees it: Slurm still takes the job for running."""
    one = KnownRun(run, folder, elements_with_calls(run, folder) or all_elements(run), None, {})
    records = one.records()
    judged = [judge_element(one, index, records.get(index), {}, now_s) for index in one.elements.parameters]
    statuses = [each.status for each in judged]
    status = combine(statuses, run.walltime_s) if one.elements.are_array else statuses[0]
    return RunStatus(run, folder, status, elements=tuple(judged) if one.elements.are_array else ())


def due_events(item: RunStatus, notify: Notify, now_s: float, asked: str | None = None) -> list[str]:
    """Return the events of which there should be a message by now, whether it was sent or not.

    Args:
        asked: an event of which the job itself reports that it has just come.
    """
    found = [*([asked] if asked in (STARTED, FIRST_STEP) else []), *_events(item, notify, now_s)]
    return [event for event in dict.fromkeys(found) if _is_wanted(event, item, notify)]


def _events(item: RunStatus, notify: Notify, now_s: float) -> list[str]:
    status = item.status
    newest = [] if item.elements else list(islice(attempts(item.folder, 0), _LAST_ATTEMPTS))
    if status.final:
        if status.state in (state.CANCELLED, state.NOT_SUBMITTED) and not has_started(item.folder):
            return []  # the person who cancelled it knows
        ended_s = newest[0].exit.ended_s if newest and newest[0].exit else status.asked_s
        return [FINISHED] if now_s - ended_s < END_IS_NEWS_S else []
    if item.elements:
        under_way = status.state == state.RUNNING
        return [*([STARTED] if under_way else []), *([FIRST_FAILURE] if failed_elements(item.elements) else [])]
    if not newest:
        is_long = status.state == state.PENDING and now_s - item.run.created_s >= notify.waiting_s
        return [WAITING] if is_long else []
    ended = [attempt for attempt in newest if attempt is not newest[0] or (attempt.exit and attempt.exit.again)][:1]
    found = [
        f"{ATTEMPT}-{attempt.number}"
        for attempt in ended
        if now_s - (attempt.exit.ended_s if attempt.exit else attempt.alive_s) < END_IS_NEWS_S
    ]
    if newest[0].exit is None:
        found += [STARTED] if newest[0].number == 0 and now_s - newest[0].started_s < IS_NEWS_S else []
        found += [FIRST_STEP] if _has_metrics(newest[0], now_s) else []
        found += [f"{IDLE}-{newest[0].number}"] if newest[0].folder.idle.exists() else []
    return found


def _has_metrics(attempt: Attempt, now_s: float) -> bool:
    with suppress(OSError):
        recent = now_s - attempt.started_s < IS_NEWS_S
        return recent and attempt.number == 0 and attempt.folder.rank_metrics(0).stat().st_size > 0
    return False


def _is_wanted(event: str, item: RunStatus, notify: Notify) -> bool:
    if event == FINISHED and item.status.state != state.COMPLETED and FAILED in notify.events:
        return True
    return event_kind(event) in notify.events


def facts_of(
    event: str,
    item: RunStatus,
    now_s: float,
    rules: Callable[[], Sequence[Rule]],
    patterns: Callable[[], Mapping[str, Any]],
) -> MessageFacts:
    """Return the facts for the message about an event.

    Args:
        rules: of explain; read only if the message needs a cause.
        patterns: metric → compiled pattern for the logs; read only if the message needs metrics.
    """
    from hpcrun.explain.first_line import explained_status  # hpcrun status asks only what is due

    if event == FIRST_FAILURE:
        index = failed_elements(item.elements)[0]
        row = element_of(item, index)
        return MessageFacts(event, row, cause=explained_status(row, rules()).cause or "")
    if item.elements:
        return MessageFacts(event, item, cause=_first_of_sweep(item, rules) if item.status.final else "")
    newest = list(attempts(item.folder, 0))
    attempt = next((each for each in newest if event == f"{ATTEMPT}-{each.number}"), newest[0] if newest else None)
    queue_s = (newest[-1].started_s if newest else now_s) - item.run.created_s
    facts = MessageFacts(event, item, attempt, queue_s=max(0.0, queue_s))
    if event.startswith(f"{ATTEMPT}-") and attempt is not None:
        return replace(facts, cause=_why_attempt_ended(item, attempt, rules, is_newest=attempt is newest[0]))
    if event.startswith(IDLE) and attempt is not None:
        with suppress(OSError, ValueError):
            return replace(facts, idle=read_object(attempt.folder.idle))
    if event == FINISHED and item.status.state not in (state.COMPLETED, state.CANCELLED):
        facts = replace(facts, cause=explained_status(item, rules()).cause or "")
    if event in (FINISHED, FIRST_STEP):
        facts = replace(facts, metrics=_metrics(item, attempt, patterns()))
    return facts


def _first_of_sweep(item: RunStatus, rules: Callable[[], Sequence[Rule]]) -> str:
    """Return why the first element of a sweep failed; empty if none did."""
    from hpcrun.explain.first_line import explained_status

    failed = [each for each in item.elements if each.index in failed_elements(item.elements)]
    first = min(failed, key=lambda each: each.status.state == state.CANCELLED, default=None)
    if first is None or first.status.state == state.CANCELLED:
        return ""
    cause = explained_status(element_row(item, first), rules()).cause
    return f"{item.run.name}/{first.index}: {cause or first.status.state}"


def _why_attempt_ended(
    item: RunStatus, attempt: Attempt, rules: Callable[[], Sequence[Rule]], *, is_newest: bool
) -> str:
    """Return why an attempt ended, from its logs while they are the newest."""
    from hpcrun.explain.first_line import explained_status

    why = ended_text(attempt)
    if not is_newest or attempt.exit is None or attempt.exit.reason not in ("", "failure"):
        nodes = ", ".join(attempt.exit.nodes) if attempt.exit else ""
        return f"{why} ({nodes})" if nodes else why
    failed = replace(item.status, state=state.FAILED, final=True, reason=None, exit_status=attempt.exit.status)
    return explained_status(replace(item, status=failed), rules()).cause or why


def _metrics(item: RunStatus, attempt: Attempt | None, patterns: Mapping[str, Any]) -> dict[str, Any]:
    """Return the last metrics that rank 0 recorded, and those at the end of its log."""
    from hpcrun.actions.status.details import last_metrics
    from hpcrun.runs.logs import rank_log, tail
    from hpcrun.runs.metrics import LogMetrics

    recorded = {name: value for name, value in last_metrics(item.folder).items() if name != "time"}
    missing = {name: pattern for name, pattern in patterns.items() if name not in recorded}
    if not missing or attempt is None:
        return recorded
    finder, found = LogMetrics(missing), {}
    for stream in ("out", "err"):
        with suppress(OSError):
            for line in tail(rank_log(attempt.folder, 0, stream).path, _LOG_END).splitlines():
                found.update(finder.read(line)[1])
    return {**found, **recorded}
