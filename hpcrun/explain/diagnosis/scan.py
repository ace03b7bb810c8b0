"""Searches a log for the lines of rules, so that a gigabyte takes seconds.

The search reads blocks and looks first for fixed words. A regular expression over every line, or
one of all rules over a block, would take a minute for a gigabyte.
"""

from __future__ import annotations

import os
import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from functools import cache
from operator import itemgetter
from typing import Any, BinaryIO

from hpcrun.explain.diagnosis.launcher_lines import Speaker, without_lead
from hpcrun.explain.diagnosis.rules import Rule
from hpcrun.explain.diagnosis.traceback import is_exception_line
from hpcrun.job.text.patterns import any_of

TAIL_BYTES = 65536
END_LINES = 40
"""The number of lines at the end of a log, for rules that match only there."""
_BLOCK = 1 << 20
_LONGEST_LINE = 4000
_MOST_CANDIDATES = 50_000
"""The most lines with a word of a rule that are checked in one log; after them only its tail is."""
_MOST_BYTES = 1 << 30
"""The middle of a larger log is skipped."""
_QUICK_BYTES = _BLOCK
_KEPT_PER_RULE = 4
_MOST_KEPT = 512
_COLOUR = re.compile(r"\x1b(?:\[[0-9;?]{0,20}[A-Za-z]|\][^\x07]{0,200}\x07|\(B)")
"""Control sequences for a terminal, which some programs write into files as well."""


@dataclass(frozen=True, slots=True)
class Hit:
    """A line that matches a rule.

    Attributes:
        number: its place among the lines of the log, as ``LogScan.number`` counts; None if the log
            was too long.
        stamp: the time that a collector has put in front of it.
    """

    rule: Rule
    line: str
    number: int | None
    values: dict[str, str | None]
    speaker: Speaker | None = None
    stamp: str = ""


_Found = dict[tuple[str, Speaker | None], list[tuple[int, Hit]]]
"""Name of a rule and process → offset and line of its first and its last match."""


@dataclass(frozen=True, slots=True)
class LogScan:
    """The matches in a log.

    Attributes:
        hits: in the order of the log; of one rule and process the first and the last.
        tail: its last lines, without torch's ``[rank0]:`` and the like in front.
        speakers: the process that wrote each line of ``tail``.
        stamps: the time that a collector has put in front of each line of ``tail``.
        first_tail_line: number of the first line of ``tail``; None if the middle of the log was
            skipped.
        whole: every line was looked at.
        framed: the rules about the frames of an exception.
        lines_before: counts the lines of the file before a byte; None if nothing can count them.
    """

    hits: tuple[Hit, ...]
    tail: tuple[str, ...]
    first_tail_line: int | None
    whole: bool = True
    speakers: tuple[Speaker | None, ...] = ()
    stamps: tuple[str, ...] = ()
    framed: tuple[Rule, ...] = ()
    lines_before: LinesBefore | None = field(default=None, compare=False)
    _tail_starts: int = 0

    def stamped(self, position: int) -> str:
        """Return a line of ``tail`` with the time in front of the line.

        The text is empty where the line is from another process.
        """
        line = self.tail[position]
        if line and self.stamps:
            return self.stamps[position] + line
        return line

    def number(self, position: int) -> int | None:
        """Return the number of a line of ``tail``: numbers are in the order of the lines.

        To count the lines of a gigabyte takes a second, so the lines of a long log have numbers
        that are larger than their real ones: those of ``tail`` follow one another, and another
        line is numbered by its first byte. None if the middle of the log was skipped.
        """
        if self.first_tail_line is None:
            return None
        return self.first_tail_line + position

    def position(self, number: int | None) -> int | None:
        """Return the position of a line in ``tail``, negative for a line above ``tail``.

        The result is None if the position is unknown.
        """
        if self.first_tail_line is None or number is None:
            return None
        return number - self.first_tail_line

    def line_in_file(self, number: int | None) -> int | None:
        """Return the line of the file, counted from 1, of a number; None if it cannot be known."""
        if number is None or not self._tail_starts:
            return number
        if self.lines_before is None:
            return None
        starts = min(number - 1, self._tail_starts)
        lines = self.lines_before(starts)
        if lines is None:
            return None
        return lines + number - starts


