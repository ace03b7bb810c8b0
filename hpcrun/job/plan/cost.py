"""The GPU-hours that a job can use at most, as Slurm reads its script.

The script, and not the plan, is counted: a template may have directives of its own. Pure.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from hpcrun.job.batch.sbatch_input import directives_in, gpus_in
from hpcrun.job.plan.job_plan import Plan
from hpcrun.job.request.node_choice import read_nodes
from hpcrun.job.request.parameters import parse_array
from hpcrun.job.text.spelling import spell
from hpcrun.job.text.units import count, format_span, parse_slurm_time

_COMPONENTS = ("hetjob", "packjob")
_PER_TASK = ("tres-per-task", "gpus-per-socket", "tres-per-socket", "tres-per-node", "tres-per-job")
"""Directives by which Slurm may give GPUs in numbers that hpcrun does not count."""
_PER_NODE = ("gres", "gpus-per-node")
_OF_GPUS = re.compile("gpu|shard|mps|mig", re.IGNORECASE)
"""What names a resource of GPUs, also in a form that hpcrun does not count."""
_WITHOUT_OTHER_USERS = ("user", "mcs")
"""The values of ``--exclusive`` with which a job has no more of a node than it requests."""
_VISIBLE = "CUDA_VISIBLE_DEVICES"
_WITH_SUFFIX = re.compile(r"(^|[:=])\d+[A-Za-z]\w*$")
"""A number of Slurm such as ``4K``, which is 4096."""


class UnknownCostError(ValueError):
    """The reason why a number is not known."""


@dataclass(frozen=True, slots=True)
class Cost:
    """What a job can use at most.

    Attributes:
        gpus: the GPUs of one task of the array, with spare nodes; None if the number is not known.
        time_s: the time limit of one attempt in seconds; None if it is not known.
        tasks: how many such jobs there are: the tasks of an array, or one.
        noun: the word for one of them.
        requeues: how often each may be requeued; None if that is not known.
        links: the links of a chain, or one.
        unknown: why one of the numbers above is not known; empty if all are.
        nodes: the most nodes of one task of the array; None if their number is not known.
        partitions: the partitions that the job names; empty if Slurm decides.
    """

    gpus: int | None
    time_s: int | None
    tasks: int = 1
    noun: str = "element"
    requeues: int | None = 0
    links: int = 1
    unknown: str = ""
    nodes: int | None = 1
    partitions: tuple[str, ...] = ()

    @property
    def gpu_hours(self) -> float | None:
        """GPU-hours if no task is requeued; None if they are not known."""
        if self.gpus == 0:
            return 0.0
        if self.gpus is None or self.time_s is None:
            return None
        return self.gpus * self.time_s / 3600 * self.tasks * self.links

    @property
    def gpu_hours_with_requeues(self) -> float | None:
        """GPU-hours if each task is requeued as often as it may be; None if not known."""
        if self.gpus == 0:
            return 0.0
        if self.gpu_hours is None or self.requeues is None:
            return None
        return self.gpu_hours * (1 + self.requeues)


GpusOfNode = Callable[[str | None], int | None]
"""Returns the GPUs of a whole node of a partition, None for the default one.

