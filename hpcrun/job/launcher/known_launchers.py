"""Programs that start a training's ranks themselves or submit jobs, and programs that run these.

Programs that run others are env, uv, python and bash. As the program of a job, each launcher would
be started once per rank, and start all ranks each time. Pure: no I/O.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import PurePath
from typing import Literal

from hpcrun.job.text.shell_text import read_commands
from hpcrun.job.text.units import table_rows

ONCE_PER_NODE = ("python", "command", "ray")
"""hpcrun's launchers that start a program once per node, however many GPUs it has."""
SHELLS = frozenset({"sh", "bash", "dash", "zsh", "ksh"})
_PYTHON = re.compile(r"python[\d.]*")
_PYTHON_VALUES = frozenset({"-W", "-X", "--check-hash-based-pycs"})
_SHELL_VALUES = frozenset({"-O", "+O", "-o", "+o", "--rcfile", "--init-file"})
SCRIPTS = (".py", ".sh", ".bash")
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=.*", re.DOTALL)


# Programs that start the program after their options | their subcommand, which comes first | how
# many words of their own they have before it: timeout's duration | options with a value as the next
# word
_WRAPPERS = """
builtin catchsegv command nohup setsid unbuffer valgrind | - | 0 | -
chrt taskset | - | 1 | -
env | - | 0 | -u --unset -C --chdir
exec | - | 0 | -a
time | - | 0 | -f --format -o --output
stdbuf | - | 0 | -i -o -e --input --output --error
nice | - | 0 | -n --adjustment
ionice | - | 0 | -c --class -n --classdata
timeout | - | 1 | -k --kill-after -s --signal
numactl | - | 0 | -i -m -N -C -l -p -P
xvfb-run | - | 0 | -n -s -e -f -p -w
strace | - | 0 | -o -e -s -p -E -u
nsys | profile launch | 0 | -o --output -t --trace -s --sample -w -d -y -c -e -f -x
ncu | - | 0 | -o --export -k --kernel-name -c --launch-count -s --launch-skip --set --section
uv | run | 0 | UV
uvx | - | 0 | UV --from
pipenv | run | 0 | -
poetry | run | 0 | -C --directory -P --project
pdm | run | 0 | -p --project -c --config
hatch | run | 0 | -e --env
rye | run | 0 | -p --pyproject
pixi | run | 0 | -e --environment --manifest-path
conda mamba micromamba | run | 0 | -n --name -p --prefix --cwd
apptainer singularity | exec | 1 | \
  -B --bind --env --env-file -H --home -W --workdir --pwd --cwd -S --scratch -o \
  --overlay --network --mount --fusemount --security --app --hostname --dns
""".replace(
    "UV",
    "--python -p --with --with-editable --with-requirements --project --directory --env-file "
    "--extra --group --package "
    "--index --index-url --default-index --find-links --config-file --cache-dir --no-group "
    "--only-group -C "
    "--config-setting",
)
WRAPPERS = {
    name: ({*subcommands.split()} - {"-"}, int(words), {*values.split()} - {"-"})
    for names, subcommands, words, values in table_rows(_WRAPPERS)
    for name in names.split()
}


@dataclass(frozen=True, slots=True)
class Inner:
    """What a wrapper, Python or a shell runs, with its arguments."""

    option: str  # ``-m`` for a module, ``-c`` for a text, or empty for a program or a script
    words: tuple[str, ...]


def _started_by(option: str, words: tuple[str, ...]) -> Inner | None:
    """Return what these words start; None without words."""
    return Inner(option, words) if words else None


def unwrapped(argv: tuple[str, ...]) -> Inner | None:
    """Return what the wrapper at the head of a command starts; None if it starts nothing."""
    name = PurePath(argv[0]).name
    rest = argv[1:]
    subcommands, words, values = WRAPPERS[name]
    if subcommands and not (rest and rest[0] in subcommands):
        return None
    rest = rest[bool(subcommands) :]
    while rest:
        first = rest[0]
        behind = rest[1:]
        if name == "command" and first in ("-v", "-V"):
            return None
        if name == "uv" and first == "-m":
            return _started_by("-m", behind)
        if first == "--":
            rest = behind[words:]
            break
        if first in values:
            rest = behind[1:]
        elif first.startswith("-") or _ASSIGNMENT.fullmatch(first):
            rest = behind
        elif words:
            words -= 1
            rest = behind
        else:
            break
    return _started_by("", rest)


