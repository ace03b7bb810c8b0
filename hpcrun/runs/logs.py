"""Reading logs: the last lines of a file, and files that are still being written, by polling.

No inotify: a network file system does not tell of what another host writes. A file is opened to be read and closed
again, so that a thousand ranks need one descriptor; it is read in blocks, so that no size of it matters.
A link is refused: hpcrun makes no log a link, and one could lead to any file of the person who reads it.
Bytes that are no UTF-8 come as lone surrogates (PEP 383): writing them so again gives the very bytes.
"""

from __future__ import annotations

import codecs
import os
import stat
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from hpcrun.reading import open_regular

BLOCK = 65536
LONGEST_LINE = 65536
"""A longer line is handed on in pieces of so many bytes."""
_MOST_TAIL = 1 << 20


@dataclass(frozen=True, slots=True)
class LogFile:
    """One log: its path, whose it is in words (``rank 3``, ``batch``), and of which attempt."""

    path: Path
    source: str
    attempt: int = 0


def rank_log(folder: Path, rank: int, stream: str, attempt: int = 0) -> LogFile:
    """Return the log of one rank of an attempt; ``stream`` is ``out`` or ``err``."""
    return LogFile(folder / f"rank-{rank}.{stream}", f"rank {rank}", attempt)


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
    """One file being followed: where it was read to, and the characters that a read cut in two."""

    log: LogFile
    offset: int = 0
    file_id: tuple[int, int] | None = None
    decoder: codecs.IncrementalDecoder = field(
        default_factory=lambda: codecs.getincrementaldecoder("utf-8")("surrogateescape")
    )

    def begin_at(self, lines: int) -> None:
        try:
            with open_regular(self.log.path, links=False) as file:
                self.offset = tail_start(file, lines)
        except OSError:
            self.offset = 0

    def read(self) -> Iterator[str]:
        """Yield what is new."""
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
            yield from self._from(self.log.path)

    def _rest_of_rotated(self) -> Iterator[str]:
        """Yield the end of a file that logrotate has given the name ``.1``."""
        path = self.log.path.with_name(f"{self.log.path.name}.1")
        try:
            found = path.lstat()
        except OSError:
            return
        if (found.st_dev, found.st_ino) == self.file_id:
            yield from self._from(path)

    def _from(self, path: Path) -> Iterator[str]:
        try:
            with open_regular(path, links=False) as file:
                file.seek(self.offset)
                while data := file.read(16 * BLOCK):
                    self.offset += len(data)
                    if text := self.decoder.decode(data):
                        yield text
        except OSError:
            return  # gone, or the file server is away for a moment: asked again


def follow(
    logs: Callable[[], Sequence[LogFile]],
    *,
    lines: int | None,
    is_over: Callable[[], bool],
    pause: Callable[[], None],
) -> Iterator[tuple[LogFile, str]]:
    """Yield what is and what comes to be in some logs, until the job is over.

    Args:
        logs: the logs to follow; asked again and again, since ranks' files appear when they start.
        lines: how many lines of what is there already; None for all.
        is_over: whether nothing more will be written.
        pause: waits a little.
    """
    readers: dict[Path, _Reader] = {}
    first_round = True
    while True:
        over = is_over()  # asked before reading: what was written before the end is still read
        for log in logs():
            reader = readers.get(log.path)
            if reader is None:
                reader = readers[log.path] = _Reader(log)
                if first_round and lines is not None:
                    reader.begin_at(lines)
            for text in reader.read():
                yield log, text
        if over:
            return
        first_round = False
        pause()
