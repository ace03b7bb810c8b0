"""``hpcrun top``: the program that shows the screens, what ends it, and its first screen.

The first screen shows all runs, live.
"""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from itertools import pairwise
from typing import Any, ClassVar

from rich.text import Text
from textual import events
from textual.app import App
from textual.binding import Binding, BindingType
from textual.drivers.linux_driver import LinuxDriver

from hpcrun.actions.status.run_status import interesting_element
from hpcrun.errors import HpcrunError
from hpcrun.features.top.actions import act, show_done
from hpcrun.features.top.reader import Reader
from hpcrun.features.top.rows import (
    GROUPINGS,
    SORTS,
    Arrangement,
    ShownRow,
    TopRow,
    arranged,
    cells,
    column_widths,
    keys_to_mark,
    states_text,
)
from hpcrun.features.top.screen import TypedLine
from hpcrun.features.top.table import TableScreen, table_line
from hpcrun.job import job_states as state
from hpcrun.views.status_table import COLOURS

_CHECKS_EVERY_S = 1.0  # how often to check for a late answer
WORDS_EVERY_S = 10.0  # how often the last lines of the runs on the screen are read
_ASKING = "asking ..."


def words_of(rows: Mapping[str, TopRow]) -> dict[str, str]:
    """Return what each of some runs wrote last."""
    from hpcrun.views.details_text import (
        last_words,  # what it needs is imported behind the first frame
    )

    words = {}
    for key, row in rows.items():
        item = row.item()
        if item:
            with suppress(OSError, HpcrunError):
                words[key] = last_words(item)
    return words


