"""The launcher of a job whose program starts ranks itself: refuse the job, or one process per node. Pure: no I/O."""

from __future__ import annotations

from hpcrun.errors import UsageError
from hpcrun.job.launchers import Call
from hpcrun.job.notes import (
    LOCAL_RANK,
    READ_LOCAL_RANK,
    MpiTypes,
    ReadText,
    has_mpi_type,
    mpi_options,
    program_notes,
    source_match,
)
from hpcrun.job.profile import Profile
from hpcrun.job.quoting import bash_line
from hpcrun.job.request import JobRequest
from hpcrun.job.shape import decide_shape
from hpcrun.job.typed_launcher import Instead, line_instead, node_line, taken_over

_ONCE = ("python", "command")
_VARIABLES = "MASTER_ADDR, MASTER_PORT, NNODES, NODE_RANK and NPROC_PER_NODE"


def choose_launcher(
    request: JobRequest,
    profile: Profile,
    calls: list[Call],
    typed: tuple[str, ...] = (),
    read_text: ReadText = lambda _: "",
    mpi_types: MpiTypes = tuple,
) -> tuple[JobRequest, tuple[str, ...]]:
    """Return the request with the launcher that its program needs, and notes on it.

    It raises UsageError if hpcrun starts the ranks itself, or if the nodes of the job would not join one training.

    Args:
        calls: the launchers that the program is, or calls.
        typed: hpcrun's subcommand and options as typed, for the line to type instead.
        read_text, mpi_types: see ``program_notes``.
    """
    if not calls:
        return request, tuple(program_notes(request, profile, typed, read_text, mpi_types))
    call = next((call for call in calls if _is_ours(call)), calls[0])
    if request.launcher is not None:
        return request, (_overridden(call, request, profile),)
    if _is_ours(call) and call.place is not None:
        raise UsageError(
            f"{_subject(call)} hangs: it waits for the CPUs and GPUs of the job's own step",
            hint=f"remove {call.title}: hpcrun starts the ranks; or submit it with sbatch; "
            "or srun --overlap there, and --launcher command here",
        )
    instead = line_instead(call, request, profile, typed) if call.place is None else None
    if _is_ours(call):
        old_option = _old_option(call, instead, read_text)
        # a study has its own sizes
        started = None if old_option or typed[:2] == ("scale", "run") else taken_over(call, request, profile)
        if started is None:
            raise _refusal(call, instead, old_option)
        note = f"`{call.title}` starts ranks, and hpcrun starts them: {instead.line if instead else ''}"
        return started, (note, *program_notes(started, profile, typed, read_text, mpi_types))
    changed = request.model_copy(update={"launcher": "command"})
    nodes = decide_shape(changed, profile).nodes
    if nodes > 1 and not (call.knows_nodes or call.launcher.reads_env):
        raise _apart(call, request, profile, nodes, typed, mpi_types)
    does = "submits a job" if call.launcher.role == "submits" else "starts its own ranks"
    note = f"launcher: command, because {_subject(call)} {does}; it runs once per node, with {_VARIABLES} set"
    if instead is None or not call.launcher.torchrun_runs_it:
        return changed, (note,)
    without = f", without {instead.left_out}" if instead.left_out else ""
    return changed, (note, f"hpcrun can start these ranks{without}: {instead.line}")


def _is_ours(call: Call) -> bool:
    """Return whether the call cannot work inside a job, neither once per node nor once per rank."""
    if call.place is None:
        return call.launcher.role in ("ours", "submits")
    # a step inside this job's own step waits for CPUs and GPUs that the outer one holds (srun(1), --overlap)
    return call.launcher.name == "salloc" or (call.launcher.name == "srun" and "--overlap" not in call.argv)


def _subject(call: Call) -> str:
    return f"`{call.title}`" if call.place is None else f"`{call.title}` in {call.place},"


def _overridden(call: Call, request: JobRequest, profile: Profile) -> str:
    does = "submits a job" if call.launcher.role == "submits" else "starts ranks itself"
    if request.launcher in _ONCE:
        apart = decide_shape(request, profile).nodes > 1 and not (call.knows_nodes or call.launcher.reads_env)
        each = "; without a node rank, each node starts its own ranks 0, 1, ..." if apart else ""
        return f"{_subject(call)} {does}; --launcher {request.launcher} runs it once per node{each}"
    return (
        f"{_subject(call)} {does}; --launcher {request.launcher} starts it once per rank, and each copy starts "
        "all ranks"
    )


def _old_option(call: Call, instead: Instead | None, read_text: ReadText) -> str | None:
    """Return the option with which a script expects its local rank from torch.distributed.launch."""
    if instead is None or call.launcher.name != "torch.distributed.launch":
        return None
    match = source_match(LOCAL_RANK, read_text(instead.script))
    return match[1] if match else None


def _dropped(instead: Instead) -> str:
    return f"; the line below leaves out {instead.left_out}" if instead.left_out else ""


def _refusal(call: Call, instead: Instead | None, old_option: str | None) -> UsageError:
    """Return the error for a launcher that hpcrun replaces."""
    if call.launcher.role == "submits":
        why = "would run once per rank, and submit a job each time"
    else:
        why = "starts ranks, as hpcrun does: each rank of the job would start all ranks again"
    if instead is None:
        return UsageError(f"`{call.title}` {why}", hint="give the program that it starts")
    why += _dropped(instead)
    if old_option:
        why += f"; hpcrun gives {instead.script} no {old_option}: {READ_LOCAL_RANK} there"
    return UsageError(f"`{call.title}` {why}", hint=instead.line)


def _apart(
    call: Call, request: JobRequest, profile: Profile, nodes: int, typed: tuple[str, ...], mpi_types: MpiTypes
) -> UsageError:
    """Return the error for a launcher that would start a separate training on each node."""
    message = f"{_subject(call)} does not use the other nodes: each of the {nodes} would train on its own"
    if call.launcher.on_nodes:
        line = bash_line(("hpcrun", *(typed or ("submit",)), "bash", "-c", call.launcher.on_nodes))
        return UsageError(f"{message}; hpcrun has no launcher for a {call.launcher.name} cluster",
                          hint=f"{line}; or use one node: --nodes 1")  # fmt: skip
    if call.launcher.role == "submits":
        message = f"{_subject(call)} would submit a job on each of the {nodes} nodes"
    way_out = "--launcher command runs it as it is"
    if call.place is not None:
        options = call.launcher.node_options
        add = f"give it {options}" if options else f"use {_VARIABLES} there"
        return UsageError(message, hint=f"{add}; {way_out}")
    if joining := node_line(call, typed):
        return UsageError(message, hint=joining)
    types = mpi_types() if call.launcher.uses_mpi and not has_mpi_type(request, profile) else ()
    instead = line_instead(call, request, profile, (*typed, "--srun", f"mpi={types[0]}") if types else typed)
    if instead is None:
        return UsageError(message, hint=way_out)
    message += _dropped(instead) + (f"; the ranks need one of: {mpi_options(types)}" if types[1:] else "")
    return UsageError(message, hint=instead.line)
