"""The job that starts the same ranks as a typed launcher, and the command line for it.

Pure: no I/O.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field, replace
from itertools import dropwhile
from typing import Any

from hpcrun.errors import UsageError
from hpcrun.job.launch_options import OPTIONS, Program, check_option, is_own_option
from hpcrun.job.launcher.known_launchers import Call, Launcher, find_calls, is_python
from hpcrun.job.launcher.launch_line import UnclearError, number_of, read_options
from hpcrun.job.profile_model import Profile
from hpcrun.job.request.job_request import (
    JOB_FIELDS,
    GpuCount,
    JobRequest,
    given_fields,
    option_of,
)
from hpcrun.job.request.node_choice import NodeChoice, read_nodes
from hpcrun.job.request.read_request import read_request
from hpcrun.job.request.request_line import option_groups, program_words
from hpcrun.job.request.role_options import split_module
from hpcrun.job.text.quoting import bash_line
from hpcrun.job.text.shell_text import Word

# srun's options for which hpcrun has an option with the same meaning
_SRUN_KEPT = frozenset(
    "account constraint cpus-per-gpu cpus-per-task exclude gpus gpus-per-node job-name mem "
    "nodelist partition qos "
    "reservation time".split()
)
_SIZES = {"gpus": "-G", "gpus_per_node": "", "nodes": "-N", "nproc_per_node": ""}
"""The fields of a job's size, and the letters of their options."""
_TAKEN = frozenset("nnodes nproc-per-node standalone module no-python use-env log-dir".split())
"""torchrun's options that an option of hpcrun replaces, or that make no difference."""
_SRUN_NAMES = {"job-name": "name"}
"""srun's options whose field of a request has another name."""
_PROGRAM = frozenset({"script", "args", "module"})
_MPI_TOTAL = ("-n", "-np", "--np", "-c", "--num-proc")


@dataclass(frozen=True, slots=True)
class Replacement:
    """The job that starts the ranks of a launcher."""

    request: JobRequest
    left_out: str  # the options of the launcher that hpcrun does without


@dataclass(frozen=True, slots=True)
class _Started:
    """What a launcher would start: a number of ranks of a program."""

    program: tuple[str, ...]
    nodes: int | None = None
    per_node: int | None = None
    total: int | None = None  # ranks of all nodes together, if given
    # of a request, with the same meaning as its options
    fields: dict[str, Any] = field(default_factory=dict)
    left_out: tuple[str, ...] = ()
    by_srun: bool = False


def replacement(
    call: Call, request: JobRequest, profile: Profile, *, sized: bool = True
) -> Replacement | None:
    """Return the job that starts the ranks of a launcher, or None if they are unclear.

    UsageError for an option of torchrun or srun that hpcrun does not know or cannot pass on.
    Without ``sized`` the sizes of the request stay.
    """
    started = _started(call)
    if started is None or not started.program:
        return None
    typed = given_fields(request)
    sizes = _sizes(started, request, profile) if sized else {}
    sizes |= {name: value for name, value in started.fields.items() if name in _SIZES}
    if "gpus" in sizes:
        for name in _SIZES:
            typed.pop(name, None)
    fields = dict(started.fields)
    if started.by_srun:
        fields["launcher"] = "srun"
    fields |= typed
    fields |= sizes
    for name in ("srun", "torchrun"):
        fields[name] = (*typed.get(name, ()), *started.fields.get(name, ()))
    program = split_module(_with_python(call.before, started.program))
    fields |= {"script": program.name, "args": program.args, "module": program.is_module}
    return Replacement(read_request(fields), " ".join(started.left_out))


def line_of(request: JobRequest, before: JobRequest, typed: tuple[str, ...]) -> str:
    """Return the line of a request that was made of a typed one.

    The line keeps the typed options, but options that changed replace theirs. ``typed`` has
    hpcrun's subcommand and its options as typed; ``typed`` is empty if there is no command line.
    """
    fields = given_fields(request)
    changed = []
    for name in JOB_FIELDS:
        if name not in _PROGRAM and getattr(request, name) != getattr(before, name):
            changed.append(name)
    replaced = {option_of(name) for name in changed}
    replaced |= {_SIZES[name] for name in changed if _SIZES.get(name)}
    options = _without(typed[1:], ("-m", "--module"), values=0)
    words = ["hpcrun", typed[0] if typed else "submit"]
    words += _without(options, replaced, values=1)
    given = {name: fields[name] for name in changed if name in fields}
    for option in option_groups(given, "")[1:]:
        words += option
    words += program_words(fields)
    return bash_line(words)


