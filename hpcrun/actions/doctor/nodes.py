"""doctor: what a profile says of nodes, beside the nodes that Slurm has. Pure judgement."""

from __future__ import annotations

from collections.abc import Sequence

from hpcrun.actions.doctor.check import PROFILE, Check, not_checked
from hpcrun.actions.doctor.target import Target
from hpcrun.errors import nearest
from hpcrun.job.units import format_memory, format_time
from hpcrun.schedulers.detect import ClusterFacts
from hpcrun.schedulers.detect_text import NodeKind, Partition


def judge_nodes(target: Target, partitions: Sequence[Partition], facts: ClusterFacts) -> list[Check]:
    """Judge whether the nodes have what the profile says, and what its largest job on one node asks for."""
    if not facts.kinds:
        return [not_checked(PROFILE, f"{target.label}nodes", "Slurm does not list the resources of its nodes")]
    names = [partition.name for partition in partitions]
    inside = [kind for kind in facts.kinds if kind.partition in names]
    holding = [kind for kind in inside if target.has(kind)]
    if not holding:
        return [_no_such_gpus(target, names, inside, facts)]
    shape = target.plan.shape
    most = max(target.count(kind) for kind in holding)
    checks = []
    if shape.gpus_per_node > most:
        seen = f"{shape.gpus_per_node} on a node, but nodes of partition {', '.join(names)} have {most}"
        checks.append(Check(PROFILE, f"{target.label}GPUs", "red", seen, target.set_("gpu.per_node", most)))
    fitting = [kind for kind in holding if target.count(kind) >= shape.gpus_per_node] or holding
    checks += [*_judge_cpus(target, fitting), *_judge_memory(target, fitting), *judge_time(target, partitions)]
    if checks:
        return checks
    nodes = sum(kind.nodes for kind in holding)
    return [Check(PROFILE, f"{target.label}nodes", "green", _fits(target, fitting, nodes))]


def _fits(target: Target, kinds: Sequence[NodeKind], nodes: int) -> str:
    plan = target.plan
    parts = [f"{plan.cpus_per_node or 'default'} CPUs"]
    if plan.shape.gpus_per_node:
        parts.insert(0, f"{plan.shape.gpus_per_node} {plan.shape.gpu_type or 'GPUs'}")
    if plan.memory_mb:
        parts.append(format_memory(plan.memory_mb))
    if plan.walltime_s:
        parts.append(format_time(plan.walltime_s))
    unknown = [word for word, known in (("CPUs", kinds[0].cpus), ("memory", kinds[0].memory_mb)) if known is None]
    unsaid = f"; Slurm does not say their {' and '.join(unknown)}" if unknown else ""
    return f"{', '.join(parts)}: fits {'its 1 node' if nodes == 1 else f'its {nodes} nodes'}{unsaid}"


def _no_such_gpus(target: Target, names: Sequence[str], inside: Sequence[NodeKind], facts: ClusterFacts) -> Check:
    """Say that no node of the partitions has GPUs of the type, or that there is none, and where to find some."""
    type_ = target.plan.shape.gpu_type
    if not inside:
        fix = target.set_partition(facts) or "`sinfo -s` shows the nodes of each"
        return Check(PROFILE, f"{target.label}nodes", "red", f"there are none in partition {', '.join(names)}", fix)
    there = sorted({name or "untyped" for kind in inside for name, _ in kind.gpus})
    seen = f"no {type_ or 'GPU'} in partition {', '.join(names)}; it has {', '.join(there) or 'no GPUs'}"
    fix = target.set_partition(facts) or _other_gpus(target, there, facts)
    return Check(PROFILE, f"{target.label}GPUs", "red", seen, fix)


def _other_gpus(target: Target, there: Sequence[str], facts: ClusterFacts) -> str:
    """Return how to ask for GPUs that there are, given the types of the partition."""
    named = [type_ for type_ in there if type_ != "untyped"]
    if there and not target.type:
        close = nearest(target.plan.shape.gpu_type or "", named) or (named[0] if named else None)
        return target.set_("gpu.type", close or "null")  # for those without a name none must be asked for
    elsewhere = sorted({name for kind in facts.kinds for name, _ in kind.gpus if name})
    has = f"the cluster has {', '.join(elsewhere)}; " if elsewhere else ""
    return f"{has}write a profile for them: hpcrun profile detect"


def _judge_cpus(target: Target, kinds: Sequence[NodeKind]) -> list[Check]:
    most = max((kind.cpus or 0 for kind in kinds), default=0)
    asked, said, gpus = target.plan.cpus_per_node, target.profile.cpu.per_node, target.plan.shape.gpus_per_node
    name = f"{target.label}CPUs"
    if most and asked and asked > most:
        seen = f"{asked} for {gpus} GPUs, but such nodes have {most}"
        return [Check(PROFILE, name, "red", seen, target.set_("cpu.per_gpu", max(1, most // max(1, gpus))))]
    if most and said and said > most:
        seen = f"cpu.per_node is {said}, but such nodes have {most}"
        return [Check(PROFILE, name, "yellow", seen, target.set_("cpu.per_node", most))]
    return []


def _judge_memory(target: Target, kinds: Sequence[NodeKind]) -> list[Check]:
    most = max((kind.memory_mb or 0 for kind in kinds), default=0)
    asked, said, gpus = target.plan.memory_mb or 0, target.profile.memory.per_node, target.plan.shape.gpus_per_node
    name = f"{target.label}memory"
    if most and asked > most:
        seen = f"{format_memory(asked)} for {gpus} GPUs, but such nodes have {format_memory(most)}"
        fix = target.set_("memory.per_gpu", format_memory(most // max(1, gpus)))
        return [Check(PROFILE, name, "red", seen, fix)]
    if most and said and said > most:
        seen = f"memory.per_node is {format_memory(said)}, but such nodes have {format_memory(most)}"
        return [Check(PROFILE, name, "yellow", seen, target.set_("memory.per_node", format_memory(most)))]
    return []


def judge_time(target: Target, partitions: Sequence[Partition]) -> list[Check]:
    """Judge the profile's times against the longest limit of its partitions."""
    limits = [partition.max_s for partition in partitions]
    if None in limits or not limits:
        return []
    longest = max(limit for limit in limits if limit is not None)
    asked, most = target.plan.walltime_s, target.profile.time.max
    there, name = f"but the partition allows {format_time(longest)}", f"{target.label}time"
    if asked and asked > longest:
        seen = f"a job gets {format_time(asked)} without --time, {there}: the job would never start"
        return [Check(PROFILE, name, "red", seen, target.set_("time.default", format_time(longest)))]
    if most and most > longest:
        seen = f"time.max is {format_time(most)}, {there}"
        return [Check(PROFILE, name, "yellow", seen, target.set_("time.max", format_time(longest)))]
    return []
