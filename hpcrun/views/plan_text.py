"""The plan in a few lines, and the submitted job."""

from __future__ import annotations

import shlex
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from hpcrun.job.batch.sbatch_input import Sizes, read_sizes
from hpcrun.job.plan.cost import Cost, cost_text, total_hours
from hpcrun.job.plan.job_plan import Plan, Snapshot
from hpcrun.job.plan.plan_notes import threads_of
from hpcrun.job.plan.roles import Role
from hpcrun.job.plan.sweep import Sweep
from hpcrun.job.request.notify_options import IDLE
from hpcrun.job.request.parameters import parse_indices
from hpcrun.job.resources.container import Container
from hpcrun.job.resources.requeue import Requeue
from hpcrun.job.resources.shape import option_words
from hpcrun.job.text.quoting import assignments, bash_line
from hpcrun.job.text.units import format_span
from hpcrun.views.text import (
    bytes_text,
    code_text,
    count,
    fields_of,
    memory_text,
    one_line,
    time_text,
)

if TYPE_CHECKING:  # a dry run would import all that submits
    from hpcrun.actions.jobs.new_run import Lineage
    from hpcrun.actions.jobs.prepare import Prepared
    from hpcrun.actions.jobs.submission import SubmitResult
    from hpcrun.job.batch.batch_script import BatchScript
    from hpcrun.runs.record import Run

_LABEL_LEAST = len("submitted")
"""The lines of the submitted job follow the plan in the same columns."""
_PLACES = ("partition", "account", "qos", "constraint", "reservation", "nodelist", "exclude")
"""The directives that say where the job runs."""
_PREFLIGHT = "before the ranks start (at most 30 s)"


def prepared_lines(
    prepared: Prepared,
    more: Sequence[tuple[str, str]] = (),
    instead: Mapping[str, str] = MappingProxyType({}),
) -> list[str]:
    """Return the plan of a job as lines of text, without the variables that hpcrun adds.

    Args:
        prepared: the job.
        more: label and text of further rows; see ``plan_lines``.
        instead: label → text of rows in place of those of the plan.
    """
    names = prepared.own_variables()
    env = assignments(variable for variable in prepared.plan.env if variable[0] in names)
    rows = {"env": env, "cost": cost_text(prepared.cost())}
    if prepared.request.wrap is not None:
        rows["command"] = prepared.request.wrap
    return plan_lines(prepared.plan, more, {**rows, **instead})


def plan_lines(
    plan: Plan,
    more: Sequence[tuple[str, str]] = (),
    instead: Mapping[str, str] = MappingProxyType({}),
) -> list[str]:
    """Return the plan as lines of text.

    Args:
        plan: the plan of a job.
        more: label and text of further rows, on the job's relations to other runs.
        instead: label → text of rows in place of those of the plan; an empty text leaves one out.
    """
    rows = [
        (plan.name, _shape(plan)),
        ("nodes", _node_choice(plan)),
        ("sweep", sweep_text(plan.sweep, plan.scheduler) if plan.sweep else ""),
        ("command", _command(plan)),
        *((role.name, _role(role)) for role in plan.roles),
        *more,
        ("CPUs", _cpus(plan)),
        ("memory", memory_text(plan.memory_mb) if plan.scheduler == "slurm" else ""),
        ("time", _time(plan)),
        ("cost", ""),  # of a prepared job
        ("where", _where(plan)),
        ("python", f"{plan.python.executable} ({plan.python.kind})"),
        ("container", _container(plan.container)),
        ("code", _code(plan.snapshot)),
        ("stage", _stage(plan)),
        ("warm", "what compilers make is kept for the next job" if plan.warm else ""),
        ("stop", _stop(plan.requeue)),
        ("idle", _idle(plan)),
        ("srun", _srun(plan)),
        ("torchrun", " ".join(option_words(plan.torchrun))),
        ("preflight", _PREFLIGHT if plan.preflight == "first" else ""),
        ("modules", " ".join(plan.modules)),
        ("set-up", count(len(plan.setup), "command") if plan.setup else ""),
        ("env", assignments((*plan.env, *plan.added))),
        ("messages", _messages(plan)),
        *(("note", note) for note in plan.notes),
    ]
    return _in_columns([(label, instead.get(label, text)) for label, text in rows])


def _in_columns(rows: Sequence[tuple[str, str]]) -> list[str]:
    """Return label and text of each row that has a text, in two columns."""
    shown = [(label, text) for label, text in rows if text]
    width = max(_LABEL_LEAST, *(len(label) for label, _ in shown))
    return [one_line(f"{label:<{width}}  {text}") for label, text in shown]