LinesBefore = Callable[[int], int | None]
"""Counts the lines before a byte of a file; None if the file can no longer be read."""


def line_counter(opened: Callable[[], AbstractContextManager[BinaryIO]]) -> LinesBefore:
    """Return a function that opens a file and counts its lines before a byte."""

    @cache
    def lines_before(offset: int) -> int | None:
        lines = 0
        try:
            with opened() as file:
                for start in range(0, offset, _BLOCK):
                    lines += file.read(min(_BLOCK, offset - start)).count(b"\n")
        except OSError:
            return None
        return lines

    return lines_before


@dataclass(frozen=True, slots=True)
class Scanner:
    """Rules, ready to search with.

    Attributes:
        framed: the rules about the frames of an exception.
        by_word: text that a line must contain → the rules of such lines.
        finder: finds the texts of ``by_word``.
        words: finds the texts of all rules.
    """

    everywhere: tuple[Rule, ...]
    at_end: tuple[Rule, ...]
    by_word: tuple[tuple[bytes, tuple[Rule, ...]], ...]
    finder: Any
    words: Any
    framed: tuple[Rule, ...]

    @classmethod
    def of(cls, rules: Sequence[Rule]) -> Scanner:
        """Make a scanner for some rules."""
        everywhere = tuple(rule for rule in rules if rule.contains and not rule.at_end)
        by_word: dict[bytes, list[Rule]] = {}
        for rule in everywhere:
            for text in rule.contains:
                by_word.setdefault(text, []).append(rule)
        at_end = tuple(rule for rule in rules if rule.contains and rule.at_end)
        by_words = tuple((text, tuple(rules_of)) for text, rules_of in by_word.items())
        framed = tuple(rule for rule in rules if rule.frames)
        texts: set[bytes] = set()
        for rule in rules:
            texts.update(rule.contains)
        words = any_of(sorted(texts))
        return cls(everywhere, at_end, by_words, any_of(by_word), words, framed)

    def scan(
        self, file: BinaryIO, lines_before: LinesBefore | None = None, *, quick: bool = False
    ) -> LogScan:
        """Search an open log.

        Args:
            file: the log, which can be sought and read as bytes.
            lines_before: counts its lines; without it, the lines of a long log have no numbers.
            quick: search only its last lines.

        Raises:
            OSError: if the log cannot be read.
        """
        kept: _Found = {}
        candidates = 0
        whole = True
        skipped_to = None
        for skipped, block in _blocks(file, _QUICK_BYTES if quick else _MOST_BYTES):
            offset = file.tell() - len(block)
            if skipped and skipped_to is None:
                skipped_to = offset
            if candidates < _MOST_CANDIDATES:
                candidates += self._look(block, offset, kept)
            whole = whole and not skipped and candidates < _MOST_CANDIDATES
        if candidates < _MOST_CANDIDATES:
            rules = self.at_end
        else:
            rules = (*self.at_end, *self.everywhere)
        return replace(
            self._finish(file, kept, rules, skipped_to), whole=whole, lines_before=lines_before
        )

    def _look(self, block: bytes, offset: int, kept: _Found) -> int:
        """Check the lines of a block with a word of a rule; return their number."""
        starts = self._candidates(block)
        for start in starts:
            end = block.find(b"\n", start)
            raw = block[start : min(end if end >= 0 else len(block), start + _LONGEST_LINE)]
            rules = {
                rule.name: rule for text, known in self.by_word if text in raw for rule in known
            }
            _match(rules.values(), raw, offset + start, kept)
        return len(starts)

    def _candidates(self, block: bytes) -> list[int]:
        starts: list[int] = []
        match = self.finder.search(block)
        while match is not None and len(starts) <= _MOST_CANDIDATES:
            start = block.rfind(b"\n", 0, match.start()) + 1
            start = max(start, block.rfind(b"\r", start, match.start()) + 1)
            if not starts or start > starts[-1]:
                starts.append(start)
            end = block.find(b"\n", match.start())
            end = end if end >= 0 else len(block)
            # of a long line so much is matched; what is in it behind that comes again
            seen = start + _LONGEST_LINE
            match = self.finder.search(block, min(end, seen) if match.start() < seen else end)
        return starts

    def _finish(
        self, file: BinaryIO, kept: _Found, rules: Sequence[Rule], skipped_to: int | None
    ) -> LogScan:
        """Return the last lines of a log, and its matches with their numbers.

        Args:
            file: the log.
            kept: the matches; those of the last lines are added.
            rules: the rules for the last lines.
            skipped_to: the byte behind a part that was not read.
        """
        tail = _read_tail(file)
        for offset, raw in tail[-END_LINES:]:
            if self.words.search(raw):
                _match(rules, raw[-_LONGEST_LINE:], offset, kept)
        starts = [offset for offset, _ in tail]
        tail_starts = starts[0] if starts else 0
        order = {rule.name: index for index, rule in enumerate((*self.everywhere, *self.at_end))}
        hits = []
        for items in kept.values():
            for offset, hit in items:
                number = offset + 1
                if offset >= tail_starts:
                    number = tail_starts + bisect_right(starts, offset)
                is_known = skipped_to is None or offset < skipped_to
                numbered = replace(hit, number=number if is_known else None)
                hits.append(((number, order[hit.rule.name]), numbered))
        hits.sort(key=itemgetter(0))
        lines = [plain(raw) for _, raw in tail]
        texts, speakers, stamps = zip(*lines, strict=True) if lines else ((), (), ())
        return LogScan(
            tuple(hit for _, hit in hits),
            texts,
            tail_starts + 1 if skipped_to is None else None,
            speakers=speakers,
            stamps=stamps,
            framed=self.framed,
            _tail_starts=tail_starts,
        )


