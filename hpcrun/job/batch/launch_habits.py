"""Likely mistakes in the launch of a batch script on several nodes. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from hpcrun.job.launcher.launch_line import LaunchLine, number_of
from hpcrun.job.text.shell_text import Word

_LOCAL = re.compile(r"(localhost|127(\.\d+){3}|\[?::1\]?)(:.*)?")
# at the beginning: a command may make a name of the list, $(scontrol show hostnames ... | head -1)
_NODE_LIST = re.compile(r'"?\$\{?SLURM_(JOB_)?NODELIST\}?')
_NODE_NUMBER = re.compile(r"\$\{?SLURM_(NODEID|PROCID)\}?")
_FIRST_NODE = '"$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)"'


@dataclass(frozen=True, slots=True)
class PlacedLaunch:
    """A launch line of a script, its number, and its words as written."""

    number: int
    line: LaunchLine
    words: Sequence[Word]


def launch_habits(launches: Sequence[PlacedLaunch], nodes: int) -> Iterator[str]:
    """Yield the likely mistakes in the torchrun of a script on several nodes."""
    if nodes == 1:
        return
    by_srun = any(launch.line.by_srun for launch in launches)
    for launch in launches:
        if launch.line.starter != "torchrun":
            continue
        if launch.line.by_srun:
            problems = list(_problems(launch, nodes))
        elif by_srun:
            problems = []  # a script for one node and for several
        else:
            problems = [
                f"torchrun starts on the first of {nodes} nodes alone: put srun "
                "--ntasks-per-node=1 before it"
            ]
        for problem in problems:
            yield f"line {launch.number}: {problem}"


def _problems(launch: PlacedLaunch, nodes: int) -> Iterator[str]:
    """Yield what is wrong with the options of a torchrun that srun starts on each node."""
    options = launch.line.torchrun
    static = options.get("rdzv-backend") in (None, "static")
    endpoint = "rdzv-endpoint" if "rdzv-endpoint" in options else "master-addr"
    place = options.get(endpoint)
    is_local = _LOCAL.fullmatch(place or "") is not None
    if trains_alone(options):
        yield f"each of the {nodes} nodes trains alone: give torchrun --nnodes={nodes}"
    elif is_local:
        yield (
            f"--{endpoint}={place}: each of the {nodes} nodes waits for the others on "
            f"itself: give it the first node, {_FIRST_NODE}"
        )
    elif _NODE_LIST.match(_as_written(launch.words, endpoint)):
        yield (
            f"--{endpoint}: Slurm's list of nodes, such as node[1-2], is no name of a node: give "
            f"it the first node, {_FIRST_NODE}"
        )
    elif static and _NODE_NUMBER.search(_as_written(launch.words, "node-rank")):
        yield (
            "--node-rank is the same on all nodes, since the batch script's shell fills in the "
            "number of its own node: give torchrun --rdzv-backend=c10d --rdzv-endpoint "
            "instead"
        )


def trains_alone(options: Mapping[str, str | None]) -> bool:
    """Return whether a torchrun with these options surely meets no torchrun of another node."""
    if "standalone" in options:
        return True
    place = options.get("rdzv-endpoint", options.get("master-addr"))
    is_alone = place is None or _LOCAL.fullmatch(place) is not None
    return is_alone and number_of(options.get("nnodes") or "1") == 1


def _as_written(words: Sequence[Word], option: str) -> str:
    """Return the value of an option as the script has it; empty without it."""
    waits = False
    for item in words:
        if waits:
            return item.text
        name, equals, value = item.text.partition("=")
        if name.lstrip("-").replace("_", "-") == option:
            if equals:
                return value
            waits = True
    return ""
