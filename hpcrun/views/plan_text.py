"""The plan in a few lines, and the submitted job."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hpcrun.job.plan.job_plan import Plan
from hpcrun.job.plan.plan_notes import threads_of
from hpcrun.job.plan.role_ranks import Role
from hpcrun.job.plan.sweep import Sweep
from hpcrun.job.request.notify_options import IDLE
from hpcrun.job.request.parameters import parse_indices
from hpcrun.job.resources.container import Container
from hpcrun.job.resources.cpus_memory_time import Requeue
from hpcrun.job.resources.shape import option_words
from hpcrun.job.text.quoting import bash_line
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

_LABEL_LEAST = len("submitted")
"""The lines of the submitted job follow the plan in the same columns."""


def plan_lines(plan: Plan, more: Sequence[tuple[str, str]] = ()) -> list[str]:
    """Return the plan as text, with ``more`` rows on its relations to other runs."""
    if plan.scheduler == "local":
        no_limit = "no limit"
    else:
        no_limit = "the partition's default"
    if plan.snapshot and plan.snapshot.folder != ".":
        below = f", starting in {plan.snapshot.folder}"
    else:
        below = ""
    if plan.cancel_idle_s:
        idle = f"ends if all of its GPUs are idle for {time_text(plan.cancel_idle_s)}"
    else:
        idle = ""
    variables = (
        f"{name}={'***' if value is None else shlex.quote(value)}"
        for name, value in (*plan.env, *plan.added)
    )
    rows = [
        (plan.name, _shape(plan)),
        ("sweep", sweep_text(plan.sweep, plan.scheduler) if plan.sweep else ""),
        ("command", "" if plan.preflight == "only" or plan.roles else command_line(plan)),
        *((role.name, _role(role)) for role in plan.roles),
        *more,
        ("CPUs", _cpus(plan)),
        ("memory", memory_text(plan.memory_mb) if plan.scheduler == "slurm" else ""),
        ("time", time_text(plan.walltime_s) if plan.walltime_s else no_limit),
        ("where", _where(plan)),
        ("python", f"{plan.python.executable} ({plan.python.kind})"),
        ("container", _container(plan.container) if plan.container else ""),
        ("code", f"a snapshot of the current code{below}" if plan.snapshot else ""),
        ("stage", _stage(plan) if plan.stage else ""),
        ("stop", _stop(plan.requeue) if plan.requeue else ""),
        ("idle", idle),
        ("srun", " ".join(option_words(plan.srun))),
        ("torchrun", " ".join(option_words(plan.torchrun))),
        ("preflight", "before the ranks start (at most 30 s)" if plan.preflight == "first" else ""),
        ("modules", " ".join(plan.modules)),
        ("set-up", count(len(plan.setup), "command") if plan.setup else ""),
        ("env", " ".join(variables)),
        ("messages", _messages(plan)),
        *(("note", note) for note in plan.notes),
    ]
    rows = [(label, text) for label, text in rows if text]
    width = max(_LABEL_LEAST, *(len(label) for label, _ in rows))
    return [one_line(f"{label:<{width}}  {text}") for label, text in rows]


def again_text(lineage: Lineage, folder: Path | str) -> str:
    """Return the repeated run, the run with the checkpoints, and the folder of the start."""
    if lineage.checkpoints:
        checkpoints = f"checkpoints of {lineage.checkpoints.name}"
    else:
        checkpoints = "new checkpoints"
    return f"of {lineage.resubmitted_from}, {checkpoints}, in {folder}"


def command_line(plan: Plan) -> str:
    """Return the command of every rank in shell syntax; for a sweep, that of the first element."""
    words = plan.command
    if plan.sweep:
        words += plan.sweep.arguments[plan.sweep.chosen[0]]
    return bash_line(words)


def _role(role: Role) -> str:
    """Return the size of a role, its command, and when it starts and is ready."""
    if role.gpus:
        size = count(role.gpus[1], "GPU")
    else:
        size = count(role.nodes, "node")
    if role.launcher == "torchrun":
        ranks = f", {count(role.ranks, 'rank')} by torchrun"
    else:
        ranks = ""
    waits = f", after {' and '.join(role.after)}" if role.after else ""
    ready = f", ready by {role.ready}" if role.ready else ""
    return f"{size}{ranks}{waits}{ready}: {bash_line(role.command)}"


def _shape(plan: Plan) -> str:
    shape = plan.shape
    if shape.gpus_per_node and (plan.scheduler == "slurm" or plan.local_gpus):
        gpus = count(shape.gpus_per_node, f"{shape.gpu_type} GPU" if shape.gpu_type else "GPU")
    else:
        gpus = "no GPU"
    nodes = count(shape.nodes, "node") + (
        " (all this machine)" if plan.scheduler == "local" and shape.nodes > 1 else ""
    )
    if plan.roles:
        return (
            f"{nodes} × {gpus}, {count(shape.world_size, 'rank')} in "
            f"{count(len(plan.roles), 'role')}"
        )
    if shape.launcher == "command":
        return f"{nodes} × {gpus}, the command once per node"
    if shape.launcher == "ray":
        return f"{nodes} × {gpus}, the program on the head node of a Ray cluster"
    return f"{nodes} × {gpus}, {count(shape.world_size, 'rank')} by {shape.launcher}"


def _cpus(plan: Plan) -> str:
    if plan.batch:
        return "as the script requests"
    if plan.cpus_per_node is None:
        return "the site's default, divided among the ranks of a node (OMP_NUM_THREADS)"
    threads = threads_of(plan)
    return f"{plan.cpus_per_node} per node" + (f", OMP_NUM_THREADS={threads}" if threads else "")


def _messages(plan: Plan) -> str:
    if not plan.notify:
        return ""
    # without a limit on idle GPUs, nobody watches them
    events = [event for event in plan.notify.events if event != IDLE or plan.cancel_idle_s]
    return f"to {', '.join(plan.notify.to)}: {', '.join(events) or 'none without --cancel-idle'}"


def _stage(plan: Plan) -> str:
    sizes = ("" if size is None else f" ({bytes_text(size)})" for _, _, size in plan.stage)
    paths = (
        f"{shlex.quote(path)} as $HPCRUN_STAGE/{shlex.quote(name)}" for name, path, _ in plan.stage
    )
    return f"copied to each node: {', '.join(map(str.__add__, paths, sizes))}"


def _container(container: Container) -> str:
    if container.mounts:
        mounts = f", with {' '.join(container.mounts)}"
    else:
        mounts = ""
    gpus = ", with GPUs" if container.gpus else ""
    return f"{container.image} by {container.runtime}{gpus}{mounts}"


def _stop(requeue: Requeue) -> str:
    if requeue.times:
        times = f", requeued up to {count(requeue.times, 'time')}"
    else:
        times = ""
    if requeue.expedite:
        expedited = ", expedited after a node failure"
    else:
        expedited = ""
    if requeue.restarts:
        if requeue.spares:
            spares = f" with {count(requeue.spares, 'spare node')}"
        else:
            spares = ""
        times += (
            f", restarted in the same allocation up to {count(requeue.restarts, 'time')}{spares}"
        )
    if requeue.on_failure:
        failures = ", also after a failure of the program"
    else:
        failures = ""
    return f"SIGUSR1 {requeue.warn_s} s before the time limit{times}{failures}{expedited}"


def sweep_text(sweep: Sweep, scheduler: str) -> str:
    """Return the number of elements of a sweep, and its parameters.

    The text also says how many elements may run at once.
    """
    values: dict[str, dict[str, None]] = {}
    for index in sweep.chosen:
        for name, value in sweep.elements[index]:
            values.setdefault(name, {})[value] = None
    names = ", ".join(f"{name} {count(len(choices), 'value')}" for name, choices in values.items())
    if sweep.max_parallel:
        at_once = f", at most {sweep.max_parallel} at once"
    else:
        at_once = ""
    if sweep.pack and scheduler == "slurm":
        tasks = f", {count(sweep.tasks, 'task')} of {sweep.pack}"
    else:
        tasks = ""
    return f"{count(len(sweep.chosen), 'element')} ({names}){tasks}{at_once}"


def _where(plan: Plan) -> str:
    if plan.scheduler == "local":
        return f"this machine, as a background job (profile {plan.profile})"
    names = ("partition", "account", "qos", "constraint", "reservation", "nodelist", "exclude")
    parts = [f"{name} {value}" for name in names if (value := plan.directive(name))]
    return f"{', '.join(parts) or 'the default partition'} (profile {plan.profile})"


def submitted_lines(result: SubmitResult) -> list[str]:
    """Return the submitted job and the commands that show it."""
    run = result.run
    sweep = run.plan.get("sweep")
    element = f"/{parse_indices(sweep['indices'])[0]}" if sweep else ""
    compare = f" | hpcrun sweep {run.job_id}" if sweep else ""
    remarks = [one_line(f"           {line}") for line in result.remarks.splitlines()]
    return [
        f"submitted  job {run.job_id}, run {run.run_id}",
        *remarks,
        *([one_line(f"code       {code_text(run.code)}")] if run.code else []),
        one_line(f"folder     {result.folder}"),
        f"look       hpcrun status {run.job_id}{compare} | hpcrun logs -f {run.job_id}{element} | "
        f"hpcrun cancel {run.job_id}",
    ]


def link_line(result: SubmitResult) -> list[str]:
    """Return one line for a submitted link, and the remarks on it."""
    run = result.run
    place = run.chain or {}
    remarks = [one_line(f"           {line}") for line in result.remarks.splitlines()]
    return [
        f"submitted  {place.get('link')}/{place.get('links')}: job {run.job_id}, run {run.run_id}",
        *remarks,
    ]


def look_line(done: Sequence[SubmitResult]) -> list[str]:
    """Return the commands that show a chain, and the place of its checkpoints."""
    ids = " ".join(str(item.run.job_id) for item in done)
    return [
        one_line(f"folder     {done[0].folder}, and its checkpoints"),
        f"look       hpcrun status {ids} | hpcrun cancel {ids}",
    ]


def chain_json(done: Sequence[SubmitResult]) -> dict[str, Any]:
    """Return a submitted chain as a JSON document."""
    links = [
        {**fields_of(item.run, "run_id job_id name after"), **fields_of(item, "folder remarks")}
        for item in done
    ]
    return {"kind": "chain", "links": links}


def prepared_json(prepared: Prepared) -> dict[str, Any]:
    """Return a prepared submission as a JSON document."""
    return {"kind": "plan", "plan": _plan_json(prepared.plan), "script": prepared.script}


def submitted_json(result: SubmitResult) -> dict[str, Any]:
    """Return a submission as a JSON document."""
    return {
        "kind": "submitted",
        **fields_of(result.run, "run_id job_id scheduler cluster"),
        **fields_of(result, "folder remarks"),
        "plan": _plan_json(result.prepared.plan),
    }


def submissions_json(done: Sequence[SubmitResult]) -> dict[str, Any]:
    """Return the arrays of a sweep, or the only job, as a JSON document."""
    return joined_json([submitted_json(item) for item in done])


def joined_json(documents: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the documents of a submission as one document.

    The result is the only document, or the first with all under ``parts``.
    """
    if len(documents) == 1:
        return documents[0]
    return {**documents[0], "parts": documents}


def _plan_json(plan: Plan) -> dict[str, Any]:
    return {
        **asdict(plan),
        "command_line": "" if plan.preflight == "only" else command_line(plan),
        "world_size": plan.shape.world_size,
        "cpus_per_rank": plan.cpus_per_rank,
    }
