"""What launchers write into a log. Pure.

This is the process in front of each line, and reports of the first failure.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

_OUTER = (
    r"(?:std(?:err|out): "  # accelerate test
    r"|[\w.-]{1,60}/\d{1,6} "  # torchx: trainer/0
    r"|\[?\d[\d:.,TZ/+ -]{1,34}\]?[ -]{0,3}(?:[\w./-]{1,40} (?:- )?){0,3})?"  # a time, and who logs
)
"""What collects the output of several processes may add in front of torch's own prefix."""
_WITH_OUTER = ("[rank", "[default", "[trainer", "[worker")
_TORCHS = (
    r"\[rank(?P<torch>\d{1,7})(?:\|\d{1,7})?\]: ?"  # torch's own
    # torchrun --tee: a role, and the local rank
    r"|\[(?:default|trainer|worker)(?P<local>\d{1,7})(?:\|\d{1,7})?\]: ?"
    r"|\[rank[=:] ?(?P<said>\d{1,7})\] \|\| "  # Determined
)
_BEHIND = re.compile(f"{_OUTER}(?:{_TORCHS})")
_LEADS = re.compile(
    _TORCHS
    # mpirun --tag-output, also of Open MPI 5; horovodrun, with a date
    + r"|(?:[A-Z][a-z]{2} [A-Z][a-z]{2} [ \d]\d [\d:]{8} \d{4})?"
    r"\[(?:[\w.-]{1,60}@)?(?:\d+,)?(?P<mpi>\d{1,7})\](?:<std\w+>:|\[[\w.-]+\]: )"
    # ray; vllm: (VllmWorker rank=3 pid=866), (Worker_TP3 pid=866)
    r"|\((?P<actor>(?:(?:Worker_TP(?P<vllm>\d{1,4})|\w[\w.:]*(?:\[rank=(?P<ray>\d{1,7})\]"
    r"| rank=(?P<worker>\d{1,7}))?) )?(?:pid|rank)=\d+[^)]{0,80})\) "
    # srun --label; PALS adds the host
    r"|(?: {0,5}|[A-Za-z][\w-]*\d[\w-]*\.[\w.-]{3,60} )(?P<task>\d{1,6}): "
    # pdsh, as deepspeed calls it
    r"|(?P<host>\d{1,3}(?:\.\d{1,3}){3}|(?!\S*(?:Error|Exception): )[A-Za-z][\w-]*\d[\w.-]*): "
    r"(?=\S|  )"
)
_NAMED_BY_MOST = ("task", "host")
"""Prefixes that may be words of the program: they count only if most lines have one, and there are
several.
"""
_RANK_NAME = re.compile(
    r"(?:rank|task|worker|proc|local_rank)[-_.]?(\d{1,6})(?!\d)|_(\d{1,6})_log\.\w+$"
)
"""Names of logs that tell whose they are: those of hpcrun and torchrun's like, and submitit's
``4711_0_log.err``.
"""
_RANK_FOLDER = re.compile(r"(?:^|/)(\d{1,6})/std(?:out|err)\.log$")
"""torchrun --log-dir: attempt_0/3/stderr.log."""
_MOST = 0.6
_LONGEST_LEAD = 120
_DEEPEST = 2
# torch/distributed/elastic/multiprocessing/errors/__init__.py
_ROOT = "Root Cause (first observed failure):"
_ON = r"\s*\n(?:.*\n){0,2}?.*\b"
_ENTRY = re.compile(
    r"^(?:.*(?P<root>"
    + re.escape(_ROOT)
    + rf")\s*\n(?:.*\n){{0,1}}?)?.*\btime\s*: (?P<time>\S+){_ON}host\s*: (?P<host>\S+)"
    rf"{_ON}rank\s*: (?P<rank>\d{{1,7}}).*{_ON}exitcode\s*: (?P<exitcode>\S+).*"
    rf"(?:{_ON}traceback\s*: (?P<message>(?:.*\n){{1,60}}?)(?=.*[=-]{{20}}|.*\[\d+\]:|\Z))?",
    re.MULTILINE,
)
"""A rank in a report, whose lines may be mixed with those of others."""
# Slurm's src/srun/launch.c
NODE_FAILED = re.compile(r"\bNode failure on (?P<node>\S+)")
_TASK = re.compile(r"srun: error: (?P<node>\S+): tasks? (?P<tasks>[\d,-]+): (?P<how>.+)")
# torch.distributed.launch before 1.9 and deepspeed name the process that they started last,
# whichever failed: local rank 0 is the only one of its node. These count the processes of a node.
_LOCAL = re.compile(
    r"(?:CalledProcessError: Command|\bERROR\b.*\blaunch\.py:) .*'--local[_-]rank=(?P<only>0)'"
    r"|\bprocess (?P<spawned>\d{1,4}) terminated with (?:signal|exit code) "
    r"|\[rank: (?P<lightning>\d{1,4})\] Child process with PID \d+ terminated with code "
)
_RANK = re.compile(
    r"Rank (?P<composer>\d{1,6}) crashed with exit code"
    r"|process rank (?P<mpirun>\d{1,7}) with PID \d+ .*(?:exited on signal (?:[1-9]|1[0-46-9]) "
    r"|exiting improperly)"
    r"|MPI_ABORT was invoked on rank (?P<abort>\d{1,7}) in communicator"
    r"|^ *Process name: \[(?:\[\d+,\d+\],|[\w.-]+@\d+,)(?P<openmpi>\d{1,7})\]"
    r"|^= +RANK (?P<intel>\d{1,7}) PID \d+ RUNNING AT "
    # MPICH and its relatives, Cray's aprun and PALS, IBM's jsrun
    r"|application called MPI_Abort\(.{0,60}\) - process (?P<mpich>\d{1,7})"
    r"|\b[Rr]ank (?P<mpd>\d{1,7}) in job \d+ .{1,80} caused collective abort"
    r"|^rank (?P<pals>\d{1,7}) (?:died from signal (?!15\b)|exited with code [1-9])"
    r"|\bPE RANK (?P<aprun>\d{1,7}) exit signal (?!Terminated)"
    r"|\(first noticed rank (?P<jsrun>\d{1,7})\) terminated with signal "
    # the coordination service of JAX
    r"|/replica:0/task:(?P<jax>\d{1,7}) (?:unexpectedly tried to connect|has been set to "
    r"ERROR|heartbeat timeout)"
)
# what starts the ranks of one node: torchrun, torch.distributed.launch, accelerate, deepspeed,
# composer, mp.spawn
_STARTS_RANKS = re.compile(
    r"torch/distributed/(?:run|launch)\.py|torch/distributed/launcher/|torch\.distributed\.(?:run"
    r"|launch)\b"
    r"|ChildFailedError|failed \(exitcode: -?\d+\) local_rank|"
    + re.escape(_ROOT[:-1])
    + r"|distributed/elastic/agent"
    r"|accelerate/commands/launch\.py|\[launch\.py:\d|deepspeed/launcher/launch\.py"
    r"|composer\.cli\.launcher"
    r"|torch/multiprocessing/spawn\.py|^-- Process \d+ terminated with the following error"
)
_SEVERAL = re.compile(
    r"--nnodes[= ](?:\d+:)?(?!1\b)\d|\bnnodes=(?!1\b)\d|--num[_-](?:machines|nodes)[= ](?!1\b)\d"
    r"|(?:\bnode_rank=|--node[_-]rank[= ]|--machine[_-]rank[= ])(?!0\b)\d|on the following "
    r"workers: [^,\s]+,"
    # no node has more than 16 GPUs: Lightning, NCCL
    r"|\bGLOBAL_RANK: \d+, MEMBER: \d+/(?:1[7-9]|[2-9]\d|\d{3,6})\b|\bnranks "
    r"(?:1[7-9]|[2-9]\d|\d{3,6})\b"
)
"""Words which show that ranks are on several nodes: then a local rank is not the rank."""
_WORDS_OF_LAUNCHERS = ("torch", "launch", "Process", "exitcode", "Root Cause", "ChildFailed")
_WORDS_OF_NODES = ("node", "machine", "rank ", "RANK", "nranks", "srun", "workers")
_WORDS_OF_RANKS = ("rank", "Rank", "RANK", "rocess", "/task:", "srun")
"""One of them is in each line that the patterns above match: lines without one cost no search of a
pattern.
"""
_PLACE = re.compile(r"^\s*rank\s*: (?P<rank>\d{1,7}) \(local_rank: (?P<local>\d{1,4})\)")
_LONGEST = 2000
"""Characters of a line in which a launcher names a rank: more would take time that grows with their
square.
"""
_WAITED_IN_ORDER = "cmd=process.args"
"""torch.distributed.launch before 1.2 waits for its processes in their order: one that failed first
may come later.
"""
_AGENT = re.compile(r"failed \(exitcode: (?P<code>-?\d+)\) local_rank: (?P<local>\d{1,4}) \(pid")
TORN_DOWN = "-15"
_TERMINATED = ("Terminated", "exit code 143")


