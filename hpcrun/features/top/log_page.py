"""The log of a rank, or of a batch script, in ``hpcrun top``.

The screen follows and searches the log, whatever the size of the log.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from math import inf
from typing import Any, ClassVar

from rich.text import Text
from textual.binding import Binding, BindingType

from hpcrun.actions.runs.follow_logs import READ_EVERY_S
from hpcrun.actions.runs.log_choice import default_choice
from hpcrun.actions.status.run_status import RunStatus
from hpcrun.cli.log_output import terminal_text
from hpcrun.errors import HpcrunError
from hpcrun.features.top.lines import LineView
from hpcrun.features.top.log_window import LogView, WindowLine, open_logs, read_stamps
from hpcrun.features.top.reader import Reader
from hpcrun.features.top.screen import ALL_LINES, error_text
from hpcrun.features.top.text_screen import AROUND, TextScreen, search_pattern, turned_text
from hpcrun.runs.attempt import attempts
from hpcrun.runs.elements import all_elements
from hpcrun.runs.log_files import LogFile, has_text, rank_log
from hpcrun.views.text import bytes_text, one_line

# what is shown of a rank, in the order in which ``o`` chooses
STREAMS = ("out and err", "out", "err")
# the longest time between two readings; a log that grows is read as often as ``logs -f`` does
SLOWEST_S = 5.0
NEW_ATTEMPT_EVERY_S = 10.0
_LATE_S = 3.0
_ERR = "err│"
_OUT = "   │"
_TIME_WIDTH = len("12:00:00 ")
_OF_SCRIPT = "batch"
_READING = "log"  # the name of the calls in the background: one at a time


@dataclass(frozen=True, slots=True)
class _Choice:
    """The logs to show, and of which attempt they are."""

    attempt: int | None  # None for the log of a batch script, and if no attempt has begun
    is_newest: bool
    logs: list[LogFile]


class LogPage(TextScreen):
    """Shows the log of one rank, of stdout, of stderr, or of both in the order of their times.

    Only the part around the screen is in memory. All reading is in threads; one reading at a time.

    Args:
        item: the run, or the element of a sweep.
        rank: whose log; None for the batch script's.
        attempt: of which attempt; None for the newest, and then for those that follow it.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding(
            "slash",
            "search",
            "search",
            tooltip="search for a regular expression; upwards while it is followed",
        ),
        Binding("n", "again(False)", "next", tooltip="next match"),
        Binding("N", "again(True)", "before", show=False, tooltip="match before"),
        Binding("G", "end", "follow", tooltip="go to the end, and follow it"),
        Binding("o", "stream", "out/err", tooltip="stdout and stderr, only stdout, only stderr"),
        Binding("w", "wrap", "wrap", tooltip="wrap long lines, or not"),
        Binding(
            "t", "times", "times", tooltip="a column with the times, where the lines begin with one"
        ),
        Binding("escape", "back", "back"),
        Binding("end", "end", "as G", show=False),
        Binding("g,home", "start", "go to the beginning", show=False),
        Binding("left_square_bracket", "rank(-1)", "log of the rank before", show=False),
        Binding("right_square_bracket", "rank(1)", "log of the next rank", show=False),
        Binding("left_curly_bracket", "attempt(-1)", "log of the attempt before", show=False),
        Binding("right_curly_bracket", "attempt(1)", "log of the next attempt", show=False),
    ]

    def __init__(
        self, reader: Reader, item: RunStatus, rank: int | None, attempt: int | None = None
    ) -> None:
        super().__init__(reader, LineView(self._draw, plain=self._plain))
        self.lines.wraps = True
        self.lines.follows = True
        self._item = item
        self._rank = rank
        self._stream = 0
        self._attempt = attempt
        self._is_newest = attempt is None
        self._view = LogView([])
        self._logs: list[LogFile] = []
        self._is_opened = False
        self._times = False
        self._stopped = False
        self._next_s = 0.0
        self._pause_s = READ_EVERY_S
        self._next_attempt_s = time.monotonic() + NEW_ATTEMPT_EVERY_S
        self._error = ""

    # --- what is on the screen

    def on_mount(self) -> None:
        """Begin to read."""
        self._open()
        self.set_interval(READ_EVERY_S, self._tick)

    def title_line(self) -> Text:
        """Return whose log it is."""
        run = self._item.run
        if self._rank is None:
            title = f"{run.name}: batch script"
        else:
            title = f"{run.name}: {run.rank_name(self._rank)}, {STREAMS[self._stream]}"
        if self._rank is not None and [log.source for log in self._logs] == [_OF_SCRIPT]:
            title += ": no output; that of the batch script"
        if self._attempt is not None:
            title += f", attempt {self._attempt + 1}"
        return Text(title, "bold")

    def message_line(self) -> Text:
        """Return what is wrong, what was done, or where the lines are."""
        late = self.waits_s(_READING)
        if late > _LATE_S:
            return Text(f"reading for {int(late)} s; esc stops waiting", "bold")
        if self._error:
            return Text(one_line(self._error), "bold")
        return self.message or Text(self._place())

    def _place(self) -> str:
        if not self._is_opened:
            return "reading ..."
        if not self.lines.lines:
            if not self._item.status.final:
                return "nothing written so far"
            return "nothing was written"
        size = sum(window.size for window in self._view.windows)
        return f"{self._share()} ({bytes_text(size)})"

    def _share(self) -> str:
        view = self._view
        if self.lines.follows and self._is_newest and not self._item.status.final:
            return "following"
        if view.at_end and self.lines.is_vertical_scroll_end:
            return "end"
        if view.at_start and self.lines.scroll_y == 0:
            return "beginning"
        if len(view.windows) > 1:
            return self.lines.share()
        line = self.lines.lines[self.lines.top]
        return f"{line.at / max(1, view.windows[0].size):.0%}"

    def _draw(self, line: WindowLine) -> Text:
        text = Text()
        raw = self._without_time(line)
        if self._times:
            clock = " " * _TIME_WIDTH
            if line.stamp_s is not None:
                clock = time.strftime("%H:%M:%S ", time.localtime(line.stamp_s))
            text.append(clock, "dim")
        if len(self._view.windows) > 1:
            text.append(_ERR if line.log.path.suffix == ".err" else _OUT, "dim")
        shown = terminal_text(raw, colours=True).expandtabs()
        return text.append_text(Text.from_ansi(shown, end=""))

    def _without_time(self, line: WindowLine) -> str:
        """Return a line without its time, if that has a column of its own."""
        if self._times:
            read_stamps([line])
            if line.stamp_s is not None:
                return line.raw[line.stamp_end :].lstrip()
        return line.raw

    def _plain(self, line: WindowLine) -> str:
        text = self._without_time(line)
        if not (text.isascii() and text.isprintable()):
            text = terminal_text(text, colours=False).expandtabs()
        return " " * self.lines.indent + text

    # --- reading

    def _choose(self, step: int = 0) -> _Choice:
        """Return the logs of the shown attempt (0), the next one (1), or the one before (-1)."""
        item = self._item
        element = item.element or 0
        if self._rank is None:
            log = all_elements(item.run).batch_log(item.folder, element)
            return _Choice(None, True, [LogFile(log, _OF_SCRIPT)])
        known = list(attempts(item.folder, element))  # the newest first
        if not known:
            return _Choice(None, True, [])
        shown = 0
        if step or not self._is_newest:
            numbers = [attempt.number for attempt in known]
            if self._attempt in numbers:
                shown = numbers.index(self._attempt)
        place = max(0, min(len(known) - 1, shown - step))
        attempt = known[place]
        streams = (("out", "err"), ("out",), ("err",))[self._stream]
        logs = [rank_log(attempt.folder, self._rank, each, attempt.number) for each in streams]
        has_script = bool(default_choice(item.run).script)
        if has_script and place == 0 and not any(map(has_text, logs)):
            log = all_elements(item.run).batch_log(item.folder, element)
            logs = [LogFile(log, _OF_SCRIPT, attempt.number)]
        return _Choice(attempt.number, place == 0, logs)

    def _open(self, step: int = 0) -> None:
        """Open the logs at their ends, of the same attempt or of the one after or before it."""
        self._view = LogView([])
        self._is_opened = False
        self.message = Text()
        self.lines.follows = True
        self.lines.cursor = None
        self.lines.show(())

        def read() -> tuple[_Choice, LogView]:
            choice = self._choose(step)
            return choice, open_logs(choice.logs)

        def done(opened: tuple[_Choice, LogView]) -> None:
            choice, self._view = opened
            self._is_opened = True
            if step and choice.attempt == self._attempt:
                which = "later" if step > 0 else "earlier"
                self.say(f"there is no {which} attempt")
            self._attempt = choice.attempt
            self._logs = choice.logs
            self._is_newest = choice.is_newest
            self._show()

        self._work(read, done)

    def _work(self, call: Callable[[], Any], then: Callable[[Any], object]) -> None:
        """Make a call in a thread, unless one is made already."""

        def done(answer: Any) -> None:
            self._next_s = time.monotonic() + self._pause_s
            self._error = ""
            then(answer)
            self.draw_rows()

        def failed(error: HpcrunError | OSError) -> None:
            self._next_s = time.monotonic() + SLOWEST_S
            self._error = error_text(error)
            self.draw_rows()

        if self.call(_READING, call, done, failed):
            self._stopped = False

    def _tick(self) -> None:
        """Read what is new, at most as often as ``_pause_s`` says: the file system is shared."""
        now = time.monotonic()
        view = self._view
        if _READING in self.calls or now < self._next_s:
            self.draw_rows()
            return
        self._learn_state()
        if not self._is_opened:
            self._open()  # it could not be opened so far
        elif self.lines.follows and self._is_newest and now >= self._next_attempt_s:
            # once more when the run has ended: its last attempt may be younger than the last look
            if self._item.status.final:
                self._next_attempt_s = inf
            else:
                self._next_attempt_s = now + NEW_ATTEMPT_EVERY_S
            self._work(self._choose, self._take_attempt)
        elif self.lines.follows:
            self._work(view.newer, lambda _: self._took(view))
        else:
            self.draw_rows()

    def _learn_state(self) -> None:
        """Take what is known of the run now.

        If the run's folder is gone, the screen keeps what was known last.
        """
        was_final = self._item.status.final
        run_id = self._item.run.run_id
        if self._item.element is not None:
            run_id += f"/{self._item.element}"
        with suppress(HpcrunError):
            self._item = self.reader.run_status(run_id)
        if self._item.status.final and not was_final:
            self.message = Text()  # else "attempt 2 began" hides that this is the end

    def _take_attempt(self, newest: _Choice) -> None:
        is_new = newest.attempt != self._attempt
        if is_new or (newest.logs and not self._view.windows) or newest.logs != self._logs:
            self._open()
            if is_new and newest.attempt is not None and not self._item.status.final:
                self.say(f"attempt {newest.attempt + 1} began")

    def _took(self, view: LogView) -> None:
        """Show what was read; read less often while the log does not grow."""
        is_new = view.lines is not self.lines.lines
        if is_new:
            self._pause_s = READ_EVERY_S
        else:
            self._pause_s = min(SLOWEST_S, self._pause_s * 1.2)
        self._error = view.error
        if is_new:
            self._show()

    def _show(self) -> None:
        view = self._view
        self._error = view.error
        # the other rows of a wrapped line stand below its text, not below its time and stream
        self.lines.indent = _TIME_WIDTH * self._times + len(_ERR) * (len(view.windows) > 1)
        self.lines.show(view.lines)
        self.draw_rows()

    # --- keys

    def moved(self, *, up: bool) -> None:
        """Draw what has moved, and read on where the lines end."""
        self.message = Text()
        view = self._view
        lines = self.lines
        is_at_end = lines.is_vertical_scroll_end
        if self._is_opened:
            lines.follows = not up and view.at_end and is_at_end
        if up and lines.top < 2 * lines.size.height and not view.at_start:
            self._work(view.older, lambda _: self._show())
        elif not up and is_at_end and not view.at_end:
            self._work(view.newer, lambda _: self._show())
        self.draw_rows()

    def action_start(self) -> None:
        """Go to the beginning of the log."""
        if not self._is_opened:
            return
        self.lines.follows = False
        self.message = Text()

        def done(_: object) -> None:
            self._show()
            self.lines.move(-ALL_LINES)

        self._work(self._view.to_start, done)

    def action_end(self) -> None:
        """Go to the end of the log, and follow it."""
        self.lines.follows = True
        self.lines.cursor = None
        self.message = Text()
        self._work(self._view.to_end, lambda _: self._show())

    def action_wrap(self) -> None:
        """Wrap long lines, or do not."""
        self.lines.wrap(not self.lines.wraps)
        self.draw_rows()

    def action_times(self) -> None:
        """Show the times of the lines in a column of their own, or the lines as they are."""
        self._times = not self._times
        self._show()

    def action_stream(self) -> None:
        """Show stdout and stderr, only stdout, or only stderr."""
        if self._rank is None:
            self.say("the batch script has one log")
        elif _READING not in self.calls:
            self._stream = (self._stream + 1) % len(STREAMS)
            self._open()

    def action_rank(self, step: int) -> None:
        """Show the log of the next rank, or of the one before."""
        if _READING in self.calls:
            return
        here = -1 if self._rank is None else self._rank
        self._rank = max(0, here + step)
        if self._item.run.world_size:  # else the script's launch decides it
            self._rank = min(self._item.run.world_size - 1, self._rank)
        self._open()

    def action_attempt(self, step: int) -> None:
        """Show the log of the next attempt, or of the one before."""
        if self._rank is None:
            self.say("the batch script has one log of all attempts")
        elif _READING not in self.calls:
            self._open(step)

    def action_back(self) -> None:
        """Stop a search, or go back to the run."""
        if _READING in self.calls and not self._stopped:
            self._stopped = True
            if self.search_words:
                self.say("stopped")
                return
        self.app.pop_screen()

    def search(self) -> None:
        """Go to the first line with what is searched for: upwards while the log is followed."""
        self.action_again(self.lines.follows)

    def action_again(self, up: bool) -> None:
        """Go to the next line with the searched text, or to the line before.

        The search reads on in the log where needed.
        """
        view = self._view
        lines = self.lines
        words = self.search_words
        if not words:
            self.say("nothing is searched for: / begins a search")
            return
        pattern, note = search_pattern(words)
        start = None
        if not (up and lines.follows):
            start = self._search_from(up)

        def done(answer: tuple[WindowLine | None, bool]) -> None:
            match, turned = answer
            if match is None:
                self._show()
                result = "stopped" if self._stopped else "no match in this log"
                self.say(f"/{words}: {note}{result}")
                return
            lines.follows = False
            lines.show(view.lines)
            number = next(number for number, line in enumerate(view.lines) if line is match)
            lines.choose(number, around=AROUND)
            again = turned_text(up) if turned else ""
            self.say(f"/{words}: {note}{again}n next, N before, G to follow again")

        self.say(f"/{words} ...")
        self._work(lambda: view.find(pattern, start, up=up, is_stopped=lambda: self._stopped), done)

    def _search_from(self, up: bool) -> WindowLine | None:
        """Return the line after which, or before which, a search begins."""
        lines = self._view.lines
        place = self.lines.top if up else self.lines.top - 1
        if self.lines.cursor is not None:
            place = self.lines.cursor
        return lines[place] if 0 <= place < len(lines) else None