def is_python(name: str) -> bool:
    """Return whether a word names Python: ``/opt/bin/python3.11``."""
    return _PYTHON.fullmatch(PurePath(name).name) is not None


def interpreted(argv: tuple[str, ...]) -> Inner | None:
    """Return what the interpreter at the head of a command runs.

    The result is None if there is no interpreter, or if the interpreter reads stdin.
    """
    name = PurePath(argv[0]).name
    rest = argv[1:]
    if name not in SHELLS and not _PYTHON.fullmatch(name):
        return None
    values = _SHELL_VALUES if name in SHELLS else _PYTHON_VALUES
    while rest and rest[0][:1] in ("-", "+") and rest[0] != "-":
        option = rest[0]
        rest = rest[1:]
        if option in values:
            rest = rest[1:]
        elif option.startswith("--") or option[:2] in values:
            continue
        elif name not in SHELLS and option.endswith("m"):  # -m, -um
            return _started_by("-m", rest)
        elif "c" in option:
            return Inner("-c", rest)
    return Inner("", rest) if rest and rest[0] != "-" else None


def _inner(argv: tuple[str, ...]) -> Inner | None:
    """Return what the wrapper or the interpreter at the head of a command runs."""
    if PurePath(argv[0]).name in WRAPPERS:
        return unwrapped(argv)
    return interpreted(argv)


def program_of(argv: tuple[str, ...]) -> tuple[str, ...]:
    """Return what a command runs behind its wrappers and interpreter.

    The result is a script, ``-m`` and a module, or a program.
    """
    inner = _inner(argv)
    if inner and inner.option == "-m":
        return ("-m", *inner.words)
    if inner and PurePath(argv[0]).name in WRAPPERS:
        return program_of(inner.words)
    if inner and not inner.option and inner.words[0].endswith(SCRIPTS):
        return inner.words
    return argv


def script_arguments(argv: tuple[str, ...]) -> tuple[str, ...]:
    """Return the arguments of what a command runs behind its wrappers and interpreter.

    The arguments are those of a script, a module or a text.
    """
    inner = _inner(argv)
    if inner is None or not inner.words:
        return argv[1:]
    if inner.option:
        return inner.words[1:]
    return script_arguments(inner.words)


Role = Literal["ours", "submits", "node", "job"]
ReadScript = Callable[[str], str | None]
_DEPTH = 4  # the depth to which scripts that call scripts are followed


@dataclass(frozen=True, slots=True)
class Launcher:
    """A program that starts ranks or jobs."""

    name: str  # as a user types it
    # ``ours``: hpcrun does the same itself; ``submits``: submits jobs; ``node``: starts the ranks
    # of one node; ``job``: starts the ranks of all nodes from one of them
    role: Role
    # the first words with which it starts ranks or jobs; empty if it always does
    subcommands: tuple[str, ...] = ()
    modules: tuple[str, ...] = ()  # names of the same program after ``python -m``
    aliases: tuple[str, ...] = ()
    # the number of words that follow an option written without ``=``
    values: Mapping[str, int] = field(default_factory=dict)
    # it reads node rank and address from NNODES, NODE_RANK, MASTER_ADDR and MASTER_PORT
    reads_env: bool = False
    node_options: str = ""  # the options, in shell syntax, that make it one node of several
    torchrun_runs_it: bool = False  # its scripts also run under torchrun
    uses_mpi: bool = False  # its ranks are those of one MPI job
    by: str = ""  # hpcrun's launcher that does the same

    @property
    def title(self) -> str:
        """The launcher in words: ``accelerate launch``."""
        if len(self.subcommands) == 1:
            return f"{self.name} {self.subcommands[0]}"
        return self.name


@dataclass(frozen=True, slots=True)
class Call:
    """A launcher that the program of a job is, or calls."""

    launcher: Launcher
    argv: tuple[str, ...]  # the launcher's words after its name and subcommand
    title: str  # the words that call it, as written
    before: tuple[str, ...] = ()  # the words before it: ``env A=1``, ``uv run``
    # the place of the call in a script or in the text of ``sh -c``; None if it is the program
    # itself
    place: str | None = None
    # the script uses a variable that differs between nodes, or names the first one
    knows_nodes: bool = False


def _ones(words: str) -> dict[str, int]:
    return dict.fromkeys(words.split(), 1)


