"""What the script itself wrote down: start, exit, and how each node and rank ended."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_RANK_FILE = re.compile(r"rank-(\d+)\.(out|err|exit)")


@dataclass(frozen=True, slots=True)
class ExitRecord:
    """How the batch script ended.

    Attributes:
        status: exit status; 128 + n where signal n ended it.
        signal: ``TERM`` where the script was told to end (scancel, time limit, preemption), else empty.
        ended_s: seconds since the epoch.
        message: what the script itself found wrong, else empty.
    """

    status: int
    signal: str
    ended_s: float
    message: str = ""


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
        job_id: of the job that started, as the script saw it.
        started_s: seconds since the epoch.
        exit: None while it runs, or where it was killed before it could say.
    """

    folder: Path
    job_id: str
    started_s: float
    exit: ExitRecord | None


def attempts_folder(run_folder: Path, element: int = 0) -> Path:
    """Return the folder that holds the attempts of one element."""
    return run_folder / "elements" / str(element) / "attempts"


def last_attempt(run_folder: Path) -> Attempt | None:
    """Return the newest attempt of a run, None where it has not started."""
    folder = attempts_folder(run_folder)
    try:
        numbers = sorted(int(entry.name) for entry in folder.iterdir() if entry.name.isdigit())
    except FileNotFoundError:
        return None
    for number in reversed(numbers):
        start = _read(folder / str(number) / "start")
        if start is not None:
            return Attempt(
                folder / str(number),
                str(start["job_id"]),
                float(start["started"]),
                _exit(folder / str(number)),
            )
    return None


def _exit(folder: Path) -> ExitRecord | None:
    data = _read(folder / "exit")
    if data is None:
        return None
    return ExitRecord(int(data["status"]), str(data["signal"]), float(data["ended"]), str(data.get("message", "")))


def _read(path: Path) -> dict[str, Any] | None:
    """Return a record of the script, None where it is not there; the script renames, so it is never half."""
    try:
        data = json.loads(path.read_text("utf-8", errors="replace"), strict=False)
    except (OSError, ValueError):
        return None
    return data if isinstance(data, dict) else None


def ranks(folder: Path) -> list[int]:
    """Return the ranks of an attempt that have written a log or an exit record."""
    found = (_RANK_FILE.fullmatch(entry.name) for entry in folder.iterdir())
    return sorted({int(match[1]) for match in found if match})


def first_failure(folder: Path) -> RankExit | None:
    """Return the rank of an attempt that failed first, None where none did.

    A rank that was told to end (143, SIGTERM) is a consequence: it is named only where nothing else failed.
    """
    failed = [exit_ for exit_ in _rank_exits(folder) if exit_.status != 0]
    return min(failed, key=lambda exit_: (exit_.status == 143, exit_.ended_s), default=None)


def _rank_exits(folder: Path) -> list[RankExit]:
    records = (_read(path) for path in folder.glob("rank-*.exit"))
    return [
        RankExit(int(data["rank"]), str(data["node"]), int(data["status"]), float(data["ended"]))
        for data in records
        if data is not None
    ]
