"""The details of status --verbose: a run's expected start, its progress, and its plan.

Other details are the use of resources, the folder and the code. The plan is shown as recorded.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from hpcrun.actions.hooks import about_run, hooks_of
from hpcrun.actions.runs.hardware_use import run_use, use_advice, use_rows
from hpcrun.actions.status.run_status import RunStatus, element_row
from hpcrun.actions.status.status_details import Insight, last_line, last_metrics, time_advice
from hpcrun.job.job_states import COMPLETED, PENDING, explain_reason
from hpcrun.job.run_paths import RunFolder
from hpcrun.runs.attempt import last_attempt, load_imports
from hpcrun.runs.elements import all_elements
from hpcrun.runs.record import Run, pairs_of
from hpcrun.runs.role_states import role_states
from hpcrun.runs.use_samples import UseSummary, idle_unknown, idle_warning
from hpcrun.schedulers.queue import ACCOUNTS, Usage, Waiting
from hpcrun.views.gpu_table import gpu_json, gpu_use
from hpcrun.views.text import (
    clock_text,
    code_text,
    count,
    harmless,
    labelled,
    memory_text,
    one_line,
    start_text,
    without_colours,
)

_SHOWN = 8
_BAR = 20
Rows = list[tuple[str, str]]
_INDENT = 15
_ROOM_LEAST = 20


def detail_lines(item: RunStatus, width: int, more: Sequence[tuple[str, str]] = ()) -> list[str]:
    """Return the details for which the table has no room, wrapped between words.

    ``more`` comes first.
    """
    run, checkpoints = item.run, os.path.realpath(RunFolder(item.folder).element(0).checkpoints)
    attempt = last_attempt(item.folder, item.element or 0)
    if attempt and not item.elements:
        logs = attempt.folder.path.relative_to(item.folder)
    else:
        logs = None
    rows = [
        *more,
        ("folder", str(item.folder)),
        *([("logs", f"{logs}/rank-N.out and rank-N.err")] if logs else []),
        *((f"after {wait['condition']}", wait["run_id"]) for wait in run.after),
        *([("again", f"of {run.resubmitted_from}")] if run.resubmitted_from else []),
        *([("checkpoints", checkpoints)] if run.checkpoints_of else []),
        *([("code", code_text(run.code))] if run.code else []),
        *([("code", f"the snapshot of {run.code_of}")] if run.code_of else []),
        *(hooks_of("trackers").run_rows(item) if attempt else ()),
        *(_ran(load_imports(attempt.folder)) if attempt else []),
        *(hooks_of("notify").run_rows(item) if run.plan.get("notify") else ()),
    ]
    if item.element is None:
        name = run.run_id
    else:
        name = f"{run.run_id}/{item.element}"
    width = max(width, _INDENT + _ROOM_LEAST)
    return [
        name,
        *(
            line
            for label, text in rows
            for line in labelled(f"  {label}", one_line(text), _INDENT, width)
        ),
    ]


def _ran(noted: dict[str, Any]) -> list[tuple[str, str]]:
    imports = noted.get("imports") or {}
    if noted.get("script"):
        rows = [("script", str(noted["script"]))]
    else:
        rows = []
    # imports from elsewhere come first, since users look for them
    inside = f"{noted.get('folder')}/"
    order = sorted(imports.items(), key=lambda pair: (str(pair[1]).startswith(inside), pair[0]))
    rows += [("import", f"{name} from {path}") for name, path in order[:_SHOWN]]
    return rows + ([("import", f"and {len(order) - _SHOWN} more")] if len(order) > _SHOWN else [])


_AGAIN = (("requeued", "times"), ("restarted in the allocation", "restarts"))
"""What a plan allows, and the name of its number in the record."""


def recorded_plan(run: Run) -> Iterator[tuple[str, str]]:
    """Yield the plan, as far as the record has it: another version of hpcrun may have written it.

    A text has a line for each module, variable and so on.
    """
    plan = run.plan
    shape = _table(plan.get("shape"))
    python = _table(plan.get("python"))
    gpu_type = f"{shape['gpu_type']} " if shape.get("gpu_type") else ""
    launcher = f" by {shape['launcher']}" if shape.get("launcher") else ""
    if run.gpus_on_node:
        gpus = f" × {count(run.gpus_on_node, f'{gpu_type}GPU')}"
    else:
        gpus = ""
    yield "size", f"{count(run.nodes, 'node')}{gpus}, {count(run.world_size, 'rank')}{launcher}"
    if isinstance(plan.get("cpus_per_node"), int):
        yield "CPUs", f"{plan['cpus_per_node']} per node"
    memory = plan.get("memory_mb")
    if isinstance(memory, int) or (memory is None and plan.get("scheduler") == "slurm"):
        yield "memory", memory_text(memory)
    yield "time limit", clock_text(run.walltime_s) if run.walltime_s else "no time limit requested"
    directives = pairs_of(plan.get("directives"))
    if directives:
        yield (
            "sbatch",
            " ".join(
                f"--{key}" if value is None else f"--{key}={value}" for key, value in directives
            ),
        )
    if python.get("executable"):
        yield "Python", f"{python['executable']} ({python.get('kind', '')})"
    image = _table(plan.get("container")).get("image")
    if image:
        yield "container", str(image)
    requeue = _table(plan.get("requeue"))
    times = [
        f"{label} up to {count(requeue[name], 'time')}"
        for label, name in _AGAIN
        if requeue.get(name)
    ]
    if times:
        yield "after a stop", ", ".join(times)
    for label, name in (("modules", "modules"), ("set-up", "setup"), ("notes", "notes")):
        if isinstance(lines := plan.get(name), list) and lines:
            yield label, "\n".join(map(str, lines))
    variables = (*pairs_of(plan.get("env")), *pairs_of(plan.get("added")))
    if variables:
        yield (
            "variables",
            "\n".join(f"{name}={'***' if value is None else value}" for name, value in variables),
        )


def _table(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


# --- what status --verbose adds


def insight_rows(item: RunStatus, insight: Insight, now_s: float) -> Rows:
    """Return additional rows for the details of a run: label and text."""
    job_id, status = item.run.job_id or "", item.status
    total = status.total_elapsed_s
    times = (
        f"{clock_text(total)}, all {status.attempt + 1} attempts together; the limit is for each"
    )
    rows = [] if total is None else [("elapsed", times)]
    if status.state == PENDING:
        return [*rows, *_waiting_rows(item, insight, now_s)]
    rows += [
        ("role", each.line)
        for each in role_states(item.run, item.folder, item.element or 0)
        if not item.elements
    ]
    if not status.final:
        return [*rows, *_running_rows(item, insight)]
    usage = insight.usage.get((item.run.run_id, job_id))
    return [*rows, *idle_limit_rows(item), *_usage_rows(usage, _use(item), item)]


def verbose_lines(item: RunStatus, insight: Insight, width: int, now_s: float) -> list[str]:
    """Return the details of a run, below an empty line, at most ``width`` characters wide."""
    return ["", *detail_lines(item, width, insight_rows(item, insight, now_s))]


def insight_json(item: RunStatus, insight: Insight) -> dict[str, Any]:
    """Return the same as JSON; of a sweep's only named element those of the element."""
    if len(item.elements) == 1:
        item = element_row(item, item.elements[0])
    job_id = item.run.job_id or ""
    waiting, usage = insight.waiting.get(job_id), insight.usage.get((item.run.run_id, job_id))
    running = not item.status.final and item.status.state != PENDING
    return {
        "waiting": asdict(waiting) if waiting else None,
        "usage": {**asdict(usage), "cpu_efficiency": _cpu_efficiency(usage)} if usage else None,
        "last_line": last_line(item) if running else None,
        "metrics": last_metrics(item) if running else {},
        "gpus": gpu_json(insight.gpus[item.run.run_id])["gpus"]
        if item.run.run_id in insight.gpus
        else [],
        "use": asdict(use) if (use := _use(item)) else None,
        "messages": hooks_of("notify").run_json(item) if item.run.plan.get("notify") else [],
    }


