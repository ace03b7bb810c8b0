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
from hpcrun.actions.runs.compiled_text import compiled_row
from hpcrun.actions.runs.hardware_use import run_use, use_advice, use_rows
from hpcrun.actions.status.run_status import RunStatus, element_row
from hpcrun.actions.status.status_details import Insight, last_line, last_metrics, time_advice
from hpcrun.files.foreign_folder import is_foreign
from hpcrun.job.job_states import COMPLETED, PENDING
from hpcrun.job.run_paths import RunFolder
from hpcrun.job.text.hide_secrets import HIDER
from hpcrun.runs.attempt import Attempt, alone_note, alone_ranks, last_attempt, load_imports
from hpcrun.runs.compiled_files import compiled_files
from hpcrun.runs.elements import all_elements
from hpcrun.runs.job_versions import versions_of
from hpcrun.runs.record import Run, pairs_of, variables_text
from hpcrun.runs.role_states import role_states
from hpcrun.runs.use_samples import UseSummary, idle_unknown, idle_warning
from hpcrun.schedulers.away_nodes import nodes_words
from hpcrun.schedulers.pending_and_usage import ACCOUNTS, Limit, Usage, Waiting
from hpcrun.views.gpu_table import gpu_json, gpu_use
from hpcrun.views.status_table import command_text
from hpcrun.views.text import (
    clock_text,
    code_text,
    count,
    harmless,
    labelled,
    memory_text,
    nodes_text,
    one_line,
    ranks_text,
    start_text,
    versions_text,
    without_colours,
)

Rows = list[tuple[str, str]]
"""Label and text of each row."""
_MOST_IMPORTS = 8
_BAR = 20
_INDENT = 15
_ROOM_LEAST = 20
_LISTS = (("modules", "modules"), ("set-up", "setup"), ("notes", "notes"))
"""The label of a list in a plan, and its name in the record."""
_AGAIN = (("requeued", "times"), ("restarted in the allocation", "restarts"))
"""What a plan allows, and the name of its number in the record."""


def detail_lines(item: RunStatus, width: int, more: Sequence[tuple[str, str]] = ()) -> list[str]:
    """Return the details for which the table has no room, wrapped between words.

    Args:
        item: the run and its status.
        width: the most characters of a line.
        more: label and text of further rows, which come first.
    """
    name = item.run.run_id
    if item.element is not None:
        name += f"/{item.element}"
    room = max(width, _INDENT + _ROOM_LEAST)
    lines = [name]
    for label, text in (*more, *_detail_rows(item)):
        lines += labelled(f"  {label}", one_line(text), _INDENT, room)
    return lines


def _detail_rows(item: RunStatus) -> Rows:
    """Return where a run has its files, and its relations to other runs and to its code."""
    run = item.run
    attempt = _newest_attempt(item)
    rows: Rows = []
    if run.note:
        rows.append(("note", run.note))
    command = command_text(item)
    if command:
        rows.append(("command", command))
    variables = variables_text(run.request)
    if variables:
        rows.append(("env", HIDER.hide(variables)))
    rows.append(("folder", str(item.folder)))
    if attempt and not item.elements:
        logs = attempt.folder.path.relative_to(item.folder)
        rows.append(("logs", f"{logs}/rank-N.out and rank-N.err"))
    rows += [(f"after {wait['condition']}", wait["run_id"]) for wait in run.after]
    if run.resubmitted_from:
        rows.append(("again", f"of {run.resubmitted_from}"))
    if run.checkpoints_of and not is_foreign(item.folder):
        checkpoints = RunFolder(item.folder).element(0).checkpoints
        rows.append(("checkpoints", os.path.realpath(checkpoints)))
    if run.code:
        rows.append(("code", code_text(run.code)))
    if run.code_of:
        rows.append(("code", f"the snapshot of {run.code_of}"))
    versions = _versions(item)
    if versions:
        rows.append(("versions", versions_text(versions)))
    if attempt:
        rows += _compiled_rows(attempt)
        rows += hooks_of("trackers").run_rows(item)
        rows += _code_rows(load_imports(attempt.folder))
    if run.plan.get("notify"):
        rows += hooks_of("notify").run_rows(item)
    return rows


def _newest_attempt(item: RunStatus) -> Attempt | None:
    """Return the newest attempt of a run, or of its named element; None without one."""
    return last_attempt(item.folder, item.element or 0)


