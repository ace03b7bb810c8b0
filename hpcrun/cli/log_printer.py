"""Printing logs as they come: as they are into a pipe, line by line where lines are marked, folded on a terminal."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from typing import Protocol

from hpcrun.cli.output import tell, write, write_bytes
from hpcrun.job.patterns import Pattern
from hpcrun.runs.logs import LONGEST_LINE, LogFile, fold
from hpcrun.views.log_text import label, terminal_text

_ERASE_LINE = "\r\x1b[K"


class Printer(Protocol):
    """Takes a job's text piece by piece."""

    def feed(self, log: LogFile, text: str) -> None:
        """Print what was read of a log."""

    def finish(self) -> None:
        """Print what waited for the end of its line."""


def make_printer(*, prefixes: bool, pattern: Pattern | None, colours: bool, width: int) -> Printer:
    """Return the printer that suits stdout and the choice of lines.

    Args:
        prefixes: the log of a line stands before it.
        pattern: only lines in which it is found.
        width: columns of the terminal.
    """
    is_terminal = sys.stdout.isatty()
    if prefixes or pattern:
        return _LinePrinter(prefixes, pattern, colours if is_terminal else None)
    return _TerminalPrinter(colours, width) if is_terminal else _BytePrinter()


class _BytePrinter:
    """Prints the very bytes."""

    def feed(self, log: LogFile, text: str) -> None:  # noqa: ARG002 - the protocol's
        write_bytes(text.encode("utf-8", "surrogateescape"))

    def finish(self) -> None:
        pass


@dataclass
class _LinePrinter:
    """Prints whole lines, with their log in front where there are several; half lines wait for their end.

    Attributes:
        colours: None for a pipe, which gets the line as it is but for the folding.
    """

    prefixes: bool
    pattern: Pattern | None
    colours: bool | None
    _rest: dict[LogFile, str] = field(default_factory=dict)

    def feed(self, log: LogFile, text: str) -> None:
        lines = (self._rest.pop(log, "") + text).split("\n")
        rest = lines.pop()
        if len(rest) > LONGEST_LINE:
            bar = fold(rest)  # of a progress bar only the state it is in
            lines, rest = ([*lines, bar], "") if len(bar) > LONGEST_LINE else (lines, bar)
        self._print(log, lines)
        if rest:
            self._rest[log] = rest

    def finish(self) -> None:
        for log in list(self._rest):
            self._print(log, [self._rest.pop(log)])

    def _print(self, log: LogFile, lines: list[str]) -> None:
        front = f"[{label(log)}] " if self.prefixes else ""
        folded = (fold(line) for line in lines)
        kept = folded if self.pattern is None else self.pattern.filter((line, line) for line in folded)
        if self.colours is None:
            write_bytes("".join(f"{front}{line}\n" for line in kept).encode("utf-8", "surrogateescape"))
        else:
            write("".join(f"{front}{terminal_text(line, colours=self.colours)}\n" for line in kept))


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
        """Return what makes a line of its beginning that is shown already."""
        text = terminal_text(line, colours=self.colours)
        shown, self._shown = self._shown, ""
        return text[len(shown) :] if text.startswith(shown) else _ERASE_LINE + text

    def _begun(self) -> str:
        """Return what shows the line as far as it is written: not more than fits, or it could not be drawn again."""
        text = terminal_text(self._rest, colours=False)[: max(1, self.width - 1)]
        shown, self._shown = self._shown, text
        return text[len(shown) :] if text.startswith(shown) else _ERASE_LINE + text


def announce(attempt: int) -> None:
    """Say on stderr, in its place, that the job was started again."""
    tell([f"hpcrun: attempt {attempt} begins"])
