"""squeue's last answer, in a file that all processes of a user share.

So many waiting commands ask Slurm once.
"""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import ClassVar

from hpcrun.files.reading import open_regular
from hpcrun.files.writing import flocked, make_folder, replace_file
from hpcrun.machine.process import Completed

# the shortest time between two polls of the controller, for all processes of a user together
EVERY_S = 10.0
# the longest pause: it doubles while the controller is slow or does not respond
LONGEST_PAUSE_S = 60.0
SLOW_S = 2.0
# a process waits so long for another one that calls squeue, whose timeout is shorter
ASKED_WITHIN_S = 12.0
_MOST_BYTES = 32 << 20  # of a copy: more than the text of 100,000 jobs


@dataclass(frozen=True, slots=True)
class Answer:
    """squeue's answer."""

    asked_s: float  # when squeue was called, in seconds since the epoch
    pause_s: float  # how long polls may use this answer
    done: Completed


@dataclass(frozen=True)
class SharedCopy:
    """A copy of a cluster's answers, in a file that all processes of a user share."""

    folder: Path  # it belongs to the user
    cluster: str | None  # None if it has no name
    kind: ClassVar[str]

    @property
    def path(self) -> Path:
        """The file: one for each cluster, since a home may be that of several."""
        return (
            self.folder / f"{self.kind}-{re.sub(r'[^A-Za-z0-9_-]', '_', self.cluster or 'unnamed')}"
        )

    def read(self) -> bytes:
        """Return the copy.

        Raises:
            OSError: there is no copy, or another user could have written it, or it is too large.
        """
        with open_regular(self.path, links=False) as file:
            status = os.fstat(file.fileno())
            if (
                status.st_uid != os.geteuid()
                or status.st_mode & 0o022
                or status.st_size > _MOST_BYTES
            ):
                raise OSError("another user can write to it, or it is too large")
            return file.read()

    def write(self, content: bytes) -> None:
        """Replace the copy, if that is possible."""
        with suppress(OSError):
            make_folder(self.folder, 0o700)
            replace_file(self.path, content, durable=False)


@dataclass(frozen=True)
class QueueCache(SharedCopy):
    """squeue's answer."""

    kind = "squeue"
    clock: Callable[[], float] = time.time  # seconds since the epoch

    def shared(self, ask: Callable[[], Completed]) -> Answer:
        """Return an answer that is young enough, from any process; else call squeue.

        One process at a time calls squeue.
        """
        known = self._young()
        if known:
            return known
        with ExitStack() as held:
            # Wait for a process that already calls squeue; without locks two may call it, which is
            # harmless.
            with suppress(OSError):
                make_folder(self.folder, 0o700)
                held.enter_context(flocked(self.path.with_suffix(".lock"), ASKED_WITHIN_S))
            # another process may have written it meanwhile
            return self._young() or self.afresh(ask)

    def afresh(self, ask: Callable[[], Completed]) -> Answer:
        """Call squeue, and store the answer for polls."""
        before = self._known()
        asked_s = self.clock()
        began = time.monotonic()
        done = ask()
        pause_s = EVERY_S
        if not done.ok or time.monotonic() - began > SLOW_S:
            pause_s = min(2 * (before.pause_s if before else EVERY_S), LONGEST_PAUSE_S)
        head = {"asked_s": asked_s, "pause_s": pause_s, "done": {**asdict(done), "stdout": ""}}
        self.write(f"{json.dumps(head)}\n{done.stdout}".encode("utf-8", "surrogateescape"))
        return Answer(asked_s, pause_s, done)

    def _young(self) -> Answer | None:
        """Return the stored answer while polls may use it.

        An answer from the future is from before a clock was set back, and is not used.
        """
        known = self._known()
        if known and 0 <= self.clock() - known.asked_s < known.pause_s:
            return known
        return None

    def _known(self) -> Answer | None:
        try:
            head, _, text = self.read().decode("utf-8", "surrogateescape").partition("\n")
            record = json.loads(head)
            done = Completed(**{**record["done"], "stdout": text})
            return Answer(float(record["asked_s"]), float(record["pause_s"]), done)
        except (OSError, ValueError, TypeError, KeyError):
            return None
