"""The text of the message about each event of a run, without mentions, links and secrets."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from hpcrun.actions.hooks import about_run
from hpcrun.actions.status.decide_status import ended_state, ended_text
from hpcrun.actions.status.run_status import (
    RunStatus,
    element_of,
    failed_elements,
)
from hpcrun.actions.status.status_details import last_metrics
from hpcrun.features.notify.due import idle_element
from hpcrun.features.notify.send import Message
from hpcrun.job import job_states
from hpcrun.job.request.notify_options import (
    ATTEMPT,
    FINISHED,
    FIRST_FAILURE,
    FIRST_STEP,
    IDLE,
    STARTED,
    WAITING,
)
from hpcrun.job.text.hide_secrets import HIDER
from hpcrun.job.text.units import format_span
from hpcrun.runs.attempt import RESTART, Attempt, attempts
from hpcrun.runs.log_files import rank_log, tail
from hpcrun.runs.metric_files import LogMetrics
from hpcrun.runs.use_samples import idle_warning
from hpcrun.views.text import harmless, without_colours

_LOG_END = 200
_LONGEST_LINE = 400
_MOST_METRICS = 12
_GROUP = "everyone|here|channel"
"""The words behind ``@`` that chats take for a mention inside of an address, too."""
_IN_ADDRESS = rf"(?<=[A-Za-z0-9])@(?!{_GROUP})[\w-]+(?:\.[\w-]+)+"
_IN_URL = rf"(?<=:\*\*\*)@(?!{_GROUP})[\w-]+[.:/]"
"""The ``@`` and the host of an e-mail address, and of a URL with a hidden password."""
_MARKUP = re.compile(rf"(?!{_IN_ADDRESS}|{_IN_URL})@(?=\w)|<(?=[!@#]|[A-Za-z][\w+.-]*:)|\](?=\()")
"""What a chat takes for a mention or a link with another text: ``@everyone``, ``<http://host|ok>``,
``[ok](...)``.
"""
_ENDS = {
    job_states.COMPLETED: "completed",
    job_states.FAILED: "failed",
    job_states.TIMEOUT: "reached its time limit",
    job_states.CANCELLED: "was cancelled",
    job_states.PREEMPTED: "was preempted",
    job_states.NODE_FAIL: "lost a node",
    "OUT_OF_MEMORY": "ran out of memory",
}
_QUEUED_LONG_S = 60


def message_of(
    event: str,
    item: RunStatus,
    now_s: float,
    explain: Callable[[RunStatus], str],
    patterns: Callable[[], Mapping[str, Any]],
) -> Message:
    """Return the message about an event: one line as title, and some lines.

    Args:
        event: what happened, such as ``started``, with a number where there can be several.
        item: the run of the message, with its status.
        now_s: the time now, in seconds since the epoch.
        explain: returns the first line of ``hpcrun explain`` about a run or element that failed, if
            it may be shown.
        patterns: metric → compiled pattern for the logs; read only if the message needs metrics.
    """
    name = item.run.name
    begun: list[Attempt] = []  # the newest first
    if not item.elements:
        begun = list(attempts(item.folder, 0, item.run.deciding_role))
    newest = begun[0] if begun else None
    attempt = next((each for each in begun if event == f"{ATTEMPT}-{each.number}"), newest)
    if event == STARTED:
        return _started(item, begun, now_s)
    if event == FIRST_STEP:
        metrics = _metrics(item, attempt, patterns())
        first = "first step" if metrics else "first output"
        return _message(f"{name}: {first}", [metrics], item)
    if event == WAITING:
        return _waiting(item, begun, now_s)
    if event.startswith(f"{IDLE}-"):
        return _idle_message(item, attempt)
    if event == FIRST_FAILURE:
        row = element_of(item, failed_elements(item.elements)[0])
        title = f"{row.run.name} failed, the first element of its sweep"
        return _message(title, [explain(row)], row, "warning")
    if event == FINISHED or attempt is None:
        metrics = ""
        if not item.elements:
            metrics = _metrics(item, attempt, patterns())
        return _end(item, _why(item, explain), metrics)
    why = _why_ended(item, attempt, explain, is_newest=attempt is newest)
    return _message(_attempt_title(name, attempt), [why], item, "warning")


def _started(item: RunStatus, begun: Sequence[Attempt], now_s: float) -> Message:
    title = f"{item.run.name} started"
    if not item.elements:
        queue_s = _queue_s(item, begun, now_s)
        if queue_s >= _QUEUED_LONG_S:
            title += f" after {format_span(queue_s)} in the queue"
    return _message(title, [], item)


def _waiting(item: RunStatus, begun: Sequence[Attempt], now_s: float) -> Message:
    queue_s = max(0.0, _queue_s(item, begun, now_s))
    title = f"{item.run.name} has been pending for {format_span(queue_s)}"
    reason = _pending_reason(item)
    lines = [f"reason: {reason}"] if reason else []
    return _message(title, lines, item, "warning")


def _queue_s(item: RunStatus, begun: Sequence[Attempt], now_s: float) -> float:
    """Return how long a run was pending before its first attempt, or is pending by now."""
    until_s = begun[-1].started_s if begun else now_s
    return until_s - item.run.created_s


def _idle_message(item: RunStatus, attempt: Attempt | None) -> Message:
    """Return the message about idle GPUs; of a sweep, about its first element with idle GPUs."""
    if item.elements:
        idle = idle_element(item)
        if idle is None:
            return _message(f"{item.run.name}: GPUs of an element were idle", [], item, "warning")
        title = f"{idle.row.run.name}: its GPUs are idle, the first element of its sweep"
        return _message(title, [_idle(idle.attempt)], idle.row, "warning")
    name = item.run.name
    about = about_run(item)[1]
    if about:
        return _message(f"{name}: it is unused", [about], item, "warning")
    return _message(f"{name}: its GPUs are idle", [_idle(attempt)], item, "warning")


def _attempt_title(name: str, attempt: Attempt) -> str:
    """Return how an attempt ended that another one follows."""
    how = attempt.exit.how if attempt.exit else ""
    if how == RESTART:
        then = "restarted in the same allocation"
    elif how:
        then = "requeued"
    else:
        then = "the next attempt follows"
    end = _ENDS.get(ended_state(attempt), "ended")
    return f"{name}: attempt {attempt.number + 1} {end}, {then}"


def _end(item: RunStatus, why: str, metrics: str) -> Message:
    run = item.run
    status = item.status
    is_good = status.state == job_states.COMPLETED
    counts = status.reason if item.elements else None
    if counts and not is_good:
        done = sum(each.status.state == job_states.COMPLETED for each in item.elements)
        title = f"{run.name} ended: {done} of {len(item.elements)} elements completed"
    else:
        title = f"{run.name} {_ENDS.get(status.state, f'ended as {status.state}')}"
        if status.ran_s is not None:
            title += f" after {format_span(status.ran_s)}"
    if not why and not is_good and not counts:
        why = status.reason or ""
    hint = ""
    if not is_good and status.state != job_states.CANCELLED:
        hint = f"hpcrun explain {run.job_id or run.run_id}"
    kind = "success" if is_good else "failure"
    return _message(title, [counts or "", why, metrics, hint], item, kind)


def _why(item: RunStatus, explain: Callable[[RunStatus], str]) -> str:
    """Return why a run that is over did not complete; of a sweep, why its first element failed."""
    if not item.elements:
        if item.status.state in (job_states.COMPLETED, job_states.CANCELLED):
            return ""
        return explain(item)
    failed = [element_of(item, index) for index in failed_elements(item.elements)]
    first = next((row for row in failed if row.status.state != job_states.CANCELLED), None)
    if first:
        return f"{first.run.name}: {explain(first) or first.status.state}"
    return ""


def _why_ended(
    item: RunStatus, attempt: Attempt, explain: Callable[[RunStatus], str], *, is_newest: bool
) -> str:
    """Return why an attempt ended that another one follows."""
    why = ended_text(attempt)
    exit_ = attempt.exit
    if not is_newest or exit_ is None or exit_.reason not in ("", "failure"):
        nodes = ", ".join(exit_.nodes) if exit_ else ""
        return f"{why} ({nodes})" if nodes else why
    ended = replace(
        item.status, state=job_states.FAILED, final=True, reason=None, exit_status=exit_.status
    )
    return explain(replace(item, status=ended)) or why


def _message(title: str, lines: Iterable[str], item: RunStatus, kind: Any = "info") -> Message:
    run = item.run
    last = f"job {run.job_id or '-'}"
    if item.status.hosts:
        last += f" on {item.status.hosts}"
    last += f", cluster {run.cluster}" if run.cluster else f", {run.host}"
    last += f", run {run.run_id}"
    body = [clean_line(line) for line in [*lines, last] if line]
    return Message(clean_line(title), "\n".join(body), kind)


def clean_line(text: str) -> str:
    """Return text from a log as one line for a message.

    The line has no control characters, secrets, mentions, or links.
    """
    line = " ".join(without_colours(harmless(HIDER.hide(text))).split())
    line = "".join(char for char in line if char.isprintable())
    line = _MARKUP.sub(lambda match: f"{match[0]} ", line)
    if len(line) <= _LONGEST_LINE:
        return line
    return f"{line[: _LONGEST_LINE - 1]}…"


def _metrics(item: RunStatus, attempt: Attempt | None, patterns: Mapping[str, Any]) -> str:
    """Return the last metrics that rank 0 recorded, and those at the end of its log."""
    metrics = last_metrics(item)
    recorded = {name: value for name, value in metrics.items() if name != "time"}
    missing = {name: pattern for name, pattern in patterns.items() if name not in recorded}
    values = {**_logged_metrics(attempt, missing), **recorded}
    shown = []
    for name, value in values.items():
        shown.append(f"{name}={value:.6g}" if isinstance(value, float) else f"{name}={value}")
    text = " ".join(shown[:_MOST_METRICS])
    return f"{text} ..." if len(shown) > _MOST_METRICS else text


def _logged_metrics(attempt: Attempt | None, patterns: Mapping[str, Any]) -> dict[str, Any]:
    """Return the metrics at the end of the log of rank 0."""
    logged: dict[str, Any] = {}
    if attempt is None or not patterns:
        return logged
    finder = LogMetrics(patterns)
    for stream in ("out", "err"):
        with suppress(OSError):
            for line in tail(rank_log(attempt.folder, 0, stream).path, _LOG_END).splitlines():
                logged.update(finder.read(line)[1])
    return logged


def _pending_reason(item: RunStatus) -> str:
    """Return Slurm's reason for a pending job; of a sweep, the first reason of its elements."""
    if not item.elements:
        return item.status.reason or ""
    reasons = [element.status.reason for element in item.elements if element.status.reason]
    return reasons[0] if reasons else ""


def _idle(attempt: Attempt | None) -> str:
    """Return since when the GPUs are idle, and when the job ends.

    Both times come from the record that ``per_job/idle_watch.py`` wrote.
    """
    warning = None
    if attempt:
        warning = idle_warning(attempt.folder)
    if warning is None:
        return "hpcrun status --gpus shows their load"
    idle = format_span(warning.warned - warning.since)
    left = format_span(warning.ends - warning.warned)
    return f"all of its GPUs have been idle for {idle}; the job ends in {left} if they stay idle"
