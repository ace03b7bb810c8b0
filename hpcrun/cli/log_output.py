"""Showing logs: whole ones, chosen lines of them, and those that are still being written."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from hpcrun.cli.log_printer import Printer, announce, make_printer
from hpcrun.cli.output import tell, width, write
from hpcrun.errors import NotFoundError

if TYPE_CHECKING:
    from hpcrun.actions.runs.logs import LogChoice
    from hpcrun.job.patterns import Pattern
    from hpcrun.runs.logs import LogFile


@dataclass(frozen=True, slots=True)
class Lines:
    """Which lines of the logs are shown, and how.

    Attributes:
        last: only so many, of each log; of all together where they are merged.
        pattern: only those in which it is found.
        since_s: only those not before, in seconds since the epoch.
        merge: those of all logs in the order of their times.
        started_s: when the logs were begun, in seconds since the epoch.
    """

    last: int | None = None
    pattern: Pattern | None = None
    since_s: float | None = None
    merge: bool = False
    started_s: float = 0.0
    colours: bool = True

    def printer(self, *, prefixes: bool) -> Printer:
        """Return what prints them."""
        return make_printer(prefixes=prefixes, pattern=self.pattern, colours=self.colours, width=width())


def print_finished(folder: Path, choice: LogChoice, lines: Lines | None = None) -> bool:
    """Print the logs that are there, with a heading each where there are several, as tail does; False if none is.

    Raises:
        NotFoundError: one cannot be read.
    """
    from hpcrun.actions.runs.logs import finished_logs
    from hpcrun.views.log_text import heading

    lines = lines or Lines()
    found = finished_logs(folder, choice)
    prefixes = choice.several or lines.merge
    printer = lines.printer(prefixes=prefixes)
    if lines.merge:
        _print_merged(found, lines, printer)
        return bool(found)
    ended = True  # the text before ended with its line
    for number, log in enumerate(found):
        if len(found) > 1 and not prefixes:
            write(f"{'' if ended else chr(10)}{chr(10) if number else ''}{heading(log)}\n")
        try:
            for text in _texts(log, lines):
                printer.feed(log, text)
                ended = text.endswith("\n")
        except BrokenPipeError:
            raise  # it was stdout
        except OSError as error:  # another user's, or deleted since it was listed
            raise NotFoundError(f"{log.path} cannot be read: {error.strerror}") from None
        printer.finish()
    return bool(found)


def _print_merged(logs: Sequence[LogFile], lines: Lines, printer: Printer) -> None:
    from hpcrun.runs.log_lines import merged
    from hpcrun.runs.logs import fold

    found: Iterable[tuple[LogFile, str]] = merged(logs, lines.started_s, lines.since_s)
    pattern = lines.pattern
    if pattern is not None:
        found = ((log, text) for log, text in found if pattern.is_in(fold(text)))
    for log, text in found if lines.last is None else deque(found, lines.last):
        printer.feed(log, text if text.endswith("\n") else f"{text}\n")


def _texts(log: LogFile, lines: Lines) -> Iterator[str]:
    """Yield what is to be shown of one log: in blocks where every byte is, else by lines."""
    from hpcrun.runs.logs import texts

    if lines.pattern is None and lines.since_s is None:
        return texts(log.path, lines.last)
    chosen = _chosen(log, lines)
    return chosen if lines.last is None else iter(deque(chosen, lines.last))


def _chosen(log: LogFile, lines: Lines) -> Iterator[str]:
    from hpcrun.runs.log_lines import has_stamps, matching, since
    from hpcrun.runs.logs import log_lines
    from hpcrun.views.log_text import label

    found = log_lines(log.path)
    if lines.since_s is not None:
        if log.path.stat().st_mtime < lines.since_s:
            return iter(())
        if has_stamps(log.path, lines.started_s):
            found = since(found, lines.since_s, lines.started_s)
        else:
            tell([f"hpcrun: {label(log)} has no timestamps: all its lines are shown"])
    return found if lines.pattern is None else matching(found, lines.pattern)


def print_stream(stream: Iterable[tuple[LogFile, str]], *, prefixes: bool, lines: Lines | None = None) -> bool:
    """Print logs as they come, each line with its rank where several are mixed; False if nothing came."""
    printer = (lines or Lines()).printer(prefixes=prefixes)
    attempt: int | None = None
    for log, text in stream:
        if attempt is not None and log.attempt > attempt:
            printer.finish()
            announce(log.attempt)
        attempt = log.attempt
        printer.feed(log, text)
    printer.finish()
    return attempt is not None
