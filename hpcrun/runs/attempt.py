"""What the script itself wrote down: start, exit, and how each node and rank ended."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

REASONS = ("time_limit", "preemption", "node_failure", "failure", "cancelled", "terminated", "requeued")
"""Why an attempt ended, in the script's words: templates/requeue."""
_RANK_FILE = re.compile(r"rank-(\d+)\.(out|err|exit)")


@dataclass(frozen=True, slots=True)
class ExitRecord:
    """How the batch script ended.

    Attributes:
        status: exit status; 128 + n where signal n ended it.
        signal: ``TERM`` where the script was told to end (scancel, time limit, preemption), else empty.
        ended_s: seconds since the epoch.
        message: what the script itself found wrong, else empty.
        reason: one of ``REASONS`` where something ended it; empty for an end of its own, or where it cannot tell.
        again: the script had the job started again.
    """

    status: int
    signal: str
    ended_s: float
    message: str = ""
    reason: str = ""
    again: bool = False


@dataclass(frozen=True, slots=True)
class RankExit:
    """How one rank ended: exit status (128 + n for signal n), on which node, when."""

    rank: int
    node: str
    status: int
    ended_s: float


@dataclass(frozen=True, slots=True)
class Attempt:
    """One start of a run.

    Attributes:
        number: 0 for the first.
        job_id: of the job that started, as the script saw it.
        host: where the batch script ran.
        started_s: seconds since the epoch.
        exit: None while it runs, or where it was killed before it could say.
        alive_s: when the script last gave a sign of life, in seconds since the epoch by its host's clock.
    """

    folder: Path
    number: int
    job_id: str
    host: str
    started_s: float
    exit: ExitRecord | None
    alive_s: float


def attempts_folder(run_folder: Path, element: int = 0) -> Path:
    """Return the folder that holds the attempts of one element."""
    return run_folder / "elements" / str(element) / "attempts"


def last_attempt(run_folder: Path, element: int = 0) -> Attempt | None:
    """Return the newest attempt of an element of a run, None where it has not started."""
    return next(iter(attempts(run_folder, element)), None)


def attempts(run_folder: Path, element: int = 0) -> Iterator[Attempt]:
    """Yield the attempts of an element that have started, the newest first."""
    folder = attempts_folder(run_folder, element)
    try:
        numbers = sorted(int(entry.name) for entry in folder.iterdir() if entry.name.isdigit())
    except FileNotFoundError:
        return
    for number in reversed(numbers):
        try:
            attempt = _attempt(folder / str(number), number)
        except (KeyError, TypeError, ValueError):  # a record that is JSON, and not the script's
            continue
        if attempt:
            yield attempt


def _attempt(folder: Path, number: int) -> Attempt | None:
    start = _read(folder / "start")
    if start is None:
        return None
    try:
        alive_s = float((folder / "heartbeat").read_text("ascii"))
    except (OSError, ValueError):
        alive_s = 0.0
    started_s = float(start["started"])
    return Attempt(
        folder,
        number,
        str(start["job_id"]),
        str(start["host"]),
        started_s,
        _exit(folder),
        max(started_s, alive_s),
    )


def _exit(folder: Path) -> ExitRecord | None:
    data = _read(folder / "exit")
    if data is None:
        return None
    return ExitRecord(
        int(data["status"]),
        str(data["signal"]),
        float(data["ended"]),
        str(data.get("message", "")),
        str(data.get("reason", "")),
        data.get("again") is True,
    )


def _read(path: Path) -> dict[str, Any] | None:
    """Return a record of the script, None where it is not there; the script renames, so it is never half."""
    try:
        data = json.loads(path.read_text("utf-8", errors="replace"), strict=False)
    except (OSError, ValueError):
        return None
    return data if isinstance(data, dict) else None


def ranks(folder: Path) -> list[int]:
    """Return the ranks of an attempt that have written a log or an exit record; none where it is gone."""
    try:
        found = (_RANK_FILE.fullmatch(entry.name) for entry in folder.iterdir())
        return sorted({int(match[1]) for match in found if match})
    except FileNotFoundError:
        return []


def hosts(folder: Path) -> list[str]:
    """Return the nodes of an attempt in Slurm's order; none where it has not come so far."""
    try:
        return (folder / "hosts").read_text("utf-8", errors="replace").split()
    except OSError:
        return []


def node_ranks(folder: Path) -> dict[str, range]:
    """Return the ranks of each node on which ranks have started."""
    records = (_read(path) for path in folder.glob("node-*.start"))
    found = {}
    for data in records:
        if data is None:
            continue
        with suppress(KeyError, TypeError, ValueError):
            first = int(data["first_rank"])
            found[str(data["node"])] = range(first, first + int(data["ranks"]))
    return found


def first_failure(folder: Path) -> RankExit | None:
    """Return the rank of an attempt that failed first, None where none did.

    A rank that was told to end (143, SIGTERM) is a consequence: it is named only where nothing else failed.
    """
    failed = [exit_ for exit_ in rank_exits(folder) if exit_.status != 0]
    return min(failed, key=lambda exit_: (exit_.status == 143, exit_.ended_s), default=None)


def rank_exits(folder: Path) -> list[RankExit]:
    """Return how the ranks of an attempt ended, those that left word."""
    records = (_read(path) for path in folder.glob("rank-*.exit"))
    return [
        RankExit(int(data["rank"]), str(data["node"]), int(data["status"]), float(data["ended"]))
        for data in records
        if data is not None
    ]
