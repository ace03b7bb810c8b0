"""Reads logs: the last lines of a file, and files that are still being written, by polling.

There is no inotify, since a network file system does not report changes by other hosts. A file is opened, read and
closed again. It is read in blocks, so that it may have any size.

A link is refused: hpcrun's logs are never links, and a link could lead to any file of the reader.

Bytes that are not UTF-8 become lone surrogates (PEP 383): writing them in the same way gives the original bytes.
"""

from __future__ import annotations

import codecs
import os
import stat
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import BinaryIO

from hpcrun.job.layout import AttemptFolder
from hpcrun.reading import open_regular

BLOCK = 65536
LONGEST_LINE = 65536  # bytes: a longer line is passed on in pieces
_MOST_TAIL = 1 << 20
FEW = 32  # logs that are all read in every round: stdout and stderr of 16 ranks
LOGS_A_ROUND, LIVE_A_ROUND = 12, 9  # of more logs: so many are read in a round, and so many that are being written
LIVE_ROUNDS = 20  # after so many rounds without new output a log counts as silent


@dataclass(frozen=True, slots=True)
class LogFile:
    """One log: its path, its owner in words (``rank 3``, ``batch``), and its attempt."""

    path: Path
    source: str
    attempt: int = 0


def rank_log(folder: AttemptFolder, rank: int, stream: str, attempt: int = 0) -> LogFile:
    """Return the log of one rank of an attempt; ``stream`` is ``out`` or ``err``."""
    return LogFile(folder.rank_log(rank, stream), f"rank {rank}", attempt)


def has_text(log: LogFile) -> bool:
    """Return whether a log exists and is not empty; also true for a link, so that reading it reports the refusal."""
    try:
        status = log.path.lstat()
    except OSError:
        return False
    return stat.S_ISLNK(status.st_mode) or (stat.S_ISREG(status.st_mode) and status.st_size > 0)


def tail(path: Path, lines: int | None, *, links: bool = False) -> str:
    """Return the last lines of a log, at most a mebibyte, or all of it for None; undecodable bytes show as U+FFFD.

    It raises OSError if it is no regular file that can be read. With ``links``, a link is followed: the runs of an
    Executor have links to their logs, at submitit's paths.
    """
    with open_regular(path, links=links) as file:
        if lines is not None:
            file.seek(tail_start(file, lines, _MOST_TAIL))
        return file.read(-1 if lines is None else _MOST_TAIL).decode("utf-8", "replace")


def tail_start(file: BinaryIO, lines: int, most: int = 4 << 30) -> int:
    """Return where the last lines of a file begin.

    Reads backwards from the end, so that the time depends on the lines and not on the file; not more than ``most``
    bytes, since a sparse file may have any size, and no line.
    """
    end = position = file.seek(0, os.SEEK_END)
    missing = lines
    least = max(0, end - most)
    while position > least and missing > 0:
        start = max(least, position - BLOCK)
        file.seek(start)
        block = file.read(position - start)
        upto = len(block) - (position == end and block.endswith(b"\n"))  # no line begins after the end of the last line
        ends = block.count(b"\n", 0, upto)
        if ends >= missing:
            for _ in range(missing):
                upto = block.rfind(b"\n", 0, upto)
            return start + upto + 1
        missing -= ends
        position = start
    return position


def texts(path: Path, lines: int | None = None) -> Iterator[str]:
    """Yield the last lines of a file, all of it for None, in blocks, without waiting for new text."""
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
    """Return what a terminal finally shows of a line: the last state of a progress bar, which each CR overwrites."""
    if "\r" not in line:
        return line
    end = "\n" if line.endswith("\n") else ""
    return next((state for state in reversed(line.rstrip("\n").split("\r")) if state), "") + end


@dataclass(slots=True)
class _Reader:
    """One followed file: the offset up to which it was read, and a character that a read has split."""

    log: LogFile
    offset: int = 0
    file_id: tuple[int, int] | None = None
    decoder: codecs.IncrementalDecoder = field(
        default_factory=lambda: codecs.getincrementaldecoder("utf-8")("surrogateescape")
    )
    # looked_at, spoke_at: the rounds in which it was last read, and in which it last had new output
    looked_at: int = 0
    spoke_at: int = -LIVE_ROUNDS

    def begin_at(self, lines: int) -> None:
        with suppress(OSError), open_regular(self.log.path, links=False) as file:
            self.offset = tail_start(file, lines)

    def read(self) -> Iterator[str]:
        """Yield the new text; nothing if the file does not exist, or the file server does not respond."""
        with suppress(OSError):
            status = self.log.path.lstat()
            file_id = (status.st_dev, status.st_ino)
            if self.file_id not in (None, file_id) or status.st_size < self.offset:
                self.offset = 0  # another file has taken its name, or it was truncated
            self.file_id = file_id
            if status.st_size == self.offset:
                return  # nothing new
            # opened each time: a network file system shows the new end only after an open
            with open_regular(self.log.path, links=False) as file:
                file.seek(self.offset)
                while data := file.read(16 * BLOCK):
                    self.offset += len(data)
                    if text := self.decoder.decode(data):
                        yield text


def _next(logs: Sequence[_Reader], round_: int) -> Sequence[_Reader]:
    """Return the logs to read in a round: all of few, and of many a fixed number, so that they load no file server.

    Recently written logs come first, then the silent ones in turn; silent logs always keep a share, so that none is
    forgotten.
    """
    if len(logs) <= FEW:
        return logs
    oldest_first = sorted(logs, key=lambda log: log.looked_at)
    live = [log for log in oldest_first if round_ - log.spoke_at <= LIVE_ROUNDS]
    silent = [log for log in oldest_first if round_ - log.spoke_at > LIVE_ROUNDS]
    return [*live[: max(LIVE_A_ROUND, LOGS_A_ROUND - len(silent))], *silent][:LOGS_A_ROUND]


def follow(
    logs: Callable[[], Sequence[LogFile]],
    *,
    lines: int | None,
    is_over: Callable[[], bool],
    pause: Callable[[], None],
) -> Iterator[tuple[LogFile, str]]:
    """Yield the existing and the new text of logs, until the job ends.

    Args:
        logs: called repeatedly, since ranks' files appear when they start. It returns those of an earlier attempt once
            more, to be read to their end.
        lines: how many existing lines; None for all.
        is_over: tells whether nothing more will be written.
    """
    readers: dict[Path, _Reader] = {}
    attempt = 0
    for round_ in count(1):
        over = is_over()  # ask before reading, so that text from before the end is still read
        now = logs()
        for log in now:
            if log.path not in readers:
                reader = readers[log.path] = _Reader(log)
                if round_ == 1 and lines is not None:
                    reader.begin_at(lines)
        before, attempt = attempt, max((log.attempt for log in now), default=attempt)
        listed = [readers[log.path] for log in now]
        # at the beginning, and at the end of an attempt, all of them
        for reader in listed if round_ == 1 or over or attempt > before else _next(listed, round_):
            reader.looked_at = round_
            for text in reader.read():
                reader.spoke_at = round_
                yield reader.log, text
        if over:
            return
        pause()
