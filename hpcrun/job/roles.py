"""The roles of a job: several programs on the nodes, or on the GPUs of the one node, of one allocation. Pure.

A role is a range of ranks: ranks are numbered through all roles, in the order in which the roles are given.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from typing import Any

from hpcrun.errors import PlanError, UsageError, did_you_mean
from hpcrun.job.profile import Profile
from hpcrun.job.request import GpuCount, JobRequest, option_of
from hpcrun.job.role_request import OnExit, RoleRequest, address_names, split_module
from hpcrun.job.secrets import is_secret
from hpcrun.job.shape import Shape, asked_gpu_type, decide_shape

# {{name}} stands for the text {name}, and ${name} is a shell's
_PLACE = re.compile(r"(?<![{$])\{([A-Za-z_][A-Za-z0-9_.-]*)\}")


@dataclass(frozen=True, slots=True)
class Role:
    """One role of a plan."""

    name: str
    first_rank: int
    ranks: int  # all ranks that torchrun starts; otherwise one for each node
    first_node: int
    nodes: int
    on_exit: OnExit
    task: int  # the number of its first process among those of the job: one for each node, or for each role of a node
    shape: Shape
    gpus: tuple[int, int] | None  # its first GPU and the number of its GPUs, if the roles share one node
    threads: int | None  # CPUs of one rank, None if the site decides
    ready: str
    ready_timeout_s: int
    after: tuple[str, ...]
    env: tuple[tuple[str, str], ...]
    command: tuple[str, ...]
    shared_gpus: int = 0  # the GPUs of the node that all roles share

    @property
    def array(self) -> str:
        """The name of its array in the script."""
        return f"role_{self.name.replace('-', '_')}"

    def words(self, own_threads: bool) -> list[str]:
        """Return its name and its options of ``launch role``.

        Args:
            own_threads: the user has set the number of threads.
        """
        options: dict[str, object] = {"--task": self.task, "--tasks": self.nodes, "--first-rank": self.first_rank}
        options |= {"--ranks": self.ranks, "--launcher": self.shape.launcher, "--on-exit": self.on_exit}
        options |= {"--ready": self.ready, "--ready-timeout": self.ready_timeout_s} if self.ready else {}
        options |= {"--after": ",".join(self.after)} if self.after else {}
        options |= {"--gpus": f"{self.gpus[0]}:{self.gpus[1]}:{self.shared_gpus}"} if self.gpus else {}
        threads = {} if own_threads or not self.threads else {"OMP_NUM_THREADS": self.threads}
        workers = {"NPROC_PER_NODE": self.shape.workers_per_node} if self.shape.launcher == "command" else {}
        env = {**threads, **workers, **dict(self.env)}
        pairs = [*options.items(), *(("--env", f"{name}={value}") for name, value in env.items())]
        return [self.name, *(str(part) for pair in pairs for part in pair)]


@dataclass(frozen=True, slots=True)
class RolesShape(Shape):
    """The shape of a job with roles: one process on each node, or one for each role of the one node."""

    ranks: int = 0
    tasks: int = 1

    @property
    def world_size(self) -> int:
        """Ranks of all roles."""
        return self.ranks

    @property
    def tasks_per_node(self) -> int:
        """Slurm tasks on each node."""
        return self.tasks


def requests_of(request: JobRequest) -> list[JobRequest]:
    """Return the request of each role as that of a job of its own, with all that the roles have in common."""
    each, total = request.gpus_per_node, request.gpus
    if total and not each and request.roles:
        nodes = sum(role.nodes or 1 for role in request.roles)
        each = total.model_copy(update={"count": total.count // nodes})
    requests = []
    for role in request.roles:
        fields: dict[str, Any] = {"roles": (), "nodes": role.nodes or 1, "gpus": None, "gpus_per_node": each}
        if role.gpus:
            fields["gpus_per_node"] = GpuCount(count=role.gpus, type=asked_gpu_type(request))
        if role is not request.roles[-1]:
            module, script, args = split_module(role.command)
            fields |= {"module": module, "script": script, "args": args, "sweep": (), "launcher": None}
        one = request.model_copy(update=fields)
        once = None if one.module or one.script.endswith(".py") else "command"
        launcher = "command" if role.launcher == "once" else role.launcher or one.launcher or once
        by_torchrun = launcher == "torchrun" or (launcher is None and not (each and each.count == 0))
        procs = one.nproc_per_node if by_torchrun else None
        requests.append(one.model_copy(update={"launcher": launcher, "nproc_per_node": procs}))
    return requests


def with_size(request: JobRequest) -> JobRequest:
    """Return a request with the nodes, and shared GPUs, of its roles."""
    if len(request.roles) == 1:
        raise UsageError("--role is for several programs in one job, and there is one", hint="write SCRIPT without it")
    if request.pack:
        raise UsageError("--pack is for programs that share a node, and roles have nodes", hint="leave --pack out")
    sizes, shared = " + ".join(role.size for role in request.roles), sum(role.gpus or 0 for role in request.roles)
    if shared and not all(role.gpus for role in request.roles):
        raise UsageError(f"some roles have nodes, and some share the GPUs of one node: {sizes}",
                         hint="write all sizes in GPUs, for a job on one node, or all in nodes")  # fmt: skip
    nodes = 1 if shared else sum(role.nodes or 1 for role in request.roles)
    gpus = {option: getattr(request, option) and getattr(request, option).count for option in ("gpus", "gpus_per_node")}
    for option, given in {"nodes": request.nodes, **(gpus if shared else {})}.items():
        if given is not None and given != (nodes if option == "nodes" else shared):
            raise UsageError(f"{option_of(option)} {given} contradicts the roles, which have {sizes}",
                             hint="leave it out")  # fmt: skip
    total = {"gpus": GpuCount(count=shared, type=asked_gpu_type(request)), "gpus_per_node": None} if shared else {}
    return request.model_copy(update={"nodes": nodes, **total})


def with_programs(request: JobRequest, done: Sequence[JobRequest]) -> JobRequest:
    """Return a request whose roles have the programs of these requests, one for each role."""
    commands = [(*(("-m",) if one.module else ()), one.script, *one.args) for one in done[:-1]]
    roles = [role.model_copy(update={"command": words}) for role, words in zip(request.roles, commands, strict=False)]
    return request.model_copy(update={"roles": (*roles, request.roles[-1]), "script": done[-1].script})


def decide_roles(request: JobRequest, profile: Profile) -> tuple[RolesShape, list[Shape]]:
    """Return the shape of a job with roles, and that of each role."""
    request = with_size(request)
    names = [role.name.upper().replace("-", "_") for role in request.roles]
    if twice := [role.name for role in request.roles if names.count(role.name.upper().replace("-", "_")) > 1]:
        raise UsageError(f"{' and '.join(twice)} are the same name in variables", hint="choose different names")
    alone = request.model_copy(update={"roles": (), "launcher": "command", "nproc_per_node": None})
    whole, shared = decide_shape(alone, profile), sum(role.gpus or 0 for role in request.roles)
    shapes = [decide_shape(one, profile) for one in requests_of(request)]
    if others := {shape.launcher for shape in shapes} - {"torchrun", "python", "command"}:
        raise UsageError(f"a role cannot have the launcher {others.pop()}", hint="launcher=torchrun or launcher=once")
    procs = [shape.procs_per_node for shape in shapes]
    ranks, tasks = sum(shape.world_size for shape in shapes), len(shapes) if shared else 1
    most = sum(procs) if shared else max(procs)
    return RolesShape(whole.nodes, whole.gpus_per_node, whole.gpu_type, "command", most, 1, ranks, tasks), shapes


def plan_roles(
    request: JobRequest, shapes: Sequence[Shape], cpus: int | None, command: Callable[[JobRequest], tuple[str, ...]]
) -> tuple[Role, ...]:
    """Return the roles of a plan.

    Args:
        cpus: of each node, None if the site decides.
        command: request of one role → the program and arguments of each of its ranks.
    """
    names, roles = address_names(request.roles), list[Role]()
    shared = sum(role.gpus or 0 for role in request.roles)
    rank = task = gpu = 0
    for role, one, shape in zip(request.roles, requests_of(request), shapes, strict=True):
        words = command(one)
        ready = role.ready or ("tcp:{port}" if "port" in _used(words) else "")
        _check(role, _used((*words, ready)) - {*names} if not one.sweep else set(), names)
        share = cpus if cpus is None or not shared else cpus * (role.gpus or 0) // shared
        roles.append(
            Role(
                name=role.name,
                first_rank=rank,
                ranks=shape.world_size,
                first_node=0 if shared else task,
                nodes=shape.nodes,
                on_exit=role.on_exit or ("end" if role is request.roles[-1] else "fail"),
                task=task,
                shape=shape,
                gpus=(gpu, role.gpus) if role.gpus else None,
                threads=None if share is None else max(1, share // max(shape.procs_per_node, shape.workers_per_node)),
                ready=ready,
                ready_timeout_s=role.ready_timeout,
                after=_after(role, words, roles, [each.name for each in request.roles]),
                env=role.env,
                command=words,
                shared_gpus=shared,
            )
        )
        rank, task, gpu = rank + shape.world_size, task + shape.nodes, gpu + (role.gpus or 0)
    if all(role.on_exit != "end" for role in roles):
        raise UsageError("no role ends the job", hint="on-exit=end for the role whose end decides")
    try:
        TopologicalSorter({role.name: role.after for role in roles}).prepare()
    except CycleError as error:
        hint = "say for which roles each waits: after=NAME, or after= for none"
        raise PlanError(f"roles wait for each other: {' → '.join(reversed(error.args[1]))}", hint=hint) from None
    return tuple(roles)


def shared_gpus(roles: Sequence[Role], gpus: tuple[tuple[str, ...], ...]) -> tuple[tuple[str, ...], ...]:
    """Return the GPUs of each process of this machine: those of its node, or those of its role on a shared node."""
    shares = [role.gpus for role in roles if role.gpus]
    return tuple(gpus[0][first : first + number] for first, number in shares) if gpus and shares else gpus


def _used(words: Iterable[str]) -> set[str]:
    """Return the names that stand in single braces."""
    return {name for text in words for name in _PLACE.findall(text)}


def _after(role: RoleRequest, words: Iterable[str], before: Sequence[Role], names: Sequence[str]) -> tuple[str, ...]:
    """Return the roles for which a role waits: by default those whose address it uses, and checked ones before it."""
    if role.after is None:
        wanted = {name.rpartition(".")[0] for name in _used(words)} | {each.name for each in before if each.ready}
        return tuple(name for name in names if name in wanted - {role.name})
    for name in role.after:
        if name not in names or name == role.name:
            hint = did_you_mean(name, {*names} - {role.name}, f"the roles are: {', '.join(names)}")
            raise UsageError(f"role {role.name}: it cannot wait for {name!r}", hint=hint)
    return role.after


def _check(role: RoleRequest, unknown: Iterable[str], names: Sequence[str]) -> None:
    for key in (key for key, value in role.env if is_secret(key, value)):
        raise UsageError(f"role {role.name}: env has a secret, {key}, which the script would show",
                         hint=f"export {key}, and add --secret {key}: all roles get it")  # fmt: skip
    for name in sorted(unknown):
        hint = did_you_mean(name, names, f"there are {', '.join(names)}; {{{{{name}}}}} stands for the text {{{name}}}")
        raise UsageError(f"role {role.name}: there is no address {{{name}}}", hint=hint)