# mpirun(1) of Open MPI 4 and 5, and MPICH's mpiexec
_MPI_VALUES = {
    **_ones(
        "-n -np --np -c -N -ppn -x -H -host --host -hosts -hostfile --hostfile -machinefile "
        "--machinefile -f"
    ),
    **_ones(
        "--map-by -map-by --bind-to -bind-to --rank-by -wdir --wdir -wd --prefix --npernode "
        "-npernode"
    ),
    **_ones("--app --output-filename --timeout -envlist -genvlist -launcher --launcher"),
    **dict.fromkeys("-mca --mca -gmca --gmca --prtemca --pmixmca -genv -env".split(), 2),
}
_TORCHRUN_NODE = (
    "--nnodes $NNODES --nproc-per-node $NPROC_PER_NODE --node-rank $NODE_RANK "
    "--master-addr $MASTER_ADDR --master-port $MASTER_PORT"
)
# accelerate/commands/launch.py (1.14): no variable sets the machine's rank
_ACCELERATE_NODE = (
    "--num_machines $NNODES --machine_rank $NODE_RANK --main_process_ip $MASTER_ADDR "
    "--main_process_port $MASTER_PORT --num_processes $((NNODES * NPROC_PER_NODE))"
)

LAUNCHERS: tuple[Launcher, ...] = (
    Launcher(
        "torchrun",
        "ours",
        modules=("torch.distributed.run", "torchrun"),
        aliases=("torch.distributed.run",),
        node_options=_TORCHRUN_NODE,
        torchrun_runs_it=True,
    ),
    Launcher(
        "torch.distributed.launch",
        "ours",
        modules=("torch.distributed.launch",),
        node_options=_TORCHRUN_NODE,
        torchrun_runs_it=True,
    ),
    Launcher("srun", "ours"),
    Launcher("salloc", "submits"),
    Launcher("sbatch", "submits"),
    Launcher(
        "hpcrun",
        "submits",
        subcommands=("submit", "resubmit", "scale", "preflight"),
        modules=("hpcrun",),
    ),
    Launcher(
        "accelerate",
        "node",
        subcommands=("launch",),
        modules=("accelerate.commands.accelerate_cli",),
        node_options=_ACCELERATE_NODE,
        torchrun_runs_it=True,
    ),
    Launcher(
        "accelerate-launch",
        "node",
        modules=("accelerate.commands.launch",),
        node_options=_ACCELERATE_NODE,
        torchrun_runs_it=True,
    ),
    # without a hostfile deepspeed knows only this node; it connects to other nodes by ssh
    Launcher("deepspeed", "job", modules=("deepspeed.launcher.runner",), torchrun_runs_it=True),
    Launcher("colossalai", "job", subcommands=("run",), torchrun_runs_it=True),
    Launcher("lightning", "node", subcommands=("run",), torchrun_runs_it=True),
    Launcher(
        "fabric",
        "node",
        subcommands=("run",),
        torchrun_runs_it=True,
        node_options="--num-nodes $NNODES --node-rank $NODE_RANK --main-address $MASTER_ADDR "
        "--main-port $MASTER_PORT --devices $NPROC_PER_NODE",
    ),
    Launcher(
        "composer",
        "node",
        modules=("composer.cli.launcher",),
        node_options="--nproc $NPROC_PER_NODE --world_size $((NNODES * NPROC_PER_NODE)) "
        "--node_rank $NODE_RANK --master_addr $MASTER_ADDR --master_port $MASTER_PORT",
        torchrun_runs_it=True,
    ),
    Launcher("tune", "node", subcommands=("run",), node_options=_TORCHRUN_NODE),
    Launcher("axolotl", "node", subcommands=("train",)),
    Launcher("llamafactory-cli", "node", subcommands=("train",), reads_env=True),
    Launcher("swift", "node", subcommands=("sft", "pt", "rlhf"), reads_env=True),
    Launcher(
        "mpirun",
        "job",
        aliases=("mpiexec", "orterun", "prterun", "mpiexec.hydra", "mpiexec.slurm"),
        values=_MPI_VALUES,
        uses_mpi=True,
    ),
    Launcher(
        "horovodrun",
        "job",
        values=_ones("-np --num-proc -H --hosts -hostfile --hostfile -p --ssh-port"),
        uses_mpi=True,
    ),
    Launcher("ray", "job", subcommands=("start", "job", "submit", "symmetric-run", "up"), by="ray"),
    Launcher("torchx", "submits", subcommands=("run",)),
)
BY_NAME = {name: launcher for launcher in LAUNCHERS for name in (launcher.name, *launcher.aliases)}
BY_MODULE = {module: launcher for launcher in LAUNCHERS for module in launcher.modules}


