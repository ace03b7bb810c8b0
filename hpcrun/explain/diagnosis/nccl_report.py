"""What NCCL's RAS reports of a job: ranks that lag behind, processes that do not answer, errors. Pure.

The reports are those of NCCL 2.24 to 2.30 (src/ras/client_support.cc; the user guide, RAS), as
``probe/nccl_ras.py`` gets them. NCCL calls their form subject to change: a line that is not known is left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from hpcrun.job.units import joined, other_ranks

_ROW = re.compile(r"\s*(\d{1,9})\s+\d{1,9}\s+\d{1,9}\s+[\d-]{1,20}\s+(?P<size>\d{1,9})\s+\d{1,9}\s+[A-Z]+\s+[A-Z,]+\s*")
"""A row of the table of communicators: the number of the group, and how many ranks each of them has."""
_COMMUNICATOR = re.compile(r"#(?P<group>\d{1,9})-\d{1,9} \((?P<hash>[0-9a-f]{1,16})\) [A-Z]+")
_GPU = r"(?:[\d,-]{1,400}(?: \(NVML [\d,-]{1,400}\))?)"
_BY = rf"(?:GPU {_GPU} managed by process (?P<pid>\d{{1,10}}) on node (?P<node>\S+)|\[process information not found\])"
_MEMBER = re.compile(rf"  Rank (?P<rank>\d{{1,9}})(?: (?P<what>\D.{{0,200}}?))? -- {_BY}")
_PROCESS = re.compile(rf"  Process (?P<pid>\d{{1,10}}) on node (?P<node>\S+) managing GPUs? {_GPU}")
_GROUP = re.compile(r"  (?P<number>\d{1,9}) ranks (?P<what>have .{1,200}|reported .{1,200})")
_COUNTS = re.compile(r"  Communicator ranks have different (?P<operation>\w{1,80}) operation counts")
_LAUNCHED = re.compile(r"(?:have|has) launched up to operation (?P<count>\d{1,19})")
_NOT_LAUNCHED = re.compile(r"(?:have|has) not launched any operations")
_NUMBER_OF = re.compile(r"  (?:Missing communicator data from )?(?P<number>\d{1,9}) job process")
_MOST_LINES = 20_000


@dataclass(frozen=True, slots=True)
class Member:
    """A rank of a communicator, or a process.

    Attributes:
        rank: its number in the communicator, which may be another one than in the job; None for a process.
        pid: None if NCCL does not know it.
    """

    rank: int | None
    pid: int | None = None
    node: str = ""


@dataclass(slots=True)
class RankGroup:
    """Ranks of a communicator with the same property; ``members`` are those that are named, which may be none."""

    number: int
    what: str
    members: list[Member] = field(default_factory=list)

    @property
    def count(self) -> int | None:
        """The last collective that they have launched; None if this is no count."""
        if (launched := _LAUNCHED.match(self.what)) is not None:
            return int(launched["count"])
        return 0 if _NOT_LAUNCHED.match(self.what) else None


@dataclass(slots=True)
class Communicator:
    """What is reported of one communicator.

    Attributes:
        size: its ranks; None if the table of communicators does not say.
        counts: collective → the ranks by how many of it they have launched; ``collective`` before NCCL 2.26.
        states: the ranks by their status, if it differs.
        errors: the ranks by the error that they report.
    """

    hash: str
    size: int | None = None
    counts: dict[str, list[RankGroup]] = field(default_factory=dict)
    states: list[RankGroup] = field(default_factory=list)
    errors: list[RankGroup] = field(default_factory=list)

    @property
    def name(self) -> str:
        """Its name in a sentence."""
        return f"NCCL communicator {self.hash}" + (f" of {self.size} ranks" if self.size else "")

    def lowest(self, operation: str) -> tuple[int, RankGroup] | None:
        """Return the ranks that have launched least of a collective; None if the ranks do not differ."""
        groups = [(ranks.count, ranks) for ranks in self.counts[operation] if ranks.count is not None]
        if len({count for count, _ in groups}) < 2:
            return None
        return min(((count, ranks) for count, ranks in groups if count is not None), key=lambda each: each[0])


@dataclass(slots=True)
class RasReport:
    """A report of RAS.

    Attributes:
        silent, dead: the processes that did not answer this time, or have not for a minute; named if they are few.
        silent_number, dead_number: how many there are.
    """

    communicators: dict[str, Communicator] = field(default_factory=dict)
    silent: list[Member] = field(default_factory=list)
    dead: list[Member] = field(default_factory=list)
    silent_number: int = 0
    dead_number: int = 0


def parse_ras(text: str) -> RasReport:
    """Read a report; one that is cut off, or no report at all, has less or nothing in it."""
    whole, _, _ = text.rpartition("\n")
    return _Parser().read(whole.split("\n")[:_MOST_LINES])


def ras_remarks(reports: Sequence[RasReport], rank_of: Mapping[int, int]) -> list[str]:
    """Return what reports say is wrong, in sentences; nothing for a job that makes progress.

    Ranks lag behind only if two reports agree on their counts: in a job that makes progress counts differ as well.

    Args:
        reports: the reports of a job, the newest last.
        rank_of: process id → rank in the job, of ids that only one rank has.
    """
    if not reports:
        return []
    last = reports[-1]
    found = [*_unreachable(last, rank_of)]
    for communicator in last.communicators.values():
        found += [f"{_who(ranks, rank_of)} {ranks.what}" for ranks in communicator.errors]
        before = reports[0].communicators.get(communicator.hash) if len(reports) > 1 else None
        if before is not None:
            found += _stuck(before, communicator, rank_of)
    return found


def _stuck(before: Communicator, now: Communicator, rank_of: Mapping[int, int]) -> Iterator[str]:
    """Yield in what the ranks of a communicator differ, in both reports in the same way."""
    shapes = [sorted((ranks.what, ranks.number) for ranks in each.states) for each in (before, now)]
    if shapes[0] == shapes[1] and len(now.states) > 1:
        few, *others = sorted(now.states, key=lambda ranks: ranks.number)
        rest = " and ".join(f"{other_ranks(ranks.number)} {_status(ranks)}" for ranks in others)
        yield f"{_who(few, rank_of)} {_status(few)}, {rest} ({now.name})"
    for operation in now.counts:
        if _unchanged(before, now, operation):
            yield _lag(now, operation, rank_of)


def _status(ranks: RankGroup) -> str:
    """Return ``is in INIT``."""
    return f"{'is' if ranks.number == 1 else 'are'} in {ranks.what.rpartition(' ')[2]}"


def _unchanged(before: Communicator, now: Communicator, operation: str) -> bool:
    if operation not in before.counts or (lowest := now.lowest(operation)) is None:
        return False
    earlier = before.lowest(operation)
    return earlier is not None and (earlier[0], earlier[1].number) == (lowest[0], lowest[1].number)


def _lag(communicator: Communicator, operation: str, rank_of: Mapping[int, int]) -> str:
    """Return which ranks have launched least of a collective."""
    lowest = communicator.lowest(operation)
    assert lowest is not None
    count, ranks = lowest
    others = [other for other in communicator.counts[operation] if other is not ranks and other.count is not None]
    up_to = sorted({other.count or 0 for other in others})
    span = f"{up_to[0]}" if len(up_to) == 1 else f"{up_to[0]} to {up_to[-1]}"
    number = sum(other.number for other in others)
    has = "has" if ranks.number == 1 else "have"
    done = f"launched {operation} {count} last" if count else f"launched no {operation}"
    return f"{_who(ranks, rank_of)} {has} {done}, {other_ranks(number)} {operation} {span} ({communicator.name})"


def _unreachable(report: RasReport, rank_of: Mapping[int, int]) -> list[str]:
    """Return which processes do not answer NCCL."""
    found = []
    for members, number, words in (
        (report.dead, report.dead_number, "has not responded to NCCL for a minute"),
        (report.silent, report.silent_number, "does not respond to NCCL"),
    ):
        if number or members:
            number = max(number, len(members))
            plural = words.replace("has ", "have ", 1).replace("does ", "do ", 1)
            named = _names(members, rank_of) if members else f"{number} process{'' if number == 1 else 'es'}"
            found.append(f"{named} {words if number == 1 else plural}")
    return found


def _who(ranks: RankGroup, rank_of: Mapping[int, int]) -> str:
    """Return the names of some ranks, or their number."""
    if not ranks.members:
        return "1 rank" if ranks.number == 1 else f"{ranks.number} ranks"
    return _names(ranks.members, rank_of)


def _names(members: Iterable[Member], rank_of: Mapping[int, int]) -> str:
    return joined([_name(member, rank_of) for member in members])


def _name(member: Member, rank_of: Mapping[int, int]) -> str:
    """Return ``rank 5``, by the rank in the job if it is known."""
    if member.pid is not None and member.pid in rank_of:
        return f"rank {rank_of[member.pid]}"
    process = f"process {member.pid} on {member.node}" if member.pid is not None else ""
    if member.rank is None:
        return process
    rank = f"rank {member.rank} of its communicator"
    return f"{rank} ({process})" if process else rank


class _Parser:
    """Reads a report line by line."""

    def __init__(self) -> None:
        self._report = RasReport()
        self._sizes: dict[str, int] = {}
        self._communicator: Communicator | None = None
        self._processes: list[Member] | None = None
        self._groups: list[RankGroup] | None = None

    def read(self, lines: Iterable[str]) -> RasReport:
        for line in lines:
            line = line.rstrip()
            if (row := _ROW.fullmatch(line)) is not None:
                self._sizes[row[1]] = int(row["size"])
            elif not line.startswith("  "):
                self._begin(line)
            elif self._communicator is not None:
                self._of_communicator(self._communicator, line)
            elif self._processes is not None:
                self._of_processes(self._processes, line)
        return self._report

    def _begin(self, line: str) -> None:
        """Read a line at the margin: a heading, or an empty line, after which a part may go on."""
        if not line:
            return
        self._communicator = self._processes = self._groups = None
        if (found := _COMMUNICATOR.match(line)) is not None:
            known = self._report.communicators
            made = Communicator(found["hash"], self._sizes.get(found["group"]))
            self._communicator = known.setdefault(found["hash"], made)
        elif line in ("INCOMPLETE", "DEAD"):
            self._processes = self._report.dead if line == "DEAD" else self._report.silent

    def _of_processes(self, processes: list[Member], line: str) -> None:
        if (found := _PROCESS.fullmatch(line)) is not None:
            processes.append(Member(None, int(found["pid"]), found["node"]))
        elif (number := _NUMBER_OF.match(line)) is not None:
            if processes is self._report.dead:
                self._report.dead_number = int(number["number"])
            else:
                self._report.silent_number = int(number["number"])

    def _of_communicator(self, communicator: Communicator, line: str) -> None:
        if (counts := _COUNTS.fullmatch(line)) is not None:
            self._groups = communicator.counts.setdefault(counts["operation"], [])
        elif line == "  Communicator ranks have different status":
            self._groups = communicator.states
        elif line.startswith(("  Initialization error", "  Asynchronous error")):
            self._groups = communicator.errors
        elif (group := _GROUP.fullmatch(line)) is not None and self._groups is not None:
            self._groups.append(RankGroup(int(group["number"]), group["what"]))
        elif (found := _MEMBER.fullmatch(line)) is not None and self._groups is not None:
            self._add(self._groups, found)

    def _add(self, groups: list[RankGroup], found: re.Match[str]) -> None:
        """Add a rank: to the group above it, or as a group of its own."""
        pid = int(found["pid"]) if found["pid"] else None
        member = Member(int(found["rank"]), pid, found["node"] or "")
        if found["what"]:
            groups.append(RankGroup(1, found["what"], [member]))
        elif groups:
            groups[-1].members.append(member)
