"""squeue's last answer in a file that all processes of a user share, so that many who wait ask the controller once.

The file is one line of JSON and then squeue's text. It is a copy: where it cannot be read or written, squeue is asked.
"""

from __future__ import annotations

import json
import os
import re
import stat
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from hpcrun.schedulers.process import Completed
from hpcrun.writing import flocked, replace_file

EVERY_S = 10.0
"""How often those who poll ask the controller at most, all of a user's processes together."""
AT_MOST_EVERY_S = 60.0
"""How far the pause grows, doubling, while the controller is slow or away."""
SLOW_S = 2.0
ASKED_WITHIN_S = 12.0
"""How long one process waits for another that is asking already; squeue is given up before that."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What squeue said.

    Attributes:
        asked_s: when it was asked, in seconds since the epoch.
        pause_s: how long this answer serves those who poll.
        done: None where a submission or a cancellation has made the answer worthless.
    """

    asked_s: float
    pause_s: float
    done: Completed | None

    def serves(self, now_s: float) -> bool:
        """Whether it is young enough; one from the future was given before a clock was set back."""
        return self.done is not None and 0 <= now_s - self.asked_s < self.pause_s


@dataclass(frozen=True, slots=True)
class QueueCache:
    """The shared answer of one cluster.

    Attributes:
        folder: where it lies, in a folder of the user's own.
        cluster: whose answer it is; None where the cluster has no name.
        clock: seconds since the epoch.
    """

    folder: Path
    cluster: str | None
    clock: Callable[[], float] = time.time

    @property
    def path(self) -> Path:
        """The file: one for each cluster."""
        return self.folder / f"squeue-{re.sub(r'[^A-Za-z0-9_-]', '_', self.cluster or 'unnamed')}"

    def shared(self, ask: Callable[[], Completed]) -> Completed:
        """Return an answer that is young enough, whoever asked; else ask, one process at a time."""
        known = self._read()
        if known and known.done and known.serves(self.clock()):
            return known.done
        with ExitStack() as held:
            # Wait for a process that is asking already; on file systems without locks two may ask, which is no harm.
            with suppress(OSError):
                self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
                held.enter_context(flocked(self.path.with_suffix(".lock"), ASKED_WITHIN_S))
            known = self._read()  # another may have asked while this one waited for it
            if known and known.done and known.serves(self.clock()):
                return known.done
            return self._ask(ask, known)

    def afresh(self, ask: Callable[[], Completed]) -> Completed:
        """Ask, and leave the answer for those who poll."""
        return self._ask(ask, self._read())

    def drop(self) -> None:
        """Let nobody take an answer from before this moment: a job was submitted or cancelled."""
        known = self._read()
        self._write(Answer(self.clock(), known.pause_s if known else EVERY_S, None))

    def _ask(self, ask: Callable[[], Completed], before: Answer | None) -> Completed:
        asked_s, began = self.clock(), time.monotonic()
        done = ask()
        pause_s = EVERY_S
        if not done.ok or time.monotonic() - began > SLOW_S:
            pause_s = min(2 * (before.pause_s if before else EVERY_S), AT_MOST_EVERY_S)
        since = self._read()
        # what was dropped while squeue was under way stays dropped: its answer may be from before
        if since is None or not asked_s < since.asked_s <= self.clock():
            self._write(Answer(asked_s, pause_s, done))
        return done

    def _read(self) -> Answer | None:
        try:
            with open(os.open(self.path, os.O_RDONLY | os.O_NOFOLLOW), "rb") as file:
                found = os.fstat(file.fileno())
                if found.st_uid != os.geteuid() or stat.S_IMODE(found.st_mode) & 0o022:
                    return None
                head, _, text = file.read().decode("utf-8", "surrogateescape").partition("\n")
            said = json.loads(head)
            done = None if said["done"] is None else Completed(**{**said["done"], "stdout": text})
            return Answer(float(said["asked_s"]), float(said["pause_s"]), done)
        except (OSError, ValueError, TypeError, KeyError):
            return None

    def _write(self, answer: Answer) -> None:
        text = answer.done.stdout if answer.done else ""
        done = None if answer.done is None else {**asdict(answer.done), "stdout": ""}
        head = json.dumps({"asked_s": answer.asked_s, "pause_s": answer.pause_s, "done": done})
        with suppress(OSError):
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            replace_file(self.path, f"{head}\n{text}".encode("utf-8", "surrogateescape"), durable=False)
