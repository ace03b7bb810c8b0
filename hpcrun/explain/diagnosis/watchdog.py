"""Which collective each rank waited for, by the lines that torch's watchdog prints. Pure.

They are there without the flight recorder, and say less: of each rank and group the collective that
timed out, and the numbers of the last one that it called and completed.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from hpcrun.explain.diagnosis.flight_calls import Calls, CollectiveCall, Dump, Kind, ProcessGroup
from hpcrun.explain.diagnosis.flight_meetings import Flight, judge
from hpcrun.explain.diagnosis.log import Log

WATCHDOG = "torch's watchdog (ProcessGroupNCCL.cpp)"
_TIMED_OUT = re.compile(
    r"Watchdog caught collective operation timeout: WorkNCCL\(SeqNum=(?P<number>\d{1,18}), "
    r"OpType=(?P<name>\w+)(?:, NumelIn=(?P<elements>\d{1,18}))?"
)
_STATUS = re.compile(
    r"\[PG (?:ID \d+ PG GUID )?(?P<group>\d+) ?(?:\((?P<about>\w+)\))? Rank \d+\] .*"
    r"[Ll]ast enqueued (?:NCCL )?work: (?P<called>\d{1,18}), "
    r"last completed (?:NCCL )?work: (?P<completed>-?\d{1,18})"
)
_EQUAL_INPUTS = frozenset({"ALLREDUCE", "BROADCAST", "REDUCE", "_ALLGATHER_BASE"})
"""Collectives whose inputs must have the same number of elements on all ranks."""


def watchdog_flight(logs: Iterable[Log]) -> Flight | None:
    """Return where the ranks that timed out stood; None where that does not show why."""
    lines: defaultdict[int, list[str]] = defaultdict(list)
    for log in logs:
        if log.rank is not None:
            lines[log.rank] += [line for line in log.scan.tail if "ProcessGroupNCCL" in line]
    dumps = {}
    for rank, printed in lines.items():
        groups = dict(_calls(printed))
        if groups:
            dumps[rank] = Dump(groups, last=_last(groups), whole=False)
    flight = judge(dumps)
    return replace(flight, source=WATCHDOG) if flight.decided else None


def _calls(lines: Iterable[str]) -> Iterator[tuple[ProcessGroup, Calls]]:
    """Yield the groups of a rank, with the call that timed out and the last one."""
    timed_out: dict[int, Kind] = {}
    statuses: dict[ProcessGroup, re.Match[str]] = {}
    for line in lines:
        timeout = _TIMED_OUT.search(line)
        if timeout is not None:
            timed_out.setdefault(int(timeout["number"]), _kind(timeout))
        status = _STATUS.search(line)
        if status is not None:
            group = ProcessGroup(status["group"], status["about"] or "", ())
            statuses.setdefault(group, status)
    for group, status in statuses.items():
        last = int(status["called"])
        waits_for = int(status["completed"]) + 1
        calls = Calls()
        if waits_for in timed_out:
            calls.add(CollectiveCall(waits_for, timed_out[waits_for], None))
        if last not in calls:
            calls.add(CollectiveCall(last, Kind("collective"), None, done=True))
        yield group, calls


def _kind(match: re.Match[str]) -> Kind:
    name = match["name"]
    elements = match["elements"]
    if elements is None:
        return Kind(name)
    must_equal = (elements,) if name in _EQUAL_INPUTS else ()
    return Kind(name, f"{elements} elements", must_equal)


def _last(groups: Mapping[ProcessGroup, Calls]) -> tuple[ProcessGroup, int] | None:
    """Return the last call of a rank with one group; which of several was last is not said."""
    if len(groups) != 1:
        return None
    [(group, calls)] = groups.items()
    return group, calls.last
