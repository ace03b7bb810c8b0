"""The job that starts the same ranks as a typed launcher, and the command line for it.

Pure: no I/O.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from itertools import dropwhile
from typing import Any

from hpcrun.errors import UsageError
from hpcrun.job.launch_options import OPTIONS, Program, check_option, is_own_option
from hpcrun.job.launcher.launch_line import UnclearError, number_of, read_options
from hpcrun.job.launcher.launchers import Call, Launcher, find_calls, is_python
from hpcrun.job.profile_model import Profile
from hpcrun.job.request.job_request import JOB_FIELDS, JobRequest, given_fields, option_of
from hpcrun.job.request.read_request import read_request
from hpcrun.job.request.request_line import option_groups, program_words
from hpcrun.job.text.quoting import bash_line
from hpcrun.job.text.shell_text import Word
from hpcrun.job.text.units import with_minutes

# srun's options for which hpcrun has an option with the same meaning
_SRUN_KEPT = frozenset(
    "account constraint cpus-per-gpu cpus-per-task exclude gpus gpus-per-node job-name mem "
    "nodelist partition qos "
    "reservation time".split()
)
_SIZES = {"gpus": "-G", "gpus_per_node": "", "nodes": "-N", "nproc_per_node": ""}
"""The fields of a job's size, and the letters of their options."""
_TAKEN = frozenset("nnodes nproc-per-node standalone module no-python use-env log-dir".split())
"""torchrun's options that hpcrun's own have the meaning of, or that make no difference."""
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
    for name in _SIZES if "gpus" in sizes else ():
        typed.pop(name, None)
    both = {
        name: (*typed.get(name, ()), *started.fields.get(name, ())) for name in ("srun", "torchrun")
    }
    by_srun = {"launcher": "srun"} if started.by_srun else {}
    words = _with_python(call.before, started.program)
    module = words[0] == "-m"
    program = {"script": words[module], "args": words[1 + module :], "module": module}
    return Replacement(
        read_request({**started.fields, **by_srun, **typed, **sizes, **both, **program}),
        " ".join(started.left_out),
    )


def line_of(request: JobRequest, before: JobRequest, typed: tuple[str, ...]) -> str:
    """Return the line of a request that was made of a typed one.

    The line keeps the typed options, but options that changed replace theirs. ``typed`` has
    hpcrun's subcommand and its options as typed; ``typed`` is empty if there is no command line.
    """
    fields = given_fields(request)
    changed = [
        name
        for name in JOB_FIELDS
        if name not in _PROGRAM and getattr(request, name) != getattr(before, name)
    ]
    options = _without(typed[1:], ("-m", "--module"), values=0)
    names = {
        *map(option_of, changed),
        *(letter for name, letter in _SIZES.items() if letter and name in changed),
    }
    given = {name: fields[name] for name in changed if name in fields}
    new = (item for words in option_groups(given, "")[1:] for item in words)
    return bash_line(
        (
            "hpcrun",
            typed[0] if typed else "submit",
            *_without(options, names, values=1),
            *new,
            *program_words(fields),
        )
    )


def node_line(call: Call, typed: tuple[str, ...]) -> str | None:
    """Return the line that starts the launcher once per node.

    The line has the options that the launcher needs there.
    """
    node_options, argv = call.launcher.node_options, call.argv
    if not node_options:
        return None
    for name in node_options.split():  # only once, with the right value
        if name.startswith("--"):
            argv = _without(argv, (name, name.replace("_", "-")), values=1, up_to_script=True)
    launch = bash_line((*call.before, *call.title.split()))
    text = f"{launch} {node_options} {bash_line(argv)}".rstrip()
    return bash_line(("hpcrun", *(typed or ("submit",)), "bash", "-c", text))


def _started(call: Call) -> _Started | None:
    launcher, argv = call.launcher, call.argv
    if launcher.role == "ours" and launcher.torchrun_runs_it:
        return _by_torchrun(argv)
    if launcher.name == "srun":
        return _by_srun(argv)
    if launcher.name in ("mpirun", "horovodrun"):
        options, program = _parsed(argv, launcher)
        total = next(
            (number_of("".join(values)) for name, *values in options if name in _MPI_TOTAL), None
        )
        left_out = tuple(" ".join(option) for option in options if option[0] not in _MPI_TOTAL)
        return _Started(_bare(program), total=total, left_out=left_out, by_srun=True)
    script = next((index for index, text in enumerate(argv) if text.endswith(".py")), None)
    if script is None or not launcher.torchrun_runs_it:
        return None
    return _Started(argv[script:], left_out=argv[:script])


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
    keys = {
        check_option(program, name, value, f"{program} --{name}"): value
        for name, value in options.items()
    }
    return {
        program: tuple(key if value is None else f"{key}={value}" for key, value in keys.items())
    }


