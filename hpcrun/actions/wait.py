"""Waiting for the end of a run, at little cost to the scheduler."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from hpcrun.actions.status import RunStatus, Schedulers, one_status
from hpcrun.runs.attempt import last_attempt
from hpcrun.runs.elements import elements_of
from hpcrun.runs.record import LastStatus
from hpcrun.runs.store import RunStore

LOOK_EVERY_S = 0.5
"""How often the run folder is looked at, which costs the controller nothing."""
ASK_EVERY_S = 10.0
"""How often the scheduler is asked whether a job still lives."""
SETTLES_WITHIN_S = 60.0
"""How long a job whose script has ended may take to leave the scheduler's hands (COMPLETING)."""


@dataclass(frozen=True, slots=True)
class Waiter:
    """Waits for one run.

    Attributes:
        refresh: asks the scheduler for the run's status, at once.
        look: the same with an answer that may be a little older, for asking again and again.
        element: which element of a sweep is waited for, None for all of the run.
        is_sweep: the run has elements.
    """

    folder: Path
    refresh: Callable[[], RunStatus]
    look: Callable[[], RunStatus]
    element: int | None = None
    is_sweep: bool = False

    def status(self) -> LastStatus:
        """Ask for the status of what is waited for: the run, or its element."""
        return self._status_in(self.refresh())

    def _status_in(self, item: RunStatus) -> LastStatus:
        return next((known.status for known in item.elements if known.index == self.element), item.status)

    def _left_word(self, element: int) -> bool:
        """Whether the script of an element (0 for an ordinary run) says that it has ended by itself."""
        attempt = last_attempt(self.folder, element)
        exit_ = attempt.exit if attempt else None
        return exit_ is not None and not exit_.signal and not exit_.again

    def over(self) -> Callable[[], bool]:
        """Return a question that can be asked often: is the run over?

        The script's own exit record is enough; the scheduler is asked now and then, for a job that was killed
        before it could write one.
        """
        asked_at = time.monotonic()
        running = self._awaited()

        def is_over() -> bool:
            nonlocal asked_at
            while running and self._left_word(running[-1]):
                running.pop()
            if not running:
                return True
            if time.monotonic() - asked_at < ASK_EVERY_S and self.folder.exists():  # gone: asking says so
                return False
            asked_at = time.monotonic()
            return self._status_in(self.look()).final

        return is_over

    def _awaited(self) -> list[int]:
        """Return the elements whose end is looked for, the first one last: a look costs one element's folder."""
        if self.element is not None:
            return [self.element]
        return [known.index for known in reversed(self.look().elements)] if self.is_sweep else [0]

    def wait(self) -> RunStatus:
        """Wait until the run is over and the scheduler says how."""
        is_over = self.over()
        while not is_over():
            time.sleep(LOOK_EVERY_S)
        # Slurm mostly needs less than a second: the first questions come quickly, and few of them
        deadline, pause_s = time.monotonic() + SETTLES_WITHIN_S, 0.4
        while not self._status_in(found := self.refresh()).final and time.monotonic() < deadline:
            time.sleep(pause_s)
            pause_s = min(pause_s * 2, ASK_EVERY_S)
        return found


def waiter_for(run_id: str, *, store: RunStore, schedulers: Schedulers, polling: Schedulers, host: str) -> Waiter:
    """Return a waiter for one run.

    Args:
        polling: schedulers for asking again and again; see ``Waiter.look``.
    """

    def ask(whom: Schedulers) -> RunStatus:
        return one_status(run_id, store=store, schedulers=whom, host=host, now_s=time.time()).runs[0]

    return Waiter(
        store.folder(run_id),
        lambda: ask(schedulers),
        lambda: ask(polling),
        is_sweep=elements_of(store.load(run_id)) is not None,
    )
