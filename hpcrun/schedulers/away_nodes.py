"""The nodes that a job waits for: those with what it needs that are drained, down or reserved.

``sbatch --test-only`` refuses such a job with the words that it has for a job that fits no node
("Requested node configuration is not available"); without ``--test-only`` sbatch accepts it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from hpcrun.job.text.units import parse_memory
from hpcrun.machine.process import SlurmSite
from hpcrun.schedulers.cluster_facts import MEMORY_NOT_SET, Gpus, parse_gres
from hpcrun.schedulers.slurm_text import SEPARATOR, known_text, rows_of, whole_number

# sinfo(1): node, partition (the default one with a star), state, reason, generic resources, CPUs,
# memory
_FIELDS = ("%N", "%P", "%T", "%E", "%G", "%c", "%m")
_RESERVED = ("reserved", "maint")
_AWAY = re.compile(r"(down|drain|fail|error|maint|reserved|unknown).*|.*\*", re.ASCII)
# sbatch's words for a job that fits no node, or waits for one (slurm_errno.c)
_MAY_WAIT = re.compile(
    r"node configuration is not available|nodes? not available|nodes are busy", re.IGNORECASE
)
# directive → the same as a generic resource
_GPU_DIRECTIVES = {"gres": "{}", "gpus-per-node": "gpu:{}"}
_MOST_NAMED = 4


@dataclass(frozen=True, slots=True)
class ListedNode:
    """A node in one of its partitions, as Slurm lists it now."""

    name: str
    partition: str
    state: str  # in sinfo's words, such as ``drained`` or ``idle*``
    reason: str | None  # why it has this state, by an administrator or by Slurm
    gpus: Gpus
    cpus: int | None
    memory_mb: int | None

    @property
    def words(self) -> str:
        """Its name and state, and the reason."""
        text = f"{self.name} is {self.state}"
        return f"{text} ({self.reason})" if self.reason else text


@dataclass(frozen=True, slots=True)
class Need:
    """What a job needs of each of its nodes, and of how many."""

    nodes: int
    gpus: Gpus
    cpus: int
    memory_mb: int

    def is_met_by(self, node: ListedNode) -> bool:
        """Whether a node has all of it; what is not known of a node is enough."""
        for type_, count in self.gpus:
            held = [number for name, number in node.gpus if type_ in (None, name)]
            if sum(held) < count:
                return False
        has_cpus = node.cpus is None or node.cpus >= self.cpus
        return has_cpus and (node.memory_mb is None or node.memory_mb >= self.memory_mb)


def may_wait(message: str) -> bool:
    """Return whether sbatch says of a job that fits no node what it says of one that waits."""
    return _MAY_WAIT.search(message) is not None


def nodes_words(nodes: Sequence[ListedNode]) -> str:
    """Return the first nodes with their states and reasons, and how many more there are."""
    text = ", ".join(node.words for node in nodes[:_MOST_NAMED])
    more = len(nodes) - _MOST_NAMED
    return f"{text}, and {more} more" if more > 0 else text


class AwaitedNodes:
    """The nodes that jobs wait for: Slurm is asked once, and once for each ``--nodelist``."""

    def __init__(self, site: SlurmSite) -> None:
        self._site = site
        self._listings: dict[str, list[ListedNode]] = {}

    def of_job(self, directives: Iterable[tuple[str, Any]]) -> tuple[ListedNode, ...]:
        """Return the nodes that keep a job from starting, since no job can start there now.

        Returns:
            The nodes; none if enough others have what the job needs, if even with these there are
            too few, or if Slurm does not show its nodes.
        """
        values = {key: str(value or "") for key, value in directives}
        nodelist = values.get("nodelist", "")
        if nodelist not in self._listings:
            self._listings[nodelist] = self._listed(nodelist)
        listed = _in_partitions(self._listings[nodelist], values.get("partition", ""))
        return choose_awaited(listed, values)

    def _listed(self, nodelist: str) -> list[ListedNode]:
        # --all: a job may wait in a hidden partition
        command = ["sinfo", "--all", "--Node", "--noheader"]
        command.append(f"--format={SEPARATOR.join(_FIELDS)}")
        if nodelist:
            command.append(f"--nodes={nodelist}")
        answer = self._site.run(command)
        return parse_listed(answer.stdout if answer.ok else "")


def _in_partitions(listed: Sequence[ListedNode], partitions: str) -> list[ListedNode]:
    """Return each node of a job's partitions once; without a name they are the default one."""
    names = partitions.split(",")
    of_job = {}
    for node in listed:
        is_default = node.partition.endswith("*")
        if node.partition.rstrip("*") in names or (is_default and not partitions):
            of_job[node.name] = node
    return list(of_job.values())


def choose_awaited(
    listed: Sequence[ListedNode], directives: Mapping[str, str]
) -> tuple[ListedNode, ...]:
    """Return which of the nodes of a job's partitions, or of its --nodelist, it waits for."""
    need = need_of(directives)
    fitting = [node for node in listed if need.is_met_by(node)]
    away = []
    for node in fitting:
        is_own = node.state.startswith(_RESERVED) and directives.get("reservation")
        if _AWAY.fullmatch(node.state) and not is_own:
            away.append(node)
    has_enough = len(fitting) - len(away) >= need.nodes and not directives.get("nodelist")
    if has_enough or len(fitting) < need.nodes:
        return ()
    return tuple(away)


def need_of(directives: Mapping[str, str]) -> Need:
    """Return what a job with these directives needs of nodes."""
    nodes = whole_number(directives.get("nodes", "").partition("-")[0]) or 1
    gpus: Gpus = ()
    for key, form in _GPU_DIRECTIVES.items():
        if key in directives:
            gpus = parse_gres(form.format(directives[key]))
    if "gpus" in directives:  # of the whole job
        of_job = parse_gres(f"gpu:{directives['gpus']}")
        gpus = tuple((type_, count // nodes) for type_, count in of_job)
    cpus = whole_number(directives.get("cpus-per-task")) or 1
    tasks = whole_number(directives.get("ntasks-per-node")) or 1
    memory_mb = 0
    with suppress(ValueError):
        memory_mb = parse_memory(directives.get("mem", "0"))
    return Need(nodes, gpus, cpus * tasks, memory_mb)


def parse_listed(text: str) -> list[ListedNode]:
    """Read sinfo's list of nodes; other lines are ignored."""
    nodes = []
    for name, partition, state, reason, gres, cpus, memory in rows_of(text, len(_FIELDS)):
        known_reason = None if reason == "none" else known_text(reason)
        memory_mb = whole_number(memory)
        if memory_mb == MEMORY_NOT_SET:
            memory_mb = None
        node = ListedNode(
            name,
            partition,
            state,
            known_reason,
            parse_gres(gres),
            whole_number(cpus),
            memory_mb,
        )
        nodes.append(node)
    return nodes
