"""Reads logs that are still being written, by polling.

There is no inotify, since a network file system does not report changes by other hosts. A file is
opened, read and closed again; of many followed files, those that are being written stay open for a
while.
"""

from __future__ import annotations

import codecs
import os
import resource
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from hpcrun.files.reading import open_descriptor, open_regular
from hpcrun.runs.log_files import BLOCK, LogFile, tail_start

OPEN_LOOKS = 10  # how often an open file is read before its name is checked again
FEW = 32  # logs that are all read in every round: stdout and stderr of 16 ranks
# system calls of a round on the logs if there are more; then a round takes one second
CALLS_A_ROUND = 30
LIVE_ROUNDS = 20  # after so many rounds without new output a log counts as silent


@dataclass(slots=True)
class _Reader:
    """One followed file: the offset up to which it was read, and a character that a read has split.

    A file that is being written stays open for a while: then reading it needs one system call
    instead of five.
    """

    log: LogFile
    offset: int = 0
    file_id: tuple[int, int] | None = None
    decoder: codecs.IncrementalDecoder = field(
        default_factory=lambda: codecs.getincrementaldecoder("utf-8")("surrogateescape")
    )
    # looked_at, spoke_at: the rounds in which it was last read, and in which it last had new output
    looked_at: int = 0
    spoke_at: int = -LIVE_ROUNDS
    calls: int = 0  # the number of system calls on it so far
    _file: int | None = None
    _looks: int = 0

    def begin_at(self, lines: int) -> None:
        try:
            with open_regular(self.log.path, links=False) as file:
                self.offset = tail_start(file, lines)
        except OSError:
            self.offset = 0

    def read(self, *, stays_open: bool = False) -> Iterator[str]:
        """Yield the new text.

        A file that may stay open is opened again from time to time: another file may have taken its
        name, and a network file system shows the new end only after an open.
        """
        if self._file is not None:
            self._looks += 1
            before = self.offset
            yield from self._rest_of(self._file)
            if stays_open and self._looks < OPEN_LOOKS and self.offset > before:
                return
            self.close()
        self.calls += 1
        try:
            status = self.log.path.lstat()
        except OSError:
            return
        file_id = (status.st_dev, status.st_ino)
        if self.file_id not in (None, file_id) or status.st_size < self.offset:
            self.offset = 0  # another file has taken its name, or it was truncated
        self.file_id = file_id
        if status.st_size <= self.offset:
            return  # nothing new
        try:
            self._file = open_descriptor(self.log.path, links=False)
        except OSError:
            return  # it does not exist, or the file server does not respond: try again later
        self.calls += 2  # one to check that it is a regular file
        yield from self._rest_of(self._file)
        if not stays_open:
            self.close()

    @property
    def is_open(self) -> bool:
        """Whether the file was kept open."""
        return self._file is not None

    def close(self) -> None:
        """Close the file if it was kept open."""
        if self._file is not None:
            os.close(self._file)
            self.calls += 1
            self._file = None
            self._looks = 0

    def _rest_of(self, file: int) -> Iterator[str]:
        """Yield the text from the offset on; a short read is the end, and saves another read."""
        size = 16 * BLOCK
        got = size
        while got == size:
            self.calls += 1
            try:
                data = os.pread(file, size, self.offset)
            except OSError:
                return
            got = len(data)
            self.offset += got
            text = self.decoder.decode(data)
            if text:
                yield text


@dataclass(slots=True)
class Pace:
    """Counts the rounds, and selects the logs to read in each round.

    In this way, many followed logs do not load a file server. If there are few logs, all are read
    in every round. If there are many, recently written logs come first, then the silent ones in
    turn; silent logs always keep a share, so that none is forgotten.
    """

    round: int = 0

    def chosen(self, logs: Sequence[_Reader], *, every: bool) -> Iterator[_Reader]:
        """Yield the logs to read in the next round; read each log before you request the next one.

        At the beginning, and at the end of an attempt, it is every one, without a limit.
        """
        self.round += 1
        if every or len(logs) <= FEW:
            for log in logs:
                log.looked_at = self.round
                yield log
            return
        oldest_first = sorted(logs, key=lambda log: log.looked_at)
        live = [log for log in oldest_first if self.round - log.spoke_at <= LIVE_ROUNDS]
        left = CALLS_A_ROUND
        for some, kept in ((live, CALLS_A_ROUND // 4), (oldest_first, 0)):
            for log in some:
                if left <= kept:
                    break
                if log.looked_at < self.round:
                    log.looked_at = self.round
                    before = log.calls
                    yield log
                    left -= log.calls - before


def _may_open_another(readers: Sequence[_Reader]) -> bool:
    """Whether another of many logs may stay open; few logs are opened for each reading."""
    most_open = resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 2
    return len(readers) > FEW and sum(reader.is_open for reader in readers) < most_open


def follow(
    logs: Callable[[], Sequence[LogFile]],
    *,
    lines: int | None,
    is_over: Callable[[], bool],
    pause: Callable[[], None],
) -> Iterator[tuple[LogFile, str]]:
    """Yield the existing and the new text of logs, until the job ends.

    Args:
        logs: called repeatedly, since ranks' files appear when they start. The function returns the
            logs of an earlier attempt once more, to be read to their end.
        lines: how many existing lines; None for all.
        is_over: tells whether nothing more will be written.
        pause: waits between two rounds.
    """
    readers: dict[Path, _Reader] = {}
    pace = Pace()
    first_round = True
    attempt = 0
    while True:
        over = is_over()  # ask before reading, so that text from before the end is still read
        now = logs()
        for log in now:
            if log.path not in readers:
                reader = readers[log.path] = _Reader(log)
                if first_round and lines is not None:
                    reader.begin_at(lines)
        newest = max((log.attempt for log in now), default=attempt)
        followed = [readers[log.path] for log in now]
        every = first_round or over or newest > attempt
        for reader in pace.chosen(followed, every=every):
            stays_open = not every and (reader.is_open or _may_open_another(followed))
            for text in reader.read(stays_open=stays_open):
                reader.spoke_at = pace.round
                yield reader.log, text
        attempt = newest
        if over:
            return
        first_round = False
        pause()