The result is None if they are not known.
"""


def cost_of(plan: Plan, script: str, *, gpus_of_node: GpusOfNode, elements: int = 1) -> Cost:
    """Return what a job can use at most.

    Args:
        plan: the plan of the job.
        script: the script that is submitted.
        gpus_of_node: for a job that takes whole nodes.
        elements: the elements of an array on this machine that is not a sweep.
    """
    requeues: int | None = plan.requeue.times if plan.requeue else 0
    if plan.scheduler == "local":
        tasks = len(plan.sweep.chosen) if plan.sweep else max(1, elements)
        return _local_cost(plan, tasks, requeues)
    directives = directives_in(script)
    noun = "task" if plan.sweep and plan.sweep.pack else "element"
    gpus = None
    time_s = None
    tasks = 1
    unknown = ""
    try:
        _check_script(script, directives)
        tasks = _tasks(directives.get("array"))
        gpus = _gpus(directives, gpus_of_node)
        time_s = _time_s(directives.get("time"))
    except UnknownCostError as error:
        unknown = str(error)
    if not requeues and "requeue" in directives:
        requeues = None
        limits = spell("requeue", "N")
        unknown = unknown or f"Slurm may requeue it any number of times; {limits} limits that"
    if gpus == 0:
        unknown = ""
    try:
        nodes = _nodes(directives)
    except UnknownCostError:
        nodes = None
    named = directives.get("partition") or ""
    partitions = tuple(name for name in named.split(",") if name)
    return Cost(
        gpus, time_s, tasks, noun, requeues, unknown=unknown, nodes=nodes, partitions=partitions
    )


def _local_cost(plan: Plan, tasks: int, requeues: int | None) -> Cost:
    """Return the cost of a job on this machine, which may have no time limit."""
    gpus: int | None = plan.shape.gpus if plan.local_gpus else 0
    unknown = ""
    visible = dict(plan.env).get(_VISIBLE, "")
    if plan.batch:
        gpus = None
        unknown = "the script decides which GPUs of this machine it uses"
    elif visible is None:
        gpus = None
        unknown = f"the value of {_VISIBLE} is a secret"
    elif visible not in ("", "-1"):
        gpus = max(plan.shape.gpus, len(visible.split(",")))
    if gpus and not plan.walltime_s:
        unknown = "no time limit"
    return Cost(gpus, plan.walltime_s or None, tasks, "element", requeues, unknown=unknown)


def _check_script(script: str, directives: Mapping[str, str | None]) -> None:
    """Check that the directives say all that Slurm gives the job.

    Raises:
        UnknownCostError: they do not.
    """
    if any(name in directives for name in _COMPONENTS):
        raise UnknownCostError("a heterogeneous job")
    if re.search(r"^#PBS", script, re.MULTILINE):
        raise UnknownCostError("sbatch reads the #PBS lines, too")


def _tasks(array: str | None) -> int:
    """Return the number of tasks of an array; one without an array.

    Raises:
        UnknownCostError: the text cannot be read.
    """
    if not array:
        return 1
    try:
        return len(parse_array(array)[0])
    except ValueError as error:
        raise UnknownCostError(f"--array: {error}") from None


def _time_s(text: str | None) -> int:
    """Return a time limit in seconds.

    Raises:
        UnknownCostError: there is no limit, or the partition decides it.
    """
    if text is None:
        raise UnknownCostError("no time limit is set; the partition decides")
    try:
        return parse_slurm_time(text)
    except ValueError:
        raise UnknownCostError(f"the time limit {text} is none that hpcrun knows") from None


def _gpus(directives: Mapping[str, str | None], gpus_of_node: GpusOfNode) -> int:
    """Return the most GPUs that one task of the array can have.

    Raises:
        UnknownCostError: the directives do not say the number.
    """
    _check_counted(directives)
    per_node = max(_requested(name, directives.get(name)) for name in _PER_NODE)
    most = _requested("gpus", directives.get("gpus"))
    per_task = _requested("gpus-per-task", directives.get("gpus-per-task"))
    has_gpus = bool(per_node or most or per_task)
    if "ntasks-per-gpu" in directives and not has_gpus:
        raise UnknownCostError("Slurm decides the number of GPUs: --ntasks-per-gpu alone")
    if "exclusive" in directives and directives["exclusive"] not in _WITHOUT_OTHER_USERS:
        whole = gpus_of_node(directives.get("partition"))
        # a job that requests no GPUs may get any node of its partition
        if whole is None or (whole and not has_gpus):
            raise UnknownCostError("--exclusive takes whole nodes, whose GPUs are not known")
        per_node = max(per_node, whole)
    if per_node:
        most = max(most, per_node * _nodes(directives))
    if per_task:
        most = max(most, per_task * _ranks(directives))
    return most


def _check_counted(directives: Mapping[str, str | None]) -> None:
    """Check that no directive gives GPUs in a number that hpcrun does not count.

    Raises:
        UnknownCostError: one does.
    """
    for name in _PER_TASK:
        if name in directives and _OF_GPUS.search(f"{name}={directives[name]}"):
            raise UnknownCostError(f"the number of GPUs by --{name} is not known")


def _requested(name: str, value: str | None) -> int:
    """Return the GPUs of a directive, all types together.

    Raises:
        UnknownCostError: the text cannot be read.
    """
    total = 0
    for item in (value or "").split(","):
        resource = None
        if item and not _WITH_SUFFIX.search(item):
            resource = gpus_in(name, item)
        if resource is not None:
            total += resource[0]
        elif item and (name != "gres" or _OF_GPUS.search(item)):
            raise UnknownCostError(f"the number of GPUs in --{name}={value} is not known")
    return total


def _nodes(directives: Mapping[str, str | None]) -> int:
    """Return the most nodes of the job.

    Raises:
        UnknownCostError: Slurm decides their number.
    """
    text = directives.get("nodes")
    if text is not None:
        try:
            return int(read_nodes(text))
        except ValueError:
            raise UnknownCostError(f"the number of nodes in --nodes={text} is not known") from None
    names = ("nodelist", "nodefile", "ntasks", "gpus")
    open_by = next((name for name in names if name in directives), None)
    if open_by and directives[open_by] != "1":
        raise UnknownCostError(f"Slurm decides the number of nodes: --{open_by} without --nodes")
    return 1


def _ranks(directives: Mapping[str, str | None]) -> int:
    """Return the number of Slurm's tasks in the job.

    Raises:
        UnknownCostError: the directives do not say the number.
    """
    for name, times in (("ntasks", 1), ("ntasks-per-node", None)):
        text = directives.get(name)
        if text is None:
            continue
        if not re.fullmatch(r"\d{1,6}", text, re.ASCII):
            raise UnknownCostError(f"the number of tasks in --{name}={text} is not known")
        return int(text) * (times or _nodes(directives))
    return _nodes(directives)


def total_hours(hours: Iterable[float | None]) -> float | None:
    """Return the sum; None if a part is not known."""
    total = 0.0
    for part in hours:
        if part is None:
            return None
        total += part
    return total


def hours_at_most(hours: float) -> str:
    """Return GPU-hours as ``1,920``, rounded up to a tenth."""
    tenths = math.ceil(round(hours * 10, 6))
    return f"{tenths / 10:,.1f}".removesuffix(".0")


def gpu_hours_text(hours: float) -> str:
    """Return ``1 GPU-hour``, ``1,920 GPU-hours``."""
    text = hours_at_most(hours)
    return f"{text} GPU-hour" if text == "1" else f"{text} GPU-hours"


def cost_text(cost: Cost) -> str:
    """Return the row of a plan: the GPU-hours at most, and what they are made of."""
    if cost.gpus == 0:
        return "no GPU-hours"
    hours = cost.gpu_hours
    total = cost.gpu_hours_with_requeues
    if hours is None:
        return f"GPU-hours unknown: {cost.unknown}"
    factors = [count(cost.gpus or 0, "GPU"), _time_text(cost.time_s or 0)]
    if cost.tasks > 1:
        factors.append(count(cost.tasks, cost.noun))
    if cost.links > 1:
        factors.append(count(cost.links, "link"))
    text = f"at most {gpu_hours_text(hours)} ({' × '.join(factors)})"
    if total is None:
        text += f"; unknown with requeues: {cost.unknown}"
    elif cost.requeues:
        text += f"; {hours_at_most(total)} with {count(cost.requeues, 'requeue')}"
    return text


def _time_text(time_s: int) -> str:
    """Return whole hours as hours: ``1 h``, ``90 min``, ``36 h``."""
    hours, rest = divmod(time_s, 3600)
    return format_span(time_s) if rest else f"{hours} h"