def again_text(lineage: Lineage, folder: Path | str, elements: Sequence[int] = (0,)) -> str:
    """Return the repeated run, the run with the checkpoints, and the folder of the start.

    Args:
        lineage: the relations of the new run to earlier ones.
        folder: the folder of the start.
        elements: the elements of the new run.
    """
    if lineage.checkpoints is None:
        checkpoints = "new checkpoints"
    elif lineage.without_checkpoints(elements):
        checkpoints = "which has left nothing in $HPCRUN_CHECKPOINT_DIR"
    else:
        checkpoints = f"checkpoints of {lineage.checkpoints.name}"
    return f"of {lineage.resubmitted_from}, {checkpoints}, in {folder}"


def earlier_code(run: Run) -> str:
    """Return that a job runs the snapshot of an earlier run, and how to take another."""
    copied = time.strftime("%Y-%m-%d %H:%M", time.localtime(run.created_s))
    return f"that of run {run.job_id or run.run_id}, copied {copied}; --snapshot takes today's"


def command_line(plan: Plan) -> str:
    """Return the command of every rank in shell syntax; for a sweep, that of the first element."""
    if not plan.sweep:
        return bash_line(plan.command)
    first = plan.sweep.chosen[0]
    return bash_line(plan.command + plan.sweep.arguments[first])


def _command(plan: Plan) -> str:
    """Return the command of every rank; empty if roles have their own, or no ranks start."""
    if plan.roles or plan.preflight == "only":
        return ""
    return command_line(plan)


def _role(role: Role) -> str:
    """Return the size of a role, its command, and when it starts and is ready."""
    if role.gpus:
        text = count(role.gpus.number, "GPU")
    else:
        text = count(role.nodes, "node")
    if role.launcher == "torchrun":
        text += f", {count(role.ranks, 'rank')} by torchrun"
    if role.after:
        text += f", after {' and '.join(role.after)}"
    if role.ready:
        text += f", ready by {role.ready}"
    return f"{text}: {bash_line(role.command)}"


def _shape(plan: Plan) -> str:
    """Return the nodes and GPUs of the job, and how its programs are started."""
    shape = plan.shape
    if plan.batch:
        directives = dict(plan.directives)
        sizes = plan.batch.sizes if plan.scheduler == "local" else read_sizes(directives)
        return script_size_text(plan.batch, sizes)
    size = f"{_nodes(plan)} × {_gpus(plan)}"
    if plan.roles:
        return f"{size}, {plan.ranks_text} in {count(len(plan.roles), 'role')}"
    if shape.launcher == "command":
        return f"{size}, the command once per node"
    if shape.launcher == "ray":
        return f"{size}, the program on the head node of a Ray cluster"
    return f"{size}, {plan.ranks_text} by {shape.launcher}"


def script_size_text(script: BatchScript, sizes: Sizes) -> str:
    """Return what is known of the size of a batch script's job, and what the script decides."""
    gpus = count(sizes.gpus, f"{sizes.gpu_type} GPU" if sizes.gpu_type else "GPU")
    if sizes.nodes_open:
        size = f"enough nodes for {gpus if sizes.gpus else count(sizes.tasks, 'task')}"
    else:
        size = f"{sizes.node_choice} nodes" if sizes.node_choice else count(sizes.nodes, "node")
        if sizes.gpus:
            size += f" × {gpus}"
    launcher, per_node = script.ranks(sizes)
    if not script.launches:
        return f"{size}; the script starts its programs itself"
    if launcher == "python":
        return f"{size}, one process started by the script"
    if not per_node:
        return f"{size}; its launch decides the ranks"
    ranks = sizes.nodes * per_node
    most = "at most " if sizes.node_choice else ""
    if any(line.starts_ranks for line in script.launches):
        return f"{size}, {most}{count(ranks, 'task')} by srun, each of which decides its ranks"
    return f"{size}, {most}{count(ranks, 'rank')} by {launcher}"


def _nodes(plan: Plan) -> str:
    nodes = plan.shape.nodes_text
    if plan.scheduler == "local" and plan.shape.nodes > 1:
        return f"{nodes} (all this machine)"
    return nodes


def _node_choice(plan: Plan) -> str:
    """Return what the fewest and the most nodes mean if Slurm chooses, else the empty text."""
    shape = plan.shape
    if not shape.node_choice:
        return ""
    sizes = []
    for nodes in (shape.fewest_nodes, shape.nodes):
        size = count(nodes, "node")
        if shape.gpus_per_node and not plan.directive("gpus"):
            size += f" with {count(nodes * shape.gpus_per_node, 'GPU')}"
        sizes.append(size)
    return f"Slurm chooses when the job starts: {' to '.join(sizes)}"


