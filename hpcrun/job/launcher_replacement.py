"""The job that starts the same ranks as a typed launcher, and the command line for it. Pure: no I/O."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from itertools import dropwhile

from hpcrun.errors import UsageError
from hpcrun.job.launch_line import UnclearError, number_of, read_options
from hpcrun.job.launch_options import Program, check_option
from hpcrun.job.launchers import TORCHRUN_BY_HPCRUN, Call, Launcher, find_calls, is_python
from hpcrun.job.profile import Profile
from hpcrun.job.quoting import bash_line
from hpcrun.job.request import JobRequest, option_of, read_request
from hpcrun.job.shell_text import Word
from hpcrun.job.units import with_minutes

_SIZES = ("--gpus", "-G", "--nodes", "-N", "--gpus-per-node", "--nproc-per-node")
# srun's options that hpcrun has under the same name, or under the name given here
_SRUN_KEPT = {"job-name": "--name", **{name: f"--{name}" for name in (
    "partition account qos time mem constraint nodelist exclude reservation cpus-per-task cpus-per-gpu gpus "
    "gpus-per-node").split()}}  # fmt: skip
_FIELDS = {option_of(field): field for field in JobRequest.model_fields}
_SIZE_FIELDS = ("gpus", "gpus_per_node", "nodes", "nproc_per_node")
_REPEATABLE = ("srun", "torchrun")
_MPI_TOTAL = ("-n", "-np", "--np", "-c", "--num-proc")


@dataclass(frozen=True, slots=True)
class Instead:
    """A line to type, and the options of the launcher that it leaves out."""

    line: str
    left_out: str = ""
    script: str = ""  # the program's first word; empty if hpcrun does not start it


@dataclass(frozen=True, slots=True)
class _Started:
    """What a launcher would start: a number of ranks of a program."""

    program: tuple[str, ...]
    nodes: int | None = None
    per_node: int | None = None
    total: int | None = None  # ranks of all nodes together, if given
    options: tuple[str, ...] = ()  # options of hpcrun with the same meaning as the launcher's, each with its value
    left_out: tuple[str, ...] = ()
    by_srun: bool = False


def line_instead(call: Call, request: JobRequest, profile: Profile, typed: tuple[str, ...]) -> Instead | None:
    """Return the line that does what the launcher was meant to do, or None if this is unclear.

    ``typed`` has hpcrun's subcommand and its options as typed; it is empty if there is no command line.
    """
    if call.launcher.role == "submits":
        return Instead(bash_line((*call.before, *call.title.split(), *call.argv)))
    started = _started(call)
    if started is None or not started.program:
        return None
    options = _without(typed[1:], ("-m", "--module"), values=0)
    verb = typed[0] if typed else "submit"
    if verb != "scale":  # a study has its own sizes
        sizes = _sizes(started, request, profile)
        options = (*_without(options, _SIZES if "--gpus" in sizes else sizes[::2], values=1), *sizes)
    pairs = zip(started.options[::2], started.options[1::2], strict=True)
    options += sum((pair for pair in pairs if pair[0] not in options or pair[0][2:] in _REPEATABLE), ())
    if started.by_srun and request.launcher is None:
        options += ("--launcher", "srun")
    line = bash_line(("hpcrun", verb, *options, *_program(call.before, started.program)))
    return Instead(line, " ".join(started.left_out), started.program[0])


def taken_over(call: Call, request: JobRequest, profile: Profile) -> JobRequest | None:
    """Return the request for the ranks that torchrun or srun was to start; None if hpcrun would leave something out."""
    started = _started(call) if call.launcher.role == "ours" and call.place is None else None
    if started is None or not started.program or started.left_out:
        return None
    options = (*_sizes(started, request, profile), *started.options, *(("--launcher", "srun") * started.by_srun))
    fields = request.model_dump(exclude_defaults=True)
    for name in _SIZE_FIELDS if "--gpus" in options else ():
        fields.pop(name, None)
    for option, value in zip(options[::2], options[1::2], strict=True):
        field = _FIELDS[option]
        if field in _REPEATABLE:
            fields[field] = [*fields.get(field, ()), value]
        elif field in _SIZE_FIELDS or field not in fields:
            fields[field] = value
    program = _program(call.before, started.program)
    module = program[0] == "-m"
    return read_request({**fields, "script": program[module], "args": program[1 + module :], "module": module})


def node_line(call: Call, typed: tuple[str, ...]) -> str | None:
    """Return the line that starts the launcher once per node, with the options that it needs there."""
    node_options, argv = call.launcher.node_options, call.argv
    if not node_options:
        return None
    for name in node_options.split():  # only once, with the right value
        if name.startswith("--"):
            argv = _without(argv, (name, name.replace("_", "-")), values=1, up_to_script=True)
    text = f"{bash_line((*call.before, *call.title.split()))} {node_options} {bash_line(argv)}".rstrip()
    return bash_line(("hpcrun", *(typed or ("submit",)), "bash", "-c", text))


def _started(call: Call) -> _Started | None:
    launcher, argv = call.launcher, call.argv
    if launcher.role == "ours" and launcher.torchrun_runs_it:
        return _by_torchrun(argv)
    if launcher.name == "srun":
        return _by_srun(argv)
    if launcher.name in ("mpirun", "horovodrun"):
        options, program = _parsed(argv, launcher)
        total = next((number_of("".join(values)) for name, *values in options if name in _MPI_TOTAL), None)
        left_out = tuple(" ".join(option) for option in options if option[0] not in _MPI_TOTAL)
        return _Started(_bare(program), total=total, left_out=left_out, by_srun=True)
    script = next((index for index, text in enumerate(argv) if text.endswith(".py")), None)
    if script is None or not launcher.torchrun_runs_it:
        return None
    return _Started(argv[script:], left_out=argv[:script])


def _read(of: Program, argv: tuple[str, ...]) -> tuple[dict[str, str | None], tuple[str, ...]]:
    """Return the options of srun or torchrun by their full names, and the program behind them."""
    try:
        end, options = read_options([Word(text, 0, ((text,),)) for text in argv], 0, of)
    except UnclearError as error:
        raise UsageError(str(error), hint=f"write --{of} NAME=VALUE before the program, which {of} starts") from None
    return options, argv[end:]


def _handed_on(program: Program, name: str, value: str | None) -> tuple[str, ...]:
    """Return an option of srun or torchrun as hpcrun passes it on, empty if it does not."""
    try:
        key = check_option(program, name, value, name)
    except UsageError:
        return ()
    return (f"--{program}", key if value is None else f"{key}={value}")


def _by_torchrun(argv: tuple[str, ...]) -> _Started:
    options, program = _read("torchrun", argv)
    nodes, per_node = number_of(options.pop("nnodes", None)), number_of(options.pop("nproc-per-node", None))
    if "module" in options:
        program = ("-m", *program)
    more = {name: value for name, value in options.items() if not TORCHRUN_BY_HPCRUN.fullmatch(f"--{name}")}
    kept = {name: _handed_on("torchrun", name, value) for name, value in more.items()}
    left_out = tuple(f"--{name} {value or ''}".rstrip() for name, value in more.items() if not kept[name])
    return _Started(program, nodes, per_node, None, sum(kept.values(), ()), left_out)


def _by_srun(argv: tuple[str, ...]) -> _Started:
    options, program = _read("srun", argv)
    sizes = ("nodes", "ntasks", "ntasks-per-node")
    nodes, tasks, per_node = (number_of(options.pop(name, None)) for name in sizes)
    kept: list[str] = []
    left_out: list[str] = []
    for name, value in options.items():
        if name in _SRUN_KEPT:
            kept += [_SRUN_KEPT[name], with_minutes(value or "") if name == "time" else value or ""]
        elif more := _handed_on("srun", name, value):
            kept += more
        else:
            left_out.append(f"--{name}" if value is None else f"--{name}={value}")
    within = next((call for call in find_calls(program, lambda _: None) if not call.place), None)
    inner = _started(within) if within else None
    if within is None or inner is None:
        return _Started(_bare(program), nodes, per_node, tasks, tuple(kept), tuple(left_out), by_srun=True)
    return _Started((*within.before, *inner.program) if within.before else inner.program,
                    inner.nodes or nodes, inner.per_node, inner.total, tuple(kept),
                    (*left_out, *inner.left_out), inner.by_srun)  # fmt: skip


def _sizes(started: _Started, request: JobRequest, profile: Profile) -> tuple[str, ...]:
    """Return hpcrun's options for the nodes and ranks of a launcher; ``--gpus`` replaces all sizes of the request."""
    nodes = started.nodes or request.nodes or 1
    total = started.total or (nodes * started.per_node if started.per_node else None)
    if total is None:
        return ("--nodes", str(nodes)) if nodes > 1 and request.nodes is None else ()
    count = request.gpus or request.gpus_per_node
    gpus = count.count * (1 if request.gpus else request.nodes or 1) if count else None
    if gpus == total and nodes in (1, request.nodes):
        return ()
    several = ("--nodes", str(nodes)) if nodes > 1 else ()
    has_gpus = profile.scheduler == "local" or profile.gpu.per_node > 0
    if gpus == 0 or (gpus is None and not has_gpus):
        launcher = () if started.by_srun or request.launcher else ("--launcher", "torchrun")
        return ("--gpus", "0", *several, "--nproc-per-node", str(-(-total // nodes)), *launcher)
    if gpus and gpus > total and total % nodes == 0:  # fewer ranks than GPUs
        return (*several, "--nproc-per-node", str(total // nodes))
    type_ = f"{count.type}:" if count and count.type else ""
    return ("--gpus", f"{type_}{total}", *several)


def _parsed(argv: tuple[str, ...], launcher: Launcher) -> tuple[list[tuple[str, ...]], tuple[str, ...]]:
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
    return rest if rest and is_python(program[0]) and (rest[0].endswith(".py") or rest[0] == "-m") else program


def _program(before: tuple[str, ...], program: tuple[str, ...]) -> tuple[str, ...]:
    is_for_python = program[0].endswith(".py") or program[0] == "-m"
    return (*before, *(("python",) if before and is_for_python else ()), *program)


def _without(
    argv: tuple[str, ...], names: Collection[str], *, values: int, up_to_script: bool = False
) -> tuple[str, ...]:
    """Return words without these options and their values, written as ``--gpus 2``, ``--gpus=2`` or ``-G2``."""
    kept: list[str] = []
    skip = 0
    for index, text in enumerate(argv):
        if up_to_script and text.endswith(".py"):
            return (*kept, *argv[index:])
        if skip:
            skip -= 1
        elif text in names:
            skip = values
        elif text.partition("=")[0] not in names and not (values and text[:2] in names and text[:2] != "--"):
            kept.append(text)
    return tuple(kept)
