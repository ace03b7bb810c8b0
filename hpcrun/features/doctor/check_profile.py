"""doctor: judge a profile.

doctor compares the profile's largest jobs with what Slurm says, and judges the profile's variables,
modules and container.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from shutil import which

from hpcrun.actions.profiles.detect_types import why_closed
from hpcrun.actions.profiles.variables import check_profile_env
from hpcrun.errors import nearest
from hpcrun.features.doctor.check import PROFILE, Check, Level, Target, not_checked
from hpcrun.job.profile_model import Profile
from hpcrun.job.request.notify_options import variables_in
from hpcrun.job.resources.container import is_image_file
from hpcrun.job.text.units import count, format_memory, format_time
from hpcrun.machine.host import ModuleFacts
from hpcrun.profiles.load import LoadedProfile
from hpcrun.schedulers.away_nodes import ListedNode, nodes_words
from hpcrun.schedulers.cluster_facts import Association, ClusterFacts, NodeKind, Partition
from hpcrun.schedulers.job_start import Trial
from hpcrun.schedulers.slurm_text import refusal_hint


def judge_profile(
    targets: Sequence[Target],
    facts: ClusterFacts,
    trials: Sequence[Trial],
    awaited: Sequence[ListedNode] = (),
) -> list[Check]:
    """Return how a profile fits the cluster.

    What depends on a thing that is wrong is not judged.

    Args:
        targets: the profile's largest jobs.
        facts: the answers of Slurm about the cluster.
        trials: sbatch's judgement of the first of these jobs and, if refused, of a smaller one.
        awaited: the nodes that keep this job from starting now.
    """
    checks: list[Check] = []
    for target in targets:
        here, of_partition = judge_partition(target, facts)
        checks += of_partition
        if here:
            checks += judge_nodes(target, here, facts)
    if awaited:
        fix = "no action needed: jobs wait until the nodes are back; `sinfo -R` lists such nodes"
        checks.append(Check(PROFILE, "sbatch", "yellow", nodes_words(awaited), fix))
    elif trials and targets:
        checks = _with_trials(checks, trials)
        others = [check for check in checks if check.level == "red"]
        checks.append(judge_trials(trials, targets[0], facts.associations or (), others=others))
    return list(dict.fromkeys(checks))  # several types share a partition


def judge_partition(target: Target, facts: ClusterFacts) -> tuple[list[Partition], list[Check]]:
    """Return the partitions of a job that exist and are open, and the checks of its partitions.

    The checks say something of each partition that the job names.
    """
    known = {partition.name: partition for partition in facts.partitions}
    defaults = [partition.name for partition in facts.partitions if partition.default]
    names = target.partitions or tuple(defaults)
    if not names:
        seen = "the profile names no partition, and the cluster has no default"
        fix = target.set_partition(facts) or f"`sinfo -s` lists them: {', '.join(known)}"
        return [], [Check(PROFILE, "partition", "red", seen, fix)]
    here = []
    checks = []
    for name in names:
        label = f"partition {name}"
        partition = known.get(name)
        if partition is None:
            close = nearest(name, list(known))
            fix = target.set_partition(facts, close) or f"there are: {', '.join(known)}"
            checks.append(Check(PROFILE, label, "red", "there is no such partition", fix))
            continue
        why = None
        if facts.user != "root":
            why = why_closed(partition, facts, target.plan.directive("account"))
        if why:
            fix = target.set_partition(facts) or "ask the site for access"
            checks.append(Check(PROFILE, label, "red", f"you may not use it: {why}", fix))
            continue
        here.append(partition)
        limit = format_time(partition.max_s) if partition.max_s else "no time limit"
        seen = f"up, open to you, {limit}"
        if partition.preempted:
            seen += f"; jobs in it can be preempted ({partition.preempted})"
        checks.append(Check(PROFILE, label, "green", seen))
    return here, checks


def judge_trials(
    trials: Sequence[Trial], target: Target, mine: Sequence[Association], *, others: Sequence[Check]
) -> Check:
    """Judge what sbatch says of the profile's largest job on one node.

    Only sbatch knows who may use which account.

    Args:
        trials: the answers of sbatch, the one for the largest job first.
        target: the largest job, with its profile.
        mine: the person's accounts and qualities of service.
        others: what is red already, and may be why sbatch refuses the job.
    """
    first = trials[0]
    last = trials[-1]
    name = "sbatch"
    if first.accepted:
        return Check(PROFILE, name, "green", f"--test-only accepts {first.form}")
    if first.silent:
        return not_checked(PROFILE, name, f"--test-only: {first.message}")
    seen = f"--test-only refuses {first.form}: {first.message}"
    if others:
        return Check(PROFILE, name, "red", seen, "correct the errors above")
    if last.accepted:
        seen += f"; it accepts {last.form}"
    hint = refusal_hint(first.message)
    if hint:
        fix = hint
    elif target.plan.shape.gpus_per_node:
        fix = "hpcrun profile detect tries the three forms of asking for GPUs"
    else:
        fix = "`sbatch --test-only` says more"
    invalid = re.search("Invalid (account|qos)", first.message)
    if invalid:
        key = invalid[1]
        names = _other_names(key, target, mine)
        if names:
            seen += f"; available to you: {', '.join(names)}"
            # else the environment sets it
            if target.plan.directive(key) == getattr(target.profile, key):
                fix = target.set_(key, names[0])
    return Check(PROFILE, name, "red", seen, fix)


def _other_names(key: str, target: Target, mine: Sequence[Association]) -> list[str]:
    """Return the other accounts of a person, or the other qualities of service.

    The qualities of service are those of the job's account.
    """
    account = target.plan.directive("account")
    value = target.plan.directive(key)
    names: list[str] = []
    for association in mine:
        if key == "account":
            names.append(association.account)
        elif account in (None, association.account):
            names += association.qos
    return [name for name in dict.fromkeys(names) if name != value]


def _with_trials(checks: list[Check], trials: Sequence[Trial]) -> list[Check]:
    """Return the checks, changed where sbatch has accepted the job.

    A partition that seems closed is then no longer red.
    """
    if not any(trial.accepted for trial in trials):
        return checks
    changed = []
    for check in checks:
        if check.level == "red" and check.name.startswith("partition "):
            seen = f"{check.seen}; sbatch still accepts it"
            changed.append(replace(check, level="yellow", seen=seen))
        else:
            changed.append(check)
    return changed


def judge_container(profile: Profile, env: Mapping[str, str]) -> list[Check]:
    """Judge whether the runtime and the image of a profile's container are on this machine.

    Return nothing where the profile has no container.

    Compute nodes may have what this machine lacks, and modules may bring it: the judgement is sure
    only for this machine's own jobs.
    """
    image = profile.container.image
    runtime = profile.container.runtime
    if image is None:
        return []
    is_certain = profile.scheduler == "local" and not (profile.modules or profile.setup)
    checks = [_judge_runtime(runtime, env.get("PATH"), is_certain=is_certain)]
    if not is_image_file(runtime, image):
        seen = f"{image}, which {runtime} pulls; not checked"
        return [*checks, Check(PROFILE, "image", "green", seen)]
    path = Path(os.path.expanduser(image))
    if os.path.exists(path):
        return [*checks, Check(PROFILE, "image", "green", f"{path}")]
    seen = f"{path} does not exist: submit refuses such jobs"
    fix = "hpcrun profile set NAME container.image=/path/of/the.sif"
    return [*checks, Check(PROFILE, "image", "red", seen, fix)]


def _judge_runtime(runtime: str, search_path: str | None, *, is_certain: bool) -> Check:
    """Judge whether the program of a container runtime is here."""
    program = "enroot" if runtime == "pyxis" else runtime
    path = which(program, path=search_path)
    if path:
        return Check(PROFILE, "container", "green", f"{runtime}: {path}")
    level: Level = "red"
    seen = f"{program} is not on this machine's PATH"
    if not is_certain:
        level = "yellow"
        seen += "; it may be on the compute nodes or in a module"
    fix = "check it with a short job: hpcrun submit --wait --time 1m /bin/true"
    return Check(PROFILE, "container", level, seen, fix)


def judge_variables(loaded: LoadedProfile) -> list[Check]:
    """Judge a profile's variables by the catalogue.

    A variable that submit refuses is red, and a variable that submit remarks on is yellow.
    """
    checks = []
    for finding, key in check_profile_env(loaded):
        level: Level = "red" if finding.impossible else "yellow"
        seen = f"{finding.name}={finding.value}: {finding.problem}"
        where = loaded.origins.get(key)
        if where:
            seen += f" ({where})"
        fix = finding.instead or f"hpcrun profile env {finding.name} explains it"
        checks.append(Check(PROFILE, "variable", level, seen, fix))
    if checks:
        return checks
    profile = loaded.profile
    names = {**profile.fabric.env(), **profile.env}
    if names:
        return [Check(PROFILE, "variables", "green", " ".join(names))]
    return []


def judge_modules(names: Sequence[str], facts: ModuleFacts | None) -> Check:
    """Judge whether this machine can load a profile's modules.

    The modules are loaded one after the other, as in a job.
    """
    every = " ".join(names)
    if facts is None:
        return not_checked(PROFILE, "modules", "no response")
    if facts.problem:
        return not_checked(PROFILE, "modules", facts.problem)
    if not facts.command:
        seen = f"this machine has no module command, for {every}"
        fix = "source the site's module system in ~/.bashrc, or remove `modules` from the profile"
        return Check(PROFILE, "modules", "red", seen, fix)
    if facts.failed:
        problems = []
        for name, message in facts.failed.items():
            problem = f"{name} cannot be loaded"
            problems.append(f"{problem}: {message}" if message else problem)
        fix = f"`module avail {next(iter(facts.failed))}` lists what there is"
        return Check(PROFILE, "modules", "red", "; ".join(problems), fix)
    return Check(PROFILE, "modules", "green", f"{every}: loaded in this order")


def judge_messages(destinations: Sequence[str], env: Mapping[str, str]) -> list[Check]:
    """Judge whether each destination of messages has its variables; no message is sent."""
    if not destinations:
        return []
    names: set[str] = set()
    for destination in destinations:
        names.update(variables_in(destination))
    unset = sorted(name for name in names if not env.get(name))
    if unset:
        fix = f"read -rs {unset[0]} && export {unset[0]}; without it, no message is sent there"
        return [Check(PROFILE, "messages", "yellow", f"{', '.join(unset)} is not set", fix)]
    seen = f"to {', '.join(destinations)}; hpcrun notify --test sends one"
    return [Check(PROFILE, "messages", "green", seen)]


@dataclass(frozen=True, slots=True)
class _Amount:
    """How much of one thing there is on nodes, and how much a profile requests and allows."""

    name: str  # such as ``GPUs`` or ``memory``
    available: int | None  # in the unit of ``requested``; None if unknown, or without a limit
    where: str  # where there is so much, in words
    # the key that sets the amount; with a key ``per_gpu``, the amount is for all GPUs
    key: str
    requested: int | None  # by the largest job
    purpose: str  # for what the largest job requests it
    limit_key: str = ""
    limit: int | None = None  # the profile's own limit
    text: Callable[[int], str] = str  # writes an amount with its unit


def judge_nodes(
    target: Target, partitions: Sequence[Partition], facts: ClusterFacts
) -> list[Check]:
    """Judge whether the nodes have what a profile says.

    The nodes must also have what the profile's largest job on one node asks for.
    """
    if not facts.shown_kinds:
        why = "Slurm does not list the resources of its nodes"
        return [not_checked(PROFILE, f"{target.label}nodes", why)]
    names = [partition.name for partition in partitions]
    inside = [kind for kind in facts.shown_kinds if kind.partition in names]
    holding = [kind for kind in inside if target.has(kind)]
    if not inside and any(partition.nodes for partition in partitions):
        return [not_checked(PROFILE, f"{target.label}nodes", "Slurm hides the nodes from you")]
    if not holding:
        return [_no_such_gpus(target, names, inside, facts)]
    fitting = _fitting(target, holding)
    most_gpus = max(target.count(kind) for kind in holding)
    checks = []
    for amount in _amounts(target, partitions, most_gpus, fitting):
        check = _judge_amount(target, amount)
        if check:
            checks.append(check)
    if checks:
        return checks
    return [Check(PROFILE, f"{target.label}nodes", "green", _fits(target, fitting, holding))]


def _fitting(target: Target, holding: Sequence[NodeKind]) -> Sequence[NodeKind]:
    """Return the nodes with enough GPUs for the job; all of them if none has enough."""
    gpus = target.plan.shape.gpus_per_node
    return [kind for kind in holding if target.count(kind) >= gpus] or holding


def _amounts(
    target: Target, partitions: Sequence[Partition], most_gpus: int, nodes: Sequence[NodeKind]
) -> list[_Amount]:
    """Return the GPUs, CPUs, memory and time of nodes, and of a profile's largest job.

    Args:
        target: the largest job, with its profile.
        partitions: the partitions of the job.
        most_gpus: the most GPUs of the job's type on a node.
        nodes: the nodes with enough GPUs.
    """
    plan = target.plan
    profile = target.profile
    gpus = plan.shape.gpus_per_node
    names = [partition.name for partition in partitions]
    return [
        _Amount(
            "GPUs",
            most_gpus,
            f"nodes of partition {', '.join(names)} have",
            "gpu.per_node",
            gpus,
            "on a node",
        ),
        _Amount(
            "CPUs",
            _most(kind.cpus for kind in nodes),
            "such nodes have",
            "cpu.per_gpu",
            plan.cpus_per_node,
            f"for {gpus} GPUs",
            "cpu.per_node",
            profile.cpu.per_node,
        ),
        _Amount(
            "memory",
            _most(kind.memory_mb for kind in nodes),
            "such nodes have",
            "memory.per_gpu",
            plan.memory_mb,
            f"for {gpus} GPUs",
            "memory.per_node",
            profile.memory.per_node,
            format_memory,
        ),
        _Amount(
            "time",
            _most(partition.max_s for partition in partitions),
            "the partition allows",
            "time.default",
            plan.walltime_s,
            "without --time",
            "time.max",
            profile.time.max,
            format_time,
        ),
    ]


def _most(amounts: Iterable[int | None]) -> int | None:
    """Return the largest amount, None if one of the amounts is unknown or unlimited."""
    known = []
    for amount in amounts:
        if amount is None:
            return None
        known.append(amount)
    return max(known, default=None)


def _judge_amount(target: Target, amount: _Amount) -> Check | None:
    """Return a check where the amount in a profile is more than the cluster has, else None.

    The check is red where a job requests more than there is, and yellow where the profile allows
    more.
    """
    available = amount.available
    if available is None:
        return None
    name = f"{target.label}{amount.name}"
    has = f"{amount.where} {amount.text(available)}"
    if amount.requested and amount.requested > available:
        share = available
        if amount.key.endswith(".per_gpu"):
            share = max(1, available // max(1, target.plan.shape.gpus_per_node))
        seen = f"{amount.text(amount.requested)} {amount.purpose}, but {has}"
        return Check(PROFILE, name, "red", seen, target.set_(amount.key, amount.text(share)))
    if amount.limit and amount.limit > available:
        seen = f"{amount.limit_key} is {amount.text(amount.limit)}, but {has}"
        fix = target.set_(amount.limit_key, amount.text(available))
        return Check(PROFILE, name, "yellow", seen, fix)
    return None


def _fits(target: Target, kinds: Sequence[NodeKind], holding: Sequence[NodeKind]) -> str:
    """Return what the largest job requests, and how many nodes have it."""
    plan = target.plan
    parts = []
    if plan.shape.gpus_per_node:
        parts.append(f"{plan.shape.gpus_per_node} {plan.shape.gpu_type or 'GPUs'}")
    parts.append(f"{plan.cpus_per_node or 'default'} CPUs")
    if plan.memory_mb:
        parts.append(format_memory(plan.memory_mb))
    if plan.walltime_s:
        parts.append(format_time(plan.walltime_s))
    nodes = sum(kind.nodes for kind in holding)
    text = f"{', '.join(parts)}: fits its {count(nodes, 'node')}"
    unknown = []
    if any(kind.cpus is None for kind in kinds):
        unknown.append("CPUs")
    if any(kind.memory_mb is None for kind in kinds):
        unknown.append("memory")
    if unknown:
        text += f"; Slurm does not say their {' and '.join(unknown)}"
    return text


def _no_such_gpus(
    target: Target, names: Sequence[str], inside: Sequence[NodeKind], facts: ClusterFacts
) -> Check:
    """Return the error that the partitions have no nodes, or no node with GPUs of the type.

    The fix says where to find such GPUs.
    """
    partitions = ", ".join(names)
    if not inside:
        seen = f"there are none in partition {partitions}"
        fix = target.set_partition(facts) or "`sinfo -s` shows the nodes of each"
        return Check(PROFILE, f"{target.label}nodes", "red", seen, fix)
    there = sorted({name or "untyped" for name in _gpu_types(inside)})
    wanted = target.plan.shape.gpu_type or "GPU"
    seen = f"no {wanted} in partition {partitions}; it has {', '.join(there) or 'no GPUs'}"
    fix = target.set_partition(facts) or _other_gpus(target, there, facts)
    return Check(PROFILE, f"{target.label}GPUs", "red", seen, fix)


def _other_gpus(target: Target, there: Sequence[str], facts: ClusterFacts) -> str:
    """Return how to ask for GPUs that there are, given the types of the partition."""
    named = [type_ for type_ in there if type_ != "untyped"]
    if there and not target.type:
        if not named:
            return target.set_("gpu.type", "null")  # GPUs without a type are requested without one
        close = nearest(target.plan.shape.gpu_type or "", named)
        return target.set_("gpu.type", close or named[0])
    elsewhere = sorted(name for name in _gpu_types(facts.shown_kinds) if name)
    fix = "write a profile for them: hpcrun profile detect"
    if elsewhere:
        return f"the cluster has {', '.join(elsewhere)}; {fix}"
    return fix


def _gpu_types(kinds: Sequence[NodeKind]) -> set[str | None]:
    """Return the types of GPUs that nodes have; None stands for GPUs without a type."""
    types: set[str | None] = set()
    for kind in kinds:
        types.update(name for name, _ in kind.gpus)
    return types
