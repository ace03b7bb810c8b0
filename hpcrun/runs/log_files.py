"""Reads logs: all of a file, or its last lines.

A file is read in blocks, so that it may have any size.

A link is refused: hpcrun's logs are never links, and a link could lead to any file of the reader.

Bytes that are not UTF-8 become lone surrogates (PEP 383): writing them in the same way gives the
original bytes.
"""

from __future__ import annotations

import codecs
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from hpcrun.files.reading import open_regular
from hpcrun.job.run_paths import AttemptFolder
from hpcrun.job.text.units import rank_text

BLOCK = 65536
LONGEST_LINE = 65536  # bytes: a longer line is passed on in pieces
_MOST_TAIL = 1 << 20


@dataclass(frozen=True, slots=True)
class LogFile:
    """One log: its path, its owner, and its attempt.

    The owner is in words: ``rank 3``, ``trainer 3``, ``batch``.
    """

    path: Path
    source: str
    attempt: int = 0


def rank_log(folder: AttemptFolder, rank: int, stream: str, attempt: int = 0) -> LogFile:
    """Return the log of one rank of an attempt; ``stream`` is ``out`` or ``err``."""
    # shorter: it stands before each line
    source = rank_text(rank, role=folder.role).replace(" rank ", " ")
    return LogFile(folder.rank_log(rank, stream), source, attempt)


def has_text(log: LogFile) -> bool:
    """Return whether a log exists and is not empty.

    The result is also true for a link, so that reading the log reports the refusal.
    """
    try:
        status = log.path.lstat()
    except OSError:
        return False
    return stat.S_ISLNK(status.st_mode) or (stat.S_ISREG(status.st_mode) and status.st_size > 0)


def tail(path: Path, lines: int | None, *, links: bool = False) -> str:
    """Return the last lines of a log, at most a mebibyte.

    ``lines`` is None for all of the log. Undecodable bytes show as U+FFFD. With ``links``, a link
    is followed: the runs of an Executor have links to their logs, at submitit's paths.

    Raises:
        OSError: the log is no regular file that can be read.
    """
    with open_regular(path, links=links) as file:
        if lines is None:
            content = file.read()
        else:
            file.seek(tail_start(file, lines, _MOST_TAIL))
            content = file.read(_MOST_TAIL)
    return content.decode("utf-8", "replace")


def tail_start(file: BinaryIO, lines: int, most: int = 4 << 30) -> int:
    """Return where the last lines of a file begin.

    Reads backwards from the end, so that the time depends on the lines and not on the file; not
    more than ``most`` bytes, since a sparse file may have any size, and no line.
    """
    end = position = file.seek(0, os.SEEK_END)
    missing = lines
    least = max(0, end - most)
    while position > least and missing > 0:
        start = max(least, position - BLOCK)
        file.seek(start)
        block = file.read(position - start)
        # no line begins after the end of the last line
        upto = len(block) - (position == end and block.endswith(b"\n"))
        count = block.count(b"\n", 0, upto)
        if count >= missing:
            for _ in range(missing):
                upto = block.rfind(b"\n", 0, upto)
            return start + upto + 1
        missing -= count
        position = start
    return position


def texts(path: Path, lines: int | None = None) -> Iterator[str]:
    """Yield the last lines of a file in blocks, without waiting for new text.

    ``lines`` is None for all of the file.
    """
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
    """Return what a terminal finally shows of a line.

    This is the last state of a progress bar: each CR overwrites the state before it.
    """
    if "\r" not in line:
        return line
    end = "\n" if line.endswith("\n") else ""
    states = [state for state in line.rstrip("\n").split("\r") if state]
    return states[-1] + end if states else end
