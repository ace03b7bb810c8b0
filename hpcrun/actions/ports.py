"""What an action needs of the world: the runs, the schedulers, this host, the clock."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from hpcrun.actions.status.run_status import RunStatus
from hpcrun.runs.store import RunStore
from hpcrun.schedulers.protocol import Scheduler

Schedulers = Callable[[str], Scheduler]
"""Scheduler name → adapter."""


@dataclass(frozen=True, slots=True)
class Ports:
    """The runs, the schedulers, this host and the clock; ``cli`` builds them, for ``api`` too.

    Attributes:
        schedulers: asked afresh each time.
        polling: for commands that repeat their questions: they share the answers.
        host: this host's name; a local run lives on it.
        now_s: returns the time, in seconds since the epoch.
        on_end: is given the id of each run whose end is learned, once.
        on_status: is given the runs of each question about their status, the runs folder and the time.
    """

    store: RunStore
    schedulers: Schedulers
    polling: Schedulers
    host: str
    now_s: Callable[[], float]
    on_end: Callable[[str], None] = lambda _: None
    on_status: Callable[[Sequence[RunStatus], Path, float], None] = lambda *_: None

    def for_polling(self) -> Ports:
        """Return the same for a command that repeats its questions."""
        return replace(self, schedulers=self.polling)
