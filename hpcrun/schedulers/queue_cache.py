"""squeue's last answer in a file that all processes of a user share, so that many polls need one request.

The file is one line of JSON and then squeue's text. It is only a copy: if it cannot be read or written, squeue is
called.
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
"""The shortest time between two polls of the controller, for all processes of a user together."""
AT_MOST_EVERY_S = 60.0
"""The longest pause: it doubles while the controller is slow or does not respond."""
SLOW_S = 2.0
ASKED_WITHIN_S = 12.0
"""How long a process waits for another one that already calls squeue; squeue's timeout is shorter."""


@dataclass(frozen=True, slots=True)
class Answer:
    """squeue's answer.

    Attributes:
        asked_s: when squeue was called, in seconds since the epoch.
        pause_s: how long polls may use this answer.
    """

    asked_s: float
    pause_s: float
    done: Completed


@dataclass(frozen=True, slots=True)
class QueueCache:
    """The shared answer of one cluster.

    Attributes:
        folder: its folder, which belongs to the user.
        cluster: the cluster of the answer; None if the cluster has no name.
        clock: seconds since the epoch.
    """

    folder: Path
    cluster: str | None
    clock: Callable[[], float] = time.time

    @property
    def path(self) -> Path:
        """The file: one for each cluster."""
        return self.folder / f"squeue-{re.sub(r'[^A-Za-z0-9_-]', '_', self.cluster or 'unnamed')}"

    def shared(self, ask: Callable[[], Completed]) -> Answer:
        """Return an answer that is young enough, from any process; else call squeue, one process at a time."""
        if known := self._young():
            return known
        with ExitStack() as held:
            # Wait for a process that already calls squeue; without locks two may call it, which is harmless.
            with suppress(OSError):
                self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
                held.enter_context(flocked(self.path.with_suffix(".lock"), ASKED_WITHIN_S))
            return self._young() or self.afresh(ask)  # another process may have written it meanwhile

    def afresh(self, ask: Callable[[], Completed]) -> Answer:
        """Call squeue, and store the answer for polls."""
        before = self._read()
        asked_s, began = self.clock(), time.monotonic()
        done = ask()
        pause_s = EVERY_S
        if not done.ok or time.monotonic() - began > SLOW_S:
            pause_s = min(2 * (before.pause_s if before else EVERY_S), AT_MOST_EVERY_S)
        answer = Answer(asked_s, pause_s, done)
        self._write(answer)
        return answer

    def _young(self) -> Answer | None:
        """Return the stored answer while polls may use it; one from the future is from before a clock was set back."""
        known = self._read()
        return known if known and 0 <= self.clock() - known.asked_s < known.pause_s else None

    def _read(self) -> Answer | None:
        try:
            with open(os.open(self.path, os.O_RDONLY | os.O_NOFOLLOW), "rb") as file:
                found = os.fstat(file.fileno())
                if found.st_uid != os.geteuid() or stat.S_IMODE(found.st_mode) & 0o022:
                    return None
                head, _, text = file.read().decode("utf-8", "surrogateescape").partition("\n")
            said = json.loads(head)
            done = Completed(**{**said["done"], "stdout": text})
            return Answer(float(said["asked_s"]), float(said["pause_s"]), done)
        except (OSError, ValueError, TypeError, KeyError):
            return None

    def _write(self, answer: Answer) -> None:
        done = {**asdict(answer.done), "stdout": ""}
        head = json.dumps({"asked_s": answer.asked_s, "pause_s": answer.pause_s, "done": done})
        with suppress(OSError):
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            replace_file(self.path, f"{head}\n{answer.done.stdout}".encode("utf-8", "surrogateescape"), durable=False)
