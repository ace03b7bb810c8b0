"""logs -f: how often files are read, listed, and the end of the job is looked for."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import islice, takewhile
from pathlib import Path

from hpcrun.actions.runs.log_choice import LogChoice, choose_logs, logs_of, script_log
from hpcrun.runs.attempt import Attempt, attempts
from hpcrun.runs.follow_files import FEW, follow
from hpcrun.runs.log_files import LogFile, has_text

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


@dataclass(slots=True)
class _GrowingLogs:
    """The logs of a run that grow, and whether its job is over."""

    folder: Path
    choice: LogChoice
    is_over: Callable[[], bool]
    _newest: int | None = None  # the newest attempt when the logs were last listed
    _shown: list[LogFile] = field(default_factory=list)
    _listed_at: float = float("-inf")
    _over_at: float = float("-inf")  # when the job's end was last looked for
    _ended: bool = False

    def current(self) -> list[LogFile]:
        """Return the logs to read now."""
        age_s = time.monotonic() - self._listed_at
        if self._are_many() and not self._ended and age_s < MANY_LIST_EVERY_S:
            return self._shown
        self._listed_at = time.monotonic()
        if self.choice.batch or self.choice.attempt is not None:
            self._shown = choose_logs(self.folder, self.choice)
        else:
            self._shown = self._logs_of_newest()
            if self.choice.script and not any(map(has_text, self._shown)):
                self._shown.append(script_log(self.folder, self.choice, self._newest or 0))
        return self._shown

    def over(self) -> bool:
        """Whether the job is over, as far as that was looked for lately."""
        age_s = time.monotonic() - self._over_at
        if not self._are_many() or age_s >= MANY_OVER_EVERY_S:
            self._ended = self.is_over()
            self._over_at = time.monotonic()
        return self._ended

    def pause(self) -> None:
        """Wait until the logs should be read again."""
        pause_s = MANY_READ_EVERY_S if self._are_many() else READ_EVERY_S
        time.sleep(pause_s)

    def _are_many(self) -> bool:
        return len(self._shown) > FEW

    def _logs_of_newest(self) -> list[LogFile]:
        """Return the logs of the newest attempt, and of those that were new before.

        The attempt before is read once more to its end after a new one has begun.
        """
        recent = _attempts_since(self._newest, attempts(self.folder, self.choice.element))
        if recent:
            self._newest = recent[0].number
        elif self._newest is None:
            self._newest = 0
        logs = []
        for attempt in reversed(recent):
            logs += logs_of(attempt, self.choice)
        return logs


def follow_logs(
    folder: Path, choice: LogChoice, *, lines: int | None, is_over: Callable[[], bool]
) -> Iterator[tuple[LogFile, str]]:
    """Yield a run's logs as they grow, over the attempts that come.

    The logs end when ``is_over`` says that the job is over.
    """
    growing = _GrowingLogs(folder, choice, is_over)
    return follow(growing.current, lines=lines, is_over=growing.over, pause=growing.pause)
