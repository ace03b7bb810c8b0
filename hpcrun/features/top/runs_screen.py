"""The first screen of ``hpcrun top``: all runs, live."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import ClassVar

from rich.style import Style
from textual.app import ComposeResult
from textual.binding import Binding, BindingType

from hpcrun.actions.status.elements import interesting_element
from hpcrun.errors import HpcrunError
from hpcrun.explain.first_line import explained_status, lacks_line
from hpcrun.features.top.acting import act, show_done
from hpcrun.features.top.reader import Reader
from hpcrun.features.top.rows import GROUPINGS, SORTS, Arrangement, TopRow, arranged, cells, column_widths, keys_to_mark
from hpcrun.features.top.screen import BOLD, PLAIN, REVERSED, Piece, TextLines, TopScreen, cut
from hpcrun.features.top.table import VirtualTable
from hpcrun.job import state
from hpcrun.runs.record import LastStatus
from hpcrun.views.status import COLOURS
from hpcrun.views.text import count

_ORDER = ("RUNNING", "PENDING", "FAILED")
_NAMES = {"TIMEOUT": "timed out"}
_COLOURS = {name: Style(color=colour) for name, colour in COLOURS.items()}
WORDS_EVERY_S = 10.0
"""How often the last lines of the runs on the screen are read."""
_ASKING = "asking ..."
_CAUSES_AT_ONCE = 8
"""How many elements one thread explains, for which it reads their logs."""
_RED = Style(color="red")


def states_text(states: Sequence[str], room: int) -> str:
    """Return ``12 runs: 2 running, 1 timed out, 3 others``: as many states as there is room for, at least the first."""
    numbers = Counter(states)
    order = [*(name for name in _ORDER if numbers[name]), *(name for name, _ in numbers.most_common())]
    said = [f"{numbers[name]} {_NAMES.get(name, name.lower().replace('_', ' '))}" for name in dict.fromkeys(order)]
    runs = count(len(states), "run")
    for named in range(len(said), 0, -1):
        others = len(states) - sum(numbers[name] for name in list(dict.fromkeys(order))[:named])
        text = f"{runs}: {', '.join([*said[:named], *([count(others, 'other')] if others else [])])}"
        if len(text) <= room or named == 1:
            return text
    return runs


def words_of(rows: Mapping[str, TopRow]) -> dict[str, str]:
    """Return what each of some runs wrote last."""
    from hpcrun.views.insight import last_words  # what it needs is imported behind the first frame

    found = {}
    for key, row in rows.items():
        if item := row.item():
            with suppress(OSError, HpcrunError):
                found[key] = last_words(item)
    return found


class RunsScreen(TopScreen):
    """The table of all runs.

    Args:
        reader: learns what is shown.
        words: the filter to begin with.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "open", "open", tooltip="open the page of a run; show the runs of a study"),
        Binding("l", "log", "log", tooltip="follow the log of rank 0"),
        Binding("slash", "filter", "filter", tooltip="show only rows with these words, without those behind a !"),
        Binding("space", "mark", "mark", tooltip="mark the row, or not"),
        Binding("c", "act('cancel')", "cancel", tooltip="cancel the marked runs, or the one with the cursor"),
        Binding("r", "act('resubmit')", "resubmit", tooltip="resubmit them"),
        Binding("H", "act('hold')", "hold", show=False, tooltip="hold them: they stay pending"),
        Binding("U", "act('release')", "release", show=False, tooltip="release them (unhold)"),
        Binding("m", "done", "messages", show=False, tooltip="what was done, and what the commands printed"),
        Binding("2", "app.view('jobs')", "other jobs", tooltip="your jobs that hpcrun did not submit"),
        Binding("3", "app.view('queue')", "queue", tooltip="the queue by partition"),
        Binding("right,plus", "expand(True)", "expand", show=False, tooltip="show the elements of a sweep"),
        Binding("left,minus", "expand(False)", "collapse", show=False, tooltip="hide them"),
        Binding("asterisk", "mark_all", "mark all", show=False, tooltip="mark all rows that are shown, or none"),
        Binding("escape", "back", "back", show=False, tooltip="clear the filter; again: the marks"),
        Binding("b", "group", "group", show=False, tooltip="group by study, by name, by state, or not"),
        Binding("A", "sort('age')", "by age", show=False, tooltip="sort by age; again, as with the next: reversed"),
        Binding("N", "sort('name')", "by name", show=False, tooltip="sort by name"),
        Binding("S", "sort('state')", "by state", show=False, tooltip="sort by state"),
        Binding("J", "sort('job')", "by job id", show=False, tooltip="sort by job id"),
        Binding("E", "sort('elapsed')", "by time", show=False, tooltip="sort by elapsed time"),
        Binding("R,ctrl+r", "refresh", "refresh", show=False, tooltip="ask Slurm now"),
    ]

    def __init__(self, reader: Reader, words: str = "") -> None:
        super().__init__()
        self._reader = reader
        self._how = Arrangement(words)
        self._rows: list[tuple[TopRow, int]] = []
        self._marked: frozenset[str] = frozenset()
        self._now_s = reader.now_s()
        self._words: Mapping[str, str] = {}
        self._words_of: frozenset[str] = frozenset()
        self._words_asked, self._words_asked_for = float("-inf"), False
        self._causes: dict[str, LastStatus] = {}
        self._causes_asked_for = False

    def body(self) -> ComposeResult:
        """Yield the table."""
        yield VirtualTable(self._cells, lambda width: column_widths(self._rows, width), id="runs")

    @property
    def table(self) -> VirtualTable:
        """The table."""
        return self.query_one("#runs", VirtualTable)

    def on_mount(self) -> None:
        """Let the keys of the table work at once."""
        self.table.focus()
        self.show_reading()

    def show_reading(self) -> None:
        """Show what the reader knows now."""
        self._now_s = self._reader.now_s()
        if self._message[0] == _ASKING:
            self._message = ("", PLAIN)
        self._show_rows()

    def look(self) -> None:
        """Show whether an answer is late; read what the runs on the screen wrote last."""
        self.query_one("#title", TextLines).update()
        now = time.monotonic()
        rows = [self._rows[number][0] for number in self.table.visible_rows]
        self._learn_causes(rows)
        running = {row.key: row for row in rows if row.state == state.RUNNING and not row.children}
        is_due = now - self._words_asked >= WORDS_EVERY_S or not self._words_of >= running.keys()
        if running and is_due and not self._words_asked_for:
            self._words_asked, self._words_asked_for = now, True
            self._words_of = frozenset(running)
            self._reader.in_background(lambda: words_of(running), self._show_words, lambda _: self._show_words({}))

    def _learn_causes(self, rows: Iterable[TopRow]) -> None:
        """Work out why the elements on the screen failed, a few at a time; the reader does so for whole runs."""
        items = ((row.key, row.item()) for row in rows if row.element and row.key not in self._causes)
        wanted = {key: item for key, item in items if item and lacks_line(item)}
        some = dict(list(wanted.items())[:_CAUSES_AT_ONCE])
        if not some or self._causes_asked_for:
            return
        self._causes_asked_for = True

        def done(causes: Mapping[str, LastStatus]) -> None:
            self._causes_asked_for = False
            self._causes |= causes
            if self.is_open:
                self.table.update()

        def failed(_: object) -> None:  # broken rules: explain says so
            done({key: item.status for key, item in some.items()})

        self._reader.in_background(
            lambda: {key: explained_status(item, self._reader.rules()) for key, item in some.items()}, done, failed
        )

    def _show_words(self, words: Mapping[str, str]) -> None:
        self._words_asked_for = False
        self._words = words
        if self.is_open:
            self.table.update()

    def _show_rows(self) -> None:
        reading = self._reader.reading
        self._rows = arranged(reading.rows, self._how, reading.studies)
        keys = [row.key for row, _ in self._rows]
        self.table.show(keys, self._marked)
        self.draw()

    def _cells(self, number: int) -> tuple[Mapping[str, str], Mapping[str, Style]]:
        row, depth = self._rows[number]
        is_open = number + 1 < len(self._rows) and self._rows[number + 1][1] > depth
        words = self._words.get(row.key, "")
        known, now = self._causes.get(row.key), row.status
        if row.element and known and now and (known.state, known.attempt) == (now.state, now.attempt):
            row = replace(row, element=replace(row.element, status=replace(now, cause=known.cause)))
        texts = cells(row, depth, self._now_s, is_open=is_open, words=words)
        status = row.status
        return texts, {"state": _COLOURS.get(row.state, _RED if status is None or status.final else PLAIN)}

    def title_line(self, width: int) -> Iterable[Piece]:
        """Return how many runs there are, and how they are sorted."""
        reading = self._reader.reading
        if trouble := self._trouble():
            return (("hpcrun top  ", BOLD), (cut(trouble, max(0, width - 12)), BOLD + REVERSED))
        # what a person has just done comes first: the end is cut where there is no room
        first = [*([f"{len(self._marked)} marked"] if self._marked else []),
                 *([f"filter: {self._how.words}"] if self._how.words else [])]  # fmt: skip
        sort = [SORTS[self._how.sort][1] + (", reversed" if self._how.reverse else "")]
        room = max(0, width - 12 - len("; ".join([*first, "", *sort])))
        title = "; ".join([*first, states_text([row.state for row in reading.rows], room), *sort])
        return (("hpcrun top  ", BOLD), (cut(title, max(0, width - 12)), PLAIN))

    def _trouble(self) -> str:
        """Return what does not respond, and since when; empty if all is well."""
        reading, late = self._reader.reading, self._reader.late()
        if not (reading.away or late):
            return ""
        since = time.strftime("%H:%M", time.localtime(reading.answered_s)) if reading.answered_s else ""
        waited = f"has not responded {f'since {since}' if since else 'yet'}"
        if late:
            return f"{late} {waited}"
        away = " ".join(reading.away.split())
        if away.startswith("Slurm does not "):  # then its time belongs before the reason
            return "; ".join(filter(None, (f"Slurm {waited}", away.partition(": ")[2])))
        return f"{away}; last answer at {since}" if since else away

    def action_open(self) -> None:
        """Open the page of a run; a group shows its runs."""
        row = self._row()
        if row is None:
            return
        if row.is_group:
            self.action_expand(row.key not in self._how.opened)
        elif row.run:
            from hpcrun.features.top.run_page import RunPage  # what it needs is imported when it is opened

            self.app.push_screen(RunPage(self._reader, row.key))

    def action_log(self) -> None:
        """Open the log of rank 0; of a sweep that of the element that a person most likely wants."""
        row = self._row()
        if row is None or row.run is None:
            self.say("log: move to a run first")
            return
        if row.children:
            wanted = interesting_element(row.run.elements)
            row = next(child for child in row.children if child.element and child.element.index == wanted)
        if item := row.item():
            from hpcrun.features.top.log_page import LogPage  # what it needs is imported when it is opened

            self.app.push_screen(LogPage(self._reader, item, 0))

    def _row(self) -> TopRow | None:
        return self._rows[self.table.cursor][0] if self._rows else None

    def action_expand(self, opened: bool) -> None:
        """Show or hide the elements of a sweep, the runs of a group."""
        row = self._row()
        if row is None:
            return
        if not opened and row.key not in self._how.opened:
            depth, above = self._rows[self.table.cursor][1], self.table.cursor
            while above > 0 and self._rows[above][1] >= depth > 0:
                above -= 1
            self.table.action_move(above - self.table.cursor)
            row = self._rows[above][0]
        keys = self._how.opened | {row.key} if opened and row.children else self._how.opened - {row.key}
        self._how = replace(self._how, opened=keys)
        self._show_rows()

    def action_sort(self, sort: str) -> None:
        """Sort by a column, the second time the other way round."""
        self._how = replace(self._how, sort=sort, reverse=not self._how.reverse if sort == self._how.sort else False)
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
        self._marked = self._marked - keys if keys <= self._marked else self._marked | keys
        self._show_rows()
        self.table.action_move(1)

    def action_mark_all(self) -> None:
        """Mark all runs that are shown, or none."""
        keys = keys_to_mark(self._rows)
        self._marked = frozenset() if keys <= self._marked else frozenset(keys)
        self._show_rows()

    def action_act(self, verb: str) -> None:
        """Do something to the marked runs, or to the one with the cursor."""
        row = self._row()
        rows = self._marked_rows() or (row.runs() if row else [])
        act(self, self._reader, verb, rows, self._unmark)

    def _marked_rows(self) -> list[TopRow]:
        rows = (each for row in self._reader.reading.rows for each in (row, *row.children))
        return [row for row in rows if row.key in self._marked] if self._marked else []

    def _unmark(self) -> None:
        self._marked = frozenset()
        self._show_rows()

    def action_done(self) -> None:
        """Show what was done so far."""
        show_done(self, self._reader.done)

    def action_back(self) -> None:
        """Clear the filter, then the marks."""
        if self._how.words:
            self._how = replace(self._how, words="")
        else:
            self._marked, self._message = frozenset(), ("", PLAIN)
        self._show_rows()

    def action_refresh(self) -> None:
        """Ask the scheduler now."""
        self._reader.refresh()
        self.say(_ASKING)

    # --- the filter ---------------------------------------------------------------------------------------------

    def action_filter(self) -> None:
        """Type words; only rows with all of them are shown."""
        self.type_line(self._how.words, self._filter, lambda text: self._filter(text or ""))

    def _filter(self, words: str) -> None:
        self._how = replace(self._how, words=words)
        self._show_rows()
