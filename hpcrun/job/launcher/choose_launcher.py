"""The launcher of a job whose program starts ranks itself, and notes on what a user may not expect.

Pure: no I/O.

hpcrun refuses such a job, or runs its program as one process per node.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from hpcrun.errors import PlanError, UsageError
from hpcrun.job.launcher.known_launchers import ONCE_PER_NODE, Call
from hpcrun.job.launcher.launcher_as_request import Replacement, line_of, node_line, replacement
from hpcrun.job.launcher.program_notes import Here, has_mpi_type, mpi_options, program_notes
from hpcrun.job.profile_model import Profile
from hpcrun.job.request.job_request import JobRequest
from hpcrun.job.resources.shape import check_nodes, decide_shape, decide_size
from hpcrun.job.text.quoting import bash_line

_VARIABLES = "MASTER_ADDR, MASTER_PORT, NNODES, NODE_RANK and NPROC_PER_NODE"


def choose_launcher(
    request: JobRequest, profile: Profile, calls: list[Call], here: Here, *, of_role: bool = False
) -> tuple[JobRequest, tuple[str, ...]]:
    """Return the request with the launcher that its program needs, and notes.

    Args:
        request: the request of the user.
        profile: the profile of the job.
        calls: the launchers that the program is, or has.
        here: what is known of the submission besides its request.
        of_role: whether the program is a role's and no launcher was typed; then the program would
            run once on each node.

    Raises:
        UsageError: the launcher would start Ray in the job's Ray, or would hang in the job's own
            step, or would start a separate training on each node.
    """  # noqa: DOC501
    if not calls:
        return request, tuple(program_notes(request, profile, here))
    ours = [call for call in calls if _is_ours(call)]
    call = ours[0] if ours else calls[0]
    if call.launcher.by and request.launcher == call.launcher.by:
        raise UsageError(
            f"{_subject(call)} would start Ray in the job's Ray", hint=_own_line(call, here)
        )
    if of_role and _is_apart(call, request, profile):
        raise _each_node_alone(call)
    if request.launcher is not None:
        return request, (_overridden(call, request, profile),)
    if _is_ours(call) and call.place is not None:
        raise UsageError(
            f"{_subject(call)} hangs: it waits for the CPUs and GPUs of the job's own step",
            hint=f"remove {call.title}: hpcrun starts the ranks; or submit it with sbatch; "
            "or srun --overlap there, and --launcher command here",
        )
    if _is_ours(call):
        return _taken_over(call, request, profile, here)
    if _is_apart(call, request, profile):
        raise _apart(call, request, profile, here)
    notes = _notes_on_once_per_node(call, request, profile, here)
    return replace(request, launcher="command"), tuple(notes)


def _notes_on_once_per_node(
    call: Call, request: JobRequest, profile: Profile, here: Here
) -> Iterator[str]:
    """Yield notes on a launcher that runs once on each node."""
    does = "submits a job" if call.launcher.role == "submits" else "starts its own ranks"
    yield (
        f"launcher: command, because {_subject(call)} {does}; it runs once per node, with "
        f"{_VARIABLES} set"
    )
    if call.launcher.by:
        yield (
            "hpcrun starts Ray with the CPUs and GPUs of the job, and ends it: "
            f"{_own_line(call, here)}"
        )
    elif call.place is None and call.launcher.torchrun_runs_it:
        instead = replacement(call, request, profile)
        if instead:
            line = line_of(instead.request, request, here.typed)
            yield f"hpcrun can start these ranks{_without(instead)}: {line}"


def _each_node_alone(call: Call) -> UsageError:
    """Return the error for a role whose launcher would make a training of its own on each node."""
    options = call.launcher.node_options
    each = f"give it {options}" if options else f"use {_VARIABLES}"
    return UsageError(
        f"{_subject(call)} does not use the other nodes of its role: each would train on its own",
        hint=f"let the role be the .py file; or {each} in bash -c '...'; "
        "launcher=once runs it as it is",
    )


def _has_possible_sizes(instead: Replacement, profile: Profile) -> bool:
    """Return whether the profile can have the nodes, GPUs and ranks of a job."""
    request = instead.request
    try:
        shape = decide_shape(request, profile)
        check_nodes(shape, shape.fewest_nodes, profile, request.partition or profile.partition)
    except (PlanError, UsageError):
        return False
    return True


def _without(instead: Replacement) -> str:
    return f", without {instead.left_out}" if instead.left_out else ""


def _taken_over(
    call: Call, request: JobRequest, profile: Profile, here: Here
) -> tuple[JobRequest, tuple[str, ...]]:
    """Return the request for the ranks that a typed launcher was to start, and notes on it.

    Raises:
        UsageError: each rank would submit a job, or each rank would start all of the ranks.
    """
    if call.launcher.role == "submits":
        raise UsageError(
            f"`{call.title}` would run once per rank, and submit a job each time",
            hint=bash_line((*call.before, *call.title.split(), *call.argv)),
        )
    is_study = here.typed[:1] == ("scale",)  # it has its own sizes
    instead = replacement(call, request, profile, sized=not is_study)
    line = line_of(instead.request, request, here.typed) if instead else None
    if instead is None or is_study:
        raise UsageError(
            f"`{call.title}` starts ranks, as hpcrun does: each rank of the job would start all of "
            "them",
            hint=line or "give the program that it starts",
        )
    note = f"`{call.title}` starts ranks, and hpcrun starts them{_without(instead)}: {line}"
    return instead.request, (note, *program_notes(instead.request, profile, here))


def _is_ours(call: Call) -> bool:
    """Return whether the call cannot work inside a job, neither once per node nor once per rank."""
    if call.place is None:
        return call.launcher.role in ("ours", "submits")
    # a step inside this job's own step waits for CPUs and GPUs that the outer one holds (srun(1),
    # --overlap)
    return call.launcher.name == "salloc" or (
        call.launcher.name == "srun" and "--overlap" not in call.argv
    )


def _subject(call: Call) -> str:
    if call.place is None:
        return f"`{call.title}`"
    return f"`{call.title}` in {call.place},"


def _is_apart(call: Call, request: JobRequest, profile: Profile) -> bool:
    """Whether each of several nodes would start a training of its own."""
    nodes = decide_size(request, profile).nodes
    return nodes > 1 and not (call.knows_nodes or call.launcher.reads_env)


def _overridden(call: Call, request: JobRequest, profile: Profile) -> str:
    does = "submits a job" if call.launcher.role == "submits" else "starts ranks itself"
    if request.launcher == "ray":
        return f"{_subject(call)} {does}; --launcher ray runs it once, on the head node"
    if request.launcher in ONCE_PER_NODE:
        note = f"{_subject(call)} {does}; --launcher {request.launcher} runs it once per node"
        if _is_apart(call, request, profile):
            note += "; without a node rank, each node starts its own ranks 0, 1, ..."
        return note
    return (
        f"{_subject(call)} {does}; --launcher {request.launcher} starts it once per rank, and each "
        "copy starts all ranks"
    )


def _own_line(call: Call, here: Here) -> str:
    """Return the command line that does the same with hpcrun's launcher.

    The line has the program of the call behind ``--``.
    """
    program: tuple[str, ...] = ()
    if "--" in call.argv:
        program = call.argv[call.argv.index("--") + 1 :]
    options = here.typed or ("submit",)
    if "--launcher" not in options:
        options = (*options, "--launcher", call.launcher.by)
    return bash_line(("hpcrun", *options, *(program or ("train.py",))))


def _apart(call: Call, request: JobRequest, profile: Profile, here: Here) -> UsageError:
    """Return the error for a launcher that would start a separate training on each node."""
    nodes = decide_size(request, profile).nodes
    message = (
        f"{_subject(call)} does not use the other nodes: each of the {nodes} would train on its own"
    )
    if call.launcher.by:
        return UsageError(message, hint=_own_line(call, here))
    if call.launcher.role == "submits":
        message = f"{_subject(call)} would submit a job on each of the {nodes} nodes"
    way_out = "--launcher command runs it as it is"
    if call.place is not None:
        options = call.launcher.node_options
        add = f"give it {options}" if options else f"use {_VARIABLES} there"
        return UsageError(message, hint=f"{add}; {way_out}")
    joining = node_line(call, here.typed)
    if joining:
        return UsageError(message, hint=joining)
    instead = replacement(call, request, profile)
    if instead and not _has_possible_sizes(instead, profile):
        instead = replacement(call, request, profile, sized=False)
    if instead is None or not _has_possible_sizes(instead, profile):
        return UsageError(message, hint=way_out)
    types: tuple[str, ...] = ()
    if call.launcher.uses_mpi and not has_mpi_type(request, profile):
        types = here.mpi_types()
    proposal = instead.request
    if types:
        proposal = replace(proposal, srun=(*request.srun, f"mpi={types[0]}"))
    if instead.left_out:
        message += f"; the line below is{_without(instead)[1:]}"
    if len(types) > 1:
        message += f"; the ranks need one of: {mpi_options(types)}"
    return UsageError(message, hint=line_of(proposal, request, here.typed))
