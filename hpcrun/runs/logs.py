"""Reading logs: the last lines of a file, and files that are still being written, by polling.

No inotify: a network file system does not tell of what another host writes. A file is opened to be read and closed
again; of many that are followed, those that are written to stay open for a while. It is read in blocks, so that no
size of it matters.
A link is refused: hpcrun makes no log a link, and one could lead to any file of the person who reads it.
Bytes that are no UTF-8 come as lone surrogates (PEP 383): writing them so again gives the very bytes.
"""

from __future__ import annotations

import codecs
import os
import resource
import stat
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from hpcrun.job.layout import AttemptFolder
from hpcrun.reading import open_descriptor, open_regular
from hpcrun.runs.log_pace import FEW, LIVE_ROUNDS, Pace

BLOCK = 65536
LONGEST_LINE = 65536
"""A longer line is handed on in pieces of so many bytes."""
_MOST_TAIL = 1 << 20
OPEN_LOOKS = 10
"""How often a file that was kept open is read before it is looked at by its name again."""


@dataclass(frozen=True, slots=True)
class LogFile:
    """One log: its path, whose it is in words (``rank 3``, ``batch``), and of which attempt."""

    path: Path
    source: str
    attempt: int = 0


def rank_log(folder: AttemptFolder, rank: int, stream: str, attempt: int = 0) -> LogFile:
    """Return the log of one rank of an attempt; ``stream`` is ``out`` or ``err``."""
    return LogFile(folder.rank_log(rank, stream), f"rank {rank}", attempt)


def has_text(log: LogFile) -> bool:
    """Return whether a log is there and not empty; of a link true too: to read it says why it is refused."""
    try:
        found = log.path.lstat()
    except OSError:
        return False
    return stat.S_ISLNK(found.st_mode) or (stat.S_ISREG(found.st_mode) and found.st_size > 0)


def tail(path: Path, lines: int | None, *, links: bool = False) -> str:
    """Return the last lines of a log, at most a mebibyte, or all of it for None; undecodable bytes show as U+FFFD.

    Args:
        links: a link is followed: the runs of an Executor have links to their logs where submitit looks for them.

    Raises:
        OSError: it is not there, is no regular file, or cannot be read.
    """
    with open_regular(path, links=links) as file:
        if lines is not None:
            file.seek(tail_start(file, lines, _MOST_TAIL))
        return file.read(-1 if lines is None else _MOST_TAIL).decode("utf-8", "replace")


def tail_start(file: BinaryIO, lines: int, most: int = 4 << 30) -> int:
    """Return where the last lines of a file begin.

    Reads backwards from the end, so that the cost is that of the lines and not of the file.

    Args:
        most: how many bytes are read: a file of holes may have any size, and no line.
    """
    end = position = file.seek(0, os.SEEK_END)
    missing = lines
    least = max(0, end - most)
    while position > least and missing > 0:
        start = max(least, position - BLOCK)
        file.seek(start)
        block = file.read(position - start)
        upto = len(block) - (position == end and block.endswith(b"\n"))  # the last line's own end begins no other
        count = block.count(b"\n", 0, upto)
        if count >= missing:
            for _ in range(missing):
                upto = block.rfind(b"\n", 0, upto)
            return start + upto + 1
        missing -= count
        position = start
    return position


def texts(path: Path, lines: int | None = None) -> Iterator[str]:
    """Yield the last lines of a file, all of it for None, in blocks; what is written meanwhile is not waited for."""
    decoder = codecs.getincrementaldecoder("utf-8")("surrogateescape")
    with open_regular(path, links=False) as file:
        left = file.seek(0, os.SEEK_END)
        left -= file.seek(0 if lines is None else tail_start(file, lines))
        while left > 0 and (block := file.read(min(left, 16 * BLOCK))):
            left -= len(block)
            yield decoder.decode(block, final=left <= 0)


def log_lines(path: Path, lines: int | None = None) -> Iterator[str]:
    """Yield the last lines of a file, all for None, each with its end."""
    with open_regular(path, links=False) as file:
        file.seek(0 if lines is None else tail_start(file, lines))
        while line := file.readline(LONGEST_LINE):
            yield line.decode("utf-8", "surrogateescape")


