"""Printing logs: whole ones, selected lines, and logs that are still being written.

A pipe gets them unchanged, with the rank before each line if there are several; on a terminal lines
are folded.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from hpcrun.actions.runs.follow_logs import follow_logs
from hpcrun.actions.runs.log_choice import LogChoice, finished_logs
from hpcrun.cli.output import tell, width, write, write_bytes
from hpcrun.errors import NotFoundError
from hpcrun.job.text.patterns import Pattern
from hpcrun.runs.log_files import LONGEST_LINE, LogFile, fold, log_lines, texts
from hpcrun.runs.log_times import has_stamps, matching, merged, since
from hpcrun.views.text import harmless, one_line, without_colours

if TYPE_CHECKING:
    from hpcrun.actions.status.wait import Waiter

_ERASE_LINE = "\r\x1b[K"
_RESET = "\x1b[0m"


@dataclass(frozen=True, slots=True)
class Lines:
    """Which lines of the logs are shown, and how."""

    last: int | None = None  # the number of lines: of each log, or of all together if merged
    pattern: Pattern | None = None  # only lines that match
    since_s: float | None = None  # only lines from this time on, in seconds since the epoch
    merge: bool = False  # lines of all logs in the order of their times
    started_s: float = 0.0  # when the logs were begun, in seconds since the epoch
    colours: bool = True

    def printer(self, *, prefixes: bool) -> _BytePrinter | _LinePrinter | _TerminalPrinter:
        """Return the printer for stdout; with ``prefixes`` each line begins with its log."""
        is_terminal = sys.stdout.isatty()
        if prefixes or self.pattern:
            return _LinePrinter(prefixes, self.pattern, self.colours if is_terminal else None)
        if is_terminal:
            return _TerminalPrinter(self.colours, width())
        return _BytePrinter()


def print_finished(folder: Path, choice: LogChoice, lines: Lines | None = None) -> bool:
    """Print the existing logs, and return whether there are any.

    Several logs get headings like those of tail.

    Raises:
        BrokenPipeError: if stdout was closed.
        NotFoundError: if a log cannot be read.
    """
    lines = lines or Lines()
    logs = finished_logs(folder, choice)
    if not logs:
        return False
    if lines.merge:
        is_any = _print_merged(logs, lines)
    else:
        is_any = _print_in_turn(logs, choice, lines)
    if lines.pattern is not None and not is_any:
        tell(["hpcrun: no line matches"])
    return True


def _print_merged(logs: Sequence[LogFile], lines: Lines) -> bool:
    """Print the lines of all logs by their timestamps; return whether there are any."""
    printer = lines.printer(prefixes=True)
    is_any = False
    for log, text in _merged(logs, lines):
        is_any = True
        printer.feed(log, text if text.endswith("\n") else f"{text}\n")
    return is_any


def _print_in_turn(logs: Sequence[LogFile], choice: LogChoice, lines: Lines) -> bool:
    """Print one log after another; return whether a line was printed."""
    printer = lines.printer(prefixes=choice.several)
    is_any = False
    if logs[0].source == choice.script:
        _tell_whose(choice, is_ranks=False)
    has_headings = len(logs) > 1 and not choice.several
    ended = True  # the text before ended with its line
    for number, log in enumerate(logs):
        if has_headings:
            if not ended:
                write("\n")
            if number > 0:
                write("\n")
            write(f"{heading(log)}\n")
        try:
            for text in _texts(log, lines):
                is_any = True
                printer.feed(log, text)
                ended = text.endswith("\n")
        except BrokenPipeError:
            raise  # it was stdout
        except OSError as error:  # another user's, or deleted since it was listed
            raise NotFoundError(f"{log.path} cannot be read: {error.strerror}") from None
        printer.finish()
    return is_any


def _merged(logs: Sequence[LogFile], lines: Lines) -> Iterable[tuple[LogFile, str]]:
    whole = []
    if lines.since_s is not None:
        for log in logs:
            # another user's, or deleted since it was listed: merged leaves it out
            with suppress(OSError):
                if not has_stamps(log.path, lines.started_s):
                    whole.append(log)
                    _tell_all_is_shown(log)
    marked: Iterable[tuple[LogFile, str]]
    marked = merged(logs, lines.started_s, lines.since_s, whole=whole)
    pattern = lines.pattern
    if pattern:
        marked = ((log, text) for log, text in marked if pattern.is_in(fold(text)))
    if lines.last is None:
        return marked
    return deque(marked, lines.last)


def _texts(log: LogFile, lines: Lines) -> Iterator[str]:
    """Yield the text of one log: in blocks if all of it is shown, else by lines."""
    if lines.pattern is None and lines.since_s is None:
        return texts(log.path, lines.last)
    chosen = log_lines(log.path)
    if lines.since_s is not None:
        if log.path.stat().st_mtime < lines.since_s:
            return iter(())
        if has_stamps(log.path, lines.started_s):
            chosen = since(chosen, lines.since_s, lines.started_s)
        else:
            _tell_all_is_shown(log)
    if lines.pattern is not None:
        chosen = matching(chosen, lines.pattern)
    if lines.last is None:
        return chosen
    return iter(deque(chosen, lines.last))


def _tell_whose(choice: LogChoice, *, is_ranks: bool) -> None:
    """Tell whether the output that follows is that of a person's script or of its ranks."""
    name = one_line(choice.script)
    text = f"the ranks have printed nothing; this is the output of {name}"
    if is_ranks:
        text = f"the output of the ranks; that of {name}: --batch"
    tell([f"hpcrun: {text}"])


