"""status --verbose: the expected start of a run, its progress, the resources that it has used."""

from __future__ import annotations

import re
import time
from dataclasses import asdict
from typing import Any

from hpcrun.actions.status.details import Insight, advice, cpu_efficiency, last_line, last_metrics
from hpcrun.actions.status.status import RunStatus
from hpcrun.job import state
from hpcrun.job.reasons import explain_reason
from hpcrun.schedulers.limits import ACCOUNTS
from hpcrun.schedulers.queue import Usage, Waiting
from hpcrun.views.gpu import gpu_json, gpu_use
from hpcrun.views.text import clock_text, harmless

_BAR = 20
_COLOUR = re.compile(r"\x1b\[[0-9;:]*m")
Rows = list[tuple[str, str]]


def insight_rows(item: RunStatus, insight: Insight, now_s: float) -> Rows:
    """Return additional rows for the details of a run: label and text."""
    job_id, status = item.run.job_id or "", item.status
    if status.state == state.PENDING:
        return _waiting_rows(item, insight, now_s)
    if not status.final:
        return _running_rows(item, insight)
    usage = insight.usage.get((item.run.run_id, job_id))
    return _usage_rows(usage, item) if usage else []


def insight_json(item: RunStatus, insight: Insight) -> dict[str, Any]:
    """Return the same as JSON."""
    job_id = item.run.job_id or ""
    waiting, usage = insight.waiting.get(job_id), insight.usage.get((item.run.run_id, job_id))
    running = not item.status.final and item.status.state != state.PENDING
    return {
        "waiting": asdict(waiting) if waiting else None,
        "usage": {**asdict(usage), "cpu_efficiency": cpu_efficiency(usage)} if usage else None,
        "last_line": last_line(item.folder, item.element or 0) if running else None,
        "metrics": last_metrics(item.folder, item.element or 0) if running else {},
        "gpus": gpu_json(insight.gpus[item.run.run_id])["gpus"] if item.run.run_id in insight.gpus else [],
    }


def _waiting_rows(item: RunStatus, insight: Insight, now_s: float) -> Rows:
    rows: Rows = []
    job_id, reason = item.run.job_id or "", item.status.reason or ""
    waiting = insight.waiting.get(job_id)
    if known := explain_reason(reason):
        rows += [("reason", f"{known.short} ({reason})"), ("advice", known.advice.replace("JOB", job_id))]
    if waiting:
        rows += [
            ("limit", f"{limit.holder}: {limit.used} of {limit.allowed} {limit.what} in use by {limit.whose}")
            for limit in insight.limits.get(ACCOUNTS if reason.startswith("Assoc") else waiting.qos, ())
        ]
        rows.append(("queue", place_text(waiting)))
        rows.append(("start", start_text(waiting, now_s)))
    return rows


def place_text(waiting: Waiting) -> str:
    """Return the place in the queue, in words."""
    if waiting.place is None:
        return f"not in the queue of partition {waiting.partition} ({waiting.of} pending)"
    return f"{waiting.place} of {waiting.of} pending in partition {waiting.partition}"


def start_text(waiting: Waiting, now_s: float) -> str:
    """Return when Slurm expects to start a job, in words."""
    if waiting.start_s is None:
        return "Slurm gives no estimate"
    at = time.strftime("%Y-%m-%d %H:%M", time.localtime(waiting.start_s))
    return f"expected {at}, in {clock_text(max(0, int(waiting.start_s - now_s)))}, earlier if other jobs end early"


def _running_rows(item: RunStatus, insight: Insight) -> Rows:
    status = item.status
    rows: Rows = []
    limit_s = status.limit_s or item.run.walltime_s
    if status.elapsed_s is not None and limit_s and item.live:
        rows.append(("time", bar_text(status.elapsed_s, limit_s)))
    if status.hosts:
        rows.append(("hosts", status.hosts))
    gpus = insight.gpus.get(item.run.run_id)
    if gpus and (use := gpu_use(gpus)):
        rows.append(("GPUs", use))
    if item.elements:
        return rows
    if line := last_line(item.folder, item.element or 0):
        rows.append(("last line", _COLOUR.sub("", harmless(line))))
    if metrics := last_metrics(item.folder, item.element or 0):
        shown = (f"{name}={_value(value)}" for name, value in metrics.items() if name != "time")
        rows.append(("metrics", " ".join(shown)))
    return rows


def bar_text(elapsed_s: int, limit_s: int) -> str:
    """Return the share of its time that a run has used, as a bar."""
    part = min(1.0, max(0.0, elapsed_s / limit_s))
    full = int(part * _BAR)
    return f"{'█' * full}{'░' * (_BAR - full)} {part:.0%}, {clock_text(elapsed_s)} of {clock_text(limit_s)}"


def _usage_rows(usage: Usage, item: RunStatus) -> Rows:
    rows: Rows = []
    if usage.gpus:
        rows.append(("GPUs", f"{usage.gpus * usage.elapsed_s / 3600:.2f} GPU-hours, {usage.gpus} GPUs"))
    busy = cpu_efficiency(usage)
    if busy is not None:
        rows.append(("CPUs", f"{min(1.0, busy):.0%} of {usage.cpus} busy"))
    if usage.used_mb is not None and usage.memory_mb:
        part = usage.used_mb / usage.memory_mb
        rows.append(("memory", f"{_size(usage.used_mb)} of {_size(usage.memory_mb)} per node, as sampled ({part:.0%})"))
    asked_s = item.status.limit_s or item.run.walltime_s
    said = advice(usage, asked_s, completed=item.status.state == state.COMPLETED)
    return rows + [("advice", text) for text in said]


def _size(megabytes: float) -> str:
    return f"{megabytes / 1024:.1f} GB" if megabytes >= 1024 else f"{megabytes:.0f} MB"


def _value(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
