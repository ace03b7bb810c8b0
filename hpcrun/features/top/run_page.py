"""The page of one run in ``hpcrun top``."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import zip_longest
from typing import Any, ClassVar

from rich.text import Text
from textual.binding import Binding, BindingType
from textual.widget import Widget
from textual.widgets import ContentSwitcher

from hpcrun.actions.status.run_status import RunStatus, element_of, interesting_element
from hpcrun.errors import HpcrunError
from hpcrun.features.top.lines import TextRow
from hpcrun.features.top.log_page import LogPage
from hpcrun.features.top.reader import Reader
from hpcrun.features.top.run_page_text import title_text
from hpcrun.features.top.screen import ALL_LINES, error_text
from hpcrun.features.top.sections import SECTIONS, MetricsSection, Section
from hpcrun.features.top.text_screen import AROUND, TextScreen, search_pattern, turned_text
from hpcrun.views.status_table import why_text
from hpcrun.views.text import count, one_line

TICK_S = 1.0
LATE_S = 3.0  # after this time the page says that the file system does not respond
_AROUND = 5  # lines above and below those of a section


class RunPage(TextScreen):
    """The screen that shows one run, or one element of a sweep, ``RUN_ID/3``.

    Number keys choose the section.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding(
            "enter",
            "open_log",
            "log",
            tooltip="follow the log of the rank, or of the attempt, with the cursor",
        ),
        Binding(
            "slash",
            "search",
            "search",
            tooltip="of ranks: show only those with these words; else search",
        ),
        Binding("escape", "back", "back", tooltip="clear the filter, then go back to the runs"),
        Binding("m", "metric(1)", "next metric", show=False),
        Binding("M", "metric(-1)", "metric before", show=False),
        Binding("n", "again(False)", "next match", show=False),
        Binding("N", "again(True)", "match before", show=False),
        Binding("b", "open_batch_log", "batch log", tooltip="follow the log of the batch script"),
        Binding("tab", "turn(1)", "section", tooltip="next section; 1 to 7 choose one"),
        Binding("w", "wrap", "wrap long lines", show=False),
        Binding("R,ctrl+r", "refresh", "read again", show=False),
        *(
            Binding(str(number + 1), f"section({number})", section.title, show=False)
            for number, section in enumerate(SECTIONS)
        ),
        Binding("shift+tab", "turn(-1)", "section before", show=False),
        Binding("g,home", f"move(-{ALL_LINES})", "first line", show=False),
        Binding("G,end", f"move({ALL_LINES})", "last line", show=False),
    ]
    DEFAULT_CSS = "RunPage ContentSwitcher { height: 1fr; }"

    def __init__(self, reader: Reader, run_id: str) -> None:
        self._sections = [section(reader) for section in SECTIONS]
        super().__init__(reader, self._sections[0].shown)
        self._run_id = run_id
        self._item: RunStatus | None = None
        self._gone = ""
        self._number = 0
        self._now_s = reader.now_s()
        self._why_row = TextRow(id="why")
        self._sections_row = TextRow(id="sections")
        self._heading_rows = (TextRow(), TextRow())
        self._switcher = ContentSwitcher(
            *(section.shown for section in self._sections), initial=SECTIONS[0].title
        )

    # --- what is on the screen

    def body(self) -> Iterable[Widget]:
        """Return the cause, the sections, and the lines of the chosen one."""
        return [self._why_row, self._sections_row, *self._heading_rows, self._switcher]

    def on_mount(self) -> None:
        """Begin to read."""
        self._tick()
        self.set_interval(TICK_S, self._tick)

    def title_line(self) -> Text:
        """Return the state, the name and the size of the run."""
        if self._item is None:
            return Text(one_line(self._run_id), "bold")
        return title_text(self._item, self.reader.now_s())

    def message_line(self) -> Text:
        """Return what is wrong, what was done, or where the lines are."""
        problem = self._problem()
        if problem:
            return Text(one_line(problem), "bold")
        if self.message:
            return self.message
        section = self._section
        parts = []
        if section.filter:
            parts.append(f"/{section.filter} (esc shows all)")
        share = self.lines.share()
        if share != "all":
            parts.append(f"{count(len(self.lines.lines), section.noun)}, {share}")
        return Text("   ".join(parts))

    def _problem(self) -> str:
        late = self.waits_s(self._section.title)
        if self._gone:
            return f"{self._gone}; shown is what was last read"
        if late > LATE_S and self._item:
            return f"the file system has not responded for {int(late)} s: {self._item.folder}"
        return self._section.error

    def _titles(self) -> Text:
        titles = Text()
        for number, section in enumerate(self._sections, start=1):
            title = f"{number} {section.title}"
            if section is self._section:
                titles.append(f"[{title}]", "reverse")
            else:
                titles.append(f" {title} ")
        return titles

    @property
    def _section(self) -> Section:
        return self._sections[self._number]

    # --- reading

    def _tick(self) -> None:
        """Take what is known of the run, and read the section again if it is time.

        Nothing happens while a log is shown.
        """
        if not self.is_active:
            return
        self._now_s = self.reader.now_s()
        try:
            self._item, self._gone = _one(self.reader.run_status(self._run_id)), ""
        except HpcrunError as error:
            self._gone = error.message
        self._read()
        self._show()

    def _read(self) -> None:
        item = self._item
        section = self._section
        began_s = self._now_s
        if item is None or self._gone or not section.is_due(item, began_s):
            return

        def ended(data: Any = None, error: str = "") -> None:
            section.end(item, began_s, self.reader.now_s(), data, error)
            if section is self._section:
                self._show()

        self.call(
            section.title,
            lambda: section.read(item),
            ended,
            lambda error: ended(error=error_text(error)),
        )

    def _show(self) -> None:
        """Draw what is known now; only what has changed reaches the terminal."""
        self._now_s = self.reader.now_s()
        item = self._item
        section = self._section
        if item is not None:
            section.item = item
            section.now_s = self._now_s
            section.width = self.size.width
            section.height = max(5, self.size.height - _AROUND)
        self.lines.chooses = section.chooses and bool(section.data)
        self.lines.show(self._section_lines())
        first = section.first_choice()
        if self.lines.chooses and self.lines.cursor is None and first is not None:
            self.lines.choose(first)
        self._sections_row.text = self._titles()
        heading: list[Text] = []
        if item is not None:
            self._why_row.text = Text(one_line(why_text(item, self._now_s)))
            heading = section.heading()
        for row, text in zip_longest(self._heading_rows, heading):
            row.display = text is not None
            row.text = text or Text()
        self.draw_rows()

    def _section_lines(self) -> list[Any]:
        section = self._section
        if self._item is None:
            return [Text(self._gone or "...")]
        if section.data is None:
            return [Text(section.error or "reading ...")]
        try:
            return list(section.lines())
        except Exception as error:
            # a record that is damaged in a new way is no reason to end the program
            return [Text(f"this is a bug in hpcrun: {type(error).__name__}: {error}")]

    def on_resize(self) -> None:
        """Lay the lines out for the new size."""
        self._show()

    # --- keys

    def action_section(self, number: int) -> None:
        """Show another section; the place in this one is kept for a return."""
        wraps = self.lines.wraps
        self._number = number
        self.lines = self._section.shown
        self._switcher.current = self._section.title
        self.lines.wrap(wraps)
        if not self._section.chooses:
            self.lines.cursor = None
        self.search_words = ""
        self.message = Text()
        self._read()
        self._show()
        self.call_after_refresh(self.draw_rows)  # then it is known how many lines have room

    def action_turn(self, step: int) -> None:
        """Show the next section, or the one before."""
        self.action_section((self._number + step) % len(self._sections))

    def action_wrap(self) -> None:
        """Wrap long lines, or do not."""
        self.lines.wrap(not self.lines.wraps)
        if self.lines.wraps:
            self.say("long lines are wrapped")
        else:
            self.say("long lines go on to the right: → shows more")

    def action_metric(self, step: int) -> None:
        """Show the curve of the next metric."""
        if isinstance(self._section, MetricsSection):
            self._section.chosen += step
            self._show()

    def action_refresh(self) -> None:
        """Read the section again."""
        self._section.again()
        self._tick()

    def action_back(self) -> None:
        """Clear the filter, then go back to the runs."""
        if self._section.filter:
            self._filter("")
        else:
            self.app.pop_screen()

    def action_search(self) -> None:
        """Filter the ranks, or search in the lines."""
        if self._section.filter is None:
            super().action_search()
        else:
            self.type_line(
                self._section.filter, self._filter, lambda words: self._filter(words or "")
            )

    def _filter(self, words: str) -> None:
        self._section.filter = words
        self.action_move(-ALL_LINES)
        self._show()

    def search(self) -> None:
        """Go to the first line with what is searched for, from the top of the screen on."""
        self.action_again(False, include_top=True)

    def action_again(self, up: bool, *, include_top: bool = False) -> None:
        """Go to the next line with what was searched for, or to the one before."""
        if not self.search_words:
            self.say("nothing is searched for: / begins a search")
            return
        shown = self.lines
        pattern, note = search_pattern(self.search_words)
        number = len(shown.lines)
        begin = shown.top if shown.cursor is None else shown.cursor
        step = -1 if up else 1
        if not include_top:
            begin += step
        places = [(begin + step * far) % number for far in range(number)]
        draw = self._section.draw
        matches = (place for place in places if pattern.is_in(draw(shown.lines[place]).plain))
        match = next(matches, None)
        if match is None:
            self.say(f"/{self.search_words}: {note}no match")
            return
        shown.choose(match, around=AROUND)
        if match > begin if up else match < begin:
            note += turned_text(up)
        self.say(f"/{self.search_words}: {note}line {match + 1} of {number}; n next, N before")

    def action_open_log(self) -> None:
        """Follow the log of the rank with the cursor; in other sections that of rank 0."""
        if self.lines.chooses:
            self._open_log(*self._section.log_at(self.lines.chosen or 0))
        else:
            self._open_log(0)

    def action_open_batch_log(self) -> None:
        """Follow the log of the batch script."""
        self._open_log(None)

    def _open_log(self, rank: int | None, attempt: int | None = None) -> None:
        if self._item is not None:
            self.app.push_screen(LogPage(self.reader, self._item, rank, attempt))


def _one(item: RunStatus) -> RunStatus:
    """Return the run, or of a sweep the element that a person most likely wants to see."""
    if item.elements:
        return element_of(item, interesting_element(item.elements))
    return item
