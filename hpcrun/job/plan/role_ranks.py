"""The roles of a job: several programs on the nodes of one allocation. Pure.

The programs can also share the GPUs of the allocation's one node. A role is a range of ranks: ranks
are numbered through all roles, in the order in which the roles are given.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from graphlib import CycleError, TopologicalSorter
from typing import Any

from hpcrun.errors import PlanError, UsageError, did_you_mean
from hpcrun.job.profile_model import Profile
from hpcrun.job.request.job_request import GpuCount, JobRequest, Launcher, option_of
from hpcrun.job.request.parameters import fill_places
from hpcrun.job.request.role_options import RoleRequest, address_names, split_module
from hpcrun.job.resources.shape import Shape, asked_gpu_type, decide_shape
from hpcrun.job.run_paths import RoleRanks
from hpcrun.job.text.recognise_secrets import is_secret


@dataclass(frozen=True, slots=True, kw_only=True)
class Role(RoleRanks):
    """One role of a plan. torchrun starts all of its ranks; otherwise it has one for each node."""

    # the number of its first process among those of the job: one for each node, or for each role of
    # a node
    task: int
    # its first GPU, the number of its GPUs, and of all, if the roles share a node
    gpus: tuple[int, int, int] | None
    ready_timeout_s: int
    env: tuple[tuple[str, str], ...]
    command: tuple[str, ...]

    @property
    def array(self) -> str:
        """The name of its array in the script."""
        return f"role_{self.name.replace('-', '_')}"

    @property
    def words(self) -> list[str]:
        """Its name and its options of ``launch role``."""
        options = {
            "--task": self.task,
            "--tasks": self.nodes,
            "--first-rank": self.first_rank,
            "--ranks": self.ranks,
            "--launcher": self.launcher,
            "--on-exit": self.on_exit,
            "--ready": self.ready,
            "--ready-timeout": self.ready and self.ready_timeout_s,
            "--after": ",".join(self.after),
            "--gpus": self.gpus and ":".join(map(str, self.gpus)),
        }
        pairs = [(name, str(value)) for name, value in options.items() if value not in ("", None)]
        pairs += [("--env", f"{name}={value}") for name, value in self.env]
        return [self.name, *(text for pair in pairs for text in pair)]


@dataclass(frozen=True, slots=True)
class RolesShape(Shape):
    """The shape of a job with roles: one process on each node.

    If the roles share the one node, the job has one process for each role.
    """

    world_size: int = 0
    tasks_per_node: int = 1


def requests_of(request: JobRequest) -> list[JobRequest]:
    """Return a request for each role, as for a job of its own.

    The options that are not a role's hold for each role.
    """
    each = request.gpus_per_node
    total = request.gpus
    if total and not each:
        each = replace(total, count=total.count // (request.nodes or 1))
    requests = []
    for role in request.roles:
        if role.gpus:
            gpus: GpuCount | None = GpuCount(count=role.gpus, type=asked_gpu_type(request))
        else:
            gpus = each
        fields: dict[str, Any] = {
            "roles": (),
            "nodes": role.nodes or 1,
            "gpus": None,
            "gpus_per_node": gpus,
        }
        if role is not request.roles[-1]:
            module, script, args = split_module(role.command)
            fields |= {
                "module": module,
                "script": script,
                "args": args,
                "sweep": (),
                "launcher": None,
            }
        one = replace(request, **fields)
        if one.module or one.script.endswith(".py"):
            once: Launcher | None = None
        else:
            once = "command"
        if role.launcher == "once":
            launcher: Launcher | None = "command"
        else:
            launcher = role.launcher or one.launcher or once
        has_ranks = launcher == "torchrun" or (launcher is None and not (gpus and gpus.count == 0))
        ranks = one.nproc_per_node if has_ranks else None
        requests.append(replace(one, launcher=launcher, nproc_per_node=ranks))
    return requests


def with_size(request: JobRequest) -> JobRequest:
    """Return a request with the nodes, or the shared GPUs of one node, of its roles.

    A request without roles stays unchanged.

    Raises:
        UsageError: if there is only one role, with --pack, if some roles have nodes and others
            share GPUs, or if an option contradicts the sizes of the roles.
    """
    if not request.roles:
        return request
    if len(request.roles) == 1:
        raise UsageError(
            "--role is for several programs in one job, and there is one",
            hint="write SCRIPT without it",
        )
    if request.pack:
        raise UsageError(
            "--pack is for programs that share a node, and roles have nodes",
            hint="leave --pack out",
        )
    sizes = " + ".join(role.size for role in request.roles)
    shared = sum(role.gpus or 0 for role in request.roles)
    if shared and not all(role.gpus for role in request.roles):
        raise UsageError(
            f"some roles have nodes, and some share the GPUs of one node: {sizes}",
            hint="write all sizes in GPUs, for a job on one node, or all in nodes",
        )
    gpus = GpuCount(count=shared, type=asked_gpu_type(request))
    fields: dict[str, Any] = {
        "nodes": 1 if shared else sum(role.nodes or 1 for role in request.roles)
    }
    fields |= {"gpus": gpus, "gpus_per_node": gpus} if shared else {}
    for field, value in fields.items():
        given = getattr(request, field)
        if given not in (None, value):
            text = f"{option_of(field)} {given.count if isinstance(given, GpuCount) else given}"
            raise UsageError(
                f"{text} contradicts the roles, which have {sizes}", hint="leave it out"
            )
    return replace(request, **(fields | ({"gpus_per_node": None} if shared else {})))


def with_programs(request: JobRequest, done: Sequence[JobRequest]) -> JobRequest:
    """Return a request whose roles have the programs of these requests, one for each role.

    A request without roles stays unchanged.
    """
    if not request.roles:
        return request
    commands = [(*(("-m",) if one.module else ()), one.script, *one.args) for one in done[:-1]]
    roles = [
        role.model_copy(update={"command": words})
        for role, words in zip(request.roles, commands, strict=False)
    ]
    return replace(request, roles=(*roles, request.roles[-1]), script=done[-1].script)


def decide_roles(request: JobRequest, profile: Profile) -> tuple[RolesShape, list[Shape]]:
    """Return the shape of a job with roles, and the shape of each role.

    Raises:
        UsageError: if two roles have the same name in variables, or a role has a launcher that
            roles cannot have.
    """
    request = with_size(request)
    for name, names in Counter(
        role.name.upper().replace("-", "_") for role in request.roles
    ).items():
        if names > 1:
            raise UsageError(
                f"{names} roles have this name in variables: HPCRUN_ROLE_{name}_PORT",
                hint="name them differently",
            )
    alone = replace(request, roles=(), launcher="command", nproc_per_node=None)
    whole = decide_shape(alone, profile)
    shared = sum(role.gpus or 0 for role in request.roles)
    shapes = [decide_shape(one, profile) for one in requests_of(request)]
    for shape in shapes:
        if shape.launcher not in ("torchrun", "python", "command"):
            raise UsageError(
                f"a role cannot have the launcher {shape.launcher}",
                hint="launcher=torchrun or launcher=once",
            )
    procs = [shape.procs_per_node for shape in shapes]
    ranks = sum(shape.world_size for shape in shapes)
    tasks = len(shapes) if shared else 1
    most = sum(procs) if shared else max(procs)
    return RolesShape(
        whole.nodes, whole.gpus_per_node, whole.gpu_type, "command", most, 1, ranks, tasks
    ), shapes


def plan_roles(
    request: JobRequest,
    shapes: Sequence[Shape],
    cpus: int | None,
    env: Collection[str],
    command: Callable[[JobRequest], tuple[str, ...]],
) -> tuple[Role, ...]:
    """Return the roles of a plan, none for a job of one program.

    Args:
        request: the request with the roles.
        shapes: the shape of each role, in the order of the roles.
        cpus: the CPUs of each node, None if the site decides.
        env: the variables that the job has anyway.
        command: request of one role → the program and arguments of each of its ranks.

    Raises:
        PlanError: if roles wait for each other.
        UsageError: if the variables of a role contain a secret, or if no role ends the job.
    """
    names, roles = address_names(request.roles), list[Role]()
    total = sum(role.gpus or 0 for role in request.roles)
    rank = 0
    task = 0
    gpu = 0
    for role, one, shape in zip(request.roles, requests_of(request), shapes, strict=True):
        for key in (key for key, value in role.env if is_secret(key, value)):
            raise UsageError(
                f"role {role.name}: env has a secret, {key}, which the script would show",
                hint=f"export {key}, and add --secret {key}: all roles get it",
            )
        words = command(one)
        used = _used(role.name, (*words, role.ready or ""), names, one)
        if shape.launcher == "command":
            variables = {"NPROC_PER_NODE": str(shape.workers_per_node)}
        else:
            variables = {}
        if cpus and "OMP_NUM_THREADS" not in env:
            share = cpus * role.gpus // total if role.gpus else cpus
            threads = max(1, share // max(shape.procs_per_node, shape.workers_per_node))
            variables["OMP_NUM_THREADS"] = str(threads)
        roles.append(
            Role(
                name=role.name,
                first_rank=rank,
                ranks=shape.world_size,
                first_node=0 if total else task,
                nodes=shape.nodes,
                on_exit=role.on_exit or ("end" if role is request.roles[-1] else "fail"),
                launcher=shape.launcher,
                ready=role.ready or ("tcp:{port}" if "port" in used else ""),
                after=_after(
                    role, used, roles, [each.name for each in request.roles if each is not role]
                ),
                task=task,
                gpus=(gpu, role.gpus, total) if role.gpus else None,
                ready_timeout_s=role.ready_timeout,
                env=tuple({**variables, **dict(role.env)}.items()),
                command=words,
            )
        )
        rank, task, gpu = rank + shape.world_size, task + shape.nodes, gpu + (role.gpus or 0)
    if roles and all(role.on_exit != "end" for role in roles):
        raise UsageError("no role ends the job", hint="on-exit=end for the role whose end decides")
    try:
        TopologicalSorter({role.name: role.after for role in roles}).prepare()
    except CycleError as error:
        hint = "say for which roles each waits: after=NAME, or after= for none"
        raise PlanError(
            f"roles wait for each other: {' → '.join(reversed(error.args[1]))}", hint=hint
        ) from None
    return tuple(roles)


def shared_gpus(
    roles: Sequence[Role], gpus: tuple[tuple[str, ...], ...]
) -> tuple[tuple[str, ...], ...]:
    """Return the GPUs of each process of this machine.

    These are the GPUs of its node, or on a shared node the GPUs of its role.
    """
    shares = [role.gpus for role in roles if role.gpus]
    if gpus and shares:
        return tuple(gpus[0][first : first + number] for first, number, _ in shares)
    return gpus


def _used(role: str, words: Sequence[str], names: Sequence[str], one: JobRequest) -> set[str]:
    """Return the addresses that the command of a role, or its check, contains.

    Raises:
        UsageError: if a place in the command or the check is no address.
    """

    def unknown(name: str) -> UsageError:
        hint = did_you_mean(
            name,
            names,
            f"there are {', '.join(names)}; {{{{{name}}}}} stands for the text {{{name}}}",
        )
        return UsageError(f"role {role}: there is no address {{{name}}}", hint=hint)

    if one.sweep:
        parameters = ("element", *(name for row in one.sweep for name, _ in row))
    else:
        parameters = ()
    return fill_places(words, dict.fromkeys((*names, *parameters), ""), unknown)[1] & {*names}


def _after(
    role: RoleRequest, used: set[str], before: Sequence[Role], others: Sequence[str]
) -> tuple[str, ...]:
    """Return the roles for which a role waits.

    By default, these are the roles whose addresses it uses, and the roles before it that have a
    check.

    Raises:
        UsageError: if the role is to wait for a name that is not another role.
    """
    if role.after is None:
        wanted = {name.rpartition(".")[0] for name in used} | {
            each.name for each in before if each.ready
        }
        return tuple(name for name in others if name in wanted)
    for name in role.after:
        if name not in others:
            hint = did_you_mean(name, others, f"the roles are: {', '.join((*others, role.name))}")
            raise UsageError(f"role {role.name}: it cannot wait for {name!r}", hint=hint)
    return role.after
