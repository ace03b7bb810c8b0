"""The messages of torchrun and srun about the first failure, in the batch script's log."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

# torch/distributed/elastic/multiprocessing/errors/__init__.py
_ROOT = "Root Cause (first observed failure):"
_FIELD = re.compile(r"^\s+(time|host|rank|exitcode|error_file|traceback)\s*: (.*)$")
_RULER = re.compile(r"^[=-]{20,}$")
# Slurm's src/srun/launch.c
_TASK = re.compile(r"srun: error: (?P<node>\S+): tasks? (?P<tasks>[\d,-]+): (?P<how>.+)")
# torch.distributed.launch before 1.9 and deepspeed name the process that they started last, whichever failed: local
# rank 0 is the only one of its node
_LOCAL = re.compile(
    r"(?:CalledProcessError: Command|\bERROR\b.*\blaunch\.py:) .*'--local[_-]rank=(?P<only>0)'"
    r"|Rank (?P<composer>\d{1,6}) crashed with exit code"
    r"|process rank (?P<mpirun>\d{1,7}) with PID \d+ .*(?:exited on signal (?:[1-9]|1[0-46-9]) |exiting improperly)"
    r"|MPI_ABORT was invoked on rank (?P<abort>\d{1,7}) in communicator"
    r"|^ *Process name: \[\[\d+,\d+\],(?P<openmpi>\d{1,7})\]"
    r"|^= +RANK (?P<intel>\d{1,7}) PID \d+ RUNNING AT "
    r"|\bprocess (?P<spawned>\d{1,4}) terminated with (?:signal|exit code) "
)
_LONGEST = 2000
"""Characters of a line in which a launcher names a rank: more would take time that grows with their square."""
_AGENT = re.compile(r"failed \(exitcode: -?\d+\) local_rank: (?P<local>\d{1,4}) \(pid")
TORN_DOWN = "-15"
_TERMINATED = ("Terminated", "exit code 143")


@dataclass(frozen=True, slots=True)
class RootCause:
    """The rank that a node's torchrun saw fail first.

    Attributes:
        time: in torchrun's form, ``2026-11-21_10:00:00``; sorted by text is sorted by time.
        exitcode: ``-9`` for signal 9.
        position: of its heading among the lines.
        words: the traceback of the rank in torch's error file, else torchrun's own message.
    """

    time: str
    host: str
    rank: int | None
    exitcode: str
    position: int
    words: tuple[str, ...] = ()


def first_root_cause(lines: Sequence[str]) -> RootCause | None:
    """Return the earliest root cause of all nodes' blocks; a terminated rank does not count."""
    found = [_read(lines, position) for position, line in enumerate(lines) if line.strip() == _ROOT]
    return min(found, key=lambda root: (root.exitcode == TORN_DOWN, root.time), default=None)


def _read(lines: Sequence[str], heading: int) -> RootCause:
    fields: dict[str, str] = {}
    words: list[str] = []
    for line in lines[heading + 1 : heading + 60]:
        if _RULER.match(line.strip()):
            break
        if match := _FIELD.match(line):
            fields[match[1]] = match[2]
            if match[1] == "traceback":
                words.append(match[2])
        elif words:
            words.append(line)
    rank = re.match(r"\d{1,7}", fields.get("rank", ""))
    code = fields.get("exitcode", "").split()
    return RootCause(
        fields.get("time", "~"),
        fields.get("host", "?"),
        int(rank[0]) if rank else None,
        code[0] if code else "?",
        heading,
        tuple(words),
    )


def failed_task(lines: Sequence[str]) -> int | None:
    """Return the rank that srun or another launcher saw fail first: a task is a rank if srun starts the ranks.

    None if several failed at once. Other launchers name a rank of the job or of the node in their reports.
    """
    for line in lines:
        if match := _failed_task(line):
            return int(match["tasks"]) if match["tasks"].isdigit() else None
        if match := _LOCAL.search(line[:_LONGEST]):
            return int(next(filter(None, match.groups())))
    agents = {match["local"] for line in lines if (match := _AGENT.search(line[:_LONGEST]))}
    return int(agents.pop()) if len(agents) == 1 else None


def first_task(lines: Sequence[str]) -> tuple[int, str, str] | None:
    """Return position, node and message of the task that srun saw fail first."""
    found = ((place, line, _failed_task(line)) for place, line in enumerate(lines))
    return next(((place, match["node"], line.strip()) for place, line, match in found if match), None)


def _failed_task(line: str) -> re.Match[str] | None:
    match = _TASK.search(line)
    return None if match is None or match["how"].endswith(_TERMINATED) else match