# A script that uses one of these can distinguish its nodes, or find the first node.
_OF_NODES = re.compile(
    r"\b(NNODES|NODE_RANK|MASTER_ADDR|HPCRUN_(HEAD|HEAD_ADDR|NODE|NODE_RANK)|GROUP_RANK"
    r"|SLURM_(NODEID|PROCID|NNODES|JOB_NUM_NODES|JOB_NODELIST|NODELIST|LAUNCH_NODE_IPADDR))\b"
)
_HELP = frozenset({"-h", "--help", "--version", "-V"})


def find_calls(argv: tuple[str, ...], read_script: ReadScript) -> list[Call]:
    """Return the launchers that a command starts.

    Such a launcher is the command itself, a command after wrappers, or a command in a shell script.
    ``read_script`` returns the text of a shell script by its name as written, None for another
    file.
    """
    seen: set[str] = set()

    def read_once(name: str) -> str | None:
        if name in seen:
            return None
        seen.add(name)
        return read_script(name)

    return list(_find(argv, read_once, (), _DEPTH))


def _find(
    argv: tuple[str, ...], read: ReadScript, before: tuple[str, ...], depth: int
) -> Iterator[Call]:
    if not argv or depth == 0:
        return
    name = PurePath(argv[0]).name or argv[0]
    inner = _inner(argv)
    if name in BY_NAME:
        yield from _called(BY_NAME[name], argv, argv[1:], before)
    elif inner and inner.option == "-m":
        launcher = BY_MODULE.get(inner.words[0])
        if launcher:
            yield from _called(launcher, argv, inner.words[1:], before)
    elif name in WRAPPERS:
        if inner:
            wrapper = argv[: len(argv) - len(inner.words)]
            yield from _find(inner.words, read, (*before, *wrapper), depth)
    elif name in SHELLS or not inner:  # Python's own text is not read
        text, script = _shell_text(argv, inner, read)
        if text:  # to read one loads the grammar of bash
            yield from _find_in_script(text, script or "the text of -c", read, depth)


def _find_in_script(text: str, name: str, read: ReadScript, depth: int) -> Iterator[Call]:
    names_nodes = _OF_NODES.search(text) is not None
    for command in read_commands(text):
        place = f"{name}, line {command.line}"
        for call in _find(command.words, read, (), depth - 1):
            knows_nodes = call.knows_nodes or names_nodes
            yield replace(call, place=call.place or place, knows_nodes=knows_nodes)


def _called(
    launcher: Launcher, argv: tuple[str, ...], rest: tuple[str, ...], before: tuple[str, ...]
) -> Iterator[Call]:
    title = argv[: len(argv) - len(rest)]
    if launcher.subcommands:
        if not rest or rest[0] not in launcher.subcommands:
            return
        title = (*title, rest[0])
        rest = rest[1:]
    if not (len(rest) == 1 and rest[0] in _HELP):
        yield Call(launcher, rest, " ".join(title), before)


def _shell_text(
    argv: tuple[str, ...], inner: Inner | None, read: ReadScript
) -> tuple[str, str | None]:
    """Return the shell text that a command runs, empty for none, and the name of its script."""
    if inner and inner.option:
        return "".join(inner.words[:1]), None
    if argv[0] == "eval":
        return " ".join(argv[1:]), None
    if inner:
        script = inner.words[0]
    elif argv[0] in ("source", ".") and argv[1:]:
        script = argv[1]
    else:
        script = argv[0]
    return read(script) or "", script


def named_launcher(argv: tuple[str, ...]) -> str | None:
    """Return the launcher among the arguments of an unknown program, else None.

    An example is ``./with-modules torchrun train.py``.
    """
    name = PurePath(argv[0]).name
    if name in WRAPPERS or name in SHELLS or is_python(name) or name.endswith(".py"):
        return None
    for index, text in enumerate(argv[1:], start=1):
        if PurePath(text).name in BY_NAME:
            for call in _find(argv[index:], lambda _: None, (), 1):
                return call.title
    return None
