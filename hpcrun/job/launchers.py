"""Programs that start the ranks of a training themselves, or submit jobs: a table, and the search for them.

As the program of a job, each would be started once per rank, and start all ranks each time. Pure: no I/O.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import PurePath
from typing import Literal

from hpcrun.job.command_words import (
    SHELLS,
    WRAPPERS,
    Interpreted,
    Wrapper,
    interpreted,
    is_python,
    unwrap,
)
from hpcrun.job.shell_text import read_commands

Role = Literal["ours", "submits", "node", "job"]
ReadScript = Callable[[str], str | None]
_DEPTH = 4
"""The depth to which scripts that call scripts are followed."""


@dataclass(frozen=True, slots=True)
class Launcher:
    """A program that starts ranks or jobs."""

    name: str  # as a user types it
    # ``ours``: hpcrun does the same itself; ``submits``: submits jobs; ``node``: starts the ranks of one node; ``job``:
    # starts the ranks of all nodes from one of them
    role: Role
    subcommands: tuple[str, ...] = ()  # the first words with which it starts ranks or jobs; empty if it always does
    modules: tuple[str, ...] = ()  # names of the same program after ``python -m``
    aliases: tuple[str, ...] = ()
    # the number of words that follow an option written without ``=``
    values: Mapping[str, int] = field(default_factory=dict)
    reads_env: bool = False  # it reads node rank and address from NNODES, NODE_RANK, MASTER_ADDR and MASTER_PORT
    node_options: str = ""  # the options, in shell syntax, that make it one node of several
    torchrun_runs_it: bool = False  # its scripts also run under torchrun
    uses_mpi: bool = False  # its ranks are those of one MPI job
    on_nodes: str = ""  # the shell command that does the same on several nodes, run once on each

    @property
    def title(self) -> str:
        """The launcher in words: ``accelerate launch``."""
        return f"{self.name} {self.subcommands[0]}" if len(self.subcommands) == 1 else self.name


@dataclass(frozen=True, slots=True)
class Call:
    """A launcher that the program of a job is, or calls."""

    launcher: Launcher
    argv: tuple[str, ...]  # the launcher's words after its name and subcommand
    title: str  # the words that call it, as written
    before: tuple[str, ...] = ()  # the words before it: ``env A=1``, ``uv run``
    # the place of the call in a script or in the text of ``sh -c``; None if it is the program itself
    place: str | None = None
    knows_nodes: bool = False  # the script uses a variable that differs between nodes, or names the first one


def _ones(words: str) -> dict[str, int]:
    return dict.fromkeys(words.split(), 1)


# torch/distributed/run.py (2.13); each name is also accepted with _ instead of -
TORCHRUN_VALUES = _ones(
    "--nnodes --nproc-per-node --rdzv-backend --rdzv-endpoint --rdzv-id --rdzv-conf --max-restarts --monitor-interval "
    "--start-method --event-log-handler --role --log-dir -r --redirects -t --tee --local-ranks-filter --node-rank "
    "--duplicate-stdout-filters --duplicate-stderr-filters --master-addr --master-port --local-addr --logs-specs "
    "--numa-binding --signals-to-handle --shutdown-timeout --log-line-prefix-template"
)
# mpirun(1) of Open MPI 4 and 5, and MPICH's mpiexec
_MPI_VALUES = {
    **_ones("-n -np --np -c -N -ppn -x -H -host --host -hosts -hostfile --hostfile -machinefile --machinefile -f"),
    **_ones("--map-by -map-by --bind-to -bind-to --rank-by -wdir --wdir -wd --prefix --npernode -npernode"),
    **_ones("--app --output-filename --timeout -envlist -genvlist -launcher --launcher"),
    **dict.fromkeys("-mca --mca -gmca --gmca --prtemca --pmixmca -genv -env".split(), 2),
}
# What hpcrun decides itself, such as the places of logs, and --use-env, which torchrun always does.
TORCHRUN_BY_HPCRUN = re.compile(
    r"--(rdzv-(backend|endpoint|id|conf)|master-addr|master-port|node-rank|local-addr|standalone|use-env|log-dir|"
    r"redirects|tee|role|start-method|monitor-interval|no-python|module|nnodes|nproc-per-node|"
    r"local-ranks-filter)|-[rtm]"
)
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
    Launcher("torchrun", "ours", modules=("torch.distributed.run", "torchrun"),
             aliases=("torch.distributed.run",), node_options=_TORCHRUN_NODE, torchrun_runs_it=True),
    Launcher("torch.distributed.launch", "ours", modules=("torch.distributed.launch",),
             node_options=_TORCHRUN_NODE, torchrun_runs_it=True),
    Launcher("srun", "ours"),
    Launcher("salloc", "submits"),
    Launcher("sbatch", "submits"),
    Launcher("hpcrun", "submits", subcommands=("submit", "resubmit", "scale", "preflight"), modules=("hpcrun",)),
    Launcher("accelerate", "node", subcommands=("launch",), modules=("accelerate.commands.accelerate_cli",),
             node_options=_ACCELERATE_NODE, torchrun_runs_it=True),
    Launcher("accelerate-launch", "node", modules=("accelerate.commands.launch",),
             node_options=_ACCELERATE_NODE, torchrun_runs_it=True),
    # without a hostfile deepspeed knows only this node; it connects to other nodes by ssh
    Launcher("deepspeed", "job", modules=("deepspeed.launcher.runner",), torchrun_runs_it=True),
    Launcher("colossalai", "job", subcommands=("run",), torchrun_runs_it=True),
    Launcher("lightning", "node", subcommands=("run",), torchrun_runs_it=True),
    Launcher("fabric", "node", subcommands=("run",), torchrun_runs_it=True,
             node_options="--num-nodes $NNODES --node-rank $NODE_RANK --main-address $MASTER_ADDR "
             "--main-port $MASTER_PORT --devices $NPROC_PER_NODE"),
    Launcher("composer", "node", modules=("composer.cli.launcher",),
             node_options="--nproc $NPROC_PER_NODE --world_size $((NNODES * NPROC_PER_NODE)) "
             "--node_rank $NODE_RANK --master_addr $MASTER_ADDR --master_port $MASTER_PORT", torchrun_runs_it=True),
    Launcher("tune", "node", subcommands=("run",), node_options=_TORCHRUN_NODE),
    Launcher("axolotl", "node", subcommands=("train",)),
    Launcher("llamafactory-cli", "node", subcommands=("train",), reads_env=True),
    Launcher("swift", "node", subcommands=("sft", "pt", "rlhf"), reads_env=True),
    Launcher("mpirun", "job", aliases=("mpiexec", "orterun", "prterun", "mpiexec.hydra", "mpiexec.slurm"),
             values=_MPI_VALUES, uses_mpi=True),
    Launcher("horovodrun", "job", values=_ones("-np --num-proc -H --hosts -hostfile --hostfile -p --ssh-port"),
             uses_mpi=True),
    # symmetric-run came with Ray 2.49: the first node runs the program, with the others as its workers
    Launcher("ray", "job", subcommands=("start", "job", "submit", "symmetric-run", "up"),
             on_nodes="ray symmetric-run --address $MASTER_ADDR:$MASTER_PORT --min-nodes $NNODES -- python train.py"),
    Launcher("torchx", "submits", subcommands=("run",)),
)  # fmt: skip
BY_NAME = {name: launcher for launcher in LAUNCHERS for name in (launcher.name, *launcher.aliases)}
BY_MODULE = {module: launcher for launcher in LAUNCHERS for module in launcher.modules}


# A script that uses one of these can distinguish its nodes, or find the first node.
_OF_NODES = re.compile(
    r"\b(NNODES|NODE_RANK|MASTER_ADDR|HPCRUN_(HEAD|HEAD_ADDR|NODE|NODE_RANK)|GROUP_RANK"
    r"|SLURM_(NODEID|PROCID|NNODES|JOB_NUM_NODES|JOB_NODELIST|NODELIST|LAUNCH_NODE_IPADDR))\b"
)
_HELP = frozenset({"-h", "--help", "--version", "-V"})


def find_calls(argv: tuple[str, ...], read_script: ReadScript) -> list[Call]:
    """Return the launchers that a command starts: the command itself, after wrappers, or in a shell script.

    Args:
        argv: the program and its arguments.
        read_script: returns the text of a shell script by its name as written; None if it is not a shell script.
    """
    seen: set[str] = set()

    def read_once(name: str) -> str | None:
        if name in seen:
            return None
        seen.add(name)
        return read_script(name)

    return list(_find(argv, read_once, (), _DEPTH))


def _find(argv: tuple[str, ...], read: ReadScript, before: tuple[str, ...], depth: int) -> Iterator[Call]:
    if not argv or depth == 0:
        return
    name, rest = PurePath(argv[0]).name or argv[0], argv[1:]
    if name in BY_NAME:
        yield from _called(BY_NAME[name], argv, rest, before)
    elif name in WRAPPERS:
        yield from _unwrapped(WRAPPERS[name], argv, read, before, depth)
    elif inner := interpreted(argv):
        yield from _interpreted(inner, argv, read, before, depth)
    elif name == "eval":
        yield from _in_text(" ".join(rest), None, read, depth)
    elif name in ("source", ".") and rest:
        yield from _in_script(rest[0], read, depth)
    else:
        yield from _in_script(argv[0], read, depth)


def _called(
    launcher: Launcher, argv: tuple[str, ...], rest: tuple[str, ...], before: tuple[str, ...]
) -> Iterator[Call]:
    title = argv[: len(argv) - len(rest)]
    if launcher.subcommands:
        if not rest or rest[0] not in launcher.subcommands:
            return
        title, rest = (*title, rest[0]), rest[1:]
    if len(rest) == 1 and rest[0] in _HELP:
        return
    yield Call(launcher, rest, " ".join(title), before)


def _unwrapped(
    wrapper: Wrapper, argv: tuple[str, ...], read: ReadScript, before: tuple[str, ...], depth: int
) -> Iterator[Call]:
    rest, is_module = unwrap(wrapper, argv[1:])
    start = argv[: len(argv) - len(rest)]
    if is_module:
        yield from _module(rest, start, before)
    elif rest:
        yield from _find(rest, read, (*before, *start), depth)


def _module(rest: tuple[str, ...], start: tuple[str, ...], before: tuple[str, ...]) -> Iterator[Call]:
    if rest and rest[0] in BY_MODULE:
        yield from _called(BY_MODULE[rest[0]], (*start, *rest), rest[1:], before)


def _interpreted(
    inner: Interpreted, argv: tuple[str, ...], read: ReadScript, before: tuple[str, ...], depth: int
) -> Iterator[Call]:
    if inner.option == "-m":
        yield from _module(inner.words, argv[: len(argv) - len(inner.words)], before)
    elif PurePath(argv[0]).name in SHELLS and inner.option == "-c":
        yield from _in_text("".join(inner.words[:1]), None, read, depth)
    elif PurePath(argv[0]).name in SHELLS:
        yield from _in_script(inner.words[0], read, depth)


def _in_script(name: str, read: ReadScript, depth: int) -> Iterator[Call]:
    text = read(name)
    if text is not None:
        yield from _in_text(text, name, read, depth)


def _in_text(text: str, script: str | None, read: ReadScript, depth: int) -> Iterator[Call]:
    knows_nodes = _OF_NODES.search(text) is not None
    for command in read_commands(text):
        place = f"{script}, line {command.line}" if script else f"the text of -c, line {command.line}"
        for call in _find(command.words, read, (), depth - 1):
            yield replace(call, place=call.place or place, knows_nodes=call.knows_nodes or knows_nodes)


def named_launcher(argv: tuple[str, ...]) -> str | None:
    """Return the launcher among the arguments of an unknown program, as in ``./with-modules torchrun train.py``."""
    name = PurePath(argv[0]).name
    if name in WRAPPERS or name in SHELLS or is_python(name) or name.endswith(".py"):
        return None
    behind = (argv[index:] for index in range(1, len(argv)) if PurePath(argv[index]).name in BY_NAME)
    return next((call.title for words in behind for call in _find(words, lambda _: None, (), 1)), None)
