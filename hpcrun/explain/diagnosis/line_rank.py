"""Which rank a line is about, in a log whose lines have no prefix with the rank. Pure.

Sources: numbers of ranks in messages, the processes in NCCL's lines, and the reports of launchers
on their children.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from hpcrun.explain.diagnosis.last_words import raised_in
from hpcrun.explain.diagnosis.launcher_lines import NODE_FAILED
from hpcrun.explain.diagnosis.log import Log
from hpcrun.explain.diagnosis.scan import Hit
from hpcrun.explain.diagnosis.traceback import Traceback

_OF_ITSELF = re.compile(
    r"\[Rank (?P<torch>\d{1,7})\]"  # ProcessGroupNCCL
    r"|\(rank (?P<mpich>\d{1,7}) in comm \d"  # MPICH, Cray and Intel MPI
    r"|\baborted on rank (?P<aborted>\d{1,7})\b"  # NCCL's communicator, in torch's words
    # DistributedDataParallel
    r"|RuntimeError: \[(?P<sizes>\d{1,7})\]: params\[\d+\] in this process"
    r"|\bacross all ranks, but Rank (?P<params>\d{1,7}) has \d+ params"
)
_OF_A_SUBGROUP = re.compile(r"\[PG (?:ID )?(?!0\b)\d+ |PG GUID \d+\((?!default_pg\b)\w+\) Rank ")
"""Torch's prefix of a group of some ranks: in it and behind it a rank is a number in that group."""
_NCCL = re.compile(
    r"^(?:\[[\d :.-]+\] )?(?P<host>[A-Za-z][\w.-]*):(?P<pid>\d{1,8}):\d{1,8} "
    r"\[(?P<device>\d{1,3})\] (?P<said>.*)"
)
_IN_COMM = re.compile(r"\bcomm 0x\w+ rank (?P<rank>\d{1,7}) nranks")
# NVIDIA/nccl-tests src/common.cu
_TESTED = re.compile(
    r"^#\s+Rank\s+(?P<rank>\d{1,7}) (?:Group\s+\d+ )?Pid\s+\d+ on\s+(?P<host>\S+) "
    r"device\s+(?P<device>\d{1,3})"
)
_SPAWNED = re.compile(r"^-- Process (?P<rank>\d{1,4}) terminated with the following error:")
_SNIPPET = re.compile(r"^\[Rank (?P<rank>\d{1,7}) Error Snippet\]:")  # Ray Train
_BIND = re.compile(r"EADDRINUSE|[Aa]ddress already in use|server socket has failed")
# the second before torch 1.0
_RENDEZVOUS = ("/torch/distributed/rendezvous.py", "/torch/distributed/__init__.py")
_REPORTED_WITHIN = 8
"""Lines after an exception in which torch's watchdog says the same with its rank."""
_LONGEST = 400
# fairseq
_INITIALIZED = re.compile(r"\binitialized host (?P<host>\S+) as rank (?P<rank>\d{1,7})\b")
_RANK = r"(?<![\w-])(?<!ocal )(?<!to )(?<!rom )(?<!ith )(?<!by )[Rr](?:ank|ANK)[ :=#]{1,2}"
_FAILED = "(?:[Ee]xception|[Ee]rror|[Ff]ailed|[Cc]rashed)"
_HERALD = re.compile(
    rf"{_RANK}(?P<before>\d{{1,7}})\b.{{0,60}}{_FAILED}|{_FAILED}.{{0,60}}{_RANK}"
    rf"(?P<after>\d{{1,7}})\b"
)
"""What a program may say directly above an exception: ``Rank 3 failed with an exception:``."""
_OF_SGLANG = re.compile(r"TP(?P<rank>\d{1,4})\] ")
"""What SGLang writes behind the time, in the line with the header of a rank's traceback or above
it.
"""
_WITHOUT_GRADIENT = re.compile(r"Parameter indices which did not receive grad for rank (\d{1,7})\b")
"""What DistributedDataParallel says directly below an exception of unused parameters."""
_HERALD_LINES = 2
_TIMED_OUT = re.compile(
    r"\[Rank (?P<rank>\d{1,7})\] (?:\S+ )?Watchdog caught collective operation timeout"
)


def named_rank(logs: Sequence[Log], log: Log | None, hit: Hit | None) -> int | None:
    """Return the rank that the lines around a cause name, of a job whose ranks left no records.

    Without a line of the cause, those of the exception count.
    """
    if log is not None and hit is not None:
        failed = NODE_FAILED.search(hit.line[:_LONGEST])
        if failed:
            return _rank_on(failed["node"], logs)
        return _named_by(log, hit)
    raised = ((one, raised_in(one)) for one in logs if one.rank is None)
    return next(
        (rank_of_exception(one, exception) for one, exception in raised if exception is not None),
        None,
    )


def inferred_rank(logs: Sequence[Log]) -> int | None:
    """Return the rank that ended a job, where no line names a rank.

    This is the rank of the process of NCCL's lines, or rank 0 for a port in use.
    """
    for one in (one for one in logs if one.rank is None):
        if one.traceback is not None and not one.traceback.stated:
            return _inferred_of_exception(one, one.traceback)
        place = one.complaint
        if place is not None:
            return _of_process(one, one.scan.tail[place])
    return None


def rank_of_hit(log: Log, hit: Hit) -> int | None:
    """Return the rank that a matching line names, or whose process wrote the line.

    The result is None if the rank is unknown.
    """
    named = _named_by(log, hit)
    if named is None and _NCCL.match(hit.line):
        return _of_process(log, hit.line)
    return named