def _compiled_rows(attempt: Attempt) -> Rows:
    files = compiled_files(attempt)
    return [compiled_row(attempt, files)] if files else []


def _compiled_json(item: RunStatus) -> dict[str, Any] | None:
    """Return the compiled files of the newest attempt; None if it keeps none."""
    attempt = _newest_attempt(item)
    files = compiled_files(attempt) if attempt and not item.elements else None
    return asdict(files) if files else None


def _versions(item: RunStatus) -> dict[str, str]:
    """Return the versions of the newest attempt; of a sweep none, since each element has its own.

    Versions that are not known are left out.
    """
    attempt = _newest_attempt(item)
    if attempt is None or item.elements:
        return {}
    return versions_of(attempt.folder)


def _code_rows(record: Mapping[str, Any]) -> Rows:
    """Return the script and the imports of an attempt, from its record of its code."""
    rows: Rows = []
    if record.get("script"):
        rows.append(("script", str(record["script"])))
    imports = record.get("imports") or {}
    # imports from elsewhere come first, since users look for them
    inside = f"{record.get('folder')}/"
    order = sorted(imports.items(), key=lambda pair: (str(pair[1]).startswith(inside), pair[0]))
    rows += [("import", f"{name} from {path}") for name, path in order[:_MOST_IMPORTS]]
    if len(order) > _MOST_IMPORTS:
        rows.append(("import", f"and {len(order) - _MOST_IMPORTS} more"))
    return rows


# --- the recorded plan


def recorded_plan(run: Run) -> Iterator[tuple[str, str]]:
    """Yield the plan, as far as the record has it: another version of hpcrun may have written it.

    A text has a line for each module, variable and so on.
    """
    plan = run.plan
    yield "size", _size_text(run)
    if isinstance(plan.get("cpus_per_node"), int):
        yield "CPUs", f"{plan['cpus_per_node']} per node"
    memory = plan.get("memory_mb")
    is_site_default = memory is None and plan.get("scheduler") == "slurm"
    if isinstance(memory, int) or is_site_default:
        yield "memory", memory_text(memory)
    if run.walltime_s:
        yield "time limit", clock_text(run.walltime_s)
    else:
        yield "time limit", "no time limit requested"
    directives = pairs_of(plan.get("directives"))
    if directives:
        yield "sbatch", _directives_text(directives)
    python = _table(plan.get("python"))
    if python.get("executable"):
        yield "Python", f"{python['executable']} ({python.get('kind', '')})"
    image = _table(plan.get("container")).get("image")
    if image:
        yield "container", str(image)
    again = _again_text(_table(plan.get("requeue")))
    if again:
        yield "after a stop", again
    for label, name in _LISTS:
        lines = plan.get(name)
        if isinstance(lines, list) and lines:
            yield label, "\n".join(map(str, lines))
    variables = (*pairs_of(plan.get("env")), *pairs_of(plan.get("added")))
    if variables:
        yield "variables", _variables_text(variables)


def _size_text(run: Run) -> str:
    """Return the nodes, GPUs and ranks of a run, and what starts the ranks."""
    shape = _table(run.plan.get("shape"))
    text = nodes_text(run)
    if run.gpus_on_node:
        kind = f"{shape['gpu_type']} GPU" if shape.get("gpu_type") else "GPU"
        text += f" × {count(run.gpus_on_node, kind)}"
    if not run.world_size:
        return f"{text}; the script's launch decides the ranks"
    text += f", {ranks_text(run)}"
    if shape.get("launcher"):
        text += f" by {shape['launcher']}"
    return text


def _directives_text(directives: Sequence[tuple[str, Any]]) -> str:
    options = []
    for name, value in directives:
        option = f"--{name}"
        if value is not None:
            option += f"={value}"
        options.append(option)
    return " ".join(options)


def _again_text(requeue: Mapping[str, Any]) -> str:
    """Return how often a run may be started again; empty if it may not."""
    parts = []
    for label, name in _AGAIN:
        if requeue.get(name):
            parts.append(f"{label} up to {count(requeue[name], 'time')}")
    return ", ".join(parts)