def _tell_all_is_shown(log: LogFile) -> None:
    tell([f"hpcrun: {label(log)} has no timestamps: all its lines are shown"])


def print_followed(
    folder: Path, choice: LogChoice, waiter: Waiter, lines: Lines | None = None
) -> None:
    """Print a run's logs until it ends, each line with its rank if there are several.

    While the run waits, the waiter tells why.
    """
    lines = lines or Lines()
    printer = lines.printer(prefixes=choice.several)
    attempt: int | None = None
    source: str | None = None
    for log, text in follow_logs(folder, choice, lines=lines.last, is_over=waiter.over()):
        if attempt is not None and log.attempt > attempt:
            printer.finish()
            tell([f"hpcrun: attempt {log.attempt + 1} begins"])
        attempt = log.attempt
        if log.source != source and choice.script in (log.source, source):
            printer.finish()
            _tell_whose(choice, is_ranks=log.source != choice.script)
        source = log.source
        printer.feed(log, text)
    printer.finish()
    if attempt is None:
        print_finished(folder, choice, lines)


class _BytePrinter:
    """Prints the very bytes."""

    def feed(self, _log: LogFile, text: str) -> None:
        write_bytes(text.encode("utf-8", "surrogateescape"))

    def finish(self) -> None:
        """Nothing waits."""


@dataclass
class _LinePrinter:
    """Prints whole lines, each with the name of its log if there are several logs.

    An incomplete line waits for its end.
    """

    prefixes: bool
    pattern: Pattern | None
    colours: bool | None  # None for a pipe, which gets the line as it is but for the folding
    _rest: dict[LogFile, str] = field(default_factory=dict)

    def feed(self, log: LogFile, text: str) -> None:
        lines = (self._rest.pop(log, "") + text).split("\n")
        rest = lines.pop()
        if len(rest) > LONGEST_LINE:
            over = "\r" if rest.endswith("\r") else ""  # the next text overwrites the last state
            rest = fold(rest) + over  # only the last state of a progress bar
        if len(rest) > LONGEST_LINE:
            lines.append(rest)
            rest = ""
        self._print(log, lines)
        if rest:
            self._rest[log] = rest

    def finish(self) -> None:
        for log in list(self._rest):
            self._print(log, [self._rest.pop(log)])

    def _print(self, log: LogFile, lines: list[str]) -> None:
        front = f"[{label(log)}] " if self.prefixes else ""
        kept: Iterable[str] = [fold(line) for line in lines]
        if self.pattern is not None:
            kept = self.pattern.filter((line, line) for line in kept)
        if self.colours is None:
            text = "".join(f"{front}{line}\n" for line in kept)
            write_bytes(text.encode("utf-8", "surrogateescape"))
        else:
            shown = [terminal_text(line, colours=self.colours) for line in kept]
            write("".join(f"{front}{line}\n" for line in shown))


@dataclass
class _TerminalPrinter:
    """Shows the last line while it is being written; a progress bar is drawn again in its place."""

    colours: bool
    width: int
    _log: LogFile | None = None
    _rest: str = ""
    _shown: str = ""

    def feed(self, log: LogFile, text: str) -> None:
        if log != self._log:
            self.finish()
            self._log = log
        lines = (self._rest + text).split("\n")
        self._rest = lines.pop()
        out = [self._again(f"{line}\n") for line in lines]
        if len(self._rest) > LONGEST_LINE:
            out.append(self._again(self._rest))
            self._rest = ""
        elif self._rest:
            out.append(self._begun())
        write("".join(out))

    def finish(self) -> None:
        if self._rest:
            write(self._again(f"{self._rest}\n"))
        self._rest = ""

    def _again(self, line: str) -> str:
        """Return the control sequence that replaces the shown beginning of a line."""
        text = terminal_text(line, colours=self.colours)
        shown = self._shown
        self._shown = ""
        return _continuation(shown, text)

    def _begun(self) -> str:
        """Return the beginning of an incomplete line.

        The beginning has at most one row, so that it can be drawn again.
        """
        text = terminal_text(self._rest, colours=False)[: max(1, self.width - 1)]
        shown = self._shown
        self._shown = text
        return _continuation(shown, text)


def _continuation(shown: str, text: str) -> str:
    """Return what turns the shown beginning of a line into the text."""
    if text.startswith(shown):
        return text[len(shown) :]
    return _ERASE_LINE + text


def terminal_text(line: str, *, colours: bool) -> str:
    """Return a line, or a part of one, in a form that is safe on a terminal.

    Only the last state of a progress bar remains. Colours (SGR) stay: they change only the look of
    the text after them, and are reset at the end of the line. Bytes that are not text are shown as
    U+FFFD.
    """
    text = harmless(fold(line).encode("utf-8", "surrogateescape").decode("utf-8", "replace"))
    if "\x1b" not in text:
        return text
    if not colours:
        return without_colours(text)
    body = text.removesuffix("\n")
    line_end = text[len(body) :]
    if not body.endswith((_RESET, "\x1b[m")):
        body += _RESET
    return body + line_end


def label(log: LogFile) -> str:
    """Return the source of a line: ``rank 3``, ``rank 3 err``, ``batch``."""
    if log.path.suffix == ".err":
        return f"{log.source} err"
    return log.source


def heading(log: LogFile) -> str:
    """Return the heading of a log among several: ``rank 3 stdout``."""
    stream = {".err": " stderr", ".out": " stdout"}.get(log.path.suffix, "")
    return f"==> {log.source}{stream} <=="