def node_line(call: Call, typed: tuple[str, ...]) -> str | None:
    """Return the line that starts the launcher once per node.

    The line has the options that the launcher needs there.
    """
    node_options = call.launcher.node_options
    argv = call.argv
    if not node_options:
        return None
    for name in node_options.split():  # only once, with the right value
        if name.startswith("--"):
            argv = _without(argv, (name, name.replace("_", "-")), values=1, up_to_script=True)
    launch = bash_line((*call.before, *call.title.split()))
    text = f"{launch} {node_options} {bash_line(argv)}".rstrip()
    return bash_line(("hpcrun", *(typed or ("submit",)), "bash", "-c", text))


def _started(call: Call) -> _Started | None:
    launcher = call.launcher
    argv = call.argv
    if launcher.role == "ours" and launcher.torchrun_runs_it:
        return _by_torchrun(argv)
    if launcher.name == "srun":
        return _by_srun(argv)
    if launcher.name in ("mpirun", "horovodrun"):
        return _by_mpi(argv, launcher)
    if not launcher.torchrun_runs_it:
        return None
    for index, text in enumerate(argv):
        if text.endswith(".py"):
            return _Started(argv[index:], left_out=argv[:index])
    return None


def _by_mpi(argv: tuple[str, ...], launcher: Launcher) -> _Started:
    options, program = _parsed(argv, launcher)
    totals = [option for option in options if option[0] in _MPI_TOTAL]
    total = number_of("".join(totals[0][1:])) if totals else None
    left_out = tuple(" ".join(option) for option in options if option not in totals)
    return _Started(_bare(program), total=total, left_out=left_out, by_srun=True)


def _read(of: Program, argv: tuple[str, ...]) -> tuple[dict[str, str | None], tuple[str, ...]]:
    """Return the options of srun or torchrun by their full names, and the program behind them.

    Raises:
        UsageError: hpcrun does not understand the options.
    """
    try:
        end, options = read_options([Word(text, 0, ((text,),)) for text in argv], 0, of)
    except UnclearError as error:
        raise UsageError(
            str(error), hint=f"write --{of} NAME=VALUE before the program, which {of} starts"
        ) from None
    return options, argv[end:]


def _passed_on(program: Program, options: dict[str, str | None]) -> dict[str, tuple[str, ...]]:
    """Return options of srun or torchrun as a request has them.

    The function raises UsageError for an option that hpcrun does not pass on.
    """
    texts: dict[str, str] = {}
    for name, value in options.items():
        key = check_option(program, name, value, f"{program} --{name}")
        texts[key] = key if value is None else f"{key}={value}"
    return {program: tuple(texts.values())}


def _by_torchrun(argv: tuple[str, ...]) -> _Started:
    options, program = _read("torchrun", argv)
    nodes = number_of(options.get("nnodes"))
    per_node = number_of(options.get("nproc-per-node"))
    if "module" in options:
        program = ("-m", *program)
    others: dict[str, str | None] = {}
    left_out = []
    for name, value in options.items():
        if name in _TAKEN:
            continue
        if name.startswith("rdzv-") or is_own_option("torchrun", name):
            left_out.append(f"--{name} {value or ''}".rstrip())
        else:
            others[name] = value
    passed_on = _passed_on("torchrun", others)
    return _Started(program, nodes, per_node, fields=passed_on, left_out=tuple(left_out))


def _by_srun(argv: tuple[str, ...]) -> _Started:
    options, program = _read("srun", argv)
    nodes = _nodes(options.pop("nodes", None))
    tasks = number_of(options.pop("ntasks", None))
    per_node = number_of(options.pop("ntasks-per-node", None))
    fields: dict[str, Any] = {}
    for name in sorted(_SRUN_KEPT.intersection(options)):
        value = options.pop(name) or ""
        kept = OPTIONS.get(name, name.replace("-", "_"))
        fields[_SRUN_NAMES.get(name, kept)] = value
    fields |= _passed_on("srun", options)
    calls = [call for call in find_calls(program, lambda _: None) if not call.place]
    inner = _started(calls[0]) if calls else None
    if inner is None:
        return _Started(_bare(program), nodes, per_node, tasks, fields, by_srun=True)
    return replace(
        inner,
        program=(*calls[0].before, *inner.program),
        nodes=inner.nodes or nodes,
        fields={**inner.fields, **fields},
    )


def _nodes(text: str | None) -> int | None:
    """Return the nodes of srun's option, which may be several numbers; None for another text."""
    try:
        return read_nodes(text)
    except ValueError:
        return None