@dataclass(frozen=True, slots=True)
class Speaker:
    """The process that wrote a line: a rank, or a host or an actor with a name.

    Attributes:
        kind: of its prefix: ``torch``, ``local``, ``said``, ``mpi``, ``task``, ``actor`` or
            ``host``.
    """

    kind: str
    name: str

    @property
    def rank(self) -> int | None:
        """Its number; None where only a host or an actor is named."""
        return int(self.name) if self.name.isdigit() else None

    @property
    def may_be_a_node(self) -> bool:
        """Whether the number is the number of a launcher's task.

        Such a task is a rank, or a program that starts a node's ranks.
        """
        return self.kind in ("task", "mpi")


def rank_of_file(name: str) -> int | None:
    """Return the rank whose log a file is, by its name; None if the name does not tell."""
    match = _RANK_FOLDER.search(name) or _RANK_NAME.search(name.rpartition("/")[2])
    return int(next(filter(None, match.groups()))) if match else None


def without_lead(line: str) -> tuple[str, Speaker | None]:
    """Return a line without its prefix, and the process that the prefix names."""
    speaker = None
    for _ in range(_DEEPEST):  # srun --label before torch's own
        head = line[:_LONGEST_LEAD]
        match = _LEADS.match(head)
        if any(mark in head for mark in _WITH_OUTER):
            match = _BEHIND.match(head) or match
        if match is None:
            break
        kind = match.lastgroup or ""
        if kind == "actor":
            numbers = [match["ray"], match["vllm"], match["worker"]]
        else:
            numbers = []
        name = next(filter(None, numbers), match[kind])
        speaker, line = Speaker(kind, name), line[match.end() :]
    return line, speaker