def _read_tail(file: BinaryIO) -> list[tuple[int, bytes]]:
    """Return the last lines of a log, each with the offset of its first byte."""
    end = file.seek(0, os.SEEK_END)
    starts = max(0, end - TAIL_BYTES)
    file.seek(starts)
    raw = file.read(TAIL_BYTES) or b""
    if starts:
        rest = raw.partition(b"\n")[2]
        if rest:
            starts += len(raw) - len(rest)
            raw = rest
        else:
            starts, raw = _last_line(file, end)
    lines = []
    for line in raw.removesuffix(b"\n").split(b"\n") if raw else ():
        lines.append((starts, line))
        starts += len(line) + 1
    return lines


def _last_line(file: BinaryIO, end: int) -> tuple[int, bytes]:
    """Return the beginning of a last line that is longer than the end that is read, and its offset.

    Of a line longer than a block, return the end.
    """
    starts = max(0, end - _BLOCK)
    file.seek(starts)
    raw = file.read(_BLOCK) or b""
    begins = raw.rfind(b"\n", 0, len(raw) - 1) + 1
    if begins:
        return starts + begins, raw[begins : begins + _LONGEST_LINE]
    begins = max(0, len(raw) - _LONGEST_LINE)
    return starts + begins, raw[begins:]


def _match(rules: Iterable[Rule], raw: bytes, offset: int, kept: _Found) -> None:
    """Keep the first and the last of a rule's lines of each process.

    So, repeated lines take no memory.
    """
    line, speaker, stamp = plain(raw)
    for rule in rules:
        values = rule.match(raw, line)
        if values is None:
            continue
        key = rule.name, speaker
        if key not in kept and len(kept) >= _MOST_KEPT:  # of thousands of processes
            key = rule.name, None
        lines = kept.setdefault(key, [])
        lines.append((offset, Hit(rule, line, None, values, speaker, stamp)))
        if len(lines) > _KEPT_PER_RULE:
            del lines[_KEPT_PER_RULE // 2]


def plain(raw: bytes) -> tuple[str, Speaker | None, str]:
    """Return a line as a terminal shows it, who says it, and a collector's time.

    The line has no colours and no ``[rank0]:``.
    """
    text = raw.rstrip(b"\r").rpartition(b"\r")[2].decode("utf-8", "replace")
    stamp, rest = without_stamp(_COLOUR.sub("", text) if "\x1b" in text else text)
    line, speaker = without_lead(rest)
    if stamp or speaker is None:
        return line, speaker, stamp
    stamp, rest = without_stamp(line)  # srun --label puts the task before it
    line, inner = without_lead(rest) if stamp else (line, None)
    return line, inner or speaker, stamp


def _blocks(file: BinaryIO, most: int) -> Iterator[tuple[bool, bytes]]:
    """Yield complete lines in blocks, and whether a part before them was skipped.

    A line that is longer than a block is yielded in parts.
    """
    size = os.fstat(file.fileno()).st_size
    read = 0
    skipped = False
    while block := file.read(_BLOCK):
        if not block.endswith(b"\n"):
            block += file.readline(_BLOCK)
        read += len(block)
        yield skipped, block
        if size > most and not skipped and read > most // 4:
            file.seek(size - most * 3 // 4)
            skipped = True


def last_lines(lines: Iterable[str], count: int) -> tuple[str, ...]:
    """Return the last lines that are not empty."""
    return tuple([line for line in lines if line.strip()][-count:])


_STAMP = re.compile(
    r"(?:"
    # 2026-11-22T10:00:02.200Z, [2026/11/22 10:00:02,200], and the short id of Determined behind it
    r"\[?\d{4}[-/]\d\d[-/]\d\d[T _]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?:Z| ?[+-]\d\d:?\d\d)?\]?(?: "
    r"\w{6,12} \|\|)?"
    # ts and journalctl: Nov 22 10:00:02, with host and process: node1 python[4711]:
    r"|(?:[A-Z][a-z]{2} )?[A-Z][a-z]{2} [ \d]\d (?:\d{4} )?\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?: "
    r"\d{4})?"
    r"(?: [\w.-]{1,80} [\w./-]{1,60}\[\d{1,8}\]:)?"
    r"|\[?\d\d:\d\d:\d\d(?:[.,]\d{1,9})?\]?"
    r"|\d{10}\.\d{1,9}"  # ts %.s
    r")(?: [|-])?(?: |$)"
)
"""The time that a collector of output writes in front of each line: kubectl, docker, ts,
journalctl.
"""
_MAY_BEGIN = frozenset("[0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ")
_LONGEST_STAMP = 240
_OF_A_LOGGER = re.compile(
    r"[\s\[(<|:]{0,4}(?:[\w./-]{1,60}[\s\])>|:,\[]{1,4}){0,4}?"
    r"(?:TRACE|DEBUG|INFO|NOTICE|SUCCESS|WARN|WARNING|ERROR|CRITICAL|FATAL)\b"
    r"|\[ ?(?:debug|info|warning|error|critical)\b"
)
"""What follows the time that a program's own logger writes: its time belongs to the line."""
_LEVEL_WITHIN = 120


def without_stamp(line: str) -> tuple[str, str]:
    """Return the time in front of a line, and the line behind the time.

    The time is empty where a logger wrote it.
    """
    if line[:1] not in _MAY_BEGIN:
        return "", line
    match = _STAMP.match(line[:_LONGEST_STAMP])
    if match is None:
        return "", line
    rest = line[match.end() :]
    if (
        not rest.startswith("  ")
        and not is_exception_line(rest)
        and _OF_A_LOGGER.match(rest[:_LEVEL_WITHIN])
    ):
        return "", line
    return match[0], rest
