"""The time that a collector of output writes in front of each line: kubectl, docker, ts, journalctl. Pure."""

from __future__ import annotations

import re

from hpcrun.diagnosis.traceback import is_exception_line

_STAMP = re.compile(
    r"(?:"
    # 2026-11-22T10:00:02.200Z, [2026/11/22 10:00:02,200], and the short id of Determined behind it
    r"\[?\d{4}[-/]\d\d[-/]\d\d[T _]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?:Z| ?[+-]\d\d:?\d\d)?\]?(?: \w{6,12} \|\|)?"
    # ts and journalctl: Nov 22 10:00:02, with host and process: node1 python[4711]:
    r"|(?:[A-Z][a-z]{2} )?[A-Z][a-z]{2} [ \d]\d (?:\d{4} )?\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?: \d{4})?"
    r"(?: [\w.-]{1,80} [\w./-]{1,60}\[\d{1,8}\]:)?"
    r"|\[?\d\d:\d\d:\d\d(?:[.,]\d{1,9})?\]?"
    r"|\d{10}\.\d{1,9}"  # ts %.s
    r")(?: [|-])?(?: |$)"
)
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
    """Return the time in front of a line, and the line behind it; the time is empty where a logger wrote it."""
    if line[:1] not in _MAY_BEGIN:
        return "", line
    match = _STAMP.match(line[:_LONGEST_STAMP])
    if match is None:
        return "", line
    rest = line[match.end() :]
    if not rest.startswith("  ") and not is_exception_line(rest) and _OF_A_LOGGER.match(rest[:_LEVEL_WITHIN]):
        return "", line
    return match[0], rest
