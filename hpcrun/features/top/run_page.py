"""The page of one run in ``hpcrun top``."""

from __future__ import annotations

from typing import Any, ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType

from hpcrun.actions.status.run_status import RunStatus, element_of, interesting_element
from hpcrun.errors import HpcrunError
from hpcrun.features.top.log_page import LogPage
from hpcrun.features.top.pager import Pager, TextScreen, search_pattern
from hpcrun.features.top.reader import Reader
from hpcrun.features.top.run_page_text import title_text
from hpcrun.features.top.screen import TextLines, error_text
from hpcrun.features.top.sections import SECTIONS, MetricsSection, Section
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
        Binding("g,home", "start", "first line", show=False),
        Binding("G,end", "end", "last line", show=False),
    ]
    DEFAULT_CSS = "RunPage #heading { height: auto; } RunPage #why { height: 1; }"

    def __init__(self, reader: Reader, run_id: str) -> None:
        super().__init__(reader)
        self._run_id = run_id
        self._item: RunStatus | None = None
        self._gone = ""
        self._sections = [section(reader) for section in SECTIONS]
        self._number = 0
        self._heading: list[Text] = []
        self._now_s = reader.now_s()

    # --- what is on the screen

    def body(self) -> ComposeResult:
        """Yield the cause, the sections, and the lines of the chosen one."""
        yield TextLines(lambda _: self._why(), id="why")
        yield TextLines(lambda _: self._titles(), id="sections")
        yield TextLines(lambda y: self._heading[y] if y < len(self._heading) else "", id="heading")
        yield Pager(self._section.pages)

    def on_mount(self) -> None:
        """Begin to read."""
        self._tick()
        self.set_interval(TICK_S, self._tick)

    def title_line(self) -> Text:
        """Return the state, the name and the size of the run."""
        if self._item is None:
            return Text(one_line(self._run_id), "bold")
        return title_text(self._item, self.reader.now_s())

    def message_line(self) -> Text | str:
        """Return what is wrong, what is typed, or where the lines are."""
        section = self._section
        late = self.waits_s(self._section.title)
        if self.typed:
            problem = ""
        elif self._gone:
            problem = f"{self._gone}; shown is what was last read"
        elif late > LATE_S and self._item:
            problem = f"the file system has not responded for {int(late)} s: {self._item.folder}"
        else:
            problem = section.error
        if problem:
            return Text(one_line(problem), "bold")
        if self.typed or self._message:
            return super().message_line()
        share, parts = (
            section.pages.share(),
            [f"/{section.filter} (esc shows all)"] if section.filter else [],
        )
        parts += (
            [] if share == "all" else [f"{count(len(section.pages.lines), section.noun)}, {share}"]
        )
        return "   ".join(parts)

    def _why(self) -> str:
        if self._item:
            return one_line(why_text(self._item, self._now_s))
        return ""

    def _titles(self) -> Text:
        titles = (
            f"{number} {section.title}" for number, section in enumerate(self._sections, start=1)
        )
        chosen = self._number
        return Text.assemble(
            *(
                (f"[{title}]", "reverse") if number == chosen else f" {title} "
                for number, title in enumerate(titles)
            )
        )

    @property
    def _section(self) -> Section:
        return self._sections[self._number]

    # --- reading

    def _tick(self) -> None:
        """Take what is known of the run, and read the section again if it is time.

        Nothing happens while a log is shown.
        """
        if self.app.screen is not self:
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
            section.item, section.now_s = item, self._now_s
            section.width, section.height = self.size.width, max(5, self.size.height - _AROUND)
        heading = self.query_one("#heading", TextLines)
        self._heading = section.heading() if item else []
        heading.styles.height = len(self._heading)
        heading.display = bool(self._heading)
        lines: list[Any]
        if item is None:
            lines = [Text(self._gone or "...")]
        elif section.data is None:
            lines = [Text(section.error or "reading ...")]
        else:
            try:
                lines = list(section.lines())
            except Exception as error:
                # a record that is damaged in a new way is no reason to end the program
                lines = [Text(f"this is a bug in hpcrun: {type(error).__name__}: {error}")]
        pages = section.pages
        pages.show(lines)
        first = section.first_choice() if section.data else None
        if first is None:
            pages.cursor = None
        else:
            pages.choose(first if pages.cursor is None else pages.cursor)
        self.draw()

    def on_resize(self) -> None:
        """Lay the lines out for the new size."""
        self._show()

    # --- keys

    def action_section(self, number: int) -> None:
        """Show another section; the place in this one is kept for a return."""
        wraps = self._section.pages.wraps
        self._number = number
        self.pager.take(self._section.pages)
        self.pager.pages.wrap(wraps)
        self.pager.pages.mark = None
        self._search = ""
        self.say("")
        self._read()
        self._show()

    def action_turn(self, step: int) -> None:
        """Show the next section, or the one before."""
        self.action_section((self._number + step) % len(self._sections))

    def action_wrap(self) -> None:
        """Wrap long lines, or do not."""
        pages = self.pager.pages
        pages.wrap(not pages.wraps)
        self.say(
            "long lines are wrapped"
            if pages.wraps
            else "long lines go on to the right: → shows more"
        )
        self.draw()

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
        self._section.pages.to_start()
        self._show()

    def search(self) -> None:
        """Go to the first line with what is searched for, from the top of the screen on."""
        self.action_again(False, include_top=True)

    def action_again(self, up: bool, *, include_top: bool = False) -> None:
        """Go to the next line with what was searched for, or to the one before."""
        if not self._search:
            self.say("nothing is searched for: / begins a search")
            return
        section, pages = self._section, self._section.pages
        pattern, note = search_pattern(self._search)
        number = len(pages.lines)
        begin = pages.top if pages.mark is None else pages.mark
        begin += 0 if include_top else -1 if up else 1
        places = [(begin + (-far if up else far)) % number for far in range(number)]
        match = next(
            (place for place in places if pattern.is_in(section.draw(pages.lines[place]).plain)),
            None,
        )
        if match is None:
            self.say(f"/{self._search}: {note}no match")
            return
        pages.mark = match
        pages.reveal(match)
        turned = match > begin if up else match < begin
        note += f"from the {'end' if up else 'top'} again, " if turned else ""
        self.say(f"/{self._search}: {note}line {match + 1} of {number}; n next, N before")
        self.draw()

    def action_open_log(self) -> None:
        """Follow the log of the rank with the cursor; in other sections that of rank 0."""
        cursor = self._section.pages.cursor
        self._open_log(
            *(
                self._section.log_at(cursor)
                if self._section.data and cursor is not None
                else (0, None)
            )
        )

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
