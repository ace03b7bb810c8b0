"""A window on logs of any size: the lines around one place.

The window reads blocks from the end and from the beginning. Of a log of a gigabyte the window reads
only the end. Going up reads the block before, and lets go of the end. The window reads nothing
again unless the file has changed: one lstat tells.
"""

from __future__ import annotations

import io
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from hpcrun.files.reading import open_regular
from hpcrun.job.text.patterns import Pattern
from hpcrun.runs.log_files import LONGEST_LINE, LogFile, fold
from hpcrun.runs.log_times import Stamps

BLOCK = 256 * 1024
# a search reads so many bytes at a time, and makes lines only of what may hold a match
SKIMMED = 4 * 1024 * 1024
MOST_BYTES = 2 * 1024 * 1024  # the bytes of one log that are kept in memory
_HALF_A_DAY_S = 12 * 3600


@dataclass(slots=True, eq=False)
class WindowLine:
    """One line of a log.

    Attributes:
        stamp_s, stamp_end: the time at its beginning and where that ends; None and 0 without one.
    """

    log: LogFile  # the log that it is from
    at: int  # where it begins, in bytes from the beginning of its file
    raw: str  # its text without its end, undecodable bytes as lone surrogates
    read_s: float  # when it was written at the latest, in seconds since the epoch
    stamp_s: float | None = None
    stamp_end: int = 0


@dataclass(frozen=True, slots=True)
class _FileState:
    """What lstat tells of a log."""

    device: int
    inode: int
    size: int  # bytes


@dataclass(slots=True)
class LogWindow:
    """The lines of one log from byte ``begin`` to byte ``end``.

    The last line may not be complete yet.
    """

    log: LogFile
    most: int = MOST_BYTES
    begin: int = 0
    end: int = 0
    lines: list[WindowLine] = field(default_factory=list)
    changed_s: float = 0.0  # when the file was last written, by its server's clock
    error: str = ""  # why it cannot be read now
    _file: _FileState | None = None  # at the last look; None before the first
    _is_cut: bool = False  # the last line was not complete at the last look

    @property
    def at_start(self) -> bool:
        """Whether nothing is before the window."""
        return self.begin == 0

    @property
    def at_end(self) -> bool:
        """Whether nothing was after the window at the last look."""
        return self._file is None or self.end >= self._file.size

    def is_exhausted(self, up: bool) -> bool:
        """Whether the file has nothing more before the window (``up``), or after it."""
        return self.at_start if up else self.at_end

    @property
    def size(self) -> int:
        """The bytes of the file at the last look."""
        return self._file.size if self._file else 0

    def to_end(self) -> None:
        """Move to the end of the file."""
        if self._check():
            self._clear(self.size)
            self.older()
            self.newer()

    def to_start(self) -> None:
        """Move to the beginning of the file."""
        if self._check():
            self._clear(0)
            self.newer()

    def older(self) -> list[WindowLine]:
        """Put the block before the window at its front; returns the lines in it."""
        if self.at_start:
            return []
        start = max(0, self.begin - BLOCK)
        data = self._read(start, self.begin - start)
        first = data.find(b"\n") + 1
        if start and 0 < first < len(data):
            # a line that has its beginning before the block
            data = data[first:]
            start += first
        if not self.lines:  # the end of the file: its last line may not be complete
            whole = data.rfind(b"\n") + 1
            if not whole and len(data) > LONGEST_LINE:
                whole = len(data)
            data = data[:whole]
            self.end = start + whole
        self.begin = start
        older = self._lines(data, start, self.changed_s)
        self.lines[:0] = older
        while len(self.lines) > len(older) and self.end - self.begin > self.most:
            self.end = self.lines.pop().at
            self._is_cut = False
        return older

    def newer(self) -> list[WindowLine]:
        """Put what follows the window at its end, and return the lines in this new part.

        This includes what is new in the file. Where much has come since the last look, the window
        moves to the end of the file.
        """
        was_at_end = self.at_end
        before = self._file
        if not self._check():
            return []
        if before is not None and self._is_other_file(before):
            self._clear(self.size)
            self.older()
        if was_at_end and before == self._file and self.at_end:
            return []
        if was_at_end and self.size - self.end > self.most:
            self._clear(self.size)
            self.older()
        return self._read_on(is_new=was_at_end and before is not None)

    def _is_other_file(self, before: _FileState) -> bool:
        """Whether another file has taken the log's name, or the log was truncated."""
        if self._file is None:
            return False
        if (before.device, before.inode) != (self._file.device, self._file.inode):
            return True
        return self._file.size < self.end

    def _read_on(self, *, is_new: bool) -> list[WindowLine]:
        """Put a block behind the window, and drop lines at its front if it is too large.

        ``is_new`` says that the block was written since the last look. Returns the lines of the
        block.
        """
        start = self.lines[-1].at if self._is_cut else self.end
        data = self._read(start, 4 * BLOCK)
        if not data:
            return []
        if self._is_cut:
            self.lines.pop()
        reaches_end = start + len(data) >= self.size
        if not reaches_end:
            data = data[: data.rfind(b"\n") + 1 or LONGEST_LINE]
        newer = self._lines(data, start, time.time() if is_new else self.changed_s)
        self.lines += newer
        self.end = start + len(data)
        self._is_cut = reaches_end and not data.endswith(b"\n")
        dropped = 0
        while dropped < len(self.lines) - 1 and self.end - self.begin > self.most:
            dropped += 1
            self.begin = self.lines[dropped].at
        del self.lines[:dropped]
        return newer

    def skim(self, pattern: Pattern, *, up: bool, is_stopped: Callable[[], bool]) -> None:
        """Move over what surely does not match."""
        while not is_stopped():
            if up:
                start = max(0, self.begin - SKIMMED)
                data = self._read(start, self.begin - start)
                cut = data.find(b"\n") + 1 if start else 0
                whole = data[cut:]
            else:
                start = self.end
                data = self._read(start, SKIMMED)
                cut = data.rfind(b"\n") + 1
                whole = data[:cut]
            if not whole or pattern.may_be_in(whole.decode("utf-8", "replace")):
                return
            self._clear(start + cut)

    def _clear(self, at: int) -> None:
        self.begin = at
        self.end = at
        self.lines = []
        self._is_cut = False

    def _check(self) -> bool:
        """Note the file's size; returns whether it can be read."""
        try:
            status = os.lstat(self.log.path)
        except OSError as error:
            if isinstance(error, FileNotFoundError) and self._file is None:
                self.error = ""
            else:
                self.error = str(error.strerror)
            return False
        self._file = _FileState(status.st_dev, status.st_ino, status.st_size)
        self.changed_s = status.st_mtime
        self.error = ""
        return True

    def _read(self, start: int, size: int) -> bytes:
        try:
            with open_regular(self.log.path, links=False) as file:
                file.seek(start)
                return file.read(size)
        except OSError as error:
            self.error = str(error.strerror)
            return b""

    def _lines(self, data: bytes, at: int, read_s: float) -> list[WindowLine]:
        lines = []
        for piece in io.BytesIO(data):  # its lines, with their ends
            for start in range(0, len(piece), LONGEST_LINE):
                part = piece[start : start + LONGEST_LINE].removesuffix(b"\n")
                text = part.decode("utf-8", "surrogateescape")
                lines.append(WindowLine(self.log, at + start, text, read_s))
            at += len(piece)
        return lines


