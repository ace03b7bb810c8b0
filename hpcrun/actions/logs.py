"""logs: which files a person means, and following them to the end of the job."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from hpcrun.errors import NotFoundError
from hpcrun.runs.attempt import last_attempt, ranks
from hpcrun.runs.logs import LogFile, follow, has_text, rank_log
from hpcrun.runs.store import BATCH_LOG

READ_EVERY_S = 0.5


@dataclass(frozen=True, slots=True)
class LogChoice:
    """Which logs: one rank, all, or the batch script's; of them only stderr where ``err``."""

    rank: int = 0
    all_ranks: bool = False
    batch: bool = False
    err: bool = False


def choose_logs(folder: Path, choice: LogChoice) -> list[LogFile]:
    """Return the logs there are now for a choice; none where the job has not started."""
    if choice.batch:
        return [LogFile(folder / BATCH_LOG, "batch")]
    attempt = last_attempt(folder)
    if attempt is None:
        return []
    wanted = ranks(attempt.folder) if choice.all_ranks else [choice.rank]
    streams = ("err",) if choice.err else ("out", "err")
    return [rank_log(attempt.folder, rank, stream) for rank in wanted for stream in streams]


def check_rank(folder: Path, choice: LogChoice, world_size: int) -> None:
    """Refuse a rank that the job does not have.

    Raises:
        NotFoundError: there is no such rank.
    """
    if not choice.batch and not choice.all_ranks and not 0 <= choice.rank < world_size:
        raise NotFoundError(f"{folder.name} has no rank {choice.rank}", hint=f"its ranks are 0 to {world_size - 1}")


def finished_logs(folder: Path, choice: LogChoice) -> list[LogFile]:
    """Return the logs to show of a run without following: those with text, else the batch script's own.

    A job that failed before its ranks started has said why in the batch log alone.
    """
    found = [log for log in choose_logs(folder, choice) if has_text(log)]
    batch = LogFile(folder / BATCH_LOG, "batch")
    if not found and not choice.batch and has_text(batch):
        attempt = last_attempt(folder)
        if attempt is None or not ranks(attempt.folder):
            return [batch]
    return found


def follow_logs(
    folder: Path, choice: LogChoice, *, lines: int | None, is_over: Callable[[], bool]
) -> Iterator[tuple[LogFile, str]]:
    """Yield a run's logs as they grow, until ``is_over`` says that the job is."""
    return follow(
        lambda: choose_logs(folder, choice),
        lines=lines,
        is_over=is_over,
        pause=lambda: time.sleep(READ_EVERY_S),
    )