def _waiting_rows(item: RunStatus, insight: Insight, now_s: float) -> Rows:
    rows: Rows = []
    job_id, reason = item.run.job_id or "", item.status.reason or ""
    waiting = insight.waiting.get(job_id)
    known = explain_reason(reason)
    if known:
        rows += [
            ("reason", f"{known.short} ({reason})"),
            ("advice", known.advice.replace("JOB", job_id)),
        ]
    if waiting:
        rows += [
            (
                "limit",
                f"{limit.holder}: {limit.used} of {limit.allowed} {limit.what} in use by "
                f"{limit.whose}",
            )
            for limit in insight.limits.get(
                ACCOUNTS if reason.startswith("Assoc") else waiting.qos, ()
            )
        ]
        rows.append(("queue", place_text(waiting)))
        rows.append(("start", start_text(waiting.start_s, now_s)))
    return rows


def place_text(waiting: Waiting) -> str:
    """Return the place in the queue, in words."""
    if waiting.place is None:
        return f"not in the queue of partition {waiting.partition} ({waiting.of} pending)"
    return f"{waiting.place} of {waiting.of} pending in partition {waiting.partition}"


def _running_rows(item: RunStatus, insight: Insight) -> Rows:
    status = item.status
    rows: Rows = []
    limit_s = status.limit_s or item.run.walltime_s
    if status.elapsed_s is not None and limit_s and item.live:
        rows.append(("time", bar_text(status.elapsed_s, limit_s)))
    if status.hosts:
        rows.append(("hosts", status.hosts))
    gpus = insight.gpus.get(item.run.run_id)
    if gpus and (now := gpu_use(gpus)):
        rows.append(("GPUs", now))
    if item.elements:
        return rows
    attempt = last_attempt(item.folder, item.element or 0)
    if attempt and (idle := idle_warning(attempt.folder)):
        at = time.strftime("%H:%M", time.localtime(idle.ends))
        text = (
            f"all GPUs for {clock_text(int(idle.warned - idle.since))}: it ends at {at} if "
            "they "
            "stay idle"
        )
        rows.append(("idle", about_run(item)[1] or text))
    rows += idle_limit_rows(item)
    use = _use(item)
    if use:
        rows += [
            (f"{label}, mean" if label == "GPUs" else label, text) for label, text in use_rows(use)
        ]
    line = last_line(item)
    if line:
        rows.append(("last line", without_colours(harmless(line))))
    metrics = last_metrics(item)
    if metrics:
        rows.append(("metrics", _metrics_text(metrics)))
    return rows


