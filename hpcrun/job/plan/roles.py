"""The roles of a job: several programs on the nodes of one allocation. Pure.

The programs can also share the GPUs of the allocation's one node. A role is a range of ranks: ranks
are numbered through all roles, in the order in which the roles are given.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from graphlib import CycleError, TopologicalSorter

from hpcrun.errors import PlanError, UsageError, did_you_mean
from hpcrun.job.profile_model import Profile
from hpcrun.job.request.job_request import GpuCount, JobRequest, Launcher, option_of
from hpcrun.job.request.parameters import fill_places, parameter_names
from hpcrun.job.request.role_options import RoleRequest, address_names, split_module
from hpcrun.job.resources.shape import Shape, asked_gpu_type, decide_shape
from hpcrun.job.run_paths import RoleRanks
from hpcrun.job.text.recognise_secrets import is_secret


@dataclass(frozen=True, slots=True)
class SharedGpus:
    """A role's GPUs of the node that all roles share."""

    first: int
    number: int
    of_all: int  # the number of the GPUs of all roles


@dataclass(frozen=True, slots=True, kw_only=True)
class Role(RoleRanks):
    """One role of a plan. torchrun starts all of its ranks; otherwise it has one for each node."""

    # the number of its first process among those of the job: one for each node, or for each role of
    # a node
    task: int
    gpus: SharedGpus | None  # its GPUs, if the roles share a node
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
            "--task": str(self.task),
            "--tasks": str(self.nodes),
            "--first-rank": str(self.first_rank),
            "--ranks": str(self.ranks),
            "--launcher": self.launcher,
            "--on-exit": self.on_exit,
        }
        if self.ready:
            options["--ready"] = self.ready
            options["--ready-timeout"] = str(self.ready_timeout_s)
        if self.after:
            options["--after"] = ",".join(self.after)
        if self.gpus:
            options["--gpus"] = f"{self.gpus.first}:{self.gpus.number}:{self.gpus.of_all}"
        words = [self.name]
        for name, text in options.items():
            words += (name, text)
        for name, value in self.env:
            words += ("--env", f"{name}={value}")
        return words


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
        gpus = each
        if role.gpus:
            gpus = GpuCount(count=role.gpus, type=asked_gpu_type(request))
        alone = replace(request, roles=(), nodes=role.nodes or 1, gpus=None, gpus_per_node=gpus)
        if role is not request.roles[-1]:
            program = split_module(role.command)
            alone = replace(
                alone,
                module=program.is_module,
                script=program.name,
                args=program.args,
                sweep=(),
                launcher=None,
            )
        launcher = _launcher(role, alone)
        is_on_cpus = gpus is not None and gpus.count == 0
        has_ranks = launcher == "torchrun" or (launcher is None and not is_on_cpus)
        ranks = alone.nproc_per_node if has_ranks else None
        requests.append(replace(alone, launcher=launcher, nproc_per_node=ranks))
    return requests


def _launcher(role: RoleRequest, request: JobRequest) -> Launcher | None:
    """Return the launcher of a role; None if the profile decides."""
    if role.launcher == "once":
        return "command"
    chosen = role.launcher or request.launcher
    if chosen or request.module or request.script.endswith(".py"):
        return chosen
    return "command"


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
    if not shared:
        nodes = sum(role.nodes or 1 for role in request.roles)
        _check_size("nodes", request.nodes, nodes, sizes)
        return replace(request, nodes=nodes)
    _check_size("nodes", request.nodes, 1, sizes)
    gpus = GpuCount(count=shared, type=asked_gpu_type(request))
    for field, given in (("gpus", request.gpus), ("gpus_per_node", request.gpus_per_node)):
        _check_size(field, given.count if given else None, shared, sizes)
    return replace(request, nodes=1, gpus=gpus, gpus_per_node=None)


def _check_size(field: str, given: int | None, needed: int, sizes: str) -> None:
    """Check that an option does not contradict the sizes of the roles.

    Raises:
        UsageError: if the option has another number.
    """
    if given is not None and str(given) != str(needed):  # 2-4 is no number
        raise UsageError(
            f"{option_of(field)} {given} contradicts the roles, which have {sizes}",
            hint="leave it out",
        )


def with_programs(request: JobRequest, done: Sequence[JobRequest]) -> JobRequest:
    """Return a request whose roles have the programs of these requests, one for each role.

    A request without roles stays unchanged.
    """
    if not request.roles:
        return request
    roles = []
    for role, program in zip(request.roles[:-1], done[:-1], strict=True):
        words = (program.script, *program.args)
        if program.module:
            words = ("-m", *words)
        roles.append(role.model_copy(update={"command": words}))
    return replace(request, roles=(*roles, request.roles[-1]), script=done[-1].script)


