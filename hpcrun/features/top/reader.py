"""What ``hpcrun top`` knows of the runs, and the threads that learn it.

No screen waits for a file or for Slurm. The module does not import textual. The threads are
daemons: a thread that waits for a file system that hangs does not delay the end of the program, as
a pool of threads would.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, TypeVar

from hpcrun.actions.ports import Ports
from hpcrun.actions.status.known_run import is_settled
from hpcrun.actions.status.run_status import RunStatus, StatusResult, element_of, failed_elements
from hpcrun.actions.status.silent_runs import with_silence
from hpcrun.actions.status.status_query import get_status, last_known
from hpcrun.actions.status.wait import Changes
from hpcrun.errors import HpcrunError, NotFoundError
from hpcrun.explain.first_line import (
    Rules,
    has_failed,
    lacks_line,
    with_element_lines,
    with_first_lines,
)
from hpcrun.features.scaling.studies import StudyStore
from hpcrun.features.top.rows import TopRow, run_rows
from hpcrun.schedulers.protocol import Scheduler

# seconds between two questions, as with ``status --watch``; after a minute, half a minute
INTERVAL_S = 15
LATE_S = 3.0  # after this time the title names what does not respond
_FIRST = 40  # how many runs are on the first frame: as many as a terminal is high
Post = Callable[..., object]  # calls a function with arguments in the thread of the screens, later
Answer = TypeVar("Answer")


@dataclass(frozen=True, slots=True)
class Done:
    """A command that has ended, as a person types the command.

    The record also holds what the command printed, and whether its exit status is 0.
    """

    line: str
    lines: tuple[str, ...]
    ok: bool


@dataclass(frozen=True, slots=True)
class Reading:
    """What is known of all runs, the oldest first, at one time."""

    runs: tuple[RunStatus, ...] = ()
    # run id → what is wrong, of the runs that cannot be read
    damaged: Mapping[str, str] = field(default_factory=dict)
    away: str = ""  # why the scheduler did not respond; empty if it did, or was not asked yet
    # when it last responded, in seconds since the epoch; None before its first answer
    answered_s: float | None = None
    rows: tuple[TopRow, ...] = ()
    # run id → the study that it belongs to
    studies: Mapping[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class Reader:
    """Learns the state of all runs, again and again, in a thread of its own.

    Attributes:
        metric_patterns: profile → metric → the regular expression that finds it in a log.
    """

    ports: Ports
    env: Mapping[str, str]
    rules: Rules  # returns the rules of ``explain``
    metric_patterns: Callable[[str], Mapping[str, str]]
    reading: Reading = field(default_factory=Reading)  # what was learned last
    done: list[Done] = field(default_factory=list)  # what a person has done to runs since the start
    _post: Post | None = None
    _publish: Callable[[], object] = lambda: None
    _over: dict[str, RunStatus] = field(default_factory=dict)
    _first_shown: threading.Event = field(default_factory=threading.Event)
    _woken: threading.Event = field(default_factory=threading.Event)
    _is_over: bool = False
    _waits_for: tuple[str, float] | None = None

    def start(self) -> None:
        """Begin to read, at best while the screens are still being imported."""
        threading.Thread(target=self._read_again_and_again, daemon=True).start()

    def stop(self) -> None:
        """Read nothing more: the screens are gone."""
        self._is_over = True
        self._first_shown.set()
        self._woken.set()

    def go_on(self) -> None:
        """Read the rest: the first frame is on the screen, and reading cannot delay it any more."""
        self._first_shown.set()

    def tell(self, post: Post, publish: Callable[[], object]) -> None:
        """Call the screens by ``post`` from now on, in the thread of the screens.

        The reader calls ``publish`` when there is a new reading.
        """
        self._post = post
        self._publish = publish

    def refresh(self) -> None:
        """Ask the scheduler now, use no cached answer."""
        self._woken.set()

    def run_status(self, run_id: str) -> RunStatus:
        """Return what is known of a run, or of an element, ``run id/3``; never waits.

        Raises:
            NotFoundError: its folder is gone, or its record cannot be read.
        """
        run_id, _, index = run_id.partition("/")
        item = next((item for item in self.reading.runs if item.run.run_id == run_id), None)
        if item is None:
            problem = self.reading.damaged.get(run_id, f"there is no run {run_id!r} any more")
            raise NotFoundError(problem, hint="hpcrun status --all lists the runs")
        try:
            return element_of(item, int(index)) if index else item
        except StopIteration:
            raise NotFoundError(
                f"{run_id}: element {index} is not read yet, or there is none"
            ) from None

    def now_s(self) -> float:
        """Return the time, in seconds since the epoch."""
        return self.ports.now_s()

    def late(self) -> str | None:
        """Return what the reader has been waiting for, if the wait is long, else None.

        The answer names the scheduler, such as ``Slurm``, or the runs folder.
        """
        waits = self._waits_for
        if waits and time.monotonic() - waits[1] > LATE_S:
            return waits[0]
        return None

    def in_background(
        self,
        call: Callable[[], Answer],
        then: Callable[[Answer], object],
        failed: Callable[[HpcrunError | OSError], object],
    ) -> None:
        """Call a function in a thread of its own, and then hand over the answer or the error.

        ``then`` takes the answer and ``failed`` takes the error, in the thread of the screens.
        """

        def run() -> None:
            try:
                answer = call()
            except (HpcrunError, OSError) as error:
                self._tell(failed, error)
            except Exception as error:
                self._tell(failed, _bug(error))
            else:
                self._tell(then, answer)

        threading.Thread(target=run, daemon=True).start()

    def _pause(self, seconds: float) -> bool:
        woken = self._woken.wait(seconds)
        self._woken.clear()
        return woken

    def _tell(self, call: Callable[..., object], *args: Any) -> None:
        # the program has ended meanwhile, and its event loop is closed
        with suppress(RuntimeError):
            if self._post:
                self._post(call, *args)

    def _read_again_and_again(self) -> None:
        changes = Changes(self.ports.store, INTERVAL_S, pause=self._pause)
        # first the folders of the newest runs, then those of all: they respond sooner than Slurm
        self._learn(partial(self._last_known, _FIRST))
        self._first_shown.wait()
        self._learn(self._last_known)
        ports = self.ports.for_polling()
        while not self._is_over:
            self._learn(partial(self._ask, ports))
            ports = self.ports if changes.wait() else self.ports.for_polling()

    def _learn(self, read: Callable[[], Reading]) -> None:
        try:
            self.reading = read()
        except HpcrunError as error:
            self.reading = replace(self.reading, away=error.message)
        except Exception as error:
            # the next reading may succeed, for a person who watches for days
            if isinstance(error, OSError):
                words = str(error)
            else:
                words = _bug(error).message
            self.reading = replace(self.reading, away=words)
        self._tell(self._publish)

    def _last_known(self, newest: int = 0) -> Reading:
        """Return so many of the newest runs, or all, as they were last known."""
        store = self.ports.store
        with self._waiting(str(store.root)):
            ids = store.run_ids()[-newest:]
            return self._with(ids, ids, last_known(ids, store=store, now_s=self.ports.now_s()))

    def _ask(self, ports: Ports) -> Reading:
        """Ask the scheduler about the runs that have not ended, and read new runs' folders."""
        store = self.ports.store
        now_s = self.ports.now_s()

        def scheduler_of(name: str) -> Scheduler:
            scheduler = "Slurm" if name == "slurm" else "this machine"
            self._waits_for = (scheduler, time.monotonic())
            return ports.schedulers(name)

        with self._waiting(str(store.root)):
            ids = store.run_ids()
            wanted = [run_id for run_id in ids if run_id not in self._over]
            result = get_status(wanted, replace(ports, schedulers=scheduler_of))
        with self._waiting(str(store.root)):
            result = with_first_lines(with_silence(result, now_s), store, self.rules)
            lacking = [item for item in result.runs if _lacks_element_lines(item)]
            runs = list(result.runs)
            if lacking:  # one sweep at a time
                item = lacking[-1]
                failed = failed_elements(item.elements)
                explained = with_element_lines(item, failed, store, self.rules)
                runs[runs.index(item)] = explained
            reading = self._with(ids, wanted, replace(result, runs=tuple(runs)))
        if reading.away:
            return reading
        return replace(reading, answered_s=now_s)

    def _with(self, ids: Collection[str], wanted: Sequence[str], result: StatusResult) -> Reading:
        """Return what is known of all runs, of which some were read now."""
        listed = set(ids)
        self._over = {run_id: item for run_id, item in self._over.items() if run_id in listed}
        for item in result.runs:
            is_explained = not (lacks_line(item) or _lacks_element_lines(item))
            if is_settled(item.run, item.status) and is_explained:
                self._over[item.run.run_id] = item
        known = self._over | {item.run.run_id: item for item in result.runs}
        runs = tuple(sorted(known.values(), key=lambda item: item.run.created_s))
        damaged = {}
        for text in result.damaged:
            words = text.split()
            damaged.update({run_id: text for run_id in wanted if run_id in words})
        away = result.away.message if result.away else ""
        rows = run_rows(runs, damaged, self.reading.rows)
        return Reading(runs, damaged, away, self.reading.answered_s, rows, self._studies())

    def _studies(self) -> dict[str, str]:
        """Return run id → study; one that cannot be read is left out."""
        store = StudyStore(self.ports.store.root)
        studies: dict[str, str] = {}
        with suppress(HpcrunError):
            for study_id in store.study_ids():
                with suppress(HpcrunError):
                    studies |= {point.run_id: study_id for point in store.load(study_id).points}
        return studies

    @contextmanager
    def _waiting(self, what: str) -> Iterator[None]:
        self._waits_for = (what, time.monotonic())
        try:
            yield
        finally:
            self._waits_for = None


def _lacks_element_lines(item: RunStatus) -> bool:
    """Whether an element of a sweep failed and its explanation is not worked out yet."""
    if item.stale:
        return False
    failed = [each.status for each in item.elements if has_failed(each.status)]
    return any(status.cause is None for status in failed)


def _bug(error: Exception) -> HpcrunError:
    return HpcrunError(f"this is a bug in hpcrun: {type(error).__name__}: {error}")
