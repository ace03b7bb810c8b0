"""The launcher of a job whose program starts ranks itself: refuse the job, or one process per node. Pure: no I/O."""

from __future__ import annotations

from typing import TYPE_CHECKING

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
from hpcrun.job.quoting import quote_bash
from hpcrun.job.request import JobRequest
from hpcrun.job.shape import decide_shape

if TYPE_CHECKING:  # few programs start ranks themselves
    from hpcrun.job.typed_launcher import Instead

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

    Args:
        calls: the launchers that the program is, or calls.
        typed: hpcrun's subcommand and options as typed, for the line to type instead.
        read_text, mpi_types: see ``program_notes``.

    Raises:
        UsageError: hpcrun starts the ranks itself, the program submits jobs, or its nodes would not join one training.
    """
    if not calls:
        return request, tuple(program_notes(request, profile, typed, read_text, mpi_types))
    call = next((call for call in calls if _is_ours(call)), calls[0])
    if request.launcher is not None:
        return request, (_overridden(call, request, profile),)
    if _is_ours(call):
        if started := _taken_over(call, request, profile, typed, read_text):
            note = f"`{call.title}` starts ranks, and hpcrun starts them: {_line(call, request, profile, typed)}"
            return started, (note, *program_notes(started, profile, typed, read_text, mpi_types))
        raise _refusal(call, request, profile, typed, read_text)
    changed = request.model_copy(update={"launcher": "command"})
    nodes = decide_shape(changed, profile).nodes
    if nodes > 1 and not (call.knows_nodes or call.launcher.reads_env):
        raise _apart(call, request, profile, nodes, typed, mpi_types)
    return changed, (_once_note(call), *_shorter(call, request, profile, typed))


def _taken_over(
    call: Call, request: JobRequest, profile: Profile, typed: tuple[str, ...], read_text: ReadText
) -> JobRequest | None:
    """Return the request for what torchrun or srun was to start; None if that would not be the same."""
    from hpcrun.job.typed_launcher import taken_over

    if typed[:2] == ("scale", "run"):  # a study has its own sizes
        return None
    started = taken_over(call, request, has_gpus=_has_gpus(profile))
    if (
        started
        and call.launcher.name == "torch.distributed.launch"
        and source_match(LOCAL_RANK, read_text(started.script))
    ):
        return None
    return started


def _line(call: Call, request: JobRequest, profile: Profile, typed: tuple[str, ...]) -> str:
    instead = _line_instead(call, request, profile, typed)
    return instead.line if instead else ""


def _has_gpus(profile: Profile) -> bool:
    return profile.scheduler == "local" or profile.gpu.per_node > 0


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
        nodes = decide_shape(request, profile).nodes
        apart = nodes > 1 and not (call.knows_nodes or call.launcher.reads_env)
        each = "; without a node rank, each node starts its own ranks 0, 1, ..." if apart else ""
        return f"{_subject(call)} {does}; --launcher {request.launcher} runs it once per node{each}"
    return (
        f"{_subject(call)} {does}; --launcher {request.launcher} starts it once per rank, and each copy starts "
        "all ranks"
    )


def _once_note(call: Call) -> str:
    does = "submits a job" if call.launcher.role == "submits" else "starts its own ranks"
    return f"launcher: command, because {_subject(call)} {does}; it runs once per node, with {_VARIABLES} set"


def _shorter(call: Call, request: JobRequest, profile: Profile, typed: tuple[str, ...]) -> tuple[str, ...]:
    runs_it = call.place is None and call.launcher.torchrun_runs_it
    instead = _line_instead(call, request, profile, typed) if runs_it else None
    if instead is None:
        return ()
    return (f"hpcrun can start these ranks{_left_out(instead)}: {instead.line}",)


def _line_instead(call: Call, request: JobRequest, profile: Profile, typed: tuple[str, ...]) -> Instead | None:
    from hpcrun.job.typed_launcher import line_instead

    return line_instead(call, request, typed, has_gpus=_has_gpus(profile))


def _left_out(instead: Instead) -> str:
    return f", without {' '.join(instead.left_out)}" if instead.left_out else ""


def _dropped(instead: Instead) -> str:
    return f"; the line below leaves out {' '.join(instead.left_out)}" if instead.left_out else ""


def _refusal(
    call: Call, request: JobRequest, profile: Profile, typed: tuple[str, ...], read_text: ReadText
) -> UsageError:
    """Return the error for a launcher that hpcrun replaces."""
    if call.place is not None:
        return UsageError(
            f"{_subject(call)} hangs: it waits for the CPUs and GPUs of the job's own step",
            hint=f"remove {call.title}: hpcrun starts the ranks; or submit it with sbatch; "
            "or srun --overlap there, and --launcher command here",
        )
    instead = _line_instead(call, request, profile, typed)
    if call.launcher.role == "submits":
        why = "would run once per rank, and submit a job each time"
    else:
        why = "starts ranks, as hpcrun does: each rank of the job would start all ranks again"
    if instead is None:
        return UsageError(f"`{call.title}` {why}", hint="give the program that it starts")
    why += _dropped(instead)
    old = call.launcher.name == "torch.distributed.launch" and source_match(LOCAL_RANK, read_text(instead.script))
    if old:
        why += f"; hpcrun gives {instead.script} no {old[1]}: {READ_LOCAL_RANK} there"
    return UsageError(f"`{call.title}` {why}", hint=instead.line)


def _apart(
    call: Call, request: JobRequest, profile: Profile, nodes: int, typed: tuple[str, ...], mpi_types: MpiTypes
) -> UsageError:
    """Return the error for a launcher that would start a separate training on each node."""
    from hpcrun.job.typed_launcher import node_line

    message = f"{_subject(call)} does not use the other nodes: each of the {nodes} would train on its own"
    if call.launcher.on_nodes:
        line = " ".join(map(quote_bash, ("hpcrun", *(typed or ("submit",)), "bash", "-c", call.launcher.on_nodes)))
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
    instead = _line_instead(call, request, profile, (*typed, "--srun", f"mpi={types[0]}") if types else typed)
    if instead is None:
        return UsageError(message, hint=way_out)
    message += _dropped(instead) + (f"; the ranks need one of: {mpi_options(types)}" if types[1:] else "")
    return UsageError(message, hint=instead.line)