def decide_roles(request: JobRequest, profile: Profile) -> tuple[RolesShape, list[Shape]]:
    """Return the shape of a job with roles, and the shape of each role.

    Raises:
        UsageError: if two roles have the same name in variables, or a role has a launcher that
            roles cannot have.
    """
    request = with_size(request)
    names = [role.name.upper().replace("-", "_") for role in request.roles]
    for name, number in Counter(names).items():
        if number > 1:
            raise UsageError(
                f"{number} roles have this name in variables: HPCRUN_ROLE_{name}_PORT",
                hint="name them differently",
            )
    alone = replace(request, roles=(), launcher="command", nproc_per_node=None)
    whole = decide_shape(alone, profile)
    shared = sum(role.gpus or 0 for role in request.roles)
    if profile.launcher == "srun":  # a choice for jobs of one program: a role's ranks need torchrun
        profile = profile.model_copy(update={"launcher": None})
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
    shape = RolesShape(
        nodes=whole.nodes,
        gpus_per_node=whole.gpus_per_node,
        gpu_type=whole.gpu_type,
        launcher="command",
        procs_per_node=most,
        world_size=ranks,
        tasks_per_node=tasks,
    )
    return shape, shapes


def _cpu_share(cpus: int | None, role: RoleRequest, total: int) -> int | None:
    """Return the CPUs of a role on each node, None if the site decides.

    Args:
        cpus: the CPUs of each node.
        role: the role, which has a share as large as that of its GPUs.
        total: the GPUs of all roles.
    """
    if not cpus:
        return None
    return cpus * role.gpus // total if role.gpus else cpus


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
    names = address_names(request.roles)
    roles: list[Role] = []
    total = sum(role.gpus or 0 for role in request.roles)
    rank = 0
    task = 0
    gpu = 0
    for role, alone, shape in zip(request.roles, requests_of(request), shapes, strict=True):
        _check_env(role)
        words = command(alone)
        used = _used(role.name, (*words, role.ready or ""), names, alone)
        others = [other.name for other in request.roles if other is not role]
        share = None
        if "OMP_NUM_THREADS" not in env:
            share = _cpu_share(cpus, role, total)
        variables = {**_variables(shape, share), **dict(role.env)}
        is_last = role is request.roles[-1]
        default_check = "tcp:{port}" if "port" in used else ""
        roles.append(
            Role(
                name=role.name,
                first_rank=rank,
                ranks=shape.world_size,
                first_node=0 if total else task,
                nodes=shape.nodes,
                on_exit=role.on_exit or ("end" if is_last else "fail"),
                launcher=shape.launcher,
                ready=role.ready or default_check,
                after=_after(role, used, roles, others),
                task=task,
                gpus=SharedGpus(gpu, role.gpus, total) if role.gpus else None,
                ready_timeout_s=role.ready_timeout,
                env=tuple(variables.items()),
                command=words,
            )
        )
        rank += shape.world_size
        task += shape.nodes
        gpu += role.gpus or 0
    _check_ends(roles)
    return tuple(roles)


def _variables(shape: Shape, cpus: int | None) -> dict[str, str]:
    """Return the variables that hpcrun sets for a role.

    Args:
        shape: the nodes and ranks of the role.
        cpus: the CPUs of the role on each node, which set the threads of a rank; None if they do
            not.
    """
    variables: dict[str, str] = {}
    if shape.launcher == "command":
        variables["NPROC_PER_NODE"] = str(shape.workers_per_node)
    if cpus is not None:
        threads = max(1, cpus // max(shape.procs_per_node, shape.workers_per_node))
        variables["OMP_NUM_THREADS"] = str(threads)
    return variables


def _check_env(role: RoleRequest) -> None:
    """Check that the variables of a role hold no secret.

    Raises:
        UsageError: if one does.
    """
    for key, value in role.env:
        if is_secret(key, value):
            raise UsageError(
                f"role {role.name}: env has a secret, {key}, which the script would show",
                hint=f"export {key}, and add --secret {key}: all roles get it",
            )


def _check_ends(roles: Sequence[Role]) -> None:
    """Check that roles can begin, and that one of them ends the job.

    Raises:
        PlanError: if roles wait for each other.
        UsageError: if no role ends the job.
    """
    if roles and all(role.on_exit != "end" for role in roles):
        raise UsageError("no role ends the job", hint="on-exit=end for the role whose end decides")
    try:
        TopologicalSorter({role.name: role.after for role in roles}).prepare()
    except CycleError as error:
        circle = " → ".join(reversed(error.args[1]))
        raise PlanError(
            f"roles wait for each other: {circle}",
            hint="say for which roles each waits: after=NAME, or after= for none",
        ) from None


def shared_gpus(
    roles: Sequence[Role], gpus: tuple[tuple[str, ...], ...]
) -> tuple[tuple[str, ...], ...]:
    """Return the GPUs of each process of this machine.

    These are the GPUs of its node, or on a shared node the GPUs of its role.
    """
    shares = [role.gpus for role in roles if role.gpus]
    if gpus and shares:
        return tuple(gpus[0][share.first : share.first + share.number] for share in shares)
    return gpus


def _used(role: str, words: Sequence[str], names: Sequence[str], request: JobRequest) -> set[str]:
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

    known = {*names}
    if request.sweep:
        known |= {"element", *parameter_names(request.sweep)}
    _, used = fill_places(words, dict.fromkeys(known, ""), unknown)
    return used.intersection(names)


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
        wanted = {name.rpartition(".")[0] for name in used}
        wanted |= {earlier.name for earlier in before if earlier.ready}
        return tuple(name for name in others if name in wanted)
    for name in role.after:
        if name not in others:
            hint = did_you_mean(name, others, f"the roles are: {', '.join((*others, role.name))}")
            raise UsageError(f"role {role.name}: it cannot wait for {name!r}", hint=hint)
    return role.after