def _gpus(plan: Plan) -> str:
    shape = plan.shape
    runs_on_cpu = plan.scheduler == "local" and not plan.local_gpus
    if not shape.gpus_per_node or runs_on_cpu:
        return "no GPU"
    kind = f"{shape.gpu_type} GPU" if shape.gpu_type else "GPU"
    return count(shape.gpus_per_node, kind)


def _cpus(plan: Plan) -> str:
    if plan.batch:
        return "as the script requests"
    if plan.cpus_per_node is None:
        return "the site's default, divided among the ranks of a node (OMP_NUM_THREADS)"
    text = f"{plan.cpus_per_node} per node"
    threads = threads_of(plan)
    if threads:
        text += f", OMP_NUM_THREADS={threads}"
    return text


def _time(plan: Plan) -> str:
    if plan.walltime_s:
        text = time_text(plan.walltime_s)
        # 30 may have been meant as hours
        return text if plan.walltime_s >= 3600 else f"{text} ({format_span(plan.walltime_s)})"
    if plan.scheduler == "local":
        return "no limit"
    return "the partition's default"


def _messages(plan: Plan) -> str:
    if not plan.notify:
        return ""
    events = list(plan.notify.events)
    if not plan.cancel_idle_s:
        # without a limit on idle GPUs, nobody watches them
        events = [event for event in events if event != IDLE]
    return f"to {', '.join(plan.notify.to)}: {', '.join(events) or 'none without --cancel-idle'}"


def _stage(plan: Plan) -> str:
    if not plan.stage:
        return ""
    copies = []
    for name, path, size in plan.stage:
        copy = f"{shlex.quote(path)} as $HPCRUN_STAGE/{shlex.quote(name)}"
        if size is not None:
            copy += f" ({bytes_text(size)})"
        copies.append(copy)
    text = f"copied to each node: {', '.join(copies)}"
    if plan.keep_days:
        text += f"; left there for later jobs ({count(plan.keep_days, 'day')})"
    return text


def _code(snapshot: Snapshot | None) -> str:
    if snapshot is None:
        return ""
    text = "a snapshot of the current code"
    if snapshot.folder != ".":
        text += f", starting in {snapshot.folder}"
    return text


def _srun(plan: Plan) -> str:
    words = " ".join(plan.srun_words)
    return f"{words}, besides the options in the launch" if plan.batch and words else words


def _idle(plan: Plan) -> str:
    if not plan.cancel_idle_s:
        return ""
    return f"ends if all of its GPUs are idle for {time_text(plan.cancel_idle_s)}"


def _container(container: Container | None) -> str:
    if container is None:
        return ""
    text = f"{container.image} by {container.runtime}"
    if container.gpus:
        text += ", with GPUs"
    if container.mounts:
        text += f", with {' '.join(container.mounts)}"
    return text


def _stop(requeue: Requeue | None) -> str:
    """Return when the ranks are warned, and how the job continues after that."""
    if requeue is None:
        return ""
    text = f"SIGUSR1 {requeue.warn_s} s before the time limit"
    if requeue.times:
        text += f", requeued up to {count(requeue.times, 'time')}"
    if requeue.restarts:
        restarts = count(requeue.restarts, "time")
        text += f", restarted in the same allocation up to {restarts}"
        if requeue.spares:
            text += f" with {count(requeue.spares, 'spare node')}"
    if requeue.on_failure:
        text += ", also after a failure of the program"
    if requeue.expedite:
        text += ", expedited after a node failure"
    return text


def sweep_text(sweep: Sweep, scheduler: str) -> str:
    """Return the number of elements of a sweep, its parameters, and how many may run at once."""
    values: dict[str, set[str]] = {}  # parameter → its different values
    for index in sweep.chosen:
        for name, value in sweep.elements[index]:
            values.setdefault(name, set()).add(value)
    names = ", ".join(f"{name} {count(len(values[name]), 'value')}" for name in values)
    text = f"{count(len(sweep.chosen), 'element')} ({names or f'--array={sweep.array}'})"
    if sweep.pack and scheduler == "slurm":
        text += f", {count(sweep.tasks, 'task')} of {sweep.pack}"
    if sweep.max_parallel:
        text += f", at most {sweep.max_parallel} at once"
    return text


def _where(plan: Plan) -> str:
    if plan.scheduler == "local":
        return f"this machine, as a background job (profile {plan.profile})"
    parts = []
    for name in _PLACES:
        value = plan.directive(name)
        if value:
            parts.append(f"{name} {value}")
    return f"{', '.join(parts) or 'the default partition'} (profile {plan.profile})"


