"""The launcher of a job whose program starts ranks itself: refuse the job, or one process per node. Pure: no I/O."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import PurePath
from typing import TYPE_CHECKING

from hpcrun.errors import UsageError
from hpcrun.job.launchers import SHELLS, Call, named_launcher
from hpcrun.job.profile import Profile
from hpcrun.job.request import JobRequest
from hpcrun.job.shape import decide_shape

if TYPE_CHECKING:  # few programs start ranks themselves
    from hpcrun.job.typed_launcher import Instead

_ONCE = ("python", "command")
_VARIABLES = "MASTER_ADDR, MASTER_PORT, NNODES, NODE_RANK and NPROC_PER_NODE"
# A script from the time of torch.distributed.launch, which gave each process its local rank as an option.
_LOCAL_RANK_OPTION = re.compile(r"""["'](--local[_-]rank)["']""")
_READ_IT = 'read int(os.environ["LOCAL_RANK"])'


def choose_launcher(
    request: JobRequest,
    profile: Profile,
    calls: list[Call],
    typed: tuple[str, ...] = (),
    read_text: Callable[[str], str] = lambda _: "",
) -> tuple[JobRequest, tuple[str, ...]]:
    """Return the request with the launcher that its program needs, and notes on it.

    Args:
        calls: the launchers that the program is, or calls.
        typed: hpcrun's subcommand and options as typed, for the line to type instead.
        read_text: returns the text of a program by its name as written, nothing if it is no readable text.

    Raises:
        UsageError: hpcrun starts the ranks itself, the program submits jobs, or its nodes would not join one training.
    """
    if not calls:
        notes = (*_remark(request), *_shell_script(request, profile))
        return request, (*notes, *_without_local_rank(request, profile, read_text))
    call = next((call for call in calls if _is_ours(call)), calls[0])
    if request.launcher is not None:
        return request, (_overridden(call, request, profile),)
    if _is_ours(call):
        raise _refusal(call, request, profile, typed, read_text)
    changed = request.model_copy(update={"launcher": "command"})
    nodes = decide_shape(changed, profile).nodes
    if nodes > 1 and not (call.knows_nodes or call.launcher.reads_env):
        raise _apart(call, request, profile, nodes, typed)
    return changed, (_once_note(call), *_shorter(call, request, profile, typed))


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

    return line_instead(call, request, typed, has_gpus=profile.scheduler == "local" or profile.gpu.per_node > 0)


def _left_out(instead: Instead) -> str:
    return f", without {' '.join(instead.left_out)}" if instead.left_out else ""


def _dropped(instead: Instead) -> str:
    return f"; the line below leaves out {' '.join(instead.left_out)}" if instead.left_out else ""


def _refusal(
    call: Call, request: JobRequest, profile: Profile, typed: tuple[str, ...], read_text: Callable[[str], str]
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
    if call.launcher.name == "torch.distributed.launch" and (option := _local_rank_option(read_text(instead.script))):
        why += f"; hpcrun gives {instead.script} no {option}: {_READ_IT} there"
    return UsageError(f"`{call.title}` {why}", hint=instead.line)


def _apart(call: Call, request: JobRequest, profile: Profile, nodes: int, typed: tuple[str, ...]) -> UsageError:
    """Return the error for a launcher that would start a separate training on each node."""
    from hpcrun.job.typed_launcher import node_line

    message = f"{_subject(call)} does not use the other nodes: each of the {nodes} would train on its own"
    if call.launcher.role == "submits":
        message = f"{_subject(call)} would submit a job on each of the {nodes} nodes"
    way_out = "--launcher command runs it as it is"
    if call.place is not None:
        options = call.launcher.node_options
        add = f"give it {options}" if options else f"use {_VARIABLES} there"
        return UsageError(message, hint=f"{add}; {way_out}")
    if line := node_line(call, typed):
        return UsageError(message, hint=line)
    instead = _line_instead(call, request, profile, typed)
    return UsageError(message + _dropped(instead), hint=instead.line) if instead else UsageError(message, hint=way_out)


def _local_rank_option(text: str) -> str | None:
    """Return the option in which a script expects its local rank; None if it has none, or reads LOCAL_RANK too."""
    found = _LOCAL_RANK_OPTION.search(text)
    return found[1] if found and "LOCAL_RANK" not in text else None


def _without_local_rank(request: JobRequest, profile: Profile, read_text: Callable[[str], str]) -> tuple[str, ...]:
    """Return a note if each rank would take its local rank from an option that it does not get."""
    if request.module or not request.script.endswith(".py"):
        return ()
    option = _local_rank_option(read_text(request.script))
    if option is None or any(word.startswith(("--local_rank", "--local-rank")) for word in request.args):
        return ()
    shape = decide_shape(request, profile)
    if shape.launcher not in ("torchrun", "srun") or shape.world_size < 2:
        return ()
    return (f"{request.script} has an option {option}, which {shape.launcher} does not give it: {_READ_IT} instead",)


def _shell_script(request: JobRequest, profile: Profile) -> tuple[str, ...]:
    """Return a note if a shell script, which starts no ranks itself, runs more than once on a node."""
    by_shell = PurePath(request.script).name in SHELLS and not "".join(request.args[:1]).startswith("-")
    is_shell = by_shell or request.script.endswith((".sh", ".bash"))
    if request.module or request.launcher is not None or not is_shell:
        return ()
    shape = decide_shape(request, profile)
    if shape.launcher == "command" or shape.procs_per_node < 2:
        return ()
    name = " ".join((request.script, *request.args[:1])) if by_shell else request.script
    return (
        f"`{name}` runs {shape.world_size} times, once per rank (RANK tells them apart); --launcher command runs it "
        "once per node",
    )


def _remark(request: JobRequest) -> tuple[str, ...]:
    """Return a note if an unknown program has a launcher among its arguments."""
    name = None if request.module or request.launcher in _ONCE else named_launcher((request.script, *request.args))
    if name is None:
        return ()
    return (f"{request.script} has `{name}` among its arguments, and runs once per rank: if it calls `{name}`, "
            "add --launcher command, which runs it once per node",)  # fmt: skip
