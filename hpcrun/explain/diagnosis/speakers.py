"""Which process wrote a line of a shared log, by the prefix that a launcher puts in front of the line. Pure."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
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
    r"|\[(?:default|trainer|worker)(?P<local>\d{1,7})(?:\|\d{1,7})?\]: ?"  # torchrun --tee: a role, and the local rank
    r"|\[rank[=:] ?(?P<said>\d{1,7})\] \|\| "  # Determined
)
_BEHIND = re.compile(f"{_OUTER}(?:{_TORCHS})")
_LEADS = re.compile(
    _TORCHS
    # mpirun --tag-output, also of Open MPI 5; horovodrun, with a date
    + r"|(?:[A-Z][a-z]{2} [A-Z][a-z]{2} [ \d]\d [\d:]{8} \d{4})?"
    r"\[(?:[\w.-]{1,60}@)?(?:\d+,)?(?P<mpi>\d{1,7})\](?:<std\w+>:|\[[\w.-]+\]: )"
    r"|\((?P<actor>(?:\w[\w.:]*(?:\[rank=(?P<ray>\d{1,7})\])? )?(?:pid|rank)=\d+[^)]{0,80})\) "  # ray
    r"|(?: {0,5}|[A-Za-z][\w-]*\d[\w-]*\.[\w.-]{3,60} )(?P<task>\d{1,6}): "  # srun --label; PALS adds the host
    # pdsh, as deepspeed calls it
    r"|(?P<host>\d{1,3}(?:\.\d{1,3}){3}|(?!\S*(?:Error|Exception): )[A-Za-z][\w-]*\d[\w.-]*): (?=\S|  )"
)
_NAMED_BY_MOST = ("task", "host")
"""Prefixes that may be words of the program: they count only if most lines have one, and there are several."""
_RANK_NAME = re.compile(r"(?:rank|task|worker|proc|local_rank)[-_.]?(\d{1,6})(?!\d)|_(\d{1,6})_log\.\w+$")
"""Names of logs that tell whose they are: those of hpcrun and torchrun's like, and submitit's ``4711_0_log.err``."""
_RANK_FOLDER = re.compile(r"(?:^|/)(\d{1,6})/std(?:out|err)\.log$")
"""torchrun --log-dir: attempt_0/3/stderr.log."""
_FILE_BEGINS = re.compile(r"==> (?P<name>.{1,400}) <==$")
"""What head and tail write above each of several files."""
_MOST = 0.6
_LONGEST_LEAD = 120
_DEEPEST = 2


@dataclass(frozen=True, slots=True)
class Speaker:
    """The process that wrote a line: a rank, or a host or an actor with a name.

    Attributes:
        kind: of its prefix: ``torch``, ``local``, ``said``, ``mpi``, ``task``, ``actor`` or ``host``; or ``file``.
    """

    kind: str
    name: str

    @property
    def rank(self) -> int | None:
        """Its number; None where only a host or an actor is named."""
        return int(self.name) if self.name.isdigit() else None

    @property
    def is_local(self) -> bool:
        """Whether its number counts the processes of one node."""
        return self.kind == "local"

    @property
    def may_be_a_node(self) -> bool:
        """Whether its number is that of a launcher's task: of a rank, or of a program that starts a node's ranks."""
        return self.kind in ("task", "mpi")


def rank_of_file(name: str) -> int | None:
    """Return the rank whose log a file is, by its name; None if the name does not tell."""
    found = _RANK_FOLDER.search(name) or _RANK_NAME.search(name.rpartition("/")[2])
    return int(next(filter(None, found.groups()))) if found else None


def by_files(lines: Sequence[str], speakers: Sequence[Speaker | None]) -> tuple[Speaker | None, ...]:
    """Return who says each line, where head or tail has put logs of several ranks one behind the other."""
    found: list[Speaker | None] = []
    file = None
    for line, speaker in zip(lines, speakers, strict=True):
        if match := _FILE_BEGINS.match(line):
            rank = rank_of_file(match["name"])
            file = None if rank is None else Speaker("file", str(rank))
        found.append(speaker or file)
    return tuple(found)


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
        name = match[kind] if kind != "actor" or match["ray"] is None else match["ray"]
        speaker, line = Speaker(kind, name), line[match.end() :]
    return line, speaker


def speakers_of(lines: Sequence[Speaker | None]) -> list[Speaker]:
    """Return the processes that write into a log, sorted by kind and rank; empty if no line names one."""
    said = Counter(speaker for speaker in lines if speaker is not None)
    total = max(1, len(lines))
    for kind in _NAMED_BY_MOST:
        mine = {speaker: count for speaker, count in said.items() if speaker.kind == kind}
        if len(mine) < 2 or sum(mine.values()) < _MOST * total:
            for speaker in mine:
                del said[speaker]
    return sorted(said, key=lambda one: (one.kind, one.rank or 0, one.name))