@dataclass(slots=True)
class LogView:
    """The windows on one or several logs, and their lines in the order of their times.

    A line without a time stays after the line before it, so that a traceback stays together. The
    lines of a log without times are placed when they were written at the latest.
    """

    windows: list[LogWindow]
    lines: list[WindowLine] = field(default_factory=list)

    @property
    def at_start(self) -> bool:
        """Whether nothing is before the lines."""
        return all(window.at_start for window in self.windows)

    @property
    def at_end(self) -> bool:
        """Whether nothing was after the lines at the last look."""
        return all(window.at_end for window in self.windows)

    @property
    def error(self) -> str:
        """Why a log cannot be read; empty if all can."""
        for window in self.windows:
            if window.error:
                return f"{window.log.path}: {window.error}"
        return ""

    def to_end(self) -> None:
        """Move to the ends of all logs."""
        for window in self.windows:
            window.to_end()
        self._merge()

    def to_start(self) -> None:
        """Move to the beginnings of all logs."""
        for window in self.windows:
            window.to_start()
        self._merge()

    def older(self) -> list[WindowLine]:
        """Read a block more at the front: of several logs, of the one whose lines begin last.

        Returns the new lines.
        """
        lines = self._older()
        self._merge()
        return lines

    def newer(self) -> list[WindowLine]:
        """Read what follows, also what is new; returns the new lines in their order."""
        before = [window.lines[-1:] for window in self.windows]
        lines = self._newer()
        if before != [window.lines[-1:] for window in self.windows]:
            self._merge()
        return lines

    def _older(self) -> list[WindowLine]:
        not_at_start = [window for window in self.windows if not window.at_start]
        if not_at_start:
            return max(not_at_start, key=_first_s).older()
        return []

    def _newer(self) -> list[WindowLine]:
        return merge_lines([window.newer() for window in self.windows])

    def find(
        self,
        pattern: Pattern,
        start: WindowLine | None,
        *,
        up: bool,
        is_stopped: Callable[[], bool],
    ) -> tuple[WindowLine | None, bool]:
        """Return the next line with a pattern, and whether the search had to turn.

        A search that turns goes on from the other end. The search reads on in the logs until it
        finds a line, and leaves the window there; else the window stays where it was.

        Args:
            pattern: the pattern to find.
            start: the line after which, or before which, to begin; None for the end or the
                beginning of the window.
            up: whether to search towards the beginning of the logs.
            is_stopped: a function that the search calls between blocks: whether the person has lost
                patience.
        """
        is_whole = start is None and (self.at_end if up else self.at_start)
        before = [replace(window, lines=[*window.lines]) for window in self.windows]
        match = self._find(pattern, start, up=up, is_stopped=is_stopped)
        turned = False
        if match is None and not is_whole and not is_stopped():
            if up:
                self.to_end()
            else:
                self.to_start()
            match = self._find(pattern, None, up=up, is_stopped=is_stopped)
            turned = True
        if match is None:
            self.windows = before
        self._merge()
        return match, turned

    def _find(
        self,
        pattern: Pattern,
        start: WindowLine | None,
        *,
        up: bool,
        is_stopped: Callable[[], bool],
    ) -> WindowLine | None:
        lines = self.lines
        place = next((number for number, line in enumerate(lines) if line is start), None)
        if place is None:
            batch = lines
        else:
            batch = lines[:place] if up else lines[place + 1 :]
        match = first_match(reversed(batch) if up else batch, pattern)
        while match is None and not is_stopped():
            more = [window for window in self.windows if not window.is_exhausted(up)]
            if not more:
                break
            # what surely does not match is passed over in the only log that has more: several keep
            # their order by lines
            if len(more) == 1:
                more[0].skim(pattern, up=up, is_stopped=is_stopped)
            batch = self._older() if up else self._newer()
            if not batch:
                break
            match = first_match(reversed(batch) if up else batch, pattern)
        return match

    def _merge(self) -> None:
        self.lines = merge_lines([window.lines for window in self.windows])