def _variables_text(variables: Sequence[tuple[str, Any]]) -> str:
    """Return a line for each variable, secrets hidden."""
    lines = []
    for name, value in variables:
        shown = "***" if value is None else value
        lines.append(f"{name}={shown}")
    return "\n".join(lines)


def _table(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


# --- what status --verbose adds


def insight_rows(item: RunStatus, insight: Insight, now_s: float) -> Rows:
    """Return additional rows for the details of a run: label and text."""
    run = item.run
    status = item.status
    rows: Rows = []
    if status.total_elapsed_s is not None:
        attempts = f"all {status.attempt + 1} attempts together; the limit is for each"
        rows.append(("elapsed", f"{clock_text(status.total_elapsed_s)}, {attempts}"))
    if status.state == PENDING:
        return rows + _waiting_rows(item, insight, now_s)
    if not item.elements:
        roles = role_states(run, item.folder, item.element or 0)
        rows += [("role", role.line) for role in roles]
    if not status.final:
        return rows + _running_rows(item, insight)
    usage = insight.usage.get((run.run_id, run.job_id or ""))
    return rows + no_effect_rows(item) + _usage_rows(usage, _use(item), item)


def verbose_lines(item: RunStatus, insight: Insight, width: int, now_s: float) -> list[str]:
    """Return the details of a run, below an empty line, at most ``width`` characters wide."""
    return ["", *detail_lines(item, width, insight_rows(item, insight, now_s))]


def insight_json(item: RunStatus, insight: Insight) -> dict[str, Any]:
    """Return the same as JSON; of a sweep's only named element those of the element."""
    if len(item.elements) == 1:
        item = element_row(item, item.elements[0])
    run = item.run
    job_id = run.job_id or ""
    document: dict[str, Any] = {
        "waiting": None,
        "limits": [],
        "usage": None,
        "last_line": None,
        "metrics": {},
        "gpus": [],
        "use": None,
        "messages": [],
        "versions": _versions(item),
        "compiled": _compiled_json(item),
    }
    if job_id in insight.waiting:
        document["waiting"] = asdict(insight.waiting[job_id])
        document["limits"] = [asdict(limit) for limit in _limits_of(item, insight)]
    usage = insight.usage.get((run.run_id, job_id))
    if usage:
        document["usage"] = {**asdict(usage), "cpu_efficiency": _cpu_efficiency(usage)}
        if run.gpus_per_node and not usage.gpus:  # Slurm does not count them
            document["usage"].update(gpus=None, gpu_s=None)
    if not item.status.final and item.status.state != PENDING:
        document["last_line"] = last_line(item)
        document["metrics"] = last_metrics(item)
    if run.run_id in insight.gpus:
        document["gpus"] = gpu_json(insight.gpus[run.run_id])["gpus"]
    use = _use(item)
    if use:
        document["use"] = asdict(use)
    if run.plan.get("notify"):
        document["messages"] = hooks_of("notify").run_json(item)
    return document


def _waiting_rows(item: RunStatus, insight: Insight, now_s: float) -> Rows:
    rows: Rows = []
    run = item.run
    job_id = run.job_id or ""
    reason = item.status.reason or ""
    known = item.known_reason
    if known:
        rows.append(("reason", f"{known.short} ({reason})"))
    awaited = insight.awaited.get(job_id)
    if awaited:
        rows.append(("nodes", nodes_words(awaited)))
    nodelist = dict(pairs_of(run.plan.get("directives"))).get("nodelist")
    if nodelist and reason.startswith("ReqNodeNotAvail"):
        rows.append(("advice", f"Leave out --nodelist {nodelist}, or name other nodes."))
    elif known:
        rows.append(("advice", known.advice.replace("JOB", job_id)))
    rows += [("limit", _limit_text(limit)) for limit in _limits_of(item, insight)]
    waiting = insight.waiting.get(job_id)
    if waiting:
        rows.append(("queue", place_text(waiting)))
    if waiting and not item.never_starts:  # Slurm estimates the start of such a job, too
        rows.append(("start", start_text(waiting.start_s, now_s)))
    return rows


def _limits_of(item: RunStatus, insight: Insight) -> Sequence[Limit]:
    """Return the limits of a pending job's QOS, or of the accounts, as its reason names them."""
    waiting = insight.waiting.get(item.run.job_id or "")
    if waiting is None:
        return ()
    is_of_account = (item.status.reason or "").startswith("Assoc")
    return insight.limits.get(ACCOUNTS if is_of_account else waiting.qos, ())


def _limit_text(limit: Limit) -> str:
    used = f"{limit.used} of {limit.allowed} {limit.what}"
    return f"{limit.holder}: {used} in use by {limit.whose}"


def place_text(waiting: Waiting) -> str:
    """Return the place in the queue, in words."""
    if waiting.place is None:
        return f"not in the queue of partition {waiting.partition} ({waiting.of} pending)"
    return f"{waiting.place} of {waiting.of} pending in partition {waiting.partition}"


def _running_rows(item: RunStatus, insight: Insight) -> Rows:
    status = item.status
    rows: Rows = []
    limit_s = status.limit_s or item.run.walltime_s
    if item.live and status.elapsed_s is not None and limit_s:
        rows.append(("time", bar_text(status.elapsed_s, limit_s)))
    if status.hosts:
        rows.append(("hosts", status.hosts))
    gpus = insight.gpus.get(item.run.run_id)
    if gpus:
        use_now = gpu_use(gpus)
        if use_now:
            rows.append(("GPUs", use_now))
    if item.elements:
        return rows
    rows += _idle_rows(item)
    rows += no_effect_rows(item)
    use = _use(item)
    if use:
        for label, text in use_rows(use):
            heading = "GPUs, mean" if label == "GPUs" else label
            rows.append((heading, text))
    line = last_line(item)
    if line:
        rows.append(("last line", without_colours(harmless(line))))
    metrics = last_metrics(item)
    if metrics:
        rows.append(("metrics", _metrics_text(metrics)))
    return rows


def _idle_rows(item: RunStatus) -> Rows:
    """Return a row with the warning that all GPUs are idle, if there is one now."""
    attempt = _newest_attempt(item)
    if attempt is None:
        return []
    idle = idle_warning(attempt.folder)
    if idle is None:
        return []
    _, sentence = about_run(item)
    if not sentence:
        span = clock_text(int(idle.warned - idle.since))
        end = time.strftime("%H:%M", time.localtime(idle.ends))
        sentence = f"all GPUs for {span}: it ends at {end} if they stay idle"
    return [("idle", sentence)]


def _metrics_text(metrics: Mapping[str, Any]) -> str:
    return " ".join(f"{name}={_value(value)}" for name, value in metrics.items() if name != "time")


def no_effect_rows(item: RunStatus) -> Rows:
    """Return the rows of what has no effect.

    ``--cancel-idle`` has none if a node does not report the use of its GPUs; further ranks have
    none while each of them works alone.
    """
    if item.elements:
        return []
    attempt = _newest_attempt(item)
    if attempt is None:
        return []
    rows: Rows = []
    node = idle_unknown(attempt.folder)
    if node:
        no_use = f"no effect: no use of the GPUs is known from nvidia-smi on {node}"
        rows.append(("idle limit", no_use))
    alone = 0 if item.status.final else alone_ranks(attempt.folder)
    if alone:
        rows.append(("note", alone_note(alone)))
    return rows


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
    bar = "█" * full + "░" * (_BAR - full)
    return f"{bar} {part:.0%}, {clock_text(elapsed_s)} of {clock_text(limit_s)}"


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
        rows.append(("GPU-hours", _gpu_hours_text(usage, item)))
    advice: list[str] = []
    if use:
        rows += use_rows(use)
        advice += use_advice(use, completed=item.status.state == COMPLETED)
    advice += time_advice(item.status)
    rows += [("advice", text) for text in advice]
    return rows


def _gpu_hours_text(usage: Usage, item: RunStatus) -> str:
    """Return the GPU-hours of a run, and what else than its last attempt they are for."""
    scope = count(usage.gpus, "GPU")
    if item.element is not None and all_elements(item.run).packed:
        scope += ", of all elements of its task"
    if item.status.total_elapsed_s is not None:
        scope += ", all attempts together"
    return f"{usage.gpu_s / 3600:.2f} ({scope})"


def _cpu_efficiency(usage: Usage) -> float | None:
    """Return the used part of the CPU time, None if it was not measured."""
    cpus_s = usage.cpus * usage.elapsed_s
    if usage.cpu_s is not None and cpus_s:
        return usage.cpu_s / cpus_s
    return None


def _value(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    return str(value)