def submitted_lines(result: SubmitResult) -> list[str]:
    """Return the submitted job and the commands that show it."""
    run = result.run
    status = f"hpcrun status {run.job_id}"
    logs = f"hpcrun logs -f {run.job_id}"
    sweep = run.plan.get("sweep")
    if sweep:
        status += f" | hpcrun sweep {run.job_id}"
        logs += f"/{parse_indices(sweep['indices'])[0]}"
    lines = [f"submitted  job {run.job_id}, run {run.run_id}", *_remark_lines(result)]
    if run.code and run.has_copied_code:
        lines.append(one_line(f"code       {code_text(run.code)}"))
    lines.append(one_line(f"folder     {result.folder}"))
    lines.append(f"look       {status} | {logs} | hpcrun cancel {run.job_id}")
    return lines


def link_line(result: SubmitResult) -> list[str]:
    """Return one line for a submitted link, and the remarks on it."""
    run = result.run
    chain = run.chain or {}
    link = f"{chain.get('link')}/{chain.get('links')}"
    return [f"submitted  {link}: job {run.job_id}, run {run.run_id}", *_remark_lines(result)]


def _remark_lines(result: SubmitResult) -> list[str]:
    return [one_line(f"           {line}") for line in result.remarks.splitlines()]


def look_line(results: Sequence[SubmitResult]) -> list[str]:
    """Return the commands that show a chain, and the place of its checkpoints."""
    ids = " ".join(str(result.run.job_id) for result in results)
    return [
        one_line(f"folder     {results[0].folder}, and its checkpoints"),
        f"look       hpcrun status {ids} | hpcrun cancel {ids}",
    ]


def chain_json(results: Sequence[SubmitResult]) -> dict[str, Any]:
    """Return a submitted chain as a JSON document."""
    links = []
    for result in results:
        link = fields_of(result.run, "run_id job_id name after")
        links.append({**link, **fields_of(result, "folder remarks")})
    costs = [_cost_json(result.prepared.cost()) for result in results]
    return {"kind": "chain", "links": links, **total_cost(costs)}


def prepared_json(prepared: Prepared, links: int = 1) -> dict[str, Any]:
    """Return a prepared submission as a JSON document.

    Args:
        prepared: the job.
        links: the links of a chain of such jobs.
    """
    return {
        "kind": "plan",
        **_cost_json(replace(prepared.cost(), links=links)),
        "plan": _plan_json(prepared.plan),
        "script": prepared.script,
    }


def _cost_json(cost: Cost) -> dict[str, float | None]:
    """Return the GPU-hours of a job at most, None if they are not known."""
    return {
        "gpu_hours_at_most": cost.gpu_hours,
        "gpu_hours_with_requeues": cost.gpu_hours_with_requeues,
    }


def total_cost(documents: Sequence[Mapping[str, Any]]) -> dict[str, float | None]:
    """Return the GPU-hours of several jobs together."""
    names = ("gpu_hours_at_most", "gpu_hours_with_requeues")
    return {name: total_hours(document[name] for document in documents) for name in names}


def submitted_json(result: SubmitResult) -> dict[str, Any]:
    """Return a submission as a JSON document."""
    return {
        "kind": "submitted",
        **fields_of(result.run, "run_id job_id scheduler cluster"),
        **fields_of(result, "folder remarks"),
        **_cost_json(result.prepared.cost()),
        "plan": _plan_json(result.prepared.plan),
    }


def ids_json(results: Sequence[SubmitResult]) -> dict[str, Any]:
    """Return the beginning of the document of a submission: the ids, before its jobs end."""
    return {
        "kind": "submitted",
        **fields_of(results[0].run, "run_id job_id"),
        "job_ids": [result.run.job_id for result in results],
    }


def submissions_json(results: Sequence[SubmitResult]) -> dict[str, Any]:
    """Return the arrays of a sweep, or the only job, as a JSON document."""
    return joined_json([submitted_json(result) for result in results])


def joined_json(documents: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the documents of a submission as one document.

    Returns:
        The only document, or the first with all documents under ``parts``.
    """
    if len(documents) == 1:
        return documents[0]
    return {**documents[0], **total_cost(documents), "parts": documents}


def _plan_json(plan: Plan) -> dict[str, Any]:
    document = {
        **asdict(plan),
        "command_line": "" if plan.preflight == "only" else command_line(plan),
        "world_size": plan.shape.world_size,
        "cpus_per_rank": plan.cpus_per_rank,
    }
    if plan.batch:  # what only the script decides is unknown, and not 0
        shape = document["shape"]
        document["world_size"] = document["world_size"] or None
        document["shape"] = {name: value or None for name, value in shape.items()}
    return document