def speakers_of(lines: Sequence[Speaker | None]) -> list[Speaker]:
    """Return the processes that write into a log, sorted by kind and rank.

    The list is empty if no line names a process.
    """
    counts = Counter(speaker for speaker in lines if speaker is not None)
    total = max(1, len(lines))
    for kind in _NAMED_BY_MOST:
        mine = {speaker: count for speaker, count in counts.items() if speaker.kind == kind}
        if len(mine) < 2 or sum(mine.values()) < _MOST * total:
            for speaker in mine:
                del counts[speaker]
    return sorted(counts, key=lambda one: (one.kind, one.rank or 0, one.name))


@dataclass(frozen=True, slots=True)
class Failure:
    """A rank that failed, by the report of its node's torchrun.

    Attributes:
        position: of its first line, or of the heading above it.
        is_root: torchrun saw it first; of those in the same second it names the one with the lowest
            number.
        time: in torchrun's form, ``2026-11-21_10:00:00``; sorted by text is sorted by time.
        exitcode: ``-9`` for signal 9.
        message: the traceback of the rank in torch's error file, else torchrun's own lines.
    """

    position: int
    is_root: bool
    time: str
    host: str
    rank: int
    exitcode: str
    message: str = ""


def _with(words: Sequence[str], lines: Iterable[str]) -> Iterator[str]:
    """Yield the beginnings of the lines that have one of some words."""
    return (line[:_LONGEST] for line in lines if any(part in line for part in words))


def starts_ranks(lines: Iterable[str]) -> bool:
    """Return whether a line is from a program that starts the ranks of one node.

    A task of srun is then a node.
    """
    return any(_STARTS_RANKS.search(line) for line in _with(_WORDS_OF_LAUNCHERS, lines))


def of_several_nodes(lines: Iterable[str]) -> bool:
    """Whether the lines show that the ranks of a job are on several nodes."""
    hosts: set[str] = set()
    for text in _with(_WORDS_OF_NODES, lines):
        match = _TASK.search(text)
        if match:
            hosts.add(match["node"])
        place = _PLACE.match(text)
        if len(hosts) > 1 or (place and place["rank"] != place["local"]) or _SEVERAL.search(text):
            return True
    return False


