"""Programs that start the ranks of a training themselves, or submit jobs: a table, and the search for them.

As the program of a job, each would be started once per rank, and start all ranks each time. Pure: no I/O.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import PurePath
from typing import Literal

from hpcrun.job.command_words import SHELLS, WRAPPERS, Inner, interpreted, is_python, unwrapped
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

    ``read_script`` returns the text of a shell script by its name as written, None for another file.
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
    name = PurePath(argv[0]).name or argv[0]
    inner = unwrapped(argv) if name in WRAPPERS else interpreted(argv)
    if name in BY_NAME:
        yield from _called(BY_NAME[name], argv, argv[1:], before)
    elif inner and inner.option == "-m":
        if launcher := BY_MODULE.get(inner.words[0]):
            yield from _called(launcher, argv, inner.words[1:], before)
    elif name in WRAPPERS:
        if inner:
            yield from _find(inner.words, read, (*before, *argv[: len(argv) - len(inner.words)]), depth)
    elif name in SHELLS or not inner:  # Python's own text is not read
        text, script = _shell_text(argv, inner, read)
        for command in read_commands(text):
            place = f"{script or 'the text of -c'}, line {command.line}"
            for call in _find(command.words, read, (), depth - 1):
                knows_nodes = call.knows_nodes or _OF_NODES.search(text) is not None
                yield replace(call, place=call.place or place, knows_nodes=knows_nodes)


def _called(
    launcher: Launcher, argv: tuple[str, ...], rest: tuple[str, ...], before: tuple[str, ...]
) -> Iterator[Call]:
    title = argv[: len(argv) - len(rest)]
    if launcher.subcommands:
        if not rest or rest[0] not in launcher.subcommands:
            return
        title, rest = (*title, rest[0]), rest[1:]
    if not (len(rest) == 1 and rest[0] in _HELP):
        yield Call(launcher, rest, " ".join(title), before)


def _shell_text(argv: tuple[str, ...], inner: Inner | None, read: ReadScript) -> tuple[str, str | None]:
    """Return the shell text that a command runs, empty for none, and the name of its script."""
    if inner and inner.option:
        return "".join(inner.words[:1]), None
    if argv[0] == "eval":
        return " ".join(argv[1:]), None
    script = inner.words[0] if inner else argv[1] if argv[0] in ("source", ".") and argv[1:] else argv[0]
    return read(script) or "", script


def named_launcher(argv: tuple[str, ...]) -> str | None:
    """Return the launcher among the arguments of an unknown program, as in ``./with-modules torchrun train.py``."""
    name = PurePath(argv[0]).name
    if name in WRAPPERS or name in SHELLS or is_python(name) or name.endswith(".py"):
        return None
    behind = (argv[index:] for index in range(1, len(argv)) if PurePath(argv[index]).name in BY_NAME)
    return next((call.title for words in behind for call in _find(words, lambda _: None, (), 1)), None)