def first_match(lines: Iterable[WindowLine], pattern: Pattern) -> WindowLine | None:
    """Return the first line in which a pattern is found; many lines are searched at once."""
    of: dict[str, WindowLine] = {}  # a text → the first line that has it

    def texts() -> Iterator[tuple[str, str]]:
        for line in lines:
            of.setdefault(line.raw, line)
            yield line.raw, fold(line.raw)

    text = next(pattern.filter(texts()), None)
    return None if text is None else of[text]


def _first_s(window: LogWindow) -> float:
    return next(iter(_keys(window.lines[:1])), float("inf"))


def merge_lines(logs: Sequence[Sequence[WindowLine]]) -> list[WindowLine]:
    """Return the lines of logs in the order of their times; each log keeps its own order."""
    filled = [lines for lines in logs if lines]
    if len(filled) == 1:
        return list(filled[0])
    every: list[WindowLine] = []
    keys: list[float] = []
    for lines in filled:
        every += lines
        keys += _keys(lines)
    order = sorted(range(len(every)), key=keys.__getitem__)
    return [every[place] for place in order]


def _keys(lines: Sequence[WindowLine]) -> list[float]:
    """Return for each line the time at which it stands among the lines of other logs."""
    read_stamps(lines)
    first = next((line.stamp_s for line in lines if line.stamp_s is not None), None)
    if first is None:
        return [line.read_s for line in lines]
    keys = []
    at_s = first
    for line in lines:
        at_s = max(at_s, line.stamp_s or 0.0)
        keys.append(at_s)
    return keys


def read_stamps(lines: Iterable[WindowLine]) -> None:
    """Note in each line the time at its beginning."""
    stamps: Stamps | None = None
    for line in lines:
        if line.stamp_end:
            continue
        # a time without a date is of the day before read_s
        stamps = stamps or Stamps(line.read_s - _HALF_A_DAY_S)
        line.stamp_s, line.stamp_end = stamps.read_with_end(line.raw)
        if line.stamp_s is None:
            line.stamp_end = -1


def open_logs(logs: Sequence[LogFile], most: int = MOST_BYTES) -> LogView:
    """Return a view of logs, moved to their ends."""
    view = LogView([LogWindow(log, most) for log in logs])
    view.to_end()
    return view