def _named_by(log: Log, hit: Hit) -> int | None:
    named = hit.values.get("rank")
    if named is not None and named.isdigit():
        return int(named)
    place = log.scan.position(hit.number)
    raised = log.traceback
    if place is not None and raised is not None and raised.begins <= place <= raised.last:
        return rank_of_exception(log, raised)
    return None if _NCCL.match(hit.line) else _of_itself(hit.line)


def rank_of_exception(log: Log, raised: Traceback) -> int | None:
    """Return the rank that raised an exception, else None.

    The message of the exception or the lines around it tell the rank.
    """
    tail = log.scan.tail
    rank = _of_itself(raised.exception)
    if rank is not None:
        return rank
    for line in reversed(tail[max(0, raised.begins - _HERALD_LINES) : raised.ends]):
        match = _SPAWNED.match(line)
        if match:
            return None if log.several_nodes else int(match["rank"])
        match = _SNIPPET.match(line)
        if match:
            return int(match["rank"])
    match = next(
        filter(None, map(_OF_SGLANG.match, tail[max(0, raised.begins - 1) : raised.begins + 1])),
        None,
    )
    if match:
        return int(match["rank"])
    above = tail[max(0, raised.begins - _HERALD_LINES) : raised.begins]
    below = tail[raised.ends + 1 : raised.ends + 2]
    beside = [
        *(_HERALD.search(line[:_LONGEST]) for line in above),
        *map(_WITHOUT_GRADIENT.match, below),
    ]
    match = next(filter(None, beside), None)
    if match is not None:
        return int(next(filter(None, match.groups())))
    message = raised.exception.partition(": ")[2][:_LONGEST]
    reports = tail[raised.last + 1 : raised.last + 1 + _REPORTED_WITHIN]
    ranks = {_of_itself(line) for line in reports if message and message in line} - {None}
    return ranks.pop() if len(ranks) == 1 else None


def _inferred_of_exception(log: Log, raised: Traceback) -> int | None:
    if _BIND.search(raised.exception) and any(
        frame.file.endswith(_RENDEZVOUS) for frame in raised.frames
    ):
        return 0  # of a process group only rank 0 listens
    tail = log.scan.tail
    warned = next(
        (tail[place] for place in reversed(log.nccl_warnings) if _NCCL.match(tail[place])), None
    )
    return _of_process(log, warned) if warned is not None else None


def missing_rank(logs: Iterable[Log]) -> int | None:
    """Return the one rank that did not come where all others waited and timed out.

    The result is None if the rank is unknown. If the highest rank is missing, this cannot be seen,
    since nothing tells how many ranks there are.
    """
    waited: set[int] = set()
    others: set[int] = set()
    for log in logs:
        others |= {
            int(one.name)
            for one in set(log.scan.speakers)
            if one is not None and one.kind == "torch"
        }
        for hit in log.scan.hits:
            if (
                named := hit.values.get("missing") or hit.values.get("rest")
            ) is not None and named.isdigit():
                return int(named)
        if log.rank is not None and any(hit.rule.level == "wait" for hit in log.scan.hits):
            waited.add(log.rank)
        waited |= {
            int(match["rank"])
            for line in log.scan.tail
            if (match := _TIMED_OUT.search(line[:_LONGEST]))
        }
    missing = set(range(max(waited, default=0))).union(others) - waited
    if len(missing) == 1 and len(waited) > 1:
        return missing.pop()
    return None


def _of_itself(line: str) -> int | None:
    match = _OF_ITSELF.search(line[:_LONGEST])
    if match is None or _OF_A_SUBGROUP.search(line[:_LONGEST]):
        return None
    return int(next(filter(None, match.groups())))


def _rank_on(node: str, logs: Iterable[Log]) -> int | None:
    """Return the rank on a node, by the lines that say where the ranks are.

    The result is None if the node has several ranks, or none of them.
    """
    ranks: set[int] = set()
    for log in logs:
        for line in log.scan.tail:
            text = line[:_LONGEST]
            if log.rank is not None and text == node:  # srun --label hostname
                ranks.add(log.rank)
            elif (match := _INITIALIZED.search(text)) or (match := _TESTED.match(text)):
                ranks |= {int(match["rank"])} if match["host"] == node else set()
            elif (
                (match := _NCCL.match(text))
                and match["host"] == node
                and (comm := _IN_COMM.search(match["said"]))
            ):
                ranks.add(int(comm["rank"]))
    return ranks.pop() if len(ranks) == 1 else None


def _of_process(log: Log, line: str) -> int | None:
    """Return the rank of the process that wrote one of NCCL's lines, ``host:pid:thread [device]``.

    Its communicator's line tells, or the list that nccl-tests prints. Without them the device is
    the rank if the log speaks of one host alone, of several devices on it, and of no rank above
    them.
    """
    mine = _NCCL.match(line[:_LONGEST])
    if mine is None:
        return None
    ranks: dict[tuple[str, str], int] = {}
    devices: dict[str, set[str]] = {}
    for other in log.scan.tail:
        match = _TESTED.match(other[:_LONGEST])
        if match:
            ranks[match["host"], f"[{match['device']}]"] = int(match["rank"])
        elif match := _NCCL.match(other[:_LONGEST]):
            devices.setdefault(match["host"], set()).add(match["device"])
            comm = _IN_COMM.search(match["said"])
            if comm:
                ranks.setdefault((match["host"], match["pid"]), int(comm["rank"]))
    for key in (mine["pid"], f"[{mine['device']}]"):
        rank = ranks.get((mine["host"], key))
        if rank is not None:
            return rank
    alone = len(devices) == 1 and len(devices.get(mine["host"], ())) > 1
    ranks_known = [
        one.rank for one in log.scan.speakers if one is not None and one.rank is not None
    ]
    alone = alone and max(ranks_known, default=0) <= max(map(int, devices[mine["host"]]))
    if alone and not log.several_nodes:
        return int(mine["device"])
    return None
