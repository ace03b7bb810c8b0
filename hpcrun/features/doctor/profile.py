"""doctor: judge a profile.

doctor compares the profile's largest jobs with what Slurm says, and judges the profile's variables,
modules and container.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from shutil import which

from hpcrun.actions.profiles.detect_types import why_closed
from hpcrun.actions.profiles.variables import check_profile_env
from hpcrun.errors import nearest
from hpcrun.features.doctor.check import PROFILE, Check, Level, Target, not_checked
from hpcrun.job.profile_model import Profile
from hpcrun.job.request.notify_options import variables_in
from hpcrun.job.resources.container import is_image_file
from hpcrun.job.text.units import format_memory, format_time
from hpcrun.machine.host import ModuleFacts
from hpcrun.profiles.load import LoadedProfile
from hpcrun.schedulers.cluster_facts import Association, ClusterFacts, NodeKind, Partition
from hpcrun.schedulers.job_start import Trial
from hpcrun.schedulers.slurm_text import refusal_hint


def judge_profile(
    targets: Sequence[Target], facts: ClusterFacts, trials: Sequence[Trial]
) -> list[Check]:
    """Return how a profile fits the cluster.

    What depends on a thing that is wrong is not judged.
    """
    checks: list[Check] = []
    for target in targets:
        here, of_partition = judge_partition(target, facts)
        checks += of_partition
        if here:
            checks += judge_nodes(target, here, facts)
    if trials and targets:
        checks = _with_trials(checks, trials)
        others = [check for check in checks if check.level == "red"]
        checks.append(judge_trials(trials, targets[0], facts.associations or (), others=others))
    return list(dict.fromkeys(checks))  # several types share a partition


def judge_partition(target: Target, facts: ClusterFacts) -> tuple[list[Partition], list[Check]]:
    """Return the partitions of a job that exist and are open, and the checks of its partitions.

    The checks say something of each partition that the job names.
    """
    known = {partition.name: partition for partition in facts.partitions}
    names = target.partitions or tuple(
        name for name, partition in known.items() if partition.default
    )
    if not names:
        fix = target.set_partition(facts) or f"`sinfo -s` lists them: {', '.join(known)}"
        return [], [
            Check(
                PROFILE,
                "partition",
                "red",
                "the profile names no partition, and the cluster has no default",
                fix,
            )
        ]
    here = []
    checks = []
    for name in names:
        partition = known.get(name)
        if partition is None:
            close = nearest(name, list(known))
            fix = target.set_partition(facts, close) or f"there are: {', '.join(known)}"
            checks.append(
                Check(PROFILE, f"partition {name}", "red", "there is no such partition", fix)
            )
            continue
        account = target.plan.directive("account")
        if facts.user == "root":
            why = None
        else:
            why = why_closed(partition, facts, account)
        if why:
            fix = target.set_partition(facts) or "ask the site for access"
            checks.append(
                Check(PROFILE, f"partition {name}", "red", f"you may not use it: {why}", fix)
            )
            continue
        here.append(partition)
        if partition.max_s:
            limit = format_time(partition.max_s)
        else:
            limit = "no time limit"
        if partition.preempted:
            preempted = f"; jobs in it can be preempted ({partition.preempted})"
        else:
            preempted = ""
        checks.append(
            Check(PROFILE, f"partition {name}", "green", f"up, open to you, {limit}{preempted}")
        )
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
    form = "hpcrun profile detect tries the three forms of asking for GPUs"
    fix = refusal_hint(first.message) or (
        form if target.plan.shape.gpus_per_node else "`sbatch --test-only` says more"
    )
    invalid = re.search("Invalid (account|qos)", first.message)
    if invalid and (names := _yours(invalid[1], target, mine)):
        seen += f"; available to you: {', '.join(names)}"
        # else the environment sets it
        if target.plan.directive(invalid[1]) == getattr(target.profile, invalid[1]):
            fix = target.set_(invalid[1], names[0])
    return Check(PROFILE, name, "red", seen, fix)


def _yours(key: str, target: Target, mine: Sequence[Association]) -> list[str]:
    """Return the other accounts of a person, or the other qualities of service.

    The qualities of service are those of the job's account.
    """
    account = target.plan.directive("account")
    value = target.plan.directive(key)
    names = [one.account for one in mine]
    if key == "qos":
        names = [qos for one in mine if account in (None, one.account) for qos in one.qos]
    return [name for name in dict.fromkeys(names) if name != value]


def _with_trials(checks: list[Check], trials: Sequence[Trial]) -> list[Check]:
    """Return the checks, changed where sbatch has accepted the job.

    A partition that seems closed is then no longer red.
    """
    if not any(trial.accepted for trial in trials):
        return checks
    return [
        replace(check, level="yellow", seen=f"{check.seen}; sbatch still accepts it")
        if check.level == "red" and check.name.startswith("partition ")
        else check
        for check in checks
    ]


def judge_container(profile: Profile, env: Mapping[str, str]) -> list[Check]:
    """Judge whether the runtime and the image of a profile's container are on this machine.

    Return nothing where the profile has no container.

    Compute nodes may have what this machine lacks, and modules may bring it: the judgement is sure
    only for this machine's own jobs.
    """
    image, runtime = profile.container.image, profile.container.runtime
    if image is None:
        return []
    sure = profile.scheduler == "local" and not (profile.modules or profile.setup)
    program = "enroot" if runtime == "pyxis" else runtime
    checks = [_container_runtime(runtime, which(program, path=env.get("PATH")), program, sure=sure)]
    if is_image_file(runtime, image):
        path = Path(os.path.expanduser(image))
        there = os.path.exists(path)
        if there:
            fix = None
            seen = f"{path}"
        else:
            fix = "hpcrun profile set NAME container.image=/path/of/the.sif"
            seen = f"{path} does not exist: submit refuses such jobs"
        checks.append(Check(PROFILE, "image", "green" if there else "red", seen, fix))
    else:
        checks.append(
            Check(PROFILE, "image", "green", f"{image}, which {runtime} pulls; not checked")
        )
    return checks


def _container_runtime(runtime: str, path: str | None, program: str, *, sure: bool) -> Check:
    if path:
        return Check(PROFILE, "container", "green", f"{runtime}: {path}")
    level: Level = "red" if sure else "yellow"
    if sure:
        elsewhere = ""
    else:
        elsewhere = "; it may be on the compute nodes or in a module"
    fix = "check it with a short job: hpcrun submit --wait --time 1m /bin/true"
    return Check(
        PROFILE, "container", level, f"{program} is not on this machine's PATH{elsewhere}", fix
    )


def judge_variables(loaded: LoadedProfile) -> list[Check]:
    """Judge a profile's variables by the catalogue.

    A variable that submit refuses is red, and a variable that submit remarks on is yellow.
    """
    checks = []
    for finding, key in check_profile_env(loaded):
        where = loaded.origins.get(key)
        seen = f"{finding.name}={finding.value}: {finding.problem}" + (
            f" ({where})" if where else ""
        )
        fix = finding.instead or f"hpcrun profile env {finding.name} explains it"
        checks.append(
            Check(PROFILE, "variable", "red" if finding.impossible else "yellow", seen, fix)
        )
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
    if facts is None or facts.problem:
        return not_checked(
            PROFILE, "modules", facts.problem if facts and facts.problem else "no response"
        )
    if not facts.command:
        fix = "source the site's module system in ~/.bashrc, or remove `modules` from the profile"
        return Check(
            PROFILE, "modules", "red", f"this machine has no module command, for {every}", fix
        )
    if facts.failed:
        seen = "; ".join(
            f"{name} cannot be loaded" + (f": {words}" if words else "")
            for name, words in facts.failed.items()
        )
        return Check(
            PROFILE,
            "modules",
            "red",
            seen,
            f"`module avail {next(iter(facts.failed))}` lists what there is",
        )
    return Check(PROFILE, "modules", "green", f"{every}: loaded in this order")


def judge_messages(destinations: Sequence[str], env: Mapping[str, str]) -> list[Check]:
    """Judge whether each destination of messages has its variables; no message is sent."""
    if not destinations:
        return []
    unset = sorted({name for to in destinations for name in variables_in(to) if not env.get(name)})
    if unset:
        fix = f"read -rs {unset[0]} && export {unset[0]}; without it, no message is sent there"
        return [Check(PROFILE, "messages", "yellow", f"{', '.join(unset)} is not set", fix)]
    return [
        Check(
            PROFILE,
            "messages",
            "green",
            f"to {', '.join(destinations)}; hpcrun notify --test sends one",
        )
    ]


def judge_nodes(
    target: Target, partitions: Sequence[Partition], facts: ClusterFacts
) -> list[Check]:
    """Judge whether the nodes have what a profile says.

    The nodes must also have what the profile's largest job on one node asks for.
    """
    if not facts.kinds:
        return [
            not_checked(
                PROFILE, f"{target.label}nodes", "Slurm does not list the resources of its nodes"
            )
        ]
    names = [partition.name for partition in partitions]
    inside = [kind for kind in facts.kinds if kind.partition in names]
    holding = [kind for kind in inside if target.has(kind)]
    if not holding:
        return [_no_such_gpus(target, names, inside, facts)]
    gpus = target.plan.shape.gpus_per_node
    fitting = [kind for kind in holding if target.count(kind) >= gpus] or holding
    limits = [partition.max_s for partition in partitions]
    plan, profile, such = target.plan, target.profile, "such nodes have"
    checks = [
        *_judge_amount(
            target,
            "GPUs",
            max(map(target.count, holding)),
            f"nodes of partition {', '.join(names)} have",
            ("gpu.per_node", gpus, "on a node"),
        ),
        *_judge_amount(
            target,
            "CPUs",
            max(kind.cpus or 0 for kind in fitting),
            such,
            ("cpu.per_gpu", plan.cpus_per_node, f"for {gpus} GPUs"),
            ("cpu.per_node", profile.cpu.per_node),
        ),
        *_judge_amount(
            target,
            "memory",
            max(kind.memory_mb or 0 for kind in fitting),
            such,
            ("memory.per_gpu", plan.memory_mb, f"for {gpus} GPUs"),
            ("memory.per_node", profile.memory.per_node),
            format_memory,
        ),
        *_judge_amount(
            target,
            "time",
            0 if None in limits else max(limit or 0 for limit in limits),
            "the partition allows",
            ("time.default", plan.walltime_s, "without --time"),
            ("time.max", profile.time.max),
            format_time,
        ),
    ]
    return checks or [
        Check(PROFILE, f"{target.label}nodes", "green", _fits(target, fitting, holding))
    ]


def _judge_amount(
    target: Target,
    name: str,
    most: int,
    have: str,
    requested: tuple[str, int | None, str],
    limit: tuple[str, int | None] = ("", None),
    text: Callable[[int], str] = str,
) -> Iterator[Check]:
    """Yield a check where the amount in a profile is more than the cluster has.

    The check is red where a job requests more than there is, and yellow where the profile allows
    more.

    Args:
        target: the largest job, with its profile.
        name: the name of the amount, such as ``GPUs`` or ``memory``.
        most: how much there is, in the unit of ``requested``; 0 if unknown.
        have: where there is so much, in words.
        requested: the key that sets the amount, how much the largest job requests, and for what;
            with a key ``per_gpu``, the amount is for all GPUs.
        limit: the key of the profile's own limit, and that limit.
        text: the function that writes an amount with its unit.
    """
    (key, amount, of), (limit_key, allowed) = requested, limit
    if most and amount and amount > most:
        if key.endswith(".per_gpu"):
            share = max(1, most // max(1, target.plan.shape.gpus_per_node))
        else:
            share = most
        seen = f"{text(amount)} {of}, but {have} {text(most)}"
        yield Check(PROFILE, f"{target.label}{name}", "red", seen, target.set_(key, text(share)))
    elif most and allowed and allowed > most:
        seen = f"{limit_key} is {text(allowed)}, but {have} {text(most)}"
        yield Check(
            PROFILE, f"{target.label}{name}", "yellow", seen, target.set_(limit_key, text(most))
        )


def _fits(target: Target, kinds: Sequence[NodeKind], holding: Sequence[NodeKind]) -> str:
    plan, nodes = target.plan, sum(kind.nodes for kind in holding)
    parts = [f"{plan.cpus_per_node or 'default'} CPUs"]
    if plan.shape.gpus_per_node:
        parts.insert(0, f"{plan.shape.gpus_per_node} {plan.shape.gpu_type or 'GPUs'}")
    if plan.memory_mb:
        parts.append(format_memory(plan.memory_mb))
    if plan.walltime_s:
        parts.append(format_time(plan.walltime_s))
    unknown = [
        name
        for name, known in (("CPUs", kinds[0].cpus), ("memory", kinds[0].memory_mb))
        if known is None
    ]
    if unknown:
        unsaid = f"; Slurm does not say their {' and '.join(unknown)}"
    else:
        unsaid = ""
    return (
        f"{', '.join(parts)}: fits {'its 1 node' if nodes == 1 else f'its {nodes} nodes'}{unsaid}"
    )


def _no_such_gpus(
    target: Target, names: Sequence[str], inside: Sequence[NodeKind], facts: ClusterFacts
) -> Check:
    """Return the error that the partitions have no nodes, or no node with GPUs of the type.

    The fix says where to find such GPUs.
    """
    type_ = target.plan.shape.gpu_type
    if not inside:
        fix = target.set_partition(facts) or "`sinfo -s` shows the nodes of each"
        return Check(
            PROFILE,
            f"{target.label}nodes",
            "red",
            f"there are none in partition {', '.join(names)}",
            fix,
        )
    there = sorted({name or "untyped" for kind in inside for name, _ in kind.gpus})
    seen = (
        f"no {type_ or 'GPU'} in partition {', '.join(names)}; it has "
        f"{', '.join(there) or 'no GPUs'}"
    )
    fix = target.set_partition(facts) or _other_gpus(target, there, facts)
    return Check(PROFILE, f"{target.label}GPUs", "red", seen, fix)


def _other_gpus(target: Target, there: Sequence[str], facts: ClusterFacts) -> str:
    """Return how to ask for GPUs that there are, given the types of the partition."""
    named = [type_ for type_ in there if type_ != "untyped"]
    if there and not target.type:
        close = nearest(target.plan.shape.gpu_type or "", named) or (named[0] if named else None)
        # for those without a name none must be asked for
        return target.set_("gpu.type", close or "null")
    elsewhere = sorted({name for kind in facts.kinds for name, _ in kind.gpus if name})
    if elsewhere:
        has = f"the cluster has {', '.join(elsewhere)}; "
    else:
        has = ""
    return f"{has}write a profile for them: hpcrun profile detect"
