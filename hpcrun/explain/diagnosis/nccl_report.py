"""What NCCL's RAS reports of a job: ranks that lag behind, processes that do not answer, errors.

Pure.

The reports are those of NCCL 2.24 to 2.30 (src/ras/client_support.cc; the user guide, RAS), as
``in_job/probe/nccl_ras.py`` gets them. NCCL calls their form subject to change: a line that is not
known is left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from hpcrun.job.text.units import count, joined

_ROW = re.compile(
    r"\s*(\d{1,9})\s+\d{1,9}\s+\d{1,9}\s+[\d-]{1,20}\s+"
    r"(?P<size>\d{1,9})\s+\d{1,9}\s+[A-Z]+\s+[A-Z,]+\s*"
)
"""A row of the table of communicators: the number of the group, and how many ranks each of them
has.
"""
_COMMUNICATOR = re.compile(r"#(?P<group>\d{1,9})-\d{1,9} \((?P<hash>[0-9a-f]{1,16})\) [A-Z]+")
_MEMBER = re.compile(r"  Rank (?P<rank>\d{1,9})(?: (?P<what>\D.{0,200}?))? -- (?:GPU |\[process)")
_PROCESS = re.compile(r"\b[Pp]rocess (?P<pid>\d{1,10}) on node (?P<node>\S+)")
_GROUP = re.compile(r"  (?P<number>\d{1,9}) ranks (?P<what>have .{1,200}|reported .{1,200})")
_STATUS = "status"
_ERROR = "error"
_HEADING = re.compile(
    r"  (?:Communicator ranks have different (?:(?P<operation>\w{1,80}) operation "
    r"counts|(?P<status>status))$"
    r"|(?:Initialization|Asynchronous) error)"
)
"""What stands above the groups into which the ranks of a communicator fall."""
_LAUNCHED = re.compile(r"(?:have|has) launched up to operation (?P<count>\d{1,19})")
_NOT_LAUNCHED = re.compile(r"(?:have|has) not launched any operations")
_NUMBER_OF = re.compile(r"  (?:Missing communicator data from )?(?P<number>\d{1,9}) job process")
_AWAY = {
    "DEAD": ("has not responded to NCCL for a minute", "have not responded to NCCL for a minute"),
    "INCOMPLETE": ("does not respond to NCCL", "do not respond to NCCL"),
}
"""Headings above processes → what is wrong with one, or with several of them."""
_MOST_LINES = 20_000


@dataclass(slots=True)
class RankGroup:
    """Ranks of a communicator with the same property.

    ``names`` has the names that are known, which may be none.
    """

    number: int
    what: str
    names: list[str] = field(default_factory=list)

    @property
    def count(self) -> int | None:
        """The last collective that they have launched; None if this is no count."""
        launched = _LAUNCHED.match(self.what)
        if launched is not None:
            return int(launched["count"])
        return 0 if _NOT_LAUNCHED.match(self.what) else None


@dataclass(slots=True)
class RasReport:
    """A report of RAS.

    Attributes:
        communicators: hash → a collective (``collective`` before NCCL 2.26), ``status`` or
            ``error`` → the ranks by how many of the collective they have launched, by their status
            if it differs, by the error that they report.
        sizes: hash → the number of ranks; None if the table of communicators does not say.
        away: ``INCOMPLETE`` and ``DEAD`` → the processes that did not answer this time, or have not
            for a minute.
    """

    communicators: dict[str, dict[str, list[RankGroup]]] = field(default_factory=dict)
    sizes: dict[str, int | None] = field(default_factory=dict)
    away: dict[str, RankGroup] = field(default_factory=dict)


def parse_ras(text: str, rank_of: Mapping[int, int]) -> RasReport:
    """Read a report; of a truncated one the part that is there, of another text nothing.

    Args:
        text: the report as RAS prints it.
        rank_of: process id → rank in the job, of ids that only one rank has.
    """
    report = RasReport()
    sizes = dict[str, int]()
    parts: dict[str, list[RankGroup]] | None = None
    groups: list[RankGroup] | None = None
    away: RankGroup | None = None
    for line in map(str.rstrip, text.rpartition("\n")[0].split("\n")[:_MOST_LINES]):
        row = _ROW.fullmatch(line)
        if row:
            sizes[row[1]] = int(row["size"])
        elif line and not line.startswith("  "):  # a part may go on after an empty line
            parts = groups = away = None
            match = _COMMUNICATOR.match(line)
            if match:
                parts = report.communicators.setdefault(match["hash"], {})
                report.sizes.setdefault(match["hash"], sizes.get(match["group"]))
            elif line in _AWAY:
                away = report.away.setdefault(line, RankGroup(0, line))
        elif parts is not None and (match := _HEADING.match(line)):
            groups = parts.setdefault(match["operation"] or match["status"] or _ERROR, [])
        elif groups is not None:
            _add_to(groups, line, rank_of)
        elif away is not None and (number := _NUMBER_OF.match(line)):
            away.number = int(number["number"])
        elif away is not None and line.startswith("  Process "):
            away.names.append(_name(line, None, rank_of))
    return report


def _add_to(groups: list[RankGroup], line: str, rank_of: Mapping[int, int]) -> None:
    """Add a group of ranks, or a rank: to the group above it, or as a group of its own."""
    group = _GROUP.fullmatch(line)
    if group:
        groups.append(RankGroup(int(group["number"]), group["what"]))
    elif match := _MEMBER.match(line):
        if match["what"]:
            groups.append(RankGroup(1, match["what"]))
        if groups:
            groups[-1].names.append(_name(line, match["rank"], rank_of))


def _name(line: str, rank: str | None, rank_of: Mapping[int, int]) -> str:
    """Return ``rank 5``, by the rank in the job if the rank is known.

    The rank in a communicator may be another one.
    """
    match = _PROCESS.search(line)
    if match and int(match["pid"]) in rank_of:
        return f"rank {rank_of[int(match['pid'])]}"
    if match:
        process = f"process {match['pid']} on {match['node']}"
    else:
        process = "a process"
    if rank is None:
        return process
    return f"rank {rank} of its communicator" + (f" ({process})" if match else "")


def ras_remarks(texts: Sequence[str], rank_of: Mapping[int, int]) -> list[str]:
    """Return what reports say is wrong, in sentences; nothing for a job that makes progress.

    Ranks lag behind only if two reports agree on their counts: in a job that makes progress counts
    differ as well.

    Args:
        texts: the reports of a job, the newest last.
        rank_of: process id → rank in the job, of ids that only one rank has.
    """
    reports = [parse_ras(text, rank_of) for text in texts]
    if not reports:
        return []
    last = reports[-1]
    remarks = [
        _unreachable(last.away[name], words) for name, words in _AWAY.items() if name in last.away
    ]
    for name, parts in last.communicators.items():
        remarks += [f"{_who(group)} {group.what}" for group in parts.get(_ERROR, ())]
        if len(reports) > 1:
            before = reports[0].communicators.get(name, {})
        else:
            before = {}
        of = f"NCCL communicator {name}" + (
            f" of {last.sizes[name]} ranks" if last.sizes[name] else ""
        )
        remarks += [f"{text} ({of})" for text in _stuck(before, parts)]
    return [remark for remark in remarks if remark]


def _stuck(
    before: Mapping[str, Sequence[RankGroup]], now: Mapping[str, Sequence[RankGroup]]
) -> Iterator[str]:
    """Yield in what the ranks of a communicator differ, in both reports in the same way."""
    shapes = [
        sorted((group.what, group.number) for group in each.get(_STATUS, ()))
        for each in (before, now)
    ]
    if shapes[0] == shapes[1] and len(shapes[1]) > 1:
        few, *others = sorted(now[_STATUS], key=lambda group: group.number)
        rest = " and ".join(
            f"{count(group.number, 'other rank')} {_status(group)}" for group in others
        )
        yield f"{_who(few)} {_status(few)}, {rest}"
    for operation, groups in now.items():
        lowest = _lowest(groups)
        earlier = _lowest(before.get(operation, ()))
        if lowest and earlier and (lowest.count, lowest.number) == (earlier.count, earlier.number):
            yield _lag(operation, lowest, groups)


def _status(group: RankGroup) -> str:
    """Return ``is in INIT``."""
    return f"{'is' if group.number == 1 else 'are'} in {group.what.rpartition(' ')[2]}"


def _lowest(groups: Sequence[RankGroup]) -> RankGroup | None:
    """Return the ranks that have launched the fewest calls of a collective.

    The result is None if the ranks do not differ.
    """
    counts = {group.count: group for group in reversed(groups) if group.count is not None}
    return counts[min(counts)] if len(counts) > 1 else None


def _lag(operation: str, few: RankGroup, groups: Sequence[RankGroup]) -> str:
    """Return which ranks have launched least of a collective."""
    others = {
        group.count: group.number
        for group in groups
        if group is not few and group.count is not None
    }
    span = " to ".join(dict.fromkeys(str(each(others)) for each in (min, max)))
    has = "has" if few.number == 1 else "have"
    if few.count:
        done = f"launched {operation} {few.count} last"
    else:
        done = f"launched no {operation}"
    return (
        f"{_who(few)} {has} {done}, {count(sum(others.values()), 'other rank')} {operation} {span}"
    )


def _unreachable(away: RankGroup, words: tuple[str, str]) -> str:
    """Return which processes do not answer NCCL; empty if none is known."""
    number = max(away.number, len(away.names))
    who = joined(away.names) or f"{number} process{'' if number == 1 else 'es'}"
    return f"{who} {words[number != 1]}" if number else ""


def _who(group: RankGroup) -> str:
    """Return the names of some ranks, or their number."""
    return joined(group.names) or count(group.number, "rank")
