"""The log of a rank, or of a batch script, in ``hpcrun top``.

The screen follows and searches the log, whatever the size of the log.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from math import inf
from typing import Any, ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType

from hpcrun.actions.runs.follow_logs import READ_EVERY_S
from hpcrun.actions.status.run_status import RunStatus
from hpcrun.cli.log_output import terminal_text
from hpcrun.errors import HpcrunError
from hpcrun.features.top.log_window import LogView, WindowLine, open_logs, read_stamps
from hpcrun.features.top.pager import Pager, Pages, TextScreen, search_pattern
from hpcrun.features.top.reader import Reader
from hpcrun.features.top.screen import TextLines, error_text
from hpcrun.runs.attempt import attempts
from hpcrun.runs.elements import all_elements
from hpcrun.runs.log_files import LogFile, rank_log
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
_READING = "log"  # the name of the calls in the background: one at a time


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
        super().__init__(reader)
        self._item = item
        self._rank, self._stream = rank, 0
        self._attempt, self._is_newest = attempt, attempt is None
        self._view, self._is_opened = LogView([]), False
        self._pages: Pages[WindowLine] = Pages(self._draw, wraps=True)
        self._follows, self._times = True, False
        self._stopped = False
        self._next_s = 0.0
        self._pause_s = READ_EVERY_S
        self._next_attempt_s = time.monotonic() + NEW_ATTEMPT_EVERY_S
        self._error = ""

    # --- what is on the screen

    def body(self) -> ComposeResult:
        """Yield the lines."""
        yield Pager(self._pages)

    def on_mount(self) -> None:
        """Begin to read."""
        self._open()
        self.set_interval(READ_EVERY_S, self._tick)

    def title_line(self) -> Text:
        """Return whose log it is."""
        run, stream = self._item.run, STREAMS[self._stream]
        if self._rank is None:
            who = "batch script"
        else:
            who = f"{run.rank_name(self._rank)}, {stream}"
        if self._attempt is not None:
            attempt = f", attempt {self._attempt + 1}"
        else:
            attempt = ""
        return Text(f"{run.name}: {who}{attempt}", "bold")

    def message_line(self) -> Text | str:
        """Return what is typed, what is wrong, or where the lines are."""
        late = self.waits_s(_READING)
        if not self.typed and (late > _LATE_S or self._error):
            if late > _LATE_S:
                problem = f"reading for {int(late)} s; esc stops waiting"
            else:
                problem = self._error
            return Text(one_line(problem), "bold")
        if self.typed or self._message:
            return super().message_line()
        return self._place()

    def _place(self) -> str:
        view = self._view
        pages = self._pages
        if not self._is_opened:
            return "reading ..."
        if not view.lines:
            if not self._item.status.final:
                return "nothing written so far"
            return "nothing was written"
        size = sum(window.size for window in view.windows)
        at = min(max(0, pages.top), len(view.lines) - 1)
        if len(view.windows) == 1:
            share = view.lines[at].at / max(1, view.windows[0].size)
        else:
            share = None
        if self._follows and self._is_newest and not self._item.status.final:
            where = "following"
        elif view.at_end and pages.is_at_end:
            where = "end"
        elif view.at_start and pages.top == 0:
            where = "beginning"
        else:
            where = pages.share() if share is None else f"{share:.0%}"
        return f"{where} ({bytes_text(size)})"

    def _draw(self, line: WindowLine) -> Text:
        raw, clock, stream = line.raw, "", ""
        if self._times:
            read_stamps([line])
            clock = " " * _TIME_WIDTH
            if line.stamp_s is not None:
                clock = time.strftime("%H:%M:%S ", time.localtime(line.stamp_s))
                raw = raw[line.stamp_end :].lstrip()
        if len(self._view.windows) > 1:
            stream = _ERR if line.log.path.suffix == ".err" else _OUT
        text = Text.from_ansi(terminal_text(raw, colours=True).expandtabs(), end="")
        return Text.assemble((clock, "dim"), (stream, "dim"), text)

    # --- reading

    def _logs(self, step: int = 0) -> tuple[int | None, bool, list[LogFile]]:
        """Return an attempt, whether the attempt is the newest, and the logs to show.

        The attempt is the one so many attempts (``step``) after the attempt that is shown now. The
        attempt is None for the log of a batch script, and if no attempt has begun.
        """
        item, element = self._item, self._item.element or 0
        if self._rank is None:
            return (
                None,
                True,
                [LogFile(all_elements(item.run).batch_log(item.folder, element), "batch")],
            )
        known = list(attempts(item.folder, element))  # the newest first
        if not known:
            return None, True, []
        shown = next((place for place, each in enumerate(known) if each.number == self._attempt), 0)
        place = max(0, min(len(known) - 1, (shown if step or not self._is_newest else 0) - step))
        attempt = known[place]
        streams = (("out", "err"), ("out",), ("err",))[self._stream]
        logs = [rank_log(attempt.folder, self._rank, each, attempt.number) for each in streams]
        return attempt.number, place == 0, logs

    def _open(self, step: int = 0) -> None:
        """Open the logs at their ends, of the same attempt or of the one after or before it."""
        self._view, self._is_opened, self._follows, self._message = LogView([]), False, True, Text()
        self._pages.lines, self._pages.mark = (), None

        def read() -> tuple[int | None, bool, LogView]:
            number, is_newest, logs = self._logs(step)
            return number, is_newest, open_logs(logs)

        def done(opened: tuple[int | None, bool, LogView]) -> None:
            before = self._attempt
            self._attempt, self._is_newest, self._view = opened
            self._is_opened = True
            if step and before == self._attempt:
                self.say("there is no later attempt" if step > 0 else "there is no earlier attempt")
            self._show()

        self._work(read, done)

    def _work(self, call: Callable[[], Any], then: Callable[[Any], object]) -> None:
        """Make a call in a thread, unless one is made already."""

        def ended(pause_s: float, error: str) -> None:
            self._next_s, self._error = time.monotonic() + pause_s, error

        def done(answer: Any) -> None:
            ended(self._pause_s, "")
            then(answer)
            self.draw()

        def failed(error: HpcrunError | OSError) -> None:
            ended(SLOWEST_S, error_text(error))
            self.draw()

        if self.call(_READING, call, done, failed):
            self._stopped = False

    def _tick(self) -> None:
        """Read what is new, at most as often as ``_pause_s`` says: the file system is shared."""
        now = time.monotonic()
        view = self._view
        if _READING in self.calls or now < self._next_s:
            self.query_one("#message", TextLines).update()
            return
        self._learn_state()
        if not self._is_opened:
            self._open()  # it could not be opened so far
        elif self._follows and self._is_newest and now >= self._next_attempt_s:
            # once more when the run has ended: its last attempt may be younger than the last look
            if self._item.status.final:
                self._next_attempt_s = inf
            else:
                self._next_attempt_s = now + NEW_ATTEMPT_EVERY_S
            self._work(self._logs, self._take_attempt)
        elif self._follows:
            self._work(view.newer, lambda _: self._took(view))
        else:
            self.draw()

    def _learn_state(self) -> None:
        """Take what is known of the run now.

        If the run's folder is gone, the screen keeps what was known last.
        """
        element, was_final = self._item.element, self._item.status.final
        with suppress(HpcrunError):
            self._item = self.reader.run_status(
                self._item.run.run_id + (f"/{element}" if element is not None else "")
            )
        if self._item.status.final and not was_final:
            self._message = Text()  # else "attempt 2 began" hides that this is the end

    def _take_attempt(self, newest: tuple[int | None, bool, list[LogFile]]) -> None:
        number, _, logs = newest
        if number != self._attempt or (logs and not self._view.windows):
            self._open()
            if number is not None and not self._item.status.final:
                self.say(f"attempt {number + 1} began")

    def _took(self, view: LogView) -> None:
        """Show what was read; read less often while the log does not grow."""
        is_new = view.lines is not self._pages.lines
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
        self._pages.indent = _TIME_WIDTH * self._times + len(_ERR) * (len(view.windows) > 1)
        self._pages.show(view.lines, follow=self._follows)
        self.draw()

    # --- keys

    def moved(self, *, up: bool) -> None:
        """Draw what has moved, and read on where the lines end."""
        self._message = Text()
        view = self._view
        pages = self._pages
        if self._is_opened:
            self._follows = not up and view.at_end and pages.is_at_end
        if up and pages.top < 2 * pages.height and not view.at_start:
            self._work(view.older, lambda _: self._show())
        elif not up and pages.is_at_end and not view.at_end:
            self._work(view.newer, lambda _: self._show())
        self.draw()

    def action_start(self) -> None:
        """Go to the beginning of the log."""
        if not self._is_opened:
            return
        self._follows, self._message = False, Text()

        def done(_: object) -> None:
            self._pages.lines = ()
            self._show()
            self._pages.to_start()

        self._work(self._view.to_start, done)

    def action_end(self) -> None:
        """Go to the end of the log, and follow it."""
        self._follows, self._message = True, Text()
        self._pages.mark = None
        self._work(self._view.to_end, lambda _: self._show())

    def action_wrap(self) -> None:
        """Wrap long lines, or do not."""
        self._pages.wrap(not self._pages.wraps)
        self._show()

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
        most = self._item.run.world_size - 1
        self._rank = max(0, min(most, here + step))
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
            if self._search:
                self.say("stopped")
                return
        self.app.pop_screen()

    def search(self) -> None:
        """Go to the first line with what is searched for: upwards while the log is followed."""
        self.action_again(self._follows)

    def action_again(self, up: bool) -> None:
        """Go to the next line with the searched text, or to the line before.

        The search reads on in the log where needed.
        """
        view = self._view
        pages = self._pages
        if not self._search:
            self.say("nothing is searched for: / begins a search")
            return
        (pattern, note), words = search_pattern(self._search), self._search
        if pages.mark is not None and pages.mark < len(view.lines):
            marked = pages.mark
        else:
            marked = None
        if marked is not None:
            place = marked
        else:
            place = pages.top - (0 if up else 1)
        if 0 <= place < len(view.lines) and not (up and self._follows):
            start = view.lines[place]
        else:
            start = None

        def done(answer: tuple[WindowLine | None, bool]) -> None:
            match, turned = answer
            self._message = Text()
            if match is None:
                self._show()
                self.say(
                    f"/{words}: {note}{'stopped' if self._stopped else 'no match in this log'}"
                )
                return
            self._follows = False
            pages.show(view.lines)
            pages.mark = next(number for number, line in enumerate(view.lines) if line is match)
            pages.reveal(pages.mark)
            if turned:
                again = f"from the {'end' if up else 'top'} again, "
            else:
                again = ""
            self.say(f"/{words}: {note}{again}n next, N before, G to follow again")

        self.say(f"/{words} ...")
        self._work(lambda: view.find(pattern, start, up=up, is_stopped=lambda: self._stopped), done)
