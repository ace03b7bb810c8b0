"""Reading logs: the last lines of a file, and files that are still being written, by polling.

No inotify: a network file system does not tell of what another host writes.
"""

from __future__ import annotations

import codecs
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

_BLOCK = 65536


@dataclass(frozen=True, slots=True)
class LogFile:
    """One log: its path, and whose it is in words (``rank 3``, ``batch``)."""

    path: Path
    source: str


def rank_log(folder: Path, rank: int, stream: str) -> LogFile:
    """Return the log of one rank of an attempt; ``stream`` is ``out`` or ``err``."""
    return LogFile(folder / f"rank-{rank}.{stream}", f"rank {rank}")


def has_text(log: LogFile) -> bool:
    """Return whether a log is there and not empty."""
    try:
        return log.path.stat().st_size > 0
    except OSError:
        return False


def tail(path: Path, lines: int | None) -> str:
    """Return the last lines of a file, all of it for None; undecodable bytes show as U+FFFD.

    Reads backwards from the end, so that the cost is that of the lines and not of the file.
    """
    with path.open("rb") as file:
        if lines is None:
            return file.read().decode("utf-8", "replace")
        end = file.seek(0, os.SEEK_END)
        blocks: list[bytes] = []
        wanted = lines
        while end > 0 and wanted >= 0:
            start = max(0, end - _BLOCK)
            file.seek(start)
            block = file.read(end - start)
            wanted -= block.count(b"\n")
            blocks.append(block)
            end = start
    data = b"".join(reversed(blocks))
    ended = data.endswith(b"\n")
    kept = data.split(b"\n")
    kept = kept[-lines - 1 :] if ended else kept[-lines:]
    return (b"\n".join(kept) if lines else b"").decode("utf-8", "replace")


@dataclass(slots=True)
class _Reader:
    """One file being followed: where it was read to, and the characters that a read cut in two."""

    log: LogFile
    offset: int = 0
    decoder: codecs.IncrementalDecoder = field(default_factory=lambda: codecs.getincrementaldecoder("utf-8")("replace"))

    def read(self) -> str:
        try:
            with self.log.path.open("rb") as file:
                if os.fstat(file.fileno()).st_size < self.offset:
                    self.offset = 0  # truncated: a new attempt began
                file.seek(self.offset)
                data = file.read()
        except FileNotFoundError:
            return ""
        self.offset += len(data)
        return self.decoder.decode(data)


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
                if first_round and lines is not None and has_text(log):
                    size = log.path.stat().st_size
                    yield log, tail(log.path, lines)
                    reader.offset = size
            text = reader.read()
            if text:
                yield log, text
        if over:
            return
        first_round = False
        pause()