class RunsScreen(TableScreen[ShownRow]):
    """The table of all runs; ``words`` is the filter to begin with."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding(
            "enter", "open", "open", tooltip="open the page of a run; show the runs of a study"
        ),
        Binding("l", "log", "log", tooltip="follow the log of rank 0"),
        Binding(
            "slash",
            "filter",
            "filter",
            tooltip="show only rows with these words, without those behind a !",
        ),
        Binding("space", "mark", "mark", tooltip="mark the row, or not"),
        Binding(
            "c",
            "act('cancel')",
            "cancel",
            tooltip="cancel the marked runs, or the one with the cursor",
        ),
        Binding("r", "act('resubmit')", "resubmit", tooltip="resubmit them"),
        Binding("H", "act('hold')", "hold", show=False, tooltip="hold them: they stay pending"),
        Binding("U", "act('release')", "release", show=False, tooltip="release them (unhold)"),
        Binding(
            "m",
            "done",
            "messages",
            show=False,
            tooltip="what was done, and what the commands printed",
        ),
        Binding(
            "2", "app.view('jobs')", "other jobs", tooltip="your jobs that hpcrun did not submit"
        ),
        Binding("3", "app.view('queue')", "queue", tooltip="the queue by partition"),
        Binding(
            "right,plus",
            "expand(True)",
            "expand",
            show=False,
            tooltip="show the elements of a sweep",
        ),
        Binding("left,minus", "expand(False)", "collapse", show=False, tooltip="hide them"),
        Binding(
            "asterisk",
            "mark_all",
            "mark all",
            show=False,
            tooltip="mark all rows that are shown, or none",
        ),
        Binding("escape", "back", "back", show=False, tooltip="clear the filter; again: the marks"),
        Binding(
            "b", "group", "group", show=False, tooltip="group by study, by name, by state, or not"
        ),
        Binding(
            "A",
            "sort('age')",
            "by age",
            show=False,
            tooltip="sort by age; again, as with the next: reversed",
        ),
        Binding("N", "sort('name')", "by name", show=False, tooltip="sort by name"),
        Binding("S", "sort('state')", "by state", show=False, tooltip="sort by state"),
        Binding("J", "sort('job')", "by job id", show=False, tooltip="sort by job id"),
        Binding("E", "sort('elapsed')", "by time", show=False, tooltip="sort by elapsed time"),
        Binding("R,ctrl+r", "refresh", "refresh", show=False, tooltip="ask Slurm now"),
    ]

    def __init__(self, reader: Reader, words: str = "") -> None:
        super().__init__(reader, self._draw_row, lambda row: row[0].key)
        self._how = Arrangement(words)
        self._marked: frozenset[str] = frozenset()
        self._now_s = reader.now_s()
        self._words: Mapping[str, str] = {}
        self._words_of: frozenset[str] = frozenset()
        self._words_asked = float("-inf")

    def on_mount(self) -> None:
        """Show what is known so far."""
        self.show_reading()
        self.set_interval(_CHECKS_EVERY_S, self.check)

    def show_reading(self) -> None:
        """Show what the reader knows now."""
        self._now_s = self.reader.now_s()
        if self.message.plain == _ASKING:
            self.message = Text()
        self._show_rows()

    def check(self) -> None:
        """Show whether an answer is late; read the last lines of the runs on the screen."""
        if not self.is_active:
            return
        self.draw_rows()
        now = time.monotonic()
        running = {}
        for row, _ in self.lines.on_screen:
            if row.state == state.RUNNING and not row.children:
                running[row.key] = row
        is_due = now - self._words_asked >= WORDS_EVERY_S or not self._words_of >= running.keys()
        if not running or not is_due:
            return

        def show(words: Mapping[str, str]) -> None:
            self._words = words
            self.lines.update()

        if self.call("words", lambda: words_of(running), show, lambda _: show({})):
            self._words_asked = now
            self._words_of = frozenset(running)

    def _show_rows(self) -> None:
        reading = self.reader.reading
        rows = arranged(reading.rows, self._how, reading.studies)
        self._opened = {row.key for (row, depth), (_, inner) in pairwise(rows) if inner > depth}
        self.show_rows(rows, column_widths(rows, self.size.width))

    def on_resize(self) -> None:
        """Fit the columns to the new size."""
        self._show_rows()

    def _draw_row(self, shown: ShownRow) -> Text:
        row, depth = shown
        status = row.status
        texts = cells(
            row,
            depth,
            self._now_s,
            is_open=row.key in self._opened,
            words=self._words.get(row.key, ""),
        )
        usual = "red" if status is None or status.final else ""
        colour = COLOURS.get(row.state, usual)
        sign = "*" if row.key in self._marked else " "
        return table_line(self.widths, texts, sign=sign, styles={"state": colour})

    def title_line(self) -> Text:
        """Return how many runs there are, and how they are sorted."""
        trouble = self._trouble()
        if trouble:
            return Text.assemble(("hpcrun top  ", "bold"), (trouble, "bold reverse"))
        how = self._how
        # what a person has just done comes first: the end is cut where there is no room
        parts = []
        if self._marked:
            parts.append(f"{len(self._marked)} marked")
        if how.words:
            parts.append(f"filter: {how.words}")
        order = SORTS[how.sort][1]
        if how.reverse:
            order += ", reversed"
        parts.append(states_text([row.state for row in self.reader.reading.rows], order))
        return Text.assemble(("hpcrun top  ", "bold"), "; ".join(parts))

    def _trouble(self) -> str:
        """Return what does not respond, and since when; empty if all is well."""
        reading = self.reader.reading
        late = self.reader.late()
        if not (reading.away or late):
            return ""
        since = ""
        waited = "has not responded yet"
        if reading.answered_s:
            since = time.strftime("%H:%M", time.localtime(reading.answered_s))
            waited = f"has not responded since {since}"
        if late:
            return f"{late} {waited}"
        away = " ".join(reading.away.split())
        if away.startswith("Slurm does not "):  # then its time belongs before the reason
            reason = away.partition(": ")[2]
            return f"Slurm {waited}; {reason}" if reason else f"Slurm {waited}"
        if since:
            return f"{away}; last answer at {since}"
        return away

    def action_open(self) -> None:
        """Open the page of a run; a group shows its runs."""
        row = self._row()
        if row is None:
            return
        if row.is_group:
            self.action_expand(row.key not in self._how.opened)
        elif row.run:
            # what it needs is imported when it is opened
            from hpcrun.features.top.run_page import RunPage

            self.app.push_screen(RunPage(self.reader, row.key))

    def action_log(self) -> None:
        """Open the log of rank 0.

        For a sweep, this is the log of the element that a person most likely wants.
        """
        row = self._row()
        if row is None or row.run is None:
            self.say("log: move to a run first")
            return
        if row.children:
            wanted = interesting_element(row.run.elements)
            rows = {child.element.index: child for child in row.children if child.element}
            row = rows[wanted]
        item = row.item()
        if item:
            # what it needs is imported when it is opened
            from hpcrun.features.top.log_page import LogPage

            self.app.push_screen(LogPage(self.reader, item, 0))

    def _row(self) -> TopRow | None:
        return self.row[0] if self.row else None

    def action_expand(self, opened: bool) -> None:
        """Show or hide the elements of a sweep, the runs of a group."""
        row = self._row()
        if row is None:
            return
        if not opened and row.key not in self._how.opened:
            rows = self.lines.lines
            here = self.lines.cursor or 0
            above = here
            depth = rows[here][1]
            while above > 0 and rows[above][1] >= depth > 0:
                above -= 1
            self.action_move(above - here)
            row = rows[above][0]
        if opened and row.children:
            keys = self._how.opened | {row.key}
        else:
            keys = self._how.opened - {row.key}
        self._how = replace(self._how, opened=keys)
        self._show_rows()

    def action_sort(self, sort: str) -> None:
        """Sort by a column, the second time the other way round."""
        reverse = sort == self._how.sort and not self._how.reverse
        self._how = replace(self._how, sort=sort, reverse=reverse)
        self._show_rows()

    def action_group(self) -> None:
        """Group by the next thing."""
        group = GROUPINGS[(GROUPINGS.index(self._how.group) + 1) % len(GROUPINGS)]
        self._how = replace(self._how, group=group)
        self._show_rows()
        self.say("not grouped" if group == "none" else f"grouped by {group}")

    def action_mark(self) -> None:
        """Mark the row for an action, and go to the next."""
        row = self._row()
        if row is None:
            return
        keys = {each.key for each in row.runs()}
        if keys <= self._marked:
            self._marked = self._marked - keys
        else:
            self._marked = self._marked | keys
        self._show_rows()
        self.action_move(1)

    def action_mark_all(self) -> None:
        """Mark all runs that are shown, or none."""
        keys = keys_to_mark(self.lines.lines)
        are_marked = keys <= self._marked
        self._marked = frozenset() if are_marked else frozenset(keys)
        self._show_rows()

    def action_act(self, verb: str) -> None:
        """Do something to the marked runs, or to the one with the cursor."""
        row = self._row()
        rows: list[TopRow] = []
        for run_row in self.reader.reading.rows:
            with_children = (run_row, *run_row.children)
            rows += [each for each in with_children if each.key in self._marked]
        if not rows and row:
            rows = row.runs()

        def unmark() -> None:
            self._marked = frozenset()
            self._show_rows()

        act(self, verb, rows, unmark)

    def action_done(self) -> None:
        """Show what was done so far."""
        show_done(self)

    def action_back(self) -> None:
        """Clear the filter, then the marks."""
        if self._how.words:
            self._how = replace(self._how, words="")
        else:
            self._marked = frozenset()
            self.message = Text()
        self._show_rows()

    def action_refresh(self) -> None:
        """Ask the scheduler now."""
        self.reader.refresh()
        self.say(_ASKING)

    # --- the filter ------------------------------------------------------------------------------

    def action_filter(self) -> None:
        """Type words; only rows with all of them are shown."""
        self.type_line(self._how.words, self._filter, lambda text: self._filter(text or ""))

    def _filter(self, words: str) -> None:
        self._how = replace(self._how, words=words)
        self._show_rows()


class _Terminal(LinuxDriver):
    """The terminal.

    Keys that come in one packet with bytes that are not UTF-8 are ignored: textual's reader fails.
    """

    def run_input_thread(self) -> None:
        """Read keys until the program ends."""
        while not self.exit_event.is_set():
            with suppress(UnicodeDecodeError):
                super().run_input_thread()


class TopApp(App[None]):
    """The program: it shows what a reader learns."""

    ENABLE_COMMAND_PALETTE = False
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("ctrl+c", "quit", "quit", show=False, priority=True),
        Binding(
            "ctrl+z",
            "suspend_process",
            "suspend",
            show=False,
            tooltip="go back to the shell; fg comes back",
        ),
    ]
    TITLE = "hpcrun top"

    def __init__(self, reader: Reader, words: str = "") -> None:
        super().__init__(driver_class=_Terminal, ansi_color=True)
        self.animation_level = "none"
        self._reader = reader
        self._runs = RunsScreen(reader, words)

    def on_mount(self) -> None:
        """Show the runs, and begin to read."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            loop.add_signal_handler(number, self.exit)
        self.push_screen(self._runs)
        self._reader.tell(self._post, self._show)
        self._runs.call_after_refresh(self._reader.go_on)

    def on_unmount(self) -> None:
        """End the reading with the screens."""
        self._reader.stop()

    async def on_event(self, event: events.Event) -> None:
        """Finish the work of each key before the next key is read.

        Textual sends a key through the widgets first: of keys that come in one packet, the second
        would be read before the first has opened a screen or a line to type.
        """
        if not isinstance(event, events.Key) or event.is_forwarded:
            await super().on_event(event)
            return
        screen = self.screen
        typed = self.focused
        active = screen.active_bindings.get(event.key)
        if isinstance(typed, TypedLine) and event.character and event.is_printable:
            typed.replace(event.character, *typed.selection)
        elif active and active.enabled:
            await self.run_action(active.binding.action, active.node)
        while self.screen is not screen and not self.screen.is_mounted and self.is_running:
            await asyncio.sleep(0.002)

    def action_view(self, name: str) -> None:
        """Show the runs, the user's other jobs, or the queue."""
        if self.screen is not self._runs:
            self.pop_screen()
        if name != "runs":
            from hpcrun.features.top.queue import SCREENS  # few look there

            self.push_screen(SCREENS[name](self._reader))

    def _post(self, call: Callable[..., Any], *args: Any) -> None:
        self.call_later(call, *args)

    def _show(self) -> None:
        if self._runs.is_running:
            self._runs.show_reading()
