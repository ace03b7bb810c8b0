"""Several torchruns on one node, of which all but one find no place in the rendezvous."""

from __future__ import annotations

import re
from dataclasses import dataclass

from hpcrun.explain.diagnosis.facts import Diagnosis, Facts
from hpcrun.job.text.units import index_ranges

_RULES = frozenset({"rendezvous-unreachable", "store-unreachable", "port-in-use"})
_TASKS = re.compile(r"srun: error: (?P<node>[\w.-]+): tasks? (?P<tasks>\d[\d,-]*): Exited with ")
_AGENT = "torch/distributed/run.py"
_NOT_MET = re.compile(
    r"Rendezvous(?:Closed|Connection|Timeout)Error|EADDRINUSE"
    r"|AttributeError: 'NoneType' object has no attribute 'is_failed'"  # torch's, of a closed one
)
"""How a torchrun ends that has found no place, by when the first one ended."""
_MOST = 4096


@dataclass(frozen=True, slots=True)
class ManyAgents:
    """The tasks of srun on one node that have run torchrun and failed."""

    node: str
    tasks: tuple[int, ...]

    @property
    def summary(self) -> str:
        """What happened."""
        return (
            f"srun ran torchrun several times on {self.node} (tasks {index_ranges(self.tasks)} "
            "failed): torchrun starts all ranks of a node itself, and --nnodes counts torchruns"
        )

    def fix(self, nodes: int) -> str:
        """Return what to type for a job of so many nodes."""
        return (
            f"one task for each node: hpcrun submit --ntasks {nodes} --gpus-per-node N --cpus N "
            "SCRIPT, with the GPUs and CPUs of all tasks; or srun --ntasks-per-node=1 in the script"
        )


def many_agents(facts: Facts, diagnosis: Diagnosis) -> ManyAgents | None:
    """Return the torchruns that srun has started on one node; None if there is no sign of it.

    srun names the failed tasks of each node, and a failure to meet is that of torchrun.
    """
    cause = diagnosis.cause
    if cause is None and diagnosis.first is not None:
        return None
    if cause is not None and cause.rule.name not in _RULES:
        return None
    tasks: dict[str, set[int]] = {}
    is_torchrun = False
    has_not_met = False
    for log in facts.logs:
        for line in log.scan.tail:
            is_torchrun = is_torchrun or _AGENT in line
            has_not_met = has_not_met or _NOT_MET.search(line) is not None
            match = _TASKS.search(line)
            if match:
                tasks.setdefault(match["node"], set()).update(_numbers(match["tasks"]))
    for node, numbers in tasks.items():
        if is_torchrun and has_not_met and len(numbers) > 1:
            return ManyAgents(node, tuple(sorted(numbers)))
    return None


def _numbers(text: str) -> set[int]:
    """Return the numbers of a list such as ``0,2-3``."""
    numbers: set[int] = set()
    for part in text.split(","):
        first, _, last = part.partition("-")
        if first.isdigit():
            end = int(last) if last.isdigit() else int(first)
            numbers.update(range(int(first), min(end, int(first) + _MOST) + 1))
    return numbers