def _sizes(started: _Started, request: JobRequest, profile: Profile) -> dict[str, Any]:
    """Return the fields for the nodes and ranks of a launcher.

    The field ``gpus`` replaces all sizes of the request.
    """
    nodes = started.nodes or request.nodes or 1
    choice = request.nodes if isinstance(request.nodes, NodeChoice) else nodes
    if isinstance(choice, NodeChoice):
        return _sizes_of_choice(choice, started, request, profile)
    total = started.total
    if not total and started.per_node:
        total = nodes * started.per_node
    if not total:
        if nodes > 1 and request.nodes is None:
            return {"nodes": nodes}
        return {}
    gpus = _requested_gpus(request)
    if gpus == total and nodes in (1, request.nodes):
        return {}
    sizes = _rank_sizes(started, request, profile, nodes, total)
    return {"nodes": nodes, **sizes} if nodes > 1 else sizes


def _sizes_of_choice(
    nodes: NodeChoice, started: _Started, request: JobRequest, profile: Profile
) -> dict[str, Any]:
    """Return the fields for the ranks of a launcher on nodes whose number Slurm chooses."""
    if started.per_node is None:
        return {"nodes": nodes}
    if request.gpus_per_node:
        return {"nodes": nodes, "nproc_per_node": started.per_node}
    sizes = _rank_sizes(started, request, profile, 1, started.per_node)
    if "nproc_per_node" not in sizes:
        sizes["gpus_per_node"] = sizes.pop("gpus")
    return {"nodes": nodes, **sizes}


def _rank_sizes(
    started: _Started, request: JobRequest, profile: Profile, nodes: int, total: int
) -> dict[str, Any]:
    """Return the fields that give a launcher its number of ranks, on GPUs or on CPUs."""
    gpus = _requested_gpus(request)
    has_gpus = profile.scheduler == "local" or bool(profile.gpu.per_node)
    if gpus == 0 or (gpus is None and not has_gpus):
        sizes: dict[str, Any] = {"nproc_per_node": -(-total // nodes)}
        # whether unknown nodes have GPUs is not decided here
        if gpus == 0 or profile.gpu.per_node == 0 or profile.gpu.types:
            sizes["gpus"] = "0"
        if not started.by_srun and not request.launcher:
            sizes["launcher"] = "torchrun"
        return sizes
    if gpus and gpus > total and total % nodes == 0:  # fewer ranks than GPUs
        return {"nproc_per_node": total // nodes}
    count = request.gpus or request.gpus_per_node
    return {"gpus": str(GpuCount(total, count.type if count else None))}


def _requested_gpus(request: JobRequest) -> int | None:
    """Return the GPUs of all nodes, None if the request has no number of GPUs."""
    if request.gpus:
        return request.gpus.count
    if request.gpus_per_node:
        return request.gpus_per_node.count * (request.nodes or 1)
    return None


def _parsed(
    argv: tuple[str, ...], launcher: Launcher
) -> tuple[list[tuple[str, ...]], tuple[str, ...]]:
    """Return a launcher's options, each with its values, and the program after them."""
    options: list[tuple[str, ...]] = []
    while argv and argv[0].startswith("-") and argv[0] != "-":
        option = argv[0]
        argv = argv[1:]
        if option == "--":
            break
        name, equals, value = option.partition("=")
        number = launcher.values.get(name, 0)
        if equals:
            options.append((name, value))
        elif not option.startswith("--") and len(option) > 2 and option not in launcher.values:
            options.append((option[:2], option[2:]))  # -n4
        else:
            options.append((option, *argv[:number]))
            argv = argv[number:]
    return options, argv


def _bare(program: tuple[str, ...]) -> tuple[str, ...]:
    """Return a program without ``python``, which hpcrun adds itself."""
    rest = tuple(dropwhile("-u".__eq__, program[1:]))
    if rest and is_python(program[0]) and (rest[0].endswith(".py") or rest[0] == "-m"):
        return rest
    return program


def _with_python(before: tuple[str, ...], program: tuple[str, ...]) -> tuple[str, ...]:
    is_for_python = program[0].endswith(".py") or program[0] == "-m"
    if before and is_for_python:
        return (*before, "python", *program)
    return (*before, *program)


def _without(
    argv: tuple[str, ...], names: Collection[str], *, values: int, up_to_script: bool = False
) -> tuple[str, ...]:
    """Return words without these options and their values.

    The function recognises ``--gpus 2``, ``--gpus=2`` and ``-G2``.
    """
    kept: list[str] = []
    skip = 0
    for index, text in enumerate(argv):
        if up_to_script and text.endswith(".py"):
            return (*kept, *argv[index:])
        has_letter = values > 0 and text[:2] in names and text[:2] != "--"
        if skip:
            skip -= 1
        elif text in names:
            skip = values
        elif text.partition("=")[0] not in names and not has_letter:
            kept.append(text)
    return tuple(kept)