def _metrics_text(metrics: Mapping[str, Any]) -> str:
    return " ".join(f"{name}={_value(value)}" for name, value in metrics.items() if name != "time")


def idle_limit_rows(item: RunStatus) -> Rows:
    """Return a row that says that ``--cancel-idle`` has no effect.

    There is a row if a node does not report the use of its GPUs.
    """
    if item.elements:
        attempt = None
    else:
        attempt = last_attempt(item.folder, item.element or 0)
    node = idle_unknown(attempt.folder) if attempt else None
    if node:
        return [("idle limit", f"no effect: no use of the GPUs is known from nvidia-smi on {node}")]
    return []


def last_words(item: RunStatus) -> str:
    """Return in one line what rank 0 of a run noted last with ``log_metrics()``.

    Without such a note, the result is the last line of the run.
    """
    metrics = last_metrics(item)
    if metrics:
        return _metrics_text(metrics)
    return " ".join(without_colours(harmless(last_line(item) or "")).split())


def bar_text(elapsed_s: int, limit_s: int) -> str:
    """Return the share of its time that a run has used, as a bar."""
    part = min(1.0, max(0.0, elapsed_s / limit_s))
    full = int(part * _BAR)
    return (
        f"{'█' * full}{'░' * (_BAR - full)} {part:.0%}, {clock_text(elapsed_s)} of "
        f"{clock_text(limit_s)}"
    )


def _use(item: RunStatus) -> UseSummary | None:
    """Return what a run has recorded of its own use.

    Returns None of a sweep, whose elements are runs of their own.
    """
    if item.elements:
        return None
    return run_use(item.folder, item.element or 0)


def _usage_rows(usage: Usage | None, use: UseSummary | None, item: RunStatus) -> Rows:
    """Return what a run has used.

    The GPU-hours are by Slurm's accounting, and the rest is by the run's own samples.
    """
    rows: Rows = []
    if usage and usage.gpus:
        if item.status.total_elapsed_s is None:
            attempts = ""
        else:
            attempts = ", all attempts together"
        if item.element is not None and all_elements(item.run).packed:
            shared = ", of all elements of its task"
        else:
            shared = ""
        rows.append(
            (
                "GPU-hours",
                f"{usage.gpu_s / 3600:.2f} ({count(usage.gpus, 'GPU')}{shared}{attempts})",
            )
        )
    if use:
        hints = use_advice(use, completed=item.status.state == COMPLETED)
    else:
        hints = []
    hints += time_advice(item.status)
    return [*rows, *(use_rows(use) if use else []), *(("advice", text) for text in hints)]


def _cpu_efficiency(usage: Usage) -> float | None:
    """Return the used part of the CPU time, None if it was not measured."""
    cpus_s = usage.cpus * usage.elapsed_s
    if usage.cpu_s is not None and cpus_s:
        return usage.cpu_s / cpus_s
    return None


def _value(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
