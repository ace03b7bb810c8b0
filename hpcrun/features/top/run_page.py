"""The page of one run in ``hpcrun top``."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import replace
from typing import Any, ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType

from hpcrun.actions.runs.ranks import RankRow
from hpcrun.actions.status.elements import interesting_element
from hpcrun.actions.status.run_status import RunStatus, element_row
from hpcrun.errors import HpcrunError
from hpcrun.explain.first_line import explained_status, lacks_line
from hpcrun.features.top.pager import Pager, PagerScreen, Row, pieces_of, search_pattern, sliced
from hpcrun.features.top.run_page_text import attempt_of, title_text
from hpcrun.features.top.screen import BOLD, PLAIN, REVERSED, Piece, TextLines, cut, error_text
from hpcrun.features.top.sections import (
    SECTIONS,
    AttemptsSection,
    MetricsSection,
    PageReader,
    RanksSection,
    Section,
    Surface,
)
from hpcrun.views.status import why_text
from hpcrun.views.text import count, one_line

TICK_S = 1.0
LATE_S = 3.0
"""After this time the page says that the file system does not respond."""
_AROUND = 5
"""Lines above and below those of a section."""
_NUMBERS = range(1, len(SECTIONS) + 1)


class RunPage(PagerScreen):
    """Shows one run, or one element of a sweep, in sections that number keys choose.

    Args:
        reader: reads what is shown, in threads of its own.
        run_id: of the run; ``RUN_ID/3`` is an element of a sweep.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "open_log", "log", tooltip="follow the log of the rank, or of the attempt, with the cursor"),
        Binding("slash", "search", "search", tooltip="of ranks: show only those with these words; else search"),
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
            Binding(str(number), f"section({number - 1})", SECTIONS[number - 1].title, show=False)
            for number in _NUMBERS
        ),
        Binding("shift+tab", "turn(-1)", "section before", show=False),
        Binding("g,home", "start", "first line", show=False),
        Binding("G,end", "end", "last line", show=False),
    ]
    DEFAULT_CSS = "RunPage #heading { height: auto; } RunPage #why { height: 1; }"

    def __init__(self, reader: PageReader, run_id: str) -> None:
        super().__init__()
        self._reader = reader
        self._run_id = run_id
        self._item: RunStatus | None = None
        self._gone = ""
        self._cause: str | None = None
        self._sections = [section(reader) for section in SECTIONS]
        self._number = 0
        self._lines: list[Any] = []
        self._heading: list[Row] = []
        self._now_s = reader.now_s()
        self._places: dict[int, tuple[int, int, int, int | None]] = {}

    # --- what is on the screen

    def body(self) -> ComposeResult:
        """Yield the cause, the sections, and the lines of the chosen one."""
        yield TextLines(lambda _, width: self._why(width), id="why")
        yield TextLines(lambda _, width: self._titles(width), id="sections")
        yield TextLines(lambda y, _: self._heading[y] if y < len(self._heading) else (), id="heading")
        yield Pager[Any](self._draw, id="body")

    def on_mount(self) -> None:
        """Begin to read."""
        self._tick()
        self.set_interval(TICK_S, self._tick)

    def title_line(self, width: int) -> Iterable[Piece]:
        """Return the state, the name and the size of the run."""
        if self._item is None:
            return ((cut(one_line(self._run_id), width), BOLD),)
        return sliced(pieces_of(title_text(self._item, self._reader.now_s())), 0, width)

    def message_line(self, width: int) -> Iterable[Piece]:
        """Return what is wrong, what is typed, or where the lines are."""
        if self.typed:
            return super().message_line(width)
        section, now_s = self._section, self._reader.now_s()
        late = now_s - section.reads_since if section.reads_since is not None else 0.0
        if self._gone:
            said = f"{self._gone}; shown is what was last read"
        elif late > LATE_S and self._item:
            said = f"the file system has not responded for {int(late)} s: {self._item.folder}"
        elif section.error:
            said = section.error
        else:
            return super().message_line(width) if self._message[0] else ((self._place(width), PLAIN),)
        return ((cut(one_line(said), width), BOLD),)

    def _place(self, width: int) -> str:
        section = self._section
        share = self._pager.pages.share()
        what = "rank" if isinstance(section, RanksSection) else "line"
        said = [] if share == "all" else [f"{count(len(self._lines), what)}, {share}"]
        if isinstance(section, RanksSection) and section.filter:
            said.insert(0, f"/{section.filter} (esc shows all)")
        return cut("   ".join(said), width)

    def _why(self, width: int) -> Iterable[Piece]:
        if self._item is None:
            return ()
        item = self._item
        if self._cause and lacks_line(item):
            item = replace(item, status=replace(item.status, cause=self._cause))
        return ((cut(one_line(why_text(item, self._now_s)), width), PLAIN),)

    def _titles(self, width: int) -> Iterable[Piece]:
        row: Row = []
        for number, section in enumerate(self._sections):
            title = f"{number + 1} {section.title}"
            row.append((f"[{title}]", REVERSED) if number == self._number else (f" {title} ", PLAIN))
        return sliced(row, 0, width)

    def _draw(self, line: Any) -> Row:
        return pieces_of(self._section.draw(line))

    @property
    def _section(self) -> Section:
        return self._sections[self._number]

    # --- reading

    def _tick(self) -> None:
        """Take what is known of the run, and read the section again if it is time; nothing while a log is shown."""
        if self.app.screen is not self:
            return
        self._now_s = self._reader.now_s()
        try:
            self._item, self._gone = _one(self._reader.run_status(self._run_id)), ""
        except HpcrunError as error:
            self._gone = error.message
        self._learn_cause()
        self._read()
        self._show()

    def _learn_cause(self) -> None:
        """Work out the first line of explain for an element: status does so only for whole runs."""
        item = self._item
        if item is None or item.element is None or not lacks_line(item) or self._cause is not None:
            return
        self._cause = ""

        def done(line: str) -> None:
            self._cause = line

        self._reader.in_background(lambda: explained_status(item, self._reader.rules()).cause, done, lambda _: None)

    def _read(self) -> None:
        item, section = self._item, self._section
        if item is None or self._gone or not section.is_due(item, self._now_s):
            return
        if isinstance(section, RanksSection):
            pages = self._pager.pages
            on_screen = self._lines[pages.top : pages.top + pages.height]
            section.shown = [row.rank for row in on_screen if isinstance(row, RankRow)]
        section.begin(item, self._now_s)

        def read() -> Any:
            try:
                return section.read(item)
            except FileNotFoundError as error:
                name = os.path.basename(str(error.filename))
                raise HpcrunError(f"{name} does not exist: the run was removed, or has not written it") from None

        def done(data: Any) -> None:
            section.end(self._reader.now_s(), data)
            self._after_reading(section)

        def failed(error: HpcrunError | OSError) -> None:
            section.end(self._reader.now_s(), error=error_text(error))
            self._after_reading(section)

        self._reader.in_background(read, done, failed)

    def _after_reading(self, section: object) -> None:
        if self.is_open and section is self._section:
            self._show()

    def _show(self) -> None:
        """Draw what is known now; only what has changed reaches the terminal."""
        self._now_s = self._reader.now_s()
        pager, item, section = self._pager, self._item, self._section
        if item is not None:
            section.frame = Surface(item, self._now_s, self.size.width, max(5, self.size.height - _AROUND))
        heading = self.query_one("#heading", TextLines)
        head = section.heading() if item else []
        self._heading = [sliced(pieces_of(text), 0, self.size.width) for text in head]
        rows = len(head)
        heading.styles.height = rows
        heading.display = rows > 0
        if item is None:
            self._lines = [Text(self._gone or "...")]
        elif section.data is None:
            self._lines = [Text(section.error or "reading ...")]
        else:
            try:
                self._lines = list(section.lines())
            except Exception as error:  # a record that is damaged in a new way is no reason to end the program
                self._lines = [Text(f"this is a bug in hpcrun: {type(error).__name__}: {error}")]
        pager.pages.show(self._lines)
        if isinstance(section, RanksSection) and section.data:
            pager.pages.choose(pager.pages.cursor or 0)
        elif isinstance(section, AttemptsSection) and section.data:
            newest = max((n for n, line in enumerate(self._lines) if attempt_of(line) is not None), default=0)
            pager.pages.choose(newest if pager.pages.cursor is None else pager.pages.cursor)
        else:
            pager.pages.cursor = None
        self.draw()

    def on_resize(self) -> None:
        """Lay the lines out for the new size."""
        self._show()

    # --- keys

    def action_section(self, number: int) -> None:
        """Show another section; the place in this one is kept for a return."""
        pages = self._pager.pages
        self._places[self._number] = (pages.top, pages.part, pages.left, pages.cursor)
        self._number = number
        pages.lines = ()
        pages.top, pages.part, pages.left, pages.cursor = self._places.get(number, (0, 0, 0, None))
        pages.mark = None
        self._search = ""
        self.say("")
        self._read()
        self._show()

    def action_turn(self, step: int) -> None:
        """Show the next section, or the one before."""
        self.action_section((self._number + step) % len(self._sections))

    def action_start(self) -> None:
        """Move to the first line."""
        self._pager.pages.to_start()
        self.moved()

    def action_end(self) -> None:
        """Move to the last line."""
        self._pager.pages.to_end()
        self.moved()

    def action_sideways(self, columns: int) -> None:
        """Move to the right or to the left."""
        self._pager.pages.sideways(columns)
        self.moved()

    def action_wrap(self) -> None:
        """Wrap long lines, or do not."""
        pages = self._pager.pages
        pages.wraps, pages.left = not pages.wraps, 0
        self.say("long lines are wrapped" if pages.wraps else "long lines go on to the right: → shows more")
        self.moved()

    def moved(self, *, up: bool = False) -> None:  # noqa: ARG002 - all lines are there already
        """Draw the lines, and where they are."""
        self._pager.update()
        self.query_one("#message", TextLines).update()

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
        if isinstance(self._section, RanksSection) and self._section.filter:
            self._filter("")
        else:
            self.app.pop_screen()

    def action_search(self) -> None:
        """Filter the ranks, or search in the lines."""
        if isinstance(self._section, RanksSection):
            self.type_line(self._section.filter, self._filter, lambda words: self._filter(words or ""))
        else:
            super().action_search()

    def _filter(self, words: str) -> None:
        if isinstance(self._section, RanksSection):
            self._section.filter = words
            self._pager.pages.to_start()
            self._show()

    def search(self) -> None:
        """Go to the first line with what is searched for, from the top of the screen on."""
        self.action_again(False, include_top=True)

    def action_again(self, up: bool, *, include_top: bool = False) -> None:
        """Go to the next line with what was searched for, or to the one before."""
        if not self._search:
            self.say("nothing is searched for: / begins a search")
            return
        pages = self._pager.pages
        pattern, note = search_pattern(self._search)
        begin = pages.top if pages.mark is None else pages.mark
        step = -1 if up else 1
        number = len(self._lines)
        places = [(begin + step * (far + (not include_top))) % number for far in range(number)]
        texts = ((place, self._section.draw(self._lines[place]).plain) for place in places)
        found = next((place for place, text in texts if pattern.is_in(text)), None)
        if found is None:
            self.say(f"/{self._search}: {note}no match")
            return
        pages.mark = found
        pages.reveal(found)
        turned = found < begin + (not include_top) if not up else found >= begin
        note += f"from the {'end' if up else 'top'} again, " if turned else ""
        self.say(f"/{self._search}: {note}line {found + 1} of {number}; n next, N before")
        self.moved()

    def action_open_log(self) -> None:
        """Follow the log of the rank with the cursor; in other sections that of rank 0."""
        rank, attempt = 0, None
        cursor = self._pager.pages.cursor
        if isinstance(self._section, RanksSection) and cursor is not None and cursor < len(self._lines):
            row = self._lines[cursor]
            rank = row.rank if isinstance(row, RankRow) else 0
        elif isinstance(self._section, AttemptsSection) and self._section.data and cursor is not None:
            attempt = self._section.attempt_at(cursor)
        self._open_log(rank, attempt)

    def action_open_batch_log(self) -> None:
        """Follow the log of the batch script."""
        self._open_log(None)

    def _open_log(self, rank: int | None, attempt: int | None = None) -> None:
        from hpcrun.features.top.log_page import LogPage

        if self._item is not None:
            self.app.push_screen(LogPage(self._reader, self._item, rank, attempt))


def _one(item: RunStatus) -> RunStatus:
    """Return the run, or of a sweep the element that a person most likely wants to see."""
    if not item.elements:
        return item
    index = interesting_element(item.elements)
    return element_row(item, next(each for each in item.elements if each.index == index))
