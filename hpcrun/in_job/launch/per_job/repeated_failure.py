"""A failure that repeats itself: two attempts end with the same exception, and no step between.

The end of each attempt is kept in its folder, for the next one. What may pass (the GPU, the
network, the disk, another process) counts as another failure each time; so does what is unknown.
"""

from __future__ import annotations

import os
import re
import time
from typing import Any

from .. import records

AT_ONCE_S = 120.0
"""A program that fails within this time has hardly begun: it takes as long to load a model and a
first batch.
"""
TAIL = 64 << 10
"""Bytes that are read at the end of a file."""
_RECORD = "failure"
_UNCAUGHT = 1
"""Python's exit status after an exception."""
_ABORTED = 134
"""The status after SIGABRT."""
_LEFT_THREAD = "terminate called without an active exception"
"""What C++ prints if a thread still runs when Python ends, as gloo's do now and then
(pytorch#179291): the status of the exception before it becomes that of SIGABRT.
"""
_BEGINS = "Traceback (most recent call last):"
_RESTART = "hpcrun: torchrun restart "
_RANK = re.compile(r"\[rank\d+\]: ?")
_FRAME = re.compile(r' +File "(?P<file>[^"]+)", line (?P<line>\d+)')
_LIBRARY = re.compile(r"/(?:site|dist)-packages/|/lib/python3|^<")
_OWN = re.compile(
    r"(?:Key|Index|Attribute|Name|UnboundLocal|Type|Value|Assertion|Import|ModuleNotFound|Syntax"
    r"|Indentation|NotImplemented|ZeroDivision|FileNotFound|NotADirectory|IsADirectory|Permission"
    r"|Recursion|Runtime)Error\b"
)
"""What a program raises because of its own code, data or options."""
_PASSES = re.compile(
    r"nccl|cuda|cudnn|cublas|\bhip\b|gpu|driver|gloo|c10d|tcpstore|process group|\branks?\b|barrier"
    r"|connect|socket|\bpeer\b|server|http|download|time[sd]? ?out|memory|thread|\bworker\b|exited"
    r"|space|address|interrupted|pytorchstream",
    re.IGNORECASE,
)
"""Words of what may pass."""
_STEP = re.compile(
    r"(step|epoch|iter|iteration|batch|trial|episode|round)\W{0,3}(\d{1,15})|(\d{1,15})/\d+ \[",
    re.IGNORECASE,
)


def why_not_retried(first_failed: dict[str, Any] | None) -> str:
    """Keep how this attempt failed; return why the next one would fail in the same way.

    The reason, for people, is empty if the next attempt may come further.

    Args:
        first_failed: the record of the rank that failed first; None if none did.
    """
    failure = _failure(first_failed or {})
    if failure is None:
        return ""
    records.write(_RECORD, failure)
    folder = records.folder_before()
    before = records.read(_RECORD, folder) if folder else None
    if before is None or not repeats(before, failure):
        return ""
    number = int(os.environ["HPCRUN_ATTEMPT"])
    raised, _, _ = failure["exception"].partition(":")
    return (
        f"not retried: attempts {number} and {number + 1} ended with the same {raised} at "
        f"{failure['place']}, without a new step"
    )


def repeats(before: dict[str, Any], failure: dict[str, Any]) -> bool:
    """Return whether an attempt failed as the one before, and made no new step."""
    for name in ("exception", "frames"):
        if before.get(name) != failure[name]:
            return False
    steps = before.get("steps")
    if not isinstance(steps, dict):
        return False
    if not failure["steps"] and not steps:
        return before.get("at_once") is True and failure["at_once"] is True
    return all(number <= steps.get(name, -1) for name, number in failure["steps"].items())


def _failure(rank_exit: dict[str, Any]) -> dict[str, Any] | None:
    """Return how a rank failed; None if that may pass, or is unknown."""
    rank = rank_exit.get("rank")
    if not isinstance(rank, int):
        return None
    log = _end_of(rank, "err")
    failure: dict[str, Any] | None = uncaught(log)
    if failure is None or not _ended_by(failure["exception"], log, rank_exit.get("status")):
        return None
    started_s = float((records.read("start") or {}).get("started", 0))
    failure["at_once"] = time.time() - started_s < AT_ONCE_S
    failure["steps"] = {}
    for number in (0, rank):
        for kind in ("out", "err", "metrics"):
            for name, step in last_steps(_end_of(number, kind)).items():
                failure["steps"][f"{kind} {name}"] = step
    return failure


def _ended_by(exception: str, log: str, status: object) -> bool:
    """Return whether the last exception in a log is what ended the program."""
    if status == _UNCAUGHT:
        return True
    if status != _ABORTED:
        return False
    *_, before, last = ["", "", *log.rstrip().splitlines()]
    return last == _LEFT_THREAD and before.endswith(exception)


def uncaught(log: str) -> dict[str, Any] | None:
    """Return the exception that ended a program, and where; None if it may pass, or is unknown."""
    _, _, traceback = log.rpartition(_BEGINS)
    frames = []
    for prefixed in traceback.splitlines()[1:]:
        line = _RANK.sub("", prefixed)
        frame = _FRAME.match(line)
        if frame:
            frames.append(f"{frame['file']}:{frame['line']}")
        elif line and not line.startswith(" "):
            break
    else:
        return None
    if not frames or not _OWN.match(line) or _PASSES.search(line):
        return None
    of_program = [frame for frame in frames if not _LIBRARY.search(frame)]
    place = os.path.basename((of_program or frames)[-1])
    if not place.isprintable():
        return None
    return {"exception": line, "frames": frames, "place": place}


def last_steps(log: str) -> dict[str, int]:
    """Return the last number behind each word that counts the work of a program."""
    steps = {}
    for match in _STEP.finditer(log):
        kind = match[1] or "bar"
        steps[kind.lower()] = int(match[2] or match[3])
    return steps


def has_made_a_step(folder: str) -> bool:
    """Return whether the files of an attempt show work of rank 0, or of the rank that failed."""
    failed = records.first_failed(records.exits(folder=folder)) or {}
    for rank in {0, failed.get("rank", 0)}:
        for kind in ("out", "err", "metrics"):
            if last_steps(_end_of(rank, kind, folder)):
                return True
    return False


def _end_of(rank: int, kind: str, folder: str | None = None) -> str:
    """Return the end of a file of a rank, since torchrun last restarted it; empty without one."""
    path = os.path.join(folder or records.attempt_dir(), f"rank-{rank}.{kind}")
    try:
        with open(path, "rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - TAIL))
            text = file.read(TAIL).decode("utf-8", "replace")
    except OSError:
        return ""
    return text.rpartition(_RESTART)[2]