def fold(line: str) -> str:
    """Return what a terminal shows of a line at last: of a progress bar, which begins anew at each CR, its last."""
    if "\r" not in line:
        return line
    end = "\n" if line.endswith("\n") else ""
    return next((state for state in reversed(line.rstrip("\n").split("\r")) if state), "") + end


@dataclass(slots=True)
class _Reader:
    """One file being followed: where it was read to, and the characters that a read cut in two.

    A file that is written to stays open for a while: then a look costs one system call, where opening it costs five.
    """

    log: LogFile
    offset: int = 0
    file_id: tuple[int, int] | None = None
    decoder: codecs.IncrementalDecoder = field(
        default_factory=lambda: codecs.getincrementaldecoder("utf-8")("surrogateescape")
    )
    looked_at: int = 0
    spoke_at: int = -LIVE_ROUNDS
    calls: int = 0
    _file: int | None = None
    _looks: int = 0

    def begin_at(self, lines: int) -> None:
        try:
            with open_regular(self.log.path, links=False) as file:
                self.offset = tail_start(file, lines)
        except OSError:
            self.offset = 0

    def read(self, *, stays_open: bool = False) -> Iterator[str]:
        """Yield what is new.

        Args:
            stays_open: the file may be kept open; every so often it is looked at by its name all the same, since
                another file may have taken that, and since a network file system shows the new end to who opens it.
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
            found = self.log.path.lstat()
        except OSError:
            return
        file_id = (found.st_dev, found.st_ino)
        if self.file_id not in (None, file_id):  # another file has taken its name
            yield from self._rest_of_rotated()
            self.offset = 0
        elif found.st_size < self.offset:
            self.offset = 0  # truncated: begun anew
        self.file_id = file_id
        if found.st_size > self.offset:  # else there is nothing to open it for
            yield from self._from(self.log.path, stays_open=stays_open)

    @property
    def is_open(self) -> bool:
        """Whether the file was kept open."""
        return self._file is not None

    def close(self) -> None:
        """Close the file where it was kept open."""
        if self._file is not None:
            os.close(self._file)
            self.calls += 1
            self._file, self._looks = None, 0

    def _rest_of_rotated(self) -> Iterator[str]:
        """Yield the end of a file that logrotate has given the name ``.1``."""
        path = self.log.path.with_name(f"{self.log.path.name}.1")
        try:
            found = path.lstat()
        except OSError:
            return
        if (found.st_dev, found.st_ino) == self.file_id:
            yield from self._from(path)

    def _from(self, path: Path, *, stays_open: bool = False) -> Iterator[str]:
        try:
            self._file = open_descriptor(path, links=False)
        except OSError:
            return  # gone, or the file server is away for a moment: asked again
        self.calls += 2  # one to see that it is a regular file
        yield from self._rest_of(self._file)
        if not stays_open:
            self.close()

    def _rest_of(self, file: int) -> Iterator[str]:
        """Yield what there is from where it was read to; a short read is the end, and no other is made to see it."""
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
            if text := self.decoder.decode(data):
                yield text


def follow(
    logs: Callable[[], Sequence[LogFile]],
    *,
    lines: int | None,
    is_over: Callable[[], bool],
    pause: Callable[[], None],
) -> Iterator[tuple[LogFile, str]]:
    """Yield what is and what comes to be in some logs, until the job is over.

    Args:
        logs: the logs to follow; asked again and again, since ranks' files appear when they start. Those of an
            attempt that is not the newest are there once more, to be read to their end.
        lines: how many lines of what already exists; None for all.
        is_over: whether nothing more will be written.
        pause: waits a little.
    """
    readers: dict[Path, _Reader] = {}
    pace: Pace[_Reader] = Pace()
    first_round, attempt, most_open = True, 0, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 2
    while True:
        over = is_over()  # asked before reading: what was written before the end is still read
        now = logs()
        for log in now:
            if log.path not in readers:
                reader = readers[log.path] = _Reader(log)
                if first_round and lines is not None:
                    reader.begin_at(lines)
        newest = max((log.attempt for log in now), default=attempt)
        chosen, every = [readers[log.path] for log in now], first_round or over or newest > attempt
        for reader in pace.chosen(chosen, every=every):
            room = not every and len(chosen) > FEW and sum(each.is_open for each in chosen) < most_open
            for text in reader.read(stays_open=room or (reader.is_open and not every)):
                reader.spoke_at = pace.round
                yield reader.log, text
        attempt = newest
        if over:
            return
        first_round = False
        pause()
