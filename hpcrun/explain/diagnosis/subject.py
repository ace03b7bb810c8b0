"""The process that an exception is about, where another process raised it. Pure.

Such processes are actors, workers and children. The failure belongs to the process that is named.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from hpcrun.explain.diagnosis.facts import Diagnosis, Facts
from hpcrun.job.text.units import rank_text

_MESSAGE_LINES = 12
"""Lines behind that of an exception that may be more of its message."""
_REPORTS = re.compile(
    r"(?:ray\.exceptions\.)?(?:\w*Actor\w*Error|WorkerCrashedError|NodeDiedError|OwnerDiedError"
    r"|OutOfMemoryError: Task was killed)\b"
    r"|(?:\w+\.)*Process(?:Exited|Raised)Exception|(?:\w+\.)*BrokenProcessPool"
    r"|(?:\w+\.)*TerminatedWorkerError"
)
"""Exceptions by which a process says that another one has ended. In the messages of others, a pid
is mostly that of the process itself.
"""
_PID = re.compile(r"\bpid(?:\(s\))?[:=)]* ?\(?(\d{1,8})", re.IGNORECASE)
_ADDRESS = re.compile(r"\bip: ?(\d[\d.]{5,13}\d)", re.IGNORECASE)
_NAME = re.compile(r"^\s*name: ?([\w.-]+)", re.MULTILINE)
_WHY = re.compile(
    r"running low on memory|memory pressure|(?:is )?killed by signal: \w+"
    r"|terminated with (?:signal \w+|exit code \d+)|Owner's node has crashed"
    r"|node (?:has )?(?:died|crashed)"
)


@dataclass(frozen=True, slots=True)
class Subject:
    """Another process, by what is said of it; a part that is not said is empty.

    Attributes:
        pid: its process id on its node.
        address: the address of its node.
        name: the name that its program gave it.
        why: how it ended.
    """

    pid: str = ""
    address: str = ""
    name: str = ""
    why: str = ""

    def node(self, facts: Facts) -> str | None:
        """Return its node by the addresses in the job's records; None if that is unknown."""
        return facts.addresses.get(self.address)

    def rank(self, facts: Facts) -> int | None:
        """Return the rank that it is, or under which it ran as the only one of its node."""
        node = self.node(facts)
        ends = [end for end in facts.ends.values() if node in (None, end.node)]
        for end in ends:
            if self.pid == str(end.pid):
                return end.rank
        return ends[0].rank if node is not None and len(ends) == 1 else None

    def sentence(self, facts: Facts) -> str:
        """Return which process ended, as far as it is known: ``rank 3 on node7 ended``."""
        node = self.node(facts)
        where = node or self.address
        place = " on ".join(filter(None, (f"pid {self.pid}" if self.pid else "", where)))
        text = f"the process {self.name}".rstrip() + f" ({place}) ended"
        rank = self.rank(facts)
        if rank is not None and self.pid == str(facts.ends[rank].pid):
            text = f"{rank_text(rank, facts.ends[rank].node, facts.role)} ended"
        return f"{text}: {self.why}" if self.why else text


def subject_in(facts: Facts, diagnosis: Diagnosis) -> Subject | None:
    """Return the process that the exception of the answer is about.

    None if the exception is about the process that raised it, or if a line says the cause.
    """
    cause = diagnosis.cause
    if cause is not None and cause.rule.level == "cause":
        return None
    for log in facts.logs_of(diagnosis.first):
        if log.traceback is not None:
            more = log.scan.tail[log.traceback.ends + 1 :][:_MESSAGE_LINES]
            return subject_of(log.traceback.exception, more)
    return None


def subject_of(exception: str, more: Sequence[str]) -> Subject | None:
    """Return the process that an exception is about; None if that is the one that raised it.

    Args:
        exception: the line of the exception.
        more: the lines behind it, which may be more of its message.
    """
    if not _REPORTS.match(exception):
        return None
    text = "\n".join((exception, *more))
    pid = _PID.search(text)
    address = _ADDRESS.search(text)
    name = _NAME.search(text)
    why = _WHY.search(text)
    if pid is None and address is None:
        return None
    return Subject(
        pid[1] if pid else "",
        address[1] if address else "",
        name[1] if name else "",
        why[0] if why else "",
    )