def _by_torchrun(argv: tuple[str, ...]) -> _Started:
    options, program = _read("torchrun", argv)
    nodes = number_of(options.get("nnodes"))
    per_node = number_of(options.get("nproc-per-node"))
    if "module" in options:
        program = ("-m", *program)
    more = {name: value for name, value in options.items() if name not in _TAKEN}
    ours = {
        name: value
        for name, value in more.items()
        if name.startswith("rdzv-") or is_own_option("torchrun", name)
    }
    left_out = tuple(f"--{name} {value or ''}".rstrip() for name, value in ours.items())
    passed_on = _passed_on(
        "torchrun", {name: value for name, value in more.items() if name not in ours}
    )
    return _Started(program, nodes, per_node, fields=passed_on, left_out=left_out)


def _by_srun(argv: tuple[str, ...]) -> _Started:
    options, program = _read("srun", argv)
    sizes = ("nodes", "ntasks", "ntasks-per-node")
    nodes, tasks, per_node = (number_of(options.pop(name, None)) for name in sizes)
    fields: dict[str, Any] = {}
    for name in [name for name in options if name in _SRUN_KEPT]:
        value = options.pop(name) or ""
        if name == "job-name":
            kept = "name"
        else:
            kept = OPTIONS.get(name, name.replace("-", "_"))
        fields[kept] = with_minutes(value) if name == "time" else value
    fields |= _passed_on("srun", options)
    within = next((call for call in find_calls(program, lambda _: None) if not call.place), None)
    inner = _started(within) if within else None
    if within is None or inner is None:
        return _Started(_bare(program), nodes, per_node, tasks, fields, by_srun=True)
    if within.before:
        words = (*within.before, *inner.program)
    else:
        words = inner.program
    return _Started(
        words,
        inner.nodes or nodes,
        inner.per_node,
        inner.total,
        {**inner.fields, **fields},
        inner.left_out,
        inner.by_srun,
    )


def _sizes(started: _Started, request: JobRequest, profile: Profile) -> dict[str, Any]:
    """Return the fields for the nodes and ranks of a launcher.

    The field ``gpus`` replaces all sizes of the request.
    """
    nodes = started.nodes or request.nodes or 1
    total = started.total or (nodes * started.per_node if started.per_node else None)
    if total is None:
        if nodes > 1 and request.nodes is None:
            return {"nodes": nodes}
        return {}
    count = request.gpus or request.gpus_per_node
    if count:
        gpus = count.count * (1 if request.gpus else request.nodes or 1)
    else:
        gpus = None
    if gpus == total and nodes in (1, request.nodes):
        return {}
    several = {"nodes": nodes} if nodes > 1 else {}
    has_gpus = profile.scheduler == "local" or profile.gpu.per_node > 0
    if gpus == 0 or (gpus is None and not has_gpus):
        if started.by_srun or request.launcher:
            launcher = {}
        else:
            launcher = {"launcher": "torchrun"}
        return {"gpus": "0", **several, "nproc_per_node": -(-total // nodes), **launcher}
    if gpus and gpus > total and total % nodes == 0:  # fewer ranks than GPUs
        return {**several, "nproc_per_node": total // nodes}
    type_ = f"{count.type}:" if count and count.type else ""
    return {"gpus": f"{type_}{total}", **several}


def _parsed(
    argv: tuple[str, ...], launcher: Launcher
) -> tuple[list[tuple[str, ...]], tuple[str, ...]]:
    """Return a launcher's options, each with its values, and the program after them."""
    options: list[tuple[str, ...]] = []
    while argv and argv[0].startswith("-") and argv[0] != "-":
        option, argv = argv[0], argv[1:]
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
    return (*before, *(("python",) if before and is_for_python else ()), *program)


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
        if skip:
            skip -= 1
        elif text in names:
            skip = values
        elif text.partition("=")[0] not in names and not (
            values and text[:2] in names and text[:2] != "--"
        ):
            kept.append(text)
    return tuple(kept)
