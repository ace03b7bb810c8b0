"""Waiting for the end of a run, at little cost to the scheduler."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from hpcrun.actions.status import RunStatus, Schedulers, get_status
from hpcrun.runs.attempt import RankExit, first_failure, last_attempt
from hpcrun.runs.logs import rank_log, tail
from hpcrun.runs.store import RunStore

LOOK_EVERY_S = 0.5
"""How often the run folder is looked at, which costs the controller nothing."""
ASK_EVERY_S = 10.0
"""How often the scheduler is asked whether a job still lives."""
SETTLES_WITHIN_S = 60.0
"""How long a job whose script has ended may take to leave the scheduler's hands (COMPLETING)."""


@dataclass(frozen=True, slots=True)
class Failure:
    """The rank that failed first, and the last lines it wrote to stderr."""

    rank: RankExit
    last_lines: str


@dataclass(frozen=True, slots=True)
class Waiter:
    """Waits for one run.

    Attributes:
        refresh: asks the scheduler for the run's status.
    """

    folder: Path
    refresh: Callable[[], RunStatus]

    def over(self) -> Callable[[], bool]:
        """Return a question that can be asked often: is the run over?

        The script's own exit record is enough; the scheduler is asked now and then, for a job that was killed
        before it could write one.
        """
        asked_at = time.monotonic()

        def is_over() -> bool:
            nonlocal asked_at
            attempt = last_attempt(self.folder)
            if attempt is not None and attempt.exit is not None and not attempt.exit.signal:
                return True
            if time.monotonic() - asked_at < ASK_EVERY_S:
                return False
            asked_at = time.monotonic()
            return self.refresh().status.final

        return is_over

    def wait(self) -> RunStatus:
        """Wait until the run is over and the scheduler says how."""
        is_over = self.over()
        while not is_over():
            time.sleep(LOOK_EVERY_S)
        deadline, pause_s = time.monotonic() + SETTLES_WITHIN_S, 0.2
        while not (found := self.refresh()).status.final and time.monotonic() < deadline:
            time.sleep(pause_s)
            pause_s = min(pause_s * 1.5, 5.0)
        return found


def waiter_for(run_id: str, *, store: RunStore, schedulers: Schedulers, host: str) -> Waiter:
    """Return a waiter for one run."""

    def refresh() -> RunStatus:
        return get_status([run_id], store=store, schedulers=schedulers, host=host, now_s=time.time()).runs[0]

    return Waiter(store.folder(run_id), refresh)


def find_failure(folder: Path, lines: int = 20) -> Failure | None:
    """Return the rank of a run that failed first, None where no rank left word of a failure."""
    attempt = last_attempt(folder)
    rank = first_failure(attempt.folder) if attempt else None
    if attempt is None or rank is None:
        return None
    try:
        return Failure(rank, tail(rank_log(attempt.folder, rank.rank, "err").path, lines))
    except OSError:
        return Failure(rank, "")
