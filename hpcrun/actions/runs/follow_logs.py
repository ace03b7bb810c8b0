"""logs -f: how often files are read, listed, and the end of the job is looked for."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from itertools import islice, takewhile
from pathlib import Path

from hpcrun.actions.runs.log_choice import LogChoice, choose_logs, logs_of
from hpcrun.runs.attempt import Attempt, attempts
from hpcrun.runs.follow_files import FEW, follow
from hpcrun.runs.log_files import LogFile

READ_EVERY_S = 0.5
MANY_READ_EVERY_S = 1.0
MANY_LIST_EVERY_S = 5.0
MANY_OVER_EVERY_S = 2.0
"""The same of more than 16 ranks: how often some are read, all are listed, and the run's end is
looked for. Each look is a question to the file server; ``hpcrun/runs/follow_files.py`` says how
many files are looked at each time."""


def _attempts_since(number: int | None, begun: Iterator[Attempt]) -> list[Attempt]:
    """Return the attempts from a number on, the newest first; for None, the newest one."""
    if number is None:
        return list(islice(begun, 1))
    return list(takewhile(lambda attempt: attempt.number >= number, begun))


def follow_logs(
    folder: Path, choice: LogChoice, *, lines: int | None, is_over: Callable[[], bool]
) -> Iterator[tuple[LogFile, str]]:
    """Yield a run's logs as they grow, over the attempts that come.

    The logs end when ``is_over`` says that the job is over.
    """
    newest: int | None = None
    shown: list[LogFile] = []
    listed_at = float("-inf")
    over_at = float("-inf")
    ended = False

    def is_many() -> bool:
        return len(shown) > FEW

    def over() -> bool:
        nonlocal ended, over_at
        if not is_many() or time.monotonic() - over_at >= MANY_OVER_EVERY_S:
            ended = is_over()
            over_at = time.monotonic()
        return ended

    def logs() -> list[LogFile]:
        nonlocal newest, shown, listed_at
        if is_many() and not ended and time.monotonic() - listed_at < MANY_LIST_EVERY_S:
            return shown
        listed_at = time.monotonic()
        if choice.batch or choice.attempt is not None:
            shown = choose_logs(folder, choice)
        else:
            # the attempt before is read once more to its end after a new one has begun
            recent = _attempts_since(newest, attempts(folder, choice.element))
            if recent:
                newest = recent[0].number
            elif newest is None:
                newest = 0
            shown = []
            for attempt in reversed(recent):
                shown += logs_of(attempt, choice)
        return shown

    def pause() -> None:
        pause_s = MANY_READ_EVERY_S if is_many() else READ_EVERY_S
        time.sleep(pause_s)

    return follow(logs, lines=lines, is_over=over, pause=pause)