def failures(lines: Sequence[str]) -> list[Failure]:
    """Return what torchrun reports of each rank that failed; nothing without a root cause."""
    if not any(_ROOT in line for line in lines):
        return []
    text = "\n".join([*lines, ""])
    return [
        Failure(
            text.count("\n", 0, entry.start()),
            entry["root"] is not None,
            entry["time"],
            entry["host"],
            int(entry["rank"]),
            entry["exitcode"],
            entry["message"] or "",
        )
        for entry in _ENTRY.finditer(text)
    ]


def first_failure(lines: Sequence[str]) -> Failure | None:
    """Return the earliest root cause in the reports of all nodes.

    A terminated rank does not count.
    """
    roots = [one for one in failures(lines) if one.is_root]
    return min(roots, key=lambda root: (root.exitcode == TORN_DOWN, root.time), default=None)


def failed_with(first: Failure, lines: Sequence[str]) -> list[int]:
    """Return the ranks that torchrun saw fail in the same second as one of them."""
    together = {
        one.rank for one in failures(lines) if one.time == first.time and one.exitcode != TORN_DOWN
    }
    return sorted(together)


def failed_task(
    lines: Sequence[str],
    *,
    tasks_are_ranks: bool,
    several_nodes: bool = False,
    several: bool = False,
) -> int | None:
    """Return the rank that srun or another launcher saw fail first.

    The result is None if several failed at once. Other launchers name a rank of the job or of the
    node in their reports.

    Args:
        lines: the lines of a log without a rank.
        tasks_are_ranks: srun starts the ranks, and no program that starts those of a node.
        several_nodes: a number that counts the processes of a node is not the rank.
        several: several processes failed alike: torchrun's agent names the one with the lowest
            number.
    """
    tasks_are_ranks = tasks_are_ranks and not _passed_on(lines)
    several_nodes = several_nodes or any(_WAITED_IN_ORDER in line for line in lines)
    for line in _with(_WORDS_OF_RANKS, lines):
        if tasks_are_ranks and (match := _failed_task(line)):
            return int(match["tasks"]) if match["tasks"].isdigit() else None
        match = _RANK.search(line)
        if match:
            named = {
                one[match.lastgroup or 0]
                for text in lines
                if (one := _RANK.search(text[:_LONGEST]))
            }
            if len(named) == 1:
                return int(next(filter(None, match.groups())))
            return None
        match = _LOCAL.search(line)
        if match:
            if several_nodes:
                return None
            return int(next(filter(None, match.groups())))
    agents = {
        match["local"] for line in _with(_WORDS_OF_RANKS, lines) if (match := _AGENT.search(line))
    }
    if len(agents) == 1 and not (several_nodes or several):
        return int(agents.pop())
    return None


def _passed_on(lines: Sequence[str]) -> bool:
    """Whether the reports of srun do not tell which rank failed first.

    Several tasks returned an exit status, or the only one that is named is task 0: that may be a
    launcher of the ranks.
    """
    tasks = [match for line in _with(("srun",), lines) if (match := _TASK.search(line))]
    failed = [match for match in tasks if not match["how"].endswith(_TERMINATED)]
    alike = len({match["tasks"] for match in failed if match["how"] == failed[0]["how"]}) > 1
    return alike or (
        len(tasks) == 1 and tasks[0]["tasks"] == "0" and tasks[0]["how"].startswith("Exited")
    )


def how_it_ended(lines: Sequence[str]) -> str:
    """Return how the first task ended.

    The text has srun's words, or the exit status with which torchrun's agent of one node saw a
    process end. It is empty if nothing tells, or if the agent saw several.
    """
    task = first_task(lines)
    if task is not None:
        return f": {task[2].partition('srun: error: ')[2]}"
    codes = {
        match["code"]
        for line in _with(_WORDS_OF_LAUNCHERS, lines)
        if (match := _AGENT.search(line))
    }
    if len(codes) == 1:
        return f" with exit status {codes.pop()}"
    return ""


def first_task(lines: Sequence[str]) -> tuple[int, str, str] | None:
    """Return position, node and message of the task that srun saw fail first."""
    tasks = ((place, line, _failed_task(line)) for place, line in enumerate(lines))
    return next(
        ((place, match["node"], line.strip()) for place, line, match in tasks if match), None
    )


def _failed_task(line: str) -> re.Match[str] | None:
    match = _TASK.search(line)
    if match is None or match["how"].endswith(_TERMINATED):
        return None
    return match
